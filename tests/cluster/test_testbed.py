# SPDX-License-Identifier: Apache-2.0
"""The testbed's networks, faults and rates, with real namespaces and packets.

Runs as root, or as an ordinary user under `testbed sandbox -- pytest-3 test_testbed.py`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest
from probes import (
    PYTHON,
    SEND_FROM,
    SINK,
    SOURCE,
    drain,
    megabits,
    ping,
    received,
    silence,
    start_echo,
)
from system_tools import BedError, command, wait_until
from testbed import Testbed


@pytest.fixture(scope="module")
def bed() -> Iterator[Testbed]:
    rails = {"eth0": "200mbit", "eth1": "200mbit", "eth2": "none"}
    with Testbed(hosts=3, rails=rails, ipv6=True, without=["2:eth1"]) as made:
        start_echo(made)
        yield made


# ---- hosts, rails, addresses ------------------------------------------------------------------


def test_all_hosts_of_a_rail_reach_each_other(bed: Testbed) -> None:
    for rail in bed.rails_of(0):
        hosts = [host for host in range(3) if rail in bed.rails_of(host)]
        for source in hosts:
            for sink in set(hosts) - {source}:
                assert ping(bed, source, rail.address(sink), rail.name)
                assert ping(bed, source, rail.address6(sink), rail.name)


def test_rails_are_separate_networks(bed: Testbed) -> None:
    before = {rail: bed.counters(1, rail)["rx_packets"] for rail in ("eth0", "eth1", "eth2")}
    assert ping(bed, 0, bed.rail("eth1").address(1), "eth1", count=50)
    after = {rail: bed.counters(1, rail)["rx_packets"] for rail in before}
    assert after["eth1"] - before["eth1"] >= 50
    assert after["eth0"] - before["eth0"] < 10  # neighbour discovery at most
    assert after["eth2"] - before["eth2"] < 10


def test_frames_pass_no_firewall(bed: Testbed) -> None:
    """The kernel's settings that send frames through the firewall are off, which saves time."""
    inside = ["ip", "netns", "exec", bed.namespace("sw"), "sh", "-c"]
    settings = command([*inside, "cat /proc/sys/net/bridge/bridge-nf-call-* 2> /dev/null || true"])
    if not settings:
        pytest.skip("this kernel has no bridge netfilter")
    assert set(settings.split()) == {"0"}


def test_a_host_may_lack_a_port(bed: Testbed) -> None:
    assert [rail.name for rail in bed.rails_of(2)] == ["eth0", "eth2"]
    assert "eth1" in bed.exec(1, ["ls", "/sys/class/net"]).stdout.split()
    assert "eth1" not in bed.exec(2, ["ls", "/sys/class/net"]).stdout.split()
    assert silence(bed, 0, bed.rail("eth1").address(2), "eth1")
    with pytest.raises(BedError, match="host 2 has no port on rail 'eth1'"):
        bed.cut(2, "eth1")


def test_environment(bed: Testbed) -> None:
    dump = "import json, os; print(json.dumps(dict(os.environ)))"
    ranks = bed.run([PYTHON, "-c", dump], env={"JOB": "x"})
    seen = [json.loads(rank.stdout) for rank in ranks]
    names = ["RANK", "SIZE", "HOST", "LOCAL_RANK", "RAILS", "NRAILS", "JOB", "TESTBED_PREFIX"]
    assert [[env[name] for name in names] for env in seen] == [
        ["0", "3", "0", "0", "eth0 eth1 eth2", "3", "x", bed.prefix],
        ["1", "3", "1", "0", "eth0 eth1 eth2", "3", "x", bed.prefix],
        ["2", "3", "2", "0", "eth0 eth2", "2", "x", bed.prefix],
    ]
    rail_variables = {key: value for key, value in seen[2].items() if re.match(r"RAIL\d", key)}
    assert rail_variables == {
        "RAIL0_NAME": "eth0",
        "RAIL0_ADDR": "10.0.0.3",
        "RAIL0_ADDR6": "fd00::3",
        "RAIL1_NAME": "eth2",
        "RAIL1_ADDR": "10.2.0.3",
        "RAIL1_ADDR6": "fd02::3",
    }


