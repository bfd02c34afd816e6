# SPDX-License-Identifier: Apache-2.0
"""bench/pairs: intervals, what it refuses, and whole runs."""

from __future__ import annotations

import json
import os
import random
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

import cli
import job
import pytest
from lib.pairs.summary import compare, median_interval, slower_than, table
from lib.shared.progress import Progress
from lib.shared.results import Config, Results
from lib.shared.stolen import TRIES, CpuTime, Taken, Usage, note, others, usage_of_all
from lib.shared.sweep import Sweep
from testbed import Testbed

BENCH = Path(__file__).parents[2] / "bench"
PAIRS = str(BENCH / "pairs")


def test_intervals() -> None:
    """The intervals are those in tables of the sign test: of 20 values, the 6th and the 15th."""
    assert median_interval(list(range(1, 21))) == (6, 15)
    assert median_interval([3, 1, 2, 6, 5, 4]) == (1, 6)
    assert median_interval([1, 2, 3, 4, 5]) is None
    assert median_interval([]) is None


def test_intervals_have_the_median_as_often_as_they_say() -> None:
    draw = random.Random(1)
    hits = 0
    for _ in range(2000):
        interval = median_interval([draw.expovariate(1) for _ in range(20)])
        assert interval
        hits += interval[0] <= 0.6931 <= interval[1]
    assert 0.945 < hits / 2000 < 0.975


def made_results() -> Results:
    """Six repeats: B takes 1.1 to 1.6 of A's time and half of its CPU time per iteration, and one run
    of each has failed."""
    configs = [Config(key, key.lower(), key, ["eth0"], []) for key in "AB"]
    results = Results({"cores": 2}, 4, {"eth0": 10**9}, configs, [1024], 8)
    for repeat in range(8):
        for key, time in {"A": 100, "B": 110 + 10 * repeat}.items():
            if (key, repeat) not in {("A", 7), ("B", 6)}:
                row = {"config": key, "repeat": repeat, "bytes": 1024, "p50_us": time}
                iterations = {"A": 10, "B": 20}[key]
                results.measurements.append({**row, "cpu_s": 0.5, "iterations": iterations})
    return results


def test_comparison() -> None:
    results = made_results()
    comparisons = compare(results)
    assert [(each.config.key, each.size) for each in comparisons] == [("B", 1024)]
    ratios = comparisons[0].ratios
    assert ratios == pytest.approx([1.1, 1.2, 1.3, 1.4, 1.5, 1.6])  # only from complete pairs
    assert statistics.median(ratios) == pytest.approx(1.35)
    assert comparisons[0].cpu_ratios == [0.5] * 6
    lines = [line.split() for line in table(results, comparisons).splitlines()]
    times = ["100.0*", "B", "140.0*", "1.350", "1.100", "to", "1.600"]
    assert ["1", "KiB", *times, "0.500", "0.500", "to", "0.500", "6"] in lines
    assert slower_than(comparisons, None) == slower_than(comparisons, 1.65) == []
    assert slower_than(comparisons, 1.5) == ["1 KiB, B: may take 1.600 of A's time"]
    comparisons[0].ratios.pop()
    assert "too few pairs" in slower_than(comparisons, 2)[0]


def test_several_runs_make_a_pair() -> None:
    results = made_results()  # B's runs in pairs take 110 and 120, 130 and 140, 150 and 160
    ratios = compare(results, runs=2)[0].ratios
    assert ratios == pytest.approx([1.15, 1.35, 1.55, 1.8]), "the last pair has single runs"


# ---- the program ------------------------------------------------------------------------------


def call(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [PAIRS, "--no-build", *arguments], capture_output=True, text=True, timeout=job.PATIENCE
    )


