# SPDX-License-Identifier: Apache-2.0
"""bench/rdma: a whole run on the guest's devices, its table, and what it refuses."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from lib.rdma.trials import Latencies, Row, table

BENCH = Path(__file__).parents[2] / "bench"


def test_table() -> None:
    """The table has figures as parts of perftest's best for the size and for all sizes, and the sum
    that bounds the latency."""
    rows = [Row(1 << 16, [50.0, 80.0, 70.0, 60.0], 60.0, 300.0), Row(1 << 20, [40.0], 30.0, 500.0)]
    text = table(rows, Latencies(send=40, rdma=50, tcp=35, loopback=30, bare=20))
    words = [line.split() for line in text.splitlines()]
    assert "64 KiB 50.0 80.0 70.0 60.0 60.0 0.75 0.75 300.0".split() in words, text
    assert "1 MiB 40.0 30.0 0.75 0.38 500.0".split() in words, text
    assert words[-2][-1] == "10.0" and words[-1][-1] == "62.0", text


@pytest.mark.parametrize(
    "arguments",
    [[], ["--guest", "--gid", "1"], ["--devices", "a,b", "--gid", "1"], ["--devices", "a"]],
)
def test_refuses(arguments: list[str]) -> None:
    done = subprocess.run([BENCH / "rdma", *arguments], capture_output=True, text=True)
    assert done.returncode == 2 and "bench/rdma: error: " in done.stderr, done.stderr


def test_whole_run() -> None:
    """A run on the devices of this guest, with one size."""
    options = ["--no-build", "--devices", "rxe0,rxe1", "--interfaces", "h0,h1", "--gid", "1"]
    command = [str(BENCH / "rdma"), *options, "--sizes", "256K", "--seconds", "0.1"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    [row] = [line.split() for line in done.stdout.splitlines() if line.startswith("256 KiB")]
    assert all(20 < float(word) < 200 for word in row[2:7]), done.stdout
    assert "ib_send_lat" in done.stdout


def test_says_which_run_failed() -> None:
    options = ["--no-build", "--devices", "rxe0,none0", "--interfaces", "h0,h1", "--gid", "1"]
    done = subprocess.run([BENCH / "rdma", *options], capture_output=True, text=True)
    assert done.returncode == 1 and "none0" in done.stderr, done.stderr