def test_names_resolve(bed: Testbed) -> None:
    assert bed.exec(1, ["hostname"]).stdout == "h1\n"
    ask = ["getent", "ahosts"]
    for name, rail, host in (("h2-eth2", "eth2", 2), ("h0-eth1", "eth1", 0), ("h2", "eth0", 2)):
        found = {line.split()[0] for line in bed.exec(1, [*ask, name]).stdout.splitlines()}
        assert found == {bed.rail(rail).address(host), bed.rail(rail).address6(host)}


def test_ipv6_only_and_mgmt() -> None:
    with Testbed(hosts=2, rails={"eth0": "none"}, ipv4=False, ipv6=True, mgmt=True) as bed:
        assert bed.exec(0, ["ip", "-6", "addr", "show", "tentative"]).stdout == ""
        start_echo(bed)
        assert ping(bed, 0, "fd00::2", "eth0")
        addresses = bed.exec(0, ["ip", "-o", "-4", "addr"]).stdout
        assert re.findall(r"inet (10\S+)", addresses) == ["10.250.0.1/16"]
        env = bed.environment(1)
        assert "RAIL0_ADDR" not in env and env["RAIL0_ADDR6"] == "fd00::2"
        assert (env["MGMT_ADDR"], env["MGMT_ADDR0"], env["NRAILS"]) == (
            "10.250.0.2",
            "10.250.0.1",
            "1",
        )
        [server] = bed.start([PYTHON, "-c", SINK, "10.250.0.2"], on=[1])
        server.wait_for("ready")
        bed.exec("sw", [PYTHON, "-c", SOURCE, "10.250.0.2", "100000"])
        server.wait_for("mbit")


def test_two_ports_on_one_network() -> None:
    with Testbed(hosts=2, rails={"eth0": "200mbit", "eth1": "200mbit@eth0"}, ipv6=True) as bed:
        start_echo(bed)
        addresses = [bed.rail(rail).address(1) for rail in ("eth0", "eth1")]
        assert addresses == ["10.0.0.2", "10.0.1.2"]
        for rail, other in (("eth0", "eth1"), ("eth1", "eth0")):
            for address in (bed.rail(rail).address(1), bed.rail(rail).address6(1)):
                before = port_counters(bed)
                assert ping(bed, 0, address, rail, count=200)
                grown = {key: value - before[key] for key, value in port_counters(bed).items()}
                for host in (0, 1):
                    assert grown[host, rail, "tx_packets"] >= 200
                    assert grown[host, rail, "rx_packets"] >= 200
                    assert grown[host, other, "tx_packets"] < 20  # neighbour discovery
                    assert grown[host, other, "rx_packets"] < 20
        check_address_resolution(bed)


def check_address_resolution(bed: Testbed) -> None:
    """An address on a shared network resolves to its own port, whichever way a host asks."""
    for by in ("eth0", "eth1"):
        for rail in ("eth0", "eth1"):
            address = bed.rail(rail).address(1)
            ping(bed, 0, address, by, patience=0.3)
            entry = bed.exec(0, ["ip", "neigh", "show", address, "dev", by]).stdout
            mac = bed.exec(1, ["cat", f"/sys/class/net/{rail}/address"]).stdout.strip()
            assert f"lladdr {mac}" in entry

    # Host 0 sends on eth0 with eth1's address, as its routes say. Host 1 resolves this address.
    bed.exec(0, ["ip", "neigh", "flush", "all"])
    bed.exec(1, ["ip", "neigh", "flush", "all"])
    bed.exec(0, [PYTHON, "-c", SEND_FROM, bed.rail("eth1").address(0), bed.rail("eth0").address(1)])
    mac = bed.exec(0, ["cat", "/sys/class/net/eth1/address"]).stdout.strip()
    show = ["ip", "neigh", "show", bed.rail("eth1").address(0), "dev", "eth0"]
    assert wait_until(lambda: f"lladdr {mac}" in bed.exec(1, show).stdout, 3)