def measured_while_stolen(monkeypatch: pytest.MonkeyPatch, parts: list[float]) -> Results:
    """One run that may lose 2% of the CPU, while consecutive launches lose these parts."""
    launches = iter(range(TRIES + 1))
    taken = iter(parts)
    row = {"bytes": 1024, "iterations": 10, "cpu_s": 1}

    def launch(*_: object) -> tuple[list[dict[str, Any]], list[str]]:
        return [{**row, "p50_us": 100 + next(launches)}], []

    monkeypatch.setattr("lib.shared.stolen.REST", 0)
    monkeypatch.setattr(Sweep, "_launch", launch)
    monkeypatch.setattr(CpuTime, "taken_since", lambda _: Taken(next(taken), 0.25))
    config = Config("A", "", "A", ["eth0"], [])
    results = Results({"cores": 2}, 4, {"eth0": 10**9}, [config], [1024], 1)
    bed = Testbed(4, {"eth0": "1gbit"})  # not up: launch() starts nothing
    Sweep(bed, results, 0.1, Progress(), most_stolen=0.02).run()
    return results


def test_runs_from_which_much_is_stolen_are_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    results = measured_while_stolen(monkeypatch, [0.3, 0.1, 0.01])
    assert [(row["p50_us"], row["stolen"]) for row in results.measurements] == [(102, 0.01)]
    said = note([results])
    assert "1.0% (median run), 1.0% (worst)" in said[0]
    assert said[1] == "Other processes took 25.0% (median run), 25.0% (worst) of the CPU time."


