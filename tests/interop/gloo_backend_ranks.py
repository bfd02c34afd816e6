# SPDX-License-Identifier: Apache-2.0
"""One rank of a program that uses all of PyTorch's gloo backend and prints the result of each case.

The program does not know nezha. Its numbers are small integers, so every order of summation gives the
same result.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

Tensors = list[torch.Tensor]
Case = tuple[str, Callable[[], Any]]
ReduceOp: Any = dist.ReduceOp  # PyTorch 1.13's types do not have all of it
REAL = [torch.float32, torch.float64, torch.float16, torch.int8, torch.uint8, torch.int32, torch.int64]
TYPES = [*REAL, torch.complex64]
LENGTHS = [0, 1, 1000, 300_001]
NEVER = timedelta(seconds=300)


def me() -> int:
    return dist.get_rank()


def size() -> int:
    return dist.get_world_size()


def data(length: int, dtype: torch.dtype, salt: int = 0) -> torch.Tensor:
    numbers = torch.arange(length) % 3 + (me() + salt) % 2
    return numbers.to(dtype)


def empty(length: int, dtype: torch.dtype) -> torch.Tensor:
    return torch.zeros(length, dtype=dtype)


def on_root(value: Any) -> Any:
    return value if me() == 1 else None


# ---- one function for each kind of call, which returns what is to be compared -------------------


def all_reduce(length: int, dtype: torch.dtype, op: Any = ReduceOp.SUM) -> Tensors:
    tensor = data(length, dtype)
    dist.all_reduce(tensor, op=op)
    return [tensor]


def reduce(length: int, dtype: torch.dtype) -> Tensors:
    tensor = data(length, dtype)
    dist.reduce(tensor, dst=1)
    return [tensor] if me() == 1 else []


def broadcast(length: int, dtype: torch.dtype) -> Tensors:
    tensor = data(length, dtype)
    dist.broadcast(tensor, src=1)
    return [tensor]


def all_gather(length: int, dtype: torch.dtype) -> Tensors:
    out = [empty(length, dtype) for _ in range(size())]
    dist.all_gather(out, data(length, dtype))
    return out


def gather(length: int, dtype: torch.dtype) -> Tensors:
    out = on_root([empty(length, dtype) for _ in range(size())])
    dist.gather(data(length, dtype), out, dst=1)
    return out or []


def scatter(length: int, dtype: torch.dtype) -> Tensors:
    out = empty(length, dtype)
    dist.scatter(out, on_root([data(length, dtype, salt) for salt in range(size())]), src=1)
    return [out]


def all_to_all_single(length: int, dtype: torch.dtype) -> Tensors:
    out = empty(length * size(), dtype)
    dist.all_to_all_single(out, data(length * size(), dtype))
    return [out]


def uneven_all_to_all_single() -> Tensors:
    sent, received = [1 + me()] * size(), [1 + rank for rank in range(size())]
    out = empty(sum(received), torch.float32)
    dist.all_to_all_single(out, data(sum(sent), torch.float32), received, sent)
    return [out]


def coalesced() -> Tensors:
    tensors = [data(100, torch.float32), data(7, torch.float32)]
    dist.all_reduce_coalesced(tensors)
    lists = [[empty(10, torch.float32), empty(3, torch.float32)] for _ in range(size())]
    dist.all_gather_coalesced(lists, [data(10, torch.float32), data(3, torch.float32)])
    return [*tensors, *(tensor for each in lists for tensor in each)]


def sparse() -> Tensors:
    tensor = torch.sparse_coo_tensor(torch.tensor([[me(), 5]]), torch.tensor([1.0, 2.0]), (10,))
    dist.all_reduce(tensor)
    return [tensor.to_dense()]


def objects() -> list[Any]:
    gathered: list[Any] = [None] * size()
    dist.all_gather_object(gathered, {"rank": me(), "text": "x" * 1000 * me()})
    told = ["from", me()]
    dist.broadcast_object_list(told, src=1)
    return [gathered, told]


def messages() -> Tensors:
    """Messages to and from all others at once, with tags; one is shorter than its receive."""
    others = [rank for rank in range(size()) if rank != me()]
    inboxes = {rank: empty(5000, torch.float32) for rank in others}
    pending = [dist.irecv(inboxes[rank], src=rank, tag=me()) for rank in others]
    pending += [dist.isend(data(5000, torch.float32), dst=rank, tag=rank) for rank in others]
    for work in pending:
        work.wait()
    long = empty(10, torch.float32)
    if me() == 0:
        dist.send(data(5, torch.float32), dst=1)
    elif me() == 1:
        dist.recv(long, src=0)
    return [*inboxes.values(), long]


def from_any() -> list[Any]:
    if me() != 0:
        dist.send(torch.full((10,), me()), dst=0)
        return []
    tensors = [torch.zeros(10, dtype=torch.int64) for _ in range(size() - 1)]
    sources = [dist.recv(tensor) for tensor in tensors]
    return [sorted((source, tensor[9].item()) for source, tensor in zip(sources, tensors))]


def in_flight() -> Tensors:
    tensors = [data(50_000 + i, torch.float32, salt=i) for i in range(16)]
    for work in [dist.all_reduce(tensor, async_op=True) for tensor in tensors]:
        work.wait()
    return tensors


def groups() -> Tensors:
    all_but_last = dist.new_group(list(range(size() - 1)), timeout=NEVER)
    pair = dist.new_group([0, size() - 1], timeout=NEVER)
    tensors = [data(1000, torch.float32), data(1000, torch.float32)]
    for group, tensor in zip([all_but_last, pair], tensors):
        if dist.get_rank(group) >= 0:
            dist.all_reduce(tensor, group=group)
    return tensors


def barriers() -> list[Any]:
    dist.barrier()
    dist.monitored_barrier(timeout=NEVER)
    return []


def late() -> list[Any]:
    """Only rank 0 enters a barrier. Programs look for these words in the text of its error."""
    dist.barrier()
    group = dist.new_group(timeout=timedelta(seconds=10))  # making the group has this deadline, too
    found = None
    if me() == 0:
        try:
            dist.barrier(group)
        except RuntimeError as error:
            found = re.search(" (Timed out|closed|timeout) ", str(error))
    dist.barrier()  # no rank leaves before the others have come here
    return [found and found[1]]


def cases() -> Iterator[Case]:
    calls: list[Callable[[int, torch.dtype], Tensors]]
    calls = [all_reduce, reduce, broadcast, all_gather, gather, scatter, all_to_all_single]
    for call in calls:
        for dtype in TYPES:
            for length in LENGTHS:
                if call == all_gather and length == 0:
                    continue  # Gloo divides by the length, which ends the process
                yield f"{call.__name__} {dtype} {length}", lambda: call(length, dtype)
    for name in ["PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR"]:
        op = getattr(ReduceOp, name)
        for dtype in REAL:
            yield f"all_reduce {name} {dtype}", lambda: all_reduce(1000, dtype, op)
    for others in [uneven_all_to_all_single, coalesced, sparse, objects, messages, from_any]:
        yield others.__name__, others
    for others in [in_flight, groups, barriers, late]:
        yield others.__name__, others


def outcome(call: Callable[[], Any]) -> str:
    try:
        results = call()
    except Exception as error:  # the reason for refusing an argument is a result, too
        return f"{type(error).__name__}: {str(error).splitlines()[0]}"
    digest = hashlib.sha256()
    for result in results:
        is_tensor = isinstance(result, torch.Tensor)
        digest.update(result.numpy().tobytes() if is_tensor else repr(result).encode())
    return digest.hexdigest()[:16]


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=NEVER)
    for name, call in cases():
        print(f"{os.environ['RANK']} {name}: {outcome(call)}", flush=True)
    dist.destroy_process_group()


main()