def port_counters(bed: Testbed) -> dict[tuple[int, str, str], int]:
    """The counters of the ports, as in the hosts' own /sys."""
    found = {}
    for host in (0, 1):
        for rail in ("eth0", "eth1"):
            for name in ("tx_packets", "rx_packets"):
                file = f"/sys/class/net/{rail}/statistics/{name}"
                found[host, rail, name] = int(bed.exec(host, ["cat", file]).stdout)
                assert bed.counters(host, rail)[name] >= found[host, rail, name]
    return found


# ---- faults and rates -------------------------------------------------------------------------


def in_band(measured: float, rate: float) -> bool:
    """A stream never gets all of a shaped rail, because headers are shaped, too. How much it gets
    depends on the machine's load. The band excludes a rail with a fifth of the rate."""
    return 0.25 * rate <= measured <= rate


def test_rails_are_shaped(bed: Testbed) -> None:
    assert in_band(megabits(bed, 0, 1, "eth0", 15_000_000), 200)
    assert in_band(megabits(bed, 2, 0, "eth0", 15_000_000), 200)
    assert megabits(bed, 0, 1, "eth2", 50_000_000) > 400  # "none"


def test_set_rate_of_one_host(bed: Testbed) -> None:
    bed.set_rate("eth0", "40mbit", host=1)
    try:
        assert in_band(megabits(bed, 0, 1, "eth0", 3_000_000), 40)
        assert in_band(megabits(bed, 1, 2, "eth0", 3_000_000), 40)
        assert in_band(megabits(bed, 0, 2, "eth0", 15_000_000), 200)
        assert re.search(r"h1 10\.0\.0\.2 .*\n    up   40 mbit.*\n    down 40 mbit", bed.status())
        bed.set_rate("eth0", "80mbit")
        assert in_band(megabits(bed, 0, 1, "eth0", 6_000_000), 80)
        assert in_band(megabits(bed, 0, 2, "eth0", 6_000_000), 80)
    finally:
        bed.set_rate("eth0", "200mbit")


@pytest.mark.parametrize("how", ["carrier", "admin", "silent"])
def test_cut_and_heal(bed: Testbed, how: str) -> None:
    rail = bed.rail("eth0")
    for address in (rail.address(1), rail.address6(1)):
        assert ping(bed, 0, address, "eth0")
    bed.cut(1, "eth0", how)
    try:
        drain(bed)
        before = bed.counters(1, "eth0")["rx_packets"]
        for address in (rail.address(1), rail.address6(1)):
            assert silence(bed, 0, address, "eth0")
        assert silence(bed, 1, rail.address(0), "eth0")
        assert bed.counters(1, "eth0")["rx_packets"] == before
        assert received(bed, 1, 0, 200) < 50  # frames that host 2 may send meanwhile
        assert link_state(bed) == {"carrier": "0", "admin": None, "silent": "1"}[how]
        assert ping(bed, 0, rail.address(2), "eth0")  # another host
        assert ping(bed, 0, bed.rail("eth1").address(1), "eth1")  # another rail
    finally:
        bed.heal(1, "eth0")
    for address in (rail.address(1), rail.address6(1)):
        assert ping(bed, 0, address, "eth0")
    assert ping(bed, 1, rail.address(0), "eth0")
    assert received(bed, 1, 0, 200) >= 200
    assert in_band(megabits(bed, 0, 1, "eth0", 8_000_000), 200)


