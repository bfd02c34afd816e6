# SPDX-License-Identifier: Apache-2.0
"""Several threads on one context, late ranks, and ranks that compute between operations."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import job
import pytest
from testbed import Testbed

RAILS = {"eth0": "1gbit", "eth1": "400mbit"}
BOTH = job.rails_option(RAILS)
MIB = 1 << 18  # elements


@pytest.fixture(scope="module")
def bed() -> Iterator[Testbed]:
    with Testbed(hosts=4, rails=RAILS) as bed:
        yield bed


@pytest.mark.parametrize("plan", ["stripe", "slice"])
@pytest.mark.parametrize("algorithm", ["ring", "recursive-doubling", "halving-doubling"])
@pytest.mark.parametrize("ranks", [2, 4])
def test_large_messages_in_any_order(bed: Testbed, ranks: int, algorithm: str, plan: str) -> None:
    """Four operations are in flight. They are larger than all socket buffers together, and start in
    an order that differs from rank to rank. No operation waits for ever behind another."""
    job.run(
        bed,
        ranks,
        elements=(32 if job.LONG else 16) * MIB,
        operations=2,
        threads=4,
        rails=BOTH,
        algorithm=algorithm,
        plan=plan,
        timeout=50000,
    )


def test_large_beside_small(bed: Testbed) -> None:
    """Operations differ in size, so that large and small ones run side by side."""
    elements = f"{8 * MIB},1,{MIB},1000,{16 * MIB},0,16384"
    job.run(bed, 4, elements=elements, operations=14, threads=5, rails=BOTH, timeout=50000)


@pytest.mark.parametrize("plan", ["stripe", "slice"])
@pytest.mark.parametrize("algorithm", ["auto", "ring"])
def test_small_messages_and_pauses(bed: Testbed, algorithm: str, plan: str) -> None:
    """Ranks compute for a while between operations; each thread has pauses of its own."""
    job.run(
        bed,
        4,
        elements="1,0,1000,30,5000,40000",
        operations=400 if job.LONG else 100,
        threads=8,
        pause="0:20",
        report=50,
        rails=BOTH,
        algorithm=algorithm,
        plan=plan,
    )


def test_small_messages_without_pauses(bed: Testbed) -> None:
    job.run(
        bed,
        4,
        elements="1,100,3,0,2000",
        operations=10000 if job.LONG else 2000,
        threads=4,
        report=1000,
        rails=BOTH,
    )


def test_long_pauses(bed: Testbed) -> None:
    """As in training, ranks compute for 0 to 300 ms between large operations."""
    job.run(bed, 4, elements=f"{2 * MIB},100", operations=12, pause="0:300", rails=BOTH, report=4)


# If a rank does not call, the others wait and do not buffer. Compared with the peak of the same run
# without the late rank, a rank may need more memory only for the unposted data that its two
# neighbours may send without asking (2 MiB each), for the copies that it retains for them (256 KiB
# each), and for the allocator's overhead. A message is 32 MiB.
LATE_MAY_TAKE = 6144  # KiB
# In addition, each operation may have data in flight that cannot continue. In a ring of three these
# are the partial sums of one window; with the other algorithms, those of the current rounds.
WINDOW = {"ring": 1024}  # KiB
OTHER_WINDOW = 4096  # KiB


@pytest.mark.parametrize("threads", [1, 4])
@pytest.mark.parametrize("algorithm", ["ring", "recursive-doubling", "direct"])
def test_memory_with_a_late_rank(bed: Testbed, algorithm: str, threads: int) -> None:
    options: dict[str, Any] = {
        "elements": 8 * MIB // threads,
        "operations": 3,
        "threads": threads,
        "rails": BOTH,
        "algorithm": algorithm,
        "place": "out",
    }
    punctual = [job.run(bed, 3, **options)]
    late = job.run(bed, 3, late="1:1:2000", **options)
    limit = LATE_MAY_TAKE + WINDOW.get(algorithm, OTHER_WINDOW) * threads
    check_growth(punctual, late, limit)


def check_growth(punctual: list[job.Job], late: job.Job, limit: int) -> None:
    for rank in late.ranks:
        usual = [work.ranks[rank.number].wait_for("end")["peak_kib"] for work in punctual]
        grown = rank.wait_for("end")["peak_kib"] - max(usual)
        assert grown < limit, f"rank {rank.number} takes {grown:g} KiB more"


def test_memory_of_many_messages_for_a_late_rank(bed: Testbed) -> None:
    """Many tags are in flight, with 16 MiB of data in total for a rank that comes late. How many
    are active at a time is chance, so the peaks of two punctual runs differ by up to 5 MiB."""
    algorithm = "recursive-doubling"
    options: dict[str, Any] = {
        "elements": 64000,
        "operations": 20,
        "threads": 64,
        "rails": BOTH,
        "algorithm": algorithm,
        "report": 10,
    }
    punctual = [job.run(bed, 3, **options) for _ in range(2)]
    late = job.run(bed, 3, late="1:10:1000", **options)
    check_growth(punctual, late, LATE_MAY_TAKE + 5120)
