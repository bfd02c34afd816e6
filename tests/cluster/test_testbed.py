"""The testbed does what it says: real namespaces, real packets.

Runs as root, or as an ordinary user under `testbed sandbox -- pytest-3 test_testbed.py`.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
import testbed
from testbed import BedError, Testbed

PYTHON = "/usr/bin/python3"
HERE = Path(__file__).parent
TOOL = str(HERE / "testbed")
NOBODY = 65534
NESTED = ["unshare", "--user", f"--map-user={NOBODY}", f"--map-group={NOBODY}"]

# Answers datagrams on every rail, by the interface they came in by.
ECHO = """
import os, select, socket
sockets = []
for rail in os.environ["RAILS"].split():
    s = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, rail.encode())
    s.bind(("::", 7000))
    sockets.append(s)
print("ready", flush=True)
while True:
    for s in select.select(sockets, [], [])[0]:
        try:
            data, sender = s.recvfrom(100)
            s.sendto(data, sender)
        except OSError:
            pass  # the rail is cut
"""

# Exits 0 when ADDRESS has answered COUNT datagrams sent by DEVICE, 1 after PATIENCE seconds.
PING = """
import socket, sys, time
address, device, patience, count = sys.argv[1], sys.argv[2], float(sys.argv[3]), int(sys.argv[4])
s = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
s.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, device.encode())
s.settimeout(0.1)
deadline = time.monotonic() + patience
while count and time.monotonic() < deadline:
    try:
        s.sendto(b"x" * 100, (address, 7000))
        s.recv(100)
        count -= 1
    except OSError:
        time.sleep(0.02)
sys.exit(bool(count))
"""

# Sends COUNT datagrams to nobody in particular, well below the rate of the rail.
SPRAY = """
import socket, sys, time
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for i in range(int(sys.argv[2])):
    try:
        s.sendto(b"x" * 100, (sys.argv[1], 9))
    except OSError:
        pass  # refused, or the rail is cut
    time.sleep(0.0002)
"""

# Sends a datagram from the first address to the echo at the second.
SEND_FROM = """
import socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind((sys.argv[1], 0))
s.sendto(b"x", (sys.argv[2], 7000))
"""

# Takes one TCP stream, prints its payload's Mbit/s.
SINK = """
import socket, sys, time
listener = socket.create_server((sys.argv[1], 7001))
print("ready", flush=True)
stream = listener.accept()[0]
got = len(stream.recv(1 << 18))
start = time.monotonic()
while piece := stream.recv(1 << 18):
    got += len(piece)
print("mbit", got * 8e-6 / (time.monotonic() - start))
"""

SOURCE = """
import socket, sys
stream = socket.create_connection((sys.argv[1], 7001), timeout=20)
stream.sendall(bytes(int(sys.argv[2])))
"""


def start_echo(bed: Testbed) -> None:
    for server in bed.start([PYTHON, "-c", ECHO]):
        server.wait_for("ready")


def ping(
    bed: Testbed, host: int, address: str, by: str, patience: float = 5, count: int = 1
) -> bool:
    """Does `address` answer host's datagrams by this interface? Asked often, until it does."""
    target = address if ":" in address else f"::ffff:{address}"
    cmd = [PYTHON, "-c", PING, target, by, str(patience), str(count)]
    return bed.exec(host, cmd, check=False).returncode == 0


def silence(bed: Testbed, host: int, address: str, by: str) -> bool:
    return not ping(bed, host, address, by, patience=0.4)


def megabits(bed: Testbed, source: int, sink: int, rail: str, size: int) -> float:
    """The payload rate of one TCP stream."""
    address = bed.rail(rail).address(sink)
    [server] = bed.start([PYTHON, "-c", SINK, address], on=[sink])
    server.wait_for("ready")
    bed.exec(source, [PYTHON, "-c", SOURCE, address, str(size)])
    return float(server.wait_for(r"mbit (\S+)", timeout=20)[1])


