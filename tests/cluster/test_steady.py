# SPDX-License-Identifier: Apache-2.0
"""What operations take from the allocator once a job has run for a while."""

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
# A line of addr2line that names one of the library's files. Containers are not the place.
PLACE = re.compile(
    r"/((?:common|transport|collectives|control|context|flare_offload|interop)/[\w/]+\.\w+:\d+)"
)
CONTAINERS = ("common/hash_map.h", "common/recycled.")
# What learns how to divide messages among rails, which it does on rank 0 for every few operations.
CONTROL = ("control/", "context/control_plane.", "transport/message_stream.")
# In an operation: what each operation did would be 1 or more, but a container may grow once more
# while the machine is busy.
HARDLY_EVER = 0.5
# In a long operation, which is cut into tens of segments: what each did would be tens, but on a busy
# machine more of them may be under way at once than ever before.
SELDOM = 4
SIZES = {"4B": 1, "64KiB": 1 << 14, "1MiB": 1 << 18, "8MiB": 1 << 21}  # in elements
RAILS = {"one-rail": "tcp:lo", "two-rails": "tcp:lo,tcp:lo?rail=b"}


@pytest.fixture(scope="module")
def bed() -> Iterator[Testbed]:
    with Testbed(hosts=1, rails={"eth0": "1gbit"}) as bed:
        yield bed


def places_of(calls: Iterable[str]) -> dict[str, str]:
    """For each call, as FILE+OFFSET, the innermost place of the library's; "" if there is none."""
    offsets: dict[str, list[str]] = {}
    for call in sorted(set(calls)):
        file, _, offset = call.rpartition("+")
        offsets.setdefault(file, []).append(offset)
    places: dict[str, str] = {}
    for file, each in offsets.items():
        if not Path(file).is_file():  # the kernel's
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
    """In one operation of the rank that allocates most, by place."""
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
    """Nothing is to be learned of messages of 4 bytes."""
    found = allocations(bed, algorithm="ring", elements=elements, rails=RAILS["two-rails"])
    control = sum(count for place, count in found.items() if place.startswith(CONTROL))
    assert control < (6 if elements > 1 else HARDLY_EVER), found
    assert sum(found.values()) - control < most(elements), found
