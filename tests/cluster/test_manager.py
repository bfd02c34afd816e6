# SPDX-License-Identifier: Apache-2.0
"""nezha-manager with real switches, and contexts whose allreduces the switches sum."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
import secrets
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import job
import pytest
from probes import PYTHON
from processes import Process, end_sessions
from testbed import Testbed

SWITCH = str(job.BUILD / "flare_offload" / "nezha-switch")
MANAGER = str(job.BUILD / "flare_offload" / "nezha-manager")
RAIL = "eth0"
OTHER = "eth1"
HOSTS = 4
SWITCHES = [4, 5, 6]  # the hosts of the testbed that are switches
MANAGED_BY = 7
LEASE = 2  # seconds, unless a test says otherwise
STREAMS = 4  # of a job, unless its rail says otherwise
MIB = 1 << 18  # elements
HELP = "Try nezha-manager --help."


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
        """`limited`: the most descriptors that it may open."""
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
            self.manager.wait_for(f"s{switch} is there", job.PATIENCE)

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
    """Waits until the switch has sent each rank this many more bytes of results."""

    def received() -> list[int]:
        failed = [rank for rank in work.ranks if rank.process.returncode]
        assert not failed, work.told()
        return [rank.rail("flare")["received"] if rank.done else 0 for rank in work.ranks]

    goals = [one + more for one in received()]
    job.await_that(
        f"{more} bytes more by the switch",
        lambda: all(one >= goal for one, goal in zip(received(), goals)),
        tell=work.told,
    )


def go_on(work: job.Job, fabric: Fabric, rails: str, **options: Any) -> None:
    """Starts ranks that run until they are told to stop, and that check each result."""
    settings: dict[str, Any] = {"elements": f"{MIB // 4},1000", "rails": rails, "report": 1}
    work.start(until=work.stop_file, env=fabric.env, **(settings | options))


def test_a_switch_alone(bed: Testbed, fabric: Fabric) -> None:
    """Operations that the switch can do, and others, which the hosts do."""
    fabric.start_switch(SWITCHES[0])
    fabric.start_manager(fabric.star())
    with job.Job(bed, HOSTS) as work:
        kinds = {"type": "float32,int8,uint64", "operation": "sum,max,average,custom"}
        go_on(work, fabric, fabric.rail, elements="1,20000", **kinds)
        await_carried(work, 4 << 20)
        assert fabric.sessions(SWITCHES[0]) == STREAMS
        work.stop()
        work.succeed()
    for rank in work.ranks:
        assert rank.process.stderr.count("a custom operation is for the hosts alone") == 1
    # The sessions were given back.
    assert fabric.manager is not None
    fabric.manager.wait_for("is over", job.PATIENCE)
    job.await_that("no sessions", lambda: fabric.sessions(SWITCHES[0]) == 0)


def rename(bed: Testbed, host: int, old: str, new: str) -> None:
    for words in (f"{old} down", f"{old} name {new}", f"{new} up"):
        bed.exec(host, ["ip", "link", "set", *words.split()])


def test_interfaces_of_other_names(bed: Testbed, fabric: Fabric) -> None:
    """The rail option gives the hosts' own network one name; the switch's rail has none."""
    fabric.start_switch(SWITCHES[0])
    fabric.start_manager(fabric.star())
    odd = 1
    named = fabric.rail + "?rail=net"
    rename(bed, odd, RAIL, "cable")
    try:
        with job.Job(bed, HOSTS) as work:
            options: dict[str, Any] = {"operation": "sum,custom", "until": work.stop_file}
            options |= {"report": 1, "elements": 20000, "env": fabric.env}
            work.start([host for host in range(HOSTS) if host != odd], rails=named, **options)
            work.start([odd], rails=named.replace(RAIL, "cable"), **options)
            await_carried(work, 1 << 20)
            assert all(rank.rail("net")["sent"] > 0 for rank in work.ranks), work.told()
            work.stop()
            work.succeed()
    finally:
        rename(bed, odd, "cable", RAIL)


def test_a_host_with_another_interface(bed: Testbed, fabric: Fabric) -> None:
    """The interface, made anew, leads to the switch again, with a port of the range."""
    fabric.start_switch(SWITCHES[0])
    fabric.start_manager(fabric.star())
    own = bed.rail(RAIL).address(1)

    def ports() -> list[str]:
        lines = bed.exec(1, ["ss", "-Hulnp"]).stdout.splitlines()
        return [line.split()[3] for line in lines if own in line and "cluster_worker" in line]

    with job.Job(bed, HOSTS) as work:
        rails = f"{fabric.rail},tcp:{OTHER}"
        go_on(work, fabric, rails, ports="21000-21009")
        await_carried(work, 1 << 20)
        assert ports() == [f"{own}%{RAIL}:21000"]
        bed.renew(1, RAIL)
        job.await_that("the port", lambda: ports() == [f"{own}%{RAIL}:21000"], tell=work.told)
        await_carried(work, 1 << 20)
        work.stop()
        work.succeed()


@pytest.mark.parametrize("collective", ["reduce", "broadcast"])
def test_a_root(bed: Testbed, fabric: Fabric, collective: str) -> None:
    """Each rank is the root in turn. The switch carries what it can, and the hosts the rest."""
    fabric.start_switch(SWITCHES[0])
    fabric.start_manager(fabric.star())
    with job.Job(bed, HOSTS) as work:
        kinds = {"type": "float32,int8,uint64"}
        if collective == "reduce":
            kinds["operation"] = "sum,max,average,custom"
        go_on(work, fabric, fabric.rail, collective=collective, elements="1,20000", **kinds)
        await_carried(work, 2 << 20)
        work.stop()
        work.succeed()
    custom = int(collective == "reduce")
    for rank in work.ranks:
        assert rank.process.stderr.count("a custom operation is for the hosts alone") == custom


def test_barriers(bed: Testbed, fabric: Fabric) -> None:
    """The switch carries a byte for each barrier, beside the sums by which the ranks learn to stop."""
    fabric.start_switch(SWITCHES[0])
    fabric.start_manager(fabric.star())
    with job.Job(bed, HOSTS) as work:
        go_on(work, fabric, fabric.rail, collective="barrier")

        def carried(rank: job.Rank) -> bool:
            """Whether some operation carried one byte more than the sum before it."""
            counts = [r["received"] for done in rank.all("done") for r in done["rails"][-1:]]
            return any(after - before == 4 + 1 for before, after in itertools.pairwise(counts))

        job.await_that("barriers", lambda: all(map(carried, work.ranks)), tell=work.told)
        work.stop()
        work.succeed()


GROUPS = "multicast 239.192.0.0:7200 16\n"


def frames_per_block(fabric: Fabric, switch: int) -> float:
    """How many frames per block the switch has sent, in its present sessions."""

    def some() -> list[dict[str, Any]]:
        sessions = fabric.counted(fabric.switches[switch])["sessions"]
        return sessions if sum(session["blocks"] for session in sessions) > 100 else []

    sessions = job.await_that("blocks", some)
    sent: int = sum(session["sent"] for session in sessions)
    return sent / sum(session["blocks"] for session in sessions)


def heard_all(work: job.Job) -> bool:
    """Whether no rank has found that multicast fails."""
    return not any("does not reach host" in rank.process.stderr for rank in work.ranks)


@pytest.mark.parametrize(("ranks_per_host", "ipv6"), [(1, False), (2, False), (1, True)])
def test_results_by_multicast(
    bed: Testbed, fabric: Fabric, ranks_per_host: int, ipv6: bool
) -> None:
    """Each result is sent once and reaches all ranks, also several on one host."""
    fabric.ipv6 = ipv6
    fabric.start_switch(SWITCHES[0])
    groups = "multicast [ff18::7200]:7200 16\n" if ipv6 else GROUPS
    fabric.start_manager(fabric.star() + groups)
    with job.Job(bed, HOSTS, ranks_per_host) as work:
        go_on(work, fabric, fabric.rail, elements=f"{MIB},1000,1")
        await_carried(work, 4 << 20)
        assert 1 <= frames_per_block(fabric, SWITCHES[0]) < 2
        work.stop()
        work.succeed()
        assert heard_all(work), work.told()


def test_multicast_below_a_switch(bed: Testbed, fabric: Fabric) -> None:
    """Each of two levels sends a result once to its hosts, and separately to or from the other level."""
    first, second = SWITCHES[:2]
    text = fabric.switch_line(first) + fabric.switch_line(second) + f"link s{first} s{second}\n"
    for host in range(HOSTS):
        text += f"host {fabric.address(host)} s{first if host < 2 else second}\n"
    for switch in (first, second):
        fabric.start_switch(switch)
    fabric.start_manager(text + GROUPS)
    with job.Job(bed, HOSTS) as work:
        go_on(work, fabric, fabric.rail, elements=f"{MIB},1000,1")
        await_carried(work, 4 << 20)
        for switch in (first, second):  # without groups it would be 3
            assert 2 <= frames_per_block(fabric, switch) < 2.5
        work.stop()
        work.succeed()


@pytest.mark.parametrize("since", ["the start", "later"])
def test_a_network_that_drops_multicast(bed: Testbed, fabric: Fabric, since: str) -> None:
    """A path to one host drops multicast: the session is lost, and the next one does not use multicast."""

    def flood(how: str) -> None:
        port = bed.rail(RAIL).port(2)
        bed.exec("sw", ["bridge", "link", "set", "dev", port, "mcast_flood", how])

    fabric.start_switch(SWITCHES[0])
    fabric.start_manager(fabric.star() + GROUPS)
    with job.Job(bed, HOSTS) as work, contextlib.ExitStack() as stack:
        stack.callback(flood, "on")
        if since == "the start":
            flood("off")
        go_on(work, fabric, fabric.rail, elements="100000,1000,1")
        if since == "later":
            await_carried(work, 1 << 20)
            assert frames_per_block(fabric, SWITCHES[0]) < 2
            flood("off")
        said = work.ranks[2].process
        said.wait_for("to the multicast group .* does not reach host h2", job.PATIENCE)
        assert fabric.manager is not None
        fabric.manager.wait_for(r"\(attempt 2\): 4 ranks", job.PATIENCE)
        await_carried(work, 4 << 20)
        assert frames_per_block(fabric, SWITCHES[0]) > 3
        work.stop()
        work.succeed()
        assert all(rank.rail("flare")["failures"] >= 1 for rank in work.ranks), work.told()


def test_multicast_with_loss(bed: Testbed, fabric: Fabric) -> None:
    """Lost results are requested again. Even heavy loss does not look like a lack of multicast."""
    fabric.start_switch(SWITCHES[0])
    fabric.start_manager(fabric.star() + GROUPS)
    with job.Job(bed, HOSTS) as work, contextlib.ExitStack() as stack:
        stack.callback(bed.loss, RAIL, 0)
        go_on(work, fabric, fabric.rail, elements=f"{MIB},1000,1")
        await_carried(work)
        bed.loss(RAIL, 5)
        await_carried(work, 8 << 20)
        bed.loss(RAIL, 0)
        work.stop()
        work.succeed()
        assert heard_all(work), work.told()


# At a switch: which blocks of each stream each host sends first. Prints [[host's address, session,
# [seq, ...]], ...] of the first COUNT contributions. Hosts send them in trains.
FIRST_CONTRIBUTIONS = """
import collections, json, socket, struct, sys
rail, port, count, size = sys.argv[1], *map(int, sys.argv[2:])
s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x0800))
s.setsockopt(socket.SOL_SOCKET, 33, 64 << 20)  # SO_RCVBUFFORCE: it is slower than they are
s.bind((rail, 0x0800))
print("ready", flush=True)
seen = collections.defaultdict(list)
while count > 0:
    packet = s.recv(1 << 16)
    if packet[23] != socket.IPPROTO_UDP or struct.unpack_from("!H", packet, 36) != (port,):
        continue
    for at in range(42, len(packet), size):
        kind, session, seq = struct.unpack_from("<B3xI4xI", packet, at)
        if kind & 15 == 1:
            seen[socket.inet_ntoa(packet[26:30]), session].append(seq)
            count -= 1
