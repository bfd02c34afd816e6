# SPDX-License-Identifier: Apache-2.0
"""A data-parallel training, which goes on from its checkpoint when torchrun starts it again.

Each rank writes JSON lines: one at the start, one per step, and one at the end with a digest of the
weights. The samples depend only on rank and step, so each run ends with the same weights.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backend", default="gloo")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--checkpoint", type=Path, required=True, help="all ranks see its folder")
    parser.add_argument("--die-at", type=int, default=-1, help="the step at which rank 1 dies once")
    parser.add_argument("--until", type=Path, help="go on until this file is there")
    return parser.parse_args()


def tell(event: str, **members: Any) -> None:
    print(json.dumps({"event": event, "rank": dist.get_rank(), **members}), flush=True)


class Training:
    def __init__(self, checkpoint: Path) -> None:
        torch.manual_seed(1)
        layers = [torch.nn.Conv2d(1, 4, 3), torch.nn.ReLU(), torch.nn.Flatten()]
        self.net = torch.nn.Sequential(*layers, torch.nn.Linear(4 * 14 * 14, 500))
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.01, momentum=0.9)
        self.checkpoint = checkpoint
        self.step = 0
        if checkpoint.exists():
            state = torch.load(checkpoint)
            self.net.load_state_dict(state["net"])
            self.optimizer.load_state_dict(state["optimizer"])
            self.step = state["step"]
        self.parallel = DistributedDataParallel(self.net)

    def run_step(self) -> None:
        torch.manual_seed(1000 * self.step + dist.get_rank())
        samples, classes = torch.randn(4, 1, 16, 16), torch.randint(0, 500, (4,))
        self.optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(self.parallel(samples), classes)
        loss.backward()
        self.optimizer.step()
        self.step += 1
        tell("step", step=self.step, loss=loss.item())

    def save(self) -> None:
        if dist.get_rank() == 0:
            state = {"net": self.net.state_dict(), "optimizer": self.optimizer.state_dict()}
            new = self.checkpoint.with_suffix(".new")
            torch.save(state | {"step": self.step}, new)
            new.rename(self.checkpoint)
        dist.barrier()

    def digest(self) -> str:
        digest = hashlib.sha256()
        for values in self.net.state_dict().values():
            digest.update(values.numpy().tobytes())
        return digest.hexdigest()


def main() -> None:
    options = arguments()
    if options.backend == "nezha":
        import nezha_torch  # noqa: F401  # registers the backend
    torch.set_num_threads(1)
    dist.init_process_group(options.backend)
    training = Training(options.checkpoint)
    is_first_run = training.step == 0
    tell("start", step=training.step, size=dist.get_world_size())
    while training.step < options.steps or (options.until and not options.until.exists()):
        if training.step == options.die_at and is_first_run and dist.get_rank() == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        training.run_step()
        training.save()
        if options.until:
            time.sleep(0.01)
    tell("end", step=training.step, digest=training.digest())
    dist.destroy_process_group()


main()
