# SPDX-License-Identifier: Apache-2.0
"""The measurements of bench/ddp (ddp.json), and their tables."""

from __future__ import annotations

import dataclasses
import json
import statistics
from collections.abc import Sequence
from pathlib import Path

from lib.shared import stolen
from lib.shared.results import failure_text
from lib.shared.summary import columns

DATA = "ddp.json"
EQUAL, UNEQUAL, CUT = "equal", "unequal", "cut"
METHODS = {
    "a": "gloo, one interface",
    "b": "gloo, both interfaces by turns",
    "c": "gloo, libnezha_gloo.so preloaded",
    "d": "backend nezha",
}
# Sums in another order are rounded differently, and each step continues from the one before.
ROUNDING = 1e-4  # the part of a loss by which methods may differ


def quartiles(values: Sequence[float]) -> tuple[float, float, float]:
    if len(values) < 2:
        return values[0], values[0], values[0]
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return low, middle, high


@dataclasses.dataclass(frozen=True)
class Cut:
    """The cost of a cut rail for the ranks of a run, in seconds; the rail was cut during the step `step`."""

    step: int
    before: float  # the median step on two rails
    after: float  # the median step on one rail
    took: float  # this step and the next one
    expected: float  # their time if they had gone on at once at the rate of one rail

    @staticmethod
    def of(steps: Sequence[dict], moment: float, warm_up: int) -> Cut | None:
        """Returns the cost of a cut at the time `moment`, or None if the run was too short to tell."""
        index = next((i for i, s in enumerate(steps) if s["begin"] + s["seconds"] > moment), None)
        if index is None or index < warm_up + 2 or len(steps) < index + 5:
            return None
        before = statistics.median(s["seconds"] for s in steps[warm_up:index])
        after = statistics.median(s["seconds"] for s in steps[index + 2 :])
        done = min(1.0, max(0.0, moment - steps[index]["begin"]) / before)
        took = sum(s["seconds"] for s in steps[index : index + 2])
        return Cut(index, before, after, took, done * before + (1 - done) * after + after)


@dataclasses.dataclass
class Ddp:
    machine: dict[str, str | int]
    hosts: int
    rates: dict[str, str]  # the rates of the two rails, by EQUAL and UNEQUAL
    methods: list[str]
    repeat: int
    warm_up: int  # steps at the beginning that do not count
    # For each run: "case", "method", "repeat", "steps" (rank 0's), "digests" (all ranks'), and
    # "moment" if a rail was cut.
    runs: list[dict] = dataclasses.field(default_factory=list)
    # For each measurement: "rails", "method", "pieces", "bytes", "seconds".
    singles: list[dict] = dataclasses.field(default_factory=list)
    endings: dict[str, str] = dataclasses.field(default_factory=dict)  # how a cut ended a job, by method
    failures: list[dict] = dataclasses.field(default_factory=list)

    def save(self, path: Path) -> None:
        path.write_text(json.dumps(dataclasses.asdict(self), indent=1) + "\n")

    def of(self, case: str, method: str) -> list[dict]:
        return [run for run in self.runs if (run["case"], run["method"]) == (case, method)]

    def times(self, case: str, method: str) -> list[float]:
        """Returns the seconds of the steps that count, of all runs."""
        return [s["seconds"] for run in self.of(case, method) for s in run["steps"][self.warm_up :]]

    def step(self, case: str, method: str) -> float | None:
        """Returns the median over the runs of their median steps."""
        medians = [
            statistics.median(s["seconds"] for s in run["steps"][self.warm_up :])
            for run in self.of(case, method)
        ]
        return statistics.median(medians) if medians else None

    def largest_difference(self) -> float:
        """Returns the largest difference between all runs' losses of one step, as a part of the loss."""
        largest = 0.0
        for same_step in zip(*([s["loss"] for s in run["steps"]] for run in self.runs)):
            least, most = min(same_step), max(same_step)
            largest = max(largest, (most - least) / max(abs(most), 1e-9))
        return largest

    def problems(self) -> list[str]:
        """Returns a text for each result that cannot be right."""
        found = []
        difference = self.largest_difference()
        if difference > ROUNDING:
            found.append(f"losses differ by {difference:.2g}, which is beyond rounding")
        for run in self.runs:
            if len(set(run["digests"])) != 1:
                found.append(f"{run['case']}, {run['method']}: ranks end with different parameters")
        return found


# ---- the tables -------------------------------------------------------------------------------

NOTES = """\
step: the median over all runs of a run's median step at rank 0; p25 to p75: of all steps that count. of a,
of b: how many times as fast as these. The first {warm_up} steps do not count. Cut: the second rail of one
host loses its carrier in mid-epoch. took: the time of the step during which the carrier was lost and of
the next step; expected: the time of these steps if the first one went on at once at the rate of one rail;
beyond: what the cut cost in addition. {net}"""


