# SPDX-License-Identifier: Apache-2.0
"""A rank of bench/ddp: trains a small convolutional net with PyTorch's DistributedDataParallel, or runs
single allreduces. Prints a line of JSON for each step or measurement.

The environment has RANK and SIZE, and what the backend needs.
"""

from __future__ import annotations

import argparse
import datetime
import importlib
import json
import os
import time

import torch
import torch.distributed as dist
from torch import nn

SIDE = 32  # pixels
CLASSES = 10
WIDTH = 1024  # outputs of a hidden layer
BATCH = 8
BUCKET = 4  # MiB: DDP sends about this much at once
PIECE = 1 << 20  # elements of 4 MiB
PIECES = 16
WHOLE = 16 << 20  # elements of 64 MiB


def say(**members: object) -> None:
    print(json.dumps(members), flush=True)


def make_net(hidden: int) -> nn.Module:
    """Returns a net with most of its parameters in the last layers, so that most gradients are ready soon."""
    layers: list[nn.Module] = [
        nn.Conv2d(3, 8, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Conv2d(8, 16, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Flatten(),
    ]
    size = 16 * (SIDE // 4) ** 2
    for _ in range(hidden):
        layers += [nn.Linear(size, WIDTH), nn.ReLU()]
        size = WIDTH
    net = nn.Sequential(*layers, nn.Linear(size, CLASSES))
    for layer in net:
        if isinstance(layer, (nn.Conv2d, nn.Linear)):  # Gradients would vanish otherwise.
            nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
    return net


def train(rank: int, steps: int, hidden: int) -> None:
    torch.manual_seed(1)  # All ranks have the same parameters.
    net = nn.parallel.DistributedDataParallel(make_net(hidden), bucket_cap_mb=BUCKET)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.001, momentum=0.9)
    data = torch.Generator().manual_seed(1000 + rank)  # Each rank has different data.
    images = torch.randn(4 * BATCH, 3, SIDE, SIDE, generator=data)
    labels = torch.randint(CLASSES, (4 * BATCH,), generator=data)
    for step in range(steps):
        begin = time.monotonic()
        chosen = slice(step % 4 * BATCH, (step % 4 + 1) * BATCH)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(net(images[chosen]), labels[chosen])
        loss.backward()
        optimizer.step()
        say(step=step, begin=begin, seconds=time.monotonic() - begin, loss=loss.item())
    digest = sum(float(each.detach().double().sum()) for each in net.parameters())
    count = sum(each.numel() for each in net.parameters())
    say(digest=digest, parameters=count)


def check(tensor: torch.Tensor, value: float) -> None:
    if not bool((tensor == value).all()):
        raise RuntimeError(f"wrong result: {tensor[tensor != value][:4]} in place of {value}")


def single(size: int, pieces: int, elements: int, repeat: int) -> None:
    """Measures allreduces that are in flight together; the first run connects, and does not count."""
    for number in range(repeat + 1):
        tensors = [torch.full((elements,), float(i + 1)) for i in range(pieces)]
        dist.barrier()
        begin = time.monotonic()
        works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
        for work in works:
            work.wait()
        seconds = time.monotonic() - begin
        for i, tensor in enumerate(tensors):
            check(tensor, size * (i + 1.0))
        if number > 0:
            say(pieces=pieces, bytes=4 * pieces * elements, seconds=seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("--backend", required=True)
    add("--meeting", required=True, help="a file that is not there yet")
    add("--steps", type=int, default=0, help="of training")
    add("--hidden", type=int, default=6, help="hidden layers")
    add("--single", type=int, default=0, help="so many times single allreduces, in place of training")
    add("--timeout", type=float, default=30, help="seconds of an operation")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.backend == "nezha":
        importlib.import_module("nezha_torch")  # The import registers the backend.
    rank, size = int(os.environ["RANK"]), int(os.environ["SIZE"])
    dist.init_process_group(
        options.backend,
        init_method=f"file://{options.meeting}",
        rank=rank,
        world_size=size,
        timeout=datetime.timedelta(seconds=options.timeout),
    )
    if options.single:
        single(size, PIECES, PIECE, options.single)
        single(size, 1, WHOLE, options.single)
    else:
        train(rank, options.steps, options.hidden)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
