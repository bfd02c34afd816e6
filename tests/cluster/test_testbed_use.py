# SPDX-License-Identifier: Apache-2.0
"""Commands on a testbed's hosts, several testbeds, and what a testbed refuses."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator

import pytest
import system_tools
from probes import ping, silence, start_echo
from processes import session_members
from rails import bits_per_second
from state import take_down
from system_tools import BedError
from testbed import Testbed
from traces import traces


@pytest.fixture(scope="module")
def quiet() -> Iterator[Testbed]:
    """A testbed in which only the test's processes run."""
    with Testbed(hosts=2, rails={"eth0": "200mbit"}, ranks_per_host=2) as made:
        yield made


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
    # by SIGTERM, which may come before the trap is set
    assert {ranks[rank].returncode for rank in (0, 1, 3)} <= {9, -signal.SIGTERM}
    assert traces(quiet.prefix)["processes inside"] == []


def test_timeout(quiet: Testbed) -> None:
    with pytest.raises(TimeoutError, match=r"after 0.5 s: rank 1 \(host 0\)"):
        quiet.run(["sh", "-c", "[ $RANK != 1 ] || sleep 100"], timeout=0.5)


def test_kill_takes_the_whole_session(quiet: Testbed) -> None:
    # with job control, the background job has its own process group
    [rank] = quiet.start(
        ["bash", "-c", "set -m; trap '' TERM; sleep 100 & echo up; wait"], on=[1], ranks_per_host=1
    )
    rank.wait_for("^up$")
    assert rank.returncode is None
    assert len(session_members({rank.pid})) == 2
    with pytest.raises(TimeoutError):
        rank.wait(timeout=0.1)
    rank.kill(signal.SIGTERM)  # the process ignores it
    rank.kill()
    assert rank.returncode == -signal.SIGKILL
    assert session_members({rank.pid}) == []


def test_wait_for(quiet: Testbed) -> None:
    [rank] = quiet.start(["sh", "-c", "echo out; echo err >&2; exit 3"], on=[0], ranks_per_host=1)
    assert rank.wait() == 3
    assert (rank.stdout, rank.stderr) == ("out\n", "err\n")
    with pytest.raises(BedError, match="ended .3. without 'never'"):
        rank.wait_for("never")


def test_two_testbeds_at_once(quiet: Testbed) -> None:
    with Testbed(hosts=2, rails={"eth0": "none"}) as other:
        assert other.prefix != quiet.prefix
        assert other.rail("eth0").address(1) == quiet.rail("eth0").address(1)
        start_echo(other)
        assert ping(other, 0, "10.0.0.2", "eth0")
        assert silence(quiet, 0, "10.0.0.2", "eth0")  # nobody serves there


def test_one_left_behind_is_passed_over() -> None:
    """An earlier process of the same number was killed with its guard, and left a namespace."""
    left_behind = Testbed(hosts=1, rails={"eth0": "none"}).prefix
    process, number = left_behind.split("_")
    following = [f"{process}_{int(number) + step}" for step in (1, 2)]
    system_tools.command(["ip", "netns", "add", f"{following[0]}-h0"])
    try:
        assert Testbed(hosts=1, rails={"eth0": "none"}).prefix == following[1]
    finally:
        take_down(following[0])


# ---- what it refuses --------------------------------------------------------------------------


def test_missing_packages_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    missing = {"ip", "tc", "nft"}
    monkeypatch.setattr(system_tools, "_find_tool", lambda name: None if name in missing else "/x")
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
    assert {rate: bits_per_second(rate) for rate in known} == known
