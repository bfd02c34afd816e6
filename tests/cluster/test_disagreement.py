# SPDX-License-Identifier: Apache-2.0
"""If ranks disagree, each has an error that says who wants what, long before the deadline."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import job
import pytest
from testbed import Testbed

RAILS = ["eth0", "eth1"]
BOTH = job.rails_option(RAILS)
MIB = 1 << 18  # elements
DEADLINE = 40_000  # ms
LONG_BEFORE = 20  # seconds, on a machine that has other work


@pytest.fixture(scope="module")
def bed() -> Iterator[Testbed]:
    with Testbed(hosts=7, rails=dict.fromkeys(RAILS, "1gbit"), ipv6=True) as bed:
        yield bed


def options_for(work: job.Job, **others: Any) -> dict[str, Any]:
    """Each rank that has failed stays until all have failed, so that a late rank still finds it."""
    return {"rails": BOTH, "timeout": DEADLINE, "stay": work.stop_file} | others


def check_errors(work: job.Job, *parts: str) -> None:
    """Every rank's error contains all of these parts, and no rank is reported as lost."""
    for rank in work.ranks:
        error = rank.wait_for("error", timeout=LONG_BEFORE)
        what = error["what"]
        assert all(part in what for part in parts), f"{parts}\n{work.told()}"
        # All ranks report an error that one of them has found, so it must not say "this rank".
        assert not re.search(r"\bthis (is|rank|process|host|device)\b|\bhere\b", what), work.told()
        assert error["ranks"] == [], work.told()
    work.stop()
    work.wait()
    assert all(rank.process.code == 1 for rank in work.ranks)


# ---- operations -------------------------------------------------------------------------------


def call(elements: int, algorithm: str = "auto") -> dict[str, Any]:
    return {"elements": elements, "algorithm": algorithm}


@pytest.mark.parametrize(
    ("usual", "other"),
    [
        (call(1000), call(1001)),
        (call(1000), call(0)),
        (call(0), call(1)),
        (call(MIB), call(MIB + 1)),
        (call(16 * MIB), call(1)),
        (call(1000, "ring"), call(1000, "recursive-doubling")),
        (call(MIB, "recursive-doubling"), call(MIB, "ring")),
        (call(MIB, "direct"), call(MIB, "halving-doubling")),
        (call(1, "bcube"), call(0)),
        (call(1000), call(1000) | {"type": "int32"}),
        (call(1000), call(1000) | {"operation": "max"}),
    ],
    ids=lambda options: "-".join(map(str, options.values())),
)
@pytest.mark.parametrize("ranks", [2, 4, 6, 7])
def test_operations(bed: Testbed, ranks: int, usual: dict[str, Any], other: dict[str, Any]) -> None:
    """One rank calls something else, whether or not the others exchange messages with it."""
    with job.Job(bed, ranks) as work:
        work.start([*range(ranks - 1)], **options_for(work, **usual))
        work.start([ranks - 1], **options_for(work, **other))
        check_errors(work, "another operation", "same order")


@pytest.mark.parametrize("ranks", [6, 7])
@pytest.mark.parametrize("differing", [0, 2])
def test_algorithms_of_any_rank(bed: Testbed, ranks: int, differing: int) -> None:
    with job.Job(bed, ranks) as work:
        options = options_for(work, elements=1000)
        usual = [rank for rank in range(ranks) if rank != differing]
        work.start(usual, algorithm="recursive-doubling", **options)
        work.start([differing], algorithm="ring", **options)
        check_errors(work, "another operation", "by ring", "by recursive-doubling")


# ---- settings ---------------------------------------------------------------------------------


def test_settings_of_rank_0(bed: Testbed) -> None:
    """Ranks without settings of their own adopt those of rank 0."""
    given = {"NEZHA_PLAN": "slice", "NEZHA_SHARES": "7,1", "NEZHA_ALGORITHM": "ring"}
    with job.Job(bed, 3) as work:
        options: dict[str, Any] = {"elements": 4 * MIB, "operations": 2, "rails": BOTH}
        work.start([0], env=given, **options)
        work.start([1], env={"NEZHA_ALGORITHM": "ring"}, **options)
        work.start([2], **options)
        work.succeed()
        for rank in work.ranks:
            # what the second operation has sent; links are still made during the first
            before, after = (event["rails"] for event in rank.all("done"))
            large, small = (b["sent"] - a["sent"] for a, b in zip(before, after))
            assert 6 <= large / small <= 8, work.told()


def test_what_the_code_gives_goes_first(bed: Testbed) -> None:
    with job.Job(bed, 2) as work:
        env = {"NEZHA_PLAN": "slice", "NEZHA_ALGORITHM": "direct", "NEZHA_RAILS": "tcp:nowhere"}
        options: dict[str, Any] = {"elements": 1000, "rails": BOTH, "plan": "stripe"}
        work.start([0], env=env, algorithm="ring", **options)
        work.start([1], algorithm="ring", **options)
        # The algorithm in rank 0's environment is also the default for rank 1's operations.
        work.succeed()


