# SPDX-License-Identifier: Apache-2.0
"""One rank of the tests of nezha_torch: runs the scenarios that its command line names.

Each scenario prints "passed NAME" at its end. Each rank computes the right results by itself.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel
from torch.utils._python_dispatch import TorchDispatchMode

import nezha_torch


ReduceOp: Any = dist.ReduceOp  # PyTorch 1.13's types do not have all of it
SCENARIOS: dict[str, Callable[[], None]] = {}
INTEGERS = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]
FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
COMPLEX = [torch.complex64, torch.complex128]
TYPES = [*INTEGERS, *FLOATS, *COMPLEX, torch.bool]
SHAPES = [(0,), (1,), (7, 3), (1000,)]


def scenario(run: Callable[[], None]) -> Callable[[], None]:
    SCENARIOS[run.__name__] = run
    return run


def me() -> int:
    return dist.get_rank()


def size() -> int:
    return dist.get_world_size()


def data(rank: int, dtype: torch.dtype, shape: tuple[int, ...], salt: int = 0) -> Tensor:
    """The rank's data: small integers, whose sum is the same in every order."""
    generator = torch.Generator().manual_seed(1000 * salt + rank)
    numbers = torch.randint(1, 4, shape, generator=generator)
    return numbers > 2 if dtype == torch.bool else numbers.to(dtype)


def all_data(dtype: torch.dtype, shape: tuple[int, ...], salt: int = 0) -> list[Tensor]:
    return [data(rank, dtype, shape, salt) for rank in range(size())]


def reduced(op: Any, inputs: list[Tensor]) -> Tensor:
    stack = torch.stack([each.to(torch.int64) if each.dtype == torch.bool else each for each in inputs])
    if op == ReduceOp.SUM:
        result = stack.to(torch.float64 if stack.dtype in FLOATS else stack.dtype).sum(0)
    elif op == ReduceOp.PRODUCT:
        result = stack.to(torch.float64 if stack.dtype in FLOATS else stack.dtype).prod(0)
    elif op == ReduceOp.MIN:
        result = stack.amin(0)
    else:
        result = stack.amax(0)
    return result.to(inputs[0].dtype)


def equal(found: Tensor, expected: Tensor, what: object) -> None:
    assert found.dtype == expected.dtype and torch.equal(found, expected), f"{what}: {found} != {expected}"


def raises(call: Callable[[], Any], *texts: str) -> str:
    try:
        call()
    except RuntimeError as error:
        for text in texts:
            assert text in str(error), f"no '{text}' in: {error}"
        return str(error)
    raise AssertionError(f"no error with {texts}")


def reset(timeout: float = 60, generation: int = 0, **options: Any) -> None:
    """Joins the ranks again."""
    if dist.is_initialized():
        dist.destroy_process_group()
    os.environ["MASTER_PORT"] = str(29500 + generation)
    dist.init_process_group("nezha", timeout=timedelta(seconds=timeout), **options)
    # PyTorch's store ends with rank 0's group, so rank 0 may not leave while another rank is in
    # init_process_group.
    dist.barrier()


def tell_all(word: str) -> None:
    dist.distributed_c10d._get_default_store().set(f"{word}/{me()}", "")


def await_word_of(word: str, ranks: list[int]) -> None:
    """A rank that must be late waits here: its process group is silent, but works."""
    keys = [f"{word}/{rank}" for rank in ranks]
    dist.distributed_c10d._get_default_store().wait(keys, timedelta(seconds=120))
    # Rank 0's process has the store, so it may leave only when all ranks have received the word.
    tell_all(f"{word}/heard")
    if me() == 0:
        keys = [f"{word}/heard/{rank}" for rank in range(size())]
        dist.distributed_c10d._get_default_store().wait(keys, timedelta(seconds=120))


# ---- Collectives -------------------------------------------------------------------------------


@scenario
def reductions() -> None:
    ops = [ReduceOp.SUM, ReduceOp.PRODUCT, ReduceOp.MIN, ReduceOp.MAX]
    for dtype in TYPES:
        for op in ops[:1] if dtype in COMPLEX else ops:
            for shape in SHAPES:
                check_reductions(dtype, op, shape)


