# SPDX-License-Identifier: Apache-2.0
"""Collectives over RDMA are right for all sizes, types, reductions and algorithms, and use RDMA."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import job
import pytest
from guest_bed import GuestBed

RDMA = "rdma:rxe{host}?rail=r"
TCP = "tcp:t{host}?rail=t"
PACKET = 4096  # bytes, soft-RoCE's longest

COLLECTIVES = [
    *("allreduce", "reduce", "broadcast", "barrier", "send_recv"),
    *("allgather", "allgatherv", "reduce_scatter", "reduce_scatterv", "alltoall", "alltoallv"),
    *("gather", "gatherv", "scatter", "scatterv"),
]
TYPES = "float32,uint8,int8,int16,uint16,int32,uint32,int64,uint64,float16,bfloat16,float64"
REDUCTIONS = "sum,product,min,max,average,custom"
MIB = 1 << 17  # elements of int64, which emulation computes faster than floats


@pytest.fixture
def bed() -> Iterator[GuestBed]:
    with GuestBed([RDMA]) as bed:
        yield bed


def run(bed: GuestBed, ranks: int, **options: Any) -> None:
    """Checks that the bytes that the rail reports as sent have left through the RDMA devices."""
    before = [bed.rdma_packets(host) for host in range(ranks)]
    work = job.run(bed, ranks, **options)
    for rank, packets in zip(work.ranks, before):
        assert bed.rdma_packets(rank.number) > packets, rank.told()
        assert not rank.rail("r")["failures"], rank.told()
    total = sum(rank.rail("r")["sent"] for rank in work.ranks)
    assert sum(map(bed.rdma_packets, range(ranks))) - sum(before) >= total // PACKET, work.told()


@pytest.mark.parametrize("collective", COLLECTIVES)
def test_each_collective(bed: GuestBed, collective: str) -> None:
    """Each size runs out of place and then in place, with different roots."""
    run(bed, 3, collective=collective, elements="0,1,1001,40001", operations=8, type="int32")


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("collective", ["allreduce", "alltoall", "send_recv"])
def test_other_numbers_of_ranks(bed: GuestBed, collective: str, ranks: int) -> None:
    run(bed, ranks, collective=collective, elements="1,1001,40001", operations=6, type="int32")


@pytest.mark.parametrize("algorithm", job.ALGORITHMS)
def test_algorithms(bed: GuestBed, algorithm: str) -> None:
    run(bed, 4, algorithm=algorithm, elements="1001,20001", operations=4, type="int32")


def test_types_and_reductions(bed: GuestBed) -> None:
    """Each type with each reduction, in and out of place."""
    operations = len(TYPES.split(",")) * len(REDUCTIONS.split(",")) * 2 * 2
    options: dict[str, Any] = {"type": TYPES, "operation": REDUCTIONS, "operations": operations}
    run(bed, 2, elements="1,1001", report=operations - 1, **options)


@pytest.mark.parametrize("plan", ["stripe", "slice"])
def test_large(bed: GuestBed, plan: str) -> None:
    """The receiver fetches the segments, several at a time."""
    sizes = [MIB // 64 + 1, MIB // 4, MIB, 4 * MIB + 1]
    elements = ",".join(map(str, sizes))
    run(bed, 2, plan=plan, elements=elements, operations=2 * len(sizes), type="int64")


def test_large_from_a_root(bed: GuestBed) -> None:
    run(bed, 3, collective="broadcast", elements=2 * MIB, operations=3, type="int64")


def test_threads(bed: GuestBed) -> None:
    """Several operations are in flight, and finish in any order."""
    run(bed, 3, elements=f"1,3000,{MIB // 4}", operations=12, threads=3, type="int64")


def test_memory_that_is_mapped_anew(bed: GuestBed) -> None:
    """A registration that outlived its operation would read the contents of the earlier pages."""
    run(bed, 2, elements=f"{MIB // 2}", operations=8, remap=1, type="int64")


def test_more_messages_than_receives(bed: GuestBed) -> None:
    """A link has 32 posted receives, and each of these operations has a message in flight."""
    run(bed, 2, elements=1, operations=20, threads=64, report=20, type="int64")


def test_thread_of_the_rail(bed: GuestBed, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rail's thread handles the device's completions; the callers sleep."""
    monkeypatch.setenv("NEZHA_RAIL_THREADS", "1")
    run(bed, 3, elements=f"1,3000,{MIB // 4}", operations=9, type="int64")
    run(bed, 2, collective="send_recv", elements=f"1,{MIB // 4}", operations=4, type="int64")


def test_beside_tcp() -> None:
    """Both rails carry parts of the same operations."""
    with GuestBed([RDMA, TCP]) as bed:
        bed.shape("400mbit", "t")
        work = job.run(bed, 3, elements=f"1001,{MIB},{MIB}", operations=12, type="int64")
        for rank in work.ranks:
            for rail in ("r", "t"):
                assert rank.rail(rail)["sent"] > 0 and not rank.rail(rail)["failures"], rank.told()
