# SPDX-License-Identifier: Apache-2.0
"""Runs the benchmark programs on a testbed, over sizes and configurations."""

import contextlib
import datetime
import functools
import json
import math
import os
import platform
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Generic

from lib.shared import stolen
from lib.shared.collective import ALLREDUCE, COLLECTIVES
from lib.shared.progress import Progress
from lib.shared.results import ALONE, LEARNING, AnyConfig, Config, ResultsOf, failure_text
from lib.shared.units import size_text, time_text
from processes import Process, finish
from testbed import Testbed

EACH = "each"
CONFIGS = {
    "one": "nezha on the fastest rail alone",
    EACH: "nezha on each rail alone, a configuration for each of them",
    "all": "nezha on all rails",
    "slice": "nezha on all rails, plan slice, shares as the rails' rates",
    "gloo": "Gloo on the fastest rail (allreduce by its ring)",
    "gloo2": "Gloo on all rails: a context for each, the buffer or each block split as the rails' rates",
}
SMALL = 1 << 16  # bytes; up to this size several sizes share a launch
GROUP = 4  # sizes that share a launch
SLOW = 5e6  # microseconds; launches that take longer are announced in a pipe too
FAILURES_ALLOWED = 2  # after this many failed launches a configuration is left out


def make_configs(
    keys: Sequence[str], rails: dict[str, int | None], programs: Path
) -> list[Config]:
    """Returns a configuration for each key, and for the key EACH one for each rail."""
    configs = []
    for key in keys:
        if key == EACH:
            configs += [make_lone(name, programs) for name in rails]
        else:
            configs.append(make_config(key, rails, programs))
    return configs


def make_lone(name: str, programs: Path) -> Config:
    command = [str(programs / "nezha-bench"), "--rails", f"tcp:{name}"]
    return Config(ALONE + name, f"nezha, {name} alone", f"{name} alone", [name], command)


def make_config(key: str, rails: dict[str, int | None], programs: Path) -> Config:
    every = list(rails)
    fastest = [max(every, key=lambda name: rails[name] or math.inf)]
    shaped = None not in rails.values()
    share = ["--share", ",".join(str(rate) for rate in rails.values())] if shaped else []

    def nezha(names: list[str]) -> list[str]:
        return [str(programs / "nezha-bench"), "--rails", ",".join(f"tcp:{n}" for n in names)]

    def gloo(names: list[str]) -> list[str]:
        return [str(programs / "gloo-bench"), "--tcp-device", ",".join(names)]

    label, short, used, command = {
        "one": ("nezha, one rail", "one rail", fastest, nezha(fastest)),
        "all": ("nezha, all rails", "all rails", every, nezha(every)),
        "slice": ("nezha, slices", "slices", every, [*nezha(every), "--plan", "slice", *share]),
        "gloo": ("Gloo, one rail", "Gloo", fastest, gloo(fastest)),
        "gloo2": ("Gloo, all rails", "Gloo all", every, [*gloo(every), *share]),
    }[key]
    return Config(key, label, short, used, command)


def set_variables() -> list[str]:
    """Returns the environment variables that change what is compared, because every rank inherits them."""
    of_interest = ("NEZHA_", "GLOO_", "OMPI_", "UCX_", "MPIR_")
    return [f"{name}={value}" for name, value in os.environ.items() if name.startswith(of_interest)]


def describe_machine() -> dict[str, str | int]:
    def git(*words: str) -> str:
        try:
            done = subprocess.run(
                ["git", *words], cwd=Path(__file__).parent, capture_output=True, text=True
            )
            return done.stdout.strip()
        except OSError:  # Git is not installed.
            return ""

    models = [
        line.partition(":")[2].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith("model name")
    ]
    return {
        "time": datetime.datetime.now().astimezone().isoformat(timespec="seconds"),
        "cores": len(os.sched_getaffinity(0)),
        "cpu": models[0] if models else platform.machine(),
        "kernel": platform.release(),
        "variables": " ".join(sorted(set_variables())),
        "commit": git("rev-parse", "HEAD") + ("+" if git("status", "--porcelain") else ""),
    }


def groups_of(sizes: Sequence[int]) -> list[list[int]]:
    """Returns the sizes of each launch."""
    small = [size for size in sizes if size <= SMALL]
    groups = [small[i : i + GROUP] for i in range(0, len(small), GROUP)]
    return groups + [[size] for size in sizes if size > SMALL]


def warm_up(size: int) -> int:
    """Returns the number of iterations before the clock runs, for a vector of `size` bytes.

    They are enough to make the connections and to learn the rates of stripes.
    """
    return 10 if size < 1 << 20 else 3 if size < 1 << 24 else 2


def objects_of(text: str) -> list[dict]:
    """Returns the lines of JSON that a program has printed, without a line that is cut off by a kill."""
    objects = []
    for line in text.splitlines():
        with contextlib.suppress(ValueError):
            objects += [json.loads(line)] if line.startswith("{") else []
    return objects


def rows_of(text: str) -> list[dict]:
    """Returns the lines of JSON that are results."""
    return [row for row in objects_of(text) if {"bytes", "p50_us"} <= row.keys()]