print(json.dumps([[*key, seqs] for key, seqs in seen.items()]), flush=True)
"""
DATAGRAM = 1472  # the largest datagram at the testbed's MTU


def beginnings(listener: Process, group: int) -> dict[str, list[int]]:
    """By host: the block of each group with which it began, for groups that arrived completely."""
    listed = json.loads(listener.wait_for(r"^\[.*\]$", job.PATIENCE)[0])
    found: dict[str, list[int]] = {}
    for host, _, seqs in listed:
        groups: dict[int, list[int]] = {}
        for seq in dict.fromkeys(seqs):  # without retransmissions
            groups.setdefault(seq // group, []).append(seq % group)
        whole = [places[0] for places in groups.values() if len(places) == group]
        found.setdefault(host, []).extend(whole)
    return found


def test_staggered_sending(bed: Testbed, fabric: Fabric) -> None:
    """Each host begins with a different block; lost blocks are sent again."""
    group = 32
    fabric.start_switch(SWITCHES[0])
    fabric.start_manager(fabric.star())
    listen = [PYTHON, "-c", FIRST_CONTRIBUTIONS, RAIL, "7100", "16000", str(DATAGRAM)]
    [listener] = bed.start(listen, on=[SWITCHES[0]])
    listener.wait_for("^ready$")
    with job.Job(bed, HOSTS) as work, contextlib.ExitStack() as stack:
        stack.callback(bed.loss, RAIL, 0)
        go_on(work, fabric, f"{fabric.rail}?stagger={group}", elements=f"{MIB},1000,1,20001")
        await_carried(work, 16 << 20)
        began = beginnings(listener, group)
        for host in range(HOSTS):
            places = began[fabric.address(host)]  # a few belong to a group that two operations share
            assert places.count(host * group // HOSTS) > len(places) / 2 > 0, (host, places)
        bed.loss(RAIL, 3)
        await_carried(work, 8 << 20)
        bed.loss(RAIL, 0)
        work.stop()
        work.succeed()
        assert any(rank.rail("flare")["resent"] for rank in work.ranks), work.told()


@pytest.mark.parametrize("manager", ["stays", "starts again"])
def test_no_multicast_group_is_left(bed: Testbed, fabric: Fabric, manager: str) -> None:
    """Each session has a group of its own or none, and a manager that returns knows which groups are used."""
    lease = 6
    text = fabric.star() + "multicast 239.192.0.0:7200 1\n"
    fabric.start_switch(SWITCHES[0])
    fabric.start_manager(text, lease=lease)
    with job.Job(bed, 2) as first, job.Job(bed, 2) as second:
        go_on(first, fabric, fabric.rail)
        await_carried(first)
        assert fabric.manager is not None
        if manager == "starts again":
            fabric.kill(fabric.manager)
            fabric.start_manager(text, lease=lease)
            # if the machine stalled, the ranks have asked for another session
            fabric.manager.wait_for(r"is taken over|\(attempt [2-9]", job.PATIENCE)
        go_on(second, fabric, fabric.rail)
        fabric.manager.wait_for("no multicast group is left; s4 sends results to each host")
        for work in (first, second):
            await_carried(work, 1 << 20)
            work.stop()
            work.succeed()


# Keeps 200 silent connections to ADDRESS PORT, and makes those again that end.
STRANGERS = """
import selectors, socket, sys
selector = selectors.DefaultSelector()
def connect():
    s = socket.socket()
    s.setblocking(False)
    s.connect_ex((sys.argv[1], int(sys.argv[2])))
    selector.register(s, selectors.EVENT_READ)
