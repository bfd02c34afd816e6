# SPDX-License-Identifier: Apache-2.0
"""Interfaces that change during a job: made anew, with other addresses, or in unimportant ways."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from typing import Any

import job
import pytest
from testbed import Testbed

RAILS = ["eth0", "eth1"]
TWO = job.rails_option(RAILS)
MIB = 1 << 18  # elements


@pytest.fixture(autouse=True)
def logged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEZHA_LOG", "info")


@pytest.fixture
def bed() -> Iterator[Testbed]:
    with Testbed(hosts=3, rails=dict.fromkeys(RAILS, "500mbit")) as bed:
        yield bed


def ip(bed: Testbed, host: int, *words: str) -> None:
    bed.exec(host, ["ip", *words])


def set_descriptors(rank: job.Rank, most: int) -> None:
    """Limits the descriptors of the process to `most`, which may be fewer than it has open."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.prlimit(rank.process.pid, resource.RLIMIT_NOFILE, (most, hard))


def test_a_look_needs_no_descriptor(bed: Testbed) -> None:
    """If a process can open no more descriptors, no rail fails because its interface changed."""
    with job.Job(bed) as work:
        work.start(elements=MIB, until=work.stop_file, rails=TWO, timeout=10000)
        work.all_done(3)
        for rank in work.ranks:
            set_descriptors(rank, 3)
        for host in range(bed.hosts):
            for rail in RAILS:
                ip(bed, host, "link", "set", rail, "txqueuelen", "999")
        work.all_done(10)
        for rank in work.ranks:
            set_descriptors(rank, 256)
        work.stop()
        work.succeed()
        for rank in work.ranks:
            for rail in RAILS:
                assert "interface" not in rank.rail(rail)["last_failure"], work.told()


# ---- another interface of the same name -------------------------------------------------------


def carried(rank: job.Rank, rail: str) -> tuple[int, int]:
    counters = rank.rail(rail)
    return counters["sent"], counters["received"]


def carries_again(work: job.Job, rail: str) -> None:
    """From now on, every rank sends and receives on the rail."""
    work.all_done(1)
    before = [carried(rank, rail) for rank in work.ranks]

    def more() -> bool:
        now = [carried(rank, rail) for rank in work.ranks]
        return all(n[0] > b[0] and n[1] > b[1] for n, b in zip(now, before))

    job.await_that(f"{rail} carries both ways", more, tell=work.told)


def listeners(bed: Testbed, host: int) -> list[str]:
    """Where processes listen, as ADDRESS%INTERFACE:PORT, or with %ifN if the interface is gone."""
    text = bed.exec(host, ["ss", "-Htln"]).stdout
    return sorted(line.split()[3] for line in text.splitlines())


@pytest.mark.parametrize("hosts", [[1], [1, 2], [0, 1, 2]])
def test_renewed(bed: Testbed, hosts: list[int]) -> None:
    """The rail works again between all hosts, with the address and port that peers know."""
    with job.Job(bed) as work:
        work.start(elements=MIB, until=work.stop_file, rails=TWO, algorithm="direct")
        work.all_done(3)
        before = [listeners(bed, host) for host in range(bed.hosts)]
        for host in hosts:
            bed.renew(host, "eth1")
        for host in hosts:
            job.await_that(
                "the same listeners", lambda: listeners(bed, host) == before[host], tell=work.told
            )
            for peer in {0, 1, 2} - {host}:
                up = rf"the link to rank {peer} of 3 .* on eth1 is up again"
                work.ranks[host].process.wait_for(up, job.PATIENCE)
        carries_again(work, "eth1")
        work.stop()
        work.succeed()


def test_the_only_one_is_renewed(bed: Testbed) -> None:
    """The listener returns with the address, and packets of old connections do not end the job."""
    with job.Job(bed) as work:
        work.start(elements=1000, pause="300:300", until=work.stop_file, rails="tcp:eth0")
        work.all_done(2)
        before = listeners(bed, 1)
        bed.renew(1, "eth0")
        job.await_that("the listener", lambda: listeners(bed, 1) == before, tell=work.told)
        work.all_done(3)
        work.stop()
        work.succeed()


# ---- addresses --------------------------------------------------------------------------------


def refused(bed: Testbed, rails: str, **options: Any) -> str:
    """The error of a single rank on host 1."""
    with job.Job(bed, 2) as work:
        [rank] = work.start([1], elements=1, rails=rails, timeout=8000, **options)
        work.wait()
        assert rank.process.returncode, work.told()
        return rank.process.stdout + rank.process.stderr