def table(results: Ddp) -> str:
    blocks = [
        f"DistributedDataParallel, {results.hosts} hosts, 2 rails; {results.machine['cores']} cores",
        *(_steps(results, case) for case in (EQUAL, UNEQUAL)),
        _cuts(results),
        _singles(results),
        _losses(results),
        "\n".join([_notes(results), *stolen.note_of(results.runs)]),
    ]
    return "\n\n".join([*(b for b in blocks if b), *map(failure_text, results.failures)])


def _notes(results: Ddp) -> str:
    counts = {run["parameters"] for run in results.runs if "parameters" in run}
    net = f"The net has {min(counts):,} parameters." if counts else ""
    return NOTES.format(warm_up=results.warm_up, net=net).rstrip()


def _methods(results: Ddp) -> list[str]:
    return ["", *(f"({key}) {METHODS[key]}" for key in results.methods)]


def _steps(results: Ddp, case: str) -> str:
    if not any(results.of(case, method) for method in results.methods):
        return ""
    cells = [_methods(results), ["step (ms)"], ["p25 to p75"], ["of a"], ["of b"]]
    steps = {method: results.step(case, method) for method in results.methods}
    for method, step in steps.items():
        times = results.times(case, method)
        low, _, high = quartiles(times) if times else (0, 0, 0)
        row = [f"{1e3 * step:.0f}", f"{1e3 * low:.0f} to {1e3 * high:.0f}"] if step else ["failed", "-"]
        for other in ("a", "b"):
            base = steps.get(other)
            row.append(f"{base / step:.2f}" if base and step else "-")
        for column, cell in zip(cells[1:], row):
            column.append(cell)
    return _lines(f"{case} rails, {results.rates[case]}", cells)


def _cuts(results: Ddp) -> str:
    cells = [["", *(f"({m}) {METHODS[m]}" for m in results.methods if m != "a")]]
    heads = ["two rails (ms)", "one rail (ms)", "took (ms)", "expected", "beyond"]
    cells += [[head] for head in heads]
    for method in (m for m in results.methods if m != "a"):
        cuts = [
            cut
            for run in results.of(CUT, method)
            if (cut := Cut.of(run["steps"], run["moment"], results.warm_up))
        ]
        values = (
            [statistics.median(v) for v in zip(*(
                (c.before, c.after, c.took, c.expected, c.took - c.expected) for c in cuts
            ))]
            if cuts
            else []
        )
        row = [f"{1e3 * value:.0f}" for value in values] or ["-"] * len(heads)
        for column, cell in zip(cells[1:], row):
            column.append(cell)
    if len(cells[0]) == 1 or not (results.endings or any(results.of(CUT, m) for m in results.methods)):
        return ""
    endings = [f"({method}) {ending}" for method, ending in results.endings.items()]
    return "\n".join([_lines(f"a cut in mid-epoch, {results.rates[EQUAL]}", cells), *endings])


def _singles(results: Ddp) -> str:
    if not results.singles:
        return ""
    kinds = sorted({(one["rails"], one["pieces"]) for one in results.singles}, key=lambda k: (k[0], -k[1]))
    cells = [_methods(results)]
    for rails, pieces in kinds:
        size = next(s["bytes"] for s in results.singles if s["pieces"] == pieces) // pieces >> 20
        column = [f"{pieces} of {size} MiB, {rails}"]
        for method in results.methods:
            rates = [
                8e-6 * one["bytes"] / one["seconds"]
                for one in results.singles
                if (one["rails"], one["pieces"], one["method"]) == (rails, pieces, method)
            ]
            column.append(f"{statistics.median(rates):.0f}" if rates else "-")
        cells.append(column)
    return _lines("allreduces on 2 hosts, Mbit/s a rank (medians)", cells)


def _losses(results: Ddp) -> str:
    runs = results.runs
    if not runs:
        return ""
    losses = [step["loss"] for step in runs[0]["steps"]]
    return (
        f"losses: from {losses[0]:.4f} to {losses[-1]:.4f}; those of a step differ among all {len(runs)} runs"
        f" by {results.largest_difference():.1e} of the loss at most. Ranks end with the same parameters."
        if not results.problems()
        else "\n".join(results.problems())
    )


def _lines(head: str, cells: list[list[str]]) -> str:
    width = max(len(cell) for cell in cells[0])
    cells = [[cell.ljust(width) for cell in cells[0]], *cells[1:]]
    return "\n".join(line.rstrip() for line in columns(head, cells))
