# SPDX-License-Identifier: Apache-2.0
"""Rails that do not lead to a rank that is alive: what fails, when, and what the log and errors say.

NEZHA_LOG is not set, so the log is what users see by default.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import job
import pytest
from testbed import Testbed

RAILS = ["eth0", "eth1"]
BOTH = job.rails_option(RAILS)
KIB = 1 << 8  # elements
HOPELESS = 5.0  # seconds for which operations wait for a rank to which no rail has ever led


@pytest.fixture(scope="module")
def bed() -> Iterator[Testbed]:
    with Testbed(hosts=3, rails=dict.fromkeys(RAILS, "500mbit")) as bed:
        yield bed


@pytest.fixture(autouse=True)
def healed(bed: Testbed, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv("NEZHA_LOG", raising=False)
    yield
    for host in range(bed.hosts):
        for rail in RAILS:
            bed.heal(host, rail)


def cut_everywhere(bed: Testbed, rail: str, how: str) -> None:
    for host in range(bed.hosts):
        bed.cut(host, rail, how)


def heal_everywhere(bed: Testbed, rail: str) -> None:
    for host in range(bed.hosts):
        bed.heal(host, rail)


def warnings(rank: job.Rank) -> list[str]:
    return re.findall(r"nezha warning \[.*?\]: (.*)", rank.process.stderr)


def said(error: job.Event) -> str:
    """The text of an error after "nezha: rank R of N: ", which names the rank that throws."""
    text: str = error["what"]
    assert re.match(r"nezha: rank \d+ of \d+: ", text), text
    return text.split(": ", 2)[2]


# ---- ranks -------------------------------------------------------------------------------------


@pytest.mark.parametrize("rails", [RAILS, RAILS[:1]], ids=["both", "one"])
def test_late_behind_a_firewall(bed: Testbed, rails: list[str]) -> None:
    """The others cannot connect to a rank, and wait until it connects to them."""
    for rail in rails:
        bed.cut(1, rail, "refused")
    with job.Job(bed) as work:
        options: dict[str, Any] = {"algorithm": "ring", "rails": job.rails_option(rails)}
        work.start(elements=256 * KIB, operations=3, late="1:0:1000", **options)
        work.succeed()
        for rank in work.ranks:
            assert warnings(rank) == []


def test_killed_before_its_first_link(bed: Testbed) -> None:
    """The rank might be behind a firewall, so the others wait, but not until a long deadline."""
    with job.Job(bed) as work:
        options: dict[str, Any] = {"algorithm": "ring", "rails": BOTH, "timeout": 60000}
        work.start(elements=1000, pause="3000:3000", **options)
        dead = work.ranks[1]
        dead.wait_for("joined")
        dead.process.kill()
        for rank in work.ranks:
            if rank is dead:
                continue
            error = rank.wait_for("error", timeout=HOPELESS + job.SLACK)
            assert re.search(r"no connection to rank 1 of 3 \(h1, pid \d+\)", said(error)), error
            for rail in RAILS:
                assert re.search(f"{rail}: connecting to [^;]*: Connection refused", said(error)), error


def test_lo_is_no_network_of_the_hosts(bed: Testbed) -> None:
    with job.Job(bed) as work:
        work.start(elements=1000, algorithm="ring", rails="tcp:lo", timeout=60000)
        for rank in work.ranks:
            what = said(rank.wait_for("error", timeout=HOPELESS + job.SLACK))
            assert re.search(r"lo: .*127\.0\.0\.1:\d+( \(an address of host \S+\))?", what), what
            assert "not a network that the hosts share" in what, what
            assert "gone" not in what, what


def stop_talking(bed: Testbed, host: int, other: int) -> None:
    """Resets the connections between two hosts from the first host's side, also new ones."""
    for rail in RAILS:
        for here, there in ((host, other), (other, host)):
            address = bed.rail(rail).address(there)
            bed.exec(here, ["nft", f"add table inet apart_{rail}"])
            bed.exec(
                here,
                ["nft", f"add chain inet apart_{rail} i {{ type filter hook input priority 0; }}"],
            )
            bed.exec(
                here,
                [
                    "nft",
                    f"add rule inet apart_{rail} i ip saddr {address} tcp flags & (syn|ack) == syn"
                    " reject with tcp reset",
                ],
            )
        address = bed.rail(rail).address(other)
        bed.exec(host, ["ss", "-HKtn", "state", "established", f"dst {address}"])


def test_called_gone_though_it_lives() -> None:
    """A live rank that another rank takes for dead gets an error which says that it lives."""
    with (
        Testbed(hosts=3, rails=dict.fromkeys(RAILS, "500mbit")) as apart,
        job.Job(apart) as work,
    ):
        options: dict[str, Any] = {"algorithm": "ring", "rails": BOTH, "stay": work.stop_file}
        work.start(elements=1000, until="/nonexistent", **options)
        work.all_done(5)
        stop_talking(apart, 2, 0)
        errors = [said(rank.wait_for("error")) for rank in work.ranks]
        work.stop()
        for error in errors[:2]:
            assert re.search(r"rank 2 of 3 .* is gone", error), errors
        assert re.match("rank 2 lives, but another rank has lost its connections", errors[2]), errors