def test_labels_hide_no_address(bed: Testbed) -> None:
    for host in range(bed.hosts):
        ip(bed, host, "addr", "flush", "dev", "eth0")
        ip(bed, host, "addr", "add", f"10.0.0.{host + 1}/16", "dev", "eth0", "label", "eth0:1")
    job.run(bed, elements=MIB, rails="tcp:eth0")
    job.run(bed, elements=MIB, rails="auto")


def test_one_can_be_named(bed: Testbed) -> None:
    for host in range(bed.hosts):
        ip(bed, host, "addr", "add", f"10.77.0.{host + 1}/24", "dev", "eth0")
    with job.Job(bed) as work:
        for host in range(bed.hosts):
            rail = f"tcp:eth0?address=10.77.0.{host + 1}"
            work.start([host], elements=MIB, until=work.stop_file, rails=rail)
        work.all_done(1)
        for host in range(bed.hosts):
            assert [each.split("%")[0] for each in listeners(bed, host)] == [f"10.77.0.{host + 1}"]
        work.stop()
        work.succeed()
    told = refused(bed, "tcp:eth0?address=10.77.0.9")
    assert "10.77.0.9 is no address of the interface 'eth0'" in told
    assert "10.0.0.2/16, 10.77.0.2/24" in told
    assert "'eth0' is not an address" in refused(bed, "tcp:eth0?address=eth0")


@pytest.fixture
def bed6() -> Iterator[Testbed]:
    rails = dict.fromkeys(RAILS, "500mbit")
    with Testbed(hosts=2, rails=rails, ipv4=False, ipv6=True) as bed:
        yield bed


def own6(bed: Testbed, host: int) -> str:
    """The host's address on eth0."""
    words = ["ip", "-6", "-o", "addr", "show", "dev", "eth0", "scope", "global"]
    return bed.exec(host, words).stdout.split()[3].split("/")[0]


def listens_at(bed: Testbed, host: int, wanted: str) -> bool:
    return any(each.startswith(f"[{wanted}]%eth0:") for each in listeners(bed, host))


def runs_at(bed: Testbed, host: int, wanted: str) -> None:
    """Runs a job on eth0. The rank on `host` must listen at the address `wanted`."""
    with job.Job(bed) as work:
        work.start(elements=MIB, until=work.stop_file, rails="tcp:eth0")
        work.all_done(1)
        assert listens_at(bed, host, wanted), listeners(bed, host)
        work.stop()
        work.succeed()


def check_duplicates(bed: Testbed, host: int) -> None:
    bed.exec(host, ["sh", "-c", "echo 1 > /proc/sys/net/ipv6/conf/eth0/accept_dad"])
    bed.exec(host, ["sh", "-c", "echo 0 > /proc/sys/net/ipv6/conf/all/accept_dad"])


def shows(bed: Testbed, host: int, flag: str) -> bool:
    words = ["ip", "-6", "-o", "addr", "show", "dev", "eth0", "scope", "global", flag]
    return bool(bed.exec(host, words).stdout)


def test_a_duplicate_is_not_taken(bed6: Testbed) -> None:
    """Host 0 has the address, but as deprecated, so that it does not send from it. It would get no
    answer, because host 1 has a route to itself for the address."""
    good, other = own6(bed6, 1), "fd00::77"
    life = ["valid_lft", "600", "preferred_lft", "0"]
    ip(bed6, 0, "-6", "addr", "add", f"{other}/64", "dev", "eth0", *life)
    check_duplicates(bed6, 1)
    ip(bed6, 1, "-6", "addr", "add", f"{other}/64", "dev", "eth0")
    job.await_that("dadfailed", lambda: shows(bed6, 1, "dadfailed"))
    runs_at(bed6, 1, good)
    told = refused(bed6, f"tcp:eth0?address={other}")
    assert f"{other}/64 (duplicate: another host has it)" in told, told


def test_a_tentative_one_is_waited_for(bed6: Testbed) -> None:
    good = own6(bed6, 1)
    check_duplicates(bed6, 1)
    ip(bed6, 1, "-6", "addr", "flush", "dev", "eth0", "scope", "global")
    ip(bed6, 1, "-6", "addr", "add", f"{good}/64", "dev", "eth0")
    assert shows(bed6, 1, "tentative")
    runs_at(bed6, 1, good)


