"""Interfaces that change under a job: made anew, with other addresses, or merely looked at."""

from __future__ import annotations

import resource
from collections.abc import Iterator

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


def set_descriptors(rank: job.Rank, most: int) -> None:
    """Sets the process's limit, which may be below what it has open."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.prlimit(rank.process.pid, resource.RLIMIT_NOFILE, (most, hard))


def test_a_look_needs_no_descriptor(bed: Testbed) -> None:
    """No rail fails by another interface's change when the process may open nothing more."""
    with job.Job(bed) as work:
        work.start(elements=MIB, until=work.stop_file, rails=TWO, timeout=10000)
        work.all_done(3)
        for rank in work.ranks:
            set_descriptors(rank, 3)
        for host in range(bed.hosts):
            bed.exec(host, ["ip", "link", "add", "other0", "type", "veth", "peer", "name", "other1"])
        work.all_done(10)
        for rank in work.ranks:
            set_descriptors(rank, 256)
        work.stop()
        work.succeed()
        for rank in work.ranks:
            for rail in RAILS:
                assert rank.rail(rail)["failures"] == 0, work.told()
