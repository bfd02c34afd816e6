# SPDX-License-Identifier: Apache-2.0
"""nezha-bench and gloo-bench: what they print, what they refuse, and complete runs."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import job
import pytest
from processes import Process, end_sessions, session_members
from state import STATE_DIR
from testbed import Testbed

RAILS = {"eth0": "1gbit", "eth1": "500mbit"}
NEZHA = str(job.BUILD / "bench" / "nezha-bench")
GLOO = str(job.BUILD / "bench" / "gloo-bench")
ON_BOTH = {
    NEZHA: ["--rails", job.rails_option(RAILS)],
    GLOO: ["--tcp-device", ",".join(RAILS)],
}
PRELOAD = str(job.BUILD / "interop" / "libnezha_gloo.so")
OVER_NEZHA = ["env", f"LD_PRELOAD={PRELOAD}", f"NEZHA_RAILS={job.rails_option(RAILS)}"]
PROGRAMS = pytest.mark.parametrize("program", [NEZHA, GLOO], ids=["nezha", "gloo"])
ELEMENTS = [1, 1000, 1 << 18]
QUICK = ["--elements", "1,1000,256K", "--warmup-iters", "2", "--iteration-count", "3"]

SHARED_OPTIONS = [
    *("size", "rank", "shared-path", "store", "redis-host", "redis-port", "prefix", "timeout"),
    *("type", "operation", "elements", "warmup-iters"),
    *("iteration-count", "iteration-time", "no-verify", "in-place", "barrier", "threads"),
    "start-up",
    *("format", "trace"),
    *("line-rate", "share", "algorithm", "help", "version"),
]
FLAGS = ["no-verify", "in-place", "barrier", "start-up", "list-rails", "reproducible"]
FLAGS += ["await-switch", "rails-report", "help", "help-env", "version"]
OPTIONS = {
    NEZHA: [*SHARED_OPTIONS, "rails", "list-rails", "ports", "plan", "policy", "table"]
    + ["reproducible", "await-switch", "rails-report", "help-env"],
    GLOO: [*SHARED_OPTIONS, "tcp-device"],
}


@pytest.fixture(scope="module")
def bed() -> Iterator[Testbed]:
    with Testbed(hosts=3, rails=RAILS) as bed:
        yield bed


def run(
    bed: Testbed,
    store: Path,
    program: str,
    *options: str,
    collective: str = "allreduce",
    before: Sequence[str] = (),
) -> str:
    """Rank 0's output; the other ranks print nothing. `before` are the words before the program."""
    command = [*before, program, "--shared-path", str(store), *options, collective]
    ranks = bed.run(command, timeout=job.PATIENCE)
    assert not any(rank.stdout for rank in ranks[1:])
    return ranks[0].stdout


def check_row(row: dict[str, Any], program: str, elements: int) -> None:
    assert row["program"] == Path(program).name
    assert row["collective"] == "allreduce"
    assert int(row["ranks"]) == 3
    assert (row["type"], row["operation"]) == ("float32", "sum")
    assert int(row["elements"]) == elements
    assert int(row["bytes"]) == 4 * elements
    assert int(row["iterations"]) == 3
    times = [float(row[f"{name}_us"]) for name in ("min", "p50", "p99", "max")]
    assert times[0] > 0 and times == sorted(times)
    bandwidth = 8 * 4 * elements / (times[1] * 1e-6) / 1e9
    assert float(row["algorithm_bandwidth_gbps"]) == pytest.approx(bandwidth, rel=0.01, abs=2e-6)
    # with three ranks, 2 (n - 1) / n
    assert float(row["bus_bandwidth_gbps"]) == pytest.approx(4 / 3 * bandwidth, rel=0.01, abs=2e-6)


# ---- output -----------------------------------------------------------------------------------


@PROGRAMS
def test_json(bed: Testbed, tmp_path: Path, program: str) -> None:
    text = run(bed, tmp_path, program, *ON_BOTH[program], *QUICK, "--format", "json")
    rows = [json.loads(line) for line in text.splitlines()]
    assert len(rows) == len(ELEMENTS)
    for row, elements in zip(rows, ELEMENTS):
        check_row(row, program, elements)
        assert [rail["name"] for rail in row["rails"]] == list(RAILS)
        assert row["line_rate_gbps"] is None and row["line_rate_percent"] is None  # a veth has none
        interfaces = re.findall(r"(?:^|; )tcp, [^;]*iface=(\w+)", row["device"])
        assert interfaces == (list(RAILS) if program == GLOO else [])
    large = [rail["bytes"] for rail in rows[-1]["rails"]]
    # a ring of three sends 4/3 of it from each rank, in each of the 3 iterations
    assert sum(large) >= 3 * 4 * ELEMENTS[-1] * 4 / 3


@PROGRAMS
def test_csv(bed: Testbed, tmp_path: Path, program: str) -> None:
    text = run(bed, tmp_path, program, *ON_BOTH[program], *QUICK, "--format", "csv")
    rows = list(csv.DictReader(io.StringIO(text)))
    assert len(rows) == len(ELEMENTS)
    for row, elements in zip(rows, ELEMENTS):
        assert None not in row and None not in row.values()  # as many values as names
        check_row(row, program, elements)
        assert [row["rail0_name"], row["rail1_name"]] == list(RAILS)
        assert row["line_rate_gbps"] == row["line_rate_percent"] == ""
        shares = [float(row["rail0_share"]), float(row["rail1_share"])]
        assert sum(shares) == pytest.approx(1, abs=0.001)


@PROGRAMS
def test_table(bed: Testbed, tmp_path: Path, program: str) -> None:
    options = [*ON_BOTH[program], *QUICK, "--line-rate", "1,0.5"]
    lines = run(bed, tmp_path, program, *options).splitlines()
    assert "allreduce" in lines[0] and "verified" in lines[0]
    assert lines[0].endswith("rails eth0,eth1" + (" in parts 1,1" if program == GLOO else ""))
    head = next(index for index, line in enumerate(lines) if line.lstrip().startswith("size (B)"))
    assert lines[head].rstrip().endswith("load balancer") == (program == NEZHA)
    end = lines.index("", head)
    rows = [line.split() for line in lines[head + 1 : end]]
    assert [int(row[1]) for row in rows] == ELEMENTS
    for row in rows:
        assert all(re.fullmatch(r"\d+\.\d+", number) for number in row[2:8]), row
        bus = 4 / 3 * 8 * int(row[0]) / float(row[3]) / 1e3  # Gbit/s
        assert float(row[7]) == pytest.approx(bus, rel=0.01, abs=0.001)
        assert float(row[8].rstrip("%")) == pytest.approx(bus / 1.5 * 100, rel=0.01, abs=0.1)
        assert row[10] == "eth0" and row[12] == "eth1", row
        shares = [float(row[index].rstrip("%")) for index in (11, 13)]
        assert sum(shares) == pytest.approx(100, abs=0.2)
    legend = "\n".join(lines[end:])
    for name in ("algorithm bandwidth: ", "bus bandwidth: 1.33333 times", "rank's line rate, 1.5 Gbit/s"):
        assert name in legend
    # the last size has a state, and the legend explains every state
    assert (len(rows[-1]) > 14) == ("searching: " in legend) == (program == NEZHA)


