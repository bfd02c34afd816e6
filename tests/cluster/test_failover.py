# SPDX-License-Identifier: Apache-2.0
"""bench/failover: what it calculates from the times of operations, and a whole run."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import cli
import job
import pytest
from lib.failover import outage
from lib.failover.outage import Operation, Outage, Run

BENCH = Path(__file__).parents[2] / "bench"
FAILOVER = str(BENCH / "failover")
MS = 1e-3


def run_of(*seconds: float, cut: float = 1.0, heal: float = 2.0, end: float = 3.0) -> Run:
    """A run of operations that follow each other from time 0."""
    run = Run("nezha", "silent", cut, heal, end)
    now = 0.0
    for each in seconds:
        now += each
        run.operations.append(Operation(now, each))
    return run


def test_stall() -> None:
    """An operation takes 10 ms on two rails and 20 ms on one. The cut came when half of one was
    done, so the other half takes 10 ms."""
    run = run_of(*[10 * MS] * 100, 160 * MS, *[20 * MS] * 42, *[10 * MS] * 100, cut=1.005)
    assert run.before() == pytest.approx(10 * MS)
    assert run.during() == pytest.approx(20 * MS)
    assert run.after() == pytest.approx(10 * MS)
    assert run.stall() == pytest.approx(145 * MS)
    assert run.to_survivor() == pytest.approx(155 * MS)
    assert run.to_all() == pytest.approx(0)
    assert run.told() == "goes on"


def test_stall_of_the_next_operation() -> None:
    """The stall may show only in the operation after the one that the cut interrupted."""
    run = run_of(*[10 * MS] * 100, 15 * MS, 160 * MS, *[20 * MS] * 50, cut=1.005, heal=2.0)
    assert run.stall() == pytest.approx((170 - 10 - 20) * MS)
    assert run.to_survivor() == pytest.approx(170 * MS)
    assert run.to_all() is None


def test_nothing_lost() -> None:
    run = run_of(*[10 * MS] * 100, *[20 * MS] * 60)
    assert run.stall() == pytest.approx(0) and run.to_survivor() == pytest.approx(0)


def test_what_happened() -> None:
    usual = [10 * MS] * 100
    late = run_of(*usual, 1.7, *usual[:20])
    assert late.told() == "stands still until 0.7 s after the heal"
    assert late.during() is None and late.stall() is None and late.to_survivor() is None
    assert late.to_all() == pytest.approx(0.7)
    assert run_of(*usual).told() == "stands still, 1 s after the heal too"
    dead = run_of(*usual)
    dead.errors = ["rank 1 ended with status 1", "timed out"]
    assert dead.told() == "aborts"
    assert Run("ompi", "silent").told() == "failed"


def test_table(tmp_path: Path) -> None:
    rails = {"eth0": 10**9, "eth1": 10**9}
    labels = {"nezha": "nezha", "ompi": "Open MPI"}
    results = Outage({"cores": 4}, 4, rails, 10**6, "eth0", labels)
    results.runs = [
        run_of(*[10 * MS] * 100, 160 * MS, *[20 * MS] * 42, *[10 * MS] * 100, cut=1.005),
        Run("ompi", "silent", errors=["no operation ended within 20 s"]),
    ]
    results.save(tmp_path / outage.DATA)
    assert Outage.load(tmp_path / outage.DATA) == results
    lines = outage.table(results).splitlines()
    [own] = [line for line in lines if line.startswith("nezha ")]
    assert own.split() == ["nezha", "100", "50", "100", "145", "155", "0", "goes", "on"]
    [other] = [line for line in lines if line.startswith("Open MPI ")]
    assert other.split() == ["Open", "MPI", *"------", "failed"]
    assert lines[-1] == "Open MPI, silent: no operation ended within 20 s"


def call(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [FAILOVER, "--no-build", *arguments],
        capture_output=True,
        text=True,
        timeout=job.PATIENCE,
        env=os.environ | {"TMPDIR": "/tmp"},
    )


@cli.bad_command_lines(
    [
        (["--rail", "eth0=1gbit"], "at least two are needed"),
        (["--rail", "eth0=1gbit", "--rail", "eth1=none"], "each with a rate"),
        (["--peers", "nezha,mpich"], "'mpich' (there are nezha, mptcp-ring, gloo-ring, ompi)"),
        (["--cuts", "axe"], "'axe' (there are carrier, admin, silent, reset)"),
        (["--size", "3"], "'3' is no size"),
        (["--outage", "0"], "'0' is not a number from 1"),
    ]
)
def test_bad_command_lines(arguments: list[str], reason: str) -> None:
    cli.assert_refused(call(*arguments), reason)


def test_a_whole_run(tmp_path: Path) -> None:
    """nezha goes on. Gloo, on the cut rail, stalls or aborts; the program reports and ends it."""
    options = ["--quick", "--outage", "2", "--hosts", "2", "--size", "1M", "--cuts", "silent,reset"]
    done = call(*options, "--peers", "nezha,gloo-ring", "--out", str(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr
    results = Outage.load(tmp_path / outage.DATA)
    assert [run.peer for run in results.runs] == ["nezha", "gloo-ring"] * 2
    assert [run.way for run in results.runs] == ["silent"] * 2 + ["reset"] * 2
    for nezha in results.runs[::2]:
        assert nezha.told() == "goes on" and nezha.before() and nezha.during()
    silent, reset = results.runs[1::2]
    assert silent.told().startswith("stands still") and silent.stall() is None
    # The abort may come some operations later, or the other rank waits.
    assert reset.told().endswith("aborts") or reset.told().startswith("stands still")
    for name in outage.PICTURES:
        assert (tmp_path / name).stat().st_size > 1000
    assert "stands still" in done.stdout
