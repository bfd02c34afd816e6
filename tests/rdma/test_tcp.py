# SPDX-License-Identifier: Apache-2.0
"""TCP rails between the guest's hosts work as they do outside the guest."""

from __future__ import annotations

from collections.abc import Iterator

import job
import pytest
from guest_bed import WAYS_TO_CUT, GuestBed

RAILS = ["tcp:h{host}?rail=h", "tcp:t{host}?rail=t"]
RATE = "160mbit"


@pytest.fixture
def bed() -> Iterator[GuestBed]:
    with GuestBed(RAILS) as bed:
        yield bed


@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_right(bed: GuestBed, ranks: int) -> None:
    """Uses both rails."""
    work = job.run(bed, ranks, elements="0,1,1001,65537", operations=8)
    for rank in work.ranks:
        assert rank.rail("h")["sent"] > 0 and rank.rail("t")["sent"] > 0, rank.told()
        assert not rank.rail("h")["failures"] and not rank.rail("t")["failures"], rank.told()


@pytest.mark.parametrize("how", WAYS_TO_CUT)
def test_cut_in_the_middle(bed: GuestBed, how: str) -> None:
    """Cuts one of two rails, in one long operation."""
    for port in ("h", "t"):
        bed.shape(RATE, port)
    with job.Job(bed, 2) as work:
        work.start(elements=1 << 20, type="int64", operations=1, plan="stripe")
        work.sends_by(1, "t", 1 << 18)
        bed.cut(1, "t", how)
        assert not work.ranks[1].done, "the cut came too late"
        work.succeed()
        assert any(rank.rail("t")["failures"] for rank in work.ranks), work.told()
