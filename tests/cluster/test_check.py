# SPDX-License-Identifier: Apache-2.0
"""What nezha-check reports for healthy networks, and for each kind of fault."""

from __future__ import annotations

import dataclasses
import json
import os
import pty
import re
import select
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import job
import pytest
from cli import bad_command_lines
from system_tools import tool
from testbed import Testbed

CHECK = str(job.BUILD / "check" / "nezha-check")
# Mbit/s; this is so low that the load of the machine matters little
RATE = 100
RAILS = dict.fromkeys(["eth0", "eth1"], f"{RATE}mbit")
BOTH = job.rails_option(RAILS)
MTU = 1500


@dataclasses.dataclass
class Outcome:
    """The results of the ranks' programs."""

    codes: list[int]
    stdout: str  # of rank 0
    stderr: list[str]

    @property
    def report(self) -> dict[str, Any]:
        parsed: dict[str, Any] = json.loads(self.stdout)
        return parsed

    @property
    def findings(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.report["findings"]
        return found

    @property
    def kinds(self) -> list[str]:
        return [finding["kind"] for finding in self.findings]

    def path(self, rail: str, low: int, high: int) -> dict[str, Any]:
        [found] = [
            path
            for path in self.report["paths"]
            if (path["rail"], path["from"], path["to"]) == (rail, low, high)
        ]
        return dict(found)

    def connections(self, rail: str) -> dict[tuple[int, int], str]:
        return {
            (each["from"], each["to"]): each["outcome"]
            for each in self.report["connections"]
            if each["rail"] == rail
        }


def check(
    bed: Testbed,
    store: Path,
    *options: str,
    rails: str = BOTH,
    own: Mapping[int, Sequence[str]] | None = None,
    on: Sequence[int] | None = None,
    ranks_per_host: int = 1,
) -> Outcome:
    """Runs nezha-check to its end on all hosts. `own` are additional options of some hosts."""
    ranks = []
    for host in range(bed.hosts) if on is None else on:
        command = [CHECK, "--shared-path", str(store), "--rails", rails, *options]
        command += (own or {}).get(host, [])
        ranks += bed.start(command, on=[host], ranks_per_host=ranks_per_host)
    codes = [rank.wait(job.PATIENCE) for rank in ranks]
    assert not any(rank.stdout for rank in ranks if rank.rank != 0)
    return Outcome(codes, ranks[0].stdout, [rank.stderr for rank in ranks])


def faulty(outcome: Outcome, *kinds: str) -> list[str]:
    """The texts of the findings, which must be of these kinds. Checks all exit statuses, too."""
    assert set(outcome.codes) == {1}, outcome
    assert outcome.kinds == list(kinds), outcome.findings
    assert not outcome.report["well"]
    return [finding["text"] for finding in outcome.findings]


@pytest.fixture(scope="module")
def bed() -> Iterator[Testbed]:
    with Testbed(hosts=3, rails=RAILS) as bed:
        yield bed


@pytest.fixture(autouse=True)
def healed(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("NEZHA_LOG", "NEZHA_RAILS", "NEZHA_PORTS"):
        monkeypatch.delenv(name, raising=False)
    yield
    if "bed" not in request.fixturenames:
        return
    bed = request.getfixturevalue("bed")
    for host in range(bed.hosts):
        for rail in RAILS:
            bed.heal(host, rail)
        bed.exec(host, [tool("nft"), "flush", "ruleset"])
    for rail, rate in RAILS.items():
        bed.set_rate(rail, rate)


# ---- all is well ------------------------------------------------------------------------------


def assert_well(outcome: Outcome) -> None:
    assert outcome.codes == [0] * len(outcome.codes), outcome
    assert outcome.report["well"] and not outcome.findings


def test_well(bed: Testbed, tmp_path: Path) -> None:
    outcome = check(bed, tmp_path, "--json")
    assert_well(outcome)
    pairs = [(0, 1), (0, 2), (1, 2)]
    for rail in RAILS:
        both_ways = {pair for low, high in pairs for pair in [(low, high), (high, low)]}
        assert outcome.connections(rail) == dict.fromkeys(both_ways, "connected")
        for low, high in pairs:
            path = outcome.path(rail, low, high)
            assert path["packet_there"] == path["packet_back"] == MTU
            assert path["round_trip_us"] > 0
            for way in ("gbps_there", "gbps_back"):  # the shaper lets a burst pass at full speed
                assert 0 < path[way] < 1.2 * RATE / 1000, path


def test_table(bed: Testbed, tmp_path: Path) -> None:
    outcome = check(bed, tmp_path)
    lines = outcome.stdout.splitlines()
    assert outcome.codes == [0, 0, 0] and not any(outcome.stderr)
    assert [line.split("  ")[0] for line in lines] == [
        *("rail", "eth0", "eth1", ""),
        "nezha-check: all is well",
    ]
    for line in lines[1:3]:
        assert re.search(r"all 3 pairs +both ways +\d+ +0\.\d+ / 0\.\d+ +1500 / 1500 +1500$", line)


def test_auto(bed: Testbed, tmp_path: Path) -> None:
    outcome = check(bed, tmp_path, "--json", rails="auto")
    assert_well(outcome)
    assert {path["rail"] for path in outcome.report["paths"]} == {"10.0.0.0/16", "10.1.0.0/16"}


def test_several_ranks_on_a_host(bed: Testbed, tmp_path: Path) -> None:
    """All ranks connect, and one rank of each host measures."""
    outcome = check(bed, tmp_path, "--json", "--size", "4", on=[0, 1], ranks_per_host=2)
    assert_well(outcome)
    pairs = {(one, other) for one in range(4) for other in range(4) if one != other}
    assert outcome.connections("eth0") == dict.fromkeys(pairs, "connected")
    measured = {(path["from"], path["to"]) for path in outcome.report["paths"]}
    assert measured == {(0, 2)}


@pytest.mark.parametrize("ipv4", [True, False], ids=["IPv4", "IPv6"])
def test_large_mtu(tmp_path: Path, ipv4: bool) -> None:
    """If the MTU of the path is smaller, the check finds to the byte which packets get through."""
    with Testbed(hosts=2, rails=RAILS, ipv4=ipv4, ipv6=not ipv4, mtu=9000) as bed:
        well = check(bed, tmp_path / "well", "--json")
        assert_well(well)
        assert well.path("eth1", 0, 1)["packet_back"] == 9000
        bed.exec("sw", ["ip", "link", "set", bed.rail("eth1").port(1), "mtu", "1700"])
        outcome = check(bed, tmp_path / "small", "--json")
        [text] = faulty(outcome, "mtu")
        through = 1704  # a bridge leaves room for a VLAN header
        assert outcome.path("eth1", 0, 1)["packet_there"] == through
        assert "MTU of 9000 bytes" in text
        assert f"{through} bytes from rank 0 (h0) to rank 1 (h1)" in text


# ---- connections ------------------------------------------------------------------------------


def test_refused(bed: Testbed, tmp_path: Path) -> None:
    bed.cut(1, "eth1", "refused")
    outcome = check(bed, tmp_path, "--json")
    [text] = faulty(outcome, "refused")
    assert "Rail eth1, from every other rank to rank 1 (h1)" in text
    assert "10.1.0.2" in text and "firewall" in text and "h1" in text
    assert outcome.connections("eth1")[0, 1] == "refused"
    assert outcome.connections("eth1")[1, 0] == "connected"
    assert set(outcome.connections("eth0").values()) == {"connected"}
    # rank 1 has reached rank 0, and has measured in its place
    assert outcome.path("eth1", 0, 1)["packet_there"] == MTU
    assert outcome.path("eth1", 0, 1)["gbps_back"] > 0


def allow_only(bed: Testbed, host: int, rail: str, ports: str) -> None:
    """The host's firewall drops all new connections to other ports."""
    match = f'iifname "{rail}" tcp flags & (syn | ack) == syn tcp dport != {ports} drop;'
    chain = f"chain input {{ type filter hook input priority 0; {match} }};"
    bed.exec(host, [tool("nft"), f"table inet ports {{ {chain} }}"])


def test_ports(bed: Testbed, tmp_path: Path) -> None:
    """A firewall drops unknown connections, but lets a range of ports through."""
    for host in range(bed.hosts):
        allow_only(bed, host, "eth0", "21000-21009")
    assert_well(check(bed, tmp_path / "known", "--json", "--ports", "21000-21009"))
    outcome = check(bed, tmp_path / "unknown", "--json", "--ports", "21010-21019")
    [text] = faulty(outcome, "silent")
    assert "Rail eth0, between all ranks" in text
    assert "packets are dropped" in text and "firewall" in text


def test_silent(bed: Testbed, tmp_path: Path) -> None:
    bed.cut(1, "eth1", "silent")
    outcome = check(bed, tmp_path, "--json")
    assert set(outcome.codes) == {1}
    # if the hosts do not know each other yet, ARP may find no neighbour
    assert set(outcome.kinds) <= {"silent", "no-neighbour"} and outcome.kinds
    assert all(finding["rail"] == "eth1" for finding in outcome.findings)
    assert outcome.connections("eth1")[0, 2] == "connected"
    assert outcome.connections("eth1")[0, 1] in ("silent", "no-neighbour")


def test_carrier(bed: Testbed, tmp_path: Path) -> None:
    bed.cut(1, "eth1", "carrier")
    [text] = faulty(check(bed, tmp_path, "--json"), "down")
    assert "rank 1 (h1): the interface eth1 is down or has no carrier" in text


# ---- packets ----------------------------------------------------------------------------------


def test_large_frames(bed: Testbed, tmp_path: Path) -> None:
    bed.cut(1, "eth1", "large")
    outcome = check(bed, tmp_path, "--json")
    [text] = faulty(outcome, "mtu")
    assert "Rail eth1, between rank 1 (h1) and every other rank" in text
    assert f"MTU of {MTU} bytes" in text and "small ones get through" in text
    assert "600 bytes on the way to rank 1 (h1) and 600 bytes on the way from it" in text
    path = outcome.path("eth1", 0, 1)
    assert (path["packet_there"], path["packet_back"]) == (600, 600)
    assert outcome.path("eth1", 0, 2)["packet_there"] == MTU


def test_large_frames_of_one_direction(bed: Testbed, tmp_path: Path) -> None:
    hook = 'type filter hook ingress device "eth1" priority 0;'
    drop = "meta length > 1000 counter drop;"
    bed.exec(1, [tool("nft"), f"table netdev large {{ chain eth1 {{ {hook} {drop} }}; }}"])
    outcome = check(bed, tmp_path, "--json")
    [text] = faulty(outcome, "mtu")
    assert "Rail eth1, from every other rank to rank 1 (h1)" in text
    path = outcome.path("eth1", 1, 2)
    assert (path["packet_there"], path["packet_back"]) == (MTU, 1000)


def test_a_route_with_a_smaller_mtu(bed: Testbed, tmp_path: Path) -> None:
    """Packets become smaller, and none is lost."""
    change = ["ip", "route", "change", "10.1.0.0/16", "dev", "eth1", "src", "10.1.0.2"]
    try:
        bed.exec(1, [*change, "mtu", "1400"])
        outcome = check(bed, tmp_path, "--json")
    finally:
        bed.exec(1, change)
    assert_well(outcome)
    path = outcome.path("eth1", 0, 1)
    assert (path["packet_there"], path["packet_back"]) == (1400, 1400)


# ---- names ------------------------------------------------------------------------------------


def test_no_such_interface(bed: Testbed, tmp_path: Path) -> None:
    own = {1: ["--rails", "tcp:eth0,tcp:eth9"]}
    texts = faulty(check(bed, tmp_path, "--json", own=own), "unusable", "missing")
    assert "Rail eth9, rank 1 (h1)" in texts[0]
    assert "there is no interface 'eth9' (there are: eth0, eth1, lo)" in texts[0]
    assert "Rail eth1: ranks 0 (h0) and 2 (h2) have it, and rank 1 (h1) does not" in texts[1]


def test_a_name_that_is_mistyped_on_all_hosts(bed: Testbed, tmp_path: Path) -> None:
    """One sentence names the hosts."""
    own = {rank: ["--rails", "tcp:eth0,tcp:eth9"] for rank in range(3)}
    [text] = faulty(check(bed, tmp_path, "--json", own=own), "unusable")
    assert "Rail eth9, ranks 0 (h0), 1 (h1) and 2 (h2): it cannot be used" in text
    assert "Correct --rails on these hosts" in text


def test_two_names(bed: Testbed, tmp_path: Path) -> None:
    own = {2: ["--rails", "tcp:eth0,tcp:eth1?rail=blue"]}
    [text] = faulty(check(bed, tmp_path, "--json", own=own), "missing")
    assert "Rail blue: rank 2 (h2) has it" in text
    assert "The rail eth1 of ranks 0 (h0) and 1 (h1) is on the same subnet" in text


def test_names_swapped(bed: Testbed, tmp_path: Path) -> None:
    own = {1: ["--rails", "tcp:eth0?rail=eth1,tcp:eth1?rail=eth0"]}
    outcome = check(bed, tmp_path, "--json", own=own)
    texts = faulty(outcome, "no-neighbour", "no-neighbour")
    assert "different subnets, 10.0.0.0/16 on rank 0 (h0) and 10.1.0.0/16 on rank 1" in texts[0]


def test_loopback(bed: Testbed, tmp_path: Path) -> None:
    [text] = faulty(check(bed, tmp_path, "--json", rails="tcp:lo"), "own-address")
    assert "127.0.0.1" in text


# ---- two interfaces on one subnet -------------------------------------------------------------


@pytest.fixture
def one_subnet() -> Iterator[Testbed]:
    with Testbed(hosts=2, rails={"eth0": f"{RATE}mbit", "eth1": f"{RATE}mbit@eth0"}) as bed:
        yield bed


def set_ipv4(bed: Testbed, host: int, name: str, value: int) -> None:
    for interface in ("all", *RAILS):
        line = f"echo {value} > /proc/sys/net/ipv4/conf/{interface}/{name}"
        bed.exec(host, ["sh", "-c", line])


def test_arp_flux(one_subnet: Testbed, tmp_path: Path) -> None:
    bed = one_subnet
    assert_well(check(bed, tmp_path / "well", "--json"))
    # host 0 learns this address if the answer of the wrong interface comes last
    show = ["ip", "-j", "link", "show", "dev", "eth0"]
    wrong = json.loads(bed.exec(1, show).stdout)[0]["address"]
    address = bed.rail("eth1").address(1)
    bed.exec(0, ["ip", "neigh", "replace", address, "lladdr", wrong, "dev", "eth1"])
    outcome = check(bed, tmp_path / "flux", "--json")
    assert set(outcome.codes) == {1}
    assert outcome.connections("eth1")[0, 1] == "wrong-interface"
    [text] = [each["text"] for each in outcome.findings if each["kind"] == "wrong-interface"]
    assert "Rail eth1, from rank 0 (h0) to rank 1 (h1)" in text
    assert "arrive at the interface eth0 of h1" in text and "arp_ignore=1" in text


def test_answers_for_either_address(one_subnet: Testbed, tmp_path: Path) -> None:
    set_ipv4(one_subnet, 1, "arp_ignore", 0)
    outcome = check(one_subnet, tmp_path, "--json")
    assert set(outcome.codes) == {1}
    assert outcome.kinds[0] == "arp", outcome.findings
    assert "rank 1 (h1): the interfaces eth0 and eth1" in outcome.findings[0]["text"]


def test_strict_reverse_path(one_subnet: Testbed, tmp_path: Path) -> None:
    set_ipv4(one_subnet, 1, "rp_filter", 1)
    [text] = faulty(check(one_subnet, tmp_path, "--json"), "silent")
    assert "h1 filters by strict reverse path" in text and "rp_filter=2" in text


def test_source_routes(one_subnet: Testbed, tmp_path: Path) -> None:
    """A host may filter ARP by its routes if these depend on the source address."""
    bed = one_subnet
    set_ipv4(bed, 1, "arp_ignore", 0)
    set_ipv4(bed, 1, "arp_filter", 1)
    network = json.loads(bed.exec(1, ["ip", "-j", "route", "show", "dev", "eth0"]).stdout)[0]["dst"]
    for table, rail in enumerate(RAILS, 100):
        number = str(table)
        bed.exec(1, ["ip", "route", "add", network, "dev", rail, "table", number])
        bed.exec(1, ["ip", "rule", "add", "from", bed.rail(rail).address(1), "table", number])
    assert_well(check(bed, tmp_path, "--json"))


def test_one_slow_rail_of_a_subnet(one_subnet: Testbed, tmp_path: Path) -> None:
    """Both directions are measured on this rail, although the routes name the other one."""
    one_subnet.set_rate("eth1", f"{RATE // 20}mbit", host=1)
    outcome = check(one_subnet, tmp_path, "--json")
    [text] = faulty(outcome, "slow-rail")
    assert text.startswith("Rail eth1 carries 0.0")
    slow, fast = (outcome.path(rail, 0, 1) for rail in ("eth1", "eth0"))
    for way in ("gbps_there", "gbps_back"):
        assert slow[way] * 4 < fast[way]


# ---- rates ------------------------------------------------------------------------------------


def test_a_slow_rail(bed: Testbed, tmp_path: Path) -> None:
    bed.set_rate("eth1", f"{RATE // 20}mbit")
    [text] = faulty(check(bed, tmp_path, "--json"), "slow-rail")
    assert text.startswith("Rail eth1 carries 0.0")


def test_a_slow_host(bed: Testbed, tmp_path: Path) -> None:
    bed.set_rate("eth1", f"{RATE // 20}mbit", host=1)
    outcome = check(bed, tmp_path, "--json")
    assert set(outcome.codes) == {1}
    [text] = [each["text"] for each in outcome.findings if each["kind"] == "slow"]
    assert "Rail eth1, between rank 1 (h1) and every other rank" in text


def test_a_slow_direction(bed: Testbed, tmp_path: Path) -> None:
    shaper = f"tbf rate {RATE // 20}mbit burst 40k latency 10ms"
    bed.exec(2, ["tc", "qdisc", "replace", "dev", "eth0", "root", *shaper.split()])
    outcome = check(bed, tmp_path, "--json")
    assert set(outcome.codes) == {1}
    [text] = [each["text"] for each in outcome.findings if each["kind"] == "slow"]
    assert "Rail eth0, from rank 2 (h2) to every other rank" in text


# ---- ranks that differ or do not come ---------------------------------------------------------


def test_ranks_that_do_not_come(bed: Testbed, tmp_path: Path) -> None:
    outcome = check(bed, tmp_path, "--size", "4", "--timeout", "2s", on=[0, 1])
    assert outcome.codes == [1, 1] and not outcome.stdout
    for said in outcome.stderr:
        assert "ranks 2, 3 have not come to --shared-path" in said


def test_a_rank_that_is_killed(bed: Testbed, tmp_path: Path) -> None:
    """The other ranks end, and name the killed rank."""
    bed.cut(1, "eth1", "silent")  # so that there is enough time
    command = [CHECK, "--shared-path", str(tmp_path), "--rails", BOTH, "--timeout", "3s"]
    ranks = bed.start(command)
    listens = ["ss", "-Htln"]
    job.await_that("rank 2 listens", lambda: bed.exec(2, listens).stdout.strip())
    job.await_that("the ranks have met", lambda: len(list(tmp_path.iterdir())) > 3)
    ranks[2].kill()
    assert [rank.wait(job.PATIENCE) for rank in ranks[:2]] == [1, 1]
    assert any("rank 2 has not come" in rank.stderr for rank in ranks[:2])


def test_a_rank_that_is_killed_while_it_measures(bed: Testbed, tmp_path: Path) -> None:
    """The other ranks wait for the timeout and the time of one pair, and name the killed rank."""
    bed.cut(2, "eth0", "large")  # so that there is enough time
    command = [CHECK, "--shared-path", str(tmp_path), "--rails", "tcp:eth0", "--timeout", "1s"]
    ranks = bed.start(command)
    met = 3 * len(["facts", "listening", "reaches"]) + len(["token"])
    job.await_that("the ranks have connected", lambda: len(list(tmp_path.iterdir())) >= met)
    ranks[2].kill()
    assert [rank.wait(job.PATIENCE) for rank in ranks[:2]] == [1, 1]
    said = "".join(rank.stderr for rank in ranks[:2])
    [patience, *_] = re.findall(r"rank 2 has not come .* within (\d+) ms", said)
    assert int(patience) <= 10_000


def test_sizes_that_differ(bed: Testbed, tmp_path: Path) -> None:
    outcome = check(bed, tmp_path, own={1: ["--size", "4"]})
    assert outcome.codes == [1, 1, 1]
    assert any("--size is" in said for said in outcome.stderr)


def test_a_rail_that_is_none(bed: Testbed, tmp_path: Path) -> None:
    """The rank with the wrong command line reports it, and the other ranks do not wait."""
    outcome = check(bed, tmp_path, own={1: ["--rails", "tpc:eth0"]})
    assert outcome.codes == [1, 2, 1]
    assert all("tpc:eth0" in said for said in outcome.stderr)


def test_a_report_that_cannot_be_written(bed: Testbed, tmp_path: Path) -> None:
    """All ranks have the same exit status, although the networks are healthy."""
    command = [CHECK, "--shared-path", str(tmp_path), "--rails", BOTH]
    ranks = bed.start(["sh", "-c", f"exec {' '.join(command)} > /dev/full"], on=[0])
    ranks += bed.start(command, on=[1, 2])
    assert [rank.wait(job.PATIENCE) for rank in ranks] == [1, 1, 1]
    for rank in ranks:
        assert "the report could not be written to standard output" in rank.stderr


# ---- the command line -------------------------------------------------------------------------

HERE = ["--size", "1", "--rank", "0"]


def call(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [CHECK, *arguments], capture_output=True, text=True, timeout=job.PATIENCE, **options
    )


@bad_command_lines(
    [
        (["--rails", "tcp:lo"], "--size is needed"),
        (["--size", "2", "--rank", "2"], "rank 2 of 2"),
        ([*HERE], "one of --shared-path, --store, --redis-host is needed"),
        ([*HERE, "--rail", "tcp:lo", "--jsun"], "unknown option --jsun; did you mean --json?"),
        ([*HERE, "--ports", "80"], "not a range of ports"),
        ([*HERE, "allreduce"], "'allreduce' is no option"),
    ]
)
def test_bad_command_lines(arguments: list[str], reason: str) -> None:
    done = call(*arguments, env={})
    assert done.returncode == 2 and not done.stdout
    assert reason in done.stderr, done.stderr


def test_bad_rails(tmp_path: Path) -> None:
    for rails, reason in [
        ("tcp:lo,tcp:lo", "two rails are called 'lo'"),
        ("tcp:lo?colour=red", "none of tcp's options"),
        ("flare:lo@127.0.0.1:80", "there is no rail of links to test"),
    ]:
        place = tmp_path / str(abs(hash(rails)))
        done = call(*HERE, "--shared-path", str(place), "--rails", rails)
        assert done.returncode == 2 and not done.stdout
        assert reason in done.stderr, done.stderr


def test_help() -> None:
    done = call("--help")
    assert done.returncode == 0
    for option in ("size", "rank", "shared-path", "store", "prefix", "timeout", "rails", "ports"):
        assert f"--{option} " in done.stdout
    assert "exit status" in done.stdout


def test_progress_on_a_terminal(tmp_path: Path) -> None:
    here, there = pty.openpty()
    try:
        command = [CHECK, *HERE, "--shared-path", str(tmp_path), "--rails", "tcp:lo"]
        done = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=there, text=True, timeout=job.PATIENCE
        )
        shown = ""
        while "connecting all pairs of ranks" not in shown:
            assert select.select([here], [], [], job.PATIENCE)[0], shown
            shown += os.read(here, 4096).decode()
    finally:
        os.close(here)
        os.close(there)
    assert done.returncode == 0 and "nothing was measured" in done.stdout
