"""Rails of which one is far slower than the other, or loses frames: neither is dead."""

from __future__ import annotations

import job
import pytest
from testbed import Testbed

RAILS = ["eth0", "eth1"]
MIB = 1 << 18  # elements


@pytest.mark.parametrize("rate", ["2mbit", "10mbit"])
def test_slow_rail(rate: str) -> None:
    """By stripes neither is given up, though one segment takes longer than silence is borne."""
    with Testbed(hosts=2, rails={"eth0": "1gbit", "eth1": rate}, prefix="ct_slow") as bed:
        rails = job.rails_option(RAILS)
        work = job.run(bed, elements=4 * MIB, operations=60, rails=rails, plan="stripe")
        for rank in work.ranks:
            for name in RAILS:
                assert rank.rail(name)["sent"] > 0, work.told()
                assert not rank.rail(name)["failures"], work.told()


def carried(work: job.Job, ranks: list[job.Rank], operations: int) -> float:
    """The part of what these ranks send in so many operations that goes by eth1."""

    def sent() -> list[int]:
        return [sum(rank.rail(name)["sent"] for rank in ranks) for name in RAILS]

    before = sent()
    work.all_done(operations)
    more = [after - each for after, each in zip(sent(), before)]
    return more[1] / sum(more)


@pytest.mark.parametrize("plan", ["stripe", "slice", "auto"])
@pytest.mark.parametrize("host", [None, 1] if job.LONG else [None])
def test_lossy_rail(host: int | None, plan: str) -> None:
    """A rail that loses one frame in twenty loses its traffic, and has it back when that ends.

    At all hosts, or in what one of them sends.
    """
    with Testbed(hosts=3, rails=dict.fromkeys(RAILS, "500mbit"), prefix="ct_slow") as bed:
        with job.Job(bed) as work:
            rails = job.rails_option(RAILS)
            work.start(elements=MIB, until=work.stop_file, rails=rails, plan=plan)
            work.all_done(3)
            ranks = work.ranks if host is None else [work.ranks[host]]
            both = lambda: carried(work, ranks, 10) > 0.4  # noqa: E731
            job.await_that("both carry", both, tell=work.told)
            bed.loss("eth1", 5, host)
            assert carried(work, ranks, 60) < 0.1, work.told()
            bed.loss("eth1", 0, host)
            job.await_that("both carry again", both, tell=work.told)
            work.stop()
            work.succeed()
