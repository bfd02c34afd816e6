# SPDX-License-Identifier: Apache-2.0
"""If an engine is lost during operations, the hosts complete them. The loss costs only time.

The engine, a star, exists only for these tests (epochs/star.h). The star is a process that sums
what ranks send it, on a rail of its own. All faults come from outside the processes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import job
import pytest
from processes import Process, end_sessions
from testbed import Testbed

HOST = str(job.BUILD / "tests" / "cluster_epoch_host")
RAILS = ["eth0", "eth1"]
STAR_RAIL = "eth2"
RANKS = 3
STAR = RANKS  # the star's host
PORT = 7300
KIB = 1 << 8  # elements


@pytest.fixture(scope="module")
def bed() -> Iterator[Testbed]:
    rails = dict.fromkeys([*RAILS, STAR_RAIL], "500mbit")
    with Testbed(hosts=RANKS + 1, rails=rails) as bed:
        yield bed


@pytest.fixture(autouse=True)
def healed(bed: Testbed) -> Iterator[None]:
    yield
    for host in range(RANKS):
        for rail in [*RAILS, STAR_RAIL]:
            bed.heal(host, rail)


class Work:
    """Ranks that share a star."""

    def __init__(self, bed: Testbed, folder: Path) -> None:
        self.bed = bed
        self.store = folder
        self.ranks: list[job.Rank] = []
        self.stars: list[Process] = []

    def start_star(self) -> None:
        address = self.bed.rail(STAR_RAIL).address(STAR)
        [star] = self.bed.start([HOST, "star", address, str(PORT), str(RANKS)], on=[STAR])
        self.stars.append(star)
        star.wait_for("serves")

    def start(self, elements: int, operations: int, threads: int = 1, pause: int = 0) -> None:
        """Starts the ranks. Without `operations` they run until stop()."""
        self.start_star()
        address = self.bed.rail(STAR_RAIL).address(STAR)
        for rank in range(RANKS):
            argv = [HOST, "rank", str(self.store), rank, RANKS, job.rails_option(RAILS), address]
            argv += [PORT, elements, operations, threads, pause]
            [process] = self.bed.start([str(arg) for arg in argv], on=[rank])
            self.ranks.append(job.Rank(process))

    def stop(self) -> None:
        (self.store / "stop").touch()

    def told(self) -> str:
        return "\n".join(rank.told() for rank in self.ranks)

    def sums(self, rank: int = 0) -> int:
        done = self.ranks[rank].last("done")
        return done["sums"] if done else 0

    def await_sums(self, more: int) -> None:
        """Waits until each rank has received `more` further sums from the star."""
        goals = [self.sums(rank) + more for rank in range(RANKS)]
        job.await_that(
            f"{more} more sums from the star",
            lambda: self.ended() or all(self.sums(r) >= goals[r] for r in range(RANKS)),
            tell=self.told,
        )
        assert not self.ended(), self.told()

    def await_operations(self, more: int) -> None:
        goals = [rank.done + more for rank in self.ranks]
        job.await_that(
            f"{more} more operations",
            lambda: self.ended() or all(r.done >= g for r, g in zip(self.ranks, goals, strict=True)),
            tell=self.told,
        )
        assert not self.ended(), self.told()

    def ended(self) -> bool:
        return any(rank.process.returncode is not None for rank in self.ranks)

    def succeed(self) -> None:
        """All results are right, with the same bits on all ranks."""
        for rank in self.ranks:
            assert rank.process.wait(job.PATIENCE) == 0, self.told()
        hashes = [
            {(done["tag"], done["operation"]): done["hash"] for done in rank.all("done")}
            for rank in self.ranks
        ]
        assert all(each == hashes[0] for each in hashes), "ranks differ"

    def losses(self) -> list[int]:
        return [rank.wait_for("end")["losses"] for rank in self.ranks]

    def pieces(self) -> int:
        """The number of pieces that ranks supplied or reduced again."""
        text = self.ranks[0].process.stderr
        return sum(map(int, re.findall(r"some of them in (\d+) pieces", text)))

    def well_into_it(self) -> None:
        """Waits until the star works on an operation that all ranks have entered."""

        def sent() -> int:
            return self.bed.counters(STAR, STAR_RAIL)["tx_bytes"]

        goal = sent() + RANKS * (1 << 20)
        job.await_that("the star sends", lambda: self.ended() or sent() > goal, tell=self.told)
        assert not self.ended(), self.told()


@pytest.fixture
def work(bed: Testbed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Work]:
    monkeypatch.setenv("NEZHA_LOG", "info")
    work = Work(bed, tmp_path)
    yield work
    end_sessions([*(rank.process for rank in work.ranks), *work.stars], gently=False)


def test_the_star_dies_and_returns(work: Work) -> None:
    """The star dies at any point of four threads' operations, and is used again when it returns."""
    work.start(elements=200 * KIB, operations=0, threads=4, pause=3)
    for _ in range(20 if job.LONG else 3):
        work.await_sums(20)
        work.stars[-1].kill()
        work.await_operations(8)
        work.start_star()
    work.await_sums(20)
    work.stop()
    work.succeed()
    assert min(work.losses()) >= 3


