# SPDX-License-Identifier: Apache-2.0
"""The tables of bench/cores, on the terminal and as CSV."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path

from lib.cores.results import (
    ALL_BUSY,
    BUSY_WITH_OTHERS,
    TOO_MUCH,
    CoreResults,
    Measured,
    busy_cores,
    is_machine_the_limit,
    is_short_of_cores,
    others_share,
    ring_of,
    wires,
)
from lib.peers.blocks import Cell, aligned, block, medians, number
from lib.peers.peer import IPERF3, NEZHA, Peer
from lib.shared import stolen
from lib.shared.results import (
    LEARNING,
    MARK_NOTE,
    TCP_CEILING,
    bandwidth_of,
    cpu_per_gib_of,
    failure_text,
    is_limited,
    part_of_limit_of,
    size_of,
)
from lib.shared.units import size_text

NOTES = f"""\
MB/s: the size divided by the largest p50 of any rank; MB = 10^6 bytes. It is the median of the runs,
followed by the slowest and the fastest run. The wire limit: each rank sends 2 (n - 1) / n of the size
at the sum of the rails' rates, whichever rails a peer uses; TCP can use {TCP_CEILING:.3f} of it.
CPU: the time of all ranks' processes together, for each GiB of the message. Busy cores: how many of the
cores that this program may use were at work, for any process or the kernel, while operations were
timed. A rank that waits by yielding is at work, too.
iperf3: the speed that a message would have at the rate that a ring carries in which each host sends to
the next one by all rails. Rails of more than 10 Gbit/s have several connections if there are cores for
them. This speed is a reference, and not a bound.
All peers run the same number of operations before the clock runs: {LEARNING} of less than 8 MiB, 3 of 8
MiB or more, and 2 of 16 MiB or more.
{MARK_NOTE}"""


# ---- one configuration ------------------------------------------------------------------------


def table(results: Measured) -> str:
    sizes = results.sizes
    heading = "MB/s (slowest-fastest run)" if results.repeat > 1 else "MB/s"
    blocks = [block(heading, results, sizes, _speed_of(results))]
    if is_limited(results):
        part = medians(results, part_of_limit_of(results), ".3f")
        blocks.append(block("part of the wire limit", results, sizes, part))
    blocks.append(block("CPU (s/GiB)", results, sizes, medians(results, cpu_per_gib_of)))
    busy = f"busy cores of {results.machine['cores']}"
    blocks.append(
        block(busy, results, sizes, lambda peer, size: number(busy_cores(results, peer, size), ".1f"))
    )
    notes = [*stolen.note([results]), *map(failure_text, results.failures)]
    runs = f"medians of {results.repeat} runs" if results.repeat > 1 else "one run of each"
    title = f"{results.title()}; {results.machine['cores']} cores; {runs}"
    return "\n\n".join([title, *blocks, "\n".join(verdict(results)), *notes])


def _speed_of(results: Measured) -> Cell:
    def cell(peer: Peer, size: int) -> str:
        speeds = sorted(map(bandwidth_of, results.rows(peer, size)))
        if not speeds:
            return "-"
        middle = number(results.median(peer, size, bandwidth_of)) + results.mark(peer, size)
        return f"{middle} ({number(speeds[0])}-{number(speeds[-1])})" if len(speeds) > 1 else middle

    return cell


def verdict(results: Measured) -> list[str]:
    """Returns the sentences that say whether the machine or the wires were the limit."""
    return [_verdict_of_ring(results), *_verdict_of_cores(results), *_verdict_of_others(results)]


def _verdict_of_ring(results: Measured) -> str:
    ring, rate = ring_of(results), results.wire_rate(results.configs[0])
    cores = results.machine["cores"]
    if ring is None:
        unshaped = "No rail is shaped, so that the machine is the limit. " if rate is None else ""
        return f"{unshaped}What the machine carries is not known: no ring of iperf3 was measured."
    busy = f"{ring.busy:.1f} of {cores} cores busy" if ring.busy is not None else "cores uncounted"
    if rate is None or ring.of_wires is None:
        return (
            "A rail is not shaped, so that the machine is the limit: a ring of iperf3 carries"
            f" {ring.gbits:.1f} Gbit/s from each host, with {busy}."
        )
    told = f"{ring.gbits:.1f} of {rate * 8 / 1e9:g} Gbit/s from each host, with {busy}"
    if is_machine_the_limit(results):
        return (
            f"The machine is the limit, not the wires: a ring of iperf3 carries {told}. Parts of the"
            " wire limit say nothing of the peers here; a machine with more cores would tell."
        )
    if ring.of_wires > TOO_MUCH:
        return f"The rails are not shaped as they should be: a ring of iperf3 carries {told}."
    return f"The machine carries what the wires allow: a ring of iperf3 carries {told}."


def _verdict_of_cores(results: Measured) -> list[str]:
    runs = []
    for peer in results.configs:
        sizes = [size for size in results.sizes if is_short_of_cores(results, peer, size)]
        if sizes and peer.key != IPERF3:
            runs.append(f"{peer.key} ({_sizes_text(results, sizes)})")
    if not runs:
        return []
    return [
        f"At least {ALL_BUSY:.0%} of the cores were busy, and the wires had room, so that the machine may be"
        f" the limit: {', '.join(runs)}."
    ]


def _verdict_of_others(results: Measured) -> list[str]:
    share = others_share(results)
    if share < BUSY_WITH_OTHERS:
        return []
    return [
        f"The machine was not quiet: other processes had {share:.0%} of its CPU time in the median run,"
        " so that it may carry more than it did here."
    ]


def _sizes_text(results: Measured, sizes: list[int]) -> str:
    return "all sizes" if sizes == results.sizes else ", ".join(map(size_text, sizes))


# ---- all configurations -----------------------------------------------------------------------


def overview(all_results: CoreResults) -> str:
    """Returns the tables of all configurations: the median MB/s, and nezha's speed-ups."""
    networks = all_results.networks
    keys = [peer.key for peer in all_results.peers()]
    rows = [["rails", "size", *keys, "TCP's limit", "limited by"]]
    for config, results in networks.items():
        for size in results.sizes:
            limit = wires(results, size)
            speeds = [_speed(results, key, size) for key in keys]
            limits = [number(limit) if limit else "none", _limited_by(results)]
            rows.append([config, size_text(size), *speeds, *limits])
    parts = ["\n".join(["Median MB/s", *aligned(rows, left=2)]), _comparison(all_results, keys)]
    return "\n\n".join(filter(None, parts))