for _ in range(200):
    connect()
for ended in range(10**9):
    if ended == 200:
        print("all have been dropped", flush=True)
    for key, _ in selector.select()[:1]:
        selector.unregister(key.fileobj)
        key.fileobj.close()
        connect()
"""


@pytest.mark.parametrize("descriptors", [1024, 32])
def test_strangers_do_not_keep_out_the_manager(
    bed: Testbed, fabric: Fabric, descriptors: int
) -> None:
    """Foreign clients do no harm, neither by their number nor by using all descriptors."""
    switch, stranger = SWITCHES[:2]
    fabric.start_switch(switch, limited=descriptors)
    argv = [PYTHON, "-c", STRANGERS, fabric.address(switch), "7101"]
    [strangers] = bed.start(argv, on=[stranger])
    try:
        strangers.wait_for("all have been dropped", job.PATIENCE)
        fabric.start_manager(fabric.star())
        with job.Job(bed, 2) as work:
            go_on(work, fabric, fabric.rail)
            await_carried(work)
            work.stop()
            work.succeed()
    finally:
        end_sessions([strangers], gently=False)


KINDS = ["reduce", "broadcast"] if job.LONG else ["reduce"]


@pytest.mark.parametrize("collective", KINDS)
def test_roots_that_differ(bed: Testbed, fabric: Fabric, collective: str) -> None:
    """All ranks learn which rank names which root."""
    fabric.start_switch(SWITCHES[0])
    fabric.start_manager(fabric.star())
    shift = fabric.folder / "shift"
    with job.Job(bed, HOSTS) as work:
        options: dict[str, Any] = {"collective": collective, "rails": fabric.rail, "report": 1}
        options |= {"until": work.stop_file, "stay": work.stop_file, "elements": 1000}
        work.start(range(3), env=fabric.env, **options)
        work.start([3], env=fabric.env, **options, shift_root=shift)
        await_carried(work)
        shift.touch()
        kind = {"reduce": "reduce to", "broadcast": "broadcast from"}[collective]
        for rank in work.ranks:
            what = rank.wait_for("error")["what"]
            said = re.search(
                rf"rank (\d)(?: of 4)?: rank (\d) calls another operation by the tag 0: rank (\d)"
                rf" {kind} rank (\d) of 1000 elements; rank \2 {kind} rank (\d) of 1000"
                r" elements\. ",
                what,
            )
            assert said, what
            teller, other, own, mine, theirs = map(int, said.groups())  # another rank may have been first
            assert own == teller and (other == 3) == (teller != 3), what
            assert (theirs - mine) % HOSTS == (1 if other == 3 else HOSTS - 1), what
        work.stop()
        work.wait()


COLLECTIVES = ["broadcast", "reduce", "barrier"] if job.LONG else ["broadcast"]


@pytest.mark.parametrize("collective", COLLECTIVES)
def test_a_root_whose_switch_dies(bed: Testbed, fabric: Fabric, collective: str) -> None:
    """Ranks that are at different operations move from the switch to the hosts and back."""
    fabric.start_switch(SWITCHES[0])
    fabric.start_manager(fabric.star())
    with job.Job(bed, HOSTS) as work:
        options: dict[str, Any] = {"elements": "1000,1", "operations": 160, "pause": "0:40"}
        work.start(rails=fabric.rail, collective=collective, env=fabric.env, report=1, **options)
        await_carried(work)
        fabric.kill(fabric.switches[SWITCHES[0]])
        work.all_done(4)
        fabric.start_switch(SWITCHES[0])
        work.succeed()
        assert all(rank.rail("flare")["failures"] >= 1 for rank in work.ranks), work.told()


def test_more_threads_than_streams(bed: Testbed, fabric: Fabric) -> None:
    """Threads run operations in orders that differ from rank to rank; none waits for ever behind another."""
    fabric.start_switch(SWITCHES[0])
    fabric.start_manager(fabric.star())
    with job.Job(bed, HOSTS) as work:
        options: dict[str, Any] = {"pause": "0:20", "report": 1, "threads": 2 * STREAMS}
        options |= {"elements": "1,200000,100,20000", "operations": 160}
        work.start(rails=fabric.rail, env=fabric.env, **options)
        work.succeed()
        assert all(rank.rail("flare")["sent"] > 1 << 20 for rank in work.ranks), work.told()


def test_beside_a_tcp_rail(bed: Testbed, fabric: Fabric) -> None:
    """Each message is divided between the switch and the other rail."""
    fabric.start_switch(SWITCHES[0])
    fabric.start_manager(fabric.star())
    with job.Job(bed, HOSTS) as work:
        env = fabric.env | {"NEZHA_POLICY": "shuffle"}
        rails = f"tcp:{OTHER},{fabric.rail}"
        work.start(rails=rails, plan="auto", elements=f"{MIB},20000", until=work.stop_file, env=env)
        await_carried(work, 8 << 20)
        work.stop()
        work.succeed()
        assert all(rank.rail(OTHER)["sent"] > 1 << 20 for rank in work.ranks), work.told()


def by_the_switch(work: job.Job, *, least: int) -> dict[int, str]:
    """The hashes of the results that the switch has carried, by operation."""
    rank = work.ranks[0]
    done = [(event, event["rails"][-1]["received"]) for event in rank.all("done")]
    hashes = {
        event["operation"]: event["hash"]
        for (_, before), (event, after) in itertools.pairwise(done)
        if after > before
    }
    assert len(hashes) >= least, work.told()
    return hashes


def test_reproducible_sums(bed: Testbed, fabric: Fabric) -> None:
    """Any order of arrival gives the same bits, and with one switch those of the hosts' order."""
    fabric.start_switch(SWITCHES[0])
    fabric.start_manager(fabric.star())
    options: dict[str, Any] = {"elements": "1,1000,20000", "operations": 240, "float": 1}
    hosts = job.run(bed, HOSTS, rails=f"tcp:{RAIL}", reproducible=1, **options).hashes()
    for seed in (1, 2):
        with job.Job(bed, HOSTS) as work:
            rail = f"{fabric.rail}?reproducible=1"
            # The session exists after some operations.
            work.start(rails=rail, env=fabric.env, seed=seed, pause="0:5", late="1:20:1000", **options)
            work.succeed()
            work.hashes()
            for operation, result in by_the_switch(work, least=100).items():
                assert result == hosts[operation], operation


