# SPDX-License-Identifier: Apache-2.0
"""Runs nezha-bench for bench/balancer: with rates that change, with fixed splits, and from nothing."""

from __future__ import annotations

import dataclasses
import itertools
import math
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from lib.balancer.balance import (
    LEARNING,
    MODES,
    Balance,
    Mode,
    Operation,
    carried,
    commonest,
    final,
    read_trace,
)
from lib.shared import program, sweep
from lib.shared.progress import Progress
from lib.shared.units import size_text, time_text
from processes import Process
from testbed import Testbed

POLL = 0.002  # seconds between two looks at a trace


class Failed(Exception):
    """Reports a launch that went wrong; its argument has the errors."""


@dataclasses.dataclass(frozen=True)
class Effort:
    """The amount of measurements."""

    seconds: float  # the approximate time of a phase of a run
    operations: tuple[int, int]  # the least and the most operations of a phase
    start_seconds: float  # the approximate time of a run from nothing
    start_operations: int  # the least operations of a run from nothing
    sizes: list[int]  # the sizes of runs from nothing
    coarse: int  # the most splits of the coarse search, unless its coarsest step gives more
    finer: list[int]  # the percentages that finer searches move from rail to rail
    finalists: int  # splits that are measured again


SIZES = [1 << power for power in range(13, 21)]  # 8 KiB to 1 MiB
FULL = Effort(4, (150, 2000), 0.4, 250, SIZES, 40, [5, 2], 3)
QUICK = Effort(1.2, (70, 400), 0.1, 150, SIZES[1::3], 8, [10], 1)


