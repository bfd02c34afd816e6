# SPDX-License-Identifier: Apache-2.0
"""What operations allocate once a job has run for a while."""

from __future__ import annotations

import collections
import re
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path

import job
import pytest
from testbed import Testbed

STEADY = str(job.BUILD / "tests" / "cluster_steady")
ALGORITHMS = {name: number for number, name in enumerate(["auto", *job.ALGORITHMS])}
# A line of addr2line that names a file of the library. Containers' files do not count.
PLACE = re.compile(
    r"/((?:common|transport|collectives|control|context|flare_offload|interop)/[\w/]+\.\w+:\d+)"
)
CONTAINERS = ("common/hash_map.h", "common/recycled.")
# The code that learns how to divide messages among rails; on rank 0 it runs every few operations.
CONTROL = ("control/", "context/control_plane.", "transport/message_stream.")
# Allocations per operation. An allocation in each operation would count as 1, but on a busy machine
# a container may occasionally still grow.
HARDLY_EVER = 0.5
# Allocations per long operation, which has tens of segments. An allocation for each segment would
# count as tens, but on a busy machine more segments may be in flight than ever before.
SELDOM = 4
SIZES = {"4B": 1, "64KiB": 1 << 14, "1MiB": 1 << 18, "8MiB": 1 << 21}  # in elements
RAILS = {"one-rail": "tcp:lo", "two-rails": "tcp:lo,tcp:lo?rail=b"}


@pytest.fixture(scope="module")
def bed() -> Iterator[Testbed]:
    with Testbed(hosts=1, rails={"eth0": "1gbit"}) as bed:
        yield bed


def places_of(calls: Iterable[str]) -> dict[str, str]:
    """The innermost place in the library, or "", for each call, which is given as FILE+OFFSET."""
    offsets: dict[str, list[str]] = {}
    for call in sorted(set(calls)):
        file, _, offset = call.rpartition("+")
        offsets.setdefault(file, []).append(offset)
    places: dict[str, str] = {}
    for file, each in offsets.items():
        if not Path(file).is_file():  # a file of the kernel's
            continue
        argv = ["addr2line", "-e", file, "-a", "-i", *each]
        done = subprocess.run(argv, check=True, capture_output=True, text=True)
        blocks = re.split(r"^0x[0-9a-f]+$", done.stdout, flags=re.MULTILINE)[1:]
        for offset, block in zip(each, blocks, strict=True):
            found = [place for place in PLACE.findall(block) if not place.startswith(CONTAINERS)]
            places[f"{file}+{offset}"] = found[0] if found else ""
    return places


def allocations(
    bed: Testbed,
    *,
    collective: str = "allreduce",
    algorithm: str = "auto",
    elements: int,
    rails: str = RAILS["one-rail"],
) -> dict[str, float]:
    """Allocations per operation by place, on the rank that allocates most."""
    arguments = [2, collective, ALGORITHMS[algorithm], elements, rails]
    argv = ["env", "NEZHA_RAIL_THREADS=0", STEADY, *map(str, arguments)]
    done = bed.exec(0, argv, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    lines = [line.split() for line in done.stdout.splitlines()]
    places = places_of(call for line in lines for call in line[3:])
    by_rank: dict[str, dict[str, float]] = collections.defaultdict(dict)
    for rank, count, operations, *calls in lines:
        place = next((places[call] for call in calls if places.get(call)), "unknown")
        one = by_rank[rank]
        one[place] = one.get(place, 0) + int(count) / int(operations)
    return max(by_rank.values(), key=lambda each: sum(each.values()), default={})


def most(elements: int) -> float:
    return SELDOM if elements > SIZES["64KiB"] else HARDLY_EVER


@pytest.mark.parametrize("elements", SIZES.values(), ids=SIZES)
@pytest.mark.parametrize("algorithm", ["auto", *job.ALGORITHMS])
def test_an_allreduce(bed: Testbed, algorithm: str, elements: int) -> None:
    found = allocations(bed, algorithm=algorithm, elements=elements)
    assert sum(found.values()) < most(elements), found


@pytest.mark.parametrize("collective", ["barrier", "broadcast", "reduce", "allgather"])
def test_another_collective(bed: Testbed, collective: str) -> None:
    found = allocations(bed, collective=collective, elements=1 << 10)
    assert sum(found.values()) < HARDLY_EVER, found


@pytest.mark.parametrize("elements", SIZES.values(), ids=SIZES)
def test_two_rails(bed: Testbed, elements: int) -> None:
    """nezha learns nothing from messages of 4 bytes, so its control code allocates nothing."""
    found = allocations(bed, algorithm="ring", elements=elements, rails=RAILS["two-rails"])
    control = sum(count for place, count in found.items() if place.startswith(CONTROL))
    assert control < (6 if elements > 1 else HARDLY_EVER), found
    assert sum(found.values()) - control < most(elements), found
