# SPDX-License-Identifier: Apache-2.0
"""The runs of bench/rdma: perftest and nezha-bench by turns, and the table of their figures."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import subprocess
import tempfile
import time
from collections.abc import Sequence

from lib.shared import program
from lib.shared.progress import Progress
from lib.shared.units import size_text
from processes import Process, end_sessions, finish
from system_tools import BedError

MIB = 1 << 20
PERFTEST_PORT, QPERF_PORT = 18515, 19765
VOLUME = 24 * MIB  # the least bytes that perftest moves with messages of a size
PATIENCE = 120.0  # seconds that one run may take
WARM_UP = 2  # exchanges
PERFTEST = ["ib_write_bw", "ib_read_bw --events"]
SHORT = 8  # bytes of a message whose latency is measured
GOAL = 1.3  # times ib_send_lat's time


@dataclasses.dataclass(frozen=True)
class Pair:
    """The devices and the interfaces of the two ranks, and the index of their GID."""

    devices: list[str]
    interfaces: list[str]
    gid: int

    def rdma(self) -> list[str]:
        return [f"rdma:{device}?gid={self.gid}&rail=r" for device in self.devices]

    def tcp(self) -> list[str]:
        return [f"tcp:{interface}?rail=t" for interface in self.interfaces]


@dataclasses.dataclass(frozen=True)
class Row:
    """The MiB/s of one size, both directions together."""

    size: int
    perftest: list[float]
    rdma: float
    tcp: float


@dataclasses.dataclass(frozen=True)
class Latencies:
    """The microseconds of one short message."""

    send: float  # ib_send_lat
    rdma: float
    tcp: float
    loopback: float  # nezha over TCP
    bare: float  # TCP alone

    def runtime(self) -> float:
        return self.loopback - self.bare


def start(command: Sequence[str], rank: int) -> Process:
    popen = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,  # All of the session can be ended.
    )
    return Process(popen, rank, rank, 0, None)


def together(processes: Sequence[Process]) -> str:
    """Waits for the processes, and returns the first one's output."""
    failed = finish(processes, PATIENCE)
    if failed:
        raise BedError(f"{failed} failed:\n{failed.output}")
    return processes[0].stdout


# ---- perftest and qperf -----------------------------------------------------------------------


def await_listener(server: Process, port: int) -> None:
    deadline = time.monotonic() + PATIENCE
    listing = ["ss", "--no-header", "--listening", "--tcp", "--numeric"]
    while f":{port} " not in subprocess.run(listing, capture_output=True, text=True).stdout:
        if server.returncode is not None or time.monotonic() > deadline:
            raise BedError(f"{server} does not listen:\n{server.output}")
        time.sleep(0.1)


def perftest(pair: Pair, command: str) -> list[float]:
    """Runs a command of perftest, and returns the numbers of its last line."""

    def end(rank: int, *more: str) -> Process:
        device = ["--ib-dev", pair.devices[rank], "--gid-index", str(pair.gid)]
        return start([*command.split(), *device, "--CPU-freq", *more], rank)

    server = end(0)
    try:
        await_listener(server, PERFTEST_PORT)
        output = together([end(1, "localhost"), server])
    finally:
        end_sessions([server])
    rows = re.findall(r"^ \d.*", output, re.MULTILINE)
    if not rows:
        raise BedError(f"{command} printed no figures:\n{output}")
    return [float(word) for word in rows[-1].split()]


