# SPDX-License-Identifier: Apache-2.0
"""Collectives whose vector consists of a block for each rank. Each algorithm gives right results,
with the same bits on any rails, whatever is cut. If a rank is dead or late, or disagrees, the error
says so."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import job
import pytest
from testbed import Testbed

RAILS = {"eth0": "500mbit", "eth1": "300mbit"}
ONE, BOTH = job.rails_option(["eth0"]), job.rails_option(RAILS)
MIB = 1 << 18  # elements
ELEMENTS = [0, 1, 1001, 16 << 10, MIB // 2 + 1]  # of each block
WAYS: dict[str, list[str]] = {
    "allgather": ["bruck", "ring", "direct"],
    "allgatherv": ["bruck", "ring", "direct"],
    "reduce_scatter": ["halving-doubling", "ring", "direct"],
    "reduce_scatterv": ["halving-doubling", "ring", "direct"],
    "alltoall": ["direct", "pairwise"],
    "alltoallv": ["direct", "pairwise"],
    "gather": ["tree", "direct"],
    "gatherv": ["direct"],
    "scatter": ["tree", "direct"],
    "scatterv": ["direct"],
}
LARGE = ["allgather", "reduce_scatter", "alltoall", "gather", "scatter"]


@pytest.fixture(scope="module")
def bed() -> Iterator[Testbed]:
    with Testbed(hosts=5, rails=RAILS) as bed:
        yield bed


@pytest.fixture(autouse=True)
def healed(bed: Testbed) -> Iterator[None]:
    yield
    for host in (0, 2):
        bed.heal(host, "eth1")


def sizes(elements: list[int]) -> str:
    return ",".join(map(str, elements))


@pytest.mark.parametrize("ranks", [1, 3, 4, 5])
@pytest.mark.parametrize(
    ("collective", "algorithm"), [(name, way) for name, ways in WAYS.items() for way in ["auto", *ways]]
)
def test_right(bed: Testbed, collective: str, algorithm: str, ranks: int) -> None:
    """Each size runs out of place and then in place, with different roots."""
    count = 2 * len(ELEMENTS)
    options: dict[str, Any] = {"elements": sizes(ELEMENTS), "operations": count, "rails": BOTH}
    job.run(bed, ranks, collective=collective, algorithm=algorithm, **options)


@pytest.mark.parametrize("collective", WAYS)
def test_types_threads_and_several_ranks_a_host(bed: Testbed, collective: str) -> None:
    """The threads run operations in an order that differs from rank to rank."""
    options: dict[str, Any] = {"elements": "1,1001,5000", "operations": 18, "threads": 3}
    options |= {"type": "uint8,float16,float64", "rails": BOTH}
    job.run(bed, 10, 2, collective=collective, **options)


@pytest.mark.parametrize("reduction", ["min", "max", "product", "average", "custom"])
def test_reductions(bed: Testbed, reduction: str) -> None:
    options: dict[str, Any] = {"elements": "1,1001,50000", "operations": 6, "rails": BOTH}
    job.run(bed, 5, collective="reduce_scatter", operation=reduction, **options)


@pytest.mark.parametrize("algorithm", WAYS["reduce_scatter"])
def test_same_bits(bed: Testbed, algorithm: str) -> None:
    """Sums have the same bits on any rails, in place and not."""
    options: dict[str, Any] = {"elements": sizes(ELEMENTS[1:]), "float": 1, "rails": BOTH}
    options |= {"collective": "reduce_scatter", "algorithm": algorithm, "place": "out"}
    both = job.run(bed, 3, **options)
    options["rails"] = ONE
    one = job.run(bed, 3, **options)
    assert [all_hashes(rank) for rank in both.ranks] == [all_hashes(rank) for rank in one.ranks]


def all_hashes(rank: job.Rank) -> list[str]:
    return [done["hash"] for done in rank.all("done")]


@pytest.mark.parametrize(("how", "place"), [("carrier", "out"), ("silent", "out"), ("carrier", "in")])
@pytest.mark.parametrize("collective", LARGE)
def test_cut_in_the_middle(bed: Testbed, collective: str, how: str, place: str) -> None:
    """A cut at a sending rank during a large operation does not change the result."""
    host = 0 if collective == "scatter" else 2
    with job.Job(bed, 4) as work:
        work.start(collective=collective, elements=32 * MIB, operations=1, rails=BOTH, place=place)
        work.well_into_it(host, "eth1")
        bed.cut(host, "eth1", how)
        assert not any(rank.done for rank in work.ranks), "the cut came too late"
        work.succeed()
        assert any(rank.rail("eth1")["failures"] for rank in work.ranks)


@pytest.mark.parametrize("collective", LARGE)
def test_dead_rank(bed: Testbed, collective: str) -> None:
    """A rank dies in a large operation, and the errors of all other ranks name it."""
    with job.Job(bed, 4) as work:
        work.start(collective=collective, elements=32 * MIB, rails=BOTH, operations=3)
        for rank in work.ranks:
            rank.wait_for("start")
        work.ranks[2].process.kill()
        for rank in (work.ranks[i] for i in (0, 1, 3)):
            error = rank.wait_for("error")
            assert error["type"] == "IoError" and "rank 2" in error["what"], error
            assert error["ranks"] == [2], error


@pytest.mark.parametrize("collective", LARGE)
def test_rank_that_never_enters(bed: Testbed, collective: str) -> None:
    """On every other rank, the error at the deadline names the missing rank."""
    with job.Job(bed, 4) as work:
        options: dict[str, Any] = {"elements": 50_000, "rails": BOTH, "timeout": 2000}
        work.start(collective=collective, operations=6, late="2:2:30000", **options)
        for rank in (work.ranks[i] for i in (0, 1, 3)):
            error = rank.wait_for("error", timeout=job.PATIENCE)
            assert "rank 2" in error["what"] and error["ranks"] == [2], error


DISAGREEMENTS: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("of 4000 elements", {"collective": "allgather"}, {"elements": 1001}),
    ("allgather", {"collective": "allgather"}, {"collective": "alltoall"}),
    ("type float64", {"collective": "alltoall"}, {"type": "float64"}),
    ("operation max", {"collective": "reduce_scatter"}, {"operation": "max"}),
    ("by direct", {"collective": "reduce_scatter"}, {"algorithm": "direct"}),
    ("bytes on the way", {"collective": "alltoallv"}, {"elements": 1001}),
    ("bytes on the way", {"collective": "gatherv"}, {"elements": 1001}),
]


@pytest.mark.parametrize(("part", "usual", "change"), DISAGREEMENTS)
def test_ranks_that_disagree(
    bed: Testbed, part: str, usual: dict[str, Any], change: dict[str, Any]
) -> None:
    """Every rank fails, and the rank that finds the difference names both calls."""
    with job.Job(bed, 4) as work:
        options: dict[str, Any] = {"elements": 1000, "operations": 50, "rails": BOTH, "place": "out"}
        options |= {"timeout": 10_000, "stay": work.stop_file} | usual
        work.start([0, 1, 3], **options)
        work.start([2], **(options | change))
        errors = [rank.wait_for("error", timeout=job.PATIENCE) for rank in work.ranks]
        work.stop()
        work.wait()
        assert all(error["type"] == "IoError" for error in errors), errors
        parts = [part, "another operation by the tag 0"]
        assert any(all(part in error["what"] for part in parts) for error in errors), errors