def test_ranks_that_differ_in_reproducible(bed: Testbed, fabric: Fabric) -> None:
    """There is no session, and the log says why; the hosts do the work."""
    fabric.start_switch(SWITCHES[0])
    fabric.start_manager(fabric.star())
    with job.Job(bed, 2) as work:
        go_on(work, fabric, fabric.rail, hosts=[0])
        go_on(work, fabric, f"{fabric.rail}?reproducible=1", hosts=[1])
        # Rank 0 knows this once all ranks have told it, so nobody waits for the manager.
        work.ranks[0].process.wait_for("asks for another session than others", 2 * job.SLACK)
        work.stop()
        work.succeed()
        assert all(rank.rail("flare")["sent"] == 0 for rank in work.ranks)


def test_two_tenants(bed: Testbed, fabric: Fabric) -> None:
    """Two jobs use one switch, which has no room for a third until one of them ends."""
    fabric.start_switch(SWITCHES[0])
    fabric.start_manager(fabric.star(), "--sessions", str(2 * STREAMS))
    with contextlib.ExitStack() as stack:
        jobs = [stack.enter_context(job.Job(bed, 2)) for _ in range(3)]
        for work in jobs[:2]:
            go_on(work, fabric, fabric.rail)
            await_carried(work, 1 << 20)
        assert fabric.sessions(SWITCHES[0]) == 2 * STREAMS
        go_on(jobs[2], fabric, fabric.rail)
        said = jobs[2].ranks[0].process
        said.wait_for(
            f"s4 is full: {2 * STREAMS} of its {2 * STREAMS} sessions are taken, and {STREAMS} are"
            " asked for",
            job.PATIENCE,
        )
        jobs[2].all_done(4)  # carried by the hosts
        jobs[0].stop()
        jobs[0].succeed()
        for work in jobs[1:]:
            await_carried(work, 1 << 20)
            work.stop()
            work.succeed()


