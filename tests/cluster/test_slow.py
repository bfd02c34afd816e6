# SPDX-License-Identifier: Apache-2.0
"""One rail is far slower than the other or loses frames, but is not dead."""

from __future__ import annotations

import json
from pathlib import Path

import job
import pytest
from testbed import Testbed

RAILS = ["eth0", "eth1"]
MIB = 1 << 18  # elements
OPERATIONS = 200


@pytest.mark.parametrize("plan", ["stripe", "auto"])
@pytest.mark.parametrize("rate", ["2mbit", "10mbit"])
def test_slow_rail(rate: str, plan: str) -> None:
    """Neither rail is given up, although one segment takes longer than a link may be silent."""
    with Testbed(hosts=2, rails={"eth0": "1gbit", "eth1": rate}) as bed:
        rails = job.rails_option(RAILS)
        work = job.run(bed, elements=4 * MIB, operations=60, rails=rails, plan=plan)
        for rank in work.ranks:
            for name in RAILS:
                assert rank.rail(name)["sent"] > 0, work.told()
                assert not rank.rail(name)["failures"], work.told()
            fast, slow = (rank.rail(name)["sent"] for name in RAILS)
            assert slow < fast / 20, work.told()


def carried(work: job.Job, ranks: list[job.Rank], operations: int) -> float:
    """The part of these ranks' data that goes by eth1 in this many operations."""

    def sent() -> list[int]:
        return [sum(rank.rail(name)["sent"] for rank in ranks) for name in RAILS]

    before = sent()
    work.all_done(operations)
    more = [after - each for after, each in zip(sent(), before)]
    return more[1] / sum(more)


@pytest.mark.parametrize("plan", ["stripe", "slice", "auto"])
@pytest.mark.parametrize("host", [None, 1] if job.LONG else [None])
def test_lossy_rail(host: int | None, plan: str) -> None:
    """A rail that loses one frame in twenty loses its traffic, and gets it back when the loss ends.

    The loss affects all hosts, or only what one of them sends.
    """
    with Testbed(hosts=3, rails=dict.fromkeys(RAILS, "500mbit")) as bed:
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


def test_loss_between_two_hosts(tmp_path: Path) -> None:
    """Messages of all sizes leave the rail, not only those that meet the loss.

    Small messages go between host 0 and host 1 or 2. Large ones use the ring, also from 0 to 3.
    """
    table = tmp_path / "table"
    with Testbed(hosts=4, rails=dict.fromkeys(RAILS, "500mbit")) as bed:
        with job.Job(bed) as work:
            work.start(
                elements=f"{2 << 10},{MIB}",
                until=work.stop_file,
                rails=job.rails_option(RAILS),
                env={"NEZHA_TABLE": str(table)},
            )
            work.all_done(60)
            bed.loss("eth1", 5, host=0, to=3)
            bed.loss("eth1", 5, host=3, to=0)
            work.all_done(OPERATIONS)
            work.stop()
            work.succeed()
    # A lossy link may seem healthy by chance, but less and less often. If it did not become rarer,
    # nearly every operation would be a change.
    text = table.read_text()
    assert " lanes " in text, text
    changes = [int(line.split()[1]) for line in text.splitlines() if line.startswith("changes ")]
    assert max(changes) < OPERATIONS / 4, text


@pytest.mark.parametrize("polling", ["latency-first", "cpu-first"])
def test_nobody_polls_for_what_takes_long(tmp_path: Path, polling: str) -> None:
    """A rank does not poll for parts of a large message, which are not urgent before its end."""
    command = [
        *("env", "NEZHA_POLL=2000", f"NEZHA_POLLING={polling}"),
        str(job.BUILD / "bench" / "nezha-bench"),
        *("--rails", job.rails_option(RAILS), "--shared-path", str(tmp_path), "--elements", "1M"),
        *("--warmup-iters", "2", "--iteration-count", "5", "--format", "json", "allreduce"),
    ]
    with Testbed(hosts=2, rails=dict.fromkeys(RAILS, "200mbit")) as bed:
        row = json.loads(bed.run(command, timeout=job.PATIENCE)[0].stdout)
    waited = 2 * row["iterations"] * row["p50_us"] * 1e-6  # by both ranks
    assert row["cpu_s"] < 0.5 * waited, row
