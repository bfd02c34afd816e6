# SPDX-License-Identifier: Apache-2.0
"""nezha-manager: tenants, leases, switches that die, secrets, and foreign clients."""

from __future__ import annotations

import contextlib
import re
import secrets
import time
from pathlib import Path

import fabrics
import job
import pytest
from fabrics import HOSTS, MANAGED_BY, MANAGER, MIB, STREAMS, SWITCHES, Fabric, await_carried, go_on
from probes import PYTHON
from processes import end_sessions
from testbed import Testbed

bed, fabric = fabrics.bed, fabrics.fabric  # the fixtures
HELP = "Try nezha-manager --help."


def test_two_tenants(bed: Testbed, fabric: Fabric) -> None:
    """Two jobs use one switch, which has no room for a third job until one of them ends."""
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
    """All ranks are killed before they learn of each other's death, and none ends its session."""
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
        while time.monotonic() < since + 1.2 * lease:  # longer than a lease
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
    """The switch dies in the middle of operations. Until it is back, the hosts complete all
    operations with right results."""
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
            rf"nezha warning \[rank {odd} of .*\]: in-network computing is not available: {said}",
            job.PATIENCE,
        )
        work.all_done(2)
        work.stop()
        work.succeed()
        assert all(rank.rail("flare")["sent"] == 0 for rank in work.ranks)


def test_all_ranks_of_another_secret(bed: Testbed, fabric: Fabric) -> None:
    """The ranks keep trying, but each is reported once. Rank 0 says why there is no session."""
    fabric.start_switch(SWITCHES[0])
    fabric.start_manager(fabric.star())
    assert fabric.manager is not None
    other = other_secret(fabric)
    with job.Job(bed, HOSTS) as work:
        env = fabric.env | {"NEZHA_FLARE_SECRET": str(other)}
        work.start(rails=fabric.rail, elements=1000, until=work.stop_file, report=1, env=env)
        said = refusal(fabric, r"\d", other)
        work.ranks[0].process.wait_for(
            rf"nezha warning \[rank 0 of .*\]: .* nezha tries again in 4 s: rank \d: {said}", job.PATIENCE
        )
        for rank in work.ranks:
            assert rank.process.stderr.count("in-network computing is not available: ") == 1, work.told()
            told = re.findall(rf"is refused: rank {rank.number} of ", fabric.manager.stderr)
            assert len(told) == 1, fabric.manager.stderr
        work.all_done(2)
        work.stop()
        work.succeed()
        assert all(rank.rail("flare")["sent"] == 0 for rank in work.ranks)


def test_a_switch_of_another_secret(bed: Testbed, fabric: Fabric) -> None:
    """Switch and manager report different secrets. The ranks' log says why there is no session."""
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
        # The manager has kept connecting every half second.
        assert switch.stderr.count("is refused") == 1
        assert fabric.manager.stderr.count("nezha-manager: s4 at ") == 1
    finally:
        end_sessions([switch], gently=False)


# Keeps 200 silent connections to ADDRESS and PORT, and replaces each one that ends.
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
    """Foreign clients do no harm by their number, nor by using all descriptors."""
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
    """A client that changes its name each time is reported once. Another host's client is, too."""
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
        ([*good, "--lease", "0"], 2, f"--lease '0': not a number from 1 to 3600\n{HELP}"),
        (good, 1, f"{path}: line 1: 'switch' takes 3 values, not 1"),
    ]
    for options, code, error in cases:
        done = bed.exec(MANAGED_BY, [MANAGER, *options], check=False, timeout=10)
        assert (done.returncode, done.stderr) == (code, f"nezha-manager: {error}\n")
    assert "\n  link leaf1 spine1 " in bed.exec(MANAGED_BY, [MANAGER, "--help"]).stdout