def test_ranks_are_late(work: Work) -> None:
    """When the star dies, some ranks have not entered an operation that others have begun, or have
    already returned from it."""
    work.start(elements=40 * KIB, operations=10, threads=4, pause=300)
    work.await_sums(1)
    work.stars[-1].kill()
    work.start_star()
    work.succeed()
    assert min(work.losses()) >= 1


@pytest.mark.parametrize("how", ["carrier", "silent"] if job.LONG else ["silent"])
def test_one_host_loses_the_star(bed: Testbed, work: Work, how: str) -> None:
    """One host loses the star in the middle of 64 MiB. It gets the missing results from the other
    hosts, with the same bits."""
    work.start(elements=64 << 10 << 8, operations=0)
    work.well_into_it()
    bed.cut(1, STAR_RAIL, how)
    job.await_that("pieces", lambda: work.ended() or work.pieces() > 0, tell=work.told)
    work.stop()
    work.succeed()


def test_a_rail_dies_too(bed: Testbed, work: Work) -> None:
    """While the hosts do the star's remaining work, one host loses a rail."""
    work.start(elements=8 << 10 << 8, operations=6, threads=2)
    work.well_into_it()
    work.stars[-1].kill()
    work.ranks[0].process.wait_for("recovery 1: ", job.PATIENCE)
    bed.cut(1, "eth1", "silent")
    work.succeed()


@pytest.mark.parametrize("victim", [0, 2])
def test_a_rank_dies_too(work: Work, victim: int) -> None:
    """No operation returns a wrong result, and the errors of all other ranks name the dead rank."""
    work.start(elements=1 << 10 << 8, operations=100000, threads=4)
    work.await_sums(20)
    work.stars[-1].kill()
    work.ranks[victim].process.kill()
    for rank in work.ranks:
        if rank.number == victim:
            continue
        assert f"rank {victim}" in rank.wait_for("error")["what"], rank.told()
        assert rank.process.wait(job.PATIENCE) == 1


# ---- slices of rails ---------------------------------------------------------------------------


def test_a_slice_goes_on_by_other_rails(bed: Testbed) -> None:
    """After one host's cable is cut, no plan uses the rail until the cable is healed."""
    with job.Job(bed, RANKS) as work:
        work.start(
            elements="65536,16384",
            until=work.stop_file,
            rails=job.rails_option(RAILS),
            plan="slice",
            timeout=20000,
            env={"NEZHA_POLICY": "shuffle"},
        )

        def is_used() -> bool:
            done = work.ranks[0].last("done")
            shares = [c["shares"] for c in done["balance"]["classes"]] if done else []
            return any(share[1] > 0 for share in shares)

        work.all_done(40)
        job.await_that("eth1 carries slices", is_used, tell=work.told)
        bed.cut(1, "eth1", "silent")
        job.await_that("eth1 carries none", lambda: not is_used(), tell=work.told)
        work.all_done(40)
        assert not is_used(), work.told()
        bed.heal(1, "eth1")
        job.await_that("eth1 carries slices again", is_used, tell=work.told)
        work.all_done(40)
        work.stop()
        work.succeed()
