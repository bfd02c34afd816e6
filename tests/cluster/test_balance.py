# SPDX-License-Identifier: Apache-2.0
"""Plans that all ranks change together, and the data length table behind them."""

from __future__ import annotations

import statistics
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
    """The table's entry for messages of this size; an empty class if there is none."""
    for known in balance["classes"]:
        if known["bytes"] <= size < 2 * known["bytes"]:
            return known
    return {"shares": [], "number": 0, "windows": 0, "state": "", "lane_us": [], "history": ""}


def changes(balance: dict[str, Any]) -> int:
    return sum(known["number"] for known in balance["classes"])


# ---- agreement ---------------------------------------------------------------------------------


def plans(balance: dict[str, Any]) -> dict[tuple[int, int], tuple[list[float], str]]:
    """By size class and plan number: the part of each lane, and the algorithm."""
    return {(c["bytes"], c["number"]): (c["shares"], c["algorithm"]) for c in balance["classes"]}


def agreed(work: job.Job) -> dict[str, Any] | None:
    """The balance after the last operations, once all ranks have the same."""
    assert not any(rank.process.returncode for rank in work.ranks), work.told()
    told = [rank.last("balance") for rank in work.ranks]
    balances = [event["balance"] for event in told if event]
    if len(balances) < work.size or any(one["lanes"] != balances[0]["lanes"] for one in balances):
        return None
    return balances[0] if all(plans(one) == plans(balances[0]) for one in balances) else None


@pytest.mark.parametrize("plan", ["slice", "auto"])
def test_plans_change_under_four_threads(bed: Testbed, plan: str) -> None:
    """Plans change hundreds of times, while threads run operations of all sizes in an order that
    differs from rank to rank, and ranks come late. All sums are right, and all ranks end with the
    same plan. Sizes below 4 KiB have no plan."""
    with job.Job(bed, 4) as work:
        work.start(
            elements=f"{KIB},{16 * KIB},1,{8 * KIB},{5 * KIB},0,{64 * KIB},{32 * KIB}",
            operations=2000 if job.LONG else 400,
            threads=4,
            pause="0:3",
            report=3,  # a class gets its turn once in eight operations
            settle=work.stop_file,
            rails=BOTH,
            plan=plan,
            env=SHUFFLED,
        )
        # Rank 0 knows its decisions at once. The decisions after the last operations take a while
        # to arrive at the other ranks.
        last = job.await_that("one plan", lambda: agreed(work), tell=work.told)
        assert [known["bytes"] >> 10 for known in last["classes"]] == [4, 8, 16, 32, 64]
        work.stop()
        work.succeed()

        # All ranks that report an earlier plan must agree on it, too. Another decision may have
        # replaced one of rank 0's; the other ranks report only plans that they run.
        seen: dict[tuple[int, int], tuple[list[float], str]] = {}
        for rank in work.ranks:
            had = [item for done in rank.all("done") for item in plans(done["balance"]).items()]
            assert len(dict(had)) > 200, f"{rank.process}: {len(dict(had))} plans"
            for number, known in had:
                assert seen.setdefault(number, known) == known, (str(rank.process), number)


def test_the_better_algorithm_is_agreed_on() -> None:
    """On a slow rail, an algorithm that sends fewer bytes wins although it takes more rounds, also
    if there is only one rail. An experiment uses the other algorithm, too, so only rank 0's history
    shows that it was adopted. All ranks must report it for the first operation after which rank 0
    does, because some windows later there may be another experiment."""
    slow = {"eth0": "20mbit"}  # with little credit in the shaper between operations
    with Testbed(hosts=4, rails=slow) as bed, job.Job(bed, 4) as work:
        work.start(elements=30 * KIB, until=work.stop_file, rails=job.rails_option(slow))

        def known(done: job.Event) -> dict[str, Any]:
            return class_of(done["balance"], 30 << 10)

        def is_taken(done: job.Event) -> bool:
            return str(known(done)["history"]).endswith(": way ")  # lines end in spaces

        first = job.await_that(
            "the other algorithm is adopted",
            lambda: next(filter(is_taken, work.ranks[0].all("done")), None),
            tell=work.told,
        )
        work.stop()
        work.succeed()
        for rank in work.ranks:
            there = known(rank.wait_for("done", operation=first["operation"]))
            assert there["algorithm"] == "halving-doubling", (str(rank.process), there)
            assert there["number"] == known(first)["number"], (str(rank.process), there)


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
    """Operations follow each other without a pause, so plans change at any point of them."""
    with job.Job(bed, 4) as work:
        work.start(
            elements=f"{4 * KIB}",
            operations=10000 if job.LONG else 3000,
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
    """No rank waits for the dead rank's answer. The other ranks fail as usual."""
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
    """The first rail is five times as fast as the second, and soon carries most of the data. The
    processors of a busy machine delay both rails alike, which draws the shares together."""
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

        job.await_that("eth0 carries most", lambda: 0.65 < share() < 0.92, tell=work.told)
        work.stop()
        work.succeed()


def test_late_ranks_do_not_disturb_the_table(bed: Testbed) -> None:
    """Ranks enter up to 300 ms apart. The table must show the time that the lanes took: 256 KiB
    take 8 ms on both rails, and 40 ms on the slow one alone. With the wait for other ranks, an
    operation takes about 100 ms on average. On a busy machine both times are longer, by the same
    amount."""
    with job.Job(bed, 4) as work:
        work.start(
            elements=MIB // 4,
            until=work.stop_file,
            pause="0:300",
            rails=BOTH,
            plan="slice",
        )

        def windows() -> dict[int, float]:
            """The seconds of the slowest lane, by the number of the window."""
            known = [class_of(done["balance"], MIB) for done in work.ranks[0].all("done")]
            return {c["windows"]: max(c["lane_us"]) / 1e6 for c in known if c["lane_us"]}

        wanted = 10 if job.LONG else 3
        job.await_that(f"{wanted} windows", lambda: len(windows()) >= wanted, tell=work.told)
        work.stop()
        work.succeed()
        # The first windows have few operations, and one may use the slow rail alone.
        took = statistics.median(windows().values())
        with_waits = statistics.median(
            statistics.mean(done["seconds"] for done in each)
            for each in zip(*(rank.all("done") for rank in work.ranks), strict=True)
        )
        assert 0 < took < with_waits / 2, (windows(), with_waits)


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

    # A table of other rails is left unchanged.
    before = table.read_text()
    options["rails"] = "tcp:eth1,tcp:eth0?rail=x"
    other = job.run(bed, 4, operations=4, env=env, **options)
    assert "and learns anew" in other.ranks[0].process.stderr
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


def test_a_table_that_could_not_be_kept_is_refused_before_the_run(bed: Testbed) -> None:
    table = "/no/such/folder/table"
    with job.Job(bed, 2) as work:
        work.start(elements=1, operations=1, rails=BOTH, timeout=3000, env={"NEZHA_TABLE": table})
        error = work.ranks[0].wait_for("error")
        assert error["type"] == "InvalidArgument" and table in error["what"]
        work.wait()
