# SPDX-License-Identifier: Apache-2.0
"""bench/peers: which peers run where, how their output is read, its tables, and whole runs.

The tests' packages do not include MPICH and mptcpize; the code that starts these peers is tested with
substitute programs.
"""

from __future__ import annotations

import argparse
import csv
import dataclasses
import json
import os
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import cli
import job
import pytest
from lib.peers import figure, summary
from lib.peers import sweep as peer_sweep
from lib.peers.peer import (
    DEFAULT,
    KINDS,
    PROGRAMS,
    Network,
    Peer,
    make_peers,
    packages_of,
    programs_of,
)
from lib.peers.sweep import PeerSweep, at_rates_of, groups_of, warm_up_of
from lib.shared.collective import COLLECTIVES
from lib.shared.program import network_of
from lib.shared.progress import Progress
from lib.shared.results import LEARNING, ResultsOf
from testbed import Testbed
from traces import traces

BENCH = Path(__file__).parents[2] / "bench"
PEERS = str(BENCH / "peers")
G = 10**9


# ---- which peers run where --------------------------------------------------------------------


def keys(*rates: int | None) -> set[str]:
    network = Network(4, {f"eth{index}": rate for index, rate in enumerate(rates)})
    return {peer.key for peer in make_peers(DEFAULT, network)}


