# SPDX-License-Identifier: Apache-2.0
"""Switches send results to multicast groups. The manager gives each session a group."""

from __future__ import annotations

import contextlib
from typing import Any

import fabrics
import job
import pytest
from fabrics import HOSTS, MIB, RAIL, SWITCHES, Fabric, await_carried, go_on
from testbed import Testbed

bed, fabric = fabrics.bed, fabrics.fabric  # the fixtures
GROUPS = "multicast 239.192.0.0:7200 16\n"


def frames_per_block(fabric: Fabric, switch: int) -> float:
    """The number of frames for each block that the switch has sent in its present sessions."""

    def some() -> list[dict[str, Any]]:
        sessions = fabric.counted(fabric.switches[switch])["sessions"]
        return sessions if sum(session["blocks"] for session in sessions) > 100 else []

    sessions = job.await_that("blocks", some)
    sent: int = sum(session["sent"] for session in sessions)
    return sent / sum(session["blocks"] for session in sessions)


def heard_all(work: job.Job) -> bool:
    """Whether multicast has reached all ranks, as far as their logs tell."""
    return not any("does not reach host" in rank.process.stderr for rank in work.ranks)


@pytest.mark.parametrize(("ranks_per_host", "ipv6"), [(1, False), (2, False), (1, True)])
def test_results_by_multicast(
    bed: Testbed, fabric: Fabric, ranks_per_host: int, ipv6: bool
) -> None:
    """The switch sends each result once, and it reaches all ranks, also if a host has several."""
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
    """Each of two switches sends two frames a block: one to its hosts, one to the other switch."""
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
    """A path to a host drops multicast. The session is lost, and the next uses no multicast."""

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


@pytest.mark.parametrize("manager", ["stays", "starts again"])
def test_no_multicast_group_is_left(bed: Testbed, fabric: Fabric, manager: str) -> None:
    """A session has its own group or none. A manager that returns knows which groups are used."""
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
            # If the machine stalled, the ranks have asked for another session.
            fabric.manager.wait_for(r"is taken over|\(attempt [2-9]", job.PATIENCE)
        go_on(second, fabric, fabric.rail)
        fabric.manager.wait_for("no multicast group is left; s4 sends results to each host")
        for work in (first, second):
            await_carried(work, 1 << 20)
            work.stop()
            work.succeed()
