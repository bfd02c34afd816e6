"""CPU time that the host of a virtual machine gave to others while this one had work for it."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from results import AnyConfig, ResultsOf

TRIES = 6  # of a launch, until few enough is stolen
REST = 5.0  # seconds before the next one: hosts that ration CPU time give more after some of idleness


class CpuTime(NamedTuple):
    """Of all CPUs since the machine started, in ticks."""

    stolen: int
    total: int

    @staticmethod
    def now() -> CpuTime:
        # proc(5): user, nice, system, idle, iowait, irq, softirq, steal, then parts of the first two
        first, _, _ = Path("/proc/stat").read_text().partition("\n")
        ticks = [int(word) for word in first.split()[1:9]]
        return CpuTime(stolen=ticks[7], total=sum(ticks))

    def part_stolen_since(self) -> float:
        then = CpuTime.now()
        return (then.stolen - self.stolen) / max(then.total - self.total, 1)


def note(results: Sequence[ResultsOf[AnyConfig]]) -> list[str]:
    """Nothing of a machine from which nothing was stolen."""
    parts = [row["stolen"] for each in results for row in each.measurements if "stolen" in row]
    if not any(parts):
        return []
    return [
        f"CPU time stolen by this machine's host: {statistics.median(parts):.1%} (median run),"
        f" {max(parts):.1%} (worst); --most-stolen has such runs made again."
    ]
