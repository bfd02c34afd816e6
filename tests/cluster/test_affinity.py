# SPDX-License-Identifier: Apache-2.0
"""Rails with threads of their own, and the cores on which the threads run."""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Iterator
from pathlib import Path

import job
import pytest
from testbed import Testbed

RAILS = ["eth0", "eth1"]
MIB = 1 << 18  # elements
ALLOWED = os.sched_getaffinity(0)


@dataclasses.dataclass(frozen=True)
class Thread:
    cpus: set[int]  # the CPUs that it may use
    cpu: int  # the CPU that it used last
    ticks: int  # of CPU time used


def parse_cpus(text: str) -> set[int]:
    """Parses a list in the kernel's format: 0-3,8."""
    ends = [part.split("-") for part in text.split(",")]
    return {cpu for end in ends for cpu in range(int(end[0]), int(end[-1]) + 1)}


def rail_threads(rank: job.Rank) -> dict[str, Thread]:
    """The rail threads of a rank, by rail."""
    threads = {}
    for folder in Path(f"/proc/{rank.process.pid}/task").iterdir():
        try:
            name = (folder / "comm").read_text().strip()
            lines = (folder / "status").read_text().splitlines()
            stat = (folder / "stat").read_text().rpartition(")")[2].split()  # from the third field
        except (FileNotFoundError, ProcessLookupError):  # the thread has ended meanwhile
            continue
        if not name.startswith("nezha-"):
            continue
        status = dict(line.split(":\t", 1) for line in lines)
        threads[name.removeprefix("nezha-")] = Thread(
            parse_cpus(status["Cpus_allowed_list"]), int(stat[36]), int(stat[11]) + int(stat[12])
        )
    return threads


def await_work(work: job.Job) -> None:
    """Waits until the threads of all rails have used CPU time."""

    def all_have() -> bool:
        each = [rail_threads(rank) for rank in work.ranks]
        return all(set(one) == set(RAILS) and all(it.ticks for it in one.values()) for one in each)

    job.await_that("CPU time for each rail's thread", all_have, tell=work.told)


@pytest.fixture(scope="module")
def bed() -> Iterator[Testbed]:
    with Testbed(hosts=2, rails=dict.fromkeys(RAILS, "1gbit")) as bed:
        yield bed


def test_named_cores(bed: Testbed) -> None:
    """Each rail's thread runs on its core, and the results are right, also when a rail is cut."""
    cores = {"eth0": min(ALLOWED), "eth1": max(ALLOWED)}
    rails = ",".join(f"tcp:{rail}?cpus={core}" for rail, core in cores.items())
    with job.Job(bed) as work:
        work.start(env={"NEZHA_RAILS": rails}, elements=4 * MIB, until=work.stop_file)
        await_work(work)
        for rank in work.ranks:
            for rail, thread in rail_threads(rank).items():
                assert (thread.cpus, thread.cpu) == ({cores[rail]}, cores[rail]), work.told()
        bed.cut(1, "eth1")
        work.all_done(5)
        bed.heal(1, "eth1")
        work.all_done(5)
        work.stop()
        work.succeed()
        assert any(rank.rail("eth1")["failures"] for rank in work.ranks), work.told()


def test_cores_that_are_dealt_out(bed: Testbed) -> None:
    """The rails use separate cores, and together all cores that the process may use."""
    with job.Job(bed) as work:
        env = {"NEZHA_RAIL_THREADS": "1"}
        rails = job.rails_option(RAILS)
        work.start(env=env, rails=rails, elements=4 * MIB, until=work.stop_file)
        await_work(work)
        for rank in work.ranks:
            threads = rail_threads(rank)
            assert all(it.cpu in it.cpus for it in threads.values()), threads
            assert set().union(*(it.cpus for it in threads.values())) == ALLOWED, threads
            if len(ALLOWED) > 1:
                assert not set.intersection(*(it.cpus for it in threads.values())), threads
        work.stop()
        work.succeed()


def test_only_the_rail_that_names_cores_has_a_thread(bed: Testbed) -> None:
    listed = ",".join(map(str, sorted(ALLOWED)))
    with job.Job(bed) as work:
        env = {"NEZHA_RAILS": f"tcp:eth0,tcp:eth1?cpus={listed}", "NEZHA_RAIL_THREADS": "0"}
        work.start(env=env, elements=MIB, until=work.stop_file)
        work.all_done(1)
        for rank in work.ranks:
            assert {rail: it.cpus for rail, it in rail_threads(rank).items()} == {"eth1": ALLOWED}
        work.stop()
        work.succeed()


def test_connections_of_one_rail(bed: Testbed) -> None:
    """Each connection of a rail is a rail of its own and carries its part."""
    with job.Job(bed) as work:
        env = {"NEZHA_RAIL_THREADS": "1"}
        work.start(env=env, rails="tcp:eth0?streams=2", elements=4 * MIB, until=work.stop_file)
        work.all_done(2)
        work.stop()
        work.succeed()
        for rank in work.ranks:
            assert all(rank.rail(name)["sent"] > MIB for name in ("eth0", "eth0+2")), work.told()


def told_cores(bed: Testbed, env: dict[str, str], cores: set[int]) -> set[str]:
    """The texts about threads and cores in the logs of ranks that may use only `cores`."""
    with job.Job(bed, ranks=4, ranks_per_host=2) as work:
        os.sched_setaffinity(0, cores)
        try:
            work.start(env=env | {"NEZHA_LOG": "info"}, rails=job.rails_option(RAILS), elements=1)
        finally:
            os.sched_setaffinity(0, ALLOWED)
        work.succeed()
        texts = [re.findall(r"(?<=: )threads that .*", it.process.stderr) for it in work.ranks]
        assert all(len(text) == 1 for text in texts), work.told()
        return {text for (text,) in texts}


def test_the_log_tells_of_threads_and_cores(bed: Testbed) -> None:
    """All hosts of a testbed count as one machine, although their names differ."""
    torchrun = {"WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "2"}  # the testbed sets RANK
    threads = "threads that may drive the rails"
    ranks = "ranks on this machine"
    own = len(ALLOWED) // 4  # the cores for each rank
    most = min(own, len(RAILS)) if own > 1 else 0
    assert told_cores(bed, {}, ALLOWED) == {
        f"{threads}: {most}; cores: {len(ALLOWED)}; {ranks}: at most 4"
    }
    env = torchrun | {"NEZHA_RAIL_THREADS": "1"}
    assert told_cores(bed, env, {max(ALLOWED)}) == {f"{threads}: 2; cores: 1; {ranks}: 2"}


def test_cores_that_are_not_there(bed: Testbed) -> None:
    with job.Job(bed, ranks=1) as work:
        (rank,) = work.start(rails="tcp:eth0?cpus=8191", elements=1)
        work.wait()
        error = rank.wait_for("error")
        assert error["type"] == "InvalidArgument", error
        for part in ("rank 0", "'tcp:eth0?cpus=8191'", "cores 8191", "may use"):
            assert part in error["what"], error