def drain(bed: Testbed) -> None:
    """Waits until no shaper holds a frame any more."""

    def is_drained() -> bool:
        shown = [
            testbed.command(["tc", "-n", bed.namespace(host), "-s", "-j", "qdisc", "show"])
            for host in (*range(bed.hosts), "sw")
        ]
        return not any(queue["qlen"] for text in shown for queue in json.loads(text))

    assert testbed.wait_until(is_drained, 5)


def received(bed: Testbed, source: int, sink: int, count: int) -> int:
    """How many frames reach `sink` when `source` sends it `count` by eth0."""
    before = bed.counters(sink, "eth0")["rx_packets"]
    bed.exec(source, [PYTHON, "-c", SPRAY, bed.rail("eth0").address(sink), str(count)])
    drain(bed)
    return bed.counters(sink, "eth0")["rx_packets"] - before


def traces(prefix: str) -> dict[str, list[str]]:
    """Everything on the machine that carries a testbed's prefix."""
    with testbed.held_namespaces(testbed.namespaces_of(prefix)) as namespaces:
        inside = testbed.namespace_members(namespaces)
    return {
        "namespaces": testbed.namespaces_of(prefix),
        "state": [str(path) for path in testbed.STATE_DIR.glob(f"{prefix}.*")],
        "mounts": re.findall(rf"\S*/{prefix}-\S*", Path("/proc/self/mounts").read_text()),
        "processes inside": [str(pid) for pid in inside],
        "guards": [str(pid) for pid in processes_with("testbed.py", prefix)],
    }


def processes_with(*words: str) -> list[int]:
    """Live processes with all these words among their arguments (or as their arguments' ends)."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            arguments = (entry / "cmdline").read_text().split("\0")
        except OSError:
            continue  # it has ended
        if all(any(argument.endswith(word) for argument in arguments) for word in words):
            found.append(int(entry.name))
    return found


def no_traces(prefix: str) -> dict[str, list[str]]:
    """What is left, after as long as an orderly end may take; {} is nothing."""
    deadline = time.monotonic() + 10
    while left := {kind: found for kind, found in traces(prefix).items() if found}:
        if time.monotonic() > deadline:
            break
        time.sleep(0.05)
    return left


def cli(*arguments: str, timeout: float = 60) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [PYTHON, TOOL, *arguments], capture_output=True, text=True, timeout=timeout
    )


@pytest.fixture(scope="module")
def bed() -> Iterator[Testbed]:
    rails = {"eth0": "200mbit", "eth1": "200mbit", "eth2": "none"}
    with Testbed(hosts=3, rails=rails, ipv6=True, without=["2:eth1"]) as made:
        start_echo(made)
        yield made


@pytest.fixture(scope="module")
def quiet() -> Iterator[Testbed]:
    """A testbed in which nothing runs but what the test starts."""
    with Testbed(hosts=2, rails={"eth0": "200mbit"}, ranks_per_host=2) as made:
        yield made


@pytest.fixture
def prefix(request: pytest.FixtureRequest) -> Iterator[str]:
    """For a testbed made by the command line; taken down if the test fails to."""
    name = f"nzt{os.getpid()}"
    yield name
    testbed.take_down(name)


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
    """Whoever asks and however, an address on a shared network is that of its own port."""
    for by in ("eth0", "eth1"):
        for rail in ("eth0", "eth1"):
            address = bed.rail(rail).address(1)
            ping(bed, 0, address, by, patience=0.3)
            entry = bed.exec(0, ["ip", "neigh", "show", address, "dev", by]).stdout
            mac = bed.exec(1, ["cat", f"/sys/class/net/{rail}/address"]).stdout.strip()
            assert f"lladdr {mac}" in entry

    # sent with eth1's address by eth0, as the routes have it: host 1 then asks for the sender's
    bed.exec(0, ["ip", "neigh", "flush", "all"])
    bed.exec(1, ["ip", "neigh", "flush", "all"])
    bed.exec(0, [PYTHON, "-c", SEND_FROM, bed.rail("eth1").address(0), bed.rail("eth0").address(1)])
    mac = bed.exec(0, ["cat", "/sys/class/net/eth1/address"]).stdout.strip()
    show = ["ip", "neigh", "show", bed.rail("eth1").address(0), "dev", "eth0"]
    assert testbed.wait_until(lambda: f"lladdr {mac}" in bed.exec(1, show).stdout, 3)


def port_counters(bed: Testbed) -> dict[tuple[int, str, str], int]:
    """As the hosts' own /sys tells them."""
    found = {}
    for host in (0, 1):
        for rail in ("eth0", "eth1"):
            for name in ("tx_packets", "rx_packets"):
                file = f"/sys/class/net/{rail}/statistics/{name}"
                found[host, rail, name] = int(bed.exec(host, ["cat", file]).stdout)
                assert bed.counters(host, rail)[name] >= found[host, rail, name]
    return found


