# SPDX-License-Identifier: Apache-2.0
"""The tables of bench/peers, on the terminal and as CSV."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path

import stolen
from peer import GLOO_DEVICE, GLOO_PRELOAD, IPERF3, NEZHA, NEZHA_CPU_FIRST, Peer, is_over_mptcp
from results import (
    LEARNING,
    MARK_NOTE,
    TCP_CEILING,
    ResultsOf,
    Value,
    bandwidth_of,
    cpu_seconds_of,
    failure_text,
    p50_of,
)
from units import size_text

COPIED_IN_PARTS = ["allgather", "reduce_scatter", "alltoall", "gather"]
SMALL = 1 << 16  # bytes; up to here CPU time is told by the operation, above by the GiB
NOTES = f"""\
p50: of the rank where it is largest. The wire limit is at the sum of all rails' rates, whichever a
peer uses; TCP can use {TCP_CEILING:.3f} of it. Each table says what follows from it for its collective.
MB/s: the whole vector over p50, MB = 10^6 bytes. GiB: of the whole vector. CPU: of all ranks'
processes together, while they wait too; not what the kernel does for them on cores that are idle or
another's.
All have as many operations before the clock runs: {LEARNING} allreduces of less than 8 MiB, by which
nezha learns; else 10, of a whole vector of 1 MiB or more 3, of 16 MiB or more 2.
The best peer is the best of those that are in the table. Open MPI yields, as ranks may have to share
cores; ompi-spin, by name, does not. Without parts that it is told, Open MPI takes rails for alike:
hosts' interfaces here are, but for the shapers behind them.
{MARK_NOTE}"""


def legend(peers: Sequence[Peer]) -> str:
    return "\n".join(_aligned([[peer.key, peer.label] for peer in peers], left=2))


def table(results: ResultsOf[Peer]) -> str:
    """Of one network and collective."""
    sizes = results.sizes
    small = [size for size in sizes if size <= SMALL]
    large = [size for size in sizes if size > SMALL]
    blocks = [_block("p50 (µs)", results, sizes, p50_of, waits_by="waits by")]
    if is_limited(results):
        part = part_of_limit_of(results)
        blocks.append(_block("part of the wire limit", results, sizes, part, digits=".3f"))
    elif results.about.has_data:
        blocks.append(_block("MB/s", results, sizes, bandwidth_of))
    if small:
        blocks.append(_block("CPU (µs/operation)", results, small, _cpu_microseconds_of))
    if large:
        blocks.append(_block("CPU (s/GiB)", results, large, cpu_per_gib_of))
    runs = f"; medians of {results.repeat} runs" if results.repeat > 1 else "; one run of each"
    title = f"{results.title()}; {results.machine['cores']} cores{runs}"
    notes = [*stolen.note([results]), *map(failure_text, results.failures)]
    about = "\n".join(_about(results))
    leads = [_lead(results), _lead_over(results, GLOO_DEVICE, ("gloo", "gloo-ring"))]
    leads.append(_lead_over(results, GLOO_PRELOAD, (NEZHA,)))
    return "\n\n".join(filter(None, [title, *blocks, *leads, about, *notes]))


def _about(results: ResultsOf[Peer]) -> list[str]:
    """What is special of the collective, and its wire limit."""
    about = results.about
    notes = about.notes()
    if is_limited(results):
        notes.append(f"The wire limit: {about.busiest}, at the sum of the rails' rates.")
    keys = {peer.key for peer in results.configs}
    if about.name in COPIED_IN_PARTS and keys & {"gloo-parts", "gloo-weights"}:
        notes.append(
            "Gloo wants a vector of blocks in one piece: with a context for each rail the parts of the"
            " blocks are copied, in each context's thread."
        )
    return notes


def is_limited(results: ResultsOf[Peer]) -> bool:
    """Whether all rails are shaped, and the collective has data."""
    return results.wire_limit(results.configs[0], results.sizes[0]) is not None


def part_of_limit_of(results: ResultsOf[Peer]) -> Value:
    """For results of which is_limited() is true."""
    peer = results.configs[0]  # the limit is the same for all

    def part_of_limit(row: dict) -> float:
        limit = results.wire_limit(peer, size_of(results, row))
        assert limit
        return limit / p50_of(row)

    return part_of_limit


def size_of(results: ResultsOf[Peer], row: dict) -> int:
    """As results.sizes has it."""
    return row["bytes"] // results.about.vector(1, results.hosts)


def cpu_per_gib_of(row: dict) -> float:
    return cpu_seconds_of(row) / row["bytes"] * (1 << 30)


def _cpu_microseconds_of(row: dict) -> float:
    return cpu_seconds_of(row) * 1e6


def _block(
    heading: str,
    results: ResultsOf[Peer],
    sizes: Sequence[int],
    value: Value,
    digits: str = "",
    waits_by: str = "",
) -> str:
    """A line for each peer; `waits_by` heads a column that says how its ranks wait."""
    rows = [[heading, *([waits_by] if waits_by else []), *map(size_text, sizes)]]
    for peer in results.configs:
        numbers = [
            _number(results.median(peer, size, value), digits) + results.mark(peer, size)
            for size in sizes
        ]
        rows.append([f"  {peer.key}", *([peer.regime] if waits_by else []), *numbers])
    return "\n".join(_aligned(rows, left=2 if waits_by else 1))


def _number(value: float | None, digits: str) -> str:
    """Three digits or more, unless it is said how many."""
    if value is None:
        return "-"
    return format(value, digits or (".3g" if value < 100 else ".0f"))


def _aligned(rows: Sequence[Sequence[str]], left: int) -> list[str]:
    """So many columns start at one place, the others end at one."""
    widths = [max(map(len, column)) for column in zip(*rows)]
    return [
        "  ".join(
            cell.ljust(width) if index < left else cell.rjust(width)
            for index, (cell, width) in enumerate(zip(row, widths))
        ).rstrip()
        for row in rows
    ]


def _lead(results: ResultsOf[Peer]) -> str:
    """How many times as fast as the best peer nezha is, be it that some runs of it failed."""
    nezha = results.config(NEZHA)
    no_peers = (NEZHA, NEZHA_CPU_FIRST, GLOO_DEVICE, GLOO_PRELOAD, IPERF3)
    others = [peer for peer in results.configs if peer.key not in no_peers]
    ratios, names = [], []
    for size in results.sizes:
        times = {peer.key: time for peer in others if (time := results.p50(peer, size))}
        best = results.config(min(times, key=times.__getitem__, default=""))
        ratio = results.speedup(nezha, best, size) if nezha and best else None
        ratios.append(f"{ratio:.2f}{results.mark(nezha, size)}" if nezha and ratio else "-")
        names.append(best.key + results.mark(best, size) if best else "")
    head = ["nezha: times as fast as", *map(size_text, results.sizes)]
    return "\n".join(_aligned([head, ["  the best peer", *ratios], ["", *names]], left=1))


def _lead_over(results: ResultsOf[Peer], key: str, others: Sequence[str]) -> str:
    """How many times as fast as those of the others that were measured; empty if nothing is known."""
    peer = results.config(key)
    rows = [[f"{key}: times as fast as", *map(size_text, results.sizes)]]
    for other in map(results.config, others):
        ratios = [peer and other and results.speedup(peer, other, size) for size in results.sizes]
        if peer and other and any(ratios):
            rows.append([f"  {other.key}", *(f"{ratio:.2f}" if ratio else "-" for ratio in ratios)])
    return "\n".join(_aligned(rows, left=1)) if len(rows) > 1 else ""


# ---- CSV --------------------------------------------------------------------------------------

FIELDS = ["collective", "rails", "hosts", "peer", "label", "regime", "repeat", "size", "bytes"]
FIELDS += ["iterations"]
FIELDS += ["min_us", "p50_us", "p99_us", "max_us", "part_of_limit", "cpu_s_per_gib", "shares"]


def save_csv(networks: Sequence[ResultsOf[Peer]], path: Path) -> None:
    """A line for each measurement; what failed has none. `size` is as in the tables, `bytes` that of
    the whole vector.
    """
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, FIELDS, extrasaction="ignore")
        writer.writeheader()
        for results in networks:
            writer.writerows(_line(results, row) for row in results.measurements)


def _line(results: ResultsOf[Peer], row: dict) -> dict:
    peer = results.config(row["config"])
    assert peer  # the row was measured of one of them
    limited = is_limited(results)
    return row | {
        "collective": results.collective,
        "size": size_of(results, row),
        "rails": "+".join(str(rate or "none") for rate in results.rails.values()),
        "hosts": results.hosts,
        "peer": peer.key,
        "label": peer.label,
        "regime": peer.regime,
        "part_of_limit": f"{part_of_limit_of(results)(row):.4f}" if limited else "",
        "cpu_s_per_gib": f"{cpu_per_gib_of(row):.3f}" if row["bytes"] else "",
        "shares": "" if is_over_mptcp(peer) else _shares(row),  # its program knows one rail alone
    }


def _shares(row: dict) -> str:
    return " ".join(f"{rail['name']} {rail['share']:.4f}" for rail in row["rails"])