def test_the_run_counts_from_which_the_least_was_stolen(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = [0.3, 0.1, *([0.2] * (TRIES - 2))]
    [row] = measured_while_stolen(monkeypatch, parts).measurements
    assert (row["p50_us"], row["stolen"]) == (101, 0.1)


def test_nezha_over_several_rails_learns() -> None:
    def learns(rails: list[str], program: str, size: int) -> bool:
        return Config("A", "", "A", rails, ["env", program]).learns(size)

    both = ["eth0", "eth1"]
    sizes = [4, 1 << 12, 1 << 22, 1 << 23]
    assert [learns(both, "/x/nezha-bench", size) for size in sizes] == [False, True, True, False]
    assert not learns(["eth0"], "/x/nezha-bench", 1 << 20)
    assert not learns(both, "/x/gloo-bench", 1 << 20)


def test_stolen_time_is_said_only_where_there_is_some() -> None:
    assert 0 <= CpuTime.now().taken_since().stolen <= 1
    assert note([made_results()]) == []


def test_processes_that_are_others() -> None:
    """Others are neither this process, nor those that it has started, nor kernel threads."""
    me = os.getpid()
    usages = {1: Usage(0, 0), 2: Usage(0, 0, name="kthreadd"), 8: Usage(2, 0), me: Usage(50, 0)}
    usages |= {50: Usage(1, 0), 51: Usage(50, 0), me + 1: Usage(me, 0)}
    usages |= {me + 2: Usage(me + 1, 0), me + 3: Usage(1, 0)}
    assert others(usages) == {1, 50, 51, me + 3}


def test_a_container_whose_second_process_is_not_the_kernel() -> None:
    usages = {1: Usage(0, 0), 2: Usage(1, 0, name="sh"), 8: Usage(2, 0)}
    assert others(usages) == {1, 2, 8}


def test_ticks_of_a_child_that_has_ended() -> None:
    """The ticks count for the parent, which has used none of them itself."""
    seconds = 1
    burn = f"import time\nwhile time.process_time() < {seconds}: pass"
    before = dict(usage_of_all())[os.getpid()]
    subprocess.run([sys.executable, "-c", burn], check=True)
    after = dict(usage_of_all())[os.getpid()]
    assert after.parent == before.parent == os.getppid()
    whole = seconds * os.sysconf("SC_CLK_TCK")
    assert after.of_children - before.of_children >= 0.9 * whole
    assert after.ticks - before.ticks < 0.9 * whole


def test_names_of_processes() -> None:
    assert dict(usage_of_all())[os.getpid()].name == Path("/proc/self/comm").read_text().rstrip("\n")


def test_time_of_processes_that_are_not_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel also counts the time of invisible processes, such as those outside a container."""
    me = os.getpid()
    before = CpuTime(10, 1000, 300, {1: Usage(0, 50), me: Usage(1, 200)})
    then = CpuTime(30, 2000, 800, {1: Usage(0, 150), me: Usage(1, 250, of_children=150)})
    monkeypatch.setattr(CpuTime, "now", lambda: then)
    assert before.taken_since() == pytest.approx((0.02, (100 + 200) / 1000))


@pytest.mark.parametrize("of_children", [5010, 0], ids=["waited for", "not waited for"])
def test_a_process_that_has_ended(monkeypatch: pytest.MonkeyPatch, of_children: int) -> None:
    """Neither time from before the run counts, nor time of this process's children."""
    me = os.getpid()
    old = {1: Usage(0, 50), 7: Usage(1, 5000), me: Usage(1, 200), me + 1: Usage(me, 900)}
    new = {1: Usage(0, 80, of_children), 8: Usage(1, 20), me: Usage(1, 200, of_children=960)}
    before = CpuTime(0, 20000, 10000, old)
    then = CpuTime(0, 21000, 10000 + 30 + 20 + 10 + 60, new)
    monkeypatch.setattr(CpuTime, "now", lambda: then)
    assert before.taken_since() == pytest.approx((0, (30 + 20 + 10) / 1000))


@cli.bad_command_lines(
    [
        (["one"], "give two ways at least"),
        (["one", "'two"], "''two': No closing quotation"),
        (["--sizes", "3", "one", "two"], "'3' is no size"),
        (["--seconds", "0", "one", "two"], "--seconds: give more than 0"),
        (["--pairs", "0", "one", "two"], "'0' is not a number from 1"),
        (["--runs", "0", "one", "two"], "'0' is not a number from 1"),
        (["--most-stolen", "all", "one", "two"], "'all' is not a percentage"),
    ]
)
def test_bad_command_lines(arguments: list[str], reason: str) -> None:
    cli.assert_refused(call(*arguments), reason)


def test_a_whole_run(tmp_path: Path) -> None:
    options = ["--hosts", "2", "--pairs", "6", "--runs", "2", "--seconds", "0.005"]
    options += ["--sizes", "4,1K"]
    rails = ["--rail", "eth0=1gbit", "--rail", "eth1=100mbit"]
    where = ["--out", str(tmp_path), "--at-most", "1e9"]
    ways = ["", "NEZHA_POLL=20 NEZHA_PLAN=stripe --rails tcp:eth1"]
    done = call(*options, *rails, *where, "--", *ways)
    assert done.returncode == 0, done.stderr
    results = json.loads((tmp_path / "pairs.json").read_text())
    first, second = (config["command"] for config in results["configs"])
    assert first[:2] == ["env", str(job.BUILD / "bench" / "nezha-bench")]
    assert first[2:] == ["--rails", "tcp:eth0,tcp:eth1"]
    assert second[:3] == ["env", "NEZHA_POLL=20", "NEZHA_PLAN=stripe"]
    assert second[4:] == ["--rails", "tcp:eth1"]
    measured = [(row["config"], row["repeat"], row["bytes"]) for row in results["measurements"]]
    assert len(set(measured)) == len(measured) == 2 * 12 * 2
    used = {row["config"]: [rail["name"] for rail in row["rails"]] for row in results["measurements"]}
    assert used == {"A": ["eth0", "eth1"], "B": ["eth1"]}


@pytest.mark.parametrize(("name", "vector"), [("gather", 2 * 1024), ("barrier", 0)])
def test_another_collective(tmp_path: Path, name: str, vector: int) -> None:
    options = ["--hosts", "2", "--pairs", "6", "--seconds", "0.005", "--sizes", "1K"]
    done = call(*options, "--collective", name, "--out", str(tmp_path), "--", "", "NEZHA_POLL=20")
    assert done.returncode == 0, done.stderr
    rows = json.loads((tmp_path / "pairs.json").read_text())["measurements"]
    assert {(row["collective"], row["bytes"]) for row in rows} == {(name, vector)}
    pairs = [line.split()[-1] for line in done.stdout.splitlines() if " B  " in line]
    assert "6" in pairs, done.stdout


def test_ways_that_fail(tmp_path: Path) -> None:
    options = ["--hosts", "2", "--pairs", "2", "--seconds", "0.005", "--sizes", "4"]
    done = call(*options, "--out", str(tmp_path), "--", "", "/no/such/nezha-bench")
    assert done.returncode == 1
    assert "B, 4 B: failed" in done.stdout and "No such file" in done.stdout
    done = call(*options, "--out", str(tmp_path), "--at-most", "1", "--", "", "")
    assert done.returncode == 1 and "too few pairs to tell" in done.stderr
