# SPDX-License-Identifier: Apache-2.0
"""Rails over iWARP carry data correctly. The other rail or the caller handles failures.

The tests need a guest of the kind siw.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from typing import Any

import job
import pytest
from guest_bed import GuestBed

IWARP = "rdma:siw{host}?rail=r"
TCP = "tcp:t{host}?rail=t"
RATE = "160mbit"
MIB = 1 << 17  # elements of int64
# This operation takes most of a second at RATE, on one rail or two.
LONG: dict[str, Any] = {"elements": 8 * MIB, "type": "int64", "operations": 1, "plan": "stripe"}
SMALL: dict[str, Any] = {"elements": f"1,1000,{MIB // 2}", "type": "int64", "pause": "0:5"}
SENT = 1 << 18  # bytes; an operation is then well under way


@pytest.fixture(autouse=True)
def logged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEZHA_LOG", "info")


@pytest.fixture
def alone() -> Iterator[GuestBed]:
    with GuestBed([IWARP]) as bed:
        yield bed


@pytest.fixture
def both() -> Iterator[GuestBed]:
    with GuestBed([IWARP, TCP]) as bed:
        for port in ("h", "t"):
            bed.shape(RATE, port)
        yield bed


def run(bed: GuestBed, ranks: int, **options: Any) -> None:
    before = [bed.counters(host, "h")["tx_bytes"] for host in range(ranks)]
    work = job.run(bed, ranks, **options)
    for rank, sent in zip(work.ranks, before):
        rail = rank.rail("r")
        assert rail["sent"] > 0 and not rail["failures"], rank.told()
        # The port sends more than the payloads that the rail counts, lent ones included.
        assert bed.counters(rank.number, "h")["tx_bytes"] - sent > rail["sent"], rank.told()


@pytest.mark.parametrize("ranks", [2, 3])
@pytest.mark.parametrize("collective", ["allreduce", "alltoall", "broadcast", "send_recv", "gather"])
def test_right(alone: GuestBed, collective: str, ranks: int) -> None:
    run(alone, ranks, collective=collective, elements="0,1,1001,40001", operations=8, type="int32")


@pytest.mark.parametrize("plan", ["stripe", "slice"])
def test_large(alone: GuestBed, plan: str) -> None:
    """The receiver fetches the segments, several at a time."""
    elements = f"{MIB // 64 + 1},{MIB},{4 * MIB + 1}"
    run(alone, 2, plan=plan, elements=elements, operations=6, type="int64")


def test_memory_that_cannot_be_registered(
    alone: GuestBed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NEZHA_RDMA_PINNED", "0")
    run(alone, 2, elements=MIB, operations=4, type="int64")


def test_cut_of_one_of_two(both: GuestBed) -> None:
    """Only the silence shows the cut. The other rail carries the rest."""
    with job.Job(both, 2) as work:
        work.start(**LONG)
        work.sends_by(1, "h", SENT)
        both.cut(1, "h", "silent")
        assert not work.ranks[1].done, "the cut came too late"
        work.succeed()
        assert any(rank.rail("r")["failures"] for rank in work.ranks), work.told()
        assert not any(rank.rail("t")["failures"] for rank in work.ranks), work.told()


@pytest.mark.parametrize("how", ["silent", "gone"])
def test_returns(both: GuestBed, how: str) -> None:
    """A deleted device is closed at once, and iWARP carries its part when it is back."""
    with job.Job(both, 2) as work:
        work.start(until=work.stop_file, **SMALL)
        work.all_done(6)
        both.cut(1, "h", how)
        if how == "gone":
            both.await_deletion(1, "h")  # while the ranks run
        work.ranks[0].process.wait_for(r"the link to .* on r is down", job.PATIENCE)
        work.all_done(6)
        both.heal(1, "h")
        carried = work.ranks[1].rail("r")["sent"]
        job.await_that(
            "host 1 sends by iWARP again",
            lambda: work.ranks[1].rail("r")["sent"] > carried + SENT,
            tell=work.told,
        )
        work.stop()
        work.succeed()


@pytest.mark.parametrize("options", [LONG, SMALL], ids=["long", "small"])
def test_killed_rank(alone: GuestBed, options: dict[str, Any]) -> None:
    """The other ranks' errors name the killed rank at once, before the operation's deadline."""
    alone.shape(RATE, "h")
    with job.Job(alone, 3) as work:
        work.start(until=work.stop_file, **options)
        if options is LONG:
            work.sends_by(1, "h", SENT)
        else:
            work.all_done(6)
        work.ranks[1].process.kill()
        deadline = time.monotonic() + job.SLACK
        for rank in (work.ranks[0], work.ranks[2]):
            error = rank.wait_for("error", timeout=max(0.0, deadline - time.monotonic()))
            assert error["type"] == "IoError" and error["ranks"] == [1], error
            assert re.search(r": .*\brank 1\b", error["what"]), error
