# SPDX-License-Identifier: Apache-2.0
"""bench/cores: its conclusions, its tables, what it leaves out, and a whole run."""

from __future__ import annotations

import csv
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

import cli
import job
import pytest
from lib.cores import summary
from lib.cores.results import CoreResults, Measured, is_machine_the_limit, ring_of, wires
from lib.cores.sweep import connections_of, streams_of
from lib.peers.peer import IPERF3, NEZHA, Network, make_peers
from lib.shared.program import network_of, rates_of

BENCH = Path(__file__).parents[2] / "bench"
CORES = str(BENCH / "cores")
HERE = len(os.sched_getaffinity(0))
MIB = 1 << 20

# ---- what it concludes ------------------------------------------------------------------------


def made_results(
    config: str, iperf3_gbits: float, busy: float | None = 4, hosts: int = 4, cores: int = 16
) -> Measured:
    """nezha takes 1 ms and then 2 ms for 8 MiB; iperf3 carries `iperf3_gbits` from each host."""
    rates = rates_of(network_of(config))
    peers = make_peers([NEZHA, "gloo-ring", IPERF3], Network(hosts, rates))
    results = Measured({"cores": cores}, hosts, rates, peers, [8 * MIB], repeat=2)
    iperf3_us = results.about.carried(8 * MIB, hosts) * 8 / iperf3_gbits / 1e3
    for repeat, nezha_us in enumerate([1000.0, 2000.0]):
        times = {NEZHA: nezha_us, "gloo-ring": 3000.0, IPERF3: iperf3_us}
        for key, p50 in times.items():
            row = {"config": key, "repeat": repeat, "bytes": 8 * MIB, "iterations": 10, "rails": []}
            results.measurements.append(row | {"p50_us": p50, "cpu_s": 0.1, "busy_cores": busy})
    return results


@pytest.mark.parametrize(
    ("config", "gbits", "is_machine", "words"),
    [
        ("10g+10g", 18.9, False, "The machine carries what the wires allow: a ring of iperf3 carries 18.9"),
        ("10g+10g", 12, True, "The machine is the limit, not the wires: a ring of iperf3 carries 12.0 of 20"),
        ("10gx2", 25, False, "The rails are not shaped as they should be: a ring of iperf3 carries 25.0"),
        ("10g+none", 25, True, "A rail is not shaped, so that the machine is the limit: a ring of iperf3"),
    ],
)
def test_what_is_the_limit(config: str, gbits: float, is_machine: bool, words: str) -> None:
    results = made_results(config, gbits)
    ring = ring_of(results)
    assert ring and ring.gbits == pytest.approx(gbits)
    assert is_machine_the_limit(results) is is_machine
    [text] = summary.verdict(results)
    assert text.startswith(words) and "with 4.0 of 16 cores busy" in text


def test_without_a_ring() -> None:
    results = made_results("10g", 5)
    results.configs = [each for each in results.configs if each.key != IPERF3]
    assert is_machine_the_limit(results) is None
    assert "What the machine carries is not known" in summary.verdict(results)[0]


def test_when_all_cores_are_busy() -> None:
    results = made_results("10g", 9.5, busy=14.5)
    results.sizes.insert(0, MIB)
    for row in results.measurements:  # 717 MB/s are 0.9 of what TCP can use
        row["p50_us"] = 8 * MIB / (716 if row["config"] == "nezha" else 721)
    assert summary.verdict(results)[1:] == [
        "At least 90% of the cores were busy, and the wires had room, so that the machine may be the"
        " limit: nezha (8 MiB)."
    ]
    for busy in (14.3, None):
        results = made_results("100g", 95, busy=busy)
        assert len(summary.verdict(results)) == 1


def test_of_a_machine_that_is_not_quiet() -> None:
    results = made_results("10g", 5)
    for others, row in zip([0.05, 0.05, 0.5, 0.5, 0.7, 0.7], results.measurements):
        row["other_processes"] = others
    assert summary.verdict(results)[1].startswith(
        "The machine was not quiet: other processes had 50% of its CPU time in the median run"
    )


