# SPDX-License-Identifier: Apache-2.0
"""The measurements of bench/balancer (balancer.json), and the figures that are computed from them."""

from __future__ import annotations

import csv
import dataclasses
import json
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lib.shared.units import size_text

JSON = "balancer.json"
PICTURES = ["balancer.png", "balancer.svg"]
WINDOW = 9  # operations; their median counts, so that a single late operation has no effect
FAR = 45  # operations; their median must be as good, too
PHASES = ["start", "changed", "back"]
TRYING = "(trying)"  # nezha-bench's mark of a division that it only tries


@dataclasses.dataclass(frozen=True)
class Mode:
    """A way in which nezha-bench divides messages."""

    key: str
    label: str
    options: tuple[str, ...]  # options of nezha-bench


MODES = [
    Mode("model", "slices, policy model", ("--plan", "slice", "--policy", "model")),
    Mode("paper", "slices, policy paper", ("--plan", "slice", "--policy", "paper")),
    Mode("auto", "plan auto, policy model", ("--plan", "auto", "--policy", "model")),
    Mode("stripe", "stripes", ("--plan", "stripe")),
]
LEARNING = ["model", "paper", "auto"]  # the modes that leave a table


@dataclasses.dataclass(frozen=True)
class Change:
    rail: str
    rate: int  # bits per second
    host: int | None  # None means all hosts


@dataclasses.dataclass
class Operation:
    """A line of a trace."""

    end: float  # seconds of CLOCK_MONOTONIC
    bytes: int
    us: float
    learned: str  # the division of the next one: "hot eth0 70.0% eth1 30.0%", or nothing
    sent: list[float]  # bytes by rail since the operation before


def read_trace(path: Path, rails: Sequence[str]) -> list[Operation]:
    """Returns the operations of a trace.

    The bytes of the first operation include all that was sent while connections were made.
    """
    operations = []
    before = [0.0] * len(rails)
    with path.open(newline="") as file:
        for row in csv.DictReader(file):
            total = [float(row.get(f"sent_{rail}") or 0) for rail in rails]
            sent = [now - then for now, then in zip(total, before)]
            before = total
            operations.append(
                Operation(
                    float(row["seconds"]), int(row["bytes"]), float(row["us"]), row["learned"], sent
                )
            )
    return operations


def sliding(values: Sequence[float], window: int = WINDOW) -> list[float]:
    """Returns the medians of the windows that begin at each value; the windows at the end are shorter."""
    return [statistics.median(values[i : i + window]) for i in range(len(values))]


def settled_after(times: Sequence[float], target: float, tolerance: float) -> int | None:
    """Returns the first index from which on the times exceed the target by at most the tolerance.

    Both the median of the next WINDOW times and that of the next FAR times must be so low, because a
    search may begin with the best division. It returns None if there is no such operation.
    """
    limit = target * (1 + tolerance)
    near, far = sliding(times), sliding(times, FAR)
    settled = (i for i in range(len(times) - WINDOW) if near[i] <= limit and far[i] <= limit)
    return next(settled, None)


def lost(times: Sequence[float]) -> float:
    """Returns how many more operations would have fitted into the time at the final speed."""
    return sum(times) / statistics.mean(tail_of(times)) - len(times)


