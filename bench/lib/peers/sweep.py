# SPDX-License-Identifier: Apache-2.0
"""Runs the peers of bench/peers and bench/cores: MPI by its launchers, MPTCP, and a ring of iperf3."""

from __future__ import annotations

import itertools
import json
import statistics
import subprocess
import time
from collections.abc import Sequence

from lib.peers.peer import IPERF3, Network, Peer, is_over_mptcp, is_over_nezha, programs_of
from lib.shared import program
from lib.shared.collective import ALLREDUCE, COLLECTIVES, Collective
from lib.shared.progress import Progress
from lib.shared.results import LEARNED_BELOW, LEARNING, ResultsOf
from lib.shared.sweep import Sweep, warm_up
from processes import Process, end_all, end_sessions, finish, held_namespaces, namespace_members
from state import namespaces_of
from system_tools import BedError
from testbed import Testbed

LEAST = 1 << 16  # bytes; iperf3's rate says nothing about shorter messages
LONG_MESSAGE = 1 << 20  # bytes; such a message goes over several rails if its connection has them
OPERATIONS = 16  # a run has time for this many at the wire limit, if they take at most LONG
LONG = 1.0  # seconds
PARTING = 3.0  # seconds that MPI may take to end after the last result
LINES = 12  # the last lines of a failed peer's output that are reported
IPERF3_PORT = 5201  # the port of a rail's first connection
IPERF3_SECONDS = 2
IPERF3_WARM_UP = 1  # seconds before IPERF3_SECONDS
IPERF3_PATIENCE = 20.0  # seconds


def warm_up_of(size: int, hosts: int = 1, about: Collective = COLLECTIVES[ALLREDUCE]) -> int:
    """Returns the number of iterations before the clock runs, which is the same for all peers.

    It is the number by which nezha learns, if nezha learns the size. Nezha learns from allreduces alone.
    """
    learns = about.name == ALLREDUCE and size < LEARNED_BELOW
    return LEARNING if learns else warm_up(about.vector(size, hosts))


def groups_of(
    sizes: Sequence[int], hosts: int = 1, about: Collective = COLLECTIVES[ALLREDUCE]
) -> list[list[int]]:
    """Returns the sizes of each launch, which have the same number of iterations before the clock runs."""

    def warm_up(size: int) -> int:
        return warm_up_of(size, hosts, about)

    return [list(group) for _, group in itertools.groupby(sizes, warm_up)]


def announce_rails(bed: Testbed, first: str) -> None:
    """Lets MPTCP's connections, which are made on the first rail, use the others, too."""
    for host in range(bed.hosts):
        others = [rail for rail in bed.rails_of(host) if rail.name != first]
        lines = ["endpoint flush"]  # This removes the endpoints of a try that failed half-way.
        lines += [f"limits set subflow {len(others)} add_addr_accepted {len(others)}"]
        lines += [
            f"endpoint add {rail.address(host)} dev {rail.name} port {40000 + index} signal"
            for index, rail in enumerate(others)
        ]
        for line in lines:
            bed.exec(host, ["ip", "mptcp", *line.split()])


