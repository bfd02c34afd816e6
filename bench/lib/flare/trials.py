# SPDX-License-Identifier: Apache-2.0
"""Runs nezha-bench for bench/flare: over switches and their manager, and without them."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
import os
import secrets
import signal
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from lib.flare.offload import BOTH, FLARE, TCP, Case, Way
from lib.shared import program
from lib.shared.one_group import one_group
from lib.shared.progress import Progress
from lib.shared.results import LEARNING
from lib.shared.sweep import Sweep, describe_machine
from processes import Process
from rails import parse_rails
from system_tools import BedError, wait_until
from testbed import Testbed

RAIL, OTHER = "eth0", "eth1"
MANAGER_PORT = 7000
PATIENCE = 20.0  # seconds for a switch or the manager to start, or to answer
BY_SWITCH = 0.99  # the part of the operations; with less, the hosts were measured instead
LEAST_RECEIVED = 1 << 20  # bytes; with less, the upkeep of sessions would be measured
LINES = 12  # the last lines of the manager's output that are reported
SAMPLING = 0.2  # seconds between two looks at what a switch has counted
LOSSY_BURST = 24000  # bytes


def switch_hosts(case: Case) -> range:
    return range(case.hosts, case.hosts + case.switches)


def manager_host(case: Case) -> int:
    """Returns the host of the first switch, because a port of its own would get all multicast frames, too."""
    return switch_hosts(case)[0]


def make_case(
    group: str,
    hosts: int,
    megabits: int,
    sizes: Sequence[int],
    repeat: int,
    *,
    label: str = "",
    switches: int = 1,
    loss: float | None = None,
) -> Case:
    is_pair = group == "rails"
    case = Case(
        machine=describe_machine(),
        hosts=hosts,
        rails=dict.fromkeys([RAIL, OTHER] if is_pair else [RAIL], megabits * 10**6),
        configs=[],
        sizes=list(sizes),
        repeat=repeat,
        group=group,
        label=label,
        switches=switches,
        loss=loss,
    )
    [rail] = parse_rails({RAIL: "none"})
    manager = f"{rail.address(manager_host(case))}:{MANAGER_PORT}"
    keys = [BOTH, FLARE, TCP] if is_pair else [FLARE, TCP]
    case.configs = [way_of(key, manager, is_pair) for key in keys]
    return case


def way_of(key: str, manager: str, is_pair: bool) -> Way:
    """Returns a way. With `is_pair` there are two rails, and TCP alone takes both."""
    switched = f"flare:{RAIL}@{manager}"
    ways: dict[str, tuple[str, str, list[str], list[str], list[str]]] = {
        FLARE: ("by the switch", "switch", [RAIL], [RAIL], [switched]),
        TCP: ("by TCP", "TCP", [RAIL], [], [f"tcp:{RAIL}"]),
        BOTH: ("switch and TCP", "both", [RAIL, OTHER], [RAIL], [f"tcp:{OTHER}", switched]),
    }
    label, short, rails, by_switch, words = ways[key]
    if is_pair and key == TCP:
        label, short = "by TCP, both rails", "TCP, both"
        rails, words = [RAIL, OTHER], [f"tcp:{RAIL}", f"tcp:{OTHER}"]
    if is_pair and key == FLARE:
        label, short = "by the switch, one rail", "switch, one"
    command = [str(program.path_of("nezha-bench")), "--rails", ",".join(words)]
    more: dict[str, list[str]] = {FLARE: ["--await-switch"], TCP: [], BOTH: ["--plan", "auto"]}
    command += more[key]
    return Way(key, label, short, rails, command, by_switch)


# ---- switches and their manager ---------------------------------------------------------------


def fabric_text(bed: Testbed, case: Case) -> str:
    """Returns the fabric: hosts, spread evenly over the switches, which are linked to the first switch."""
    first = case.hosts

    def at(host: int) -> str:
        return bed.rail(RAIL).address(host)

    switches = switch_hosts(case)
    lines = [f"switch s{host} {at(host)}:7100 {at(host)}:7101" for host in switches]
    lines += [f"link s{first} s{host}" for host in switches[1:]]
    for host in range(case.hosts):
        lines.append(f"host {at(host)} s{switches[host * case.switches // case.hosts]}")
    if case.multicast:
        lines.append("multicast 239.192.0.0:7200 64")
    return "\n".join(lines) + "\n"


@dataclasses.dataclass(frozen=True)
class Sample:
    """The frames and bytes that all switches together have received, and the CPU time that these cost."""

    seconds: float
    frames: int
    bytes: int
    cpu: float  # seconds of CPU time


class Fabric:
    """The switches and their manager, which run on hosts after those of the ranks."""

    def __init__(self, bed: Testbed, case: Case) -> None:
        self._folder = tempfile.TemporaryDirectory(dir=bed.shared)
        self._secret = Path(self._folder.name) / "secret"
        self._secret.write_text(secrets.token_hex(32))
        self._secret.chmod(0o600)
        hosts = switch_hosts(case)
        for host in hosts:  # A switch takes what all its ports can carry.
            bed.set_rate(RAIL, "none", host)
        self._switches = [self._start_switch(bed, host) for host in hosts]
        fabric = Path(self._folder.name) / "fabric"
        fabric.write_text(fabric_text(bed, case))
        own = manager_host(case)
        listen = f"{bed.rail(RAIL).address(own)}:{MANAGER_PORT}"
        argv = [str(program.path_of("nezha-manager")), "--listen", listen, "--fabric", str(fabric)]
        [self._manager] = bed.start(
            [*argv, "--secret", str(self._secret)], on=[own], env={"NEZHA_LOG": "info"}
        )
        for host in hosts:
            self._manager.wait_for(f"s{host} is connected", PATIENCE)

    def _start_switch(self, bed: Testbed, host: int) -> Process:
        at = bed.rail(RAIL).address(host)
        argv = [str(program.path_of("nezha-switch")), "--listen", f"{at}:7100"]
        argv += ["--control", f"{at}:7101", "--secret", str(self._secret)]
        [process] = bed.start(argv, on=[host])
        process.wait_for("^ready$", PATIENCE)
        return process

    def said(self) -> list[str]:
        return self._manager.stderr.splitlines()[-LINES:]

    @property
    def environment(self) -> dict[str, str]:
        """The environment variables of a rank."""
        return {"NEZHA_FLARE_SECRET": str(self._secret)}

    def sample(self) -> Sample:
        counted = [self._counted(switch) for switch in self._switches]
        return Sample(
            time.monotonic(),
            sum(each["received"] for each in counted),
            sum(each["received_bytes"] for each in counted),
            sum(cpu_seconds(switch.pid) for switch in self._switches),
        )

    @staticmethod
    def _counted(switch: Process) -> dict:
        if switch.returncode is not None:
            raise BedError(f"the switch on host {switch.host} has ended:\n{switch.output}")
        lines = switch.stdout.count("\n")
        os.kill(switch.pid, signal.SIGUSR1)
        if not wait_until(lambda: switch.stdout.count("\n") > lines, PATIENCE):
            raise BedError(f"the switch on host {switch.host} does not say what it has counted")
        return json.loads(switch.stdout.splitlines()[-1])


def cpu_seconds(pid: int) -> float:
    """Returns the CPU time of a process so far, with the kernel's work for it."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextlib.contextmanager