def test_line_rates_of_the_ranks(bed: Testbed, tmp_path: Path) -> None:
    """The lowest line rate of any rank counts. It is unknown if one rank does not know its rate."""
    own = [*ON_BOTH[NEZHA], "--elements", "1000", "--iteration-count", "3", "--format", "json"]
    cases: list[tuple[list[str], float | None]] = [(["--line-rate", "4"], 1.5), ([], None)]
    for third, expected in cases:
        shared = tmp_path / str(expected)
        rates = [["--line-rate", "2"], ["--line-rate", "1,0.5"], third]
        ranks = start(bed, shared, [[NEZHA, *own, *rate] for rate in rates])
        assert [rank.wait(job.PATIENCE) for rank in ranks] == [0, 0, 0], [r.stderr for r in ranks]
        row = json.loads(ranks[0].stdout)
        assert row["line_rate_gbps"] == expected
        part = expected and row["bus_bandwidth_gbps"] / expected * 100
        assert row["line_rate_percent"] == pytest.approx(part, rel=0.01, abs=0.001)


BYTES = {"uint8": 1, "int8": 1, "int16": 2, "uint16": 2, "float16": 2, "bfloat16": 2}
BYTES |= {"int32": 4, "uint32": 4, "float32": 4, "int64": 8, "uint64": 8, "float64": 8}
OPERATIONS = ["sum", "product", "min", "max", "average"]


def test_types(bed: Testbed, tmp_path: Path) -> None:
    """nezha's types and operations give right results, and so do those that Gloo has, too."""
    for program in (NEZHA, GLOO):
        types = [name for name in BYTES if program == NEZHA or name != "bfloat16"]
        known = OPERATIONS[: 5 if program == NEZHA else 4]
        pairs = [(name, known[number % len(known)]) for number, name in enumerate(types)]
        for name, operation in {*pairs, *(("float16", each) for each in known)}:
            prefix = ["--prefix", f"{Path(program).name}-{name}-{operation}"]
            what = ["--type", name, "--operation", operation, "--format", "json"]
            text = run(bed, tmp_path, program, *ON_BOTH[program], *QUICK, *prefix, *what)
            rows = [json.loads(line) for line in text.splitlines()]
            assert [row["bytes"] for row in rows] == [BYTES[name] * n for n in ELEMENTS]
            assert all((row["type"], row["operation"]) == (name, operation) for row in rows)


def test_types_of_other_collectives(bed: Testbed, tmp_path: Path) -> None:
    for number, (collective, options) in enumerate(
        [
            ("reduce", ["--type", "bfloat16", "--operation", "max"]),
            ("reduce", ["--type", "int8", "--operation", "product"]),
            ("broadcast", ["--type", "uint64"]),
        ]
    ):
        words = [*ON_BOTH[NEZHA], *QUICK, *options, "--prefix", str(number), "--format", "json"]
        text = run(bed, tmp_path, NEZHA, *words, collective=collective)
        for row, elements in zip(map(json.loads, text.splitlines()), ELEMENTS):
            assert row["bytes"] == BYTES[options[1]] * elements
            assert row["operation"] == (options[3] if len(options) > 2 else "")
            # the factor between both bandwidths is 1
            assert row["bus_bandwidth_gbps"] == row["algorithm_bandwidth_gbps"]


def test_sizes_with_units(bed: Testbed, tmp_path: Path) -> None:
    sizes = ["--elements", "2k,2K,2Ki,2ki,2048,1m,1Mi", "--iteration-count", "1"]
    text = run(bed, tmp_path, NEZHA, *ON_BOTH[NEZHA], *sizes, "--format", "json")
    counts = [json.loads(line)["elements"] for line in text.splitlines()]
    assert counts == [2048] * 5 + [1 << 20] * 2


def test_iteration_time_when_operations_slow_down(tmp_path: Path) -> None:
    """The run takes about the requested time, however long the first operations took."""
    with Testbed(hosts=2, rails={"eth0": "200mbit"}) as bed:
        trace = tmp_path / "trace"
        sizes = ["--elements", "16K", "--iteration-time", "4s", "--trace", str(trace)]
        command = [NEZHA, "--rails", "tcp:eth0", "--shared-path", str(tmp_path / "store")]
        ranks = bed.start([*command, *sizes, "allreduce"])

        def ends() -> list[float]:
            lines = trace.read_text().splitlines()[1:] if trace.exists() else []
            return [float(line.split(",")[0]) for line in lines if line.count(",") >= 4]

        job.await_that("a second is over", lambda: len(ends()) > 1 and ends()[-1] > ends()[0] + 1)
        bed.set_rate("eth0", "10mbit")
        assert [rank.wait(job.PATIENCE) for rank in ranks] == [0, 0], [r.stderr for r in ranks]
        # the number of operations that fitted at the first rate would now take over a minute
        assert 3 < ends()[-1] - ends()[0] < 30


@PROGRAMS
@pytest.mark.parametrize("given, parts", [("3,1", [0.75, 0.25]), ("0,1", [0, 1])], ids=["3-1", "0-1"])
def test_shares(
    bed: Testbed, tmp_path: Path, program: str, given: str, parts: list[float]
) -> None:
    """Slices have the requested sizes."""
    options = [*ON_BOTH[program], *(["--plan", "slice"] if program == NEZHA else [])]
    sizes = ["--elements", "1M", "--warmup-iters", "1", "--iteration-count", "2"]
    text = run(bed, tmp_path, program, *options, *sizes, "--share", given, "--format", "json")
    shares = [rail["share"] for rail in json.loads(text)["rails"]]
    # Gloo's are from the interfaces' counters, which include headers and acknowledgements
    assert shares == pytest.approx(parts, abs=0.001 if program == NEZHA else 0.02)


@pytest.mark.parametrize(
    "options",
    [
        ["--threads", "3", "--in-place", "--algorithm", "ring"],
        ["--plan", "slice", "--no-verify", "--algorithm", "recursive-doubling"],
        ["--reproducible"],
        ["--prefix", "another", "--timeout", "20s", "--iteration-time", "50ms"],
    ],
    ids=["threads", "slices", "reproducible", "times"],
)
def test_options_of_nezha(bed: Testbed, tmp_path: Path, options: Sequence[str]) -> None:
    text = run(bed, tmp_path, NEZHA, *ON_BOTH[NEZHA], *QUICK, *options, "--format", "json")
    rows = [json.loads(line) for line in text.splitlines()]
    assert [row["elements"] for row in rows] == ELEMENTS
    for name in ("threads", "plan", "algorithm"):
        if f"--{name}" in options:
            assert str(rows[0][name]) == options[options.index(f"--{name}") + 1]


@pytest.mark.parametrize(
    "options",
    [["--threads", "2", "--in-place"], ["--algorithm", "bcube", "--no-verify"]],
    ids=["threads", "bcube"],
)
def test_options_of_gloo(bed: Testbed, tmp_path: Path, options: Sequence[str]) -> None:
    text = run(bed, tmp_path, GLOO, *ON_BOTH[GLOO], *QUICK, *options, "--format", "json")
    assert [json.loads(line)["elements"] for line in text.splitlines()] == ELEMENTS


@pytest.mark.parametrize("in_place", [[], ["--in-place"]], ids=["out", "in"])
@pytest.mark.parametrize("collective", ["reduce", "broadcast", "barrier"])
def test_other_collectives(
    bed: Testbed, tmp_path: Path, collective: str, in_place: list[str]
) -> None:
    sizes = QUICK if collective != "barrier" else QUICK[2:]
    options = [*ON_BOTH[NEZHA], *sizes, *in_place, "--threads", "2", "--format", "json"]
    options += ["--line-rate", "1,0.5"]
    output = run(bed, tmp_path, NEZHA, *options, collective=collective)
    rows = [json.loads(line) for line in output.splitlines()]
    assert [row["elements"] for row in rows] == (ELEMENTS if collective != "barrier" else [0])
    assert all(row["collective"] == collective and row["min_us"] > 0 for row in rows)
    for row in rows:
        per_bytes = row["algorithm_bandwidth_gbps"], row["bus_bandwidth_gbps"]
        if collective == "barrier":
            assert per_bytes == (None, None) and row["line_rate_percent"] is None
        else:
            assert per_bytes[0] == per_bytes[1] is not None
            assert row["line_rate_percent"] is not None
        assert row["line_rate_gbps"] == 1.5
    if collective != "barrier":  # in a chain of three, two ranks send: three times, two threads
        sent = sum(rail["bytes"] for rail in rows[-1]["rails"])
        assert sent == pytest.approx(3 * 2 * 2 * 4 * ELEMENTS[-1], rel=0.01)