# ---- the weather ------------------------------------------------------------------------------


def in_band(measured: float, rate: float) -> bool:
    """A stream gets most of a shaped rail and, headers being shaped too, never all of it."""
    return 0.7 * rate <= measured <= rate


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
        assert received(bed, 1, 0, 200) < 50  # what host 2 may say meanwhile
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


def link_state(bed: Testbed) -> str | None:
    """What host 1 itself sees of its eth0: "1" or "0", None when it is set down."""
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
    finally:
        bed.loss("eth0", 0)
    assert received(bed, 0, 1, 1000) >= 1000


def test_segment_trains() -> None:
    """The switch sees trains of segments, or with gso off single frames."""
    biggest = {}
    for gso in (32768, None):
        with Testbed(hosts=2, rails={"eth0": "none"}, gso=gso) as bed:
            megabits(bed, 0, 1, "eth0", 4_000_000)
            sent = bed.counters(0, "eth0")
            biggest[gso] = sent["tx_bytes"] / sent["tx_packets"]
    assert biggest[None] < 1600 < 6000 < biggest[32768] < 40000


# ---- running things ---------------------------------------------------------------------------


def test_several_ranks_a_host(quiet: Testbed) -> None:
    ranks = quiet.run(["sh", "-c", "echo $RANK/$SIZE $HOST:$LOCAL_RANK $(hostname)"])
    said = [rank.stdout.strip() for rank in ranks]
    assert said == ["0/4 0:0 h0", "1/4 0:1 h0", "2/4 1:0 h1", "3/4 1:1 h1"]
    assert [(rank.rank, rank.host, rank.local_rank) for rank in ranks] == [
        (0, 0, 0),
        (1, 0, 1),
        (2, 1, 0),
        (3, 1, 1),
    ]
    three = quiet.run(["sh", "-c", "echo $RANK/$SIZE"], on=[1], ranks_per_host=3)
    assert [rank.stdout for rank in three] == ["3/6\n", "4/6\n", "5/6\n"]


def test_the_first_failure_ends_the_rest(quiet: Testbed) -> None:
    job = "trap 'exit 9' TERM; [ $RANK = 2 ] && exit 5; sleep 100 & wait"
    with pytest.raises(BedError, match=r"rank 2 \(host 1\) failed \(5\)"):
        quiet.run(["bash", "-c", f"echo rank $RANK; {job}"], timeout=20)
    ranks = quiet.run(["bash", "-c", job], timeout=20, check=False)
    assert ranks[2].returncode == 5
    # by SIGTERM, be it that it came before the trap
    assert {ranks[rank].returncode for rank in (0, 1, 3)} <= {9, -signal.SIGTERM}
    assert traces(quiet.prefix)["processes inside"] == []


def test_timeout(quiet: Testbed) -> None:
    with pytest.raises(TimeoutError, match=r"after 0.5 s: rank 1 \(host 0\)"):
        quiet.run(["sh", "-c", "[ $RANK != 1 ] || sleep 100"], timeout=0.5)


