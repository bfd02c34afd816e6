# SPDX-License-Identifier: Apache-2.0
"""Runs the benchmark programs for bench/scaling, with as many ranks as are asked for."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

from lib.scaling.scale import Scaling, Way
from lib.shared.progress import Progress
from lib.shared.results import failure_text
from lib.shared.sweep import objects_of, rows_of
from lib.shared.units import time_text
from processes import Process, finish
from testbed import Testbed

ALGORITHMS = ["auto", "ring", "recursive-doubling", "halving-doubling", "direct", "bcube"]
GLOO_ALGORITHMS = ["ring", "bcube"]
DEADLINE = 60  # seconds of an operation; as much again for the start and end of a launch
OPERATIONS = 30  # operations of a run with many ranks
LINES = 12  # the last lines of a failed launch's output that are reported


def ways_of(rails: Sequence[str], programs: Path) -> dict[str, Way]:
    """Returns the ways by key.

    Gloo has one rail, as its label says, and makes all its connections at the start.
    """
    names = ",".join(f"tcp:{name}" for name in rails)
    nezha = [str(programs / "nezha-bench"), "--rails", names]
    gloo = [str(programs / "gloo-bench"), "--tcp-device", rails[0]]
    ways = [Way(name, name, [*nezha, "--algorithm", name]) for name in ALGORITHMS]
    ways += [
        Way(f"gloo-{name}", f"Gloo {name}, {rails[0]}", [*gloo, "--algorithm", name])
        for name in GLOO_ALGORITHMS
    ]
    return {way.key: way for way in ways}


def hosts_for(ranks: int, most: int) -> int | None:
    """Returns the most hosts that have equally many ranks, or None if only one host would have several."""
    hosts = max(n for n in range(1, most + 1) if ranks % n == 0)
    return hosts if hosts > 1 or ranks == 1 else None


def start_ups_of(text: str) -> list[dict]:
    """Returns the rows that a rank has printed about its start."""
    return [row for row in objects_of(text) if "first_ms" in row]


class ScaleTrials:
    """The ways take turns at each number of ranks, so that noise hits all of them alike."""

    def __init__(
        self, bed: Testbed, results: Scaling, seconds: float, progress: Progress
    ) -> None:
        self._bed = bed
        self._results = results
        self._seconds = seconds  # the time of each size
        self._progress = progress
        self._done = 0  # the number of launches so far

    def run(self) -> None:
        ways = self._results.ways
        for repeat in range(self._results.repeat):
            for index, ranks in enumerate(self._results.all_ranks()):
                first = (repeat + index) % len(ways)
                for way in ways[first:] + ways[:first]:
                    self._measure(way, ranks, repeat)
        self._progress.clear()

    def _measure(self, way: Way, ranks: int, repeat: int) -> None:
        results = self._results
        total = len(results.all_ranks()) * len(results.ways) * results.repeat
        head = f"{self._done * 100 // total:2}%  {ranks} ranks, {way.label}"
        self._progress.show(f"{head} ...")
        self._done += 1
        sizes = results.sizes if ranks in results.ranks else results.sizes[:1]
        processes, errors = self._launch(way, ranks, sizes)
        said = {"way": way.key, "repeat": repeat}
        starts = [row for process in processes for row in start_ups_of(process.stdout)]
        rows = rows_of(processes[0].stdout)
        if not errors and (len(starts), len(rows)) != (ranks, len(sizes)):
            errors = ["it ended well, but without all of its results"]
        results.start_ups += [said | row for row in starts]
        results.operations += [said | {"ranks": ranks} | row for row in rows]
        if errors:
            failure = {"config": f"{way.key}, {ranks} ranks", "sizes": sizes[len(rows) :]}
            results.failures.append(failure | {"repeat": repeat, "errors": errors})
            self._progress.keep(failure_text(results.failures[-1]))
        else:
            longest = max(row["first_ms"] for row in starts)
            self._progress.say(f"{head}: {time_text(1e3 * longest)}")

    def _launch(self, way: Way, ranks: int, sizes: list[int]) -> tuple[list[Process], list[str]]:
        hosts = hosts_for(ranks, self._bed.hosts)
        assert hosts  # bench/scaling admits no number of ranks that cannot be spread
        is_full = ranks in self._results.ranks
        effort = ["--iteration-time", f"{self._seconds}s"]
        with tempfile.TemporaryDirectory(dir=self._bed.shared) as store:
            command = [
                *way.command,
                *("--size", str(ranks), "--shared-path", store, "--start-up"),
                *("--elements", ",".join(str(size // 4) for size in sizes)),
                *(effort if is_full else ["--iteration-count", str(OPERATIONS)]),
                *("--timeout", f"{DEADLINE}s", "--format", "json", "allreduce"),
            ]
            processes = self._bed.start(command, on=range(hosts), ranks_per_host=ranks // hosts)
            try:
                failed = finish(processes, 2 * DEADLINE)
                errors = [f"{failed} ended with status {failed.returncode}"] if failed else []
            except TimeoutError as error:
                errors = [str(error)]
        said = "".join(process.stderr for process in processes).splitlines()
        return processes, [*errors, *said[-LINES:]] if errors else []
