# SPDX-License-Identifier: Apache-2.0
"""Every rank gets the right sum and the same bits, whatever the rails, plans and shares are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import job
import pytest
from testbed import Testbed

RAILS = {"eth0": "1000mbit", "eth1": "400mbit", "eth2": "200mbit", "eth3": "100mbit"}
ONE, TWO, FOUR = (job.rails_option(list(RAILS)[:count]) for count in (1, 2, 4))

MIB = 1 << 18  # elements
ELEMENTS = [0, 1, 3, 7, 1001, 16 << 10, 65535, MIB + 1, 2 * MIB + 5]
if job.LONG:
    ELEMENTS += [2, 8, 9, 63, 64, 4096, 4097, 16385, 10 * MIB - 1]

# name: rails and further options
WAYS: dict[str, dict[str, Any]] = {
    "one": {"rails": ONE},
    **{f"two-{name}": {"rails": TWO, "algorithm": name} for name in job.ALGORITHMS},
    "two-slices": {"rails": TWO, "plan": "slice", "shares": "1000,400"},
    "four": {"rails": FOUR},
    "four-slices-ring": {
        "rails": FOUR,
        "plan": "slice",
        "shares": "10,4,2,1",
        "algorithm": "ring",
    },
    "four-slices-recursive-doubling": {
        "rails": FOUR,
        "plan": "slice",
        "shares": "0.5,1e-3,7,0.1",
        "algorithm": "recursive-doubling",
    },
    "four-slices-halving-doubling": {
        "rails": FOUR,
        "plan": "slice",
        "shares": "1,2,1,1",
        "algorithm": "halving-doubling",
    },
}


@pytest.fixture(scope="module")
def bed() -> Iterator[Testbed]:
    with Testbed(hosts=8, rails=RAILS) as bed:
        yield bed


def sizes(elements: list[int]) -> str:
    return ",".join(map(str, elements))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("ranks", [2, 3, 4, 5, 8])
def test_right(bed: Testbed, ranks: int, way: str) -> None:
    elements = ELEMENTS if ranks < 8 or job.LONG else ELEMENTS[:-1]
    # each size out of place, and then in place
    job.run(bed, ranks, elements=sizes(elements), operations=2 * len(elements), **WAYS[way])


@pytest.mark.parametrize("ranks_per_host", [2, 4])
@pytest.mark.parametrize("way", ["one", "two-ring", "two-slices", "four"])
def test_several_ranks_a_host(bed: Testbed, ranks_per_host: int, way: str) -> None:
    elements = [0, 1, 1001, 65535, MIB + 1]
    job.run(bed, 8, ranks_per_host, elements=sizes(elements), operations=10, **WAYS[way])


def test_one_rank(bed: Testbed) -> None:
    job.run(bed, 1, elements=sizes(ELEMENTS), **WAYS["two-ring"])


@pytest.mark.parametrize("algorithm", ["auto", *job.ALGORITHMS])
@pytest.mark.parametrize("ranks", [2, 3, 5] + ([4, 8] if job.LONG else []))
def test_same_bits(bed: Testbed, ranks: int, algorithm: str) -> None:
    """The bits are the same on all ranks, with any rails and shares, in place and not."""
    elements = [1, 1001, 16 << 10, 65535, MIB + 1]
    both: dict[str, Any] = dict(elements=sizes(elements), algorithm=algorithm, float=1)
    ways: list[dict[str, Any]] = [
        {"rails": ONE, "place": "out"},
        {"rails": TWO, "place": "in"},
        {"rails": FOUR, "place": "out"},
        {"rails": TWO, "place": "out", "plan": "slice"},
        {"rails": TWO, "place": "in", "plan": "slice", "shares": "9,1"},
        {"rails": FOUR, "place": "out", "plan": "slice", "shares": "1,2,3,0.1"},
    ]
    results = [job.run(bed, ranks, **both, **way).hashes() for way in ways]
    assert len(results[0]) == len(elements)
    assert len(set(results[0])) == len(elements)  # the hashes must differ from each other
    for way, result in zip(ways, results):
        assert result == results[0], f"{way} differs from {ways[0]}"


TYPES = ["uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64"]
TYPES += ["float16", "bfloat16", "float32", "float64"]


@pytest.mark.parametrize("way", [*(f"two-{name}" for name in job.ALGORITHMS), "two-slices"])
@pytest.mark.parametrize("ranks", [2, 3] + ([5, 8] if job.LONG else []))
def test_types_and_operations(bed: Testbed, ranks: int, way: str) -> None:
    """Each type works with each operation, also a user's function, out of place and in place."""
    elements, operations = [1, 1001, 65537], "sum,product,min,max,average,custom"
    count = 2 * len(elements) * len(TYPES) * (operations.count(",") + 1)
    work = job.run(
        bed,
        ranks,
        elements=sizes(elements),
        type=",".join(TYPES),
        operation=operations,
        operations=count,
        **WAYS[way],
    )
    assert all(rank.done == count for rank in work.ranks)


