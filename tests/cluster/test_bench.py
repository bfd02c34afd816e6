"""nezha-bench and gloo-bench: what they print, what they refuse, and that they run."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import job
import pytest
from testbed import Testbed

RAILS = {"eth0": "1gbit", "eth1": "500mbit"}
NEZHA = str(job.BUILD / "bench" / "nezha-bench")
GLOO = str(job.BUILD / "bench" / "gloo-bench")
ON_BOTH = {
    NEZHA: ["--rails", job.rails_option(RAILS)],
    GLOO: ["--tcp-device", ",".join(RAILS)],
}
PROGRAMS = pytest.mark.parametrize("program", [NEZHA, GLOO], ids=["nezha", "gloo"])
ELEMENTS = [1, 1000, 1 << 18]
QUICK = ["--elements", "1,1000,256K", "--warmup-iters", "2", "--iteration-count", "3"]

SHARED_OPTIONS = [
    *("size", "rank", "shared-path", "store", "redis-host", "redis-port", "prefix", "timeout"),
    *("elements", "warmup-iters"),
    *("iteration-count", "iteration-time", "no-verify", "in-place", "threads", "format"),
    *("share", "algorithm", "help"),
]
OPTIONS = {NEZHA: [*SHARED_OPTIONS, "rails", "plan"], GLOO: [*SHARED_OPTIONS, "tcp-device"]}


@pytest.fixture(scope="module")
def bed() -> Iterator[Testbed]:
    with Testbed(hosts=3, rails=RAILS, prefix="ct_bench") as bed:
        yield bed


def run(bed: Testbed, store: Path, program: str, *options: str) -> str:
    """What rank 0 prints; the others print nothing."""
    command = [program, "--shared-path", str(store), *options, "allreduce"]
    ranks = bed.run(command, timeout=job.PATIENCE)
    assert not any(rank.stdout for rank in ranks[1:])
    return ranks[0].stdout


def check_row(row: dict[str, Any], program: str, elements: int) -> None:
    assert row["program"] == Path(program).name
    assert row["collective"] == "allreduce"
    assert int(row["size"]) == 3
    assert int(row["elements"]) == elements
    assert int(row["bytes"]) == 4 * elements
    assert int(row["iterations"]) == 3
    times = [float(row[f"{name}_us"]) for name in ("min", "p50", "p99", "max")]
    assert times[0] > 0 and times == sorted(times)
    bandwidth = 4 * elements / (times[1] * 1e-6) / 2**30
    assert float(row["bandwidth_gbps"]) == pytest.approx(bandwidth, rel=0.01, abs=2e-6)


# ---- output -----------------------------------------------------------------------------------


@PROGRAMS
def test_json(bed: Testbed, tmp_path: Path, program: str) -> None:
    text = run(bed, tmp_path, program, *ON_BOTH[program], *QUICK, "--format", "json")
    rows = [json.loads(line) for line in text.splitlines()]
    assert len(rows) == len(ELEMENTS)
    for row, elements in zip(rows, ELEMENTS):
        check_row(row, program, elements)
        assert [rail["name"] for rail in row["rails"]] == list(RAILS)
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
        shares = [float(row["rail0_share"]), float(row["rail1_share"])]
        assert sum(shares) == pytest.approx(1, abs=0.001)


@PROGRAMS
def test_table(bed: Testbed, tmp_path: Path, program: str) -> None:
    lines = run(bed, tmp_path, program, *ON_BOTH[program], *QUICK).splitlines()
    assert "allreduce" in lines[0] and "verified" in lines[0]
    head = next(index for index, line in enumerate(lines) if line.lstrip().startswith("size (B)"))
    rows = [line.split() for line in lines[head + 1 :]]
    assert [int(row[1]) for row in rows] == ELEMENTS
    for row in rows:
        assert all(re.fullmatch(r"\d+\.\d+", number) for number in row[2:7]), row
        assert row[8] == "eth0" and row[10] == "eth1", row
        shares = [float(row[index].rstrip("%")) for index in (9, 11)]
        assert sum(shares) == pytest.approx(100, abs=0.2)


@PROGRAMS
def test_shares(bed: Testbed, tmp_path: Path, program: str) -> None:
    """Slices are as large as was asked for."""
    options = [*ON_BOTH[program], *(["--plan", "slice"] if program == NEZHA else [])]
    sizes = ["--elements", "1M", "--warmup-iters", "1", "--iteration-count", "2"]
    text = run(bed, tmp_path, program, *options, *sizes, "--share", "3,1", "--format", "json")
    shares = [rail["share"] for rail in json.loads(text)["rails"]]
    # of Gloo, the interfaces' counters, with headers and acknowledgements
    assert shares == pytest.approx([0.75, 0.25], abs=0.001 if program == NEZHA else 0.02)


@pytest.mark.parametrize(
    "options",
    [
        ["--threads", "3", "--in-place", "--algorithm", "ring"],
        ["--plan", "slice", "--no-verify", "--algorithm", "recursive-doubling"],
        ["--prefix", "another", "--timeout", "20s", "--iteration-time", "50ms"],
    ],
    ids=["threads", "slices", "times"],
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


def test_a_failing_run(bed: Testbed, tmp_path: Path) -> None:
    """An interface that is not there: status 1, and why."""
    command = [NEZHA, "--shared-path", str(tmp_path), "--rails", "tcp:eth7", "allreduce"]
    [rank] = bed.start(command, on=[0])
    assert rank.wait(job.PATIENCE) == 1
    assert "eth7" in rank.stderr and "rank 0" in rank.stderr
    assert not rank.stdout


# ---- the command line -------------------------------------------------------------------------


def call(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    env = {name: value for name, value in os.environ.items() if name not in ("RANK", "SIZE", "WORLD_SIZE")}
    return subprocess.run(
        [program, *arguments], capture_output=True, text=True, timeout=20, env=env
    )


@PROGRAMS
def test_help_mentions_every_option(program: str) -> None:
    done = call(program, "--help")
    assert done.returncode == 0 and not done.stderr
    mentioned = re.findall(r"^ +(?:-\w, )?--([a-z-]+)", done.stdout, re.MULTILINE)
    assert sorted(mentioned) == sorted(OPTIONS[program])


@PROGRAMS
def test_every_option_is_known(program: str) -> None:
    """Each of them without what it needs, or with what it does not take, is refused by name."""
    for option in OPTIONS[program]:
        if option in ("no-verify", "in-place", "help"):
            done = call(program, f"--{option}=1")
            assert f"--{option} takes no value" in done.stderr
        else:
            done = call(program, f"--{option}")
            assert f"--{option} needs a value" in done.stderr
        assert done.returncode == 2


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
        (["--elements", "1,,2"], "--elements"),
        (["--elements", "0"], "--elements"),
        (["--elements", "1G"], "--elements"),
        (["--iteration-time", "2"], "not a duration"),
        (["--threads", "0"], "at least 1 and at most 1024"),
        (["--share", "1,0"], "'0' is not a positive number"),
        ([], "which collective"),
        (["allreduce", "broadcast"], "one collective at a time"),
        (["broadcast"], "unknown collective 'broadcast'"),
        (["allreduce"], "--size is needed"),
        (["--size", "2", "allreduce"], "--rank is needed"),
        (["--size", "2", "--rank", "2", "allreduce"], "rank 2 of 2"),
        (["--size", "2", "--rank", "0", "allreduce"], "one of --shared-path, --store, --redis-host is needed"),
        ([*GOOD[:5], "/no/such/folder", "allreduce"], "not a directory"),
        ([*GOOD, "--store", "redis://h", "allreduce"], "one of --shared-path, --store"),
        (["--redis-port", "65536"], "at most 65535"),
        ([*GOOD, "allreduce"], "is needed"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
@PROGRAMS
def test_bad_command_lines(program: str, arguments: list[str], reason: str) -> None:
    done = call(program, *arguments)
    assert done.returncode == 2
    assert reason in done.stderr
    assert "--help" in done.stderr and not done.stdout


def test_bad_command_lines_of_nezha() -> None:
    for arguments, reason in [
        (["--plan", "slise"], "did you mean 'slice'"),
        (["--share", "1,2", "--plan", "stripe"], "for --plan slice only"),
        (["--share", "1,2,3", "--plan", "slice"], "--share has 3 parts, --rails has 2"),
        (["--tcp-device", "eth0"], "unknown option --tcp-device"),
    ]:
        done = call(NEZHA, *GOOD, *ON_BOTH[NEZHA], *arguments, "allreduce")
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
        (mpirun | {"OMPI_COMM_WORLD_RANK": "1", "RANK": "7"}, "--shared-path"),  # what comes next
        ({"PMIX_RANK": "1"}, "--size is needed"),
    ]:
        done = subprocess.run(
            [NEZHA, "allreduce"], capture_output=True, text=True, env=env, timeout=20
        )
        assert done.returncode == 2
        assert reason in done.stderr, done.stderr
