# SPDX-License-Identifier: Apache-2.0
"""nezha-switch with real hosts: results, losses, trees, foreign datagrams, and what it refuses."""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import job
import pytest
from probes import PYTHON
from processes import Process, end_sessions
from testbed import Testbed

SWITCH = str(job.BUILD / "flare_offload" / "nezha-switch")
HOST = str(job.BUILD / "tests" / "cluster_flare_host")
RAIL = "eth0"
HOSTS = 4
ROOT, LEAVES = 4, [5, 6]  # the hosts of the testbed that are switches
MIB = 1 << 18  # elements


@contextlib.contextmanager
def make_bed(**settings: Any) -> Iterator[Testbed]:
    with Testbed(hosts=7, rails={RAIL: "1gbit"}, **settings) as bed:
        for switch in (ROOT, *LEAVES):
            bed.set_rate(RAIL, "none", switch)
        yield bed


@pytest.fixture(scope="module")
def bed() -> Iterator[Testbed]:
    with make_bed() as bed:
        yield bed


@pytest.fixture(scope="module")
def lossy_bed() -> Iterator[Testbed]:
    """A testbed without segmentation offload, so that it loses single datagrams and not trains."""
    with make_bed(gso=None, burst=24000) as bed:
        yield bed


def address(bed: Testbed, host: int, port: int = 7200) -> str:
    return f"{bed.rail(RAIL).address(host)}:{port}"


def switch_address(bed: Testbed, switch: int) -> str:
    return address(bed, switch, 7100)


def session(key: str, children: Sequence[str], **values: Any) -> str:
    """The text of a session file."""
    settings = {"session": 7, "generation": 3, "window": 16, "payload": 1440} | values
    lines = [f"{name} {value}" for name, value in settings.items()]
    lines += [f"key {key}", *(f"child {child}" for child in children)]
    return "\n".join(lines) + "\n"


def hosts_of(bed: Testbed, ranks: Sequence[int]) -> list[str]:
    return [f"{address(bed, rank)} {rank}" for rank in ranks]


class Fabric:
    """Switches with their session files, and hosts that use them."""

    def __init__(self, bed: Testbed, folder: Path) -> None:
        self.bed = bed
        self.folder = folder
        self.switches: dict[int, Process] = {}
        self.ranks: list[Process] = []

    def start_switch(self, switch: int, text: str) -> None:
        path = self.folder / f"session{switch}"
        path.write_text(text)
        argv = [SWITCH, "--listen", switch_address(self.bed, switch), "--session", str(path)]
        [process] = self.bed.start(argv, on=[switch])
        process.wait_for("^ready$")
        self.switches[switch] = process

    def start_host(self, rank: int, switch: int, elements: int, count: int) -> Process:
        argv = [HOST, str(self.folder / f"session{switch}"), switch_address(self.bed, switch)]
        argv += [str(number) for number in (rank, HOSTS, elements, count)]
        [process] = self.bed.start(argv, on=[rank])
        self.ranks.append(process)
        return process

    def await_hosts(self) -> list[dict[str, Any]]:
        """The results that the hosts print at their end. All hosts must succeed."""
        for rank in self.ranks:
            assert rank.wait(job.PATIENCE) == 0, rank.output
        return [json.loads(rank.stdout.splitlines()[-1]) for rank in self.ranks]

    def counted(self, switch: int) -> dict[str, Any]:
        """The counters of the switch and of its only session."""
        process = self.switches[switch]
        lines = process.stdout.count("\n")
        os.kill(process.pid, signal.SIGUSR1)
        job.await_that("statistics", lambda: process.stdout.count("\n") > lines)
        counted: dict[str, Any] = json.loads(process.stdout.splitlines()[-1])
        [only] = counted.pop("sessions")
        return only | counted  # shared names get the numbers of all sessions

    def stop(self) -> None:
        for process in self.switches.values():
            os.kill(process.pid, signal.SIGTERM)
            assert process.wait(job.PATIENCE) == 0, process.output
            assert json.loads(process.stdout.splitlines()[-1])["received"] >= 0

    def end(self) -> None:
        end_sessions([*self.switches.values(), *self.ranks], gently=False)


@pytest.fixture
def fabric(bed: Testbed, tmp_path: Path) -> Iterator[Fabric]:
    fabric = Fabric(bed, tmp_path)
    with contextlib.ExitStack() as stack:
        stack.callback(fabric.end)
        yield fabric


@pytest.fixture
def lossy_fabric(lossy_bed: Testbed, tmp_path: Path) -> Iterator[Fabric]:
    fabric = Fabric(lossy_bed, tmp_path)
    with contextlib.ExitStack() as stack:
        stack.callback(fabric.end)
        stack.callback(lossy_bed.loss, RAIL, 0)
        yield fabric


def start_one_switch(fabric: Fabric, **values: Any) -> None:
    children = hosts_of(fabric.bed, range(HOSTS))
    fabric.start_switch(ROOT, session(secrets.token_hex(32), children, **values))


