# SPDX-License-Identifier: Apache-2.0
"""PyTorch's gloo backend has the same results with and without the preload library."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import ways
from testbed import Testbed

PROGRAM = str(Path(__file__).parent / "gloo_backend_ranks.py")
HOSTS = 3


@pytest.fixture(scope="module")
def bed() -> Iterator[Testbed]:
    with Testbed(hosts=HOSTS, rails=dict.fromkeys(ways.RAILS, "500mbit"), mgmt=True) as bed:
        yield bed


def test_all_that_the_backend_has(bed: Testbed) -> None:
    before = [bed.counters(0, rail)["tx_bytes"] for rail in ways.RAILS]
    runs = []
    for port, way in enumerate([ways.STOCK, ways.PRELOAD]):
        meeting = bed.environment(0)["MGMT_ADDR0"]
        env = {"MASTER_ADDR": meeting, "MASTER_PORT": str(29500 + port), "WORLD_SIZE": str(HOSTS)}
        runs.append(bed.start(["/usr/bin/python3", PROGRAM], env=env | way.env))
    ways.finish(runs[0] + runs[1])
    for stock, preloaded in zip(*runs):
        assert (stock.returncode, preloaded.returncode) == (0, 0), stock.output + preloaded.output
        expected, got = stock.stdout.splitlines(), preloaded.stdout.splitlines()
        differences = [f"{ours}, not {theirs}" for ours, theirs in zip(got, expected) if ours != theirs]
        assert not differences and len(got) == len(expected), "\n".join(differences)
    # Without the library, only the first rail is used.
    sent = [bed.counters(0, rail)["tx_bytes"] - count for rail, count in zip(ways.RAILS, before)]
    assert sent[1] > 10 << 20, sent
