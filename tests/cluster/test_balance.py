"""Plans that all ranks change together, and the data length table that they come from."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import job
import pytest
from testbed import Testbed

RAILS = {"eth0": "500mbit", "eth1": "100mbit"}
BOTH = job.rails_option(RAILS)
KIB = 1 << 8  # elements
MIB = 1 << 18
SHUFFLED = {"NEZHA_POLICY": "shuffle"}


@pytest.fixture(scope="module")
def bed() -> Iterator[Testbed]:
    with Testbed(hosts=4, rails=RAILS) as bed:
        yield bed


def class_of(balance: dict[str, Any], size: int) -> dict[str, Any]:
    """What is known of messages of so many bytes; an empty class if nothing is."""
    for known in balance["classes"]:
        if known["bytes"] <= size < 2 * known["bytes"]:
            return known
    return {"shares": [], "number": 0, "windows": 0, "state": "", "lane_us": []}


def changes(balance: dict[str, Any]) -> int:
    return sum(known["number"] for known in balance["classes"])


# ---- agreement ---------------------------------------------------------------------------------


def numbers_at_the_end(work: job.Job) -> list[list[tuple[int, list[float]]]]:
    ends = [rank.wait_for("end")["balance"] for rank in work.ranks]
    return [[(c["bytes"], c["number"], c["shares"]) for c in end["classes"]] for end in ends]


@pytest.mark.parametrize("plan", ["slice", "auto"])
def test_plans_change_under_four_threads(bed: Testbed, plan: str) -> None:
    """Hundreds of changes, while threads run operations of all sizes in an order that differs from
    rank to rank, and ranks come late: no sum is wrong, and all ranks end with one plan."""
    with job.Job(bed, 4) as work:
        work.start(
            elements=f"{KIB},{2 * KIB},1,{16 * KIB},{5 * KIB},0,{64 * KIB}",
            operations=2000 if job.LONG else 400,
            threads=4,
            pause="0:3",
            report=100,
            rails=BOTH,
            plan=plan,
            env=SHUFFLED,
        )
        work.succeed()
        ends = [rank.wait_for("end")["balance"] for rank in work.ranks]
        assert changes(ends[0]) > 100
        # Rank 0 may have decided on a change that no operation was left for.
        assert all(end["lanes"] == ends[0]["lanes"] for end in ends)
        assert all(changes(end) > changes(ends[0]) - 20 for end in ends)


def test_the_better_algorithm_is_agreed_on() -> None:
    """Where a rail is slow, fewer bytes are worth more rounds, on one rail too."""
    slow = {"eth0": "20mbit"}  # what a rail saves up between operations is little of them
    with Testbed(hosts=4, rails=slow) as bed, job.Job(bed, 4) as work:
        work.start(elements=30 * KIB, operations=80, report=80, rails=job.rails_option(slow))
        work.succeed()
        for rank in work.ranks:
            known = class_of(rank.wait_for("end")["balance"], 30 << 10)
            assert known["algorithm"] == "halving-doubling", known


def test_several_algorithms_and_sizes(bed: Testbed) -> None:
    for algorithm in job.ALGORITHMS:
        job.run(
            bed,
            3,
            elements=f"{4 * KIB},{32 * KIB},{1000}",
            operations=60,
            threads=2,
            report=60,
            algorithm=algorithm,
            rails=BOTH,
            plan="slice",
            env=SHUFFLED,
        )


def test_one_thread_in_haste(bed: Testbed) -> None:
    """Operations follow each other without a pause, and steps meet them at every point."""
    with job.Job(bed, 4) as work:
        work.start(
            elements=f"{4 * KIB}",
            operations=10000 if job.LONG else 2000,
            report=1000,
            rails=BOTH,
            plan="slice",
            env=SHUFFLED,
        )
        work.succeed()
        assert changes(work.ranks[0].wait_for("end")["balance"]) > 200


def test_a_cable_is_cut_while_plans_change(bed: Testbed) -> None:
    with job.Job(bed, 4) as work:
        work.start(
            elements=f"{16 * KIB},{64 * KIB}",
            until=work.stop_file,
            pause="0:2",
            rails=BOTH,
            plan="slice",
            timeout=5000,
            env=SHUFFLED,
        )
        work.all_done(40)
        bed.cut(1, "eth1", "silent")
        work.all_done(60)
        bed.heal(1, "eth1")
        work.all_done(60)
        work.stop()
        work.succeed()


def test_a_rank_dies_while_plans_change(bed: Testbed) -> None:
    """Nobody waits for its answer: the others fail as ever."""
    with job.Job(bed, 4) as work:
        work.start(
            elements=f"{16 * KIB}",
            until=work.stop_file,
            rails=BOTH,
            plan="slice",
            timeout=20000,
            env=SHUFFLED,
        )
        work.all_done(40)
        work.ranks[2].process.kill()
        others = [rank for rank in work.ranks if rank.number != 2]
        for rank in others:
            assert "rank 2" in rank.wait_for("error", timeout=5)["what"]
        work.wait()


# ---- learning ----------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["model", "paper"])
def test_slices_come_to_fit_the_rails(bed: Testbed, policy: str) -> None:
    """The first rail is five times as fast: it comes to carry most."""
    with job.Job(bed, 4) as work:
        work.start(
            elements=MIB // 4,
            until=work.stop_file,
            rails=BOTH,
            plan="slice",
            env={"NEZHA_POLICY": policy},
        )

        def share() -> float:
            done = work.ranks[0].last("done")
            shares = class_of(done["balance"], MIB)["shares"] if done else []
            return shares[0] if shares else 0

        job.await_that("eth0 carries four fifths", lambda: 0.75 < share() < 0.92, tell=work.told)
        work.stop()
        work.succeed()


def test_late_ranks_do_not_disturb_the_table(bed: Testbed) -> None:
    """Ranks enter up to 300 ms apart. What is read is what the lanes took: 256 KiB take 8 ms by
    both rails, 40 ms by the slow one alone."""
    with job.Job(bed, 4) as work:
        work.start(
            elements=MIB // 4,
            until=work.stop_file,
            pause="0:300",
            rails=BOTH,
            plan="slice",
        )

        def known() -> dict[str, Any]:
            done = work.ranks[0].last("done")
            return class_of(done["balance"], MIB) if done else class_of({"classes": []}, MIB)

        windows = 10 if job.LONG else 3
        job.await_that(f"{windows} windows", lambda: known()["windows"] >= windows, tell=work.told)
        assert 0 < max(known()["lane_us"]) < 100_000
        work.stop()
        work.succeed()


def test_tables_outlive_their_context(bed: Testbed, tmp_path: Path) -> None:
    table = tmp_path / "table"
    options: dict[str, Any] = {"elements": MIB // 4, "rails": BOTH, "plan": "slice"}
    env = {"NEZHA_TABLE": str(table)}
    first = job.run(bed, 4, operations=30, env=env, **options)
    learned = class_of(first.ranks[0].wait_for("end")["balance"], MIB)
    assert learned["windows"] > 0 and table.is_file()

    second = job.run(bed, 4, operations=4, env=env, **options)
    resumed = class_of(second.ranks[0].wait_for("end")["balance"], MIB)
    assert resumed["windows"] >= learned["windows"]

    # Of other rails: it is left as it is.
    before = table.read_text()
    other = job.run(bed, 4, operations=4, env=env, **(options | {"rails": "tcp:eth1,tcp:eth0?rail=x"}))
    assert "this run starts anew" in other.ranks[0].process.stderr
    assert table.read_text() == before


def test_a_file_that_is_no_table_is_refused(bed: Testbed, tmp_path: Path) -> None:
    table = tmp_path / "table"
    table.write_text("my thesis\n")
    with job.Job(bed, 2) as work:
        work.start(
            elements=1, operations=1, rails=BOTH, timeout=3000, env={"NEZHA_TABLE": str(table)}
        )
        error = work.ranks[0].wait_for("error")
        assert error["type"] == "InvalidArgument" and str(table) in error["what"]
        work.wait()
    assert table.read_text() == "my thesis\n"
