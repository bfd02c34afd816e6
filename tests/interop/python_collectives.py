# SPDX-License-Identifier: Apache-2.0
"""One rank that runs every collective of the package nezha, and compares each result with numpy's.

usage: python_collectives.py STORE
"""

from __future__ import annotations

import sys
from typing import Any

import nezha
import numpy

Vector = numpy.ndarray[Any, Any]

TYPES = ["u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8", "f2", "f4", "f8"]
SIZES = [0, 1, 7, 1000, 100_003]  # elements
# The numpy operation on all ranks' vectors.
OPERATIONS = {
    "sum": lambda all_vectors: numpy.add.reduce(all_vectors, dtype=all_vectors.dtype),
    "product": lambda all_vectors: numpy.multiply.reduce(all_vectors, dtype=all_vectors.dtype),
    "min": lambda all_vectors: all_vectors.min(axis=0),
    "max": lambda all_vectors: all_vectors.max(axis=0),
}


def inputs(context: nezha.Context, dtype: Any, elements: int, seed: int = 0) -> Vector:
    """The vectors of all ranks: small integers, so that every order of a reduction is exact."""
    shape = (context.size, elements)
    return numpy.random.default_rng(seed).integers(0, 4, shape).astype(dtype)


def counts_of(context: nezha.Context, elements: int) -> list[int]:
    """Unequal blocks, one of them empty, with this many elements in total."""
    counts = [0] * context.size
    counts[-1] = elements // 3
    counts[0] = elements - sum(counts)
    return counts


def blocks(vector: Vector, counts: list[int]) -> list[Vector]:
    return numpy.split(vector, numpy.cumsum(counts)[:-1])


def expect(what: str, got: Any, wanted: Any) -> None:
    if not numpy.array_equal(numpy.asarray(got), numpy.asarray(wanted)):
        raise AssertionError(f"{what}: got {got}, and not {wanted}")


