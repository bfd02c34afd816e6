# SPDX-License-Identifier: Apache-2.0
"""CPU time that others took while something was measured: the host of a virtual machine, which gave
it to other machines, and this machine's other processes."""

from __future__ import annotations

import contextlib
import os
import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from results import AnyConfig, ResultsOf

TRIES = 6  # of a launch, until few enough is stolen
REST = 5.0  # seconds before the next one: hosts that ration CPU time give more after some of idleness
KERNEL = 2  # the process whose children are the kernel's threads


class Taken(NamedTuple):
    """Parts of all CPU time, 0 to 1."""

    stolen: float
    others: float


class Usage(NamedTuple):
    """What a process and those of its children that have been waited for have used, in ticks."""

    parent: int
    ticks: int


def usage_of_all() -> Iterator[tuple[int, Usage]]:
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with contextlib.suppress(OSError):  # it has ended
                stat = Path(f"/proc/{entry}/stat").read_text()
                # proc(5), from the state on: the name before may hold anything
                fields = stat[stat.rindex(")") + 2 :].split()
                yield int(entry), Usage(int(fields[1]), sum(map(int, fields[11:15])))


def ticks_of_others(usages: dict[int, Usage]) -> int:
    """The ticks of all processes but this one, its descendants and the kernel's threads.

    A process that ends hands its ticks on to its parent, so that none are lost. What the kernel's
    threads do is mostly the networks' work, and so this benchmark's.
    """

    def is_other(pid: int) -> bool:
        while pid in usages:
            if pid in (os.getpid(), KERNEL):
                return False
            pid = usages[pid].parent
        return True

    return sum(usage.ticks for pid, usage in usages.items() if is_other(pid))


class CpuTime(NamedTuple):
    """Of all CPUs since the machine started, in ticks."""

    stolen: int
    total: int
    by_processes: int  # as the kernel counts them all
    seen: int  # of the processes that are seen here; a container does not see those outside
    others: int

    @staticmethod
    def now() -> CpuTime:
        # proc(5): user, nice, system, idle, iowait, irq, softirq, steal, then parts of the first two
        first, _, _ = Path("/proc/stat").read_text().partition("\n")
        ticks = [int(word) for word in first.split()[1:9]]
        usages = dict(usage_of_all())
        return CpuTime(
            stolen=ticks[7],
            total=sum(ticks),
            by_processes=sum(ticks[:3]),
            seen=sum(usage.ticks for usage in usages.values()),
            others=ticks_of_others(usages),
        )

    def taken_since(self) -> Taken:
        taken = CpuTime(*(then - before for then, before in zip(CpuTime.now(), self)))
        others = max(taken.others, 0) + max(taken.by_processes - taken.seen, 0)
        total = max(taken.total, 1)
        return Taken(taken.stolen / total, min(others / total, 1))


def note(results: Sequence[ResultsOf[AnyConfig]]) -> list[str]:
    """Nothing of stolen time on a machine from which nothing was stolen."""
    rows = [row for each in results for row in each.measurements]
    stolen = [row["stolen"] for row in rows if "stolen" in row]
    others = [row["other_processes"] for row in rows if "other_processes" in row]
    notes = []
    if any(stolen):
        notes.append(
            f"CPU time stolen by this machine's host: {_median_and_worst(stolen)};"
            " --most-stolen has such runs made again."
        )
    if others:
        notes.append(f"Other processes took {_median_and_worst(others)} of the CPU time.")
    return notes


def _median_and_worst(parts: list[float]) -> str:
    return f"{statistics.median(parts):.1%} (median run), {max(parts):.1%} (worst)"