def test_limit_of_the_wires() -> None:
    """A rail of 10 Gbit/s limits an allreduce of four ranks to 797 MB/s."""
    assert wires(made_results("10g", 1), 8 * MIB) == pytest.approx(797, abs=0.5)
    assert wires(made_results("10gx4", 1), 8 * MIB) == pytest.approx(4 * 797, abs=2)
    assert wires(made_results("10g+none", 1), 8 * MIB) is None


def test_streams_of_a_rail() -> None:
    ten, twenty_five = 10**10, 25 * 10**9
    assert streams_of([ten, ten], hosts=4, cores=64) == 1
    assert streams_of([twenty_five], hosts=4, cores=16) == 2
    assert streams_of([twenty_five, twenty_five], hosts=4, cores=16) == 2
    assert streams_of([twenty_five, twenty_five], hosts=4, cores=8) == 1
    assert streams_of([None], hosts=4, cores=64) == 8


def test_connections_of_a_ring() -> None:
    """A ring has as many connections as fast rails need and as the cores can serve. Each has two
    processes."""
    ten, forty = 10 * 10**9, 40 * 10**9
    assert connections_of([ten], hosts=4, cores=64) == 1
    assert connections_of([forty], hosts=4, cores=64) == 4
    assert connections_of([forty], hosts=4, cores=16) == 2
    assert connections_of([None, ten], hosts=4, cores=64) == 4
    assert connections_of([forty, forty], hosts=2, cores=2) == 1


# ---- tables -----------------------------------------------------------------------------------


def cells_of(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines()]


def test_table() -> None:
    cells = cells_of(summary.table(made_results("10g+10g", 18.9)))
    assert ["nezha", "6291", "(4194-8389)"] in cells  # 8 MiB in 1 ms and in 2 ms
    limit_us = 1.5 * 8 * MIB / 2.5e9 * 1e6
    assert ["nezha", f"{(limit_us / 1000 + limit_us / 2000) / 2:.3f}"] in cells
    assert ["nezha", "1.28"] in cells  # 10 ms of CPU time for 8 MiB
    assert ["nezha", "4.0"] in cells
    cells = cells_of(summary.table(made_results("none", 18.9, busy=None)))
    assert ["part", "of"] not in [row[:2] for row in cells]
    assert ["nezha", "-"] in cells


def test_overview() -> None:
    networks = {config: made_results(config, 12) for config in ("10g", "10gx2", "10g+none")}
    for row in networks["10gx2"].rows(networks["10gx2"].configs[0], 8 * MIB):
        row["p50_us"] /= 2
    cells = cells_of(summary.overview(CoreResults(networks)))
    assert ["10g", "8", "MiB", "6291", "2796", "1000", "797", "wires"] in cells
    assert ["10gx2", "8", "MiB", "12583", "2796", "1000", "1594", "machine"] in cells
    assert ["10g+none", "8", "MiB", "6291", "2796", "1000", "none", "machine"] in cells
    # nezha takes half the time of one rail, and a quarter of Gloo's
    assert ["10gx2", "8", "MiB", "2.00", "4.00"] in cells
    assert ["10g+none", "8", "MiB", "-", "2.00"] in cells


def test_files(tmp_path: Path) -> None:
    results = CoreResults({"10g": made_results("10g", 9)}, {"ompi": "it is not there"})
    results.save(tmp_path / "cores.json")
    assert CoreResults.load(tmp_path / "cores.json") == results
    summary.save_csv(results, tmp_path / "cores.csv")
    with (tmp_path / "cores.csv").open(newline="") as file:
        first, *_ = list(csv.DictReader(file))
    assert (first["rails"], first["peer"], first["mb_per_s"]) == ("10g", "nezha", "8388.6")


# ---- the program ------------------------------------------------------------------------------


def call(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [CORES, "--no-build", *arguments],
        capture_output=True,
        text=True,
        timeout=job.PATIENCE,
        env=os.environ | variables,
    )


