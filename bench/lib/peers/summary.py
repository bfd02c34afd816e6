# SPDX-License-Identifier: Apache-2.0
"""The tables of bench/peers, on the terminal and as CSV."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path

from lib.peers.blocks import aligned, block, medians
from lib.peers.peer import GLOO_DEVICE, GLOO_PRELOAD, IPERF3, NEZHA, NEZHAS, Peer, is_over_mptcp
from lib.shared import stolen
from lib.shared.results import (
    LEARNING,
    MARK_NOTE,
    TCP_CEILING,
    ResultsOf,
    bandwidth_of,
    cpu_per_gib_of,
    cpu_seconds_of,
    failure_text,
    is_limited,
    p50_of,
    part_of_limit_of,
    size_of,
)
from lib.shared.units import size_text

COPIED_IN_PARTS = ["allgather", "reduce_scatter", "alltoall", "gather"]
SMALL = 1 << 16  # bytes; up to this size CPU time is given per operation, above it per GiB
NOTES = f"""\
p50: the largest p50 of any rank. The wire limit is the sum of all rails' rates, whichever rails a peer
uses; TCP can use {TCP_CEILING:.3f} of it. Each table says what the limit means for its collective.
MB/s: the whole vector divided by p50, MB = 10^6 bytes. GiB: of the whole vector. CPU: the time of all
ranks' processes together, also while they wait, but without what the kernel does for them on cores that
are idle or run another process.
All peers run the same number of operations before the clock runs: {LEARNING} allreduces of less than 8
MiB, by which nezha learns; otherwise 10, or 3 if the whole vector has 1 MiB or more, or 2 from 16 MiB on.
The best peer is the best one in the table. Open MPI yields, because ranks may have to share cores;
ompi-spin does not. If it is not told the rails' parts, Open MPI takes all rails for equal. The hosts'
interfaces are equal here, except for the shapers behind them.
{MARK_NOTE}"""


def legend(peers: Sequence[Peer]) -> str:
    return "\n".join(aligned([[peer.key, peer.label] for peer in peers], left=2))


def table(results: ResultsOf[Peer]) -> str:
    """Returns the tables of one network and collective."""
    sizes = results.sizes
    small = [size for size in sizes if size <= SMALL]
    large = [size for size in sizes if size > SMALL]
    blocks = [block("p50 (µs)", results, sizes, medians(results, p50_of), waits_by="waits by")]
    if is_limited(results):
        part = medians(results, part_of_limit_of(results), ".3f")
        blocks.append(block("part of the wire limit", results, sizes, part))
    elif results.about.has_data:
        blocks.append(block("MB/s", results, sizes, medians(results, bandwidth_of)))
    if small:
        cpu = medians(results, _cpu_microseconds_of)
        blocks.append(block("CPU (µs/operation)", results, small, cpu))
    if large:
        blocks.append(block("CPU (s/GiB)", results, large, medians(results, cpu_per_gib_of)))
    runs = f"; medians of {results.repeat} runs" if results.repeat > 1 else "; one run of each"
    title = f"{results.title()}; {results.machine['cores']} cores{runs}"
    notes = [*stolen.note([results]), *map(failure_text, results.failures)]
    about = "\n".join(_about(results))
    leads = [_lead(results), _lead_over(results, GLOO_DEVICE, ("gloo", "gloo-ring"))]
    leads.append(_lead_over(results, GLOO_PRELOAD, (NEZHA,)))
    return "\n\n".join(filter(None, [title, *blocks, *leads, about, *notes]))


def _about(results: ResultsOf[Peer]) -> list[str]:
    """Returns the notes on the collective and its wire limit."""
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


def _cpu_microseconds_of(row: dict) -> float:
    return cpu_seconds_of(row) * 1e6


def _lead(results: ResultsOf[Peer]) -> str:
    """Returns how many times as fast as the best peer nezha is; some runs of that peer may have failed."""
    nezha = results.config(NEZHA)
    no_peers = (*NEZHAS, GLOO_DEVICE, GLOO_PRELOAD, IPERF3)
    others = [peer for peer in results.configs if peer.key not in no_peers]
    ratios, names = [], []
    for size in results.sizes:
        times = {peer.key: time for peer in others if (time := results.p50(peer, size))}
        best = results.config(min(times, key=times.__getitem__, default=""))
        ratio = results.speedup(nezha, best, size) if nezha and best else None
        ratios.append(f"{ratio:.2f}{results.mark(nezha, size)}" if nezha and ratio else "-")
        names.append(best.key + results.mark(best, size) if best else "")
    head = ["nezha: times as fast as", *map(size_text, results.sizes)]
    return "\n".join(aligned([head, ["  the best peer", *ratios], ["", *names]], left=1))


def _lead_over(results: ResultsOf[Peer], key: str, others: Sequence[str]) -> str:
    """Returns how many times as fast as each of the others the peer is; empty if nothing was measured."""
    peer = results.config(key)
    rows = [[f"{key}: times as fast as", *map(size_text, results.sizes)]]
    for other in map(results.config, others):
        ratios = [peer and other and results.speedup(peer, other, size) for size in results.sizes]
        if peer and other and any(ratios):
            rows.append([f"  {other.key}", *(f"{ratio:.2f}" if ratio else "-" for ratio in ratios)])
    return "\n".join(aligned(rows, left=1)) if len(rows) > 1 else ""


# ---- CSV --------------------------------------------------------------------------------------

FIELDS = ["collective", "rails", "hosts", "peer", "label", "regime", "repeat", "size", "bytes"]
FIELDS += ["iterations"]
FIELDS += ["min_us", "p50_us", "p99_us", "max_us", "part_of_limit", "cpu_s_per_gib", "shares"]


def save_csv(networks: Sequence[ResultsOf[Peer]], path: Path) -> None:
    """Writes a line for each measurement; a failed run has none.

    `size` is the size in the tables, and `bytes` is that of the whole vector.
    """
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, FIELDS, extrasaction="ignore")
        writer.writeheader()
        for results in networks:
            writer.writerows(_line(results, row) for row in results.measurements)


def _line(results: ResultsOf[Peer], row: dict) -> dict:
    peer = results.config(row["config"])
    assert peer  # the row is of one of these peers
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
        "shares": "" if is_over_mptcp(peer) else _shares(row),  # its program knows only one rail
    }


def _shares(row: dict) -> str:
    return " ".join(f"{rail['name']} {rail['share']:.4f}" for rail in row["rails"])
