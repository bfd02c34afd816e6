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
# What moves bytes. It allocates by what arrives when, for what waits and for what is held.
DATA_PATH = ("transport/", "collectives/hosts/ring.", "collectives/hosts/course.")
# In an operation, at all other places: what each operation did would be 1 or more, but a container
# may grow once more while the machine is busy.
HARDLY_EVER = 0.5


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
    bed: Testbed, *, ranks: int, collective: str, algorithm: str, elements: int, rails: str
) -> dict[str, float]:
    """In one operation of the rank that allocates most, by place."""
    arguments = [ranks, collective, ALGORITHMS[algorithm], elements, rails]
    done = bed.exec(0, [STEADY, *map(str, arguments)], check=False)
    assert done.returncode == 0, done.stderr
    lines = [line.split() for line in done.stdout.splitlines()]
    places = places_of(call for line in lines for call in line[3:])
    by_rank: dict[str, dict[str, float]] = collections.defaultdict(dict)
    for rank, count, operations, *calls in lines:
        place = next((places[call] for call in calls if places.get(call)), "unknown")
        one = by_rank[rank]
        one[place] = one.get(place, 0) + int(count) / int(operations)
    return max(by_rank.values(), key=lambda each: sum(each.values()), default={})


def check(found: dict[str, float], in_all: float, elsewhere: float = HARDLY_EVER) -> None:
    """`in_all`: how many there may be in one operation. `elsewhere`: outside of the data path."""
    others = [count for place, count in found.items() if not place.startswith(DATA_PATH)]
    assert sum(others) < elsewhere, found
    assert sum(found.values()) < in_all, found


# Of the operations' sizes: 4 bytes, 64 KiB and 1 MiB.
@pytest.mark.parametrize(("elements", "in_all"), [(1, 8), (1 << 14, 16), (1 << 18, 32)])
@pytest.mark.parametrize("algorithm", ["auto", *job.ALGORITHMS])
def test_an_allreduce(bed: Testbed, algorithm: str, elements: int, in_all: float) -> None:
    found = allocations(
        bed,
        ranks=2,
        collective="allreduce",
        algorithm=algorithm,
        elements=elements,
        rails="tcp:lo",
    )
    check(found, in_all)


@pytest.mark.parametrize("collective", ["barrier", "broadcast", "reduce", "allgather"])
def test_another_collective(bed: Testbed, collective: str) -> None:
    found = allocations(
        bed, ranks=2, collective=collective, algorithm="auto", elements=1 << 10, rails="tcp:lo"
    )
    check(found, 6)


def test_two_rails(bed: Testbed) -> None:
    """Nothing is to be learned of messages of 4 bytes. Of others rank 0 works out the shares."""
    for elements, elsewhere in {1: HARDLY_EVER, 1 << 14: 12}.items():
        found = allocations(
            bed,
            ranks=2,
            collective="allreduce",
            algorithm="auto",
            elements=elements,
            rails="tcp:lo,tcp:lo?rail=b",
        )
        check(found, 30, elsewhere)
