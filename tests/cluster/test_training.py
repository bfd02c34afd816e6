# SPDX-License-Identifier: Apache-2.0
"""bench/training: the models, the fusion of their gradients, replays, the law and a whole run; and what
bench/ddp computes from its runs.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import job
import pytest
from cli import assert_refused, bad_command_lines
from lib.ddp import results as ddp_results
from lib.ddp.results import Cut, Ddp
from lib.training.horovod_trace import (
    Operation,
    Tensor,
    after_computation,
    fused,
    gradients,
    operations_of,
    trace_text,
)
from lib.training.models import MODELS
from lib.training.results import Training, Way, Workload, rest_by_communication, table
from processes import finish
from testbed import Testbed

BENCH = Path(__file__).parents[2] / "bench"
TRAINING, DDP = str(BENCH / "training"), str(BENCH / "ddp")
PROGRAMS = {
    "nezha": [str(job.BUILD / "bench" / "nezha-bench"), "--rails", "tcp:eth0,tcp:eth1"],
    "gloo": [str(job.BUILD / "bench" / "gloo-bench"), "--tcp-device", "eth0,eth1"],
}
BOTH = pytest.mark.parametrize("program", PROGRAMS)


# ---- models and traces ------------------------------------------------------------------------


def test_parameters_are_those_of_the_papers() -> None:
    """AlexNet has 61 million parameters. VGG-11 has 133 million, as in table 2 of the paper."""
    assert MODELS["alexnet"].parameters() == 60_965_224
    assert MODELS["vgg11"].parameters() == 132_863_336
    first, *_ = MODELS["alexnet"].work()
    assert first.tensors == [96 * 3 * 11 * 11, 96]
    assert first.flops == 2 * 55 * 55 * 96 * 3 * 11 * 11
    assert 7.6e9 < MODELS["vgg11"].flops() / 2 < 7.7e9


def test_gradients_come_from_the_last_layer_to_the_first() -> None:
    tensors = gradients(MODELS["alexnet"], computation=3000, scale=1)
    times = [tensor.ready for tensor in tensors]
    assert times == sorted(times) and times[-1] == pytest.approx(3000)
    assert times[0] > 1000, "the forward pass takes a third of the computation"
    assert [tensor.size for tensor in tensors[:2]] == [4 * 4096 * 1000, 4 * 1000]
    assert sum(tensor.size for tensor in tensors) == 4 * MODELS["alexnet"].parameters()
    scaled = gradients(MODELS["alexnet"], computation=3000, scale=1 << 20)
    assert min(tensor.size for tensor in scaled) == 4


def test_fusion() -> None:
    assert fused([3, 4, 5], threshold=12) == [12]
    assert fused([5, 6, 4], threshold=9) == [9, 6], "4 fits beside 5 though 6 is between them"
    assert fused([20, 1, 2], threshold=9) == [20, 3], "a tensor above the threshold goes alone"
    assert fused([], threshold=9) == []


def test_operations_begin_at_the_ends_of_cycles() -> None:
    tensors = [Tensor(100, 4), Tensor(900, 8), Tensor(1001, 16), Tensor(5000, 32)]
    operations = operations_of(tensors, threshold=10, cycle=1000)
    expected = [Operation(1000, 4), Operation(0, 8), Operation(1000, 16), Operation(3000, 32)]
    assert operations == expected
    later = after_computation(operations)
    assert [each.gap for each in later] == [5000, 0, 0, 0]
    assert trace_text(operations[:2], "x") == "# x\n1000.0 4\n0.0 8\n"


# ---- replays ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def bed() -> Iterator[Testbed]:
    with Testbed(hosts=2, rails={"eth0": "200mbit", "eth1": "200mbit"}) as bed:
        yield bed


def replay(bed: Testbed, folder: Path, program: str, trace: str, *options: str) -> str:
    """The output of rank 0."""
    (folder / "a.trace").write_text(trace)
    words = ["--shared-path", str(folder / "store"), "--warmup-iters", "2", *options]
    ranks = bed.run(
        [*PROGRAMS[program], *words, "replay", str(folder / "a.trace")], timeout=job.PATIENCE
    )
    assert not ranks[1].stdout
    return ranks[0].stdout


@BOTH
def test_replay(bed: Testbed, tmp_path: Path, program: str) -> None:
    """A step of two operations, the first of which runs in the other's gap, and a step of one."""
    trace = "20000 262144\n30000 262144 # the last one\nstep\n0 4096\n"
    words = ["--iteration-count", "7", "--format", "json"]
    row = json.loads(replay(bed, tmp_path, program, trace, *words))
    assert row["ranks"] == 2 and row["steps"] == 8, "whole repetitions of the trace"
    assert row["operations_per_step"] == 1.5 and row["bytes_per_step"] == (2 * 262144 + 4096) / 2
    assert row["computation_us"] >= 25000
    assert row["step_min_us"] <= row["step_p25_us"] <= row["step_p50_us"] <= row["step_max_us"]
    assert row["step_p50_us"] > row["computation_us"] and row["communication_p50_us"] > 0
    assert row["exposed_us"] == pytest.approx(row["step_p50_us"] - row["computation_us"], abs=1)
    hidden = max(0, row["communication_p50_us"] - row["exposed_us"])
    assert row["hidden_us"] == pytest.approx(hidden, abs=1)
    megabits = 8 * row["bytes_per_step"] / row["communication_p50_us"]
    assert 1e3 * row["algorithm_bandwidth_gbps"] == pytest.approx(megabits, rel=0.01)
    assert [rail["name"] for rail in row["rails"]] == ["eth0", "eth1"]


