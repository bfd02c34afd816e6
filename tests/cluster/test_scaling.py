# SPDX-License-Identifier: Apache-2.0
"""bench/scaling: what it fits and extrapolates, what it refuses, and a whole run."""

from __future__ import annotations

import csv
import math
import random
import statistics
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import cli
import job
import pytest
from lib.scaling import scale
from lib.scaling.scale import Fit, Scaling, Way, best_fit
from lib.scaling.trials import hosts_for, ways_of

BENCH = Path(__file__).parents[2] / "bench"
SCALING = str(BENCH / "scaling")
RANKS = [2, 3, 4, 6, 8, 12, 16, 64]
GROWTH: dict[str, Callable[[float], float]] = {
    "constant": lambda n: 7,
    "log n": lambda n: 3 + 2 * math.log2(n),
    "n": lambda n: 1 + 3 * n,
    "n²": lambda n: 5 + 0.5 * n * n,
}


def fitted(points: Sequence[tuple[float, float]]) -> Fit:
    """The fit to these points, of which there must be enough."""
    fit = best_fit(points)
    assert fit
    return fit


@pytest.mark.parametrize("form", GROWTH)
def test_fits(form: str) -> None:
    grows = GROWTH[form]
    fit = fitted([(n, grows(n)) for n in RANKS])
    assert fit.form == form and fit.residual == pytest.approx(0, abs=1e-9)
    assert fit.at(10000) == pytest.approx(grows(10000))
    noise = random.Random(1)
    fit = fitted([(n, grows(n) * noise.uniform(0.97, 1.03)) for n in RANKS])
    assert fit.form == form and 0.001 < fit.residual < 0.04
    assert fit.at(1000) == pytest.approx(grows(1000), rel=0.1)


def test_fits_of_little() -> None:
    assert best_fit([(2, 1), (3, 2), (4, 3)]) is None
    assert best_fit([(2, 1), (2, 2), (3, 3), (3, 4)]) is None
    assert fitted([(2, 4), (4, 16), (8, 64), (16, 256)]).form == "n"  # too few points for the square
    assert fitted([(n, 100 - n) for n in RANKS]).form == "constant"  # no cost falls with the number of ranks
    assert fitted([(n, 0) for n in RANKS]).residual == 0


def test_ranks_on_hosts() -> None:
    assert [hosts_for(n, 8) for n in RANKS] == [2, 3, 4, 6, 8, 6, 8, 8]
    assert hosts_for(11, 8) is None and hosts_for(7, 4) is None and hosts_for(6, 4) == 3


def made_results() -> Scaling:
    """Two repeats. A rank has as many sockets as there are other ranks, and rank 0 has one more."""
    results = Scaling({"cores": 4}, {"eth0": 10**9}, [Way("ring", "ring", [])], RANKS, [], [4], 2)
    for ranks in RANKS:
        for repeat in range(2):
            for rank in range(ranks):
                row: dict[str, Any] = {cost.key: 1.0 for cost in scale.COSTS}
                row |= {"way": "ring", "repeat": repeat, "ranks": ranks, "rank": rank}
                results.start_ups.append(row | {"sockets": ranks - (0 if rank == 0 else 1)})
            time = {"way": "ring", "repeat": repeat, "ranks": ranks, "bytes": 4}
            results.operations.append(time | {"p50_us": 10.0 * ranks + repeat})
    return results


def test_table(tmp_path: Path) -> None:
    results = made_results()
    results.start_ups.pop()  # a run that failed half-way does not count
    results.save(tmp_path / scale.DATA)
    assert Scaling.load(tmp_path / scale.DATA) == results
    [way], [sockets] = results.ways, [cost for cost in scale.COSTS if cost.key == "sockets"]
    assert results.cost(way, 4, sockets, statistics.median) == 3
    assert results.cost(way, 4, sockets, max) == 4
    assert results.cost(way, 5, sockets, max) is None
    assert results.p50(way, 4, 4) == 40.5
    blocks = scale.table(results).split("\n\n")
    [lines] = [block.splitlines() for block in blocks if block.startswith("sockets")]
    rows = [line.split() for line in lines]
    assert rows[1:4] == [["ranks", "ring"], ["2", "2", "/", "2"], ["3", "2", "/", "3"]]
    assert rows[-4:] == [["grows", "as", "n"], ["off", "by", "0.0%"], ["1,000", "1,000"], ["10,000"] * 2]
    scale.save_csv(results, tmp_path / scale.TABLE)
    with (tmp_path / scale.TABLE).open() as file:
        costs = list(csv.DictReader(file))
    [far] = [each for each in costs if (each["what"], each["ranks"]) == ("sockets", "1000")]
    assert (far["worst"], far["extrapolated_as"], far["off_by"]) == ("1000.0", "n", "0.0000")


# ---- the program ------------------------------------------------------------------------------


def call(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [SCALING, "--no-build", *arguments], capture_output=True, text=True, timeout=job.PATIENCE
    )


@cli.bad_command_lines(
    [
        (["--ranks", "1"], "'1' is not a number from 2"),
        (["--many", "x"], "'x' is not a number from 2"),
        (["--ranks", "2,11"], "11 ranks cannot be spread evenly over 2 to 8 hosts"),
        (["--hosts", "3", "--many", "5"], "5 ranks cannot be spread evenly over 2 to 3 hosts"),
        (["--ways", "ring,star"], "'star' (there are auto, ring,"),
        (["--sizes", "3"], "'3' is no size"),
        (["--seconds", "-1"], "--seconds: give more than 0"),
    ]
)
def test_bad_command_lines(arguments: list[str], reason: str) -> None:
    cli.assert_refused(call(*arguments), reason)


def test_a_whole_run(tmp_path: Path) -> None:
    """Links are made on first use: in a ring a rank has two peers, whatever the number of ranks."""
    how = ["--quick", "--seconds", "0.005", "--ways", "ring,gloo-ring", "--out", str(tmp_path)]
    rails = ["--rail", "eth0=1gbit", "--rail", "eth1=1gbit"]
    done = call(*how, *rails, "--hosts", "4", "--ranks", "3,4,6", "--many", "8", "--sizes", "4,64K")
    assert done.returncode == 0, done.stdout + done.stderr
    results = Scaling.load(tmp_path / scale.DATA)
    known = ways_of(["eth0"], Path())
    costs = {cost.key: cost for cost in scale.COSTS}
    sockets = {way.key: results.costs_of(way, costs["sockets"]) for way in results.ways}
    assert sockets["gloo-ring"] == [(3, 2), (4, 3), (6, 5), (8, 7)]
    [listening] = {value - 2 * 2 for _, value in sockets["ring"]}  # two rails, two peers
    # A listener for each rail, and two sockets that query the kernel about its interface.
    assert len(sockets["ring"]) == 4 and 2 <= listening <= 6
    for way in results.ways:
        assert way.label == known[way.key].label
        for ranks in results.all_ranks():
            assert (results.p50(way, ranks, 4) or 0) > 0
            assert (results.cost(way, ranks, costs["first_ms"], min) or 0) > 0
            assert (results.cost(way, ranks, costs["store_requests"], min) or 0) > 0
            assert (results.cost(way, ranks, costs["peak_kib"], min) or 0) > 1000
        assert results.p50(way, 6, 1 << 16) and results.p50(way, 8, 1 << 16) is None
    assert "10,000" in done.stdout
    for name in scale.PICTURES:
        assert (tmp_path / name).stat().st_size > 1000
