# SPDX-License-Identifier: Apache-2.0
"""RDMA that fails: a cut, a device that disappears, a rank that dies or stalls."""

from __future__ import annotations

import re
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import job
import pytest
from guest_bed import WAYS_TO_CUT, GuestBed
from processes import finish

RDMA = "rdma:rxe{host}?rail=r"
TCP = "tcp:t{host}?rail=t"
PORTS = {"r": "h", "t": "t"}  # by rail
RATE = "160mbit"
MIB = 1 << 17  # elements of int64
# This operation takes most of a second at RATE, on one rail or two.
LONG: dict[str, Any] = {"elements": 8 * MIB, "type": "int64", "operations": 1, "plan": "stripe"}
SMALL: dict[str, Any] = {"elements": f"1,1000,{MIB // 2}", "type": "int64", "pause": "0:5"}
SENT = 1 << 18  # bytes; an operation is then well under way
TIMEOUT = 3.0  # seconds


@pytest.fixture(autouse=True)
def logged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEZHA_LOG", "info")


@pytest.fixture
def alone() -> Iterator[GuestBed]:
    with GuestBed([RDMA]) as bed:
        bed.shape(RATE, "h")
        yield bed


@pytest.fixture
def both() -> Iterator[GuestBed]:
    with GuestBed([RDMA, TCP]) as bed:
        for port in PORTS.values():
            bed.shape(RATE, port)
        yield bed


def await_loss(rank: job.Rank, rail: str) -> None:
    rank.process.wait_for(rf"the link to .* on {rail} is down", job.PATIENCE)


def cut_in_the_middle(work: job.Job, bed: GuestBed, rail: str, how: str) -> None:
    work.sends_by(1, PORTS[rail], SENT)
    bed.cut(1, PORTS[rail], how)
    assert not work.ranks[1].done, "the cut came too late"


# ---- the rail -----------------------------------------------------------------------------------


@pytest.mark.parametrize("how", WAYS_TO_CUT)
@pytest.mark.parametrize("rail", PORTS)
def test_cut_of_one_of_two(both: GuestBed, rail: str, how: str) -> None:
    """The other rail carries the rest of the operation. A deleted device is closed at once."""
    with job.Job(both, 2) as work:
        work.start(**LONG)
        cut_in_the_middle(work, both, rail, how)
        work.succeed()
        [other] = [each for each in PORTS if each != rail]
        assert any(rank.rail(rail)["failures"] for rank in work.ranks), work.told()
        assert not any(rank.rail(other)["failures"] for rank in work.ranks), work.told()


@pytest.mark.parametrize("how", ["silent", "carrier", "admin"])
def test_cut_of_the_only_one_and_back(alone: GuestBed, how: str) -> None:
    """The operation waits, and its result is right."""
    with job.Job(alone, 2) as work:
        work.start(**LONG)
        cut_in_the_middle(work, alone, "r", how)
        for rank in work.ranks:
            await_loss(rank, "r")
        alone.heal(1, "h")
        work.succeed()


def test_cut_of_the_only_one(alone: GuestBed) -> None:
    """A permanent cut leads to an error by the deadline, which names the rank."""
    with job.Job(alone, 3) as work:
        work.start(until=work.stop_file, timeout=int(TIMEOUT * 1000), **SMALL)
        work.all_done(6)
        alone.cut(1, "h", "silent")
        work.wait()
        for rank in work.ranks:
            error = rank.wait_for("error")
            assert error["seconds"] < TIMEOUT + job.SLACK, error
            assert (1 in error["ranks"]) == (rank.number != 1), work.told()


@pytest.mark.parametrize("how", WAYS_TO_CUT)
def test_returns(both: GuestBed, how: str) -> None:
    """Operations go on by TCP. RDMA carries its part again when the port or the device is back."""
    with job.Job(both, 2) as work:
        work.start(until=work.stop_file, **SMALL)
        work.all_done(6)
        both.cut(1, "h", how)
        if how == "gone":
            both.await_deletion(1, "h")  # while the ranks run
        await_loss(work.ranks[0], "r")
        work.all_done(6)
        both.heal(1, "h")
        carried = work.ranks[1].rail("r")["sent"]
        job.await_that(
            "host 1 sends by RDMA again",
            lambda: work.ranks[1].rail("r")["sent"] > carried + SENT,
            tell=work.told,
        )
        work.stop()
        work.succeed()


def move_host_1(old: str, new: str) -> None:
    """Gives host 1's port another address. Packets from there still go through the switch."""
    lines = [
        f"address add {new}/32 dev h1",
        f"rule add pref 101 iif lo from {new} lookup 101",
        f"address del {old} dev h1",
        f"route replace 10.9.0.0/24 dev h1 src {new} table 101",
        f"route replace throw {new} table 101",
        f"rule del pref 101 iif lo from {old.split('/')[0]} lookup 101",
    ]
    batch = ["ip", "-batch", "-"]
    subprocess.run(batch, input="\n".join(lines), text=True, check=True, timeout=20)