def test_gloos_contexts_take_turns(bed: Testbed, tmp_path: Path) -> None:
    """The long operation always uses the same interface, because a step has one for each."""
    trace = "0 4096\n0 1048576\n"
    row = json.loads(replay(bed, tmp_path, "gloo", trace, "--iteration-count", "3", "--format", "json"))
    assert row["rails"][1]["share"] > 0.9, row["rails"]


@pytest.mark.parametrize("options", [["--in-place"], ["--type", "float64"]], ids=" ".join)
@BOTH
def test_table_of_a_replay(
    bed: Testbed, tmp_path: Path, program: str, options: list[str]
) -> None:
    said = replay(bed, tmp_path, program, "1000 80000\n", *options, "--iteration-count", "3")
    assert ", verified" in said.splitlines()[0]
    assert "a step: 1 allreduces of 80000 bytes in all" in said
    assert "The rank sleeps" in said or "the rank sleeps" in said


def call(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(words, capture_output=True, text=True, timeout=job.PATIENCE)


@pytest.mark.parametrize(
    ("trace", "reason"),
    [
        ("1 4\n5\n", "a.trace:2: not GAP_US BYTES, such as '1500 4194304', nor the word 'step'"),
        ("1 4\n\n-1 4\n", "a.trace:3: the gap '-1' is not a number of microseconds up to an hour"),
        ("1 6\n", "a.trace:1: the length '6' is not a number of bytes from 1 to 2^40"),
        ("step\n", "a.trace:1: 'step' ends a step that has no operations"),
        ("# nothing\n", "a.trace: the trace has no operations"),
        (None, "a.trace: No such file or directory"),
    ],
)
@BOTH
def test_bad_traces(tmp_path: Path, program: str, trace: str | None, reason: str) -> None:
    """Bad traces are refused before any rank connects."""
    if trace is not None:
        (tmp_path / "a.trace").write_text(trace)
    where = ["--size", "1", "--rank", "0", "--shared-path", str(tmp_path / "store")]
    done = call(*PROGRAMS[program], *where, "replay", str(tmp_path / "a.trace"))
    assert done.returncode == 2 and not done.stdout
    assert reason in done.stderr, done.stderr


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["replay"], "replay: which FILE?"),
        (["replay", "a", "b"], "replay: one FILE at a time, not also 'b'"),
        (["--threads", "2", "replay", "a"], "--threads is not for replay"),
        (["--elements", "2", "replay", "a"], "--elements is not for replay"),
        (["--barrier", "replay", "a"], "--barrier is not for replay"),
        (["--format", "csv", "replay", "a"], "replay is for --format table and json"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
@BOTH
def test_bad_command_lines_of_replay(program: str, words: list[str], reason: str) -> None:
    done = call(*PROGRAMS[program], *words)
    assert done.returncode == 2 and reason in done.stderr, done.stderr


def test_traces_that_differ(bed: Testbed, tmp_path: Path) -> None:
    """Each rank reads a file of its own."""
    for rank, trace in enumerate(["0 4\n", "0 8\n"]):
        (tmp_path / f"{rank}.trace").write_text(trace)
    command = [*PROGRAMS["nezha"], "--shared-path", str(tmp_path / "store"), "replay"]
    ranks = [
        process
        for host in (0, 1)
        for process in bed.start([*command, str(tmp_path / f"{host}.trace")], on=[host])
    ]
    assert finish(ranks, job.PATIENCE)
    said = ranks[0].stderr + ranks[1].stderr
    assert "the trace of replay" in said and "1 operations and 8 bytes" in said, said


# ---- bench/training ---------------------------------------------------------------------------


def made_results() -> Training:
    """A step takes 3 s, of which communication takes 2 s. On two rails the law is right, on three
    rails the step takes longer."""
    layouts = {"one": 1, "two": 2, "three": 3}
    ways = [Way(f"nezha-{key}", key, "nezha", key, ["eth0"], []) for key in layouts]
    workload = Workload("alexnet", 32)
    results = Training({"cores": 2}, 4, {"eth0": 2 * 10**8}, 32, True, [workload], ways, 1)
    for way, step in zip(ways, [3e6, 2e6, 2e6]):
        row = {"model": "alexnet", "batch": 32, "way": way.key, "step_p50_us": step}
        row |= {"step_p25_us": step, "step_p75_us": step, "communication_p50_us": 2e6}
        results.rows.append(row | {"exposed_us": 1e6, "hidden_us": 1e6})
    return results


def test_the_law() -> None:
    results = made_results()
    [workload] = results.workloads
    laws = [results.law(workload, way) for way in results.ways]
    assert laws == pytest.approx([3e6, 2e6, 3e6 - 2e6 * 2 / 3])
    lines = [line.split() for line in table(results).splitlines()]
    assert ["1667", "+20.0%", "1.75"] in [line[-3:] for line in lines]
    assert "Scaled: tensors and the fusion threshold have 1/32 of their size." in table(results)


def test_computation_is_in_the_paper_s_proportion_to_communication() -> None:
    """Table IV: 0.54 (AlexNet) and 0.94 (VGG-11) of the time for communication on one NIC."""
    assert rest_by_communication("alexnet") == pytest.approx(0.544, abs=0.001)
    assert rest_by_communication("vgg11") == pytest.approx(0.935, abs=0.001)
    results = made_results()
    short, long = Workload("vgg11", 32), Workload("vgg11", 64)
    part = results.computation(short) / results.wire_time(short)
    assert part == pytest.approx(rest_by_communication("vgg11"))
    assert results.computation(long) == pytest.approx(2 * results.computation(short))


@bad_command_lines(
    [
        (["--models", "lenet"], "'lenet' (there are alexnet, vgg11)"),
        (["--batch", "16"], "'16' (there are 32, 64)"),
        (["--rate", "fast"], "fast"),
        (["--scale", "0"], "'0' is not a number from 1 to 4096"),
    ]
)
def test_bad_command_lines(arguments: list[str], reason: str) -> None:
    assert_refused(call(TRAINING, "--no-build", *arguments), reason)


def test_a_whole_run(tmp_path: Path) -> None:
    options = ["--no-build", "--quick", "--hosts", "2", "--scale", "1024", "--rails", "one,two"]
    done = call(TRAINING, *options, "--out", str(tmp_path))
    assert done.returncode == 0, done.stderr
    results = json.loads((tmp_path / "training.json").read_text())
    ways = [row["way"] for row in results["rows"]]
    assert sorted(ways) == ["gloo-one", "gloo-two", "nezha-one", "nezha-two"]
    assert (tmp_path / "alexnet-32.trace").read_text().startswith("# AlexNet, batch 32, 1/1024")
    assert "60,965,224 parameters" in done.stdout and "nezha, two" in done.stdout


# ---- bench/ddp --------------------------------------------------------------------------------


def steps_of(seconds: list[float], losses: list[float] | None = None) -> list[dict[str, Any]]:
    begins = [sum(seconds[:i]) for i in range(len(seconds))]
    losses = losses or [1.0] * len(seconds)
    return [
        {"step": i, "begin": begin, "seconds": s, "loss": loss}
        for i, (begin, s, loss) in enumerate(zip(begins, seconds, losses))
    ]


def test_what_a_cut_costs() -> None:
    """The cut comes half-way in the sixth step, and the rest takes more than twice as long."""
    steps = steps_of([1.0] * 5 + [1.7] + [2.0] * 5)
    cut = Cut.of(steps, moment=5.5, warm_up=1)
    assert cut and (cut.step, cut.before, cut.after) == (5, 1.0, 2.0)
    assert cut.took == pytest.approx(3.7) and cut.expected == pytest.approx(0.5 + 1.0 + 2.0)
    assert Cut.of(steps[:8], moment=5.5, warm_up=1) is None, "too few steps to tell"
    assert Cut.of(steps, moment=99, warm_up=1) is None, "the run was over"


def made_ddp(second_loss: float, second_digest: float) -> Ddp:
    results = Ddp({"cores": 2}, 2, {"equal": "1g + 1g", "unequal": ""}, ["a", "b"], 1, 1)
    for method, seconds, loss in (("a", 2.0, 1.0), ("b", 1.0, second_loss)):
        run = {"case": "equal", "method": method, "digests": [3.0, second_digest], "parameters": 10}
        results.runs.append(run | {"steps": steps_of([9.0] + [seconds] * 3, [2.0, 1.5, 1.2, loss])})
    return results


def test_losses_that_are_the_same() -> None:
    results = made_ddp(1.00001, 3.0)
    assert results.problems() == []
    text = ddp_results.table(results)
    [line] = [line for line in text.splitlines() if line.startswith("(b)")]
    assert line.split()[-3:] == ["1000", "2.00", "1.00"]
    assert "differ among all 2 runs by 1.0e-05 of the loss" in text


def test_losses_that_differ() -> None:
    [problem] = made_ddp(1.01, 3.0).problems()
    assert "beyond rounding" in problem


def test_ranks_that_differ() -> None:
    assert "ranks end with different parameters" in made_ddp(1.0, 4.0).problems()[0]


@bad_command_lines(
    [
        (["--methods", "e"], "'e' (there are a, b, c, d)"),
        (["--cases", "none"], "'none' (there are equal, unequal, cut, singles)"),
        (["--hidden", "0"], "'0' is not a number from 1 to 64"),
    ]
)
def test_bad_command_lines_of_ddp(arguments: list[str], reason: str) -> None:
    assert_refused(call(DDP, "--no-build", *arguments), reason)
