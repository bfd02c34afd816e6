# SPDX-License-Identifier: Apache-2.0
"""PyTorch's gloo backend over nezha's device, through PyTorch's own registry of devices."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import ways
from testbed import Testbed

HOSTS = 2
BYTES = 16 << 20
PROGRAM = f"""
import torch, torch.distributed as dist
import nezha_torch
assert nezha_torch.has_gloo_device()
dist.init_process_group("gloo")
tensor = torch.full(({BYTES} // 4,), dist.get_rank() + 1.0)
dist.all_reduce(tensor)
assert (tensor == 3).all()
print("right")
"""


@pytest.fixture(scope="module")
def bed() -> Iterator[Testbed]:
    with Testbed(hosts=HOSTS, rails=dict.fromkeys(ways.RAILS, "500mbit"), mgmt=True) as bed:
        yield bed


@pytest.mark.parametrize("is_preloaded", [False, True])
def test_it_uses_both_rails(bed: Testbed, tmp_path: Path, is_preloaded: bool) -> None:
    """The device does so also beside the preloaded library, which carries out whole collectives."""
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    meeting = bed.environment(0)["MGMT_ADDR0"]
    env = {"MASTER_ADDR": meeting, "MASTER_PORT": "29500", "WORLD_SIZE": str(HOSTS)}
    env |= {"GLOO_DEVICE_TRANSPORT": "NEZHA"}
    env |= (ways.PRELOAD if is_preloaded else ways.BACKEND).env
    before = [bed.counters(0, rail)["tx_bytes"] for rail in ways.RAILS]
    ranks = bed.start(["/usr/bin/python3", str(program)], env=env)
    ways.finish(ranks)
    assert all(rank.returncode == 0 and "right" in rank.stdout for rank in ranks), ways.told(ranks)
    for rail, count in zip(ways.RAILS, before):
        assert bed.counters(0, rail)["tx_bytes"] - count > BYTES / 5, rail