def test_a_lease_runs_out(bed: Testbed, fabric: Fabric) -> None:
    """A rank is killed; the others are stopped before they learn of it, and give nothing back."""
    fabric.start_switch(SWITCHES[0])
    fabric.start_manager(fabric.star())
    with job.Job(bed, HOSTS) as work:
        go_on(work, fabric, fabric.rail)
        await_carried(work)
        for rank in work.ranks:
            fabric.kill(rank.process)
    assert fabric.manager is not None
    fabric.manager.wait_for(r"the lease of rank \d has run out", job.PATIENCE)
    job.await_that("no sessions", lambda: fabric.sessions(SWITCHES[0]) == 0)


def test_a_dead_rank_fails_the_others(bed: Testbed, fabric: Fabric) -> None:
    fabric.start_switch(SWITCHES[0])
    fabric.start_manager(fabric.star())
    with job.Job(bed, HOSTS) as work:
        go_on(work, fabric, fabric.rail, timeout=50000)
        await_carried(work)
        fabric.kill(work.ranks[3].process)
        work.wait(work.ranks[:3])
        for rank in work.ranks[:3]:
            assert rank.process.returncode and "rank 3" in rank.process.output, rank.told()


def test_a_manager_that_comes_back(bed: Testbed, fabric: Fabric) -> None:
    """The sessions stay, and the manager takes them over."""
    lease = 6  # longer than a slow machine needs until the manager is back
    fabric.start_switch(SWITCHES[0])
    fabric.start_manager(fabric.star(), lease=lease)
    with job.Job(bed, HOSTS) as work:
        go_on(work, fabric, fabric.rail)
        await_carried(work)
        assert fabric.manager is not None
        fabric.kill(fabric.manager)
        await_carried(work)
        fabric.start_manager(fabric.star(), lease=lease)
        # If the machine stalled, the ranks have asked for another session: see below.
        fabric.manager.wait_for(r"is taken over|\(attempt [2-9]", job.PATIENCE)
        since = time.monotonic()
        while time.monotonic() < since + 1.2 * lease:  # otherwise the leases would have run out
            await_carried(work)
        work.stop()
        work.succeed()
        # A stalled machine makes the switch seem lost, too; nothing else may have been lost.
        lost = [
            line
            for rank in work.ranks
            for line in rank.process.stderr.splitlines()
            if "is lost" in line
        ]
        told = "\n".join([*lost, fabric.manager.output])
        assert not lost or any("has said nothing" in line for line in lost), told
    fabric.manager.wait_for("is over", job.PATIENCE)
    job.await_that("no sessions", lambda: fabric.sessions(SWITCHES[0]) == 0)


