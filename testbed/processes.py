# SPDX-License-Identifier: Apache-2.0
"""Starts, reads, awaits and ends processes in sessions and namespaces of their own."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO

from system_tools import POLL, BedError, wait_until

NETNS_DIR = Path("/run/netns")  # the folder in which ip(8) keeps its named namespaces
GRACE = 2.0  # seconds between SIGTERM and SIGKILL

Inode = tuple[int, int]  # (device, number)


def _all_pids() -> Iterator[int]:
    return (int(entry) for entry in os.listdir("/proc") if entry.isdigit())


def _session(pid: int) -> int | None:
    """Returns the session of a live process, or None for a dead one (a zombie is dead)."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    fields = stat[stat.rindex(")") + 2 :].split()  # the name before it may contain anything
    return None if fields[0] in "ZX" else int(fields[3])


def session_members(sessions: set[int]) -> list[int]:
    return [pid for pid in _all_pids() if _session(pid) in sessions]


@contextlib.contextmanager
def held_namespaces(names: Iterable[str]) -> Iterator[set[Inode]]:
    """Yields the identities of named namespaces, which do not change while they are held."""
    with contextlib.ExitStack() as files:
        found = set()
        for name in names:
            with contextlib.suppress(FileNotFoundError):  # another process takes the testbed down
                file = files.enter_context(open(NETNS_DIR / name))
                status = os.fstat(file.fileno())
                found.add((status.st_dev, status.st_ino))
        yield found


def namespace_members(namespaces: set[Inode]) -> list[int]:
    """Returns the processes inside these namespaces, except for this one."""
    members = []
    for pid in _all_pids():
        with contextlib.suppress(OSError):  # The process may have ended, or be another user's.
            found = os.stat(f"/proc/{pid}/ns/net")
            if (found.st_dev, found.st_ino) in namespaces and pid != os.getpid():
                members.append(pid)
    return members


def _signal_all(pids: Iterable[int], sig: int) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, sig)


def end_all(members: Callable[[], list[int]], gently: bool = True) -> None:
    """Sends SIGTERM, and after the grace SIGKILL, until `members` finds no process."""

    def killed() -> bool:
        left = members()  # They are looked up each time, because they may be forking.
        _signal_all(left, signal.SIGKILL)
        return not left

    if gently:
        _signal_all(members(), signal.SIGTERM)
        _signal_all(members(), signal.SIGCONT)  # a stopped process handles SIGTERM only then
        if wait_until(lambda: not members(), GRACE):
            return
    wait_until(killed, GRACE)


Echo = Callable[["Process", str, bytes], None]


class Process:
    """One rank of a command, in a session of its own on a host of the testbed."""

    def __init__(
        self,
        popen: subprocess.Popen[bytes],
        rank: int,
        host: int,
        local_rank: int,
        echo: Echo | None,
    ) -> None:
        self.rank = rank
        self.host = host
        self.local_rank = local_rank
        self._popen = popen
        self._lines: list[tuple[str, bytes]] = []  # (stream, line), in order of arrival
        self._echo = echo
        self._pumps = [
            threading.Thread(target=self._pump, args=(name, pipe), daemon=True)
            for name, pipe in (("stdout", popen.stdout), ("stderr", popen.stderr))
            if pipe
        ]
        for pump in self._pumps:
            pump.start()

    @property
    def pid(self) -> int:
        return self._popen.pid

    @property
    def returncode(self) -> int | None:
        """The exit status, or minus the signal that ended the process; None while the process runs."""
        return self._popen.poll()

    @property
    def code(self) -> int:
        """The return code of an ended process."""
        code = self.returncode
        if code is None:
            raise BedError(f"{self} has not ended")
        return code

    @property
    def stdout(self) -> str:
        return self._text("stdout")

    @property
    def stderr(self) -> str:
        return self._text("stderr")

    @property
    def output(self) -> str:
        """The output of both streams so far."""
        return self._text("stdout", "stderr")

    def wait(self, timeout: float = 60.0) -> int:
        """Returns the return code; raises TimeoutError after `timeout` seconds, and the process goes on."""
        try:
            code = self._popen.wait(timeout)
        except subprocess.TimeoutExpired:
            raise TimeoutError(f"{self} still runs after {timeout:g} s\n{self.output}") from None
        self._finish_output()
        return code

    def wait_for(self, pattern: str, timeout: float = 10.0) -> re.Match[str]:
        """Waits until the output matches; raises BedError if it ends, and TimeoutError if it never does."""
        deadline = time.monotonic() + timeout
        while True:
            code = self.returncode  # It is read before the output, so that the last lines are seen.
            if code is not None:
                self._finish_output()
            if match := re.search(pattern, self.output, re.MULTILINE):
                return match
            if code is not None:
                raise BedError(f"{self} ended ({code}) without '{pattern}'\n{self.output}")
            if time.monotonic() > deadline:
                raise TimeoutError(f"{self}: no '{pattern}' after {timeout:g} s\n{self.output}")
            time.sleep(POLL)

    def kill(self, sig: int = signal.SIGKILL) -> None:
        """Signals every process of the session; returns when a SIGKILL has ended them."""
        if sig == signal.SIGKILL:
            end_sessions([self], gently=False)
        else:
            _signal_all(session_members({self.pid}), sig)

    def _text(self, *streams: str) -> str:
        return b"".join(line for stream, line in self._lines if stream in streams).decode(
            errors="replace"
        )

    def _pump(self, stream: str, pipe: IO[bytes]) -> None:
        with pipe:
            for line in pipe:
                self._lines.append((stream, line))
                if self._echo:
                    self._echo(self, stream, line)

    def _finish_output(self) -> None:
        for pump in self._pumps:
            pump.join(1.0)  # The wait is limited, because a descendant may hold the pipe open.

    def __str__(self) -> str:
        return f"rank {self.rank} (host {self.host})"


def end_sessions(processes: Sequence[Process], gently: bool = True) -> None:
    """Ends these processes and all that they started, and reaps them."""
    sessions = {process.pid for process in processes}
    end_all(lambda: session_members(sessions), gently)
    for process in processes:
        process.wait(GRACE)


def finish(processes: Sequence[Process], timeout: float) -> Process | None:
    """Waits for all; ends the rest at the first failure, which it returns, or at a timeout."""
    deadline = time.monotonic() + timeout
    try:
        while True:
            codes = [process.returncode for process in processes]
            failed = next((p for p, code in zip(processes, codes) if code), None)
            if failed or None not in codes:
                return failed
            if time.monotonic() > deadline:
                running = ", ".join(str(p) for p, code in zip(processes, codes) if code is None)
                raise TimeoutError(f"still running after {timeout:g} s: {running}")
            time.sleep(POLL)
    finally:
        end_sessions(processes)  # This also ends processes that a rank has left behind.
