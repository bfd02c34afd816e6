# SPDX-License-Identifier: Apache-2.0
"""The collectives that the benchmarks measure: what a size means, and what a wire must carry."""

from __future__ import annotations

import dataclasses

ALLREDUCE = "allreduce"


@dataclasses.dataclass(frozen=True)
class Collective:
    """A collective of nezha-bench; the root is rank 0."""

    name: str
    busiest: str  # says who sends or receives how much, which determines the wire limit
    has_data: bool = True
    has_blocks: bool = False  # the vector is made of a block for each rank, and a size is a block's
    reduces: bool = False
    has_root: bool = False  # some ranks need not wait for others
    in_place: bool = False  # each rank has a single vector

    def vector(self, size: int, hosts: int) -> int:
        """Returns the bytes of the whole vector, which the programs print as `bytes`."""
        return size * hosts if self.has_blocks else size

    def carried(self, size: int, hosts: int) -> float:
        """Returns the bytes that the rank with the most bytes must at least send or receive."""
        if not self.has_data:
            return 0
        if self.has_blocks:
            return (hosts - 1) * size
        return part_sent(hosts) * size if self.name == ALLREDUCE else size

    def options(self, sizes: list[int]) -> list[str]:
        """Returns the options of the programs for these sizes."""
        elements = ",".join(str(size // 4) for size in sizes)
        return [
            *(["--elements", elements] if self.has_data else []),
            *(["--in-place"] if self.in_place else []),
            *(["--barrier"] if self.has_root else []),
        ]

    def notes(self) -> list[str]:
        """Returns what the reader of the figures has to know."""
        notes = []
        if self.has_blocks:
            notes.append("Sizes are those of a rank's block; the whole vector has one for each rank.")
        if self.in_place:
            notes.append("Each rank has one vector, as MPI wants it (--in-place).")
        if self.has_root:
            notes.append(
                "A barrier comes before each operation: no rank is ahead of the others by several"
                " operations. Its CPU time counts, and its time does not."
            )
        if self.name == "reduce_scatter":
            notes.append(
                "Gloo has no reduce_scatter that gives right results; an allreduce of the whole vector"
                " and a copy of the rank's block stand for it."
            )
        return notes

    @property
    def title(self) -> str:
        numbers = ", float32" if self.has_data else ""
        return self.name + numbers + (" sum" if self.reduces else "")

    @property
    def size_name(self) -> str:
        return "size of a rank's block" if self.has_blocks else "message size"


def _blocks(
    name: str, busiest: str, reduces: bool = False, has_root: bool = False
) -> Collective:
    return Collective(name, busiest, has_blocks=True, reduces=reduces, has_root=has_root)


COLLECTIVES = {
    each.name: each
    for each in [
        Collective(ALLREDUCE, "each rank sends 2 (n - 1) / n of the size", reduces=True),
        Collective("reduce", "the root receives the size", reduces=True, has_root=True),
        Collective(
            "broadcast", "each rank but the root receives the size", in_place=True, has_root=True
        ),
        Collective("barrier", "nothing", has_data=False),
        _blocks("allgather", "each rank receives n - 1 blocks"),
        _blocks("reduce_scatter", "each rank sends n - 1 blocks", reduces=True),
        _blocks("alltoall", "each rank sends n - 1 blocks"),
        _blocks("gather", "the root receives n - 1 blocks", has_root=True),
        _blocks("scatter", "the root sends n - 1 blocks", has_root=True),
    ]
}


def part_sent(hosts: int) -> float:
    """Returns the part of the message that each rank sends and receives in an allreduce.

    Over point-to-point links each of n ranks sends and receives at least 2 (n - 1) / n of the message.
    """
    return 2 * (hosts - 1) / hosts