def test_a_switch_that_dies(bed: Testbed, fabric: Fabric) -> None:
    """The switch dies in the middle of operations. The hosts complete them with right results until it
    is back."""
    fabric.start_switch(SWITCHES[0])
    fabric.start_manager(fabric.star())
    with job.Job(bed, HOSTS) as work:
        go_on(work, fabric, fabric.rail, elements=f"{4 * MIB},1000")
        await_carried(work, 1 << 20)
        fabric.kill(fabric.switches[SWITCHES[0]])
        work.all_done(4)
        assert all(rank.rail("flare")["failures"] >= 1 for rank in work.ranks), work.told()
        fabric.start_switch(SWITCHES[0])
        await_carried(work, 1 << 20)
        work.stop()
        work.succeed()


def test_another_tree(bed: Testbed, fabric: Fabric) -> None:
    """The tree has two levels, and avoids a switch that has died."""
    first, second, leaf = SWITCHES
    text = "".join(fabric.switch_line(switch) for switch in SWITCHES)
    text += f"link s{first} s{leaf}\nlink s{second} s{leaf}\n"
    for host in range(HOSTS):
        linked = [first, second] if host < 2 else [leaf]
        text += "".join(f"host {fabric.address(host)} s{switch}\n" for switch in linked)
    for switch in SWITCHES:
        fabric.start_switch(switch)
    fabric.start_manager(text)
    with job.Job(bed, HOSTS) as work:
        go_on(work, fabric, fabric.rail)
        await_carried(work)
        assert fabric.sessions(leaf) == STREAMS
        [used] = [switch for switch in (first, second) if fabric.sessions(switch)]
        fabric.kill(fabric.switches.pop(used))
        await_carried(work, 1 << 20)
        [other] = {first, second} - {used}
        assert fabric.sessions(other) == STREAMS
        work.stop()
        work.succeed()


