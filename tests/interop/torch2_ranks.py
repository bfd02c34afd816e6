# SPDX-License-Identifier: Apache-2.0
"""Adds scenarios to torch_ranks.py, with what programs use in PyTorch 2."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional_collectives
import torch.distributed.checkpoint as checkpoints
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.distributed.tensor import DTensor, Partial, Shard, distribute_tensor
from torch.nn.parallel import DistributedDataParallel

from torch_ranks import equal, main, me, raises, scenario, size

CPU = torch.device("cpu")


def mine(length: int) -> Tensor:
    return torch.full((length,), float(me()))


def of_all(length: int) -> Tensor:
    """The tensors that ranks have as `mine`, concatenated."""
    return torch.arange(size()).repeat_interleave(length).float()


def sum_of_all(length: int) -> Tensor:
    return torch.full((length,), float(sum(range(size()))))


@scenario
def coalesced() -> None:
    """Operations in one bracket share one work, which completes when all of them have."""
    for device in (None, CPU):
        tensors = [mine(3), mine(20_000)]
        with dist._coalescing_manager(device=device, async_ops=True) as bracket:
            for tensor in tensors:
                dist.all_reduce(tensor)
        bracket.wait()
        gathered = [torch.empty(size() * 3), torch.empty(size() * 2)]
        with dist._coalescing_manager(device=device):
            for output, length in zip(gathered, (3, 2)):
                dist.all_gather_into_tensor(output, mine(length))
        scattered = [torch.empty(3), torch.empty(2)]
        with dist._coalescing_manager(device=device):
            for output, length in zip(scattered, (3, 2)):
                dist.reduce_scatter_tensor(output, mine(size() * length))
        for tensor in [*tensors, *scattered]:
            equal(tensor, sum_of_all(len(tensor)), ("sum", device))
        for output, length in zip(gathered, (3, 2)):
            equal(output, of_all(length), ("all_gather_into_tensor", device))


@scenario
def coalesced_messages() -> None:
    left, right = (me() - 1) % size(), (me() + 1) % size()
    room, told = torch.empty(50_000), mine(2)
    with dist._coalescing_manager(device=CPU, async_ops=True) as bracket:
        dist.isend(mine(50_000), right)
        dist.irecv(room, left)
        dist.broadcast(told, 1, async_op=True)
    bracket.wait()
    equal(room, torch.full((50_000,), float(left)), "irecv")
    equal(told, torch.ones(2), "broadcast")
    group: Any = dist.group.WORLD
    raises(lambda: group._end_coalescing(CPU), "startCoalescing")
    # An error in a bracket leaves it open, but the next bracket starts afresh.
    group._start_coalescing(CPU)
    told = mine(2)
    with dist._coalescing_manager(device=CPU):
        dist.broadcast(told, 2, async_op=True)
    equal(told, torch.full((2,), 2.0), "broadcast")


@scenario
def functional() -> None:
    """Collectives that return their results."""
    f, group = functional_collectives, dist.group.WORLD
    equal(f.all_reduce(mine(3), "sum", group) + 0, sum_of_all(3), "all_reduce")
    equal(f.all_reduce(mine(3), "avg", group) + 0, sum_of_all(3) / size(), "all_reduce, average")
    equal(f.all_gather_tensor(mine(3), 0, group) + 0, of_all(3), "all_gather_tensor")
    equal(f.reduce_scatter_tensor(mine(3 * size()), "sum", 0, group) + 0, sum_of_all(3), "reduce_scatter")
    equal(f.broadcast(mine(3), 1, group) + 0, torch.ones(3), "broadcast")
    equal(f.all_to_all_single(mine(size()), None, None, group) + 0, of_all(1), "all_to_all_single")
    several = [mine(2), mine(3)]
    equal(f.all_reduce_coalesced(several, "sum", group)[1] + 0, sum_of_all(3), "all_reduce_coalesced")
    equal(f.all_gather_into_tensor_coalesced(several, group)[1] + 0, of_all(3), "all_gather_coalesced")
    blocks = [mine(2 * size()), mine(3 * size())]
    scattered = f.reduce_scatter_tensor_coalesced(blocks, "sum", [0, 0], group)
    equal(scattered[1] + 0, sum_of_all(3), "reduce_scatter_coalesced")


@scenario
def meshes() -> None:
    """A mesh makes sub-groups, and its tensors move between ranks when their placements change."""
    rows = init_device_mesh("cpu", (2, size() // 2), mesh_dim_names=("replicas", "shards"))
    tensor = torch.ones(2)
    dist.all_reduce(tensor, group=rows.get_group("replicas"))
    equal(tensor, torch.full((2,), 2.0), "a dimension of the mesh")
    mesh = init_device_mesh("cpu", (size(),))
    whole = torch.arange(5.0 * size() + 1).reshape(-1, 1).repeat(1, 2 * size())
    split = distribute_tensor(whole, mesh, [Shard(0)])
    equal(split.full_tensor(), whole, "rows")
    equal(split.redistribute(mesh, [Shard(1)]).full_tensor(), whole, "columns")
    partial = DTensor.from_local(torch.ones(2 * size(), 2), mesh, [Partial()])
    summed = partial.redistribute(mesh, [Shard(0)]).to_local()
    equal(summed, torch.full((2, 2), float(size())), "a sum that is split up")


def train(wrap: Callable[[torch.nn.Module], torch.nn.Module]) -> torch.nn.Module:
    torch.manual_seed(0)
    layers = [torch.nn.Linear(16, 33), torch.nn.ReLU(), torch.nn.Linear(33, 4)]
    net = wrap(torch.nn.Sequential(*layers))
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    for step in range(5):
        samples = torch.randn(8, 16, generator=torch.Generator().manual_seed(100 * step + me()))
        optimizer.zero_grad()
        (net(samples) - 1).square().mean().backward()
        optimizer.step()
    return net


@scenario
def sharded() -> None:
    """Training with sharded parameters gives the same weights as with PyTorch's own gloo."""
    gloo = dist.new_group(backend="gloo")
    expected = train(lambda net: DistributedDataParallel(net, process_group=gloo)).module.state_dict()
    found = train(lambda net: FullyShardedDataParallel(net, device_id=CPU)).state_dict()
    assert set(found) == set(expected)
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value)
    dist.destroy_process_group(gloo)


@scenario
def checkpointed() -> None:
    """Each rank saves its own part of a checkpoint, and the ranks can load the parts again."""
    folder: list[Any] = [tempfile.mkdtemp() if me() == 0 else None]
    dist.broadcast_object_list(folder, 0)
    mesh = init_device_mesh("cpu", (size(),))
    saved = torch.arange(10.0 * size()).reshape(-1, 2)
    checkpoints.save({"part": distribute_tensor(saved, mesh, [Shard(0)])}, checkpoint_id=folder[0])
    state = {"part": distribute_tensor(torch.zeros_like(saved), mesh, [Shard(0)])}
    checkpoints.load(state, checkpoint_id=folder[0])
    equal(state["part"].full_tensor(), saved, "loaded")
    dist.barrier()
    if me() == 0:
        shutil.rmtree(folder[0])


if __name__ == "__main__":
    main()