def test_kill_takes_the_whole_session(quiet: Testbed) -> None:
    # with job control on, the background job is a process group of its own
    [rank] = quiet.start(
        ["bash", "-c", "set -m; trap '' TERM; sleep 100 & echo up; wait"], on=[1], ranks_per_host=1
    )
    rank.wait_for("^up$")
    assert rank.returncode is None
    assert len(testbed.session_members({rank.pid})) == 2
    with pytest.raises(TimeoutError):
        rank.wait(timeout=0.1)
    rank.kill(signal.SIGTERM)  # which it ignores
    rank.kill()
    assert rank.returncode == -signal.SIGKILL
    assert testbed.session_members({rank.pid}) == []


def test_wait_for(quiet: Testbed) -> None:
    [rank] = quiet.start(["sh", "-c", "echo out; echo err >&2; exit 3"], on=[0], ranks_per_host=1)
    assert rank.wait() == 3
    assert (rank.stdout, rank.stderr) == ("out\n", "err\n")
    with pytest.raises(BedError, match="ended .3. without 'never'"):
        rank.wait_for("never")


# ---- the command line -------------------------------------------------------------------------


def test_command_line(prefix: str) -> None:
    rails = ["--rail", "eth0=200mbit", "--rail", "eth1=none"]
    assert cli("-p", prefix, "up", "--hosts", "2", *rails, "--ranks-per-host", "2").returncode == 0
    assert all(traces(prefix)[kind] for kind in ("namespaces", "state"))
    assert not traces(prefix)["guards"]

    done = cli("-p", prefix, "run", "sh", "-c", "echo o$RANK; printf e$RANK >&2")
    assert sorted(done.stdout.split("\n")) == ["", "[0] o0", "[1] o1", "[2] o2", "[3] o3"]
    assert sorted(done.stderr.split("\n")) == ["", "[0] e0", "[1] e1", "[2] e2", "[3] e3"]
    done = cli("-p", prefix, "run", "--only-rank", "1", "sh", "-c", "echo o$RANK; echo e >&2")
    assert done.stdout == "o1\n"
    assert sorted(done.stderr.split()) == sorted("[0] e [1] e [2] e [3] e".split())
    done = cli("-p", prefix, "run", "--raw", "--on", "1", "--", "sh", "-c", "echo o$LOCAL_RANK")
    assert sorted(done.stdout.split()) == ["o0", "o1"]
    done = cli("-p", prefix, "run", "sh", "-c", "[ $RANK = 3 ] && exit 7; exec sleep 100")
    assert done.returncode == 7
    assert "rank 3 (host 1) failed (7)" in done.stderr
    assert cli("-p", prefix, "run", "sh", "-c", "kill -9 $$").returncode == 128 + 9
    assert cli("-p", prefix, "run", "--timeout", "0.3", "sleep", "100").returncode == 124
    assert cli("-p", prefix, "exec", "1", "sh", "-c", "echo $HOST; exit 4").stdout == "1\n"
    assert cli("-p", prefix, "exec", "sw", "sh", "-c", "exit 4").returncode == 4

    with_state = Testbed.attach(prefix)
    start_echo(with_state)
    address = with_state.rail("eth0").address(1)
    assert cli("-p", prefix, "cut", "--how", "silent", "1", "eth0").returncode == 0
    assert silence(with_state, 0, address, "eth0")
    assert cli("-p", prefix, "heal", "1", "eth0").returncode == 0
    assert ping(with_state, 0, address, "eth0")
    assert cli("-p", prefix, "loss", "eth0", "100").returncode == 0
    assert silence(with_state, 0, address, "eth0")
    assert cli("-p", prefix, "loss", "eth0", "0").returncode == 0
    assert ping(with_state, 0, address, "eth0")
    assert cli("-p", prefix, "set-rate", "eth0", "50mbit", "0").returncode == 0
    status = cli("-p", prefix, "status").stdout
    assert re.search(r"h0 10\.0\.0\.1 up\n    up   50 mbit", status)
    assert re.search(r"h1 10\.0\.0\.2 up\n    up   200 mbit", status)
    assert re.search(r"h1 10\.1\.0\.2 up\n    up   unshaped", status)

    assert cli("-p", prefix, "down").returncode == 0
    assert no_traces(prefix) == {}
    assert cli("-p", prefix, "status").returncode == 2
    assert cli("-p", prefix, "down").returncode == 0  # of nothing


