# SPDX-License-Identifier: Apache-2.0
"""Switches and their manager, for contexts whose operations the switches carry."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import job
import pytest
from processes import Process, end_sessions
from testbed import Testbed

SWITCH = str(job.BUILD / "flare_offload" / "nezha-switch")
MANAGER = str(job.BUILD / "flare_offload" / "nezha-manager")
RAIL = "eth0"
OTHER = "eth1"
HOSTS = 4
SWITCHES = [4, 5, 6]  # the hosts of the testbed that are switches
MANAGED_BY = 7
LEASE = 2  # seconds, unless a test sets another
STREAMS = 4  # streams of a job, unless its rail sets another number
MIB = 1 << 18  # elements


@pytest.fixture(scope="module")
def bed() -> Iterator[Testbed]:
    rails = {RAIL: "500mbit", OTHER: "500mbit"}
    with Testbed(hosts=8, rails=rails, ipv6=True) as bed:
        for switch in SWITCHES:
            bed.set_rate(RAIL, "none", switch)
        yield bed


class Fabric:
    """Switches and their manager."""

    def __init__(self, bed: Testbed, folder: Path) -> None:
        self.bed = bed
        self.ipv6 = False
        self.folder = folder
        self.secret = folder / "secret"
        self.secret.write_text(secrets.token_hex(32))
        self.switches: dict[int, Process] = {}
        self.manager: Process | None = None

    def address(self, host: int) -> str:
        rail = self.bed.rail(RAIL)
        return rail.address6(host) if self.ipv6 else rail.address(host)

    def at(self, host: int, port: int) -> str:
        return f"[{self.address(host)}]:{port}" if self.ipv6 else f"{self.address(host)}:{port}"

    def start_switch(self, switch: int, *options: str, limited: int = 1024) -> None:
        """Starts a switch that may open at most `limited` descriptors."""
        argv = [
            "prlimit",
            f"--nofile={limited}",
            SWITCH,
            "--listen",
            self.at(switch, 7100),
            "--control",
            self.at(switch, 7101),
        ]
        [process] = self.bed.start([*argv, "--secret", str(self.secret), *options], on=[switch])
        process.wait_for("^ready$")
        self.switches[switch] = process

    def start_manager(self, text: str, *options: str, lease: int = LEASE) -> None:
        path = self.folder / "fabric"
        path.write_text(text)
        argv = [MANAGER, "--listen", self.at(MANAGED_BY, 7000), "--fabric", str(path)]
        argv += ["--secret", str(self.secret), "--lease", str(lease), *options]
        [self.manager] = self.bed.start(argv, on=[MANAGED_BY], env={"NEZHA_LOG": "info"})
        self.manager.wait_for("^ready$")
        for switch in self.switches:
            self.manager.wait_for(f"s{switch} is connected", job.PATIENCE)

    def counted(self, process: Process) -> dict[str, Any]:
        """The counters that a switch or the manager prints."""
        lines = process.stdout.count("\n")
        os.kill(process.pid, signal.SIGUSR1)
        job.await_that("statistics", lambda: process.stdout.count("\n") > lines)
        counted: dict[str, Any] = json.loads(process.stdout.splitlines()[-1])
        return counted

    def sessions(self, switch: int) -> int:
        return len(self.counted(self.switches[switch])["sessions"])

    def kill(self, process: Process) -> None:
        os.kill(process.pid, signal.SIGKILL)
        process.wait(job.PATIENCE)

    @property
    def rail(self) -> str:
        return f"flare:{RAIL}@{self.at(MANAGED_BY, 7000)}"

    @property
    def env(self) -> dict[str, str]:
        return {"NEZHA_FLARE_SECRET": str(self.secret), "NEZHA_LOG": "info"}

    def end(self) -> None:
        all_of_them = [*self.switches.values(), *([self.manager] if self.manager else [])]
        end_sessions(all_of_them, gently=False)

    def switch_line(self, switch: int) -> str:
        return f"switch s{switch} {self.at(switch, 7100)} {self.at(switch, 7101)}\n"

    def star(self, switch: int = SWITCHES[0]) -> str:
        """A fabric in which all hosts are linked to one switch."""
        hosts = [f"host {self.address(host)} s{switch}\n" for host in range(HOSTS)]
        return self.switch_line(switch) + "".join(hosts)


@pytest.fixture
def fabric(bed: Testbed, tmp_path: Path) -> Iterator[Fabric]:
    fabric = Fabric(bed, tmp_path)
    with contextlib.ExitStack() as stack:
        stack.callback(fabric.end)
        yield fabric


def await_carried(work: job.Job, more: int = 1) -> None:
    """Waits until each rank has received `more` further bytes of results from the switch."""

    def received() -> list[int]:
        failed = [rank for rank in work.ranks if rank.process.returncode]
        assert not failed, work.told()
        return [rank.rail("flare")["received"] if rank.done else 0 for rank in work.ranks]

    goals = [one + more for one in received()]
    job.await_that(
        f"{more} more bytes from the switch",
        lambda: all(one >= goal for one, goal in zip(received(), goals)),
        tell=work.told,
    )


def go_on(work: job.Job, fabric: Fabric, rails: str, **options: Any) -> None:
    """Starts ranks that run until they are told to stop, and that check each result."""
    settings: dict[str, Any] = {"elements": f"{MIB // 4},1000", "rails": rails, "report": 1}
    work.start(until=work.stop_file, env=fabric.env, **(settings | options))