def test_table_of_a_barrier(bed: Testbed, tmp_path: Path) -> None:
    """A barrier has no data, and so no bandwidth."""
    options = [*ON_BOTH[NEZHA], "--iteration-count", "3", "--line-rate", "1"]
    lines = run(bed, tmp_path, NEZHA, *options, collective="barrier").splitlines()
    head = next(index for index, line in enumerate(lines) if line.lstrip().startswith("size (B)"))
    assert lines[head + 1].split()[6:10] == ["-", "-", "-", "3"]


# How many copies of each rank's block three ranks send in total.
BLOCKS_SENT = {"allgather": 6, "reduce_scatter": 6, "alltoall": 6, "gather": 2, "scatter": 2}


@pytest.mark.parametrize("in_place", [[], ["--in-place"]], ids=["out", "in"])
@pytest.mark.parametrize("collective", BLOCKS_SENT)
def test_collectives_of_blocks(
    bed: Testbed, tmp_path: Path, collective: str, in_place: list[str]
) -> None:
    """The size is that of all three blocks. The bus bandwidth is 2/3 of the algorithm bandwidth."""
    options = [*ON_BOTH[NEZHA], *QUICK, *in_place, "--threads", "2", "--format", "json"]
    output = run(bed, tmp_path, NEZHA, *options, collective=collective)
    rows = [json.loads(line) for line in output.splitlines()]
    assert [row["elements"] for row in rows] == ELEMENTS
    assert [row["bytes"] for row in rows] == [3 * 4 * n for n in ELEMENTS]
    for row in rows:
        bus = 2 / 3 * row["algorithm_bandwidth_gbps"]
        assert row["bus_bandwidth_gbps"] == pytest.approx(bus, rel=0.01, abs=0.001)  # as rounded
    sent = sum(rail["bytes"] for rail in rows[-1]["rails"])
    blocks = 3 * 2 * BLOCKS_SENT[collective]  # three times, two threads
    assert sent == pytest.approx(blocks * 4 * ELEMENTS[-1], rel=0.01)


@pytest.mark.parametrize("collective", ["send_recv", "ping_pong"])
def test_send_recv(bed: Testbed, tmp_path: Path, collective: str) -> None:
    """Each of three ranks sends its vector once, three times, by two threads."""
    options = [*ON_BOTH[NEZHA], *QUICK, "--threads", "2", "--format", "json"]
    output = run(bed, tmp_path, NEZHA, *options, collective=collective)
    rows = [json.loads(line) for line in output.splitlines()]
    assert [row["bytes"] for row in rows] == [4 * n for n in ELEMENTS]
    assert all(row["bus_bandwidth_gbps"] == row["algorithm_bandwidth_gbps"] > 0 for row in rows)
    sent = sum(rail["bytes"] for rail in rows[-1]["rails"])
    assert sent == pytest.approx(3 * 3 * 2 * 4 * ELEMENTS[-1], rel=0.01)


ALGORITHMS = {
    "allgather": ["ring", "bruck", "direct"],
    "reduce_scatter": ["ring", "halving-doubling", "direct"],
    "alltoall": ["bruck", "direct", "pairwise"],
    "gather": ["tree", "direct"],
    "scatter": ["tree", "direct"],
}


@pytest.mark.parametrize("collective", ALGORITHMS)
def test_algorithms_of_blocks(bed: Testbed, tmp_path: Path, collective: str) -> None:
    """Each algorithm is measured, also if the benchmark's allreduces do not have it."""
    for algorithm in ALGORITHMS[collective]:
        options = [*ON_BOTH[NEZHA], *QUICK, "--algorithm", algorithm, "--prefix", algorithm]
        output = run(bed, tmp_path, NEZHA, *options, "--format", "json", collective=collective)
        rows = [json.loads(line) for line in output.splitlines()]
        assert [(row["elements"], row["algorithm"]) for row in rows] == [
            (n, algorithm) for n in ELEMENTS
        ]


@pytest.mark.parametrize("devices", ["eth0", "eth0,eth1"], ids=["one", "both"])
@pytest.mark.parametrize("collective", ["reduce", "broadcast", "barrier", *BLOCKS_SENT])
def test_other_collectives_of_gloo(
    bed: Testbed, tmp_path: Path, collective: str, devices: str
) -> None:
    """Over both devices, each rail carries its part of the vector or of each block."""
    shares = ["--share", "2,1"] if "," in devices else []
    sizes = QUICK if collective != "barrier" else QUICK[2:]
    options = ["--tcp-device", devices, *shares, *sizes, "--threads", "2", "--format", "json"]
    output = run(bed, tmp_path, GLOO, *options, collective=collective)
    rows = [json.loads(line) for line in output.splitlines()]
    blocks = 3 if collective in BLOCKS_SENT else 1
    vectors = [blocks * 4 * n for n in ELEMENTS] if collective != "barrier" else [0]
    assert [row["bytes"] for row in rows] == vectors
    assert all(row["collective"] == collective and row["min_us"] > 0 for row in rows)
    if shares and collective != "barrier":  # the interfaces' counters include retransmissions
        carried = [rail["share"] for rail in rows[-1]["rails"]]
        assert carried == pytest.approx([2 / 3, 1 / 3], abs=0.05)


GLOO_ALGORITHMS = [["--algorithm", name] for name in ("ring", "bcube")]


@pytest.mark.parametrize(
    ("collective", "options"),
    [("allreduce", options) for options in GLOO_ALGORITHMS]
    + [(name, []) for name in ("reduce", "broadcast", "barrier", *BLOCKS_SENT)],
)
@pytest.mark.parametrize("algorithms", ["gloo", "nezha"])
def test_gloo_over_nezha(
    bed: Testbed, tmp_path: Path, collective: str, options: list[str], algorithms: str
) -> None:
    """The preloaded library replaces Gloo's device and, if `algorithms` is nezha, its algorithms.
    One context has both interfaces, and every result is checked.
    """
    sizes = QUICK if collective != "barrier" else QUICK[2:]
    words = [*ON_BOTH[GLOO], *sizes, *options, "--threads", "2", "--format", "json"]
    before = [*OVER_NEZHA, f"NEZHA_GLOO_COLLECTIVES={algorithms}"]
    output = run(bed, tmp_path, GLOO, *words, collective=collective, before=before)
    rows = [json.loads(line) for line in output.splitlines()]
    assert len(rows) == (len(ELEMENTS) if collective != "barrier" else 1)
    assert {row["device"] for row in rows} == {"nezha, rails=NEZHA_RAILS"}
    if collective != "barrier":
        assert all(rail["share"] > 0.1 for rail in rows[-1]["rails"])  # by the interfaces' counters


def test_device_in_table(bed: Testbed, tmp_path: Path) -> None:
    options = [*ON_BOTH[GLOO], *QUICK]
    lines = run(bed, tmp_path, GLOO, *options, before=OVER_NEZHA).splitlines()
    assert "device: nezha, rails=NEZHA_RAILS" in lines