def tail_of(values: Sequence[Any]) -> Sequence[Any]:
    """Returns the last quarter of the values, but at least a window of them."""
    return values[-max(WINDOW, len(values) // 4) :]


def final(times: Sequence[float]) -> float:
    return statistics.median(tail_of(times))


def commonest(operations: Sequence[Operation]) -> str:
    """Returns what is learned most often at the end, because the last operation may be a probe."""
    learned = [operation.learned for operation in tail_of(operations)]
    return max(learned, key=learned.count)


def carried(operations: Sequence[Operation]) -> list[float]:
    """Returns each rail's part of what was sent at the end."""
    sent = [sum(column) for column in zip(*(each.sent for each in tail_of(operations)))]
    return [part / (sum(sent) or 1) for part in sent]


def probe_operations(operations: Sequence[Operation]) -> int:
    """Returns the number of operations with a division that is only tried."""
    return sum(TRYING in operation.learned for operation in operations)


def rails_used(carried: Sequence[float]) -> int:
    """Returns how many rails carry a substantial part.

    A rail with a small part has only probes, or messages that avoid a busy rail.
    """
    return sum(part > 0.05 for part in carried)


@dataclasses.dataclass
class Phase:
    """The operations of one run after its start or after a change of the rate."""

    name: str
    begin: int  # the index of the first one among the run's operations
    operations: list[Operation]
    rails: list[str]

    @property
    def times(self) -> list[float]:
        return [operation.us for operation in self.operations]

    def final_us(self) -> float:
        return final(self.times)

    def final_share(self, rail: str) -> float:
        return carried(self.operations)[self.rails.index(rail)]

    def final_state(self) -> str:
        return commonest(self.operations).partition(" ")[0]


@dataclasses.dataclass
class Balance:
    machine: dict[str, str | int]
    hosts: int
    rails: dict[str, int]  # bits per second
    size: int  # bytes
    change: Change
    gso: int  # bytes
    # For each mode: "trace", a file's name, and "changes", which has the times when each change began
    # and when it was made, in seconds of CLOCK_MONOTONIC.
    runs: dict[str, dict] = dataclasses.field(default_factory=dict)
    # For "start" and "changed": the "shares" (percentages by rail) and the "us" of each split tried.
    splits: dict[str, list[dict]] = dataclasses.field(default_factory=dict)
    # For "start" and "changed": the best split, and its time when it was measured again.
    best: dict[str, dict] = dataclasses.field(default_factory=dict)
    # For each size and mode: "bytes", "mode", "us", "learned", "carried" (by rail).
    starts: list[dict] = dataclasses.field(default_factory=list)
    # The times of "fastest rail" and "fixed split" by size, in microseconds.
    fixed: dict[str, dict[int, float]] = dataclasses.field(default_factory=dict)
    failures: list[dict] = dataclasses.field(default_factory=list)  # "what", "errors"
    operations: dict[str, list[Operation]] = dataclasses.field(default_factory=dict)  # not saved

    def save(self, path: Path) -> None:
        data = dataclasses.asdict(self)
        del data["operations"]
        path.write_text(json.dumps(data, indent=1) + "\n")

    @staticmethod
    def load(path: Path) -> Balance:
        data = json.loads(path.read_text())
        data["change"] = Change(**data["change"])
        data["fixed"] = {
            name: {int(size): us for size, us in times.items()}
            for name, times in data["fixed"].items()
        }
        results = Balance(**data)
        for key, run in results.runs.items():
            results.operations[key] = read_trace(path.parent / run["trace"], list(results.rails))
        return results

    def title(self) -> str:
        rails = " + ".join(f"{name} {rate / 1e9:g} Gbit/s" for name, rate in self.rails.items())
        packets = f"packets of {size_text(self.gso)}"
        size = size_text(self.size)
        return f"allreduce of {size}, float32 sum, {self.hosts} hosts, {rails}, {packets}"

    def change_text(self) -> str:
        where = "" if self.change.host is None else f" on host {self.change.host} alone"
        return f"{self.change.rail} at {self.change.rate / 1e9:g} Gbit/s{where}"

    def measured(self) -> list[Mode]:
        return [mode for mode in MODES if mode.key in self.runs]

    def phases(self, mode: Mode) -> list[Phase]:
        """Returns the phases; an operation that was under way while the rate changed is in none of them."""
        operations = self.operations[mode.key]
        ends = [operation.end for operation in operations]
        phases, begin = [], 0
        changes = self.runs[mode.key]["changes"]
        for name, change in zip(PHASES, [*changes, None]):
            end = len(ends) if change is None else sum(at <= change[0] for at in ends)
            phases.append(Phase(name, begin, operations[begin:end], list(self.rails)))
            # The next phase begins with the first operation that began after the change was made.
            begin = end if change is None else sum(at <= change[1] for at in ends) + 1
        return [phase for phase in phases if len(phase.operations) > WINDOW]

    def best_of(self, phase: str) -> dict | None:
        """Returns the best split in a phase: its "shares" and its "us"."""
        return self.best.get("changed" if phase == "changed" else "start")

    def wire_limit(self, rates: Sequence[int], size: int) -> float:
        """Returns the microseconds that the wire alone takes; see Results.wire_limit()."""
        return size * 2 * (self.hosts - 1) / self.hosts / (sum(rates) / 8) * 1e6

    def changed_rates(self) -> list[int]:
        return list({**self.rails, self.change.rail: self.change.rate}.values())