def bandwidth(pair: Pair, command: str, size: int) -> float:
    """Returns the average MiB/s, because the peak is that of a few messages."""
    rounds = max(20, VOLUME // size)
    return perftest(pair, f"{command} --size {size} --iters {rounds}")[3]


def bare_latency() -> float:
    server = start(["qperf"], 0)
    try:
        await_listener(server, QPERF_PORT)
        command = ["qperf", "--time", "1", "--msg_size", str(SHORT), "--unify_units"]
        output = together([start([*command, "127.0.0.1", "tcp_lat"], 1)])
    finally:
        end_sessions([server])
    match = re.search(r"latency *= *([0-9]+) ns", output)
    if not match:
        raise BedError(f"qperf printed no latency:\n{output}")
    return int(match[1]) / 1000


# ---- nezha ------------------------------------------------------------------------------------


def nezha(rails: Sequence[str], collective: str, sizes: Sequence[int], seconds: float) -> list[float]:
    """Runs nezha-bench, and returns the median microseconds of each size."""
    options = ["--size", "2", "--type", "uint8", "--elements", ",".join(map(str, sizes))]
    options += ["--warmup-iters", str(WARM_UP), "--iteration-time", f"{seconds}s", "--format", "json"]
    with tempfile.TemporaryDirectory(prefix="nezha-rdma-") as meeting:
        command = [str(program.path_of("nezha-bench")), *options, "--shared-path", meeting]
        output = together(
            [
                start([*command, "--rank", str(rank), "--rails", rails[rank], collective], rank)
                for rank in (0, 1)
            ]
        )
    return [json.loads(line)["p50_us"] for line in output.splitlines()]


def exchange(rails: Sequence[str], sizes: Sequence[int], seconds: float) -> list[float]:
    """Returns the MiB/s of exchanges of each size, both directions together."""
    times = nezha(rails, "send_recv", sizes, seconds)
    return [2 * size / MIB / (time / 1e6) for size, time in zip(sizes, times)]


def latency(rails: Sequence[str], seconds: float) -> float:
    [round_trip] = nezha(rails, "ping_pong", [SHORT], seconds)
    return round_trip / 2


# ---- all of it --------------------------------------------------------------------------------


def measure(pair: Pair, sizes: Sequence[int], seconds: float, progress: Progress) -> str:
    os.environ["LC_ALL"] = "C"
    progress.show("latencies")
    latencies = Latencies(
        send=perftest(pair, f"ib_send_lat --events --size {SHORT} --iters 1000")[4],
        rdma=latency(pair.rdma(), seconds),
        tcp=latency(pair.tcp(), seconds),
        loopback=latency(["tcp:lo", "tcp:lo"], seconds),
        bare=bare_latency(),
    )
    progress.show("nezha")
    rdma = exchange(pair.rdma(), sizes, seconds)
    tcp = exchange(pair.tcp(), sizes, seconds)
    rows = []
    for index, size in enumerate(sizes):
        progress.show(f"perftest, {size_text(size)}")
        figures = [
            bandwidth(pair, command + more, size)
            for command in PERFTEST
            for more in ("", " --bidirectional")
        ]
        rows.append(Row(size, figures, rdma[index], tcp[index]))
    progress.clear()
    return table(rows, latencies)


def table(rows: Sequence[Row], latencies: Latencies) -> str:
    titles = ["write", "write, both", "read", "read, both", "nezha", "of the size", "of all"]
    titles.append("nezha, TCP")
    best = max(max(row.perftest) for row in rows)
    lines = [
        "MiB/s, both directions together: perftest's ways; nezha's exchanges by RDMA, and as a part of",
        "perftest's best figure of the size and of all sizes; nezha's exchanges by TCP",
        "",
        f"{'':10}" + "".join(f"{title:>13}" for title in titles),
    ]
    for row in rows:
        words = [f"{each:.1f}" for each in [*row.perftest, row.rdma]]
        words += [f"{row.rdma / of:.2f}" for of in (max(row.perftest), best)]
        words.append(f"{row.tcp:.1f}")
        lines.append(f"{size_text(row.size):10}" + "".join(f"{word:>13}" for word in words))
    return "\n".join([*lines, "", *latency_lines(latencies)])


def latency_lines(latencies: Latencies) -> list[str]:
    figures = {
        "nezha, RDMA": latencies.rdma,
        "ib_send_lat --events": latencies.send,
        "nezha, TCP by the same interfaces": latencies.tcp,
        "nezha, TCP by the loopback": latencies.loopback,
        "TCP alone by the loopback (qperf)": latencies.bare,
        "the runtime's own: the difference of these": latencies.runtime(),
        f"{GOAL} x ib_send_lat + the runtime's own": GOAL * latencies.send + latencies.runtime(),
    }
    title = f"Microseconds for {SHORT} bytes, half of a round trip"
    return [title, "", *(f"{name:45}{figure:8.1f}" for name, figure in figures.items())]