def start_tree(fabric: Fabric) -> None:
    """Starts two leaves with two hosts each."""
    bed = fabric.bed
    root_key = secrets.token_hex(32)
    ranks = [range(2), range(2, 4)]
    below = [f"{switch_address(bed, leaf)} {r[0]}-{r[-1]}" for leaf, r in zip(LEAVES, ranks)]
    fabric.start_switch(ROOT, session(root_key, below))
    for place, leaf in enumerate(LEAVES):
        parent = f"{switch_address(bed, ROOT)} {place} {root_key}"
        children = hosts_of(bed, ranks[place])
        fabric.start_switch(leaf, session(secrets.token_hex(32), children, parent=parent))


def start(fabric: Fabric, levels: int, elements: dict[int, int], count: int) -> None:
    """Starts the switches, and hosts with these numbers of elements."""
    if levels == 1:
        start_one_switch(fabric)
    else:
        start_tree(fabric)
    for rank in range(HOSTS):
        switch = ROOT if levels == 1 else LEAVES[rank // 2]
        fabric.start_host(rank, switch, elements[rank], count)


def check_sums(fabric: Fabric, levels: int, loss: float) -> None:
    """The hosts check each element of each result."""
    count = 4
    elements = MIB + 7 if loss < 10 else MIB // 10  # fewer if loss causes many timeouts
    fabric.bed.loss(RAIL, loss)
    start(fabric, levels, dict.fromkeys(range(HOSTS), elements), count)
    said = fabric.await_hosts()
    blocks = count * (1 + -(-elements // 360))
    for switch in fabric.switches:
        counted = fabric.counted(switch)
        children = 2 if levels == 2 else HOSTS
        assert (counted["blocks"], counted["combined"]) == (blocks, blocks * children), counted
        assert not counted["violations"] and not counted["mismatches"], counted
        assert not loss or counted["lost"] > 0, counted
    assert not loss or all(host["resent"] > 0 for host in said), said
    fabric.stop()


@pytest.mark.parametrize("levels", [1, 2])
def test_sums(fabric: Fabric, levels: int) -> None:
    check_sums(fabric, levels, loss=0)


@pytest.mark.parametrize("loss", [1, 5, 20])
@pytest.mark.parametrize("levels", [1, 2])
def test_sums_despite_loss(lossy_fabric: Fabric, levels: int, loss: float) -> None:
    check_sums(lossy_fabric, levels, loss)


@pytest.mark.parametrize(("levels", "odd"), [(1, [3]), (2, [3]), (2, [2, 3])])
def test_all_are_told_who_disagrees(fabric: Fabric, levels: int, odd: list[int]) -> None:
    start(fabric, levels, {rank: 1000 + (rank in odd) for rank in range(HOSTS)}, count=1)
    for host in fabric.ranks:
        assert host.wait(job.PATIENCE) == 1, host.output
        assert re.search(rf"rank {odd[0]} (is )?in operation 1 with \d+", host.output), host.output


def test_a_late_rank_does_not_look_like_loss(fabric: Fabric) -> None:
    start_one_switch(fabric)
    for rank in range(1, HOSTS):
        fabric.start_host(rank, ROOT, elements=MIB, count=1)
    for host in fabric.ranks:
        host.wait_for("^waits$", job.PATIENCE)
    fabric.start_host(0, ROOT, elements=MIB, count=1)
    fabric.await_hosts()


# Sends datagrams of four kinds to ADDRESS and PORT, from an address that belongs to no child. Even
# the smallest receive buffer holds all of them, so none is lost if the switch gets no core for a
# while.
STRANGER = """
import socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
header = bytes.fromhex(sys.argv[3])
for i in range(40):
    s.sendto([b"x" * (i * 4), header + bytes(8), b"\\xff" * 40, b""][i % 4],
             (sys.argv[1], int(sys.argv[2])))
"""
CONTRIBUTION = "41 71 00 00 07000000 0300 0000 00000000 00000000" + "00" * 12
FROM_CHILD = STRANGER.replace("header =", 's.bind(("", 7200)); header =')


def test_strangers_and_forgers_change_nothing(fabric: Fabric) -> None:
    start_one_switch(fabric)
    argv = [*switch_address(fabric.bed, ROOT).split(":"), CONTRIBUTION]
    fabric.bed.run([PYTHON, "-c", STRANGER, *argv], on=[5])
    fabric.bed.run([PYTHON, "-c", FROM_CHILD, *argv], on=[0])
    other = CONTRIBUTION.replace("07000000", "08000000")
    fabric.bed.run([PYTHON, "-c", STRANGER, *argv[:2], other], on=[5])
    old = CONTRIBUTION.replace("0300", "0200")
    fabric.bed.run([PYTHON, "-c", FROM_CHILD, *argv[:2], old], on=[0])
    job.await_that("all frames", lambda: fabric.counted(ROOT)["received"] == 160)
    counted = fabric.counted(ROOT)
    names = ["strangers", "forged", "unknown", "outdated", "malformed", "combined"]
    assert {name: counted[name] for name in names} == {
        "strangers": 10,
        "forged": 10,
        "unknown": 10,
        "outdated": 10,
        "malformed": 120,
        "combined": 0,
    }
    for rank in range(HOSTS):
        fabric.start_host(rank, ROOT, elements=1000, count=1)
    fabric.await_hosts()


def test_statistics(fabric: Fabric) -> None:
    """The help explains each name, and the only session has the same numbers as the switch."""
    start_one_switch(fabric)
    for rank in range(HOSTS):
        fabric.start_host(rank, ROOT, elements=MIB, count=1)
    fabric.await_hosts()
    process = fabric.switches[ROOT]
    fabric.stop()
    counted = json.loads(process.stdout.splitlines()[-1])
    [only] = counted["sessions"]
    explained = fabric.bed.exec(ROOT, [SWITCH, "--help"]).stdout.split("Statistics", 1)[1]
    for name in counted.keys() | only.keys():
        assert re.search(rf"\b{name}\b", explained), name
    for name in ["received", "received_bytes"]:
        assert counted[name] == only[name], counted
    assert counted["sent"] + counted["not_sent"] == only["sent"], counted
    frames = HOSTS * (1 + -(-MIB // 360))
    assert frames <= only["received"] and frames <= only["sent"], counted
    assert only["received_bytes"] >= frames * 32 + HOSTS * (MIB + 1) * 4, counted
    assert 1 <= sum(counted["batches"]) <= counted["received"], counted


def refusal(bed: Testbed, *options: str) -> tuple[int, str]:
    done = bed.exec(ROOT, [SWITCH, *options], check=False, timeout=10)
    return done.returncode, done.stderr


def test_bad_options(bed: Testbed) -> None:
    at = ["--listen", switch_address(bed, ROOT)]
    for options, error in {
        (): "--listen is missing",
        ("--listen", "10.0.0.1"): "--listen: '10.0.0.1' is not an address and port",
        ("--listen",): "--listen needs a value",
        (*at,): "--session or --control is missing",
        (*at, "--secret", "x"): "--control and --secret go together",
        (*at, "--sesion", "x"): "unknown option '--sesion'",
        (*at, "--memory", "0"): "--memory '0': not a number of MiB from 1 to 1048576",
        (*at, "--threads", "0"): "--threads '0': not a number from 1 to 64",
        (*at, "--threads", "2x"): "--threads '2x': not a number from 1 to 64",
        (*at, "x"): "unexpected 'x'",
    }.items():
        assert refusal(bed, *options) == (2, f"nezha-switch: {error}\nTry nezha-switch --help.\n")
    assert bed.exec(ROOT, [SWITCH, "--version"]).stdout.startswith("nezha-switch ")
    assert "\n  key 64-HEX-DIGITS " in bed.exec(ROOT, [SWITCH, "--help"]).stdout


def test_sessions_that_cannot_be(bed: Testbed, tmp_path: Path) -> None:
    at = ["--listen", switch_address(bed, ROOT)]
    key = secrets.token_hex(32)
    good = session(key, hosts_of(bed, range(HOSTS)))
    path = tmp_path / "session"
    for text, error in {
        good.replace("payload 1440", "payload 1448"): "session 7: a payload of 1448 bytes is too"
        f" long for the way to {address(bed, 0)}, whose MTU of 1500 allows 1440",
        good.replace("window 16", "window 65536"): "session 7: its slots take so many bytes, but"
        " only 134217728 are left; choose a smaller window or payload, or a larger --memory",
        good.replace("window 16", "window 17"): "the window has 17 blocks; it must be a power of two up to"
        " 65536",
        good.replace("window", "windows"): "line 3: unknown word 1; nezha-switch --help says"
        " what lines have",
        good.replace("10.0.0.1", "192.0.2.1"): "session 7: looking for a route to 192.0.2.1:7200:"
        " Network is unreachable",
        good.replace(address(bed, 3), "[fd00::1]:7200"): "session 7: [fd00::1]:7200 cannot be"
        " reached from the --listen address, which is of IPv4; all addresses of a session must be of"
        " one family",
    }.items():
        path.write_text(text)
        code, said = refusal(bed, *at, "--session", str(path))
        said = re.sub(r"take \d+ bytes", "take so many bytes", said)
        assert (code, said) == (1, f"nezha-switch: {path}: {error}\n")
    path.write_text(good)
    twice = ["--session", str(path)] * 2
    error = f"nezha-switch: {path}: session 7: it is installed already\n"
    assert refusal(bed, *at, *twice) == (1, error)
    missing = "nezha-switch: cannot read /nowhere\n"
    assert refusal(bed, *at, "--session", "/nowhere") == (1, missing)
    code, said = refusal(bed, "--listen", "192.0.2.1:7100", "--session", str(path))
    assert code == 1 and "binding a UDP socket to 192.0.2.1:7100" in said