def start_ranks(
    bed: Testbed, peer: Peer, command: list[str], awaited: int
) -> list[Process]:
    """Starts the ranks of a peer, from which `awaited` results should come."""
    if not peer.launcher:
        return bed.start(command)
    # The launcher runs on the switch, from which it reaches the hosts through the management network.
    environment = ["env", f"TESTBED_PREFIX={bed.prefix}"]
    popen = subprocess.Popen(
        bed.exec_argv("sw", [*environment, *peer.launcher, *command]),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    return [Launcher(popen, awaited)]


def end_leftovers(bed: Testbed) -> None:
    """Ends the ranks that a killed launcher leaves behind, which would disturb the next launch."""
    with held_namespaces(namespaces_of(bed.prefix)) as namespaces:
        end_all(lambda: namespace_members(namespaces))


class PeerSweep(Sweep[Peer]):
    def __init__(
        self,
        bed: Testbed,
        results: ResultsOf[Peer],
        seconds: float,
        progress: Progress,
        most_stolen: float = 1.0,
    ) -> None:
        groups = groups_of(results.sizes, results.hosts, results.about)
        super().__init__(bed, results, seconds, progress, groups, most_stolen)
        self._awaited = 0  # the results of the launch that is under way
        self._are_rails_announced = False

    def _launch(self, peer: Peer, sizes: list[int]) -> tuple[list[dict], list[str]]:
        """Launches a peer. If something fails or is absent, this peer fails, and the others go on."""
        try:
            program.check_programs(programs_of([peer]))
            return self._run(peer, sizes)
        except (BedError, TimeoutError, subprocess.SubprocessError) as error:
            return [], str(error).splitlines()[:LINES]
        finally:
            end_leftovers(self._bed)

    def _warm_up(self, peer: Peer, sizes: list[int]) -> int:
        return warm_up_of(sizes[0], self._results.hosts, self._results.about)

    def _measured(self, peer: Peer, sizes: list[int]) -> float:
        least = (self._results.wire_limit(peer, sizes[-1]) or 0) / 1e6
        return max(self._seconds, min(OPERATIONS * least, LONG))

    def _run(self, peer: Peer, sizes: list[int]) -> tuple[list[dict], list[str]]:
        if peer.key == IPERF3:
            return self._ring_of_iperf3(sizes), []
        if is_over_mptcp(peer):
            return self._run_over_mptcp(peer, sizes)
        if is_over_nezha(peer):
            return self._run_over_nezha(peer, sizes)
        return self._run_ranks(peer, sizes)

    def _run_ranks(self, peer: Peer, sizes: list[int]) -> tuple[list[dict], list[str]]:
        self._awaited = len(sizes)
        rows, errors = super()._launch(peer, sizes)
        return rows, errors[:1] + errors[1:][-LINES:]

    def _run_over_mptcp(self, peer: Peer, sizes: list[int]) -> tuple[list[dict], list[str]]:
        """Runs a peer over MPTCP, and reports it as failed if its connections fell back to TCP."""
        if not self._are_rails_announced:
            announce_rails(self._bed, Network(self._bed.hosts, self._results.rails).fastest)
            self._are_rails_announced = True
        before = self._carried()
        rows, errors = self._run_ranks(peer, sizes)
        if errors or sizes[-1] < LONG_MESSAGE:
            return rows, errors
        least = sizes[-1] // 100
        used = [name for name, now in self._carried().items() if now - before[name] >= least]
        if len(used) > 1:
            return rows, []
        return [], [f"it is TCP's: of the rails it used {', '.join(used) or 'none'}"]

    def _run_over_nezha(self, peer: Peer, sizes: list[int]) -> tuple[list[dict], list[str]]:
        """Runs a peer over nezha's device, and reports it as failed if Gloo used its own device.

        Gloo does so if the library is not loaded, or if the library finds nothing to take over.
        """
        rows, errors = self._run_ranks(peer, sizes)
        devices = [row.get("device", "") for row in rows]
        others = [device for device in devices if not device.startswith("nezha")]
        return ([], [f"it ran on another device: {others[0]}"]) if others else (rows, errors)

    def _carried(self) -> dict[str, int]:
        """Returns the bytes to and from the first host, which has the root, by rail."""
        counters = {name: self._bed.counters(0, name) for name in self._results.rails}
        return {name: each["tx_bytes"] + each["rx_bytes"] for name, each in counters.items()}

    def _start(self, peer: Peer, command: list[str]) -> list[Process]:
        return start_ranks(self._bed, peer, command, self._awaited)

    def _connections(self) -> int:
        """Returns the number of connections of each rail in a ring of iperf3."""
        return 1

    def _ring_of_iperf3(self, sizes: list[int]) -> list[dict]:
        large = [size for size in sizes if size >= LEAST]
        try:
            reports = run_ring(self._bed, self._connections()) if large else []
            results = self._results
            return [at_rates_of(reports, results.hosts, size, results.about) for size in large]
        except (ValueError, KeyError, TypeError, ZeroDivisionError) as error:
            raise BedError(f"iperf3's report has no rates to be used: {error!r}") from None


class Launcher(Process):
    """An mpirun, which counts as ended some time after the last result that is awaited.

    MPICH often hangs in MPI_Finalize: a rank waits for UCX to close its connections, but ranks that are
    already in the barrier after that no longer serve these.
    """

    def __init__(self, popen: subprocess.Popen[bytes], awaited: int) -> None:
        super().__init__(popen, rank=0, host=0, local_rank=0, echo=None)
        self._awaited = awaited
        self._all_there: float | None = None  # the time when all results had come

    @property
    def returncode(self) -> int | None:
        code = super().returncode
        if code is None and self._all_there is None:
            if sum(line.startswith("{") for line in self.stdout.splitlines()) == self._awaited:
                self._all_there = time.monotonic()
        if code is None and self._all_there and time.monotonic() > self._all_there + PARTING:
            return 0
        return code

    def __str__(self) -> str:
        return "mpirun"


# ---- iperf3 -----------------------------------------------------------------------------------

Report = dict  # the output of `iperf3 --json`


def run_ring(bed: Testbed, connections: int) -> list[list[Report]]:
    """Runs a ring, in which each host sends to the next one on every rail at once, and returns its reports.

    The reports are grouped by host. Each connection of a rail has processes of its own, because iperf3 may
    have one thread for all connections.
    """
    ports = [
        (host, rail, str(IPERF3_PORT + index))
        for host in range(bed.hosts)
        for rail in bed.rails_of(host)
        for index in range(connections)
    ]
    servers, clients = [], []
    for host, rail, port in ports:
        serve = ["iperf3", "--server", "--one-off", "--forceflush"]
        servers += bed.start([*serve, "--bind", rail.address(host), "--port", port], on=[host])
    try:
        for server in servers:
            server.wait_for("listening", IPERF3_PATIENCE)
        for host, rail, port in ports:
            to = rail.address((host + 1) % bed.hosts)
            call = ["iperf3", "--client", to, "--port", port, "--bind", rail.address(host), "--json"]
            call += ["--time", str(IPERF3_SECONDS), "--omit", str(IPERF3_WARM_UP)]
            clients += bed.start(call, on=[host])
        failed = finish([*clients, *servers], IPERF3_PATIENCE)
    finally:
        end_sessions([*clients, *servers])
    if failed:  # A client gives the reason on its standard output.
        raise BedError(f"iperf3 on {failed} ended with {failed.code}:\n{failed.output.strip()}")
    reports = [json.loads(client.stdout) for client in clients]
    return [
        [report for report, (at, *_) in zip(reports, ports) if at == host]
        for host in range(bed.hosts)
    ]


def at_rates_of(
    reports: list[list[Report]], hosts: int, size: int, about: Collective = COLLECTIVES[ALLREDUCE]
) -> dict:
    """Returns a row like those of the other programs, for a collective at the rates of this ring.

    Its time is that in which the ring sends what the wire must carry. Each host sends to the next one over
    all its rails. All hosts have the same rails, so that the rate is that of the median host; one
    connection that loses much then has no effect. The time is a reference and not a bound, because the
    connections share the cores.
    """
    ends = [[report["end"] for report in of_host] for of_host in reports]
    rates = [sum(end["sum_received"]["bits_per_second"] for end in host) / 8 for host in ends]
    seconds = about.carried(size, hosts) / statistics.median(rates)
    loads = [end["cpu_utilization_percent"] for host in ends for end in host]
    cores = sum(load["host_total"] + load["remote_total"] for load in loads) / 100
    microseconds = seconds * 1e6
    times = {f"{name}_us": microseconds for name in ("min", "p50", "p99", "max")}
    vector = about.vector(size, hosts)
    return {"bytes": vector, "iterations": 1, "cpu_s": cores * seconds, "rails": [], **times}
