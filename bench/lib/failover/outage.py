# SPDX-License-Identifier: Apache-2.0
"""The measurements of bench/failover (failover.json), and the figures that are computed from them."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path

from lib.shared.units import size_text

DATA = "failover.json"
PICTURES = ["failover.png", "failover.svg"]
WAYS = {
    "carrier": "its carrier is lost",
    "admin": "its interface is set down",
    "silent": "its frames vanish, and nothing says so",
    "reset": "its connections are reset, once; others can be made at once",
}
NEAR = 0.9  # the part of a rate that counts as reaching it
STEADY = 5  # operations in a row that must reach it together


@dataclasses.dataclass(frozen=True)
class Operation:
    end: float  # seconds of CLOCK_MONOTONIC
    seconds: float

    @property
    def begin(self) -> float:
        return self.end - self.seconds


def between(operations: Sequence[Operation], begin: float, end: float) -> list[Operation]:
    return [each for each in operations if begin <= each.begin and each.end <= end]


def pace(operations: Sequence[Operation]) -> float | None:
    """Returns the mean seconds of an operation."""
    if not operations:
        return None
    return (operations[-1].end - operations[0].begin) / len(operations)


@dataclasses.dataclass
class Run:
    """The run of one peer through a cut and a heal."""

    peer: str  # the peer's key
    way: str
    cut: float = 0  # the time when the cut began, in seconds of CLOCK_MONOTONIC
    heal: float = 0
    end: float = 0  # the time when the observation ended
    operations: list[Operation] = dataclasses.field(default_factory=list)
    errors: list[str] = dataclasses.field(default_factory=list)  # the errors of a peer that failed or ended

    def before(self) -> float | None:
        """Returns the mean time of an operation before the cut.

        Only the later half of these operations counts, because the rates are learned first.
        """
        known = between(self.operations, 0, self.cut)
        return pace(known[len(known) // 2 :])

    def during(self) -> float | None:
        """Returns the mean time of an operation in the later half of the outage."""
        return pace(between(self.operations, (self.cut + self.heal) / 2, self.heal))

    def after(self) -> float | None:
        return pace(between(self.operations, (self.heal + self.end) / 2, self.end))

    def _first_steady(self, since: float, seconds: float | None) -> int | None:
        """Returns the index of the first operation that begins STEADY operations at about the rate.

        The rate is that of operations that take `seconds`. The first of them ends after `since`, but may
        begin before it.
        """
        if seconds is None:
            return None
        for index, each in enumerate(self.operations):
            window = self.operations[index : index + STEADY]
            is_whole = len(window) == STEADY
            if each.end > since and is_whole and (pace(window) or 0) * NEAR <= seconds:
                return index
        return None

    def _reached(self, since: float, seconds: float | None) -> float | None:
        index = self._first_steady(since, seconds)
        return None if index is None else max(0.0, self.operations[index].begin - since)

    def to_survivor(self) -> float | None:
        """Returns the time from the cut until operations are about as fast as at the end of the outage."""
        return self._reached(self.cut, self.during())

    def to_all(self) -> float | None:
        """Returns the time from the heal until operations are about as fast as before the cut."""
        return self._reached(self.heal, self.before())

    def stall(self) -> float | None:
        """Returns how much longer the bytes took than at the rate of the remaining rails.

        The bytes are those from the cut until that rate is reached. At the cut, the operation under way
        has done the part that a usual operation does in the same time; the rest of it counts.
        """
        before, during = self.before(), self.during()
        steady = self._first_steady(self.cut, during)
        hit = next((i for i, each in enumerate(self.operations) if each.end > self.cut), None)
        if before is None or during is None or steady is None or hit is None:
            return None
        next_one = max(steady, hit + 1)
        done = min(1.0, max(0.0, self.cut - self.operations[hit].begin) / before)
        taken = self.operations[next_one - 1].end - self.cut
        return max(0.0, taken - (next_one - hit - done) * during)

    def told(self) -> str:
        """Returns what happened, in words."""
        if not self.cut:
            return "failed"
        if any((self.cut + self.heal) / 2 < each.end <= self.heal for each in self.operations):
            return "goes on, then aborts" if self.errors else "goes on"
        back = next((each.end for each in self.operations if each.end > self.heal), None)
        if back is not None:
            aborts = ", then aborts" if self.errors else ""
            return f"stands still until {back - self.heal:.1f} s after the heal{aborts}"
        if self.errors:
            return "aborts"
        return f"stands still, {self.end - self.heal:.0f} s after the heal too"


@dataclasses.dataclass
class Outage:
    machine: dict[str, str | int]
    hosts: int
    rails: dict[str, int]  # bits per second
    size: int  # bytes
    rail: str  # the rail that is cut, at one host
    labels: dict[str, str]  # the peers' labels by key
    runs: list[Run] = dataclasses.field(default_factory=list)

    def save(self, path: Path) -> None:
        path.write_text(json.dumps(dataclasses.asdict(self), indent=1) + "\n")

    @staticmethod
    def load(path: Path) -> Outage:
        data = json.loads(path.read_text())
        for run in data["runs"]:
            run["operations"] = [Operation(**each) for each in run["operations"]]
        data["runs"] = [Run(**run) for run in data["runs"]]
        return Outage(**data)

    def title(self) -> str:
        rails = " + ".join(f"{name} {rate / 1e9:g} Gbit/s" for name, rate in self.rails.items())
        what = f"allreduce of {size_text(self.size)}, float32 sum, {self.hosts} hosts, {rails}"
        return f"{what}; {self.rail} of one host is cut"

    def ways(self) -> list[str]:
        return [way for way in WAYS if any(run.way == way for run in self.runs)]

    def megabytes_per_second(self, seconds: float | None) -> float | None:
        return self.size / seconds / 1e6 if seconds else None


NOTES = f"""\
MB/s: the size divided by the mean time of an operation at rank 0, MB = 10^6 bytes. before: on all
rails; cut: in the later half of the outage; healed: after the outage.
to {NEAR:.0%}: the time from the cut until {STEADY} operations begin that together reach {NEAR:.0%} of the
rate in the later half of the outage. stall: how much longer the bytes until then took than they would
take at that rate. back: the time from the heal until operations reach {NEAR:.0%} of the rate before the
cut. If connections that were reset are made again, cut is the rate with these connections.
Times begin when the command that cuts, or heals, is given, which takes some milliseconds."""


def table(results: Outage) -> str:
    def cell(value: float | None, scale: float = 1) -> str:
        return "-" if value is None else f"{value * scale:.0f}"

    head = ["", "before", "cut", "healed", "stall", f"to {NEAR:.0%}", "back", ""]
    blocks = [f"{results.title()}; {results.machine['cores']} cores"]
    for way in results.ways():
        rows = [head, ["", "MB/s", "MB/s", "MB/s", "ms", "ms", "ms", ""]]
        for run in (run for run in results.runs if run.way == way):
            rates = [run.before(), run.during(), run.after()]
            times = [run.stall(), run.to_survivor(), run.to_all()]
            cells = [cell(results.megabytes_per_second(each)) for each in rates]
            cells += [cell(each, 1e3) for each in times]
            rows.append([results.labels[run.peer], *cells, run.told()])
        widths = [max(map(len, column)) for column in zip(*rows)]
        lines = [
            "  ".join(
                text.ljust(width) if place in (0, len(row) - 1) else text.rjust(width)
                for place, (text, width) in enumerate(zip(row, widths))
            ).rstrip()
            for row in rows
        ]
        blocks.append("\n".join([f"{results.rail}: {WAYS[way]}", *lines]))
    said = [
        f"{results.labels[run.peer]}, {run.way}: " + "\n    ".join(run.errors)
        for run in results.runs
        if run.errors
    ]
    return "\n\n".join([*blocks, *said])