def test_rails_and_timeout_of_the_environment(bed: Testbed) -> None:
    with job.Job(bed, 2) as work:
        [rank] = work.start([0], env={"NEZHA_RAILS": BOTH, "NEZHA_TIMEOUT": "300ms"}, elements=1)
        error = rank.wait_for("error")
        assert error["type"] == "TimeoutError" and "300 ms" in error["what"], error


@pytest.mark.parametrize(
    ("rank0", "other", "parts"),
    [
        (
            {},
            {"env": {"NEZHA_ALGORITHM": "direct"}},
            ("NEZHA_ALGORITHM", "'direct' at rank 2", "'auto' at rank 0"),
        ),
        (
            {"env": {"NEZHA_PLAN": "slice"}},
            {"plan": "stripe"},
            ("ContextOptions::plan", "'stripe' at rank 2", "'slice' at rank 0"),
        ),
        (
            {"plan": "slice", "shares": "1,1"},
            {"plan": "slice", "shares": "2,1"},
            ("ContextOptions::shares", "'2,1' at rank 2", "'1,1' at rank 0"),
        ),
        ({}, {"env": {"SIZE": "6"}}, ("size is 6 at rank 2", "5 at rank 0")),
        ({}, {"env": {"NEZHA_POLL": "soon"}}, ("rank 2 ", "NEZHA_POLL is 'soon'")),
        ({}, {"rails": "tcp:eth7"}, ("rank 2 ", "eth7")),
    ],
    ids=["variable", "option", "shares", "size", "bad value", "bad rail"],
)
def test_settings(
    bed: Testbed, rank0: dict[str, Any], other: dict[str, Any], parts: tuple[str, ...]
) -> None:
    """Every rank learns which rank cannot join and why, also ranks that need nothing from it."""
    with job.Job(bed, 5) as work:
        options = options_for(work, elements=1000)
        work.start([0], **options | rank0)
        work.start([1, 3, 4], **options)
        work.start([2], **options | other)
        check_errors(work, *parts)


@pytest.mark.parametrize("number", [0, 1])
def test_two_processes_of_one_rank(bed: Testbed, number: int) -> None:
    """The last process starts as another rank. All errors name both, whichever came first."""
    with job.Job(bed, 4) as work:
        options = options_for(work, elements=1000)
        work.start([0, 1, 2], **options)
        work.start([3], env={"RANK": str(number)}, **options)
        both = rf"rank {number} is there already, as pid (\d+) on host \S+, and pid (\d+) on host \S+ "
        for rank in work.ranks:
            what = rank.wait_for("error", timeout=LONG_BEFORE)["what"]
            found = re.search(both, what)
            assert found and found[1] != found[2], work.told()
        check_errors(work, "Each takes its own")


@pytest.mark.parametrize("ranks", [2, 3])
@pytest.mark.parametrize("differing", [0, 1])
def test_two_families_on_the_only_rail(bed: Testbed, ranks: int, differing: int) -> None:
    with job.Job(bed, ranks) as work:
        usual = [rank for rank in range(ranks) if rank != differing]
        work.start(usual, **options_for(work, elements=1000, rails="tcp:eth0"))
        work.start([differing], **options_for(work, elements=1000, rails="tcp:eth0?family=6"))
        check_errors(work, "no rail can reach rank ", "eth0: the peer's address", "family=4")


def test_two_families_on_one_of_two_rails(bed: Testbed) -> None:
    with job.Job(bed, 3) as work:
        work.start([0, 2], elements=1000, rails=BOTH)
        work.start([1], elements=1000, rails="tcp:eth0?family=6,tcp:eth1")
        work.succeed()


@pytest.mark.parametrize("differing", [0, 2])
def test_no_rail_in_common(bed: Testbed, differing: int) -> None:
    with job.Job(bed, 3) as work:
        usual = [rank for rank in range(3) if rank != differing]
        work.start(usual, **options_for(work, elements=1000, rails="tcp:eth0"))
        work.start([differing], **options_for(work, elements=1000, rails="tcp:eth1"))
        check_errors(work, "no rail in common with rank ", "rails are matched by name")


def test_rank_0_that_cannot_join(bed: Testbed) -> None:
    """Ranks that wait for the settings of rank 0 learn why there are none."""
    with job.Job(bed, 3) as work:
        options = options_for(work, elements=1000)
        work.start([1, 2], **options)
        work.start([0], env={"NEZHA_PLAM": "slice"}, **options)
        check_errors(work, "NEZHA_PLAM; did you mean NEZHA_PLAN?")
