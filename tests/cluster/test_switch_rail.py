# SPDX-License-Identifier: Apache-2.0
"""Operations of contexts that a switch carries, alone or beside another rail."""

from __future__ import annotations

import contextlib
import itertools
import json
import re
from typing import Any

import fabrics
import job
import pytest
from fabrics import HOSTS, MIB, OTHER, RAIL, STREAMS, SWITCHES, Fabric, await_carried, go_on
from probes import PYTHON
from processes import Process
from testbed import Testbed

bed, fabric = fabrics.bed, fabrics.fabric  # the fixtures


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
    """An interface that was made anew reaches the switch again, from a port of the range."""
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
    """The switch carries a byte for each barrier, and the sums by which the ranks learn to stop."""
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


# Runs at a switch, and prints the order in which each host sends the blocks of each stream, for the
# first COUNT contributions: [[host's address, session, [seq, ...]], ...]. They come in trains.
FIRST_CONTRIBUTIONS = """
import collections, json, socket, struct, sys
rail, port, count, size = sys.argv[1], *map(int, sys.argv[2:])
s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x0800))
s.setsockopt(socket.SOL_SOCKET, 33, 64 << 20)  # SO_RCVBUFFORCE: this program is slow
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
    """Threads run operations in another order on each rank, and none waits forever for another."""
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
    """Any order of arrival gives the same bits, and one switch gives the same bits as the hosts."""
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