# ---- rails -------------------------------------------------------------------------------------


def share(done: job.Event, rail: str) -> float:
    """The largest part that the balancer gives to the rail in any class."""
    balance = done["balance"]
    if rail not in balance["lanes"]:
        return 0
    lane = balance["lanes"].index(rail)
    return max((known["shares"][lane] for known in balance["classes"]), default=0)


def missing_peers(rank: job.Rank, rail: str) -> list[str]:
    """The ranks to which, according to the rank's warnings, the rail does not lead."""
    line = rf"there has been no link to rank (\d) of 3 \(.*\) on {rail} for \d+ s: .+"
    found = [re.fullmatch(line, warning) for warning in warnings(rank)]
    assert all(found), warnings(rank)
    return [match[1] for match in found if match]


@pytest.mark.parametrize(("how", "plan"), [("refused", "auto"), ("silent", "slice")])
def test_rail_that_never_comes_up(bed: Testbed, how: str, plan: str) -> None:
    """A rank warns once for each peer, rails() reports the outage, and plans give the rail no part.
    Then the rail comes up."""
    cut_everywhere(bed, "eth1", how)
    with job.Job(bed) as work:
        options: dict[str, Any] = {"algorithm": "ring", "rails": BOTH, "plan": plan}
        work.start(elements=64 * KIB, until=work.stop_file, **options)
        work.all_done(1)
        for rank in work.ranks:  # in a ring each rank sends to the next one
            peer = (rank.number + 1) % work.size
            job.await_that(
                "eth1 is down", lambda: rank.rail("eth1")["down_peers"] > 0, tell=work.told
            )
            rail = rank.rail("eth1")
            assert re.match(r"rank \d of 3 \(.*\): .*10\.1\.0\.\d", rail["last_error"]), rail
            assert rail["down_seconds"] > 1.9, rail  # two seconds, as precisely as clocks are read
            job.await_that(
                "the log says so",
                lambda: str(peer) in missing_peers(rank, "eth1"),
                tell=work.told,
            )
            assert (rank.rail("eth0")["down_peers"], rank.rail("eth0")["last_error"]) == (0, "")
        first = work.ranks[0]
        job.await_that(
            "no plan has eth1", lambda: share(first.all("done")[-1], "eth1") == 0, tell=work.told
        )
        known = first.done
        work.all_done(300)
        assert first.rail("eth1")["sent"] == 0
        assert {share(done, "eth1") for done in first.all("done")[known:]} == {0}
        for rank in work.ranks:
            peers = missing_peers(rank, "eth1")
            assert len(peers) == len(set(peers)), warnings(rank)

        healed = first.done
        heal_everywhere(bed, "eth1")
        for rank in work.ranks:
            job.await_that(
                "eth1 carries",
                lambda: rank.rail("eth1")["sent"] > 0 and not rank.rail("eth1")["down_peers"],
                tell=work.told,
            )
            assert rank.rail("eth1")["last_error"] == ""
            link = rf"the link to rank {(rank.number + 1) % work.size} of 3 \(.*\) on eth1 is up"
            assert any(re.fullmatch(link, line) for line in warnings(rank)), warnings(rank)
        lanes = ["eth1", "stripes"]  # which of them is best does not matter here
        job.await_that(
            "a plan has eth1 again, or had it",
            lambda: any(share(done, lane) for done in first.all("done")[healed:] for lane in lanes),
            tell=work.told,
        )
        work.stop()
        work.succeed()


def test_what_ends_well_is_no_warning(bed: Testbed) -> None:
    """Ranks end one after the other, after all of them have finished using the context."""
    with job.Job(bed) as work:
        options: dict[str, Any] = {"algorithm": "direct", "rails": BOTH, "operations": 4}
        work.start(elements=64 * KIB, pause="0:300", **options)
        work.succeed()
        for rank in work.ranks:
            assert warnings(rank) == []


def test_killed_rank_is_no_storm_of_lines(bed: Testbed) -> None:
    """A rank logs at most one line for each of its links to the killed rank."""
    with job.Job(bed) as work:
        options: dict[str, Any] = {"algorithm": "direct", "rails": BOTH}
        work.start(elements=1000, until=work.stop_file, **options)
        work.all_done(20)
        work.ranks[1].process.kill()
        for rank in (work.ranks[0], work.ranks[2]):
            rank.wait_for("error")
            rank.process.wait(job.PATIENCE)
            lines = warnings(rank)
            assert len(lines) <= len(RAILS), lines
            for line in lines:
                assert re.match(r"the link to rank 1 of 3 \(.*\) on eth\d is down: ", line), lines