def check_reductions(dtype: torch.dtype, op: Any, shape: tuple[int, ...]) -> None:
    what = (dtype, op, shape)
    inputs = all_data(dtype, shape)
    expected = reduced(op, inputs)
    mine = inputs[me()].clone()
    dist.all_reduce(mine, op)
    equal(mine, expected, ("all_reduce", *what))
    mine = inputs[me()].clone()
    dist.reduce(mine, size() - 1, op)
    equal(mine, expected if me() == size() - 1 else inputs[me()], ("reduce", *what))
    blocks = [all_data(dtype, shape, salt) for salt in range(size())]  # by receiver
    mine = torch.empty_like(expected)
    dist.reduce_scatter(mine, [block[me()].clone() for block in blocks], op)
    equal(mine, reduced(op, blocks[me()]), ("reduce_scatter", *what))
    joint = torch.cat([block[me()].reshape(-1) for block in blocks])
    mine = torch.empty_like(expected)
    dist.reduce_scatter_tensor(mine, joint, op)
    equal(mine, reduced(op, blocks[me()]), ("reduce_scatter_tensor", *what))


@scenario
def bits_and_averages() -> None:
    for dtype in [*INTEGERS, torch.bool]:
        inputs = all_data(dtype, (100,))
        for op, combine in [
            (ReduceOp.BAND, torch.bitwise_and),
            (ReduceOp.BOR, torch.bitwise_or),
            (ReduceOp.BXOR, torch.bitwise_xor),
        ]:
            expected = inputs[0]
            for other in inputs[1:]:
                expected = combine(expected, other)
            mine = inputs[me()].clone()
            dist.all_reduce(mine, op)
            equal(mine, expected, (dtype, op))
    for dtype in FLOATS:
        mine = torch.full((10,), float(me() * 2), dtype=dtype)
        dist.all_reduce(mine, ReduceOp.AVG)
        equal(mine, torch.full((10,), float(size() - 1), dtype=dtype), (dtype, "average"))
    raises(lambda: dist.all_reduce(torch.ones(1), ReduceOp.BAND), "BAND", "Float")
    tensors = [torch.full((n,), float(me())) for n in (1, 5, 3)]
    dist.all_reduce_coalesced(tensors)
    for n, tensor in zip((1, 5, 3), tensors):
        equal(tensor, torch.full((n,), float(sum(range(size())))), "coalesced")


@scenario
def sparse() -> None:
    places, values = torch.tensor([[0, me() + 1]]), torch.tensor([1.0, 2.0])
    tensor = torch.sparse_coo_tensor(places, values, (size() + 2,))
    dist.all_reduce(tensor)
    equal(tensor.to_dense(), torch.tensor([float(size()), *[2.0] * size(), 0.0]), "sparse")


@scenario
def moves() -> None:
    for dtype in TYPES:
        for shape in SHAPES:
            check_moves(dtype, shape)


