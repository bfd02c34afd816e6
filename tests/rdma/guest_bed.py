# SPDX-License-Identifier: Apache-2.0
"""The hosts of the guest (see guest), for tests that use them as cluster tests use a testbed's hosts.

    with GuestBed(["rdma:rxe{host}?rail=h", "tcp:t{host}?rail=t"]) as bed:
        with job.Job(bed, ranks=2) as work:
            work.start(elements=1000)
            bed.cut(1, "t")
            work.succeed()

A host has the ports "h", with the RDMA device, and "t". All processes are in one network namespace.
"""

from __future__ import annotations

import dataclasses
import itertools
import os
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType

from processes import Process, end_sessions
from system_tools import BedError

NETWORK = str(Path(__file__).parent / "network")
STEP_TIMEOUT = 20.0  # seconds that one change of the network may take
PORTS = ["h", "t"]
WAYS_TO_CUT = ["silent", "carrier", "admin", "gone"]


@dataclasses.dataclass
class Change:
    """A change of the network that has not ended yet."""

    words: str
    process: subprocess.Popen[str]


class GuestBed:
    """`rails` are the URIs in each rank's NEZHA_RAILS. {host} in them is the number of its host."""

    def __init__(self, rails: Sequence[str] = ()) -> None:
        self.rails = rails
        self.hosts = len(list(Path("/sys/class/net").glob("h[0-9]*")))
        self._started: list[Process] = []
        self._changed: set[tuple[int, str]] = set()  # ports that were cut or shaped
        self._deletions: dict[tuple[int, str], Change] = {}

    def __enter__(self) -> GuestBed:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        end_sessions([process for process in self._started if process.returncode is None])
        self._started.clear()
        for host, port in self._changed:
            self.heal(host, port)
            self.shape("none", port, host)
        self._changed.clear()

    def start(
        self,
        cmd: Sequence[str],
        *,
        on: Iterable[int] | None = None,
        ranks_per_host: int | None = None,
        env: Mapping[str, str] | None = None,
    ) -> list[Process]:
        """Starts the ranks of `cmd` on all hosts, or on those of `on`; does not wait."""
        ranks = ranks_per_host or 1
        hosts = range(self.hosts) if on is None else on
        started = []
        for host, local_rank in itertools.product(hosts, range(ranks)):
            rank = host * ranks + local_rank
            own = {
                "RANK": str(rank),
                "SIZE": str(self.hosts * ranks),
                "HOST": str(host),
                "NEZHA_RAILS": ",".join(rail.format(host=host) for rail in self.rails),
            }
            popen = subprocess.Popen(
                cmd,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=os.environ | own | dict(env or {}),
                start_new_session=True,  # so that all its processes can be ended
            )
            started.append(Process(popen, rank, host, local_rank, None))
            self._started.append(started[-1])
        return started

    def cut(self, host: int, port: str, how: str = "silent") -> None:
        """Cuts a host off a network; `network --help` says how.

        A deletion continues by itself, until all processes have closed the port's RDMA device.
        """
        self._changed.add((host, port))
        if how == "gone":
            self._deletions[host, port] = self._begin("cut", f"{port}{host}", how)
        else:
            self._change("cut", f"{port}{host}", how)

    def await_deletion(self, host: int, port: str, timeout: float = STEP_TIMEOUT) -> None:
        """Waits until the interface that cut() deletes is gone."""
        self._finish(self._deletions[host, port], timeout)
        del self._deletions[host, port]

    def heal(self, host: int, port: str) -> None:
        """Undoes any cut."""
        if (host, port) in self._deletions:
            self.await_deletion(host, port)
        self._change("heal", f"{port}{host}")

    def shape(self, rate: str, port: str, host: int | None = None) -> None:
        """Limits the rate of a host's port, or of all, in both directions. "none" ends it."""
        for each in range(self.hosts) if host is None else [host]:
            self._changed.add((each, port))
            self._change("shape", f"{port}{each}", rate)

    def counters(self, host: int, rail: str) -> dict[str, int]:
        """The bytes that the host's port "h" or "t" has received and sent: rx_bytes, tx_bytes."""
        folder = Path(f"/sys/class/net/{rail}{host}/statistics")
        return {name: int((folder / name).read_text()) for name in ("rx_bytes", "tx_bytes")}

    def rdma_packets(self, host: int) -> int:
        """The number of packets that the host's RDMA device has sent so far."""
        counters = Path(f"/sys/class/infiniband/rxe{host}/ports/1/hw_counters")
        return int((counters / "sent_pkts").read_text())

    def _change(self, *words: str) -> None:
        self._finish(self._begin(*words), STEP_TIMEOUT)

    def _begin(self, *words: str) -> Change:
        process = subprocess.Popen(
            [NETWORK, *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        return Change(" ".join(words), process)

    def _finish(self, change: Change, timeout: float) -> None:
        try:
            said, _ = change.process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            raise TimeoutError(f"not done after {timeout:g} s: network {change.words}") from None
        if change.process.returncode:
            raise BedError(f"'network {change.words}' failed: {said}")
