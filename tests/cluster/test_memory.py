# SPDX-License-Identifier: Apache-2.0
"""Ranks that run out of memory during an operation."""

from __future__ import annotations

import re
from collections.abc import Iterator

import job
import pytest
from testbed import Testbed

EXHAUSTION = str(job.BUILD / "tests" / "cluster_exhaustion")
RANKS = 3
ALGORITHMS = {name: number for number, name in enumerate(["auto", *job.ALGORITHMS])}
# Smaller allocations are for bookkeeping, and a process keeps a reserve for them.
LARGE = 4096  # bytes


@pytest.fixture(scope="module")
def bed() -> Iterator[Testbed]:
    with Testbed(hosts=1, rails={"eth0": "1gbit"}) as bed:
        yield bed


def check(bed: Testbed, algorithm: str, elements: int, least: int, lasting: int) -> None:
    """Whichever allocation fails, each rank has the right result, or the error in time."""
    arguments = [RANKS, ALGORITHMS[algorithm], elements, least, lasting]
    print(*arguments)
    done = bed.exec(0, [EXHAUSTION, *map(str, arguments)], timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    trials = re.match(r"(\d+) trials", done.stdout)
    assert trials and int(trials[1]) > 1, done.stdout


@pytest.mark.parametrize("algorithm", ["ring", "recursive-doubling"])
def test_one_allocation_that_fails(bed: Testbed, algorithm: str) -> None:
    check(bed, algorithm, 1000, 0, 0)


@pytest.mark.parametrize("algorithm", job.ALGORITHMS if job.LONG else ["ring", "halving-doubling"])
def test_no_memory_for_anything_large(bed: Testbed, algorithm: str) -> None:
    check(bed, algorithm, 1 << 19, LARGE, 1)
