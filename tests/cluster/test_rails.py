# SPDX-License-Identifier: Apache-2.0
"""Rails that die, return, flap and get slow, in every way that the testbed knows.

Permanent cuts in the middle of one operation, with a single fault, are in test_failure.py.
"""

from __future__ import annotations

import datetime
import itertools
import re
import signal
import time
from collections.abc import Callable, Iterator
from typing import Any

import job
import pytest
from testbed import Testbed

RAILS = ["eth0", "eth1", "eth2"]
RATE = "500mbit"
ALL = job.rails_option(RAILS)
TWO = job.rails_option(RAILS[:2])
MIB = 1 << 18  # elements


@pytest.fixture(scope="module")
def bed() -> Iterator[Testbed]:
    with Testbed(hosts=4, rails=dict.fromkeys(RAILS, RATE)) as bed:
        yield bed


@pytest.fixture(autouse=True)
def healed(bed: Testbed, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("NEZHA_LOG", "info")
    yield
    for rail in RAILS:
        for host in range(bed.hosts):
            bed.heal(host, rail)
        bed.loss(rail, 0)
        bed.set_rate(rail, RATE)


def one_way(bed: Testbed, host: int, rail: str) -> None:
    """Frames from the host are lost; frames to it arrive."""
    bed.loss(rail, 100, host)


FAULTS: dict[str, Callable[[Testbed, int, str], None]] = {
    "carrier": lambda bed, host, rail: bed.cut(host, rail),
    "silent": lambda bed, host, rail: bed.cut(host, rail, "silent"),
    "one-way": one_way,
    "reset": lambda bed, host, rail: bed.cut(host, rail, "reset"),
}

LARGE: dict[str, Any] = {
    "algorithm": "ring",
    "elements": 40 * MIB,
    "float": 1,
    "operations": 1,
    "place": "out",
    "rails": ALL,
}


@pytest.fixture(scope="module")
def undisturbed(bed: Testbed) -> list[str]:
    """The hash of the large operation's result without faults."""
    return job.run(bed, 3, **LARGE).hashes()


def lost(rank: job.Rank, rail: str) -> None:
    rank.process.wait_for(rf"the link to .* on {rail} is down: ", job.PATIENCE)


# ---- rails that die ---------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["one-way", "reset"])
def test_dies_in_the_middle(bed: Testbed, undisturbed: list[str], how: str) -> None:
    """A rail that dies in a large operation does not change the bits."""
    with job.Job(bed, 3) as work:
        work.start(**LARGE)
        work.well_into_it(1, "eth1")
        FAULTS[how](bed, 1, "eth1")
        assert not work.ranks[1].done, "the fault came too late"
        work.succeed()
        assert work.hashes() == undisturbed
        assert work.ranks[1].rail("eth1")["failures"], work.told()


@pytest.mark.parametrize("how", FAULTS)
def test_dies_under_four_threads(bed: Testbed, how: str) -> None:
    """Each thread has its own operation in flight; small and large ones run in any order."""
    with job.Job(bed, 4) as work:
        work.start(elements=f"1,3000,{MIB},16384", operations=24, threads=4, rails=TWO)
        for rank in work.ranks:
            rank.wait_for("done", operation=1)
        work.sends_by(1, "eth1", 1 << 16)
        FAULTS[how](bed, 1, "eth1")
        assert not any(rank.all("end") for rank in work.ranks), "the fault came too late"
        work.succeed()
        assert any(rank.rail("eth1")["failures"] for rank in work.ranks), work.told()


@pytest.mark.parametrize("how", ["carrier", "silent"])
def test_dies_while_connecting(bed: Testbed, how: str) -> None:
    """The rail is gone when the ranks join, or dies when their first messages make links."""
    with job.Job(bed, 4) as work:
        work.start(elements=f"1000,{MIB}", operations=8, rails=ALL, timeout=5000)
        FAULTS[how](bed, 2, "eth0")
        work.ranks[0].wait_for("joined")
        FAULTS[how](bed, 1, "eth1")
        work.succeed()


def test_ranks_that_compute(bed: Testbed) -> None:
    """Ranks compute between operations, each for a different time, while rails fail and return."""
    with job.Job(bed, 4) as work:
        sizes = f"1,3000,{MIB // 4}"
        options: dict[str, Any] = {"pause": "0:300", "rails": TWO, "timeout": 5000, "report": 1}
        work.start(elements=sizes, until=work.stop_file, **options)
        work.all_done(1)

        def failures(rail: str) -> int:
            return sum(rank.rail(rail)["failures"] for rank in work.ranks)

        for host, (rail, how) in enumerate(zip(itertools.cycle(RAILS[:2]), FAULTS)):
            before = failures(rail)
            FAULTS[how](bed, host, rail)
            job.await_that(how, lambda: failures(rail) > before, tell=work.told)
            bed.heal(host, rail)
            bed.loss(rail, 0)
            work.all_done(1)
        work.stop()
        work.succeed()


def test_two_die_at_once(bed: Testbed, undisturbed: list[str]) -> None:
    with job.Job(bed, 3) as work:
        work.start(**LARGE)
        work.well_into_it(1, "eth1")
        bed.cut(1, "eth0", "silent")
        bed.cut(1, "eth1")
        assert not work.ranks[1].done, "the cut came too late"
        work.succeed()
        assert work.hashes() == undisturbed
        for rail in RAILS[:2]:
            assert work.ranks[1].rail(rail)["failures"], work.told()


def test_one_dies_while_another_is_recovered_from(bed: Testbed, undisturbed: list[str]) -> None:
    """The second rail dies while it carries what the first one lost. Only the last rail is left."""
    with job.Job(bed, 3) as work:
        work.start(**LARGE)
        work.well_into_it(1, "eth0")
        bed.cut(1, "eth0", "silent")
        lost(work.ranks[1], "eth0")
        bed.cut(1, "eth1", "silent")
        assert not work.ranks[1].done, "the cut came too late"
        work.succeed()
        assert work.hashes() == undisturbed


def test_the_last_one_dies(bed: Testbed) -> None:
    """Every rank's error names a rank that was lost and, for each rail, what happened to it."""
    with job.Job(bed, 4) as work:
        work.start(
            elements=1000, until=work.stop_file, algorithm="ring", rails=ALL, timeout=2500
        )
        work.all_done(5)
        bed.cut(1, "eth0", "silent")
        lost(work.ranks[1], "eth0")
        bed.cut(1, "eth1", "admin")
        bed.cut(1, "eth2")
        for rank in work.ranks:
            what = rank.wait_for("error")["what"].split(": ", 2)[2]
            assert re.search("rank 1" if rank.number != 1 else r"rank [02]", what), what
            for rail in RAILS:
                assert f"{rail}: " in what, what


def test_a_stopped_process_loses_no_rail(bed: Testbed) -> None:
    """A stopped process answers on no rail for a while, and then on one after the other."""
    with job.Job(bed, 3) as work:
        work.start(elements=4 * MIB, until=work.stop_file, algorithm="ring", rails=TWO)
        work.all_done(2)
        for _ in range(2):
            work.ranks[1].process.kill(signal.SIGSTOP)
            time.sleep(0.5)  # longer than a link may be silent
            work.ranks[1].process.kill(signal.SIGCONT)
            work.all_done(2)
        work.stop()
        work.succeed()
        for rank in work.ranks:
            assert not any(rank.rail(rail)["failures"] for rail in RAILS[:2]), work.told()


# ---- rails that return and flap ---------------------------------------------------------------


def outages(rank: job.Rank, rail: str) -> list[float]:
    """For each outage, the seconds for which the rank had no link to host 0 on the rail."""
    down: datetime.datetime | None = None
    found = []
    log = rank.process.stderr
    link = rf"the link to rank 0 .* on {rail} is (down|up again)"
    lines = re.findall(rf"(?m)^([\d-]+ [\d:.]+) nezha \w+ \[[^]]*\]: {link}", log)
    for stamp, what in lines:
        at = datetime.datetime.strptime(stamp, "%Y-%m-%d %H:%M:%S.%f")
        if what == "down":
            down = at
        elif down is not None:
            found.append((at - down).total_seconds())
    return found


def test_one_that_flaps_stays_out_longer_each_time(bed: Testbed) -> None:
    with job.Job(bed, 2) as work:
        work.start(elements=f"{MIB // 8},{MIB}", until=work.stop_file, rails=TWO)
        work.all_done(4)
        for times in range(1, 5):
            bed.cut(1, "eth1", "reset")
            job.await_that(
                "the link is up again",
                lambda: len(outages(work.ranks[1], "eth1")) >= times,
                tell=work.told,
            )
        work.stop()
        work.succeed()
        for times, outage in enumerate(outages(work.ranks[1], "eth1")):
            assert outage > 0.02 * 4**times * 0.7, outages(work.ranks[1], "eth1")


# ---- rails that get slow ----------------------------------------------------------------------


def part_of(work: job.Job, host: int, rail: str, operations: int) -> float:
    """The rail's part of what a host sends in this many operations."""

    def sent() -> dict[str, float]:
        return {name: work.ranks[host].rail(name)["sent"] for name in RAILS[:2]}

    before = sent()
    work.all_done(operations)
    now = {name: bytes_sent - before[name] for name, bytes_sent in sent().items()}
    return now[rail] / sum(now.values())


def slow_down(bed: Testbed) -> None:
    bed.set_rate("eth1", "50mbit")


def slow_port(bed: Testbed) -> None:
    bed.set_rate("eth1", "50mbit", host=1)


def lossy(bed: Testbed) -> None:
    bed.loss("eth1", 5)


def unslow(bed: Testbed) -> None:
    bed.loss("eth1", 0)
    bed.set_rate("eth1", RATE)


@pytest.mark.parametrize("worsen", [slow_down, slow_port], ids=["rail", "port"])
def test_slow_in_the_middle(bed: Testbed, worsen: Callable[[Testbed], None]) -> None:
    """The traffic moves to other rails within the current operation."""
    options: dict[str, Any] = LARGE | {"elements": 64 * MIB, "rails": TWO}
    with job.Job(bed, 3) as work:
        work.start(**options)
        work.well_into_it(1, "eth1")
        worsen(bed)
        assert not work.ranks[1].done, "the change came too late"
        work.succeed()
        sent = {rail: work.ranks[1].rail(rail)["sent"] for rail in RAILS[:2]}
        assert sent["eth1"] < 0.3 * sum(sent.values()), work.told()


# Small messages are tested only with losses, because on some machines a slow shaper passes a few of
# them at full speed. Short messages show less about rates than long ones.
@pytest.mark.parametrize(
    ("worsen", "elements", "bad", "good"),
    [
        (slow_down, 4 * MIB, 0.25, 0.35),
        (slow_port, 4 * MIB, 0.25, 0.35),
        (lossy, 4 * MIB, 0.25, 0.35),
        (lossy, MIB // 16, 0.1, 0.12),
    ],
    ids=["rail", "port", "lossy", "lossy-64K"],
)
def test_slow(
    bed: Testbed, worsen: Callable[[Testbed], None], elements: int, bad: float, good: float
) -> None:
    """The traffic moves to other rails, and returns."""
    some = 5 if elements > MIB else 40
    with job.Job(bed, 3) as work:
        work.start(elements=elements, until=work.stop_file, algorithm="ring", rails=TWO)
        work.all_done(some)
        worsen(bed)
        job.await_that(
            "the bad rail carries less",
            lambda: part_of(work, 1, "eth1", some) < bad,
            tell=work.told,
        )
        unslow(bed)
        job.await_that(
            "the healed rail carries more",
            lambda: part_of(work, 1, "eth1", some) > good,
            tell=work.told,
        )
        work.stop()
        work.succeed()