def test_shares_of_a_device_for_all_interfaces(bed: Testbed, tmp_path: Path) -> None:
    options = [*ON_BOTH[GLOO], *QUICK, "--share", "2,1"]
    command = [*OVER_NEZHA, GLOO, "--shared-path", str(tmp_path), *options, "allreduce"]
    reason = (
        "--share is not possible, because one device drives all interfaces: "
        "nezha, rails=NEZHA_RAILS"
    )
    for rank in bed.start(command):
        assert rank.wait(job.PATIENCE) == 1 and reason in rank.stderr, rank.output


@pytest.mark.parametrize("collective", ["reduce", "broadcast"])
def test_in_place_of_gloo(bed: Testbed, tmp_path: Path, collective: str) -> None:
    options = [*ON_BOTH[GLOO], *QUICK, "--in-place", "--format", "json"]
    output = run(bed, tmp_path, GLOO, *options, collective=collective)
    assert [json.loads(line)["elements"] for line in output.splitlines()] == ELEMENTS


@pytest.mark.parametrize(
    ("options", "collective", "reason"),
    [
        (["--in-place"], "allgather", "--in-place: Gloo has it for allreduce, reduce and broadcast"),
        (["--algorithm", "bcube"], "allgather", "--algorithm: Gloo has bcube for allreduce only"),
    ],
)
def test_what_gloo_cannot_do(
    bed: Testbed, tmp_path: Path, options: list[str], collective: str, reason: str
) -> None:
    command = [GLOO, "--shared-path", str(tmp_path), *ON_BOTH[GLOO], *QUICK, *options, collective]
    ranks = bed.start(command)
    assert [rank.wait(job.PATIENCE) for rank in ranks] == [1, 1, 1]
    assert all(reason in rank.stderr for rank in ranks)


def stop(rank: Process) -> None:
    """Stops the rank; returns once all of its threads are stopped."""

    def stands_still() -> bool:
        states = [
            text[text.rindex(")") + 2]  # the name before it may contain anything
            for pid in session_members({rank.pid})
            for text in (file.read_text() for file in Path(f"/proc/{pid}/task").glob("*/stat"))
        ]
        return set(states) == {"T"}

    rank.kill(signal.SIGSTOP)
    job.await_that(f"{rank} stands still", stands_still)


def test_a_barrier_before_each_operation(bed: Testbed, tmp_path: Path) -> None:
    """While a rank is stopped, the root begins no second broadcast."""
    trace = tmp_path / "trace"
    options = [*ON_BOTH[NEZHA], "--elements", "1", "--iteration-count", "1000000", "--barrier"]
    command = [NEZHA, "--shared-path", str(tmp_path / "store"), *options, "--trace", str(trace)]
    ranks = bed.start([*command, "broadcast"])

    def ends() -> list[float]:
        """The times at which operations ended, by the monotonic clock."""
        text = trace.read_text() if trace.exists() else ""
        return [float(line.split(",")[0]) for line in text.splitlines()[1:] if line.count(",") >= 4]

    try:
        job.await_that("operations run", lambda: len(ends()) > 10)
        stop(ranks[0])
        time.sleep(0.5)  # rank 1 catches up; without barriers, the root could now be far ahead
        stop(ranks[1])
        stopped = time.monotonic()
        ranks[0].kill(signal.SIGCONT)
        time.sleep(1)
        # The root ends the current broadcast. The barrier after it cannot end, because in it rank 1
        # sends its last message after the root's first one.
        assert len([end for end in ends() if end > stopped]) <= 1
        ranks[1].kill(signal.SIGCONT)
        before = len(ends())
        job.await_that("operations go on", lambda: len(ends()) > before + 10)
    finally:
        end_sessions(ranks, gently=False)


def test_a_blank_cell_is_explained(bed: Testbed, tmp_path: Path) -> None:
    """The legend explains blank cells, also if the balancer has decided nothing for any row."""
    text = run(bed, tmp_path, NEZHA, *ON_BOTH[NEZHA], *QUICK, collective="allgather")
    assert "Blank: the balancer has decided nothing about such messages." in text


# ---- what the rails have carried, and why -----------------------------------------------------


def test_rails_report(bed: Testbed, tmp_path: Path) -> None:
    """The report has each rank's rails, and the balancer's decisions with the rails' names."""
    options = [*ON_BOTH[NEZHA], "--elements", "256K", "--rails-report", "--warmup-iters", "60"]
    words = [*options, "--iteration-count", "40", "--format", "json"]
    row, report = map(json.loads, run(bed, tmp_path, NEZHA, *words).splitlines())
    rails = report["rails_report"]
    assert [(rail["rank"], rail["name"]) for rail in rails] == [
        (rank, name) for rank in range(3) for name in RAILS
    ]
    for rank in range(3):
        mine = [rail for rail in rails if rail["rank"] == rank]
        sent = sum(rail["sent_bytes"] for rail in mine)
        assert sent >= 100 * 4 / 3 * row["bytes"]  # a ring of three, with 60 and 40 operations
        for rail in mine:
            assert rail["sent_share"] == pytest.approx(rail["sent_bytes"] / sent, abs=0.001)
            assert rail["down_peers"] == rail["lost_links"] == rail["lossy_peers"] == 0
            assert rail["last_error"] == ""
    [known] = [each for each in report["load_balancer"] if each["least_bytes"] == 1 << 20]
    # The class may have converged since the row was printed.
    assert known["state"] in (row["learned"].split()[0], "converged")
    assert sum(known["shares"].values()) == pytest.approx(1, abs=0.001)
    assert set(known["shares"]) == {*RAILS, "stripes"}
    change = r"\d{4}-\d\d-\d\d [\d:]{8}\.\d{3}, after \d+ windows: (.+): ([a-z]+)"
    changes = [found for line in known["history"] if (found := re.fullmatch(change, line))]
    assert len(changes) == len(known["history"]) and "eth0 " in " ".join(each[1] for each in changes)
    assert changes[0][2] == "start"


def test_rails_report_of_a_rail_that_is_down(bed: Testbed, tmp_path: Path) -> None:
    """A table tells which rail is down, since when, and why."""
    options = [*ON_BOTH[NEZHA], "--elements", "64K", "--iteration-time", "4s", "--rails-report"]
    bed.cut(1, "eth1")
    try:
        lines = run(bed, tmp_path, NEZHA, *options).splitlines()
    finally:
        bed.heal(1, "eth1")
    rows = {(words[0], words[1]): words for words in map(str.split, lines) if len(words) > 8}
    assert re.match(r"down to (1 rank|2 ranks) for ", " ".join(rows["1", "eth1"][2:])), lines
    assert rows["0", "eth0"][2] == "up"
    [why] = [line for line in lines if line.startswith("rank 1, eth1: is down to rank ")]
    assert " of 3 (" in why
    assert any(line.startswith("1 MiB to") or line.startswith("256 KiB to") for line in lines)


def test_rails_report_of_a_rail_that_loses_packets(bed: Testbed, tmp_path: Path) -> None:
    """A rail that is only tested is not reported as up. It may also have just lost its links."""
    options = [*ON_BOTH[NEZHA], "--elements", "256K", "--iteration-time", "4s", "--rails-report"]
    bed.loss("eth1", 10, host=1)
    try:
        lines = run(bed, tmp_path, NEZHA, *options).splitlines()
    finally:
        bed.loss("eth1", 0, host=1)
    rows = {(words[0], words[1]): " ".join(words[2:]) for words in map(str.split, lines) if words[1:]}
    count = "(1 rank|2 ranks)"
    down, lossy = rf"down to {count} for [\d.]+ s", rf"lossy to {count}"
    assert re.match(rf"({down}, {lossy}|{down}|{lossy}) +\d", rows["1", "eth1"]), lines
    assert rows["1", "eth0"].startswith("up "), lines
    assert any("only small test messages" in line for line in lines), lines