def other_secret(fabric: Fabric) -> Path:
    path = fabric.folder / "other"
    path.write_text(secrets.token_hex(32))
    return path


def refusal(fabric: Fabric, rank: str, other: Path) -> str:
    """The log of a rank whose secret differs from the manager's."""
    at = re.escape(fabric.at(MANAGED_BY, 7000))
    return (
        rf"the manager at {at} and rank {rank} of {HOSTS} of job [0-9a-f]{{8}} do not accept each "
        r"other: the secrets differ, or the versions of nezha do \(.*\); the file of "
        rf"NEZHA_FLARE_SECRET \({re.escape(str(other))} at rank {rank}\) must hold the same secret "
        "as the manager's of --secret"
    )


def test_a_rank_of_another_secret(bed: Testbed, fabric: Fabric) -> None:
    """The rank and the manager report who is refused, why, and what to do. The operations go on."""
    fabric.start_switch(SWITCHES[0])
    fabric.start_manager(fabric.star())
    assert fabric.manager is not None
    odd = 2
    other = other_secret(fabric)
    with job.Job(bed, HOSTS) as work:
        options = {"rails": fabric.rail, "elements": 1000, "until": work.stop_file, "report": 1}
        work.start([0, 1, 3], env=fabric.env, **options)
        work.start([odd], env=fabric.env | {"NEZHA_FLARE_SECRET": str(other)}, **options)
        address = re.escape(fabric.address(odd))
        fabric.manager.wait_for(
            rf"nezha warning \[host h{MANAGED_BY}, pid \d+\]: nezha-manager: the connection from "
            rf"{address}:\d+ is refused: rank {odd} of {HOSTS} of job [0-9a-f]{{8}} has another "
            r"secret \(.*\); the ranks' files of NEZHA_FLARE_SECRET must hold .* --secret$",
            job.PATIENCE,
        )
        said = refusal(fabric, str(odd), other)
        work.ranks[odd].process.wait_for(
            rf"nezha warning \[rank {odd} of .*\]: no in-network computing: {said}", job.PATIENCE
        )
        work.all_done(2)
        work.stop()
        work.succeed()
        assert all(rank.rail("flare")["sent"] == 0 for rank in work.ranks)


def test_all_ranks_of_another_secret(bed: Testbed, fabric: Fabric) -> None:
    """The ranks try again and again, but each is reported once; rank 0 says why there is no session."""
    fabric.start_switch(SWITCHES[0])
    fabric.start_manager(fabric.star())
    assert fabric.manager is not None
    other = other_secret(fabric)
    with job.Job(bed, HOSTS) as work:
        env = fabric.env | {"NEZHA_FLARE_SECRET": str(other)}
        work.start(rails=fabric.rail, elements=1000, until=work.stop_file, report=1, env=env)
        said = refusal(fabric, r"\d", other)
        work.ranks[0].process.wait_for(
            rf"nezha warning \[rank 0 of .*\]: .* tried again in 4 s: rank \d: {said}", job.PATIENCE
        )
        for rank in work.ranks:
            assert rank.process.stderr.count("no in-network computing: ") == 1, work.told()
            told = re.findall(rf"is refused: rank {rank.number} of ", fabric.manager.stderr)
            assert len(told) == 1, fabric.manager.stderr
        work.all_done(2)
        work.stop()
        work.succeed()
        assert all(rank.rail("flare")["sent"] == 0 for rank in work.ranks)


