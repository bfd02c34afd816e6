# SPDX-License-Identifier: Apache-2.0
"""Counts the busy cores while a program runs that does not report them itself, as nezha-bench does."""

from __future__ import annotations

import os
import statistics
import threading
import time
from pathlib import Path

STEP = 0.1  # seconds


def work_ticks(cpus: set[int]) -> int:
    """Returns the ticks that these CPUs have worked since the machine started."""
    names = {f"cpu{number}" for number in cpus}
    total = 0
    for line in Path("/proc/stat").read_text().splitlines():
        name, *rest = line.split()
        if name in names:
            # proc(5): user, nice, system, idle, iowait, irq, softirq, and then the work of others
            user, nice, system, _, _, irq, softirq = map(int, rest[:7])
            total += user + nice + system + irq + softirq
    return total


class BusyCores:
    """Counts the busy cores in a thread of its own, from the start of the context to its end.

    The median of short steps is the value after the program's start-up and before its end.
    """

    def __init__(self) -> None:
        self._steps: list[float] = []
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._look_on, daemon=True)

    def __enter__(self) -> BusyCores:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._is_over.set()
        self._thread.join()

    @property
    def median(self) -> float | None:
        """The median number of busy cores; None if the context was too short."""
        return statistics.median(self._steps) if self._steps else None

    def _look_on(self) -> None:
        cpus = os.sched_getaffinity(0)
        per_second = os.sysconf("SC_CLK_TCK")
        ticks, at = work_ticks(cpus), time.monotonic()
        while not self._is_over.wait(STEP):
            now, then = work_ticks(cpus), time.monotonic()
            self._steps.append((now - ticks) / per_second / (then - at))
            ticks, at = now, then
