# SPDX-License-Identifier: Apache-2.0
"""Sends and receives are right on any rails, also when a rail is cut. A rank that is dead or late
leads to an error that says so. test_api.py has scenarios for orders, tags and sources."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import job
import pytest
from testbed import Testbed

RAILS = {"eth0": "500mbit", "eth1": "300mbit"}
ONE, BOTH = job.rails_option(["eth0"]), job.rails_option(RAILS)
MIB = 1 << 18  # elements
ELEMENTS = [0, 1, 1001, 16 << 10, MIB // 2 + 1]


@pytest.fixture(scope="module")
def bed() -> Iterator[Testbed]:
    with Testbed(hosts=4, rails=RAILS) as bed:
        yield bed


@pytest.fixture(autouse=True)
def healed(bed: Testbed) -> Iterator[None]:
    yield
    bed.heal(2, "eth1")


def options_of(**options: Any) -> dict[str, Any]:
    return {"collective": "send_recv", "rails": BOTH} | options


@pytest.mark.parametrize("rails", [ONE, BOTH])
@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_right(bed: Testbed, ranks: int, rails: str) -> None:
    """Each rank sends to the next one, and receives from the previous one or from any rank. A
    single rank sends to itself."""
    elements = ",".join(map(str, ELEMENTS))
    job.run(bed, ranks, **options_of(elements=elements, operations=20, rails=rails))


def test_types_threads_and_several_ranks_a_host(bed: Testbed) -> None:
    """The threads run operations in an order that differs from rank to rank."""
    options = options_of(elements="1,1001,5000", operations=18, threads=3)
    job.run(bed, 8, 2, type="uint8,float16,float64", **options)


@pytest.mark.parametrize("how", ["carrier", "silent"])
def test_cut_in_the_middle(bed: Testbed, how: str) -> None:
    """A cut in a large message, at a rank that sends and receives, does not change the result."""
    with job.Job(bed) as work:
        work.start(**options_of(elements=64 * MIB, operations=1))
        work.well_into_it(2, "eth1")
        bed.cut(2, "eth1", how)
        assert not any(rank.done for rank in work.ranks), "the cut came too late"
        work.succeed()
        assert any(rank.rail("eth1")["failures"] for rank in work.ranks)


@pytest.mark.parametrize("operation", [0, 1], ids=["named", "any"])
def test_dead_rank(bed: Testbed, operation: int) -> None:
    """A rank dies in a large message, and the error of each rank names it."""
    with job.Job(bed) as work:
        elements = 64 * MIB if operation == 0 else f"1,{64 * MIB}"
        work.start(**options_of(elements=elements, operations=4))
        for rank in work.ranks:
            rank.wait_for("start", operation=operation)
        work.ranks[2].process.kill()
        for rank in (work.ranks[i] for i in (0, 1, 3)):
            error = rank.wait_for("error")
            assert error["type"] == "IoError" and "rank 2" in error["what"], error
            assert error["ranks"] == [2], error


@pytest.mark.parametrize(
    ("operation", "words"),
    [
        (2, ["recv from rank 1 (tag 0", "rank 1 has sent nothing by the tag 0"]),
        (3, ["recv from any rank (tag 0", "ranks 0 and 1 have sent nothing by the tag 0"]),
    ],
    ids=["named", "any"],
)
def test_rank_that_never_sends(bed: Testbed, operation: int, words: list[str]) -> None:
    """The error at the deadline names the rank and the tag."""
    with job.Job(bed, 2) as work:
        # The messages are so short that the late rank need not ask for them.
        options = options_of(elements=100, operations=6, timeout=2000)
        work.start(late=f"1:{operation}:30000", **options)
        error = work.ranks[0].wait_for("error", timeout=job.PATIENCE)
        assert error["type"] == "TimeoutError" and error["ranks"] == [1], error
        assert all(word in error["what"] for word in words), error


if job.LONG:  # it needs gigabytes and a minute

    def test_counts_of_more_than_31_bits() -> None:
        """The number of elements, and so of bytes, needs more than 31 bits."""
        with Testbed(hosts=2, rails={"eth0": "10gbit", "eth1": "10gbit"}) as fast:
            with job.Job(fast, 2) as work:
                options = options_of(elements=(1 << 31) + 5, operations=1, timeout=300_000)
                work.start(type="uint8", **options)
                work.succeed(timeout=600)