def check_moves(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    inputs = all_data(dtype, shape)
    mine = inputs[me()]
    root = 1
    copy = mine.clone()
    dist.broadcast(copy, root)
    equal(copy, inputs[root], ("broadcast", dtype, shape))
    lists = [torch.empty_like(mine) for _ in inputs]
    dist.all_gather(lists, mine)
    joint = torch.empty((size() * mine.numel(),), dtype=dtype)
    dist.all_gather_into_tensor(joint, mine.reshape(-1))
    equal(joint, torch.cat([each.reshape(-1) for each in inputs]), ("all_gather_into_tensor", dtype, shape))
    gathered = [torch.empty_like(mine) for _ in inputs] if me() == root else None
    dist.gather(mine, gathered, root)
    blocks = [data(receiver, dtype, shape, me()) for receiver in range(size())]
    scattered = torch.empty_like(mine)
    dist.scatter(scattered, blocks if me() == root else None, root)
    equal(scattered, data(me(), dtype, shape, root), ("scatter", dtype, shape))
    received = [torch.empty_like(mine) for _ in inputs]
    dist.all_to_all(received, blocks)
    for rank, each in enumerate(inputs):
        equal(lists[rank], each, ("all_gather", dtype, shape))
        equal(received[rank], data(me(), dtype, shape, rank), ("all_to_all", dtype, shape))
        if gathered is not None:
            equal(gathered[rank], each, ("gather", dtype, shape))


@scenario
def uneven() -> None:
    """all_to_all has a different length for each pair of ranks. Some lengths are 0."""
    sends = [torch.full((me() * r, 2), float(me())) for r in range(size())]
    receives = [torch.empty((me() * r, 2)) for r in range(size())]
    dist.all_to_all(receives, sends)
    expected = [torch.full((me() * r, 2), float(r)) for r in range(size())]
    for rank, each in enumerate(receives):
        equal(each, expected[rank], ("all_to_all", rank))
    splits = [me() * r for r in range(size())]
    output = torch.empty((sum(splits), 2))
    dist.all_to_all_single(output, torch.cat(sends), splits, splits)
    equal(output, torch.cat(expected), "all_to_all_single")
    even = torch.arange(size()) + 10 * me()
    mine = torch.empty_like(even)
    # One rank gives splits, which are even, and the other ranks omit them.
    given = [1] * size() if me() == 0 else None
    dist.all_to_all_single(mine, even, given, given)
    equal(mine, torch.arange(size()) * 10 + me(), "all_to_all_single, even")
    blocks = [torch.full((r + 1,), float(me())) for r in range(size())]
    part = torch.empty(me() + 1)
    dist.reduce_scatter(part, blocks)
    equal(part, torch.full((me() + 1,), float(sum(range(size())))), "reduce_scatter, uneven")


@scenario
def strided() -> None:
    """Tensors need not be contiguous. The memory between their elements does not change."""
    whole = torch.full((6, 4), -1.0)
    part = whole[::2, 1:3]
    part.fill_(me())
    dist.all_reduce(part)
    equal(part.contiguous(), torch.full((3, 2), float(sum(range(size())))), "all_reduce")
    assert (whole[1::2] == -1).all() and (whole[:, 0] == -1).all()
    turned = torch.zeros(3, 5).t()
    dist.broadcast(turned.copy_(torch.arange(15).view(5, 3)) if me() == 0 else turned, 0)
    equal(turned.contiguous(), torch.arange(15.0).view(5, 3), "broadcast")
    row = torch.zeros(4, 4)[:, me()]
    dist.all_gather([row if r == me() else torch.zeros(4) for r in range(size())], torch.full((4,), 2.0))
    equal(row.contiguous(), torch.full((4,), 2.0), "all_gather")


@scenario
def unrecorded() -> None:
    """A dispatch mode, such as a tracer, sees the program's operations, but no internal copies."""
    seen: list[str] = []

    class Recorder(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(str(func))
            return func(*args, **(kwargs or {}))

    mine, all_values = torch.arange(6.0).view(2, 3).t(), torch.zeros(size() * 2, 3).t()
    each = [torch.zeros(3, 2) for _ in range(size())]
    with Recorder():
        mine.add_(me())
        dist.all_reduce(mine)
        dist.all_gather(each, mine)
        dist.all_gather_into_tensor(all_values, mine)
    total = torch.arange(6.0).view(2, 3).t() * size() + sum(range(size()))
    for found in each:
        equal(found, total, "all_gather")
    equal(all_values.reshape(-1), torch.cat([total.reshape(-1)] * size()), "all_gather_into_tensor")
    assert [name for name in seen if name.startswith("aten")] == ["aten.add_.Tensor"], seen


@scenario
def objects() -> None:
    found: list[Any] = [None] * size()
    dist.all_gather_object(found, {"rank": me(), "text": "x" * me()})
    assert found == [{"rank": r, "text": "x" * r} for r in range(size())], found
    sent: list[Any] = [["a", 1], "b"] if me() == 0 else [None, None]
    dist.broadcast_object_list(sent, 0)
    assert sent == [["a", 1], "b"], sent
    gathered: list[Any] = [None] * size()
    dist.gather_object({"rank": me()}, gathered if me() == 0 else None, 0)
    assert me() != 0 or gathered == [{"rank": r} for r in range(size())], gathered
    got: list[Any] = [None]
    dist.scatter_object_list(got, [f"for {r}" for r in range(size())] if me() == 0 else None, 0)
    assert got == [f"for {me()}"], got


@scenario
def as_gloo() -> None:
    """Functions of PyTorch's gloo backend give the same numbers here."""
    gloo = dist.new_group(backend="gloo")
    for dtype in [torch.float32, torch.float64, torch.int64, torch.uint8]:
        for op in [ReduceOp.SUM, ReduceOp.PRODUCT, ReduceOp.MIN, ReduceOp.MAX]:
            mine = data(me(), dtype, (1000,))
            theirs = mine.clone()
            dist.all_reduce(mine, op)
            dist.all_reduce(theirs, op, group=gloo)
            equal(mine, theirs, (dtype, op))
    dist.destroy_process_group(gloo)


# ---- Messages and groups -----------------------------------------------------------------------


@scenario
def messages() -> None:
    left, right = (me() - 1) % size(), (me() + 1) % size()
    for dtype in TYPES:
        mine = data(me(), dtype, (50,))
        theirs = torch.empty_like(mine)
        ops = [dist.P2POp(dist.isend, mine, right, tag=3), dist.P2POp(dist.irecv, theirs, left, tag=3)]
        for work in dist.batch_isend_irecv(ops):
            work.wait()
        equal(theirs, data(left, dtype, (50,)), dtype)
    # A message is shorter than its receive, and tags are out of order.
    room = torch.full((10,), -1.0)
    other = torch.zeros(1)
    sends = [dist.isend(torch.ones(4), right, tag=1), dist.isend(torch.full((1,), 5.0), right, tag=2)]
    dist.recv(other, left, tag=2)
    dist.recv(room, left, tag=1)
    assert other.item() == 5 and room.tolist() == [1.0] * 4 + [-1.0] * 6, (other, room)
    for send in sends:
        send.wait()
    if me() == 0:
        sources: dict[Any, float] = {}
        for _ in range(size() - 1):
            source = dist.recv(other, tag=9)
            sources[source] = other.item()
        assert sources == {r: float(r) for r in range(1, size())}, sources
    else:
        dist.send(torch.tensor([float(me())]), 0, tag=9)


@scenario
def groups() -> None:
    members = [[0, 1], [1, 2, 3], [3, 0]]
    made = [dist.new_group(ranks, timeout=timedelta(seconds=50)) for ranks in members]
    for ranks, group in zip(members, made):
        if me() not in ranks:
            continue
        mine = torch.tensor([1.0, float(me())])
        dist.all_reduce(mine, group=group)
        assert mine.tolist() == [len(ranks), sum(ranks)], mine
    dist.barrier()


@scenario
def refusals() -> None:
    """Wrong arguments start nothing, so the group still works."""
    one = torch.ones(1)
    raises(lambda: dist.all_gather([one] * (size() - 1), one), "list")
    raises(lambda: dist.all_gather([torch.ones(2)] * size(), one), "size")
    raises(lambda: dist.all_to_all_single(torch.ones(2), one), "divide equally")
    raises(lambda: dist.broadcast(one, size()), "invalid root rank")
    mixed = [one, torch.ones(1, dtype=torch.float64)]
    sparse = torch.sparse_coo_tensor([[0]], [1.0], (1,))
    # torch.distributed's function itself refuses mixed types, and PyTorch 2's group refuses sparse
    # tensors.
    group: Any = dist.group.WORLD
    backend = group._get_backend(torch.device("cpu")) if hasattr(group, "_get_backend") else group
    options = dist.distributed_c10d.AllreduceCoalescedOptions()
    for tensors, text in [
        (mixed, "tensors must all have the same type"),
        ([one, sparse], "invalid tensor layout at index 1"),
        ([sparse, sparse], "unsupported layout"),
    ]:
        raises(lambda: backend.allreduce_coalesced(tensors, options), text)
    raises(lambda: backend.allreduce([one, sparse]), "invalid tensor layout at index 1")
    raises(lambda: backend.allreduce([sparse, one]), "invalid tensor layout at index 1")
    raises(lambda: dist.send(one, 0, tag=-1) if me() else dist.send(one, 1, tag=-1), "nonnegative")
    dist.barrier()


# ---- Asynchronous operations -------------------------------------------------------------------


@scenario
def in_flight() -> None:
    tensors = [torch.full((10_000,), float(me() + i)) for i in range(50)]
    works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
    dist.barrier()
    assert all(work.is_completed() for work in works)  # a barrier waits for earlier operations
    for i, (work, tensor) in enumerate(zip(works, tensors)):
        assert work.wait()
        equal(tensor, torch.full((10_000,), float(sum(range(size())) + i * size())), i)
        equal(work.result()[0], tensor, "result")


@scenario
def futures() -> None:
    """Futures complete although nobody waits, and although a receive does not complete."""
    never = dist.irecv(torch.zeros(1), (me() + 1) % size(), tag=77)
    over = threading.Event()
    heard: list[float] = []

    def chained(future: torch.futures.Future) -> Tensor:
        inner = dist.all_reduce(torch.ones(1), async_op=True).get_future()
        value: Tensor = future.value()[0] + inner.wait()[0]
        heard.append(value.item())
        over.set()
        return value

    last = dist.all_reduce(torch.ones(1), async_op=True).get_future().then(chained)
    assert over.wait(60), "the callback has not been called"
    assert heard == [2.0 * size()] and last.wait().item() == 2 * size(), heard
    assert not never.is_completed()
    raises(lambda: never.wait(timedelta(milliseconds=50)), "not over after 50 ms")
    dist.barrier()
    dist.send(torch.ones(1), (me() - 1) % size(), tag=77)
    never.wait()


@scenario
def blocked_callbacks() -> None:
    """Many callbacks wait at the same time, each for an operation that another thread must end."""
    count = 20
    entered = threading.Semaphore(0)
    left, right = (me() - 1) % size(), (me() + 1) % size()

    def receive(tag: int) -> tuple[Tensor, torch.futures.Future]:
        room = torch.zeros(1)
        return room, dist.irecv(room, left, tag=tag).get_future()

    def chain(i: int) -> torch.futures.Future:
        inner, message = receive(200 + i)

        def callback(_: torch.futures.Future) -> Tensor:
            entered.release()
            message.wait()
            return inner

        return receive(100 + i)[1].then(callback)

    lasts = [chain(i) for i in range(count)]
    dist.barrier()
    for i in range(count):
        dist.send(torch.zeros(1), right, tag=100 + i)
    assert all(entered.acquire(timeout=60) for _ in range(count)), "a callback has not been called"
    dist.barrier()
    for i in range(count):
        dist.send(torch.tensor([float(i)]), right, tag=200 + i)
    assert [last.wait().item() for last in lasts] == list(range(count))


@scenario
def dropped() -> None:
    """Operations go on after the program has dropped their handles and tensors."""
    for _ in range(20):
        dist.isend(torch.full((100_000,), float(me())), (me() + 1) % size(), tag=5)
    kept = torch.full((100_000,), 1.0)
    dist.all_reduce(kept, async_op=True)
    room = torch.empty(100_000)
    for _ in range(20):
        dist.recv(room, (me() - 1) % size(), tag=5)
        assert (room == (me() - 1) % size()).all()
    dist.barrier()
    assert (kept == size()).all()


@scenario
def training() -> None:
    """DDP gives the same weights as over gloo."""
    gloo = dist.new_group(backend="gloo")

    def train(group: Any) -> list[Tensor]:
        torch.manual_seed(0)
        layers = [torch.nn.Linear(20, 300), torch.nn.ReLU(), torch.nn.Linear(300, 4)]
        net = DistributedDataParallel(torch.nn.Sequential(*layers), process_group=group, bucket_cap_mb=0.01)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        for step in range(10):
            samples = torch.randn(8, 20, generator=torch.Generator().manual_seed(100 * step + me()))
            optimizer.zero_grad()
            (net(samples) - 1).square().mean().backward()
            optimizer.step()
        return [each.detach() for each in net.parameters()]

    for mine, theirs in zip(train(None), train(gloo)):
        assert mine.isfinite().all()
        torch.testing.assert_close(mine, theirs)
    dist.destroy_process_group(gloo)


# ---- Failures ----------------------------------------------------------------------------------


@scenario
def timeouts() -> None:
    """Ranks that wait for rank 1 get errors at the group's deadline, and a new group works."""
    reset(timeout=600, generation=1)
    group = dist.new_group(timeout=timedelta(seconds=15))  # joining the group has this deadline, too
    if me() != 1:
        raises(lambda: dist.all_reduce(torch.ones(10), group=group), "rank 1")
        tell_all("heard")
    await_word_of("heard", [0, 2, 3])
    reset(generation=2)


@scenario
def monitored() -> None:
    """Ranks in a barrier learn which ranks are not. In the last, only rank 3 waits for rank 0."""
    barrier = nezha_torch.monitored_barrier
    barrier(timeout=timedelta(seconds=30))
    if me() in (0, 3):
        names = "Ranks 1, 2 failed to pass monitoredBarrier in 8000 ms"
        raises(lambda: barrier(timeout=timedelta(seconds=8), wait_all_ranks=True), names)
        tell_all("named")
    await_word_of("named", [0, 3])
    reset(generation=3)
    if me() == 3:
        text = "rank 3 has come to monitoredBarrier, but rank 0 has not told it in 2000 ms"
        raises(lambda: barrier(timeout=timedelta(seconds=1)), text)
        tell_all("missed")
    await_word_of("missed", [3])
    reset(generation=4)


@scenario
def abandoned() -> None:
    """A group is destroyed during one of its sums of sparse tensors, which then fails."""
    reset(timeout=600, generation=5)
    group = dist.new_group()
    dist.barrier()  # With PyTorch 2, a rank may return from new_group while another is still in it.
    if me() == 0:
        tensor = torch.sparse_coo_tensor(torch.tensor([[0]]), torch.ones(1), (2,))
        work = dist.all_reduce(tensor, group=group, async_op=True)
        dist.destroy_process_group(group)
        del group
        raises(work.wait, "rank 0")
        tell_all("failed")
    await_word_of("failed", [0])
    reset(generation=6)


@scenario
def death() -> None:
    """A rank dies in the middle of operations. The others learn of it and go on without it.

    The deadline of the operations is later than that of the test.
    """
    reset(timeout=600, generation=7)
    doomed = size() - 1
    if me() != doomed:
        messages = [dist.irecv(torch.zeros(1), doomed, tag=50) for _ in range(2000)]
    mine = torch.ones(30_000_000)
    dist.barrier()
    if me() == doomed:
        threading.Timer(0.5, os.kill, [os.getpid(), signal.SIGKILL]).start()
    raises(lambda: [dist.all_reduce(mine) for _ in range(100)], f"rank {doomed}")
    for message in messages:
        raises(message.wait, f"rank {doomed}")
    threads = len(os.listdir("/proc/self/task"))
    assert threads < 100, f"{threads} threads are left of {len(messages)} receives"
    raises(lambda: dist.barrier(), f"rank {doomed}")
    reset(generation=8, rank=me(), world_size=size() - 1)
    dist.all_reduce(mine.fill_(1))
    assert (mine == size()).all()


@scenario
def under_way() -> None:
    """Operations that run while the test cuts a rail."""
    stop = Path(os.environ["STOP_FILE"])
    mine = torch.empty(1_000_000)
    count = 0
    while True:
        over = torch.tensor([float(stop.exists())])
        dist.all_reduce(over, ReduceOp.MAX)
        if over.item():
            break
        dist.all_reduce(mine.fill_(me()))
        assert (mine == sum(range(size()))).all()
        count += 1
        print(f"done {count}", flush=True)


@scenario
def stopped() -> None:
    """Exit functions that run after nezha_torch's own get errors or results, and do not hang."""
    nezha_torch._C.stop()
    mine = torch.ones(1)
    dist.all_reduce(mine, async_op=True).wait()
    dist.all_reduce(mine, async_op=True).get_future().wait()
    assert mine.item() == size() ** 2
    tensor = torch.sparse_coo_tensor(torch.tensor([[0]]), torch.ones(1), (2,))
    raises(lambda: dist.all_reduce(tensor), "the process is ending")
    raises(lambda: dist.all_reduce(tensor, async_op=True).get_future().wait(), "the process is ending")


@scenario
def left() -> None:
    """The program destroys nothing, and does not wait for its last operations."""
    dist.all_reduce(torch.ones(1), async_op=True).get_future().then(lambda future: future.value())


def main() -> None:
    torch.set_num_threads(1)
    reset()
    for name in sys.argv[1:]:
        SCENARIOS[name]()
        print(f"passed {name}", flush=True)


if __name__ == "__main__":
    main()