def test_follows_its_address(both: GuestBed) -> None:
    with job.Job(both, 2) as work:
        work.start(until=work.stop_file, **SMALL)
        work.all_done(6)
        for old, new in [("10.9.0.2/24", "10.9.0.52"), ("10.9.0.52/32", "10.9.0.2")]:
            move_host_1(old, new)
            work.ranks[1].process.wait_for(f"listening at {new} from now on", job.PATIENCE)
            carried = work.ranks[1].rail("r")["sent"]
            job.await_that(
                f"host 1 sends by RDMA from {new}",
                lambda: work.ranks[1].rail("r")["sent"] > carried + SENT,
                tell=work.told,
            )
        both.heal(1, "h")
        work.stop()
        work.succeed()


def test_chaos(both: GuestBed) -> None:
    """One rail after the other is cut and healed in different ways, while operations go on."""
    random = Random(1)
    with job.Job(both, 3) as work:
        work.start(until=work.stop_file, **SMALL)
        work.all_done(3)
        for _ in range(8):
            host, port = random.randrange(3), random.choice(["h", "t"])
            both.cut(host, port, random.choice(["silent", "carrier", "admin"]))
            time.sleep(random.uniform(0, 0.4))
            both.heal(host, port)
            work.all_done(1)
        work.stop()
        work.succeed()


def test_abandoned(alone: GuestBed) -> None:
    """The deadline comes while segments are being read. Afterwards nothing is read or written."""
    with job.Job(alone, 2) as work:
        work.start(timeout=300, **LONG)
        work.wait()
        for rank in work.ranks:
            assert rank.wait_for("error")["type"] in ("TimeoutError", "IoError"), rank.told()
            assert rank.process.returncode == 1, rank.told()
        assert any(rank.wait_for("error")["type"] == "TimeoutError" for rank in work.ranks)


def test_cut_while_nobody_calls(both: GuestBed) -> None:
    with job.Job(both, 2) as work:
        work.start(elements=1000, operations=4, pause="700:700", timeout=int(TIMEOUT * 1000))
        work.all_done(2)
        both.cut(1, "h", "silent")
        work.succeed()


# ---- a rank -------------------------------------------------------------------------------------


def check_errors_name(ranks: list[job.Rank], dead: int) -> None:
    """Checks that the errors come at once, and not at the operation's deadline."""
    deadline = time.monotonic() + job.SLACK
    for rank in ranks:
        error = rank.wait_for("error", timeout=max(0.0, deadline - time.monotonic()))
        assert error["type"] == "IoError" and error["ranks"] == [dead], error
        assert re.search(rf": .*\brank {dead}\b", error["what"]), error


@pytest.mark.parametrize("options", [LONG, SMALL], ids=["long", "small"])
def test_killed_rank(alone: GuestBed, options: dict[str, Any]) -> None:
    with job.Job(alone, 3) as work:
        work.start(until=work.stop_file, **options)
        if options is LONG:
            work.sends_by(1, "h", SENT)
        else:
            work.all_done(6)
        work.ranks[1].process.kill()
        check_errors_name([work.ranks[0], work.ranks[2]], 1)


@pytest.mark.parametrize(
    "scenario", ["harmless-children", "children-with-contexts", "killed-with-children"]
)
def test_children_of_fork(alone: GuestBed, scenario: str, tmp_path: Path) -> None:
    """Children do not affect their parent's RDMA, even when they exit, and can create contexts."""
    program = str(job.BUILD / "tests" / "cluster_scenarios")
    argv = [program, scenario, str(tmp_path), ""]  # the rails come from NEZHA_RAILS
    processes = alone.start(argv, on=[0, 1], env={"SIZE": "2"})
    failed = finish(processes, job.PATIENCE)
    assert not failed, "".join(str(process.output) for process in processes)


def test_stopped_rank_goes_on(alone: GuestBed) -> None:
    """The device of a stopped process answers for it, so stopping a process is no failure."""
    with job.Job(alone, 2) as work:
        work.start(**LONG)
        work.sends_by(1, "h", SENT)
        work.ranks[1].process.kill(signal.SIGSTOP)
        time.sleep(1)
        assert not any(rank.done for rank in work.ranks), "the stop came too late"
        work.ranks[1].process.kill(signal.SIGCONT)
        work.succeed()


def test_stopped_rank(alone: GuestBed) -> None:
    """The other ranks get errors at the deadline, which name the stopped rank."""
    with job.Job(alone, 3) as work:
        options: dict[str, Any] = SMALL | {"until": work.stop_file, "timeout": int(TIMEOUT * 1000)}
        work.start(algorithm="ring", **options)
        work.all_done(6)
        work.ranks[1].process.kill(signal.SIGSTOP)
        for rank in (work.ranks[0], work.ranks[2]):
            error = rank.wait_for("error", timeout=TIMEOUT + job.SLACK)
            # On the emulator's single core, another rank may be silent for long, too.
            assert 1 in error["ranks"], error
            assert re.search(r": .*\brank 1\b", error["what"]), error
