# SPDX-License-Identifier: Apache-2.0
"""Runs the benchmark programs for bench/training: replays of each model's steps."""

from __future__ import annotations

import dataclasses
import tempfile
from pathlib import Path

from lib.shared import stolen
from lib.shared.progress import Progress
from lib.shared.results import failure_text
from lib.shared.sweep import objects_of
from lib.shared.units import time_text
from lib.training.horovod_trace import (
    CYCLE,
    FUSION_THRESHOLD,
    after_computation,
    gradients,
    operations_of,
    trace_text,
)
from lib.training.models import MODELS
from lib.training.results import Training, Way, Workload
from processes import finish
from testbed import Testbed

LINES = 12  # the last lines of a failed launch's output that are reported


@dataclasses.dataclass(frozen=True)
class Effort:
    warm_up: int  # steps
    steps: int  # timed steps; as many are also timed without computation


FULL = Effort(4, 6)
QUICK = Effort(3, 3)


def ways_of(layouts: dict[str, list[str]], programs: Path) -> list[Way]:
    """Returns the ways: both libraries on each layout's rails."""
    ways = []
    for layout, rails in layouts.items():
        nezha = [str(programs / "nezha-bench"), "--rails", ",".join(f"tcp:{r}" for r in rails)]
        gloo = [str(programs / "gloo-bench"), "--tcp-device", ",".join(rails)]
        ways.append(Way(f"nezha-{layout}", f"nezha, {layout}", "nezha", layout, rails, nezha))
        ways.append(Way(f"gloo-{layout}", f"Gloo, {layout}", "gloo", layout, rails, gloo))
    return ways


def trace_of(results: Training, workload: Workload) -> str:
    tensors = gradients(MODELS[workload.model], results.computation(workload), results.scale)
    operations = operations_of(tensors, FUSION_THRESHOLD // results.scale, CYCLE)
    if not results.overlap:
        operations = after_computation(operations)
    return trace_text(operations, f"{workload.label}, 1/{results.scale} of all sizes")


class TrainingTrials:
    """The ways take turns at each workload, so that noise hits all of them alike."""

    def __init__(
        self,
        bed: Testbed,
        results: Training,
        traces: dict[Workload, Path],
        effort: Effort,
        progress: Progress,
    ) -> None:
        self._bed = bed
        self._results = results
        self._traces = traces
        self._effort = effort
        self._progress = progress
        self._done = 0  # the number of launches so far

    def run(self) -> None:
        ways = self._results.ways
        for repeat in range(self._results.repeat):
            for index, workload in enumerate(self._results.workloads):
                first = (repeat + index) % len(ways)
                for way in ways[first:] + ways[:first]:
                    self._measure(workload, way, repeat)
        self._progress.clear()

    def _measure(self, workload: Workload, way: Way, repeat: int) -> None:
        results = self._results
        total = len(results.ways) * len(results.workloads) * results.repeat
        head = f"{self._done * 100 // total:2}%  {workload.label}, {way.label}"
        self._progress.show(f"{head} ...")
        self._done += 1
        before = stolen.CpuTime.now()
        rows, errors = self._launch(workload, way)
        taken = before.taken_since()
        if not errors and len(rows) != 1:
            errors = ["it ended well, but without its result"]
        if errors:
            config = f"{way.key}, {workload.label}"
            results.failures.append(
                {"config": config, "sizes": [], "repeat": repeat, "errors": errors}
            )
            self._progress.keep(failure_text(results.failures[-1]))
            return
        said = {"model": workload.model, "batch": workload.batch, "way": way.key, "repeat": repeat}
        said |= {"stolen": taken.stolen, "other_processes": taken.others}
        results.rows.append(said | rows[0])
        self._progress.say(f"{head}: {time_text(rows[0]['step_p50_us'])}")

    def _launch(self, workload: Workload, way: Way) -> tuple[list[dict], list[str]]:
        # The deadline is the time of many steps on the slowest rail alone.
        slowest = min(self._results.rails[rail] for rail in way.rails)
        fastest = max(self._results.rails.values())
        step = self._results.computation(workload) + self._results.wire_time(workload) * (
            fastest / slowest
        )
        deadline = 30 + 10 * step / 1e6
        with tempfile.TemporaryDirectory(dir=self._bed.shared) as store:
            command = [
                *way.command,
                *("--shared-path", store, "--warmup-iters", str(self._effort.warm_up)),
                *("--iteration-count", str(self._effort.steps), "--timeout", f"{deadline:.0f}s"),
                *("--format", "json", "replay", str(self._traces[workload])),
            ]
            processes = self._bed.start(command)
            try:
                steps = self._effort.warm_up + 2 * self._effort.steps + 1
                failed = finish(processes, deadline + 4 * steps * step / 1e6)
                errors = [f"{failed} ended with status {failed.returncode}"] if failed else []
            except TimeoutError as error:
                errors = [str(error)]
        said = "".join(process.stderr for process in processes).splitlines()
        rows = [row for row in objects_of(processes[0].stdout) if "step_p50_us" in row]
        return rows, [*errors, *said[-LINES:]] if errors else []