if job.LONG:  # gigabytes, and a minute for each

    @pytest.mark.parametrize("algorithm", ["ring", "halving-doubling"])
    def test_counts_of_more_than_31_bits(algorithm: str) -> None:
        """The number of elements, which have a byte each, takes more than 31 bits."""
        with Testbed(hosts=2, rails={"eth0": "10gbit", "eth1": "10gbit"}) as bed:
            with job.Job(bed, 2) as work:
                work.start(
                    elements=(1 << 31) + 5,
                    type="uint8",
                    operations=1,
                    place="in",
                    rails="tcp:eth0,tcp:eth1",
                    algorithm=algorithm,
                    timeout=300_000,
                )
                work.succeed(timeout=600)


@pytest.mark.parametrize("algorithm", job.ALGORITHMS)
def test_function_that_throws(bed: Testbed, algorithm: str) -> None:
    """The function throws on rank 1, and the errors of all ranks have its text and name rank 1. The
    sum before it makes the links over which ranks learn of the error. The average after it fails on
    ranks that already had all their data."""
    with job.Job(bed, 4) as work:
        work.start(elements=5000, operation="sum,throwing,average", rails=TWO, algorithm=algorithm)
        work.wait()
        for rank in work.ranks:
            error = rank.wait_for("error")
            assert error["type"] == "IoError", error
            assert "this function throws" in error["what"], error
            assert "rank 1" in error["what"], error


def test_both_rails_carry(bed: Testbed) -> None:
    """A large message uses all rails, and is sliced in proportion to the shares."""
    elements = 4 * MIB
    striped = job.run(bed, 2, elements=elements, operations=6, rails=TWO)
    for rank in striped.ranks:
        assert rank.rail("eth1")["sent"] > 0.1 * rank.rail("eth0")["sent"]
    sliced = job.run(bed, 2, elements=elements, operations=2, rails=TWO, plan="slice", shares="3,1")
    for rank in sliced.ranks:
        part = rank.rail("eth1")["sent"] / (rank.rail("eth0")["sent"] + rank.rail("eth1")["sent"])
        assert part == pytest.approx(0.25, abs=0.001)


@pytest.mark.parametrize("algorithm", ["recursive-doubling", "halving-doubling"])
def test_short_messages_take_the_rails_by_turns(algorithm: str) -> None:
    """No message is split, and both rails carry some. How many each rail carries depends on its
    measured rate, which a busy machine distorts. The unit tests check that equal rails carry equal
    numbers."""
    how: dict[str, Any] = {"plan": "stripe", "algorithm": algorithm, "operations": 20}
    with Testbed(hosts=4, rails={"eth0": "1gbit", "eth1": "1gbit"}) as bed:
        work = job.run(bed, 4, elements=4096, rails=TWO, **how)
    whole = 16384 if algorithm == "recursive-doubling" else 4096
    messages = 16384 * 2 if algorithm == "recursive-doubling" else 16384 * 3 // 2
    for rank in work.ranks:
        sent = [rank.rail(name)["sent"] for name in ("eth0", "eth1")]
        assert sum(sent) == 20 * messages and min(sent) > 0, (rank.process, sent)
        assert all(each % whole == 0 for each in sent), (rank.process, sent)


@pytest.mark.parametrize("elements", [256, 1024])
@pytest.mark.parametrize("slow", ["eth0", "eth1"])
def test_shorter_messages_take_the_fastest_rail(slow: str, elements: int) -> None:
    """Short messages soon use the fast rail, whichever rail is named first, although they are too
    short to show its rate. For messages of 4 KiB the load balancer chooses the rail. The slow rail
    is so slow that it is also the slower one on a busy machine, whose processors delay both."""
    rails = {name: "10mbit" if name == slow else "1gbit" for name in ("eth0", "eth1")}
    with Testbed(hosts=4, rails=rails) as bed:
        work = job.run(bed, 4, elements=elements, operations=10_000, rails=TWO)
    for rank in work.ranks:
        sent = {name: rank.rail(name)["sent"] for name in rails}
        assert sent[slow] < 0.2 * sum(sent.values()), (rank.process, sent)