def test_large_frames_vanish(bed: Testbed) -> None:
    """Connections are made and small messages pass, but no stream continues."""
    bed.cut(1, "eth0", "large")
    try:
        assert ping(bed, 0, bed.rail("eth0").address(1), "eth0")
        address = bed.rail("eth0").address(1)
        [sink] = bed.start([PYTHON, "-c", SINK, address], on=[1])
        sink.wait_for("ready")
        bed.start([PYTHON, "-c", SOURCE, address, "100000"], on=[0])
        # By then TCP has retransmitted the first frames.
        assert wait_until(lambda: dropped(bed, "cut_eth0_h1") > 3, 20)
        assert not sink.stdout.count("mbit")
    finally:
        bed.heal(1, "eth0")
    assert float(sink.wait_for(r"mbit (\S+)", timeout=20)[1]) > 0  # TCP retransmits it


def dropped(bed: Testbed, table: str) -> int:
    """The number of frames that a filter of the switch has dropped."""
    rules = bed.exec("sw", ["nft", "list", "table", "netdev", table]).stdout
    return sum(map(int, re.findall(r"counter packets (\d+)", rules)))


def test_connections_are_refused(bed: Testbed) -> None:
    """The host can connect on this rail, but refuses connections until the rail is healed."""
    address = bed.rail("eth0").address(1)
    [sink] = bed.start([PYTHON, "-c", SINK, address], on=[1])
    sink.wait_for("ready")
    source = [PYTHON, "-c", SOURCE, address, "100000"]
    bed.cut(1, "eth0", "refused")
    try:
        with pytest.raises(BedError, match="Connection refused"):
            bed.exec(0, source)
        assert megabits(bed, 1, 0, "eth0", 100_000) > 0
    finally:
        bed.heal(1, "eth0")
    bed.exec(0, source)
    assert float(sink.wait_for(r"mbit (\S+)")[1]) > 0


def test_renewed_interface() -> None:
    """The renewed interface has another index, and is otherwise unchanged."""
    with Testbed(hosts=2, rails={"eth0": "200mbit"}, ipv6=True) as bed:
        show = ["cat", "/sys/class/net/eth0/ifindex"]
        before = bed.exec(1, show).stdout
        bed.renew(1, "eth0")
        assert bed.exec(1, show).stdout != before
        start_echo(bed)
        for address in (bed.rail("eth0").address(1), bed.rail("eth0").address6(1)):
            assert ping(bed, 0, address, "eth0")
        assert in_band(megabits(bed, 0, 1, "eth0", 8_000_000), 200)


def link_state(bed: Testbed) -> str | None:
    """The carrier that host 1 reads of its eth0: "1" or "0", or None if the port is set down."""
    done = bed.exec(1, ["cat", "/sys/class/net/eth0/carrier"], check=False)
    return done.stdout.strip() if done.returncode == 0 else None


def test_loss(bed: Testbed) -> None:
    assert ping(bed, 0, bed.rail("eth0").address(1), "eth0")
    assert received(bed, 0, 1, 1000) >= 1000
    bed.loss("eth0", 30, host=0)
    try:
        assert 600 < received(bed, 0, 1, 1000) < 800  # more than six standard deviations
        bed.loss("eth0", 100)
        assert received(bed, 0, 1, 1000) == 0
        bed.loss("eth0", 0)
        assert ping(bed, 0, bed.rail("eth0").address(2), "eth0")
        bed.loss("eth0", 100, to=2)
        assert received(bed, 0, 1, 1000) >= 1000
        assert received(bed, 0, 2, 1000) < 50  # frames other than IPv4
    finally:
        bed.loss("eth0", 0)
    assert received(bed, 0, 1, 1000) >= 1000


def test_segment_trains() -> None:
    """The switch sees trains of segments, or single frames with gso off."""
    biggest = {}
    for gso in (32768, None):
        with Testbed(hosts=2, rails={"eth0": "none"}, gso=gso) as bed:
            megabits(bed, 0, 1, "eth0", 4_000_000)
            sent = bed.counters(0, "eth0")
            biggest[gso] = sent["tx_bytes"] / sent["tx_packets"]
    assert biggest[None] < 1600 < 6000 < biggest[32768] < 40000