def launch(
    bed: Testbed,
    command: Sequence[str],
    sizes: Sequence[int],
    timeout: float,
    meanwhile: Callable[[list[Process]], None] | None = None,
    start: Callable[[list[str]], list[Process]] | None = None,
    collective: str = ALLREDUCE,
) -> tuple[list[dict], list[str]]:
    """Runs a program on all hosts once, and returns its rows and what went wrong.

    `start` starts the program; without it, the testbed starts it on every host. The first process has the
    rows. `meanwhile` is called when the ranks have started, and must return when one has ended.
    """
    about = COLLECTIVES[collective]
    with tempfile.TemporaryDirectory(dir=bed.shared) as store:
        what = [*about.options(list(sizes)), "--format", "json", collective]
        processes = (start or bed.start)([*command, "--shared-path", store, *what])
        if meanwhile:
            meanwhile(processes)
        try:
            failed = finish(processes, timeout)
            errors = [f"{failed} ended with status {failed.returncode}"] if failed else []
        except TimeoutError as error:
            errors = [str(error)]
    said = "".join(process.stderr for process in processes).splitlines()
    rows = rows_of(processes[0].stdout)
    vectors = [about.vector(size, bed.hosts) for size in sizes]
    if not errors and [row["bytes"] for row in rows] != vectors:
        errors = ["it ended well, but without all of its results"]
    return rows, [*errors, *said] if errors else []


class Sweep(Generic[AnyConfig]):
    """Configurations take turns at each group of sizes, so that noise hits all of them alike."""

    def __init__(
        self,
        bed: Testbed,
        results: ResultsOf[AnyConfig],
        seconds: float,
        progress: Progress,
        groups: Sequence[list[int]] | None = None,
        most_stolen: float = 1.0,
    ) -> None:
        self._bed = bed
        self._results = results
        self._seconds = seconds  # the time of each size, configuration and repeat
        self._progress = progress
        self._groups = groups or groups_of(results.sizes)  # groups of sizes, with a launch for each
        self._most_stolen = most_stolen  # part of the CPU time; launches with more are repeated
        self._failed_launches = {config.key: 0 for config in results.configs}
        self._done = 0  # the number of measurements so far

    def run(self) -> None:
        configs = self._results.configs
        for repeat in range(self._results.repeat):
            for index, group in enumerate(self._groups):
                first = (repeat + index) % len(configs)
                for config in configs[first:] + configs[:first]:
                    self._measure(config, group, repeat)
        self._progress.clear()

    def _measure(self, config: AnyConfig, sizes: list[int], repeat: int) -> None:
        if self._failed_launches[config.key] < FAILURES_ALLOWED:
            least = (self._warm_up(config, sizes) + 3) * (
                self._results.wire_limit(config, sizes[-1]) or 0
            )
            tell = self._progress.say if least > SLOW else self._progress.show
            tell(self._line(config, sizes[0], "..."))
            rows, errors = self._launch_undisturbed(config, sizes)
            for size, row in zip(sizes, rows):
                self._results.measurements.append({"config": config.key, "repeat": repeat, **row})
                self._progress.say(self._line(config, size, time_text(row["p50_us"])))
            if errors:
                self._fail(config, sizes[len(rows) :], repeat, errors)
        self._done += len(sizes)

    def _line(self, config: AnyConfig, size: int, text: str) -> str:
        results = self._results
        total = len(results.configs) * len(results.sizes) * results.repeat
        return f"{self._done * 100 // total:2}%  {size_text(size)}, {config.label}: {text}"

    def _fail(self, config: AnyConfig, sizes: list[int], repeat: int, errors: list[str]) -> None:
        self._failed_launches[config.key] += 1
        failure = {"config": config.key, "repeat": repeat, "sizes": sizes, "errors": errors}
        self._results.failures.append(failure)
        self._progress.keep(failure_text(failure))
        if self._failed_launches[config.key] == FAILURES_ALLOWED:
            self._progress.keep(f"{config.label} is left out from here on: it failed again")

    def _launch_undisturbed(
        self, config: AnyConfig, sizes: list[int]
    ) -> tuple[list[dict], list[str]]:
        """Launches again while too much CPU time is stolen; the run with the least stolen time counts."""
        best: list[dict] = []
        for attempt in range(stolen.TRIES):
            if attempt:
                self._progress.show(self._line(config, sizes[0], "rests: CPU time is stolen"))
                time.sleep(stolen.REST)
            before = stolen.CpuTime.now()
            rows, errors = self._launch(config, sizes)
            taken = before.taken_since()
            if errors:
                return best or rows, errors
            if not best or taken.stolen < best[0]["stolen"]:
                told = {"stolen": taken.stolen, "other_processes": taken.others}
                best = [row | told for row in rows]
            if taken.stolen <= self._most_stolen:
                break
        return best, []

    def _launch(self, config: AnyConfig, sizes: list[int]) -> tuple[list[dict], list[str]]:
        """Runs a program on all hosts once, and returns its rows and what went wrong."""
        # The deadline of an operation is far beyond the time that it should take.
        seconds = 10 + 10 * (self._results.wire_limit(config, sizes[-1]) or 0) / 1e6
        command = [
            *config.command,
            *("--warmup-iters", str(self._warm_up(config, sizes))),
            *("--iteration-time", f"{self._measured(config, sizes):g}s", "--timeout", f"{seconds:.0f}s"),
        ]
        start = functools.partial(self._start, config)
        patience = 20 + 5 * seconds + 2 * self._warm_up(config, sizes) * seconds / 10
        collective = self._results.collective
        return launch(self._bed, command, sizes, patience, start=start, collective=collective)

    def _measured(self, config: AnyConfig, sizes: list[int]) -> float:
        """Returns the seconds for which each of the sizes is measured."""
        return self._seconds

    def _warm_up(self, config: AnyConfig, sizes: list[int]) -> int:
        results = self._results
        if any(results.learns(config, size) for size in sizes):
            return LEARNING
        return max(warm_up(results.about.vector(size, results.hosts)) for size in sizes)

    def _start(self, config: AnyConfig, command: list[str]) -> list[Process]:
        return self._bed.start(command)
