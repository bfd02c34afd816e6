# SPDX-License-Identifier: Apache-2.0
"""Runs rank.py for bench/ddp, by each method."""

from __future__ import annotations

import dataclasses
import tempfile
import time
from pathlib import Path
from typing import Any

from lib.ddp.results import CUT, EQUAL, METHODS, Ddp
from lib.shared import program, stolen
from lib.shared.progress import Progress
from lib.shared.results import failure_text
from lib.shared.sweep import objects_of
from processes import Process, end_sessions, finish
from testbed import Testbed

PYTHON = "/usr/bin/python3"  # Debian's Python, which has Debian's PyTorch
RANK = str(Path(__file__).with_name("rank.py"))
LINES = 12  # the last lines of a failed run's output that are reported
TIMEOUT = 20  # seconds of an operation
PATIENCE = 180  # seconds of a run
FAST, SLOW = "eth0", "eth1"
THIRD = "eth2"  # the slow rail of the case of unequal rails
CUT_HOST = 1


@dataclasses.dataclass(frozen=True)
class Effort:
    steps: int
    cut_at: int  # the steps before the cut
    singles: int


FULL = Effort(16, 8, 5)
QUICK = Effort(10, 5, 2)
WARM_UP = 3  # steps


def environment_of(method: str, rails: list[str], site: Path) -> dict[str, str]:
    """Returns the variables with which Debian's PyTorch uses the method."""
    nezha = {"NEZHA_RAILS": ",".join(f"tcp:{rail}" for rail in rails)}
    if method == "a":
        return {"GLOO_SOCKET_IFNAME": rails[0]}
    if method == "b":
        return {"GLOO_SOCKET_IFNAME": ",".join(rails)}
    if method == "c":
        library = str(program.path_of(program.GLOO_LIBRARY))
        return nezha | {"LD_PRELOAD": library, "GLOO_SOCKET_IFNAME": rails[0]}
    return nezha | {"PYTHONPATH": str(site)}


def told_by(processes: list[Process]) -> dict[str, Any]:
    """Returns rank 0's steps, and the digests of the parameters with which the ranks end."""
    told = [objects_of(process.stdout) for process in processes]
    ends = [row for rows in told for row in rows if "digest" in row]
    return {
        "steps": [row for row in told[0] if "step" in row],
        "digests": [row["digest"] for row in ends],
        "parameters": ends[0]["parameters"],
    }


class DdpTrials:
    """The methods take turns in each case, so that noise hits all of them alike."""

    def __init__(self, results: Ddp, effort: Effort, site: Path, hidden: int, progress: Progress) -> None:
        self._results = results
        self._effort = effort
        self._site = site
        self._hidden = hidden
        self._progress = progress

    def train(self, bed: Testbed, cases: list[str]) -> None:
        for repeat in range(self._results.repeat):
            for case in cases:
                methods = [m for m in self._results.methods if case != CUT or m != "a"]
                first = repeat % len(methods)
                for method in methods[first:] + methods[:first]:
                    self._train(bed, case, method, repeat)
        self._progress.clear()

    def _train(self, bed: Testbed, case: str, method: str, repeat: int) -> None:
        head = f"{case}, ({method}) {METHODS[method]}, run {repeat + 1} of {self._results.repeat}"
        self._progress.show(f"{head} ...")
        rails = [FAST, SLOW if case in (EQUAL, CUT) else THIRD]
        moment = 0.0
        options = ["--steps", str(self._effort.steps), "--hidden", str(self._hidden)]
        before = stolen.CpuTime.now()
        with tempfile.TemporaryDirectory(dir=bed.shared) as meeting:
            processes = self._start(bed, method, rails, Path(meeting), options)
            if case == CUT:
                moment = self._cut(bed, processes[0], rails[1])
            errors = self._finish(processes)
        taken = before.taken_since()
        if case == CUT:
            bed.heal(CUT_HOST, rails[1])
            if not errors and not moment:
                errors = ["the ranks ended before their rail was cut"]
        if errors and case == CUT and method == "b" and moment:
            self._results.endings[method] = self._ending(errors, time.monotonic() - moment)
            self._progress.say(f"{head}: the cut has ended the job")
            return
        if errors:
            self._fail(f"{case}, ({method})", repeat, errors)
            return
        run: dict[str, Any] = {"case": case, "method": method, "repeat": repeat, "moment": moment}
        run |= {"stolen": taken.stolen, "other_processes": taken.others} | told_by(processes)
        self._results.runs.append(run)
        last = run["steps"][-1]
        self._progress.say(f"{head}: {1e3 * last['seconds']:.0f} ms, loss {last['loss']:.4f}")

    def single(self, bed: Testbed, rails: list[str], name: str) -> None:
        for method in self._results.methods:
            self._progress.show(f"allreduces on {name}, ({method}) {METHODS[method]} ...")
            with tempfile.TemporaryDirectory(dir=bed.shared) as meeting:
                options = ["--single", str(self._effort.singles)]
                processes = self._start(bed, method, rails, Path(meeting), options)
                errors = self._finish(processes)
            rows = [row for row in objects_of(processes[0].stdout) if "pieces" in row]
            self._results.singles += [{"rails": name, "method": method} | row for row in rows]
            if errors:
                self._fail(f"allreduces on {name}, ({method})", 0, errors)
            else:
                self._progress.say(f"allreduces on {name}, ({method}): {rows[-1]['seconds']:.2f} s")
        self._progress.clear()

    def _start(
        self,
        bed: Testbed,
        method: str,
        rails: list[str],
        meeting: Path,
        options: list[str],
    ) -> list[Process]:
        backend = "nezha" if method == "d" else "gloo"
        command = [PYTHON, "-B", RANK, "--backend", backend, "--meeting", str(meeting / "store")]
        env = environment_of(method, rails, self._site)
        return bed.start([*command, "--timeout", str(TIMEOUT), *options], env=env)

    def _cut(self, bed: Testbed, first: Process, rail: str) -> float:
        """Cuts the rail in the middle of a step; returns the time, or 0 if the ranks have ended before."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline and first.returncode is None:
            steps = [row for row in objects_of(first.stdout) if "step" in row]
            if len(steps) >= self._effort.cut_at:
                time.sleep(0.4 * steps[-1]["seconds"])
                moment = time.monotonic()
                bed.cut(CUT_HOST, rail)
                return moment
            time.sleep(0.02)
        return 0.0

    @staticmethod
    def _finish(processes: list[Process]) -> list[str]:
        """Waits for the ranks, and returns what went wrong."""
        try:
            failed = finish(processes, PATIENCE)
            errors = [f"{failed} ended with status {failed.returncode}"] if failed else []
        except TimeoutError as error:
            errors = [str(error)]
            end_sessions(processes, gently=False)
        if not errors:
            return []
        said = "".join(process.stderr for process in processes).splitlines()
        return [*errors, *said[-LINES:]]

    @staticmethod
    def _ending(errors: list[str], seconds: float) -> str:
        why = next((line.strip() for line in reversed(errors) if "Error" in line), errors[-1])
        return f"the job ended {seconds:.0f} s after the cut: {why[:160]}"

    def _fail(self, config: str, repeat: int, errors: list[str]) -> None:
        failure = {"config": config, "sizes": [], "repeat": repeat, "errors": errors}
        self._results.failures.append(failure)
        self._progress.keep(failure_text(failure))
