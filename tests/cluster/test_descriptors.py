# SPDX-License-Identifier: Apache-2.0
"""Ranks with closed or broken standard descriptors, which use a Redis server as their store."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import job
import pytest
from testbed import Testbed

HOST = "10.250.0.254"  # the switch's address on the management network
# The shell's redirections of rank 0's descriptors, by case.
CLOSED = {
    "stdin": "<&-",
    "stdout": ">&-",
    "stderr": "2>&-",
    "stdin-stderr": "<&- 2>&-",
    "stdout-stderr": ">&- 2>&-",
    "all": "<&- >&- 2>&-",
}
# A shell cannot make a pipe that nobody reads.
BREAK_STDERR = """
import os, signal, sys
signal.signal(signal.SIGPIPE, signal.SIG_DFL)
read, write = os.pipe()
os.close(read)
os.dup2(write, 2)
os.execvp(sys.argv[1], sys.argv[1:])
"""


@pytest.fixture(scope="module")
def bed() -> Iterator[Testbed]:
    with Testbed(hosts=2, rails={"eth0": "1gbit"}, mgmt=True) as bed:
        yield bed


@pytest.fixture(scope="module")
def redis(bed: Testbed, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = str(tmp_path_factory.mktemp("redis"))
    command = ["redis-server", "--bind", HOST, "--protected-mode", "no", "--save", "", "--dir", folder]
    server = subprocess.Popen(bed.exec_argv("sw", command), stdout=subprocess.DEVNULL)

    def answers() -> bool:
        assert server.poll() is None, "redis-server has ended"
        ping = bed.exec("sw", ["redis-cli", "-h", HOST, "ping"], check=False)
        return ping.stdout.strip() == "PONG"

    job.await_that("redis-server answers", answers)
    yield f"redis://{HOST}"
    server.kill()
    server.wait(job.PATIENCE)


def start(bed: Testbed, store: str, until: Path, before: list[str]) -> job.Job:
    """Starts ranks that log a lot and check results. `before` precedes the program of rank 0."""
    running = job.Job(bed)
    worker = [
        *(job.WORKER, "--store", store, "--rails", "tcp:eth0", "--elements", "10,100000"),
        *("--until", str(until), "--report", "5", "--timeout", "30000"),
    ]
    env = {"SIZE": "2", "NEZHA_LOG": "trace"}
    for host, command in enumerate([[*before, *worker], worker]):
        running.ranks += [job.Rank(one) for one in bed.start(command, on=[host], env=env)]
    return running


def open_descriptors(pid: int) -> dict[int, str]:
    return {
        int(fd): os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")
    }


def signals(pid: int, kind: str) -> int:
    """A set of signals of the process's first thread, in the form of proc(5)."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{kind}:"):
            return int(line.split()[1], 16)
    raise KeyError(kind)


@pytest.mark.parametrize("how", CLOSED)
def test_closed_standard_descriptors(
    bed: Testbed, redis: str, tmp_path: Path, how: str
) -> None:
    stop = tmp_path / "stop"
    shell = ["bash", "-c", f'exec "$@" {CLOSED[how]}', "bash"]
    with start(bed, f"{redis}?prefix=closed-{how}", stop, shell) as running:
        rank0, rank1 = running.ranks
        rank1.wait_for("done", operation=10)
        standard = {fd: at for fd, at in open_descriptors(rank0.process.pid).items() if fd <= 2}
        stop.touch()
        running.succeed()
    names = ["stdin", "stdout", "stderr"]
    left = [fd for fd, name in enumerate(names) if name not in how.split("-") and how != "all"]
    assert sorted(standard) == left, standard


def test_stderr_that_nobody_reads(bed: Testbed, redis: str, tmp_path: Path) -> None:
    stop = tmp_path / "stop"
    wrapper = ["/usr/bin/python3", "-c", BREAK_STDERR]
    with start(bed, f"{redis}?prefix=broken", stop, wrapper) as running:
        rank0, rank1 = running.ranks
        rank1.wait_for("done", operation=10)
        bit = 1 << (signal.SIGPIPE - 1)
        changed = [kind for kind in ("SigIgn", "SigCgt") if signals(rank0.process.pid, kind) & bit]
        stop.touch()
        running.succeed()
    assert not changed, "the library has changed the program's disposition of SIGPIPE"