def test_rails_report_of_many_ranks(bed: Testbed, tmp_path: Path) -> None:
    """The report shows a few ranks, which represent all."""
    command = [NEZHA, "--size", "12", "--shared-path", str(tmp_path), *ON_BOTH[NEZHA]]
    command += ["--elements", "64K", "--iteration-count", "3", "--rails-report"]
    ranks = []
    for rank in range(12):
        ranks += bed.start([*command, "--rank", str(rank), "allreduce"], on=[rank % 3])
    assert [rank.wait(job.PATIENCE) for rank in ranks] == [0] * 12, [r.stderr for r in ranks]
    lines = ranks[0].stdout.splitlines()
    [head] = [index for index, line in enumerate(lines) if line.startswith("Rails, since")]
    match = re.search(r"; (\d+) of 12 ranks:", lines[head])
    assert match, lines[head]
    shown = int(match[1])
    assert 1 <= shown <= 5  # rank 0, and for each rail the ranks with the least and the most
    first = next(index for index in range(head, len(lines)) if lines[index].split()[0] == "rank")
    numbers = {line.split()[0] for line in lines[first + 1 : first + 1 + 2 * shown]}
    assert "0" in numbers and len(numbers) == shown


# ---- ranks that differ ------------------------------------------------------------------------


def start(bed: Testbed, store: Path, options: Sequence[Sequence[str]]) -> list[Process]:
    """Starts a rank on each host with its own options."""
    ranks = []
    for host, own in enumerate(options):
        command = [own[0], "--shared-path", str(store), *own[1:], "allreduce"]
        ranks += bed.start(command, on=[host])
    return ranks


def refused(bed: Testbed, store: Path, *options: Sequence[str]) -> list[str]:
    """The lines of all ranks' errors; checks that rank 0 has printed no results."""
    ranks = start(bed, store, options)
    assert [rank.wait(job.PATIENCE) for rank in ranks] == [1] * len(options)
    assert not any(rank.stdout for rank in ranks)
    said = [rank.stderr.splitlines() for rank in ranks]
    for number, lines in enumerate(said):
        assert len(lines) == 1 and lines[0].count(f"rank {number} of") == 1, lines
    return [line for [line] in said]


@pytest.mark.parametrize(
    "rails",
    [
        ["tcp:eth0,tcp:eth1", "tcp:eth1,tcp:eth0", "tcp:eth0,tcp:eth1"],
        ["tcp:eth0,tcp:eth1", "tcp:eth0", "tcp:eth1,tcp:eth0"],
        ["tcp:eth1", "tcp:eth1", "tcp:eth1,tcp:eth0"],
    ],
    ids=["other order", "one lacks a rail", "one has a rail more"],
)
def test_rails_of_the_ranks_own(bed: Testbed, tmp_path: Path, rails: list[str]) -> None:
    """Bytes are reported by the name of the rail, whatever its position on each rank."""
    options = [
        [NEZHA, "--rails", own, "--elements", "1M", "--iteration-count", "3", "--format", "json"]
        for own in rails
    ]
    ranks = start(bed, tmp_path, options)
    assert [rank.wait(job.PATIENCE) for rank in ranks] == [0, 0, 0], [r.stderr for r in ranks]
    sent = {rail["name"]: rail["bytes"] for rail in json.loads(ranks[0].stdout)["rails"]}
    assert list(sent) == ["eth0", "eth1"]
    # a ring of three sends 4/3 of the message from each rank
    whole = 3 * 3 * 4 / 3 * 4 * 2**20
    assert whole <= sum(sent.values()) <= 1.2 * whole
    if rails[0] == "tcp:eth1":
        assert sent["eth0"] == 0  # the other ranks have no such rail
    elif rails[1] == "tcp:eth0":
        assert sent["eth0"] >= 2 * whole / 3  # everything to or from rank 1


SLICES = ["--plan", "slice"]
SHARES = [*SLICES, "--share", "3,1"]


