# SPDX-License-Identifier: Apache-2.0
"""PyTorch's own gloo backend works unchanged in a process that imports nezha."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import job
import ways

# Rank 1 ends at once, and rank 0 reports which exception a collective with rank 1 raises.
PROGRAM = """
import os, sys, nezha, torch
import torch.distributed as dist
dist.init_process_group("gloo", init_method=f"file://{sys.argv[2]}", rank=int(sys.argv[1]), world_size=2)
dist.barrier()
if dist.get_rank() == 1:
    os._exit(0)
try:
    dist.all_reduce(torch.ones(1_000_000))
except Exception as error:
    print(*[kind.__name__ for kind in type(error).__mro__], flush=True)
    os._exit(0)
"""


def test_a_lost_peer_is_a_runtime_error(tmp_path: Path) -> None:
    env = dict(os.environ) | {"PYTHONPATH": ways.SITE, "GLOO_SOCKET_IFNAME": "lo"}
    ranks = [
        subprocess.Popen(
            [sys.executable, "-B", "-c", PROGRAM, str(rank), str(tmp_path / "store")],
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        outputs = [rank.communicate(timeout=2 * job.PATIENCE)[0] for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    assert outputs == ["RuntimeError Exception BaseException object\n", ""], outputs