def coarse_splits(rails: int, most: int) -> Iterator[tuple[int, ...]]:
    """Yields evenly spread splits, in percent for each rail: for two rails 0,100, 10,90 and so on."""
    parts = max(n for n in (2, 4, 5, 10) if n == 2 or math.comb(n + rails - 1, n) <= most)
    for split in itertools.product(range(parts + 1), repeat=rails):
        if sum(split) == parts:
            yield tuple(part * 100 // parts for part in split)


def moves(split: Sequence[int], step: int) -> Iterator[tuple[int, ...]]:
    """Yields the splits that have `step` percent moved from one rail to another."""
    for giver, taker in itertools.permutations(range(len(split)), 2):
        if split[giver] >= step:
            changed = list(split)
            changed[giver] -= step
            changed[taker] += step
            yield tuple(changed)


class Trials:
    def __init__(
        self, bed: Testbed, results: Balance, out: Path, quick: bool, progress: Progress
    ) -> None:
        self._bed = bed
        self._results = results
        self._out = out
        self._progress = progress
        self._rails = list(results.rails)
        self._effort = QUICK if quick else FULL
        limit = results.wire_limit(results.changed_rates(), results.size)
        fitting = self._effort.seconds * 1e6 / limit  # operations
        least, most = self._effort.operations
        self._phase = round(min(most, max(least, fitting)))
        self._fixed_operations = round(min(400, max(10, fitting / 10)))

    def run(self) -> None:
        for mode in MODES:
            self._guarded(mode.label, lambda: self._run_mode(mode))
        self._guarded("fixed splits", lambda: self._search("start"))
        self._change()
        self._guarded("fixed splits, changed", lambda: self._search("changed"))
        self._change_back()
        self._guarded("fixed, over sizes", self._fixed_sizes)
        for size in self._effort.sizes:
            for mode in MODES:
                if mode.key in LEARNING:
                    what = f"{size_text(size)}, {mode.label}, from nothing"
                    self._guarded(what, lambda: self._start(mode, size))
        self._progress.clear()

    def _guarded(self, what: str, trial: Callable[[], None]) -> None:
        try:
            self._progress.show(what)
            trial()
        except Failed as failure:
            errors = failure.args[0]
            self._results.failures.append({"what": what, "errors": errors})
            self._progress.keep("\n    ".join([f"{what}: failed", *errors]))

    def _change(self) -> None:
        change = self._results.change
        self._bed.set_rate(change.rail, f"{change.rate}bit", change.host)

    def _change_back(self) -> None:
        change = self._results.change
        self._bed.set_rate(change.rail, f"{self._results.rails[change.rail]}bit", change.host)

    def _launch(
        self,
        options: Sequence[str],
        size: int,
        count: int,
        trace: Path,
        meanwhile: Callable[[list[Process]], None] | None = None,
        rails: Sequence[str] | None = None,
    ) -> list[Operation]:
        trace.unlink(missing_ok=True)
        slowest = min(self._results.changed_rates())
        seconds = 10 + 10 * self._results.wire_limit([slowest], size) / 1e6
        command = [
            str(program.BUILD / "bench" / "nezha-bench"),
            *("--rails", ",".join(f"tcp:{name}" for name in rails or self._rails), *options),
            *("--warmup-iters", "0", "--iteration-count", str(count)),
            *("--trace", str(trace), "--timeout", f"{seconds:.0f}s"),
        ]
        limit = 60 + 5 * seconds
        _, errors = sweep.launch(self._bed, command, [size], limit, meanwhile)
        if errors:
            raise Failed(errors)
        return read_trace(trace, self._rails)

    def _run_mode(self, mode: Mode) -> None:
        """Runs a mode from nothing, through the change and back; each phase has as many operations."""
        trace = self._out / f"trace-{mode.key}.csv"
        changes: list[tuple[float, float]] = []

        def meanwhile(processes: list[Process]) -> None:
            for act in (self._change, self._change_back):
                lines = 1 + self._phase * (len(changes) + 1)
                while not trace.exists() or trace.read_bytes().count(b"\n") < lines:
                    if any(process.returncode is not None for process in processes):
                        return
                    time.sleep(POLL)
                begin = time.monotonic()
                act()
                changes.append((begin, time.monotonic()))

        try:
            operations = self._launch(
                mode.options, self._results.size, 3 * self._phase, trace, meanwhile
            )
        finally:
            self._change_back()
        if len(changes) < 2:
            raise Failed(["it ended before the rates were changed"])
        self._results.runs[mode.key] = {"trace": trace.name, "changes": changes}
        self._results.operations[mode.key] = operations
        self._progress.say(
            f"{mode.label}: {len(operations)} operations,"
            f" {time_text(final([operation.us for operation in operations]))} at the end"
        )

    # ---- fixed splits ----

    def _fixed(self, shares: Sequence[float], size: int, count: int) -> list[Operation]:
        used = [(rail, share) for rail, share in zip(self._rails, shares) if share]
        options = ["--plan", "slice", "--policy", "none"]
        options += ["--share", ",".join(f"{share:g}" for _, share in used)]
        with tempfile.TemporaryDirectory(dir=self._bed.shared) as folder:
            trace = Path(folder) / "trace"
            return self._launch(options, size, count, trace, rails=[rail for rail, _ in used])

    def _search(self, phase: str) -> None:
        """Searches for the best split: among evenly spread ones, and then in finer steps around the best."""
        tried: dict[tuple[int, ...], float] = {}

        def attempt(split: tuple[int, ...], count: int) -> float:
            operations = self._fixed(split, self._results.size, count)
            return statistics.median(operation.us for operation in operations[count // 4 :])

        def measure(split: tuple[int, ...]) -> None:
            if split not in tried:
                tried[split] = attempt(split, self._fixed_operations)
                text = "/".join(map(str, split))
                self._progress.say(f"fixed split {text}, {phase}: {time_text(tried[split])}")

        for split in coarse_splits(len(self._rails), self._effort.coarse):
            measure(split)
        for step in self._effort.finer:
            best = None
            while best != (best := min(tried, key=tried.__getitem__)):
                for split in moves(best, step):
                    measure(split)
        self._results.splits[phase] = [
            {"shares": split, "us": us} for split, us in sorted(tried.items())
        ]
        # The finalists are measured again, for longer, because the least of many times was partly luck.
        finalists = sorted(tried, key=tried.__getitem__)[: self._effort.finalists]
        again = {split: attempt(split, self._phase) for split in finalists}
        best = min(again, key=again.__getitem__)
        self._results.best[phase] = {"shares": best, "us": again[best]}

    def _fixed_sizes(self) -> None:
        rates = self._results.rails
        fastest = max(rates, key=rates.__getitem__)
        splits = {
            "fastest rail": [int(rail == fastest) for rail in rates],
            "fixed split": list(rates.values()),
        }
        for name, split in splits.items():
            times: dict[int, float] = {}
            self._results.fixed[name] = times
            for size in self._effort.sizes:
                operations = self._fixed(split, size, self._start_operations(size))
                times[size] = final([operation.us for operation in operations])
                self._progress.say(f"{size_text(size)}, {name}: {time_text(times[size])}")

    # ---- from nothing ----

    def _start_operations(self, size: int) -> int:
        limit = self._results.wire_limit(list(self._results.rails.values()), size)
        return max(self._effort.start_operations, round(self._effort.start_seconds * 1e6 / limit))

    def _start(self, mode: Mode, size: int) -> None:
        with tempfile.TemporaryDirectory(dir=self._bed.shared) as folder:
            trace = Path(folder) / "trace"
            operations = self._launch(mode.options, size, self._start_operations(size), trace)
        learned = commonest(operations)
        us = final([operation.us for operation in operations])
        self._results.starts.append(
            {
                "bytes": size,
                "mode": mode.key,
                "us": us,
                "learned": learned,
                "carried": carried(operations),
            }
        )
        what = f"{size_text(size)}, {mode.label}, from nothing"
        self._progress.say(f"{what}: {time_text(us)} {learned}")
