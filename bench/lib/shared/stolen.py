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

from lib.shared.results import AnyConfig, ResultsOf

TRIES = 6  # the most tries of a launch, until little enough CPU time is stolen
REST = 5.0  # seconds before the next try: hosts that ration CPU time give more after idling
KERNEL = 2  # the process whose children are the kernel's threads, if its name is KERNEL_NAME
KERNEL_NAME = "kthreadd"  # a container has processes of its own, and any of them may be number 2


class Taken(NamedTuple):
    """The parts of all CPU time that others took, from 0 to 1."""

    stolen: float
    others: float


class Usage(NamedTuple):
    """The CPU time that a process has used, in ticks."""

    parent: int
    ticks: int
    of_children: int = 0  # the ticks of children that have ended and that it has waited for
    name: str = ""


def usage_of_all() -> Iterator[tuple[int, Usage]]:
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with contextlib.suppress(OSError):  # The process may have ended.
                stat = Path(f"/proc/{entry}/stat").read_text()
                # These are the fields of proc(5) from the state on; the name before it may contain anything.
                name, _, rest = stat.partition("(")[2].rpartition(") ")
                fields = rest.split()
                user, system, *of_children = map(int, fields[11:15])
                yield int(entry), Usage(int(fields[1]), user + system, sum(of_children), name)


def family(root: int, usages: dict[int, Usage]) -> set[int]:
    """Returns a process and its descendants."""

    def is_of(pid: int) -> bool:
        while pid in usages and pid != root:
            pid = usages[pid].parent
        return pid in usages

    return {pid for pid in usages if is_of(pid)}


def ours(usages: dict[int, Usage]) -> set[int]:
    return family(os.getpid(), usages)


def others(usages: dict[int, Usage]) -> set[int]:
    """Returns all processes but this one, its descendants and the kernel's threads.

    The kernel's threads mostly do the work of the networks, which is part of this benchmark.
    """
    kernel = usages.get(KERNEL)
    is_there = kernel is not None and kernel.name == KERNEL_NAME
    return set(usages) - ours(usages) - (family(KERNEL, usages) if is_there else set())


class CpuTime(NamedTuple):
    """The time of all CPUs since the machine started, in ticks."""

    stolen: int
    total: int
    by_processes: int  # the ticks of all processes, as the kernel counts them
    usages: dict[int, Usage]  # the processes that are visible here and have not ended

    @staticmethod
    def now() -> CpuTime:
        # proc(5): user, nice, system, idle, iowait, irq, softirq, steal, then parts of the first two
        first, _, _ = Path("/proc/stat").read_text().partition("\n")
        ticks = [int(word) for word in first.split()[1:9]]
        return CpuTime(
            stolen=ticks[7],
            total=sum(ticks),
            by_processes=sum(ticks[:3]),
            usages=dict(usage_of_all()),
        )

    def by_us(self) -> int:
        """Returns the ticks of this process and of its descendants, which are waited for when they end."""
        usages = [self.usages[pid] for pid in ours(self.usages)]
        return sum(usage.ticks + usage.of_children for usage in usages)

    def taken_since(self) -> Taken:
        """Returns the parts of the CPU time that others took since then.

        Other processes count by what each of them has used since then. If a process has ended meanwhile,
        its parent knows nothing of it, or only the ticks of its whole life, most of which may be older.
        Such processes, and those outside of a container, count by the ticks that the kernel counts
        beyond those of all processes that are seen.
        """
        then = CpuTime.now()
        new = Usage(parent=0, ticks=0)
        grown = {
            pid: max(usage.ticks - self.usages.get(pid, new).ticks, 0)
            for pid, usage in then.usages.items()
        }
        by_others = sum(grown[pid] for pid in others(then.usages))
        not_ours = sum(grown[pid] for pid in grown.keys() - ours(then.usages))
        seen = not_ours + max(then.by_us() - self.by_us(), 0)
        unseen = max(then.by_processes - self.by_processes - seen, 0)
        total = max(then.total - self.total, 1)
        return Taken((then.stolen - self.stolen) / total, min((by_others + unseen) / total, 1))


def note(results: Sequence[ResultsOf[AnyConfig]]) -> list[str]:
    """Returns the notes on CPU time that others took. It omits stolen time if nothing was stolen."""
    return note_of([row for each in results for row in each.measurements])


def note_of(rows: Sequence[dict]) -> list[str]:
    """Returns the same notes on these measurements."""
    stolen = [row["stolen"] for row in rows if "stolen" in row]
    others = [row["other_processes"] for row in rows if "other_processes" in row]
    notes = []
    if any(stolen):
        notes.append(
            f"CPU time stolen by this machine's host: {_median_and_worst(stolen)};"
            " with --most-stolen such runs are repeated."
        )
    if others:
        notes.append(f"Other processes took {_median_and_worst(others)} of the CPU time.")
    return notes


def _median_and_worst(parts: list[float]) -> str:
    return f"{statistics.median(parts):.1%} (median run), {max(parts):.1%} (worst)"