def test_peers_that_fit() -> None:
    gloo, mpi = {"gloo-ring", "gloo-bcube"}, {"ompi", "ompi-ring", "ucx-ring", "mpich"}
    everywhere = {"nezha", "iperf3"} | gloo | mpi
    several = everywhere | {"mptcp-ring", "gloo-parts", "ompi-one"}
    assert keys(G) == keys(None) == everywhere
    assert keys(G, G) == keys(None, None) == several
    assert keys(G, G // 4) == several | {"gloo-weights", "ompi-weights"}


def keys_of(collective: str) -> set[str]:
    network = Network(4, {"eth0": G, "eth1": G // 4}, collective)
    return {peer.key for peer in make_peers(DEFAULT, network)}


def test_peers_of_other_collectives() -> None:
    """The algorithms of allreduce apply to nothing else, and a barrier has no data to divide."""
    mpi = {"ompi", "ompi-one", "ompi-weights", "ucx", "mpich"}
    gloo = {"gloo", "mptcp", "gloo-parts", "gloo-weights"}
    assert keys_of("allgather") == {"nezha", "iperf3"} | mpi | gloo
    assert keys_of("barrier") == {"nezha", "gloo", "mptcp"} | mpi - {"ompi-weights"}


def test_options_of_other_collectives() -> None:
    network = Network(2, {"eth0": 4 * G // 10, "eth1": G}, "alltoall")
    peers = {peer.key: peer for peer in make_peers(list(KINDS), network)}
    words = {key: " ".join([*peer.launcher, *peer.command]) for key, peer in peers.items()}
    assert words["gloo"].endswith("--tcp-device eth1")
    assert words["mptcp"] == f"mptcpize run {words['gloo']}"
    assert "btl_tcp_bandwidth_eth0 400 --mca btl_tcp_bandwidth_eth1 1000" in words["ompi-weights"]
    assert not any("allreduce" in each or "--algorithm" in each for each in words.values())


def test_rails_and_rates_in_commands() -> None:
    network = Network(2, {"eth0": 4 * G // 10, "eth1": G})
    peers = {peer.key: peer for peer in make_peers(list(KINDS), network)}
    assert set(peers) == set(KINDS) - {"gloo", "mptcp", "ucx"}
    words = {key: " ".join([*peer.launcher, *peer.command]) for key, peer in peers.items()}
    assert "--rails tcp:eth0,tcp:eth1" in words["nezha"]
    assert words["nezha-on"] == f"env NEZHA_RAIL_THREADS=1 {words['nezha']}"
    assert words["nezha-off"] == f"env NEZHA_RAIL_THREADS=0 {words['nezha']}"
    assert words["nezha-cpu"] == f"env NEZHA_POLLING=cpu-first {words['nezha']}"
    library = PROGRAMS.parent / "interop" / "libnezha_gloo.so"
    taken_over = f"LD_PRELOAD={library} NEZHA_RAILS=tcp:eth0,tcp:eth1"
    program = f"{PROGRAMS / 'gloo-bench'} --tcp-device eth0,eth1"
    assert words["gloo-preload"] == f"env {taken_over} {program}"
    assert words["gloo-device"] == f"env {taken_over} NEZHA_GLOO_COLLECTIVES=gloo {program}"
    assert "--tcp-device eth1 --algorithm ring" in words["gloo-ring"]  # the fastest rail
    assert words["mptcp-bcube"].startswith("mptcpize run ")
    assert "--share 400000000,1000000000" in words["gloo-weights"]
    assert "btl_tcp_bandwidth_eth0 400 --mca btl_tcp_bandwidth_eth1 1000" in words["ompi-weights"]
    assert "orte_leave_session_attached 1" in words["ompi"]  # its daemons are then the bench's children
    assert "mpi_yield_when_idle 1" in words["ompi"] and "mpi_yield_when_idle 0" in words["ompi-spin"]
    assert "btl_tcp_if_include eth1 " in words["ompi-one"] and "eth0" not in words["ompi-one"]
    assert "-x UCX_NET_DEVICES=eth0,eth1" in words["ucx-ring"]
    assert "-genv UCX_MAX_RNDV_RAILS 2" in words["mpich"]
    assert "-hosts h0,h1" in words["mpich"] and "--host h0,h1" in words["ompi"]
    assert packages_of([peers["nezha"], peers["gloo-ring"], peers["ompi"]]) == ["openmpi"]
    assert packages_of(list(peers.values())) == ["iperf", "mpich", "mptcp", "openmpi"]
    assert programs_of([peers["mptcp-ring"], peers["iperf3"]]) == ["gloo-bench"]
    assert programs_of([peers["gloo-device"]]) == ["gloo-bench", "nezha_gloo"]
    assert programs_of([peers["mpich"]]) == ["mpi-bench-mpich", "yield-when-idle"]
    assert programs_of([peers["ucx-ring"]]) == ["mpi-bench-openmpi", "yield-when-idle"]


def test_rails_of_a_configuration() -> None:
    assert network_of("1gx2+400m") == {"eth0": "1g", "eth1": "1g", "eth2": "400m"}
    for bad in ("1gx", "1gx0", "x2", "2x1g"):
        with pytest.raises(argparse.ArgumentTypeError, match=f"'{bad}': bad rate"):
            network_of(bad)


def test_looks_in_pictures() -> None:
    assert set(figure.LOOKS) == set(KINDS)
    assert len(set(figure.LOOKS.values())) == len(KINDS)


def test_launches_by_warm_up() -> None:
    """All peers get as many iterations before the clock starts as nezha needs to learn."""
    learned, medium, large = [4, 1 << 17, 1 << 20], [1 << 23], [1 << 26]
    assert groups_of(learned + medium + large) == [learned, medium, large]
    assert groups_of(large) == [large]
    assert [warm_up_of(group[0]) for group in (learned, medium, large)] == [LEARNING, 3, 2]


def test_launches_of_other_collectives() -> None:
    """nezha learns only from allreduces, and a vector of blocks is longer than a block."""
    blocks = COLLECTIVES["allgather"]
    sizes = [1 << 10, 1 << 16, 1 << 20, 1 << 24]
    assert groups_of(sizes, 4, blocks) == [sizes[:2], sizes[2:3], sizes[3:]]
    assert [warm_up_of(size, 4, blocks) for size in sizes] == [10, 10, 3, 2]
    assert groups_of([0], 4, COLLECTIVES["barrier"]) == [[0]]


# ---- limits -----------------------------------------------------------------------------------

# In microseconds, for a message or a block of 1 MiB, and four hosts at 200 MB/s.
LIMITS = {
    "allreduce": 7864.32,  # 1.5 MiB
    "reduce": 5242.88,
    "broadcast": 5242.88,
    "barrier": None,
    "allgather": 15728.64,  # 3 MiB
    "reduce_scatter": 15728.64,
    "alltoall": 15728.64,
    "gather": 15728.64,
    "scatter": 15728.64,
}


@pytest.mark.parametrize(("collective", "limit"), LIMITS.items())
def test_wire_limits(collective: str, limit: float | None) -> None:
    rates: dict[str, int | None] = {"eth0": G, "eth1": 6 * G // 10}
    peers = make_peers(["nezha", "ompi"], Network(4, rates, collective))
    results = ResultsOf({}, 4, rates, peers, [1 << 20], repeat=1, collective=collective)
    for peer in peers:
        assert results.wire_limit(peer, 1 << 20) == (limit and pytest.approx(limit))


def test_limits_are_of_every_collective() -> None:
    assert list(LIMITS) == list(COLLECTIVES)


# ---- a ring of iperf3 -------------------------------------------------------------------------


def report(gbits: float, sender: float, receiver: float) -> dict:
    """The relevant parts of an iperf3 report; CPU in percent of a core."""
    return {
        "end": {
            "sum_received": {"bits_per_second": gbits * 1e9},
            "cpu_utilization_percent": {"host_total": sender, "remote_total": receiver},
        }
    }


def test_rates_of_iperf3() -> None:
    """The rate is the sum over the median host's rails, and the CPU time is that of all hosts."""
    reports = [
        [report(0.8, 10, 20), report(0.2, 5, 5)],
        [report(0.4, 1, 2), report(0.4, 3, 4)],
        [report(0.4, 0, 0), report(0.1, 0, 0)],
    ]
    row = at_rates_of(reports, hosts=3, size=10**6)
    assert row["p50_us"] == pytest.approx(4 / 3 * 10**6 / (0.8e9 / 8) * 1e6)
    assert row["cpu_s"] == pytest.approx(0.5 * row["p50_us"] / 1e6)
    blocks = at_rates_of(reports, hosts=3, size=10**6, about=COLLECTIVES["gather"])
    assert blocks["bytes"] == 3 * 10**6
    assert blocks["p50_us"] == pytest.approx(2 * 10**6 / (0.8e9 / 8) * 1e6)


# ---- launchers --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def bed() -> Iterator[Testbed]:
    with Testbed(hosts=2, rails={"eth0": "none"}, mgmt=True) as bed:
        yield bed


def sweep(bed: Testbed, script: str) -> ResultsOf[Peer]:
    """Runs a sweep of one peer whose launcher runs a script and gets the program's words."""
    launcher = ["sh", "-c", script]
    return sweep_of(bed, Peer("mpich", "MPI", "mpich", ["eth0"], ["program"], "", launcher), [4, 8])


def sweep_of(bed: Testbed, peer: Peer, sizes: list[int]) -> ResultsOf[Peer]:
    results = ResultsOf({}, 2, {"eth0": None}, [peer], sizes, repeat=1)
    PeerSweep(bed, results, 0.1, Progress()).run()
    assert traces(bed.prefix)["processes inside"] == []
    return results


ROWS = "; ".join(f"""echo '{{"bytes": {size}, "p50_us": {size}.5}}'""" for size in (4, 8))


def test_a_launcher_that_does_not_end(bed: Testbed) -> None:
    """The launcher's processes in other sessions do not end either. The run has all results, so it
    has not failed."""
    results = sweep(bed, f"echo some words; {ROWS}; setsid sleep 1000 & sleep 1000")
    assert not results.failures
    assert [(row["bytes"], row["p50_us"]) for row in results.measurements] == [(4, 4.5), (8, 8.5)]


def test_a_launcher_that_fails(bed: Testbed) -> None:
    results = sweep(bed, f"{ROWS.split(';')[0]}; echo no luck >&2; exit 3")
    assert [row["bytes"] for row in results.measurements] == [4]
    [failure] = results.failures
    assert failure["sizes"] == [8]
    assert failure["errors"] == ["mpirun ended with status 3", "no luck"]


def test_a_launcher_whose_last_line_is_cut_off(bed: Testbed) -> None:
    """The launcher is killed while it prints."""
    results = sweep(bed, f"{ROWS.split(';')[0]}; printf '{{\"bytes\": 8, \"p5'; kill -9 $$")
    assert [row["bytes"] for row in results.measurements] == [4]
    assert [failure["errors"] for failure in results.failures] == [["mpirun ended with status -9"]]


def test_endpoints_of_a_try_that_failed(bed: Testbed) -> None:
    """The next try removes the endpoints, which would disturb it."""
    for _ in range(2):
        bed.exec(0, ["ip", "mptcp", "endpoint", "add", "10.99.0.1", "signal"])
        peer_sweep.announce_rails(bed, "eth0")
        assert not bed.exec(0, ["ip", "mptcp", "endpoint", "show"]).stdout


@pytest.mark.parametrize(("size", "fails"), [(1 << 16, False), (1 << 20, True)])
def test_mptcp_that_is_tcp(bed: Testbed, size: int, fails: bool) -> None:
    """Short messages may use one rail. A long message on one rail would measure TCP, not MPTCP."""
    launcher = ["sh", "-c", f"""echo '{{"bytes": {size}, "p50_us": 5}}'"""]
    peer = Peer("mptcp-ring", "MPTCP", "", ["eth0"], ["mptcpize"], "", launcher)
    results = sweep_of(bed, peer, [size])
    assert [failure["errors"] for failure in results.failures] == (
        [["it is TCP's: of the rails it used none"]] if fails else []
    )
    assert len(results.measurements) == (0 if fails else 1)


@pytest.mark.parametrize("key", ["gloo-device", "gloo-preload"])
@pytest.mark.parametrize("device", ["nezha, rails=NEZHA_RAILS", "tcp, iface=eth0"])
def test_a_device_that_is_not_taken_over(bed: Testbed, key: str, device: str) -> None:
    """The run counts as failed, because its time is that of Gloo's own device."""
    launcher = ["sh", "-c", f"""echo '{{"bytes": 4, "p50_us": 5, "device": "{device}"}}'"""]
    results = sweep_of(bed, Peer(key, key, key, ["eth0"], ["program"], "", launcher), [4])
    failed = device.startswith("tcp")
    assert [failure["errors"] for failure in results.failures] == (
        [["it ran on another device: tcp, iface=eth0"]] if failed else []
    )
    assert len(results.measurements) == (0 if failed else 1)


@pytest.mark.parametrize(
    ("launcher", "program", "reason"),
    [
        ([], str(PROGRAMS / "no-bench"), "no-bench is not there; run without --no-build"),
        (["no-mpirun"], "program", "no-mpirun"),
    ],
    ids=["program", "launcher"],
)
def test_a_peer_that_is_absent(
    bed: Testbed, launcher: list[str], program: str, reason: str
) -> None:
    results = sweep_of(bed, Peer("mpich", "MPI", "mpich", ["eth0"], [program], "", launcher), [4])
    [failure] = results.failures
    assert reason in "\n".join(failure["errors"])


def outlast(*words: object, timeout: float = 60, **options: object) -> None:
    raise subprocess.TimeoutExpired("ip mptcp", timeout)


@pytest.mark.parametrize(
    ("key", "name", "instead", "reason"),
    [
        ("mptcp-ring", "announce_rails", outlast, "'ip mptcp' timed out after 60 seconds"),
        ("iperf3", "run_ring", lambda *_: [[{"error": "no luck"}]] * 2, "KeyError('end')"),
        ("iperf3", "run_ring", lambda *_: json.loads('{"end": '), "JSONDecodeError("),
    ],
)
def test_peers_that_break(
    bed: Testbed, monkeypatch: pytest.MonkeyPatch, key: str, name: str, instead: object, reason: str
) -> None:
    """A peer that breaks counts as failed, and does not end the sweep."""
    monkeypatch.setattr(peer_sweep, name, instead)
    command = {"mptcp-ring": ["mptcpize"], "iperf3": ["iperf3"]}[key]
    results = sweep_of(bed, Peer(key, key, key, ["eth0"], command, "", []), [1 << 17])
    [failure] = results.failures
    assert reason in failure["errors"][0] and failure["sizes"] == [1 << 17]


def test_ssh_to_the_hosts(bed: Testbed, tmp_path: Path) -> None:
    """Launchers give options first, then words that the remote shell splits."""
    ssh = shlex.quote(str(BENCH / "testbed-ssh"))
    out = shlex.quote(str(tmp_path / "out"))
    sweep(bed, f"{ssh} -x -q h1 echo '$(hostname)' '\"a  b\"' '>' {out}; {ROWS}")
    assert (tmp_path / "out").read_text() == "h1 a  b\n"


# ---- tables -----------------------------------------------------------------------------------


def measured(peer: str, size: int, p50s: list[float]) -> list[dict]:
    row = {"config": peer, "bytes": size, "iterations": 10, "cpu_s": 0.001, "rails": []}
    return [row | {"repeat": repeat, "p50_us": p50} for repeat, p50 in enumerate(p50s)]


def made_results(rate: int | None) -> ResultsOf[Peer]:
    peers = make_peers(
        ["nezha", "nezha-cpu", "gloo-ring", "ompi", "iperf3"], Network(4, {"eth0": rate})
    )
    results = ResultsOf({"cores": 4}, 4, {"eth0": rate}, peers, [4, 1 << 20], repeat=3)
    results.measurements = [
        *measured("nezha", 4, [10, 30, 20]),
        *measured("gloo-ring", 4, [400, 400, 500]),
        *measured("ompi", 4, [30, 30, 30]),
        *measured("nezha", 1 << 20, [15e3, 14e3, 13e3]),
        *measured("nezha-cpu", 1 << 20, [14e3, 14e3, 14e3]),
        *measured("gloo-ring", 1 << 20, [28e3, 28e3, 28e3]),
        *measured("ompi", 1 << 20, [19e3, 21e3]),  # one run has failed
        *measured("iperf3", 1 << 20, [13e3, 13e3, 13e3]),
    ]
    failure = {"config": "ompi", "repeat": 2, "sizes": [1 << 20], "errors": ["it ended", "why"]}
    results.failures.append(failure)
    return results


def lines_of(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines()]


def test_table() -> None:
    text = summary.table(made_results(G))
    lines = lines_of(text)
    assert ["nezha", "yielding,", "then", "blocking", "20", "14000"] in lines
    assert ["ompi", "yielding", "30", "20000*"] in lines
    assert ["iperf3", "blocking", "-", "13000"] in lines
    assert ["nezha", "0.002", "0.899"] in lines  # 2^20 * 1.5 / 125 MB/s is 12583 us
    assert ["nezha", "100"] in lines and ["nezha", "0.102"] in lines  # CPU time
    assert ["the", "best", "peer", "1.50", "1.43"] in lines  # iperf3 and nezha are no peers
    assert ["ompi", "ompi*"] in lines
    assert "ompi, 1 MiB: failed\n    it ended\n    why" in text


def test_table_of_programs_taken_over() -> None:
    """Programs taken over are compared with Gloo on one rail and with nezha, and are no peers."""
    network = Network(4, {"eth0": G})
    results = made_results(G)
    results.configs += make_peers(["gloo-device", "gloo-preload"], network)
    results.measurements += [
        *measured("gloo-device", 4, [200, 200, 200]),
        *measured("gloo-device", 1 << 20, [16e3, 14e3, 12e3]),
        *measured("gloo-preload", 1 << 20, [7e3, 7e3, 7e3]),
    ]
    lines = lines_of(summary.table(results))
    at = lines.index(["gloo-device:", "times", "as", "fast", "as", "4", "B", "1", "MiB"])
    assert lines[at + 1] == ["gloo-ring", "2.00", "2.00"]
    at = lines.index(["gloo-preload:", "times", "as", "fast", "as", "4", "B", "1", "MiB"])
    assert lines[at + 1] == ["nezha", "-", "2.00"]
    assert ["the", "best", "peer", "1.50", "1.43"] in lines
    assert "gloo-device: times" not in summary.table(made_results(G))


def test_table_without_shaping() -> None:
    lines = lines_of(summary.table(made_results(None)))
    assert ["nezha", "0.2", "74.9"] in lines  # MB/s
    assert ["part", "of", "the", "wire", "limit"] not in [line[:5] for line in lines]


def test_tables_of_blocks() -> None:
    """Sizes are those of a block; programs print the size of the whole vector of four."""
    rates: dict[str, int | None] = {"eth0": G}
    peers = make_peers(["nezha", "gloo"], Network(4, rates, "gather"))
    size = 1 << 20
    results = ResultsOf({"cores": 4}, 4, rates, peers, [size], repeat=1, collective="gather")
    results.measurements = [*measured("nezha", 4 * size, [31457.28]), *measured("gloo", 4 * size, [3e5])]
    text = summary.table(results)
    lines = lines_of(text)
    assert text.startswith("gather, float32, 4 hosts")
    assert ["part", "of", "the", "wire", "limit", "1", "MiB"] in lines
    assert ["nezha", "0.800"] in lines  # 3 MiB at 125 MB/s is 25166 us
    assert "The wire limit: the root receives n - 1 blocks" in text


def test_table_of_a_barrier(tmp_path: Path) -> None:
    rates: dict[str, int | None] = {"eth0": G}
    peers = make_peers(["nezha", "ompi"], Network(4, rates, "barrier"))
    results = ResultsOf({"cores": 4}, 4, rates, peers, [0], repeat=1, collective="barrier")
    results.measurements = [*measured("nezha", 0, [20]), *measured("ompi", 0, [50])]
    text = summary.table(results)
    assert ["the", "best", "peer", "2.50"] in lines_of(text)
    assert "limit" not in text and "MB/s" not in text and "GiB" not in text
    summary.save_csv([results], tmp_path / "peers.csv")
    with (tmp_path / "peers.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["collective"], row["size"], row["part_of_limit"]) for row in rows] == [
        ("barrier", "0", "")
    ] * 2


def test_csv(tmp_path: Path) -> None:
    summary.save_csv([made_results(G), made_results(None)], tmp_path / "peers.csv")
    with (tmp_path / "peers.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 2 * (7 * 3 + 2)
    first = rows[0]
    assert first["peer"] == "nezha" and first["regime"] == "yielding, then blocking"
    assert first["rails"] == "1000000000" and rows[-1]["rails"] == "none"
    large = next(row for row in rows if row["bytes"] == str(1 << 20) and row["peer"] == "nezha")
    assert float(large["part_of_limit"]) == pytest.approx(12583 / 15e3, abs=0.001)
    assert float(large["cpu_s_per_gib"]) == pytest.approx(1e-4 * 1024, abs=0.001)
    assert rows[-1]["part_of_limit"] == ""


# ---- the program ------------------------------------------------------------------------------


def call(
    *arguments: str, timeout: float = job.PATIENCE, **variables: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [PEERS, "--no-build", *arguments],
        capture_output=True,
        text=True,
        timeout=timeout,
        env=os.environ | variables,
    )


@cli.bad_command_lines(
    [
        (["--peers", "nezha,rccl"], "unknown peer 'rccl' (there are nezha, nezha-cpu, nezha-off,"),
        (["--collective", "allgather,scan"], "unknown collective 'scan' (there are allreduce, reduce,"),
        (["--collective", "all", "--peers", "gloo-ring"], "a use for the rails of 1g in reduce"),
        (["--config", "1g,1g+fast"], "'1g+fast': bad rate 'fast'"),
        (["--config", "1g,1g+1g", "--peers", "gloo-parts"], "none of them has a use for the rails"),
        (["--sizes", "4,1X"], "'1X' is no size"),
        (["--repeat", "0"], "'0' is not a number from 1"),
        (["--out", "/dev/null/out"], "cannot write to --out /dev/null/out"),
    ]
)
def test_bad_command_lines(arguments: list[str], reason: str) -> None:
    cli.assert_refused(call(*arguments), reason)


def test_a_whole_run(tmp_path: Path) -> None:
    """One peer cannot be started; the others are measured nevertheless."""
    broken = tmp_path / "bin" / "mptcpize"
    broken.parent.mkdir()
    broken.write_text("#!/bin/sh\necho no luck >&2\nexit 3\n")
    broken.chmod(0o755)
    out = tmp_path / "out"
    out.mkdir()
    (out / "peers.csv").write_text("an earlier run's")
    (out / "peers-of-mine.txt").touch()  # a file of the user
    done = call(
        *("--hosts", "2", "--config", "1g+500m", "--sizes", "4,64K", "--repeat", "1", "--quick"),
        *("--peers", "nezha,gloo-ring,gloo-weights,mptcp-ring", "--out", str(out)),
        PATH=f"{broken.parent}:{os.environ['PATH']}",
    )
    assert done.returncode == 1, done.stderr
    assert "no luck" in done.stdout and "mptcp-ring, 4 B, 64 KiB: failed" in done.stdout
    pictures = ["peers-1g+500m-allreduce.png", "peers-1g+500m-allreduce.svg"]
    names = [*pictures, "peers-of-mine.txt", "peers.csv", "peers.json"]
    assert sorted(path.name for path in out.iterdir()) == names
    results = json.loads((out / "peers.json").read_text())["1g+500m"]["allreduce"]
    rows = {(row["config"], row["bytes"]): row for row in results["measurements"]}
    assert set(rows) == {
        (peer, size) for peer in ("nezha", "gloo-ring", "gloo-weights") for size in (4, 1 << 16)
    }
    assert all(row["p50_us"] > 0 and row["cpu_s"] > 0 for row in rows.values())
    shares = [rail["share"] for rail in rows["gloo-weights", 1 << 16]["rails"]]
    assert shares == pytest.approx([2 / 3, 1 / 3], abs=0.02)
    assert [failure["config"] for failure in results["failures"]] == ["mptcp-ring"]
    assert ["mptcp-ring", "blocking", "-", "-"] in lines_of(done.stdout)


def test_every_collective(tmp_path: Path) -> None:
    """Runs nezha, Open MPI, and Gloo on one rail, on both and over nezha. All check results."""
    peers = ["nezha", "gloo-weights", "gloo-device", "gloo-preload", "ompi"]
    done = call(
        *("--collective", "all", "--config", "1g+500m", "--sizes", "4,64K", "--quick"),
        *("--peers", ",".join([*peers, "gloo", "gloo-ring"]), "--out", str(tmp_path)),
        timeout=10 * job.PATIENCE,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    everything = json.loads((tmp_path / "peers.json").read_text())["1g+500m"]
    assert list(everything) == list(COLLECTIVES)
    for name, results in everything.items():
        expected = {*peers, "gloo-ring" if name == "allreduce" else "gloo"}
        if name == "barrier":
            expected.remove("gloo-weights")
        blocks = 4 if COLLECTIVES[name].has_blocks else 1
        vectors = [0] if name == "barrier" else [4 * blocks, (1 << 16) * blocks]
        rows = {(row["config"], row["bytes"]): row for row in results["measurements"]}
        assert set(rows) == {(peer, vector) for peer in expected for vector in vectors}
        assert all(row["collective"] == results["collective"] == name for row in rows.values())
        if name != "barrier":  # what Gloo's contexts have carried
            shares = [rail["share"] for rail in rows["gloo-weights", vectors[-1]]["rails"]]
            assert shares == pytest.approx([2 / 3, 1 / 3], abs=0.03), name
    with (tmp_path / "peers.csv").open(newline="") as file:
        lines = list(csv.DictReader(file))
    assert {line["collective"] for line in lines} == set(COLLECTIVES)
    assert {line["size"] for line in lines if line["collective"] == "gather"} == {"4", "65536"}
    pictures = {f"peers-1g+500m-{name}.png" for name in COLLECTIVES if name != "barrier"}
    assert {path.name for path in tmp_path.glob("*.png")} == pictures


# ---- mpi-bench --------------------------------------------------------------------------------


def open_mpi() -> Peer:
    """Open MPI on two hosts."""
    [peer] = make_peers(["ompi"], Network(2, {"eth0": None}))
    return peer


def mpi_rows(bed: Testbed, *words: str, peer: Peer | None = None) -> list[dict]:
    """The output of mpi-bench on two hosts, which checks its results."""
    peer = peer or open_mpi()
    command = [*peer.command, *words, "--warmup-iters", "2", "--iteration-count", "3"]
    [launcher] = peer_sweep.start_ranks(bed, peer, [*command, "--format", "json"], awaited=100)
    code = launcher.wait(job.PATIENCE)
    assert code == 0, launcher.output
    return [json.loads(line) for line in launcher.stdout.splitlines() if line.startswith("{")]


@pytest.mark.parametrize("options", [[], ["--in-place", "--barrier"]], ids=["out", "in"])
@pytest.mark.parametrize("name", COLLECTIVES)
def test_collectives_of_mpi(bed: Testbed, tmp_path: Path, name: str, options: list[str]) -> None:
    if name == "reduce_scatter":  # MPI puts the in-place result elsewhere in the vector
        options = ["--type", "int64", "--operation", "max"]
    sizes = [] if name == "barrier" else ["--elements", "1,1000"]
    words = ["--shared-path", str(tmp_path), *sizes, *options, name]
    rows = mpi_rows(bed, *words)
    element = 8 if "int64" in options else 4
    blocks = 2 if COLLECTIVES[name].has_blocks else 1
    vectors = [0] if name == "barrier" else [element * blocks, 1000 * element * blocks]
    assert [row["bytes"] for row in rows] == vectors
    assert all(row["program"] == "mpi-bench" and row["collective"] == name for row in rows)


BATCH_JOBS = {
    "slurm": {"SLURM_JOBID": "1", "SLURM_NODELIST": "other", "SLURM_TASKS_PER_NODE": "16"},
    "gridengine": {"SGE_ROOT": "/", "ARC": "lx", "JOB_ID": "1", "PE_HOSTFILE": "nodes"},
}


@pytest.mark.parametrize("system", BATCH_JOBS)
def test_open_mpi_within_a_batch_job(
    bed: Testbed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, system: str
) -> None:
    """Open MPI ignores the nodes of the surrounding job, which are not the testbed's hosts."""
    nodes = tmp_path / "nodes"
    nodes.write_text("other 16 queue UNDEFINED\n")
    for name, value in BATCH_JOBS[system].items():
        monkeypatch.setenv(name, str(nodes) if value == "nodes" else value)
    assert len(mpi_rows(bed, "--shared-path", str(tmp_path), "barrier")) == 1


def test_open_mpi_where_names_of_hosts_are_known_otherwise(bed: Testbed, tmp_path: Path) -> None:
    """Each rank runs on its host, and counts the bytes of that host's interface."""
    hosts = tmp_path / "hosts"
    hosts.write_text("127.0.0.1 localhost h0 h1\n")
    script = 'mount --bind "$0" /etc/hosts && exec "$@"'
    peer = open_mpi()
    launcher = ["unshare", "--mount", "sh", "-c", script, str(hosts), *peer.launcher]
    peer = dataclasses.replace(peer, launcher=launcher)
    rows = mpi_rows(bed, "--shared-path", str(tmp_path), "--elements", "1000", "allreduce", peer=peer)
    assert [rail["name"] for rail in rows[0]["rails"]] == ["eth0"]
    assert rows[0]["rails"][0]["bytes"] > 0