def check_reductions(context: nezha.Context, dtype: str, elements: int) -> None:
    everyone = inputs(context, dtype, elements)
    mine, rank = everyone[context.rank], context.rank
    for name, reduced in OPERATIONS.items():
        what, wanted = f"{name} of {elements} {dtype}", reduced(everyone)
        out = numpy.full_like(mine, 9)
        context.allreduce(mine, out, operation=name)
        expect(f"allreduce, {what}", out, wanted)
        in_place = mine.copy()
        context.allreduce(in_place, operation=nezha.ReduceOperation(name), reproducible=True)
        expect(f"allreduce in place, {what}", in_place, wanted)
        root = elements % context.size
        context.reduce(mine, out, root=root, operation=name)
        expect(f"reduce, {what}", out, wanted)
        in_place = mine.copy()
        context.reduce(in_place, root=root, operation=name)
        expect(f"reduce in place, {what}", in_place, wanted if rank == root else mine)
        counts = counts_of(context, elements)
        block = numpy.empty(counts[rank], dtype)
        context.reduce_scatter(mine, block, counts=counts, operation=name)
        expect(f"reduce_scatter with counts, {what}", block, blocks(wanted, counts)[rank])
        even = elements // context.size * context.size
        block = numpy.empty(even // context.size, dtype)
        context.reduce_scatter(mine[:even], block, operation=name)
        expect(f"reduce_scatter, {what}", block, wanted[:even].reshape(context.size, -1)[rank])
        copy = mine.copy()
        block = blocks(copy, counts)[rank]
        context.reduce_scatter(copy, block, counts=counts, operation=name)
        expect(f"reduce_scatter in place, {what}", block, blocks(wanted, counts)[rank])


def check_average(context: nezha.Context) -> None:
    everyone = inputs(context, "f8", 1000)
    out = everyone[context.rank].copy()
    context.allreduce(out, operation="average")
    expect("average", out, everyone.sum(axis=0) / context.size)
    integers = numpy.array([-7 * (context.rank == 0), 7 * (context.rank == 0)])
    context.allreduce(integers, operation="average")
    expect("average of integers", integers, [int(-7 / context.size), int(7 / context.size)])


def check_bfloat16(context: nezha.Context) -> None:
    """bfloat16 numbers are the upper halves of float32, stored in 16-bit integers."""
    everyone = inputs(context, "f4", 1000) + 0.5
    halves = (everyone.view("u4") >> 16).astype("u2")
    out = numpy.empty_like(halves[0])
    context.allreduce(halves[context.rank], out, dtype="bfloat16")
    expect("bfloat16", (out.astype("u4") << 16).view("f4"), everyone.sum(axis=0))


def check_blocks(context: nezha.Context, dtype: Any, elements: int) -> None:
    size, rank = context.size, context.rank
    what = f"{elements} {dtype}"
    everyone = inputs(context, dtype, elements)
    mine = everyone[rank]
    out = numpy.empty_like(everyone)
    context.allgather(mine, out)
    expect(f"allgather, {what}", out, everyone)
    in_place = numpy.zeros_like(everyone)
    in_place[rank] = mine
    context.allgather(None, in_place)
    expect(f"allgather in place, {what}", in_place, everyone)

    root = elements % size
    gathered = numpy.zeros_like(everyone)
    context.gather(mine, gathered if rank == root else None, root=root)
    expect(f"gather, {what}", gathered, everyone if rank == root else numpy.zeros_like(everyone))
    out = numpy.empty_like(mine)
    context.scatter(everyone if rank == root else None, out, root=root)
    expect(f"scatter, {what}", out, mine)
    copy = mine.copy()
    context.broadcast(copy, root=root)
    expect(f"broadcast, {what}", copy, everyone[root])

    sent = [inputs(context, dtype, elements, seed=sender) for sender in range(size)]
    received = numpy.empty_like(everyone)
    context.alltoall(sent[rank], received)
    expect(f"alltoall, {what}", received, [each[rank] for each in sent])
    in_place = sent[rank].copy()
    context.alltoall(in_place)
    expect(f"alltoall in place, {what}", in_place, [each[rank] for each in sent])


def check_unequal_blocks(context: nezha.Context, dtype: Any, elements: int) -> None:
    size, rank = context.size, context.rank
    what = f"{elements} {dtype}"
    whole = inputs(context, dtype, elements)[0]
    counts = counts_of(context, elements)
    mine = blocks(whole, counts)[rank]
    out = numpy.empty_like(whole)
    context.allgather(mine, out, counts=counts)
    expect(f"allgather with counts, {what}", out, whole)

    root = elements % size
    is_root = rank == root
    out = numpy.empty_like(whole)
    context.gatherv(
        mine, out if is_root else None, root=root, counts=counts if is_root else None
    )
    expect(f"gatherv, {what}", out if is_root else whole, whole)
    block = numpy.empty_like(mine)
    context.scatterv(whole if is_root else None, block, root=root, counts=counts if is_root else None)
    expect(f"scatterv, {what}", block, mine)

    # Rank r sends rank k a block r times as long.
    sent = [numpy.repeat(whole, sender) for sender in range(size)]
    in_counts = [[count * sender for count in counts] for sender in range(size)]
    out_counts = [in_counts[sender][rank] for sender in range(size)]
    out = numpy.empty(sum(out_counts), whole.dtype)
    context.alltoallv(sent[rank], out, counts=in_counts[rank], out_counts=out_counts)
    wanted = [blocks(sent[sender], in_counts[sender])[rank] for sender in range(size)]
    expect(f"alltoallv, {what}", out, numpy.concatenate(wanted))


def main(store: str) -> None:
    with nezha.create(nezha.FileStore(store)) as context:
        for dtype in TYPES:
            for elements in SIZES if dtype in ("f4", "f2", "i1") else SIZES[:-1]:
                check_reductions(context, dtype, elements)
        check_average(context)
        check_bfloat16(context)
        pairs = numpy.dtype([("key", "i4"), ("O", "f8", 2)])  # a structure with an unusual field name
        for each in [numpy.dtype("f4"), numpy.dtype("?"), numpy.dtype("c16"), numpy.dtype(">i4"), pairs]:
            for elements in SIZES:
                check_blocks(context, each, elements)
                check_unequal_blocks(context, each, elements)
        context.barrier()
    print("all right")


if __name__ == "__main__":
    main(sys.argv[1])
