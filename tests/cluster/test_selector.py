# SPDX-License-Identifier: Apache-2.0
"""rails = auto: what it finds on hosts of many shapes, and that the hosts agree on the rails."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import job
import pytest
from system_tools import tool
from testbed import Testbed

BENCH = str(job.BUILD / "bench" / "nezha-bench")
RAILS = {"eth0": "500mbit", "eth1": "500mbit", "eth2": "500mbit@eth0"}
NAMES = ["10.0.0.0/16", "10.0.0.0/16#2", "10.1.0.0/16"]  # of eth0, eth2 and eth1
MIB = 1 << 18  # elements


def ip(bed: Testbed, host: int, *lines: str) -> None:
    """Carries out these ip(8) commands on a host."""
    for line in lines:
        bed.exec(host, ["ip", *line.split()])


def rename(bed: Testbed, host: int, **names: str) -> None:
    for old, new in names.items():
        ip(bed, host, f"link set {old} down", f"link set {old} name {new}", f"link set {new} up")


@pytest.fixture(scope="module")
def bed() -> Iterator[Testbed]:
    """Two NICs share a subnet. Host 2 lacks the third NIC, and host 1 has other names for all."""
    with Testbed(hosts=3, rails=RAILS, without=["2:eth1"]) as bed:
        rename(bed, 1, eth0="ens4", eth1="ens3", eth2="ens5")
        yield bed


def listed(bed: Testbed, host: int) -> dict[str, tuple[str, str]]:
    """The rail's URI or "-", and the reason, by interface. The program is told no rank."""
    text = bed.exec(host, ["env", "-i", BENCH, "--list-rails"]).stdout
    head, *lines = text.splitlines()
    rail, why = head.index("rail"), head.index("why")
    return {line.split()[0]: (line[rail:why].strip(), line[why:]) for line in lines}


def check_bench(
    bed: Testbed, store: Path, hosts: Sequence[int], rails: Sequence[str], *options: str
) -> None:
    """Checks that auto finds just these rails, and that each carries much of a verified run.

    Stripes use all rails, while the load balancer may try some of them only.
    """
    words = ["--rails", "auto", "--elements", "1M", "--iteration-count", "5", "--format", "json"]
    command = [BENCH, "--shared-path", str(store), *words, "--plan", "stripe", *options, "allreduce"]
    ranks = bed.run(command, on=hosts, env={"SIZE": str(len(hosts))}, timeout=job.PATIENCE)
    sent = {rail["name"]: rail["bytes"] for rail in json.loads(ranks[0].stdout)["rails"]}
    assert list(sent) == list(rails)
    assert min(sent.values()) > MIB, sent


# ---- which rails there are --------------------------------------------------------------------


def test_rails_of_hosts_that_differ(bed: Testbed, tmp_path: Path) -> None:
    check_bench(bed, tmp_path, range(3), NAMES)


def test_each_rank(bed: Testbed) -> None:
    """Every rail of a rank carries a good part of what the rank sends or receives."""
    work = job.run(bed, rails="auto", elements=f"0,1,1001,{4 * MIB}", operations=12)
    for rank in work.ranks:
        for name in NAMES[:2] if rank.number == 2 else NAMES:
            rail = rank.rail(name)
            assert rail["sent"] + rail["received"] > MIB and not rail["failures"], rank.told()
    for host, name in ((0, "eth0"), (0, "eth1"), (0, "eth2"), (2, "eth0"), (2, "eth2")):
        assert bed.counters(host, name)["tx_bytes"] > MIB  # on the reported port


def test_slices(bed: Testbed, tmp_path: Path) -> None:
    """Hosts with the same rails may use slices."""
    check_bench(bed, tmp_path, [0, 1], NAMES, "--plan", "slice", "--share", "2,1,1")


def test_slices_of_rails_that_differ(bed: Testbed, tmp_path: Path) -> None:
    """One of the two rails differs between the hosts, and the rank that notices it says so."""
    command = [BENCH, "--shared-path", str(tmp_path), "--rails", "auto", "--plan", "slice"]
    bed.cut(0, "eth2")
    try:
        ranks = [
            *bed.start([*command, "allreduce"], on=[0], env={"RANK": "0", "SIZE": "2"}),
            *bed.start([*command, "allreduce"], on=[2], env={"RANK": "1", "SIZE": "2"}),
        ]
        assert ranks[1].wait(job.PATIENCE) == 1
    finally:
        bed.heal(0, "eth2")
    ranks[0].kill()  # it waits for the other rank
    said = f"auto finds {NAMES[0]},{NAMES[1]} at rank 1 and {NAMES[0]},{NAMES[2]} at rank 0"
    assert said in ranks[1].stderr, ranks[1].stderr


def test_routed_network(tmp_path: Path) -> None:
    """Each host has its own subnets, and a router connects them."""
    rails = {"eth0": "500mbit", "eth1": "500mbit"}
    with Testbed(hosts=2, rails=rails) as bed:
        bed.exec("sw", ["sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward"])
        for host in range(2):
            for index, name in enumerate(rails):
                subnet = f"10.{50 + index}.{host}"
                bed.exec("sw", ["ip", "addr", "add", f"{subnet}.254/24", "dev", f"br-{name}"])
                ip(
                    bed,
                    host,
                    f"addr flush dev {name}",
                    f"addr add {subnet}.1/24 dev {name}",
                    f"route add default via {subnet}.254 dev {name} metric {index}",
                )
        names = [f"10.{network}.{host}.0/24" for network in (50, 51) for host in (0, 1)]
        check_bench(bed, tmp_path, [0, 1], names)