@pytest.mark.parametrize("lifetimes", [(600, 300), (600, 0)], ids=["passing", "deprecated"])
def test_one_that_stays_is_taken(bed6: Testbed, lifetimes: tuple[int, int]) -> None:
    good = own6(bed6, 0)
    valid, preferred = map(str, lifetimes)
    life = ["valid_lft", valid, "preferred_lft", preferred]
    ip(bed6, 0, "-6", "addr", "add", "fd99::abcd/64", "dev", "eth0", *life)
    runs_at(bed6, 0, good)
    ip(bed6, 0, "-6", "addr", "del", f"{good}/64", "dev", "eth0")
    with job.Job(bed6, 1) as work:
        work.start([0], elements=1000, until=work.stop_file, rails="tcp:eth0")
        work.all_done(1)
        assert listens_at(bed6, 0, "fd99::abcd"), "the host's only address must be used"
        work.stop()
        work.succeed()


def test_an_address_goes_and_another_is_there(bed: Testbed) -> None:
    """The rail moves to the other address, and back when the first one returns."""
    with job.Job(bed) as work:
        work.start(elements=MIB, until=work.stop_file, rails=TWO, algorithm="direct")
        work.all_done(3)
        before = listeners(bed, 1)
        [first] = [each for each in before if each.startswith("10.1.0.2%")]
        ip(bed, 1, "addr", "add", "10.1.9.2/15", "dev", "eth1")
        ip(bed, 1, "addr", "del", "10.1.0.2/16", "dev", "eth1")
        moved = first.replace("10.1.0.2", "10.1.9.2")
        job.await_that("the other address", lambda: moved in listeners(bed, 1), tell=work.told)
        carries_again(work, "eth1")
        ip(bed, 1, "addr", "add", "10.1.0.2/16", "dev", "eth1")
        job.await_that("the first one", lambda: listeners(bed, 1) == before, tell=work.told)
        carries_again(work, "eth1")
        work.stop()
        work.succeed()


def test_the_only_address_goes(bed: Testbed) -> None:
    """The rail is down until its address is back."""
    with job.Job(bed) as work:
        work.start(elements=MIB, until=work.stop_file, rails=TWO, algorithm="direct")
        work.all_done(3)
        ip(bed, 1, "addr", "del", "10.1.0.2/16", "dev", "eth1")
        why = "the interface has lost its address"
        job.await_that(
            why, lambda: why in work.ranks[1].rail("eth1")["last_failure"], tell=work.told
        )
        work.all_done(3)
        ip(bed, 1, "addr", "add", "10.1.0.2/16", "dev", "eth1")
        carries_again(work, "eth1")
        work.stop()
        work.succeed()


# ---- ports ------------------------------------------------------------------------------------


@pytest.mark.parametrize("by", ["option", "environment"])
def test_a_range_of_ports(by: str) -> None:
    """Two ranks on each of two hosts, with two rails, use two ports of each address."""
    with Testbed(hosts=2, rails=dict.fromkeys(RAILS, "500mbit"), ranks_per_host=2) as bed:
        with job.Job(bed, ranks_per_host=2) as work:
            options: dict[str, Any] = {"ports": "21000-21001"} if by == "option" else {}
            env = {"NEZHA_PORTS": "21000-21001"} if by == "environment" else {}
            work.start(env=env, elements=MIB, until=work.stop_file, rails=TWO, **options)
            work.all_done(1)
            for host in range(bed.hosts):
                assert listeners(bed, host) == [
                    f"10.{rail}.0.{host + 1}%eth{rail}:{port}"
                    for rail in range(2)
                    for port in (21000, 21001)
                ]
            told = refused(bed, "tcp:eth1", ports="21000-21001")
            assert "no port of 21000-21001 is free at 10.1.0.2 on eth1" in told, told
            assert "NEZHA_PORTS" in told
            work.stop()
            work.succeed()
        job.run(bed, elements=1, ranks_per_host=2, rails=TWO, ports="21000-21001")


def test_bad_ranges_of_ports(bed: Testbed) -> None:
    for ports in ["21000", "2-1", "0-9", "1-65536"]:
        told = refused(bed, "tcp:eth0", ports=ports)
        assert f"ContextOptions::ports is '{ports}'; it may be a range of ports" in told, told
