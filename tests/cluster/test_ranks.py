# SPDX-License-Identifier: Apache-2.0
"""Ranks that die, stall, are cut off or leave, and processes that go on without them.

All faults come from outside the ranks' processes.
"""

from __future__ import annotations

import itertools
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import job
import pytest
from processes import end_sessions
from testbed import Testbed

RAILS = ["eth0", "eth1"]
BOTH = job.rails_option(RAILS)
ELASTIC = str(job.BUILD / "tests" / "cluster_elastic")
COMPUTING = str(job.BUILD / "tests" / "cluster_computing")

# What the other ranks' errors say of a rank, by how it was lost.
REASONS = {
    "kill": "is gone",
    "destroy": "has left",
    "exit": "has left",
    "stop": "has not answered",
    "cut": "has not answered",
}
DEADLINE = 2.0  # seconds: the deadline of an operation in a context in which a rank falls silent


@pytest.fixture(scope="module")
def bed() -> Iterator[Testbed]:
    with Testbed(hosts=5, rails=dict.fromkeys(RAILS, "1gbit")) as bed:
        yield bed


@pytest.fixture(autouse=True)
def healed(bed: Testbed) -> Iterator[None]:
    yield
    for host in range(bed.hosts):
        heal(bed, host)


def cut_off(bed: Testbed, host: int, how: str) -> None:
    for rail in RAILS:
        bed.cut(host, rail, how)


def heal(bed: Testbed, host: int) -> None:
    for rail in RAILS:
        bed.heal(host, rail)


def said(error: job.Event) -> str:
    """The text of an error after "nezha: rank R of N: ", which names the rank that throws."""
    text: str = error["what"]
    assert re.match(r"nezha: rank \d+ of \d+: ", text), text
    return text.split(": ", 2)[2]


# ---- the others' errors ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("how", "collective"),
    [("stop", "allreduce"), ("silent", "reduce"), ("carrier", "broadcast"), ("stop", "barrier")],
)
def test_silent_rank(bed: Testbed, how: str, collective: str) -> None:
    """Each other rank names the silent one by the deadline, even if it waits for it indirectly.

    The silent rank itself fails as soon as it can.
    """
    with job.Job(bed, 5) as work:
        work.start(
            collective=collective,
            algorithm="ring",
            elements=1000,
            until=work.stop_file,
            rails=BOTH,
            timeout=round(DEADLINE * 1000),
        )
        work.all_done(10)
        silent = work.ranks[2]
        if how == "stop":
            silent.process.kill(signal.SIGSTOP)
        else:
            cut_off(bed, 2, how)
        others = [rank for rank in work.ranks if rank.number != 2]
        errors = [rank.wait_for("error", timeout=DEADLINE + 10) for rank in others]
        assert any(error["type"] == "TimeoutError" for error in errors), errors
        for error in errors:
            assert error["seconds"] < DEADLINE + job.SLACK, errors
            assert re.search(r"\brank 2 has not answered", said(error)), errors
        silent.process.kill(signal.SIGCONT)
        assert silent.wait_for("error")["type"] in ("IoError", "TimeoutError")
        work.wait()


def test_killed_beside_one_that_computes(bed: Testbed) -> None:
    """Rank 3's neighbours are a stopped rank and one that computes and still tells the others."""
    with job.Job(bed, 5) as work:
        # In a ring of five, only ranks 2 and 4 exchange messages with rank 3.
        work.start(
            algorithm="ring", elements=1000, operations=4, late="2:3:60000", rails=BOTH
        )
        waiting = [rank for rank in work.ranks if rank.number in (0, 1)]
        for rank in waiting:
            rank.wait_for("start", operation=3)
        dead = work.ranks[3]
        bystander = work.ranks[4]
        bystander.process.kill(signal.SIGSTOP)
        dead.process.kill()
        deadline = time.monotonic() + job.SLACK
        for rank in waiting:
            error = rank.wait_for("error", timeout=max(0.0, deadline - time.monotonic()))
            assert re.search(r"\brank 3\b.*is gone", said(error)), error