def test_log(bed: Testbed, tmp_path: Path) -> None:
    command = [BENCH, "--shared-path", str(tmp_path), "--rails", "auto", "--elements", "1"]
    command += ["--iteration-count", "1", "allreduce"]
    ranks = bed.run(command, on=[0, 1], env={"SIZE": "2", "NEZHA_LOG": "info"})
    assert "rails = auto: eth2 is rail 10.0.0.0/16#2: " in ranks[0].stderr
    assert "rails = auto: ens3 is rail 10.1.0.0/16: " in ranks[1].stderr
    assert "rails = auto: lo is left out: loopback" in ranks[1].stderr


def test_nothing_to_find(tmp_path: Path) -> None:
    """The error lists the interfaces, and tells what to do."""
    command = [BENCH, "--size", "1", "--rank", "0", "--shared-path", str(tmp_path)]
    done = subprocess.run(
        [tool("unshare"), "--net", *command, "--rails", "auto", "allreduce"],
        capture_output=True,
        text=True,
        timeout=job.PATIENCE,
    )
    assert done.returncode == 1
    assert "finds no interface to use (lo: loopback" in done.stderr, done.stderr
    assert "name the rails, such as tcp:eth0" in done.stderr


def test_auto_goes_with_patterns_alone(bed: Testbed) -> None:
    with job.Job(bed, 1) as work:
        [rank] = work.start([0], elements=1, rails="tcp:eth0,auto")
        error = rank.wait_for("error")
        assert error["type"] == "InvalidArgument", error
        assert "'tcp:eth0' cannot stand beside auto" in error["what"], error


def test_unwanted_interfaces(bed: Testbed) -> None:
    """The pattern excludes each host's interfaces of that name, and changes no rail's name."""
    work = job.run(bed, rails="auto,!eth2,!ens[5-9]", elements=4 * MIB, operations=2)
    for rank in work.ranks:
        names = [rail["name"] for rail in rank.all("done")[-1]["rails"]]
        assert names == (NAMES[:1] if rank.number == 2 else [NAMES[0], NAMES[2]]), rank.told()


def test_no_rails_are_auto(bed: Testbed, tmp_path: Path) -> None:
    """Rank 0 logs the rails that it has found."""
    words = ["--elements", "1M", "--iteration-count", "1", "--format", "json", "allreduce"]
    ranks = bed.run([BENCH, "--shared-path", str(tmp_path), *words], timeout=job.PATIENCE)
    assert [rail["name"] for rail in json.loads(ranks[0].stdout)["rails"]] == NAMES
    said = f"without --rails nezha has found these: {', '.join(NAMES)}"
    assert [said in rank.stderr for rank in ranks] == [True, False, False]


# ---- the list ---------------------------------------------------------------------------------


def test_list(bed: Testbed) -> None:
    assert listed(bed, 0) == {
        name: (uri, "taken: there is no NIC here, but this veth: a container")
        for name, uri in {
            "eth0": "tcp:eth0?rail=10.0.0.0/16",
            "eth1": "tcp:eth1?rail=10.1.0.0/16",
            "eth2": "tcp:eth2?rail=10.0.0.0/16#2",
        }.items()
    } | {"lo": ("-", "left out: loopback")}


def test_list_after_a_cut(bed: Testbed) -> None:
    """The other rails keep their names."""
    bed.cut(2, "eth0")
    try:
        found = listed(bed, 2)
    finally:
        bed.heal(2, "eth0")
    assert found["eth0"] == ("-", "left out: no carrier")
    assert found["eth2"][0] == "tcp:eth2?rail=10.0.0.0/16#2"


def test_list_of_a_host_with_containers() -> None:
    """nezha understands what the kernel tells about bridges, their ports and so on."""
    with Testbed(hosts=1, rails={"eth0": "1gbit"}) as bed:
        ip(
            bed,
            0,
            "link add docker0 type bridge",
            "addr add 172.17.0.1/16 dev docker0",
            "link set docker0 up",
            "link add vethin type veth peer name vethout",
            "link set vethin master docker0",
            "link set vethin up",
            "link set vethout up",
            "link add tunnel type vxlan id 3 dstport 4789 local 10.0.0.1",
            "addr add 10.9.0.1/16 dev tunnel",
            "link set tunnel up",
            "link add link eth0 name mac0 type macvlan",
            "addr add 10.7.0.1/16 dev mac0",
            "link set mac0 up",
            "link add idle type veth peer name other",
            "addr add 10.8.0.1/16 dev idle",
        )
        found = listed(bed, 0)
        assert found["eth0"][0] == "tcp:eth0?rail=10.0.0.0/16"
        left = {name: why for name, (uri, why) in found.items() if uri == "-"}
        assert left == {
            "docker0": "left out: a bridge without a NIC",
            "vethin": "left out: a port of docker0, which stands for it",
            "vethout": "left out: no IPv4 or IPv6 address",
            "tunnel": "left out: made by software (vxlan)",
            "mac0": "left out: on the same wire as eth0, which is taken",
            "idle": "left out: down",
            "other": "left out: no IPv4 or IPv6 address",
            "lo": "left out: loopback",
        }