def test_with(prefix: str) -> None:
    build = ["-p", prefix, "with", "--hosts", "2", "--rail", "eth0=200mbit"]
    done = cli(*build, "--", "sh", "-c", f"{TOOL} run hostname; exit 6")
    assert done.returncode == 6, done.stderr
    assert sorted(done.stdout.splitlines()) == ["[0] h0", "[1] h1"]
    assert no_traces(prefix) == {}
    done = cli(*build, "--timeout", "0.5", "--", "sleep", "100")
    assert done.returncode == 124
    assert no_traces(prefix) == {}


@pytest.mark.parametrize("sig", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_with_cleans_up_however_it_ends(prefix: str, sig: signal.Signals) -> None:
    mark = f"{prefix}.{sig.name}"  # an argument by which to find the processes
    job = "trap '' TERM; echo up; while :; do sleep 0.1; done"
    cmd = [TOOL, "run", "--timeout", "30", "sh", "-c", job, mark]
    build = ["-p", prefix, "with", "--hosts", "2", "--rail", "eth0=200mbit", "--"]
    tool = subprocess.Popen([PYTHON, TOOL, *build, *cmd], stdout=subprocess.PIPE, text=True)
    assert tool.stdout
    with tool.stdout as out:
        assert {out.readline(), out.readline()} == {"[0] up\n", "[1] up\n"}
        found = traces(prefix)
        assert all(found.values()), found  # else the end of it would be no news
        assert len(processes_with(mark)) >= 4  # with, run, and two ranks
        tool.send_signal(sig)
        assert tool.wait(20) == (-sig if sig == signal.SIGKILL else 128 + sig)
    assert no_traces(prefix) == {}
    assert testbed.wait_until(lambda: not processes_with(mark), 5)


def test_api_is_guarded_too(prefix: str, tmp_path: Path) -> None:
    script = tmp_path / "killed.py"
    script.write_text(
        "import os, signal, sys\n"
        f"sys.path.insert(0, {str(HERE)!r})\n"
        "from testbed import Testbed\n"
        f"bed = Testbed(2, {{'eth0': '1gbit'}}, prefix={prefix!r})\n"
        "bed.up()\n"
        "bed.start(['sleep', '100'])\n"
        "print('up', flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([PYTHON, script], stdout=subprocess.PIPE, text=True, timeout=30)
    assert (done.returncode, done.stdout) == (-signal.SIGKILL, "up\n")
    assert no_traces(prefix) == {}


def test_context_manager_leaves_nothing() -> None:
    with Testbed(hosts=2, rails={"eth0": "1gbit"}) as bed:
        for rank in bed.start(["sh", "-c", "echo up; exec sleep 100"]):
            rank.wait_for("up")
        found = traces(bed.prefix)
        assert all(found.values()), found
        assert len(found["processes inside"]) == 2
    assert {kind: left for kind, left in traces(bed.prefix).items() if left} == {}


def test_ranks_that_have_hardly_started_end_too() -> None:
    with Testbed(hosts=2, rails={"eth0": "none"}) as bed:
        sessions = {rank.pid for rank in bed.start(["sh", "-c", "sleep 100; true"])}
        assert set(testbed.session_members(sessions)) >= sessions
    assert testbed.session_members(sessions) == []


def test_a_failed_build_leaves_nothing() -> None:
    bed = Testbed(hosts=2, rails={"eth0": "1gbit"}, mtu=9)
    with pytest.raises(BedError, match="mtu"):
        bed.up()
    assert {kind: left for kind, left in traces(bed.prefix).items() if left} == {}


def test_two_testbeds_at_once(quiet: Testbed) -> None:
    with Testbed(hosts=2, rails={"eth0": "none"}) as other:
        assert other.prefix != quiet.prefix
        assert other.rail("eth0").address(1) == quiet.rail("eth0").address(1)
        start_echo(other)
        assert ping(other, 0, "10.0.0.2", "eth0")
        assert silence(quiet, 0, "10.0.0.2", "eth0")  # nobody serves there


def test_a_prefix_is_used_once(quiet: Testbed, prefix: str) -> None:
    with pytest.raises(BedError, match="is up already"):
        Testbed(hosts=1, rails={"eth0": "none"}, prefix=quiet.prefix).up()
    quiet.run(["true"])  # it was left alone
    build = ["up", "--hosts", "1", "--rail"]
    assert cli("-p", prefix, *build, "eth0=none").returncode == 0
    assert cli("-p", prefix, *build, "eth1=none").returncode == 2
    assert cli("-p", prefix, *build, "eth1=none", "--force").returncode == 0
    assert Testbed.attach(prefix).environment(0)["RAILS"] == "eth1"


# ---- without root -----------------------------------------------------------------------------


@pytest.fixture
def anywhere(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A copy of the testbed that every user can read."""
    folder = Path(tmp_path_factory.mktemp("testbed"))
    for file in ("testbed", "testbed.py", "test_testbed.py"):
        shutil.copy(HERE / file, folder)
    for path in (folder, *folder.parents[: len(folder.parents) - 2]):
        if path.stat().st_uid == os.geteuid():
            path.chmod(0o755)
    yield folder


def as_ordinary_user(*cmd: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """By setpriv; inside a sandbox, which knows one user only, by one more user namespace."""
    nested = int(Path("/proc/self/uid_map").read_text().split()[2]) == 1
    if nested:
        become = NESTED
    else:
        ids = [f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
        become = [testbed.tool("setpriv"), *ids]
    bare = {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"}  # no sbin
    return subprocess.run(
        [*become, *cmd], capture_output=True, text=True, timeout=60, cwd=cwd, env=bare
    )


def test_with_as_an_ordinary_user(anywhere: Path) -> None:
    prefix = f"nzu{os.getpid()}"
    job = "id -u; ./testbed run hostname; ./testbed cut --how silent 1 eth0; ./testbed status"
    build = ["--hosts", "2", "--rail", "eth0=200mbit", "--cc", "nosuch"]
    done = as_ordinary_user(
        "./testbed", "-p", prefix, "with", *build, "--", "sh", "-c", job, cwd=anywhere
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("0\n")
    assert {"[0] h0", "[1] h1"} <= set(done.stdout.splitlines())
    assert "200 mbit" in done.stdout and "table netdev cut_eth0_h1" in done.stdout
    # it goes on without the congestion control, and says so once
    assert [line for line in done.stderr.splitlines() if "nosuch" in line] == [
        "testbed: warning: may not choose TCP congestion control 'nosuch' here; the hosts keep"
        " the kernel's default"
    ]
    assert no_traces(prefix) == {}


def test_pytest_as_an_ordinary_user(anywhere: Path) -> None:
    """The tests of real traffic, in a sandbox."""
    wanted = "shaped or (cut and silent) or two_ports"
    pytest_cmd = [PYTHON, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", wanted]
    done = as_ordinary_user(
        "./testbed", "sandbox", "--", *pytest_cmd, "test_testbed.py", cwd=anywhere
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 passed" in done.stdout


def test_other_commands_need_root(anywhere: Path) -> None:
    for cmd in (["up", "--hosts", "1", "--rail", "eth0=none"], ["down"], ["run", "true"]):
        done = as_ordinary_user("./testbed", *cmd, cwd=anywhere)
        assert done.returncode == 2
        assert "needs root; as an ordinary user: 'testbed with" in done.stderr


def test_a_kernel_that_gives_no_namespaces() -> None:
    forbid = 'echo 0 > /proc/sys/user/max_user_namespaces; exec "$@"'
    become = [*NESTED, "--keep-caps", "sh", "-c", forbid, "sh"]
    build = ["with", "--hosts", "1", "--rail", "eth0=none", "--", "true"]
    done = subprocess.run(
        [*become, PYTHON, TOOL, *build], capture_output=True, text=True, timeout=30
    )
    assert done.returncode == 2
    assert "gives an ordinary user no namespaces" in done.stderr
    assert "user.max_user_namespaces" in done.stderr


# ---- what it refuses --------------------------------------------------------------------------


def test_missing_packages_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    missing = {"ip", "tc", "nft"}
    monkeypatch.setattr(testbed, "_find_tool", lambda name: None if name in missing else "/x")
    with pytest.raises(BedError, match="apt install iproute2 nftables$"):
        Testbed(hosts=1, rails={"eth0": "none"}).up()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"hosts": 0}, "1 to 250 hosts"),
        ({"hosts": 251}, "1 to 250 hosts"),
        ({"rails": {}}, "1 to 100 rails"),
        ({"rails": {"Eth0": "1gbit"}}, "cannot name a rail"),
        ({"rails": {"mgmt": "1gbit"}}, "cannot name a rail"),
        ({"rails": {"eth0": "fast"}}, "bad rate 'fast'"),
        ({"rails": {"eth0": "0mbit"}}, "bad rate '0mbit'"),
        ({"rails": {"eth0": "1gbit@eth1", "eth1": "1gbit"}}, "no rail 'eth1' before it"),
        ({"without": ["eth0"]}, "bad port 'eth0'"),
        ({"without": ["2:eth0"]}, "no host 2"),
        ({"without": ["0:eth7"]}, "no rail 'eth7'"),
        ({"ranks_per_host": 0}, "at least one rank"),
        ({"ipv4": False}, "IPv4 or IPv6"),
        ({"prefix": "nz-1"}, "bad prefix 'nz-1'"),
        ({"cc": "x; reboot"}, "cannot name a congestion control"),
    ],
)
def test_bad_settings(arguments: dict[str, object], message: str) -> None:
    settings: dict[str, object] = {"hosts": 2, "rails": {"eth0": "1gbit"}}
    with pytest.raises(BedError, match=message):
        Testbed(**(settings | arguments))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["with", "--hosts", "1", "--rail", "eth0=1gbit"], "with: no command given"),
        (["up", "--hosts", "1", "--rail", "e=1gbit", "--rail", "e=none"], "two rails have one"),
        (["up", "--hosts", "x", "--rail", "eth0=1gbit"], "'x' is no number"),
        (["up", "--hosts", "1"], "required: --rail"),
        (["-p", "no-such", "down"], "bad prefix 'no-such'"),
        (["run", "--raw", "--only-rank", "0", "true"], "not allowed with argument --raw"),
    ],
)
def test_bad_command_lines(arguments: Sequence[str], message: str) -> None:
    done = cli(*arguments)
    assert done.returncode == 2
    assert message in done.stderr


def test_bad_weather(quiet: Testbed) -> None:
    changes: list[Callable[[], object]] = [
        lambda: quiet.cut(0, "eth7"),
        lambda: quiet.cut(2, "eth0"),
        lambda: quiet.cut(0, "eth0", "gently"),
        lambda: quiet.set_rate("eth0", "much"),
        lambda: quiet.loss("eth0", 101),
        lambda: quiet.start([]),
        lambda: quiet.start(["true"], on=[5]),
    ]
    for change in changes:
        with pytest.raises(BedError):
            change()


def test_bits_per_second() -> None:
    known = {"1gbit": 10**9, "2.5Gbit": 25 * 10**8, "400mbit": 4 * 10**8, "10kbps": 80_000}
    assert {rate: testbed.bits_per_second(rate) for rate in known} == known
