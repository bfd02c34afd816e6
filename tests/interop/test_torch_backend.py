# SPDX-License-Identifier: Apache-2.0
"""PyTorch's backend nezha between four hosts with two rails."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import job
import pytest
import ways
from processes import Process
from testbed import Testbed

PROGRAM = str(Path(__file__).parent / ("torch2_ranks.py" if ways.IS_TORCH_2 else "torch_ranks.py"))
HOSTS = 4
COLLECTIVES = ["reductions", "bits_and_averages", "sparse", "moves", "uneven", "strided", "unrecorded"]
COLLECTIVES += ["objects"]
OTHERS = ["as_gloo", "messages", "groups", "refusals", "in_flight", "futures", "blocked_callbacks", "dropped"]
OTHERS += ["training"]
if ways.IS_TORCH_2:
    OTHERS += ["coalesced", "coalesced_messages", "functional", "meshes", "sharded", "checkpointed"]
OTHERS += ["left"]
FAILURES = ["timeouts", "monitored", "abandoned", "death", "stopped"]


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


@pytest.fixture(scope="module")
def peaceful(bed: Testbed) -> list[Process]:
    ranks = start(bed, COLLECTIVES + OTHERS)
    ways.finish(ranks)
    return ranks


@pytest.fixture(scope="module")
def troubled(bed: Testbed) -> list[Process]:
    ranks = start(bed, FAILURES)
    ways.finish(ranks)
    return ranks


@pytest.mark.parametrize("scenario", COLLECTIVES + OTHERS)
def test_works(peaceful: list[Process], scenario: str) -> None:
    for rank in peaceful:
        assert f"passed {scenario}\n" in rank.stdout, ways.told(peaceful)


def test_ends_well(peaceful: list[Process]) -> None:
    assert [rank.returncode for rank in peaceful] == [0] * HOSTS, ways.told(peaceful)


@pytest.mark.parametrize("scenario", FAILURES)
def test_fails_well(troubled: list[Process], scenario: str) -> None:
    has_died = scenario in ("death", "stopped")  # the last rank is dead
    for rank in troubled[: HOSTS - 1 if has_died else HOSTS]:
        assert f"passed {scenario}\n" in rank.stdout, ways.told(troubled)


def test_a_cut_rail_is_not_noticed(bed: Testbed, tmp_path: Path) -> None:
    stop = tmp_path / "stop"
    ranks = start(bed, ["under_way"], STOP_FILE=str(stop))
    try:
        ranks[0].wait_for(r"done 3\n", ways.patience())
        bed.cut(1, ways.RAILS[1])
        before = ranks[0].stdout.count("done")
        job.await_that(
            "operations go on",
            lambda: ranks[0].stdout.count("done") > before + 5,
            ways.patience(),
            lambda: ways.told(ranks),
        )
    finally:
        stop.touch()
        ways.finish(ranks)
        bed.heal(1, ways.RAILS[1])
    assert [rank.returncode for rank in ranks] == [0] * HOSTS, ways.told(ranks)
