# SPDX-License-Identifier: Apache-2.0
"""A job of examples/survivors continues after it has lost ranks."""

from __future__ import annotations

import re
import signal
from pathlib import Path

import job
import pytest
from processes import end_sessions
from testbed import Process, Testbed

SURVIVORS = str(job.BUILD / "tests" / "cluster_survivors")
PROCESSES = 5
STEPS = 3000
RAILS = ["eth0", "eth1"]
TIMEOUT = 10.0  # seconds: the timeout of the example's operations


def start(bed: Testbed, number: int, folder: Path) -> Process:
    rails = [f"tcp:{rail}" for rail in RAILS]
    argv = [SURVIVORS, str(number), str(PROCESSES), str(folder), str(STEPS), *rails]
    [process] = bed.start(argv, on=[number])
    return process


def await_work(processes: list[Process], size: int, seconds: float) -> None:
    """Waits until the processes work in a context of this size, and so have their connections."""
    for process in processes:
        process.wait_for(rf"rank \d of {size}, at work", seconds)


def total(process: Process) -> str:
    end = re.search(rf"{STEPS} steps are done, the total is (\d+)\n", process.stdout)
    assert end, process.stdout
    return end[1]


def test_survivors(tmp_path: Path) -> None:
    """One rank is killed, one is stopped and one is cut off; the remaining two do all steps."""
    with Testbed(hosts=PROCESSES, rails=dict.fromkeys(RAILS, "1gbit")) as bed:
        processes = [start(bed, number, tmp_path) for number in range(PROCESSES)]
        try:
            await_work(processes, 5, job.PATIENCE)
            processes[0].kill(signal.SIGKILL)
            await_work(processes[1:], 4, job.PATIENCE)
            processes[4].kill(signal.SIGSTOP)
            await_work(processes[1:4], 3, TIMEOUT + job.PATIENCE)
            for rail in RAILS:
                bed.cut(2, rail, "silent")
            survivors = [processes[1], processes[3]]
            await_work(survivors, 2, TIMEOUT + job.PATIENCE)
            # The rank that was left out learns it when it looks up the members of the next context.
            assert processes[2].wait(TIMEOUT + job.PATIENCE) == 1
            assert "the others go on without this one" in processes[2].stdout
            assert [process.wait(job.PATIENCE) for process in survivors] == [0, 0]
            assert total(survivors[0]) == total(survivors[1])
        finally:
            end_sessions(processes, gently=False)


@pytest.mark.parametrize("pair", [(1, 3), (0, 4), (2, 3)], ids=str)
def test_two_that_die_at_once(tmp_path: Path, pair: tuple[int, int]) -> None:
    """The error names both ranks, so the next context consists of live ranks only."""
    with Testbed(hosts=PROCESSES, rails=dict.fromkeys(RAILS, "1gbit")) as bed:
        processes = [start(bed, number, tmp_path) for number in range(PROCESSES)]
        try:
            await_work(processes, 5, job.PATIENCE)
            for number in pair:
                processes[number].kill(signal.SIGKILL)
            survivors = [process for n, process in enumerate(processes) if n not in pair]
            await_work(survivors, 3, job.PATIENCE)
            for process in survivors:
                assert "of 4" not in process.stdout, process.stdout
        finally:
            end_sessions(processes, gently=False)