@pytest.mark.parametrize(
    ("here", "there", "reason"),
    [
        (["--threads", "2"], [], "--threads is 2 here and 1"),
        (["--elements", "1,2"], ["--elements", "1"], "--elements is 1,2 here and 1"),
        (["--in-place"], [], "--in-place is given here and not given"),
        (["--barrier"], [], "--barrier is given here and not given"),
        (["--type", "int8"], [], "--type is int8 here and float32"),
        (["--operation", "max"], [], "--operation is max here and sum"),
        (["--rails-report"], [], "--rails-report is given here and not given"),
        (["--warmup-iters", "4"], [], "--warmup-iters is 4 here and 5"),
        (["--iteration-count", "4"], [], "--iteration-count is 4 here and not given"),
        (["--iteration-time", "3s"], [], "--iteration-time is 3s here and 2s"),
        (["--algorithm", "ring"], [], "--algorithm is ring here and auto"),
        (["--reproducible"], [], "--reproducible is given here and not given"),
        (["--size", "2"], [], "--size is 2 here and 3"),
        (SLICES, [], "--plan is slice here and auto"),
        (SHARES, SLICES, "for each rail) is 3,1 here and learned"),
        (SHARES, [], "--plan is slice here and auto"),
        (["--rails", "tcp:eth1,tcp:eth0", *SHARES], SHARES, "eth1,eth0 here and eth0,eth1"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_command_lines_that_differ(
    bed: Testbed, tmp_path: Path, here: list[str], there: list[str], reason: str
) -> None:
    """Before measuring, every rank reports the difference, also one that agrees with rank 0."""
    usual = [NEZHA, *ON_BOTH[NEZHA]]
    said = refused(bed, tmp_path, [*usual, *there], [*usual, *here], [*usual, *there])
    assert all("the ranks' command lines differ: " in line for line in said)
    assert reason + " at rank 0" in said[1]
    assert all(line.endswith(" at rank 1") for line in (said[0], said[2]))


@PROGRAMS
def test_what_rank_0_alone_is_given(bed: Testbed, tmp_path: Path, program: str) -> None:
    """The other ranks adopt rank 0's settings, as ranks that use only the library do."""
    usual = [program, *ON_BOTH[program], *QUICK, "--format", "json"]
    given = {"NEZHA_PLAN": "slice", "NEZHA_SHARES": "2,1", "NEZHA_ALGORITHM": "ring"}
    own = ["--share", "2,1"] if program == GLOO else []
    shared = ["--shared-path", str(tmp_path)]
    ranks = bed.start([*usual, *shared, *own, "allreduce"], on=[0], env=given)
    ranks += bed.start([*usual, *shared, "allreduce"], on=[1, 2])
    assert [rank.wait(job.PATIENCE) for rank in ranks] == [0, 0, 0], [r.stderr for r in ranks]
    row = json.loads(ranks[0].stdout.splitlines()[-1])
    assert (row["plan"], row["algorithm"]) == ("slice", "ring")
    assert [rail["share"] for rail in row["rails"]] == pytest.approx([2 / 3, 1 / 3], abs=0.02)


def test_shares_of_rank_0_for_another_number_of_rails(bed: Testbed, tmp_path: Path) -> None:
    here = [NEZHA, "--rails", "tcp:eth0"]
    said = refused(bed, tmp_path, [NEZHA, *ON_BOTH[NEZHA], *SHARES], here, here)
    assert "for each rail) is 1 here and 3,1 at rank 0" in said[1]


@pytest.mark.parametrize("differing", [0, 2])
def test_a_rail_that_one_rank_does_not_have(bed: Testbed, tmp_path: Path, differing: int) -> None:
    """Every rank reports which rank fails, and why, long before the deadline."""
    usual = [NEZHA, *ON_BOTH[NEZHA], *QUICK, "--timeout", "40s"]
    options = [usual] * 3
    options[differing] = [option.replace("eth1", "eth7") for option in usual]
    before = time.monotonic()
    for line in refused(bed, tmp_path, *options):
        assert f"rank {differing} " in line and "there is no interface 'eth7'" in line
    assert time.monotonic() - before < 20


def test_a_prefix_that_was_used(bed: Testbed, tmp_path: Path) -> None:
    """Each rank tells what to do; a missing directory is created."""
    store = tmp_path / "new"
    run(bed, store, NEZHA, *ON_BOTH[NEZHA], *QUICK, "--prefix", "once")
    again = [NEZHA, *ON_BOTH[NEZHA], *QUICK, "--prefix", "once"]
    for line in refused(bed, store, again, again, again):
        assert "an earlier run, or another process of this one with --rank" in line
        assert f" used --prefix once in --shared-path {store}: take a new" in line


def test_a_check_that_failed_there(bed: Testbed, tmp_path: Path) -> None:
    """A nezha-check that failed in the folder fails no rank, not even one that waits for others."""
    check = [str(job.BUILD / "check" / "nezha-check"), *ON_BOTH[NEZHA], "--size", "3"]
    [alone] = bed.start([*check, "--shared-path", str(tmp_path), "--timeout", "200ms"], on=[0])
    assert alone.wait(job.PATIENCE) == 1, alone.output
    command = [NEZHA, *ON_BOTH[NEZHA], *QUICK, "--shared-path", str(tmp_path), "allreduce"]
    ranks = bed.start(command, on=[1, 2])
    time.sleep(1.5)
    assert [rank.returncode for rank in ranks] == [None, None], [rank.stderr for rank in ranks]
    ranks += bed.start(command, on=[0])
    assert [rank.wait(job.PATIENCE) for rank in ranks] == [0, 0, 0], [r.stderr for r in ranks]


def test_a_rank_that_does_not_come(bed: Testbed, tmp_path: Path) -> None:
    alone = [NEZHA, *ON_BOTH[NEZHA], "--timeout", "200ms", "--prefix", "p"]
    [line] = refused(bed, tmp_path, alone)
    assert f"rank 1 has not come to --shared-path {tmp_path}, --prefix p, within 200 ms" in line


def test_a_failing_run(bed: Testbed, tmp_path: Path) -> None:
    """If an interface is missing, the status is 1, and the reason is printed."""
    command = [NEZHA, "--rails", "tcp:eth7", "--timeout", "5s"]
    for line in refused(bed, tmp_path, command, command, command):
        assert "eth7" in line  # also a rank that learns of it from rank 0's refusal


# ---- the command line -------------------------------------------------------------------------


def call(
    program: str, *arguments: str, timeout: float = 20, **variables: str
) -> subprocess.CompletedProcess[str]:
    launchers = ("RANK", "SIZE", "WORLD_SIZE")
    env = {name: value for name, value in os.environ.items() if name not in launchers} | variables
    return subprocess.run(
        [program, *arguments], capture_output=True, text=True, timeout=timeout, env=env
    )


@PROGRAMS
def test_help_mentions_every_option(program: str) -> None:
    done = call(program, "--help")
    assert done.returncode == 0 and not done.stderr
    mentioned = re.findall(r"^ +(?:-\w, )?--([a-z-]+)", done.stdout, re.MULTILINE)
    assert sorted(mentioned) == sorted(OPTIONS[program])


@PROGRAMS
def test_every_option_is_known(program: str) -> None:
    """Each option is refused by name if its value is missing or invalid."""
    for option in OPTIONS[program]:
        if option in FLAGS:
            done = call(program, f"--{option}=1")
            assert f"--{option} takes no value" in done.stderr
        else:
            done = call(program, f"--{option}")
            assert f"--{option} needs a value" in done.stderr
        assert done.returncode == 2


def test_help_on_the_environment() -> None:
    done = call(NEZHA, "--help-env", NEZHA_PLAN="circles")
    assert done.returncode == 0 and not done.stderr
    variables = re.findall(r"^NEZHA_[A-Z]+$", done.stdout, re.MULTILINE)
    assert {"NEZHA_LOG", "NEZHA_RAILS", "NEZHA_PLAN", "NEZHA_POLL"} <= set(variables)
    assert max(map(len, done.stdout.splitlines())) <= 80


def test_bad_values_in_the_environment() -> None:
    done = call(NEZHA, *GOOD, "allreduce", NEZHA_PLAN="circles")
    assert done.returncode == 2
    assert "NEZHA_PLAN='circles' in the environment: unknown (there are auto, stripe, slice)" in done.stderr


GOOD = ["--size", "2", "--rank", "0", "--shared-path", "/"]


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--sise", "2"], "unknown option --sise; did you mean --size"),
        (["--element", "1", "--formt", "csv"], "unknown option --formt; did you mean --format"),
        (["-q"], "unknown option -q"),
        (["--format", "jsn"], "did you mean 'json'"),
        (["--algorithm", "rong"], "did you mean 'ring'"),
        (["--size", "0"], "whole number of at least 1"),
        (["--rank", "-1"], "whole number of at least 0"),
        (["--type", "float"], "--type 'float': unknown"),
        (["--type", "flaot16"], "did you mean 'float16'"),
        (["--operation", "maximum"], "(there are sum, product, min, max"),
        (["--line-rate", "1,fast"], "'fast' is not a positive number"),
        (["--elements", "4i"], "'4i' is not a whole number"),
        (["--xyzzy"], "unknown option --xyzzy\n"),
        (["--format", "pdf"], "unknown (there are"),
        (["--elements", "1,,2"], "--elements '1,,2': '' is not a whole number"),
        (["--elements", "0"], "--elements '0': '0' is not a whole number"),
        (["--elements", "4,1T"], "'1T' is not a whole number from 1 to 1024G"),
        (["--elements", "1025G"], "'1025G' is not a whole number from 1 to 1024G"),
        (["--timeout", "0s"], "must be positive"),
        (["--timeout", "25h"], "at most a day"),
        (["--iteration-time", "2"], "not a duration"),
        (["--threads", "0"], "at least 1 and at most 1024"),
        (["--share", "1,-1"], "'-1' is not a number of 0 or more"),
        (["--share", "0,0"], "'0,0': no share is positive"),
        (["--line-rate", "1,0"], "'0' is not a positive number"),
        ([], "which collective"),
        (["allreduce", "allgather"], "one collective at a time"),
        (["scan"], "unknown collective 'scan'"),
        (["allreduce"], "--size is needed"),
        (["--size", "2", "allreduce"], "--rank is needed"),
        (["--size", "2", "--rank", "2", "allreduce"], "rank 2 of 2"),
        (
            ["--size", "2", "--rank", "0", "allreduce"],
            "one of --shared-path, --store, --redis-host is needed",
        ),
        (
            [*GOOD, "--store", "redis://h", "allreduce"],
            "give only one of --shared-path, --store, --redis-host; there are 2",
        ),
        (["--redis-port", "65536"], "at most 65535"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
@PROGRAMS
def test_bad_command_lines(program: str, arguments: list[str], reason: str) -> None:
    done = call(program, *arguments)
    assert done.returncode == 2
    assert reason in done.stderr
    assert "--help" in done.stderr and not done.stdout


@PROGRAMS
@pytest.mark.parametrize(("to", "why"), [(">&-", "Bad file"), (">/dev/full", "No space")])
def test_output_that_cannot_be_written(program: str, to: str, why: str) -> None:
    shell = ["bash", "-c", f'exec "$@" {to}', "bash"]
    done = subprocess.run([*shell, program, "--help"], capture_output=True, text=True)
    assert done.returncode == 1
    assert f"{Path(program).name}: writing to standard output failed: {why}" in done.stderr


def test_results_that_cannot_be_written(bed: Testbed, tmp_path: Path) -> None:
    """If standard output is closed, the results do not go into a connection with its number."""
    command = [NEZHA, "--shared-path", str(tmp_path), *ON_BOTH[NEZHA], *QUICK, "allreduce"]
    shell = ["bash", "-c", 'exec "$@" >&-', "bash"]
    ranks = bed.run([*shell, *command], timeout=job.PATIENCE, check=False)
    assert ranks[0].code == 1
    assert "rank 0 of 3: writing to standard output failed" in ranks[0].stderr


@PROGRAMS
def test_version(program: str) -> None:
    done = call(program, "--version")
    assert done.returncode == 0 and not done.stderr
    assert re.fullmatch(rf"{Path(program).name} \d+\.\d+\.\d+\n", done.stdout)


FLARE = "flare:lo@127.0.0.1:7000"


def test_shares_beside_a_switch(tmp_path: Path) -> None:
    """The rail of a switch has no share."""
    alone = ["--size", "1", "--rank", "0", "--shared-path", str(tmp_path), *QUICK]
    done = call(NEZHA, *alone, "--rails", f"tcp:lo,{FLARE}", "--share", "1", "allreduce")
    assert done.returncode == 0, done.stderr


def test_what_gloo_does_not_have() -> None:
    for arguments, reason in [
        (["--type", "bfloat16"], "--type 'bfloat16': the library that gloo-bench measures does not"),
        (["--operation", "average"], "does not have it (there are sum, product, min, max)"),
    ]:
        done = call(GLOO, *GOOD, *arguments, "allreduce")
        assert done.returncode == 2
        assert reason in done.stderr, done.stderr


def test_bad_command_lines_of_nezha() -> None:
    for arguments, reason in [
        (["--shared-path", "/no/such/folder"], "'/no/such/folder': not a directory"),
        (["--shared-path", "/dev/null"], "'/dev/null': not a directory"),
        (["--plan", "slise"], "did you mean 'slice'"),
        (["--share", "1,2", "--plan", "stripe"], "--share with the plan stripe: only slices take shares"),
        (["--share", "1,2,3", "--plan", "slice"], "--share: 3 parts for 2 rails; give one for each"),
        (["--share", "1,2", "--rails", f"tcp:eth0,{FLARE}"], "--share: 2 parts for 1 rail; give one"),
        (["--line-rate", "1,2,3"], "--line-rate: 3 numbers for 2 rails; give one for all rails"),
        (["--line-rate", "1,2", "--rails", "tcp:eth0"], "--line-rate: 2 numbers for 1 rail; give"),
        (["--ports", "9-8"], "--ports '9-8': not a range of ports such as 20000-20100"),
        (["--tcp-device", "eth0"], "unknown option --tcp-device"),
        (["--reproducible", "--algorithm", "ring"], "--reproducible is not for --algorithm ring"),
        (["--reproducible", "--algorithm", "bcube"], "but for auto, recursive-doubling, halving"),
    ]:
        done = call(NEZHA, *GOOD, *ON_BOTH[NEZHA], *arguments, "allreduce")
        assert done.returncode == 2
        assert reason in done.stderr, done.stderr
    for arguments, reason in [
        (["--algorithm", "ring", "broadcast"], "--algorithm is not for broadcast"),
        (["--elements", "1", "barrier"], "a barrier has no --elements"),
        (["--type", "int8", "barrier"], "a barrier has no elements of any --type"),
        (["--operation", "max", "broadcast"], "--operation is not for broadcast, which combines nothing"),
        (["--rails-report", "--format", "csv", "allreduce"], "--rails-report is for --format table"),
        (["--in-place", "send_recv"], "--in-place is not for send_recv"),
        (["brodcast"], "unknown collective 'brodcast'; did you mean 'broadcast'?"),
    ]:
        done = call(NEZHA, *GOOD, *ON_BOTH[NEZHA], *arguments)
        assert done.returncode == 2
        assert reason in done.stderr, done.stderr


def test_rank_and_size_of_the_environment() -> None:
    mpirun = {"OMPI_COMM_WORLD_RANK": "2", "OMPI_COMM_WORLD_SIZE": "2"}
    for env, reason in [
        ({"RANK": "x"}, "RANK='x' in the environment"),
        ({"SIZE": "0"}, "SIZE='0' in the environment"),
        ({"RANK": "4", "SIZE": "4"}, "rank 4 of 4"),
        (mpirun, "OMPI_COMM_WORLD_RANK is 2"),
        (mpirun | {"RANK": "5", "SIZE": "5"}, "rank 5 of 5"),
        (mpirun | {"OMPI_COMM_WORLD_RANK": "1", "RANK": "7"}, "--shared-path"),  # fails later
        ({"PMIX_RANK": "1"}, "--size is needed"),
    ]:
        done = subprocess.run(
            [NEZHA, "allreduce"], capture_output=True, text=True, env=env, timeout=20
        )
        assert done.returncode == 2
        assert reason in done.stderr, done.stderr


# ---- bench/run --------------------------------------------------------------------------------

RUN = str(Path(__file__).parents[2] / "bench" / "run")
SMALL = [RUN, "--no-build", "--hosts", "2", "--rail", "eth0=1gbit", "--compare", "one"]


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--hosts", "251"], "'251' is not a number from 2 to 250"),
        (["--rail", "eth0"], "--rail 'eth0': give NAME=RATE"),
        (["--rail", "eth0=fast"], "fast"),
        (["--sizes", "4,1K,1X"], "'1X' is no size"),
        (["--sizes", "1048576G"], "of memory"),
        (["--collective", "scan"], "invalid choice: 'scan' (choose from 'allreduce', 'reduce',"),
        (["--out", "/dev/null/out"], "cannot write to --out /dev/null/out"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_bad_command_lines_of_run(arguments: list[str], reason: str) -> None:
    done = call(RUN, "--no-build", *arguments)
    assert done.returncode == 2
    assert reason in done.stderr.splitlines()[-1] and not done.stdout


def test_a_whole_run(tmp_path: Path) -> None:
    """A run ends with a table, pictures, and the results behind them."""
    rails = ["--rail", "eth0=1gbit", "--rail", "eth1=500mbit"]
    options = ["--no-build", "--hosts", "2", *rails, "--sizes", "4,64K,1M", "--repeat", "1"]
    options += ["--compare", "one,all,slice,gloo,gloo2"]
    done = call(RUN, *options, "--out", str(tmp_path), timeout=job.PATIENCE)
    assert done.returncode == 0, done.stderr
    names = ["allreduce.png", "allreduce.svg", "results.json"]
    assert sorted(path.name for path in tmp_path.iterdir()) == names
    firsts = [line.split(maxsplit=1)[0] for line in done.stdout.splitlines() if line]
    assert {"4", "64", "1"} <= set(firsts), done.stdout
    results = json.loads((tmp_path / "results.json").read_text())
    measured = {(row["config"], row["bytes"]) for row in results["measurements"]}
    assert len(measured) == 5 * 3


def test_a_whole_run_of_another_collective(tmp_path: Path) -> None:
    """nezha over all rails is compared with each single rail, and with their sum."""
    rails = ["--rail", "eth0=1gbit", "--rail", "eth1=500mbit"]
    options = ["--no-build", "--hosts", "2", *rails, "--sizes", "4,64K", "--quick"]
    words = [*options, "--collective", "gather", "--out", str(tmp_path)]
    done = call(RUN, *words, timeout=job.PATIENCE)
    assert done.returncode == 0, done.stderr
    names = ["gather.png", "gather.svg", "results.json"]
    assert sorted(path.name for path in tmp_path.iterdir()) == names
    results = json.loads((tmp_path / "results.json").read_text())
    times = {(row["config"], row["bytes"]): row["p50_us"] for row in results["measurements"]}
    keys = ["alone-eth0", "alone-eth1", "all", "gloo"]
    assert set(times) == {(key, vector) for key in keys for vector in (8, 1 << 17)}
    assert results["collective"] == "gather"
    lines = [line.split() for line in done.stdout.splitlines()]
    [line] = [line for line in lines if line[:2] == ["64", "KiB"]]
    for cell, key in zip(line[6:10], keys):  # MB/s, for the whole vector of two blocks
        assert float(cell) == pytest.approx((1 << 17) / times[key, 1 << 17], rel=0.01)
    alone = [times[key, 1 << 17] for key in keys[:2]]
    assert float(line[-1]) == pytest.approx(1 / times["all", 1 << 17] / sum(1 / t for t in alone), abs=1e-3)
    assert "part of the sum of" in done.stdout and "the root receives n - 1 blocks" in done.stdout


def test_a_whole_run_of_barriers(tmp_path: Path) -> None:
    options = ["--no-build", "--hosts", "2", "--quick", "--collective", "barrier"]
    done = call(RUN, *options, "--out", str(tmp_path), timeout=job.PATIENCE)
    assert done.returncode == 0, done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["results.json"]
    assert "no data" in done.stdout and "limit" not in done.stdout and "MB/s" not in done.stdout


def interrupt(sig: signal.Signals, out: Path, temporary: Path) -> tuple[int, str, Path]:
    """Ends a run with a signal. Returns its exit status, its output and its testbed's folder."""
    command = [*SMALL, "--repeat", "1000", "--out", str(out)]
    env = os.environ | {"TMPDIR": str(temporary)}
    # the run shares the offset of the file, which said() moves, so its output must be appended
    with tempfile.TemporaryFile("a+", errors="replace") as file, subprocess.Popen(
        command, stderr=file, env=env
    ) as process:

        def said() -> str:
            file.seek(0)
            return file.read()

        def ended() -> bool:
            return process.poll() is not None

        try:
            job.await_that("a result", lambda: "\n" in said() or ended(), tell=said)
            assert "nezha, one rail" in said().partition("\n")[0], said()
            state = STATE_DIR / f"nz{process.pid}_0"
            places = [temporary, state.with_suffix(".shared")]
            job.await_that("ranks meet", lambda: any([*place.glob("*/*")] for place in places))
            process.send_signal(sig)
            job.await_that("the run ends", ended, tell=said)
            return process.wait(), said(), state
        finally:
            process.kill()


@pytest.fixture
def temporary(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("temporary")


def test_an_interrupted_run(tmp_path: Path, temporary: Path) -> None:
    """The run reports the signal in one line, and leaves no picture of an earlier run."""
    for name in ("allreduce.png", "allreduce.svg"):
        (tmp_path / name).touch()
    status, said, _ = interrupt(signal.SIGINT, tmp_path, temporary)
    assert status == 128 + signal.SIGINT, said
    assert said.splitlines()[-1] == "bench/run: interrupted" and "Traceback" not in said
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("sig", [signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_a_killed_run(tmp_path: Path, temporary: Path, sig: signal.Signals) -> None:
    """The run leaves no temporary files anywhere."""
    status, said, state = interrupt(sig, tmp_path, temporary)
    assert status == (-sig if sig == signal.SIGKILL else 128 + sig), said

    def left() -> list[Path]:
        return [*temporary.iterdir(), *STATE_DIR.glob(f"{state.name}.*")]

    # the guard of the testbed removes the files of a killed run
    job.await_that("all is removed", lambda: not left(), 20, lambda: str(left()))


# ---- bench/balancer ---------------------------------------------------------------------------

BALANCER = str(Path(RUN).with_name("balancer"))


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--rail", "eth0=1gbit"], "--rail: at least two are needed"),
        (["--rail", "eth0=1gbit", "--rail", "eth1=none"], "every rail needs a rate"),
        (["--change", "eth2=1gbit"], "--change 'eth2=1gbit': give NAME=RATE, of eth0, eth1"),
        (["--change", "eth1=slow"], "--change: bad rate 'slow'"),
        (["--on", "4"], "there is no such host (there are 0 to 3)"),
        (["--size", "1X"], "'1X' is no size"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_bad_command_lines_of_balancer(arguments: list[str], reason: str) -> None:
    done = call(BALANCER, "--no-build", *arguments)
    assert done.returncode == 2
    assert reason in done.stderr.splitlines()[-1] and not done.stdout


def test_the_score_of_the_balancer_needs_no_network() -> None:
    """The score has a row for each network, bucket and event, and a cell for each size."""
    done = call(str(job.BUILD / "bench" / "balancer-score"), timeout=300)
    assert done.returncode == 0, done.stderr
    events = done.stdout.partition("events:")[2].partition("\n\n")[0].splitlines()[2:]
    assert len(events) == 3 * 3 * 4, done.stdout
    assert all(len(line.split()) == 3 + 7 for line in events), done.stdout


def test_balancer(tmp_path: Path) -> None:
    """Each mode runs through the change and back, and the results are consistent."""
    options = ["--no-build", "--quick", "--hosts", "2", "--size", "64K", "--on", "1"]
    rails = ["--rail", "eth0=1gbit", "--rail", "eth1=500mbit", "--change", "eth0=300mbit"]
    done = call(BALANCER, *options, *rails, "--out", str(tmp_path), timeout=job.PATIENCE)
    assert done.returncode == 0, done.stderr
    modes = ["auto", "model", "paper", "stripe"]
    names = ["balancer.json", "balancer.png", "balancer.svg"]
    names += [f"trace-{mode}.csv" for mode in modes]
    assert sorted(path.name for path in tmp_path.iterdir()) == names
    firsts = [line.split(maxsplit=1)[0] for line in done.stdout.splitlines() if line]
    assert {"start", "changed", "back"} <= set(firsts), done.stdout

    results = json.loads((tmp_path / "balancer.json").read_text())
    assert not results["failures"]
    assert sorted(results["runs"]) == modes
    for mode in modes:
        with (tmp_path / f"trace-{mode}.csv").open(newline="") as file:
            rows = list(csv.DictReader(file))
        ends = [float(row["seconds"]) for row in rows]
        assert ends == sorted(ends) and all(float(row["us"]) > 0 for row in rows)
        # by the trace's clock, both changes happened during the run
        first, second = results["runs"][mode]["changes"]
        assert ends[0] < first[0] < first[1] < second[0] < ends[-1]
        for rail in ("sent_eth0", "sent_eth1"):
            sent = [int(row[rail]) for row in rows]
            assert sent == sorted(sent) and sent[-1] > 0
        learned = {row["learned"] for row in rows}
        assert any(learned) == (mode != "stripe"), learned
    for phase in ("start", "changed"):
        tried = {tuple(split["shares"]) for split in results["splits"][phase]}
        assert {(0, 100), (40, 60), (100, 0)} <= tried
        assert all(sum(split) == 100 for split in tried)
        best = results["best"][phase]
        assert tuple(best["shares"]) in tried and best["us"] > 0
    for start in results["starts"]:
        assert start["us"] > 0 and sum(start["carried"]) == pytest.approx(1), start
