# SPDX-License-Identifier: Apache-2.0
"""Runs the worker (worker/) on a testbed's hosts, and reads the events that it prints."""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from processes import Process, end_sessions

BUILD = Path(os.environ.get("TEST_BUILD_DIR", Path(__file__).parents[2] / "build" / "release"))
LONG = os.environ.get("TEST_LONG") == "1"
WORKER = str(BUILD / "tests" / "cluster_worker")
ALGORITHMS = ["ring", "recursive-doubling", "halving-doubling", "direct", "bcube"]
PATIENCE = 60.0  # seconds: the deadline for what should take a second or two
# On a loaded machine, an event may come this many seconds later than it should. The library notices
# a death within a second; bench/failover measures how fast it is. The deadlines of operations are
# longer than this, unless a test sets one.
SLACK = 6.0

Event = dict[str, Any]


class Bed(Protocol):
    """The part of a testbed that a job uses."""

    hosts: int

    def start(
        self,
        cmd: Sequence[str],
        *,
        on: Iterable[int] | None = None,
        ranks_per_host: int | None = None,
        env: Mapping[str, str] | None = None,
    ) -> list[Process]: ...

    def counters(self, host: int, rail: str) -> dict[str, int]: ...


def rails_option(names: Iterable[str]) -> str:
    return ",".join(f"tcp:{name}" for name in names)


def await_that(
    what: str, test: Callable[[], Any], timeout: float = PATIENCE, tell: Callable[[], str] = str
) -> Any:
    """Calls `test` often, and returns its first true value."""
    deadline = time.monotonic() + timeout
    while not (value := test()):
        assert time.monotonic() < deadline, f"timed out after {timeout:g} s: {what}\n{tell()}"
        time.sleep(0.005)
    return value


class Rank:
    """One process of a job."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.number = process.rank
        self._events: list[Event] = []
        self._parsed = 0  # characters of the output that have been parsed

    @property
    def events(self) -> list[Event]:
        text = self.process.stdout
        complete = text.rfind("\n") + 1
        for line in text[self._parsed : complete].splitlines():
            self._events.append(json.loads(line))
        self._parsed = complete
        return self._events

    def all(self, kind: str) -> list[Event]:
        return [event for event in self.events if event["event"] == kind]

    def last(self, kind: str) -> Event | None:
        return next((event for event in reversed(self.events) if event["event"] == kind), None)

    @property
    def done(self) -> int:
        """The number of operations that the rank has reported as done."""
        return len(self.all("done"))

    def wait_for(self, kind: str, timeout: float = PATIENCE, **members: Any) -> Event:
        """Waits for the first event of this kind with these members."""

        def find() -> Event | None:
            ended = self.process.returncode is not None
            if ended:
                self.process.wait(1)  # so that the last output arrives
            for event in self.all(kind):
                if members.items() <= event.items():
                    return event
            assert not ended, f"{self.process} ended without '{kind}' {members}\n{self.told()}"
            return None

        found: Event = await_that(f"{self.process}: {kind} {members}", find, timeout, self.told)
        return found

    def rail(self, name: str) -> Event:
        """The rail's counters from the last report."""
        report = next(event for event in reversed(self.events) if "rails" in event)
        return next(rail for rail in report["rails"] if rail["name"] == name)

    def told(self) -> str:
        """The end of the rank's results and log."""
        said = [self.process.stdout[-2000:], self.process.stderr[-2000:]]
        return "\n".join([f"--- {self.process}, {self.process.returncode}", *said])