def _speed(results: Measured, key: str, size: int) -> str:
    peer = results.config(key)
    return number(results.median(peer, size, bandwidth_of)) if peer else "-"


def _limited_by(results: Measured) -> str:
    is_machine = is_machine_the_limit(results)
    return "not known" if is_machine is None else "machine" if is_machine else "wires"


def _comparison(all_results: CoreResults, keys: Sequence[str]) -> str:
    """Returns the table of how many times as fast nezha by itself is as on one rail and as the others."""
    others = [key for key in keys if key not in (NEZHA, IPERF3)]
    rows = [["rails", "size", "one rail", *others]]
    for config, results in all_results.networks.items():
        single = all_results.on_one_rail(config)
        for size in results.sizes:
            time = _time(results, NEZHA, size)
            times = [_time(single, NEZHA, size), *(_time(results, key, size) for key in others)]
            ratios = [each / time if time and each else None for each in times]
            if any(ratios):
                rows.append([config, size_text(size), *(number(each, ".2f") for each in ratios)])
    if len(rows) == 1:
        return ""
    return "\n".join(["nezha, by itself: times as fast as", *aligned(rows, left=2)])


def _time(results: Measured | None, key: str, size: int) -> float | None:
    peer = results.config(key) if results else None
    return results.p50(peer, size) if results and peer else None


# ---- CSV --------------------------------------------------------------------------------------

FIELDS = ["rails", "hosts", "peer", "label", "repeat", "bytes", "iterations", "min_us", "p50_us"]
FIELDS += ["p99_us", "max_us", "mb_per_s", "part_of_limit", "cpu_s_per_gib", "busy_cores"]


def save_csv(all_results: CoreResults, path: Path) -> None:
    """Writes a line for each measurement; a failed run has none."""
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, FIELDS, extrasaction="ignore")
        writer.writeheader()
        for config, results in all_results.networks.items():
            writer.writerows(_line(config, results, row) for row in results.measurements)


def _line(config: str, results: Measured, row: dict) -> dict:
    peer = results.config(row["config"])
    assert peer  # the row is of one of these peers
    return row | {
        "rails": config,
        "hosts": results.hosts,
        "peer": peer.key,
        "label": peer.label,
        "bytes": size_of(results, row),
        "mb_per_s": f"{bandwidth_of(row):.1f}",
        "part_of_limit": f"{part_of_limit_of(results)(row):.4f}" if is_limited(results) else "",
        "cpu_s_per_gib": f"{cpu_per_gib_of(row):.3f}",
    }
