# SPDX-License-Identifier: Apache-2.0
"""Takes peers through a cut and a heal, for bench/failover."""

from __future__ import annotations

import csv
import dataclasses
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from lib.failover.outage import Operation, Outage, Run
from lib.peers.peer import Network, Peer, is_over_mptcp, programs_of
from lib.peers.sweep import LINES, announce_rails, end_leftovers, start_ranks
from lib.shared import program
from lib.shared.progress import Progress
from processes import Process, end_sessions
from system_tools import BedError
from testbed import Testbed

HOST = 1  # the host whose rail is cut
POLL = 0.01  # seconds between two looks at a trace
FOREVER = "1000000"  # operations, more than the run has time for
DEADLINE = 60  # seconds of an operation; the run is ended sooner


@dataclasses.dataclass(frozen=True)
class Effort:
    """The seconds of each part of a run."""

    before: float
    outage: float
    after: float
    patience: float  # further wait for a peer that stands still
    start: float = 20.0  # the most seconds until the first operation has ended


FULL = Effort(before=2, outage=5, after=5, patience=6)
QUICK = Effort(before=0.6, outage=1, after=1.2, patience=1)


class OutageTrials:
    def __init__(
        self, bed: Testbed, results: Outage, effort: Effort, progress: Progress
    ) -> None:
        self._bed = bed
        self._results = results
        self._effort = effort
        self._progress = progress
        self._are_rails_announced = False

    def run(self, peers: list[Peer], ways: list[str]) -> None:
        for way in ways:
            for peer in peers:
                run = Run(peer.key, way)
                self._results.runs.append(run)
                self._progress.show(f"{peer.label}, {way} ...")
                self._try(peer, run)
                self._progress.say(f"{peer.label}, {way}: {run.told()}")
        self._progress.clear()

    def _try(self, peer: Peer, run: Run) -> None:
        """Takes a peer through a cut and a heal. If something fails or is absent, the other runs go on."""
        try:
            program.check_programs(programs_of([peer]))
            with tempfile.TemporaryDirectory(dir=self._bed.shared) as folder:
                self._launch(peer, run, Path(folder))
        except (BedError, TimeoutError, subprocess.SubprocessError) as error:
            run.errors = str(error).splitlines()[:LINES]
        finally:
            end_leftovers(self._bed)
            self._bed.heal(HOST, self._results.rail)

    def _launch(self, peer: Peer, run: Run, folder: Path) -> None:
        if is_over_mptcp(peer) and not self._are_rails_announced:
            announce_rails(self._bed, Network(self._bed.hosts, self._results.rails).fastest)
            self._are_rails_announced = True
        trace = folder / "trace.csv"
        command = [
            *peer.command,
            *("--shared-path", str(folder / "store"), "--elements", str(self._results.size // 4)),
            *("--warmup-iters", "2", "--iteration-count", FOREVER, "--trace", str(trace)),
            *("--timeout", f"{DEADLINE}s", "allreduce"),
        ]
        processes = start_ranks(self._bed, peer, command, awaited=1)
        try:
            self._cut_and_heal(processes, trace, run)
        finally:
            said = "".join(process.output for process in processes)
            ended = [process for process in processes if process.returncode is not None]
            end_sessions(processes, gently=False)
            run.operations = read(trace)
        if ended:
            run.errors = [f"{ended[0]} ended with status {ended[0].returncode}"]
            run.errors += said.splitlines()[-LINES:]

    def _cut_and_heal(self, processes: list[Process], trace: Path, run: Run) -> None:
        def wait(seconds: float, until: Callable[[], bool] = lambda: False) -> bool:
            """Waits for `until`; returns False if a process has ended or the time is over before it holds."""
            limit = time.monotonic() + seconds
            while time.monotonic() < limit and not until():
                if any(process.returncode is not None for process in processes):
                    return False
                time.sleep(POLL)
            return until()

        effort, rail = self._effort, self._results.rail
        if not wait(effort.start, lambda: len(read(trace)) > 1):
            raise BedError(f"no operation ended within {effort.start:g} s")
        wait(effort.before)
        run.cut = time.monotonic()
        self._bed.cut(HOST, rail, run.way)
        wait(effort.outage)
        run.heal = time.monotonic()
        self._bed.heal(HOST, rail)
        wait(effort.after)
        # A peer that stood still may go on now; this shows whether it does.
        wait(effort.patience, lambda: bool(run.heal < last_end(trace)))
        run.end = time.monotonic()


def read(trace: Path) -> list[Operation]:
    """Returns the operations of a trace so far, without a last line that is not whole yet."""
    text = trace.read_text() if trace.exists() else ""
    lines = text[: text.rfind("\n") + 1].splitlines()
    return [
        Operation(float(row["seconds"]), float(row["us"]) / 1e6) for row in csv.DictReader(lines)
    ]


def last_end(trace: Path) -> float:
    operations = read(trace)
    return operations[-1].end if operations else 0