def test_a_switch_of_another_secret(bed: Testbed, fabric: Fabric) -> None:
    """Switch and manager report it; the ranks' log says why there is no session."""
    good, fabric.secret = fabric.secret, other_secret(fabric)
    fabric.start_switch(SWITCHES[0])
    switch = fabric.switches.pop(SWITCHES[0])
    fabric.secret = good
    try:
        fabric.start_manager(fabric.star())
        assert fabric.manager is not None
        process = rf"pid \d+ on host h{MANAGED_BY}"
        switch.wait_for(
            rf"nezha-switch: a connection from {re.escape(fabric.address(MANAGED_BY))} is refused: "
            rf"the nezha-manager that is {process} has another secret \(.*\); .* --secret must",
            job.PATIENCE,
        )
        why = (
            rf"s{SWITCHES[0]} at {re.escape(fabric.at(SWITCHES[0], 7101))} and its manager do not "
            r"accept each other: the secrets differ, or the versions of nezha do \(.*\); "
            "their files of --secret must hold the same secret"
        )
        fabric.manager.wait_for(f"nezha-manager: {why}", job.PATIENCE)
        with job.Job(bed, HOSTS) as work:
            go_on(work, fabric, fabric.rail)
            work.ranks[0].process.wait_for(why, job.PATIENCE)
            work.stop()
            work.succeed()
        # The manager has continued to connect, every half second.
        assert switch.stderr.count("is refused") == 1
        assert fabric.manager.stderr.count("nezha-manager: s4 at ") == 1
    finally:
        end_sessions([switch], gently=False)


# On a host: connects COUNT times to ADDRESS:PORT, and sends something that is not TLS.
FLOOD = """
import socket, sys
address, port, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
for number in range(count):
    with socket.create_connection((address, port)) as s:
        s.sendall(b"GET / HTTP/1.0\\r\\n\\r\\n")
        s.recv(1000)
"""


def test_strangers_do_not_flood_the_log(bed: Testbed, fabric: Fabric) -> None:
    """The manager and the switch log one line for each host."""
    fabric.start_switch(SWITCHES[0])
    fabric.start_manager(fabric.star())
    assert fabric.manager is not None
    for host in (0, 1):
        for at, port in ((MANAGED_BY, 7000), (SWITCHES[0], 7101)):
            bed.exec(host, [PYTHON, "-c", FLOOD, fabric.address(at), str(port), "100"])
    for process in (fabric.manager, fabric.switches[SWITCHES[0]]):
        for host in (0, 1):
            address = re.escape(fabric.address(host))
            process.wait_for(rf"from {address}(:\d+)? is refused: it shows no secret", job.PATIENCE)
        assert process.stderr.count("is refused") == 2, process.stderr


# On a host: connects to $1 as NAME-1, NAME-2, ... with a secret that differs from the manager's.
INVENTED = """
for number in $(seq 1 $3); do
  openssl s_client -connect "$1" -psk_identity "$2:NAME-$number" -psk 00112233445566778899 </dev/null
done >/dev/null 2>&1
true
"""


def test_invented_names_do_not_hide_others(bed: Testbed, fabric: Fabric) -> None:
    """A client that changes its name each time is reported once, and so is another host."""
    fabric.start_switch(SWITCHES[0])
    fabric.start_manager(fabric.star())
    assert fabric.manager is not None
    for host, names in ((0, "40"), (1, "1")):
        at = f"{fabric.address(MANAGED_BY)}:7000"
        bed.exec(host, ["bash", "-c", INVENTED, "bash", at, "nezha-manager", names])
    for host in (0, 1):
        address = re.escape(fabric.address(host))
        fabric.manager.wait_for(rf"from {address}:\d+ is refused: .*NAME-1\b", job.PATIENCE)
    assert fabric.manager.stderr.count("is refused") == 2, fabric.manager.stderr


def test_bad_options(bed: Testbed, fabric: Fabric) -> None:
    at = ["--listen", f"{fabric.address(MANAGED_BY)}:7000"]
    path = fabric.folder / "fabric"
    path.write_text("switch a\n")
    secret = ["--secret", str(fabric.secret)]
    good = [*at, *secret, "--fabric", str(path)]
    cases: list[tuple[list[str], int, str]] = [
        ([], 2, f"--listen is missing\n{HELP}"),
        (at, 2, f"--fabric is missing\n{HELP}"),
        ([*good, "--lease", "0"], 2, f"--lease '0': a number from 1 to 3600\n{HELP}"),
        (good, 1, f"{path}: line 1: 'switch' takes 3 values, not 1"),
    ]
    for options, code, error in cases:
        done = bed.exec(MANAGED_BY, [MANAGER, *options], check=False, timeout=10)
        assert (done.returncode, done.stderr) == (code, f"nezha-manager: {error}\n")
    assert "\n  link leaf1 spine1 " in bed.exec(MANAGED_BY, [MANAGER, "--help"]).stdout
