# SPDX-License-Identifier: Apache-2.0
"""Reduce, broadcast and barrier are right for every root, and give the same bits on any rails, also
when a rail is cut. A late rank costs time. A rank that disagrees leads to an error that says so."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import job
import pytest
from testbed import Testbed

RAILS = {"eth0": "500mbit", "eth1": "300mbit"}
ONE, BOTH = job.rails_option(["eth0"]), job.rails_option(RAILS)
MIB = 1 << 18  # elements
ELEMENTS = [0, 1, 1001, 16 << 10, MIB + 1]
ROOTED = ["reduce", "broadcast"]
WAYS: dict[str, dict[str, Any]] = {
    "one": {"rails": ONE},
    "two": {"rails": BOTH},
    "slices": {"rails": BOTH, "plan": "slice", "shares": "5,3"},
}


@pytest.fixture(scope="module")
def bed() -> Iterator[Testbed]:
    with Testbed(hosts=5, rails=RAILS) as bed:
        yield bed


@pytest.fixture(autouse=True)
def healed(bed: Testbed) -> Iterator[None]:
    yield
    for rail in RAILS:
        bed.heal(2, rail)


def sizes(elements: list[int]) -> str:
    return ",".join(map(str, elements))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("ranks", [1, 2, 3, 5])
@pytest.mark.parametrize("collective", ROOTED)
def test_right(bed: Testbed, collective: str, ranks: int, way: str) -> None:
    """Each size runs out of place and then in place, with different roots."""
    count = 2 * len(ELEMENTS) + (1 if ranks == len(ELEMENTS) else 0)
    job.run(
        bed, ranks, collective=collective, elements=sizes(ELEMENTS), operations=count, **WAYS[way]
    )


@pytest.mark.parametrize("collective", [*ROOTED, "barrier"])
def test_several_ranks_a_host_and_threads(bed: Testbed, collective: str) -> None:
    """The threads run operations in an order that differs from rank to rank."""
    options: dict[str, Any] = {"elements": sizes(ELEMENTS[:-1]), "operations": 20, "threads": 3}
    job.run(bed, 10, 2, collective=collective, rails=BOTH, **options)


def hashes(work: job.Job, collective: str) -> list[str]:
    """The hashes of the results, one for each operation."""
    if collective == "broadcast":
        return work.hashes()
    done = [rank.all("done") for rank in work.ranks]
    return [done[i % len(done)][i]["hash"] for i in range(len(done[0]))]


def test_same_bits(bed: Testbed) -> None:
    """A reduce gives the same bits on any rails."""
    options: dict[str, Any] = {"collective": "reduce", "elements": sizes(ELEMENTS[1:]), "float": 1}
    ways: list[dict[str, Any]] = [{"place": "out", **WAYS["one"]}]
    ways += [{"place": "in", **WAYS[w]} for w in WAYS]
    one, *others = (hashes(job.run(bed, 3, **options, **way), "reduce") for way in ways)
    assert len(set(one)) == len(ELEMENTS) - 1  # the hashes must differ from each other
    assert all(other == one for other in others)


@pytest.mark.parametrize("how", ["carrier", "silent"])
@pytest.mark.parametrize("collective", ROOTED)
def test_cut_in_the_middle(bed: Testbed, collective: str, how: str) -> None:
    """A cut in a large operation, at a rank that forwards, does not change the bits."""
    options: dict[str, Any] = {"collective": collective, "elements": 64 * MIB, "float": 1}
    options |= {"rails": BOTH, "place": "out"}
    undisturbed = hashes(job.run(bed, 4, **options), collective)
    with job.Job(bed, 4) as work:
        work.start(**options)
        work.well_into_it(2, "eth1")
        bed.cut(2, "eth1", how)
        assert not any(rank.done for rank in work.ranks), "the cut came too late"
        work.succeed()
        assert hashes(work, collective) == undisturbed
        assert any(rank.rail("eth1")["failures"] for rank in work.ranks)


@pytest.mark.parametrize("late", [0, 1, 3])
@pytest.mark.parametrize("collective", [*ROOTED, "barrier"])
def test_late_rank(bed: Testbed, collective: str, late: int) -> None:
    """The root of operation 1 is rank 1. The late rank is the first, the last or a middle one of
    the chain."""
    work = job.run(
        bed,
        4,
        collective=collective,
        elements=f"1000,{4 * MIB}",
        operations=4,
        late=f"{late}:1:1000",
        rails=BOTH,
    )
    if collective == "barrier":
        for rank in work.ranks:
            if rank.number != late:
                assert rank.all("done")[1]["seconds"] > 0.5, rank.told()


@pytest.mark.parametrize("elements", [100, MIB])
@pytest.mark.parametrize(
    ("here", "there"),
    [("reduce", "broadcast"), ("broadcast", "reduce"), ("barrier", "broadcast"), ("reduce", "barrier")],
)
def test_ranks_that_disagree(bed: Testbed, here: str, there: str, elements: int) -> None:
    """Every rank fails, and a rank that finds the difference names both calls. A rank that was not
    yet connected to that rank when it ended only learns that it cannot connect."""
    with job.Job(bed, 4) as work:
        options: dict[str, Any] = {"elements": elements, "operations": 50, "timeout": 10_000}
        work.start([0, 1, 3], collective=there, rails=BOTH, **options)
        work.start([2], collective=here, rails=BOTH, **options)
        work.wait()
        errors = [rank.wait_for("error") for rank in work.ranks]
        assert all(error["type"] == "IoError" for error in errors), errors
        parts = [here, there, "another operation by the tag 0"]
        assert any(all(part in error["what"] for part in parts) for error in errors), errors


def test_dead_rank(bed: Testbed) -> None:
    """A rank dies in a large broadcast, and the others' errors name it."""
    with job.Job(bed, 4) as work:
        work.start(collective="broadcast", elements=32 * MIB, rails=BOTH)
        for rank in work.ranks:
            rank.wait_for("start")
        work.ranks[2].process.kill()
        for rank in (work.ranks[i] for i in (0, 1, 3)):
            error = rank.wait_for("error")
            assert error["type"] == "IoError" and "rank 2" in error["what"], error
