# SPDX-License-Identifier: Apache-2.0
"""PyTorch's backend nezha between four hosts with two rails."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import job
import pytest
import ways
from processes import Process, end_sessions
from testbed import Testbed

PROGRAM = str(Path(__file__).parent / "torch_ranks.py")
HOSTS = 4
PATIENCE = 240.0  # seconds: four PyTorchs on two busy cores
COLLECTIVES = ["reductions", "bits_and_averages", "sparse", "moves", "uneven", "strided", "objects"]
OTHERS = ["as_gloo", "messages", "groups", "refusals", "in_flight", "futures", "dropped", "training", "left"]
FAILURES = ["timeouts", "monitored", "death"]


@pytest.fixture(scope="module")
def bed() -> Iterator[Testbed]:
    with Testbed(hosts=HOSTS, rails=dict.fromkeys(ways.RAILS, "500mbit"), mgmt=True) as bed:
        yield bed


def start(bed: Testbed, scenarios: Sequence[str], **env: str) -> list[Process]:
    meeting = bed.environment(0)
    env = {
        "MASTER_ADDR": meeting["MGMT_ADDR0"],
        "MASTER_PORT": "29500",
        "WORLD_SIZE": str(HOSTS),
        "GLOO_SOCKET_IFNAME": meeting["MGMT_NAME"],
    } | env
    return bed.start(["/usr/bin/python3", PROGRAM, *scenarios], env=ways.BACKEND.env | env)


def finish(ranks: list[Process]) -> list[Process]:
    try:
        for rank in ranks:
            rank.wait(PATIENCE)
    finally:
        end_sessions(ranks, gently=False)
    return ranks


def told(rank: Process) -> str:
    return f"--- {rank}, {rank.returncode}\n{rank.output[-6000:]}"


@pytest.fixture(scope="module")
def peaceful(bed: Testbed) -> list[Process]:
    return finish(start(bed, COLLECTIVES + OTHERS))


@pytest.fixture(scope="module")
def troubled(bed: Testbed) -> list[Process]:
    return finish(start(bed, FAILURES))


@pytest.mark.parametrize("scenario", COLLECTIVES + OTHERS)
def test_works(peaceful: list[Process], scenario: str) -> None:
    for rank in peaceful:
        assert f"passed {scenario}\n" in rank.stdout, told(rank)


def test_ends_well(peaceful: list[Process]) -> None:
    assert [rank.returncode for rank in peaceful] == [0] * HOSTS, "\n".join(map(told, peaceful))


@pytest.mark.parametrize("scenario", FAILURES)
def test_fails_well(troubled: list[Process], scenario: str) -> None:
    dies = scenario == "death"
    for rank in troubled[: HOSTS - 1 if dies else HOSTS]:
        assert f"passed {scenario}\n" in rank.stdout, told(rank)


def test_a_death_is_heard_of_soon(troubled: list[Process]) -> None:
    for rank in troubled[: HOSTS - 1]:
        heard = re.search(r"heard of it after ([\d.]+) s", rank.stdout)
        assert heard and float(heard[1]) < 30, told(rank)  # not after 60 s, the operations' deadline


def test_a_cut_rail_is_not_noticed(bed: Testbed, tmp_path: Path) -> None:
    stop = tmp_path / "stop"
    ranks = start(bed, ["under_way"], STOP_FILE=str(stop))
    try:
        ranks[0].wait_for(r"done 3\n", PATIENCE)
        bed.cut(1, ways.RAILS[1])
        before = ranks[0].stdout.count("done")
        job.await_that(
            "operations go on",
            lambda: ranks[0].stdout.count("done") > before + 5,
            PATIENCE,
            lambda: "\n".join(map(told, ranks)),
        )
    finally:
        stop.touch()
        finish(ranks)
        bed.heal(1, ways.RAILS[1])
    assert [rank.returncode for rank in ranks] == [0] * HOSTS, "\n".join(map(told, ranks))