class Job:
    """The ranks of one context. Options are those of the worker, with _ instead of -."""

    def __init__(
        self, bed: Bed, ranks: int = 0, ranks_per_host: int = 1, program: str = WORKER
    ) -> None:
        self.bed = bed
        self._program = program
        self.size = ranks or bed.hosts * ranks_per_host
        self.ranks_per_host = ranks_per_host
        self.ranks: list[Rank] = []
        self._folder = tempfile.TemporaryDirectory()
        self.stop_file = Path(self._folder.name) / "stop"
        self._store = Path(self._folder.name) / "store"
        self._store.mkdir()

    def __enter__(self) -> Job:
        return self

    def __exit__(self, *exception: object) -> None:
        end_sessions([rank.process for rank in self.ranks], gently=False)
        self._folder.cleanup()

    def start(
        self,
        hosts: Sequence[int] | None = None,
        env: Mapping[str, str] | None = None,
        **options: Any,
    ) -> list[Rank]:
        """Starts the ranks on `hosts`, or on all hosts."""
        on = range(self.size // self.ranks_per_host) if hosts is None else hosts
        argv = [self._program, "--store", str(self._store)]
        for name, value in options.items():
            argv += [f"--{name.replace('_', '-')}", str(value)]
        processes = self.bed.start(
            argv,
            on=on,
            ranks_per_host=self.ranks_per_host,
            env={"SIZE": str(self.size)} | dict(env or {}),
        )
        started = [Rank(process) for process in processes]
        self.ranks = sorted(self.ranks + started, key=lambda rank: rank.number)
        return started

    def told(self) -> str:
        return "\n".join(rank.told() for rank in self.ranks)

    def stop(self) -> None:
        """Creates the file that ends what --until, --settle and --stay of the worker begin."""
        self.stop_file.touch()

    def wait(self, ranks: Iterable[Rank] | None = None, timeout: float = PATIENCE) -> None:
        """Waits until all ranks have ended, however they end."""
        waiting = list(self.ranks if ranks is None else ranks)
        await_that(
            "all ranks ended",
            lambda: all(rank.process.returncode is not None for rank in waiting),
            timeout,
            self.told,
        )
        for rank in waiting:
            rank.process.wait(1)  # so that the last output arrives

    def succeed(self, timeout: float = PATIENCE) -> None:
        """Waits until all ranks end with right results."""
        deadline = time.monotonic() + timeout
        while any(rank.process.returncode is None for rank in self.ranks):
            if any(rank.process.returncode for rank in self.ranks):
                break  # the others may wait for this rank
            assert time.monotonic() < deadline, f"timed out after {timeout:g} s\n{self.told()}"
            time.sleep(0.005)
        failed = [rank for rank in self.ranks if rank.process.returncode]
        if failed:
            self.wait(failed)
        assert not failed, "\n".join(rank.told() for rank in [*failed, *self.ranks])
        self.wait()

    def all_done(self, count: int, timeout: float = PATIENCE) -> None:
        """Waits until each rank has reported `count` more operations than now."""
        goals = {rank: rank.done + count for rank in self.ranks}

        def reached() -> bool:
            failed = any(rank.process.returncode for rank in self.ranks)
            assert not failed, self.told()
            return all(rank.done >= goal for rank, goal in goals.items())

        await_that(f"{count} more operations", reached, timeout, self.told)

    def well_into_it(self, host: int, rail: str) -> None:
        """Waits until all ranks run an operation and the host has sent 1 MiB on the rail."""
        for rank in self.ranks:
            rank.wait_for("start", operation=0)
        self.sends_by(host, rail, 1 << 20)

    def sends_by(self, host: int, rail: str, more: int) -> None:
        """Waits until the host has sent `more` further bytes on the rail."""

        def sent() -> int:
            return self.bed.counters(host, rail)["tx_bytes"]

        goal = sent() + more
        await_that(f"host {host} sends on {rail}", lambda: sent() > goal, tell=self.told)

    def hashes(self) -> list[str]:
        """The hashes of the results, one for each operation. All ranks must have the same."""
        each = [[event["hash"] for event in rank.all("done")] for rank in self.ranks]
        assert all(one == each[0] for one in each), f"ranks differ: {each}"
        return each[0]


def run(bed: Bed, ranks: int = 0, ranks_per_host: int = 1, **options: Any) -> Job:
    """Runs a job from start to success."""
    with Job(bed, ranks, ranks_per_host) as job:
        job.start(**options)
        job.succeed()
    return job