def sampled(fabric: Fabric) -> Iterator[list[Sample]]:
    """Takes samples from the start of the context to its end; the list is complete after the context."""
    samples = [fabric.sample()]
    over = threading.Event()

    def look() -> None:
        with contextlib.suppress(BedError):  # The last sample reports the error.
            while not over.wait(SAMPLING):
                samples.append(fabric.sample())

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield samples
    finally:
        over.set()
        thread.join()
    samples.append(fabric.sample())


def figures_of(samples: Sequence[Sample]) -> dict[str, float]:
    """Returns the figures of the switches, or none if these have received less than LEAST_RECEIVED.

    The frames per second are those of the time while the switches are busy.
    """
    first, last = samples[0], samples[-1]
    received = last.bytes - first.bytes
    if received < LEAST_RECEIVED:
        return {}
    rates = [
        (b.frames - a.frames) / (b.seconds - a.seconds) for a, b in itertools.pairwise(samples)
    ]
    busy = [rate for rate in rates if rate > max(rates) / 2]
    return {
        "switch_cpu_s_per_gib": (last.cpu - first.cpu) / received * (1 << 30),
        "switch_frames_per_s": statistics.median(busy),
    }


# ---- the trials -------------------------------------------------------------------------------


class FlareSweep(Sweep[Way]):
    def __init__(
        self,
        bed: Testbed,
        case: Case,
        fabric: Fabric,
        seconds: float,
        progress: Progress,
        most_stolen: float,
    ) -> None:
        super().__init__(bed, case, seconds, progress, most_stolen=most_stolen)
        self._fabric = fabric

    def _warm_up(self, config: Way, sizes: list[int]) -> int:
        return LEARNING if config.key == BOTH else super()._warm_up(config, sizes)

    def _launch(self, config: Way, sizes: list[int]) -> tuple[list[dict], list[str]]:
        with sampled(self._fabric) as samples:
            rows, errors = super()._launch(config, sizes)
        if config.key == FLARE and any(part_by_switch(row) < BY_SWITCH for row in rows):
            return [], ["the hosts did without the switch", *errors, *self._fabric.said()]
        if len(sizes) == 1:  # Otherwise the figures are of several sizes.
            rows = [row | figures_of(samples) for row in rows]
        return rows, errors

    def _start(self, config: Way, command: list[str]) -> list[Process]:
        hosts = self._results.hosts
        command = [*command[:1], "--size", str(hosts), *command[1:]]
        return self._bed.start(command, on=range(hosts), env=self._fabric.environment)


def part_by_switch(row: dict) -> float:
    """Returns the part of the operations that went by the switch.

    The bytes show this, because the messages by which ranks agree go by TCP.
    """
    sent = sum(rail["bytes"] for rail in row["rails"] if rail["name"] == "flare")
    return sent / (row["iterations"] * row["bytes"] * row["ranks"])


def testbed_of(case: Case) -> Testbed:
    hosts = case.hosts + case.switches
    rails = {name: f"{rate}bit" for name, rate in case.rails.items()}
    if case.loss is None:
        return Testbed(hosts, rails)
    # Without segmentation offload the testbed loses single frames, and not trains of them.
    return Testbed(hosts, rails, gso=None, burst=LOSSY_BURST)


def run(case: Case, seconds: float, progress: Progress, most_stolen: float) -> None:
    with one_group(), testbed_of(case) as bed:
        fabric = Fabric(bed, case)
        if case.loss:
            bed.loss(RAIL, case.loss)
        FlareSweep(bed, case, fabric, seconds, progress, most_stolen).run()