@cli.bad_command_lines(
    [
        (["--config", "10gx0"], "'10gx0': bad rate '10gx0'"),
        (["--config", "10g", "--peers", "gloo-parts"], "none of them has a use for these rails"),
        (["--peers", "nezha,rccl"], "'rccl' (there are nezha,"),
        (["--sizes", "3"], "'3' is no size"),
        (["--seconds", "0"], "--seconds: give more than 0"),
        (["--burst", "x"], "'x' is no size"),
        (["--out", "/dev/null/out"], "cannot write to --out /dev/null/out"),
    ]
)
def test_bad_command_lines(arguments: list[str], reason: str) -> None:
    cli.assert_refused(call(*arguments), reason)


def test_rail_threads_of_the_environment() -> None:
    done = call("--config", "10g", NEZHA_RAIL_THREADS="1")
    assert done.returncode == 2 and "NEZHA_RAIL_THREADS is set" in done.stderr


def assert_sane(row: dict, limit: float) -> None:
    assert row["p50_us"] > 0 and row["cpu_s"] > 0, row
    assert row["p50_us"] > 0.7 * limit, row  # shapers let some bytes through at full speed
    assert 0 < row["busy_cores"] < HERE + 0.5, row


def test_a_whole_run(tmp_path: Path) -> None:
    """Every peer on two rails has a figure in every column."""
    how = ["--hosts", "2", "--config", "5g,5g+5g", "--sizes", "4M,8M", "--repeat", "1", "--seconds", "0.3"]
    done = call(*how, "--out", str(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr
    results = CoreResults.load(tmp_path / "cores.json")
    assert results.left_out == {} and list(results.networks) == ["5g", "5g+5g"]
    both = results.networks["5g+5g"]
    keys = ["nezha", "nezha-off", "nezha-on", "gloo-ring", "gloo-parts", "ompi", "iperf3"]
    measured = [(row["config"], row["bytes"]) for row in both.measurements]
    assert sorted(measured) == sorted((key, size) for key in keys for size in (4 * MIB, 8 * MIB))
    for row in both.measurements:
        assert_sane(row, both.wire_limit(both.configs[0], row["bytes"]) or 0)
    short, long = (row["p50_us"] for row in both.measurements if row["config"] == "iperf3")
    assert long == pytest.approx(2 * short)  # one ring, whose rate is used for all sizes
    cells = cells_of(done.stdout)
    for key in keys:  # speed, part of the wire limit, CPU time and busy cores
        figures = [row for row in cells if row[:1] == [key] and len(row) == 3]
        assert len(figures) >= 4 and not any("-" in row for row in figures), key
    assert "a ring of iperf3 carries" in done.stdout
    overview = [row for row in cells if row[:3] == ["5g+5g", "8", "MiB"]]
    assert [len(row) for row in overview] == [3 + len(keys) + 2, 3 + 1 + len(keys) - 2]
    for name in ("cores.csv", "cores.png", "cores.svg"):
        assert (tmp_path / name).stat().st_size > 1000


def path_without(words: Sequence[str], folder: Path) -> str:
    """A PATH with all programs except those whose names begin with these words."""
    folder.mkdir()
    for program in Path("/usr/bin").iterdir():
        if not program.name.startswith(tuple(words)):
            (folder / program.name).symlink_to(program)
    return f"{folder}:/usr/sbin:/sbin"


def test_without_packages(tmp_path: Path) -> None:
    """The installed peers are measured, and the others are named with the reason."""
    how = ["--hosts", "2", "--config", "1g", "--sizes", "1M", "--repeat", "1", "--seconds", "0.05"]
    peers = ["--peers", "nezha,ompi,iperf3", "--out", str(tmp_path / "out")]
    done = call(*how, *peers, PATH=path_without(["iperf3", "mpirun"], tmp_path / "bin"))
    assert done.returncode == 0, done.stdout + done.stderr
    absent = "is not installed (tools/install-packages"
    assert f"Left out: Open MPI (ompi): mpirun.openmpi {absent} openmpi)." in done.stdout
    assert f"(iperf3): iperf3 {absent} iperf)." in done.stdout
    results = CoreResults.load(tmp_path / "out" / "cores.json")
    assert set(results.left_out) == {"ompi", "iperf3"}
    assert [row["config"] for row in results.networks["1g"].measurements] == ["nezha"]
    assert "no ring of iperf3 was measured" in done.stdout
