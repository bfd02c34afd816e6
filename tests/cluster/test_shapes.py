# SPDX-License-Identifier: Apache-2.0
"""Clusters of unusual shapes: addresses, ports, names, users, orders of starting."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import job
import pytest
from system_tools import tool
from testbed import Testbed

RAILS = {"eth0": "1gbit", "eth1": "500mbit"}
BOTH = job.rails_option(RAILS)
MIB = 1 << 18  # elements
USUAL: dict[str, Any] = {"elements": f"0,1,1001,16384,{MIB + 1},{4 * MIB}", "operations": 12}
NOBODY = 65534


@pytest.fixture(scope="module")
def bed() -> Iterator[Testbed]:
    with Testbed(hosts=4, rails=RAILS, ipv6=True) as bed:
        yield bed


def check_carried(work: job.Job, *rails: str) -> None:
    """Each rank has sent a good part on each of these rails."""
    for rank in work.ranks:
        for rail in rails:
            assert rank.rail(rail)["sent"] > MIB, rank.told()
            assert not rank.rail(rail)["failures"], rank.told()


# ---- addresses --------------------------------------------------------------------------------


def test_ipv6_only() -> None:
    with Testbed(hosts=3, rails=RAILS, ipv4=False, ipv6=True) as bed:
        check_carried(job.run(bed, rails=BOTH, **USUAL), *RAILS)
        check_carried(job.run(bed, rails="auto", **USUAL), "fd00::/64", "fd01::/64")


@pytest.mark.parametrize("families", ["66", "46"])
def test_address_families(bed: Testbed, families: str) -> None:
    rails = ",".join(f"tcp:{name}?family={one}" for name, one in zip(RAILS, families))
    packets = {
        name: bed.counters(0, name)["tx_packets"] for name in RAILS
    }  # of both families; check_carried() reads the rail's own counters
    check_carried(job.run(bed, rails=rails, **USUAL), *RAILS)
    for name in RAILS:
        assert bed.counters(0, name)["tx_packets"] > packets[name]


def test_families_that_differ(bed: Testbed) -> None:
    """Ranks that use different families cannot connect on that rail, and an error says so."""
    with job.Job(bed, 2) as work:
        work.start([0], elements=1, rails="tcp:eth0?family=4", timeout=2000)
        work.start([1], elements=1, rails="tcp:eth0?family=6", timeout=2000)
        work.wait()
        assert any("family" in rank.wait_for("error")["what"] for rank in work.ranks), work.told()


def test_two_ports_on_one_network() -> None:
    rails = {"eth0": "500mbit", "eth1": "500mbit@eth0"}
    with Testbed(hosts=3, rails=rails) as bed:
        sent = {name: bed.counters(0, name)["tx_bytes"] for name in rails}
        check_carried(job.run(bed, rails=job.rails_option(rails), **USUAL), *rails)
        for name in rails:  # on the reported port
            assert bed.counters(0, name)["tx_bytes"] - sent[name] > MIB


# ---- ports ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def patchy() -> Iterator[Testbed]:
    """Four hosts; host 2 lacks a port on eth1, host 3 one on eth0."""
    without = ["2:eth1", "3:eth0"]
    with Testbed(hosts=4, rails=RAILS, without=without) as bed:
        yield bed


def test_host_without_a_port(patchy: Testbed) -> None:
    with job.Job(patchy, 3) as work:
        work.start([0, 1], rails=BOTH, **USUAL)
        work.start([2], rails="tcp:eth0", **USUAL)
        work.succeed()
        assert work.ranks[0].rail("eth1")["sent"] > MIB  # to host 1


def test_no_rail_in_common(patchy: Testbed) -> None:
    """Hosts 2 and 3 share no rail. All ranks get errors, and those of hosts 2 and 3 say so."""
    with job.Job(patchy, 4) as work:
        options: dict[str, Any] = {"elements": 1000, "algorithm": "ring", "timeout": 3000}
        work.start([0, 1], rails=BOTH, **options)
        work.start([2], rails="tcp:eth0", **options)
        work.start([3], rails="tcp:eth1", **options)
        work.wait()
        for rank in work.ranks:
            what = rank.wait_for("error")["what"]
            if rank.number in (2, 3):
                assert "no rail in common" in what, work.told()


def test_port_that_is_not_there(patchy: Testbed) -> None:
    with job.Job(patchy, 3) as work:
        [rank] = work.start([2], elements=1, rails=BOTH)
        error = rank.wait_for("error")
        assert error["type"] == "InvalidArgument", error
        assert "eth1" in error["what"], error


def test_cable_out_from_the_start(bed: Testbed) -> None:
    """One rail is down when the ranks start, and comes up later."""
    bed.cut(1, "eth1")
    try:
        with job.Job(bed, 3) as work:
            work.start(elements=f"1,{MIB}", until=work.stop_file, pause="0:5", rails=BOTH)
            work.all_done(4)
            bed.heal(1, "eth1")
            job.await_that(
                "host 1 sends by eth1",
                lambda: work.ranks[1].rail("eth1")["sent"] > 4 * MIB,
                tell=work.told,
            )
            work.stop()
            work.succeed()
    finally:
        bed.heal(1, "eth1")


# ---- names ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "plan", [{"plan": "stripe"}, {"plan": "slice", "shares": "2,1"}], ids=["stripe", "slice"]
)
def test_rail_names(bed: Testbed, plan: dict[str, Any]) -> None:
    """Rails are matched by name, whatever the interfaces' names are."""
    rails = "tcp:eth0?rail=blue,tcp:eth1?rail=red"
    check_carried(job.run(bed, rails=rails, **plan, **USUAL), "blue", "red")