def test_starts_apart(bed: Testbed) -> None:
    """The ranks start nearly a deadline apart, and rank 0 is one of the late ones."""
    deadline = 60 if job.LONG else 6
    with job.Job(bed, 5) as work:
        options: dict[str, Any] = {"elements": 1000, "algorithm": "ring", "timeout": 1000 * deadline}
        for hosts, late in [([1, 4], 0), ([0], deadline // 3), ([2, 3], 2 * deadline // 3)]:
            delay = 1000 * late
            work.start(hosts, delay=f"{delay}:{delay}", rails=BOTH, **options)
        work.succeed(deadline + job.PATIENCE)


# ---- a rank that computes ----------------------------------------------------------------------


@pytest.mark.parametrize("collective", ["broadcast", "reduce"])
def test_lost_while_the_sender_computes(bed: Testbed, tmp_path: Path, collective: str) -> None:
    """A rail loses data of a rank that has begun to compute, and nezha still sends the data again.

    The others complete the operation before that rank calls nezha again.
    """
    argv = [COMPUTING, str(tmp_path), BOTH, collective]
    processes = bed.start(argv, on=range(4), env={"SIZE": "4"})
    try:
        ranks = [job.Rank(process) for process in processes]
        for rank in ranks:
            rank.wait_for("ready")
        bed.cut(3, "eth1", "silent")
        (tmp_path / "go").touch()
        for rank in ranks:
            rank.wait_for("done")
        (tmp_path / "enough").touch()
        failures = [rank.wait_for("met")["failures"] for rank in ranks]
        assert failures[3] > 0, "nothing was lost"
        assert [rank.process.wait(10) for rank in ranks] == [0] * 4
    finally:
        end_sessions(processes, gently=False)


# ---- processes that go on without a rank -------------------------------------------------------


class Elastic:
    """The processes of elastic.cc, by name."""

    def __init__(self, bed: Testbed, folder: Path, keep: bool) -> None:
        self.bed = bed
        self.folder = folder
        self.env = {"KEEP": "1"} if keep else {}
        self.context = 0
        self.members: list[str] = []
        self.ranks: dict[str, job.Rank] = {}
        self.names = (f"p{i}" for i in itertools.count())

    def write(self, name: str, text: str) -> None:
        draft = self.folder / "draft"
        draft.write_text(text)
        draft.rename(self.folder / name)

    def start(self, host: int) -> str:
        name = next(self.names)
        argv = [ELASTIC, str(self.folder), name, str(self.context), BOTH]
        [process] = self.bed.start(argv, on=[host], env=self.env)
        self.ranks[name] = job.Rank(process)
        return name

    def build(self, members: list[str], deadline: float) -> None:
        """Has these members build a context and run operations in it."""
        self.members = members
        self.write(f"plan-{self.context}", " ".join([str(round(deadline * 1000)), *members]))
        self.await_event("ran", members)

    def await_event(self, kind: str, members: list[str]) -> list[job.Event]:
        return [self.ranks[name].wait_for(kind, context=self.context) for name in members]

    def move(self) -> None:
        """Has the members agree to leave the context."""
        self.write(f"move-{self.context}", "")
        self.closed(self.members)

    def closed(self, members: list[str]) -> None:
        """Waits until these members have left the context, and no destructor waited for anybody."""
        for event in self.await_event("closed", members):
            assert event["seconds"] < DEADLINE, event
        self.context += 1

    def lose(self, victim: str, how: str) -> list[str]:
        """Loses a member in this way. The others report which and why. Returns those others."""
        deadline = time.monotonic() + (DEADLINE if how in ("stop", "cut") else 0) + job.SLACK
        rank = self.ranks[victim]
        if how in ("kill", "stop"):
            rank.process.kill(signal.SIGKILL if how == "kill" else signal.SIGSTOP)
        elif how == "cut":
            cut_off(self.bed, rank.process.host, "silent")
        else:
            self.write(f"leave-{victim}", how)
        others = [name for name in self.members if name != victim]
        number = self.members.index(victim)
        errors = self.await_event("error", others)
        assert time.monotonic() < deadline, (how, errors)
        for event in errors:
            assert re.search(rf"\brank {number}\b.*{REASONS[how]}", said(event)), (how, number, event)
            assert event["ranks"] == [number], (how, number, event)
        self.closed(others)
        rank.process.kill()
        return others

    def end(self) -> None:
        """Ends the other processes, then the first, which has no threads or descriptors left."""
        first = self.ranks["p0"]
        for rank in self.ranks.values():
            if rank is not first:
                rank.process.kill()
        self.build(["p0"], job.PATIENCE)
        self.move()
        self.build([], job.PATIENCE)
        left = first.wait_for("left")
        assert (left["threads"], left["descriptors"]) == (0, 0), left
        assert first.process.wait(10) == 0


@pytest.mark.parametrize("keep", [False, True], ids=["alone", "beside another context"])
def test_elastic(bed: Testbed, tmp_path: Path, keep: bool) -> None:
    """The survivors of each loss build a context of three, then one of four with a new process."""
    ways = ["kill", "destroy", "exit"]
    rounds = [*ways * (34 if job.LONG else 1), "cut", "stop"]
    elastic = Elastic(bed, tmp_path, keep)
    members = [elastic.start(host) for host in range(4)]
    try:
        for number, how in enumerate(rounds):
            silent = how in ("stop", "cut")
            elastic.build(members, DEADLINE if silent else job.PATIENCE)
            # The first process survives all contexts, with a different rank in each.
            victim = [name for name in members if name != "p0"][number % 3]
            host = elastic.ranks[victim].process.host
            others = elastic.lose(victim, how)
            elastic.build(others[1:] + others[:1], job.PATIENCE)
            elastic.move()
            if how == "cut":
                heal(bed, host)
            members = [*others[1:], elastic.start(host), *others[:1]]
        elastic.end()
    finally:
        end_sessions([rank.process for rank in elastic.ranks.values()], gently=False)