@pytest.mark.parametrize(
    "plan", [{"plan": "stripe"}, {"plan": "slice", "shares": "1,1"}], ids=["stripe", "slice"]
)
def test_rails_in_another_order(bed: Testbed, plan: dict[str, Any]) -> None:
    with job.Job(bed, 3) as work:
        work.start([0, 2], rails=BOTH, **plan, **USUAL)
        work.start([1], rails=job.rails_option(["eth1", "eth0"]), **plan, **USUAL)
        work.succeed()
        check_carried(work, *RAILS)


def test_names_that_differ(bed: Testbed) -> None:
    with job.Job(bed, 2) as work:
        work.start([0], elements=1, rails="tcp:eth0?rail=blue", timeout=2000)
        work.start([1], elements=1, rails="tcp:eth0?rail=red", timeout=2000)
        work.wait()
        for rank in work.ranks:
            assert "no rail in common" in rank.wait_for("error")["what"], work.told()


# ---- ranks ------------------------------------------------------------------------------------


@pytest.mark.parametrize("ranks_per_host", [2, 3])
def test_several_ranks_a_host(bed: Testbed, ranks_per_host: int) -> None:
    job.run(bed, 4 * ranks_per_host, ranks_per_host, rails=BOTH, **USUAL)


def test_all_ranks_on_one_host(bed: Testbed) -> None:
    job.run(bed, 4, 4, rails=BOTH, **USUAL)


@pytest.mark.parametrize("order", [[3, 2, 1, 0], [1, 3, 0, 2]], ids=str)
def test_any_order_of_starting(bed: Testbed, order: list[int]) -> None:
    """Each rank starts after the one before it has joined, if rank 0 has started."""
    with job.Job(bed, 4) as work:
        for host in order:
            [rank] = work.start([host], rails=BOTH, **USUAL)
            if host == 0 or 0 in order[: order.index(host)]:
                rank.wait_for("joined")
        work.succeed()


def test_starts_seconds_apart(bed: Testbed) -> None:
    work = job.run(bed, 4, rails=BOTH, delay="0:3000", **USUAL)
    assert not any(rank.rail(rail)["failures"] for rank in work.ranks for rail in RAILS)


# ---- users ------------------------------------------------------------------------------------


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that other users can open. pytest closes its own folders to them at each start."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o777)
        yield Path(folder)


def test_without_root(open_folder: Path) -> None:
    """An ordinary user runs a testbed of its own, with the testbed's command line."""
    testbed = str(Path(__file__).parents[2] / "testbed" / "testbed")
    store = open_folder / "store"
    store.mkdir()
    store.chmod(0o777)
    ids = [f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
    become = [tool("setpriv"), *ids] if os.geteuid() == 0 else []
    rails = [word for name, rate in RAILS.items() for word in ("--rail", f"{name}={rate}")]
    build = [testbed, "-p", "of_a_user", "with", "--hosts", "3", *rails]
    work = [job.WORKER, "--store", str(store), "--rails", BOTH]
    for name, value in USUAL.items():
        work += [f"--{name}", str(value)]
    done = subprocess.run(
        [*become, *build, "--", testbed, "run", "--", *work],
        capture_output=True,
        text=True,
        timeout=job.PATIENCE,
        cwd="/",
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr
    assert done.stdout.count('"event":"end"') == 3
