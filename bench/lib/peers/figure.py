# SPDX-License-Identifier: Apache-2.0
"""The pictures of bench/peers: one for each network."""

from __future__ import annotations

from pathlib import Path

from lib.peers.looks import LOOKS
from lib.peers.peer import IPERF3, Peer
from lib.shared.figure import LIMIT, draw_panels, plot
from lib.shared.results import (
    TCP_CEILING,
    ResultsOf,
    Value,
    bandwidth_of,
    cpu_per_gib_of,
    is_limited,
    p50_of,
    part_of_limit_of,
)
from lib.shared.units import time_text
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter


def draw(results: ResultsOf[Peer], paths: list[Path]) -> None:
    draw_panels(results, [_latency, _speed, _cpu, _legend], paths, columns=2)


def _latency(axes: Axes, results: ResultsOf[Peer]) -> None:
    axes.set_title("Latency")
    _plot_all(axes, results, p50_of, [peer.key for peer in results.configs if peer.key != IPERF3])
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(FuncFormatter(lambda time, _: time_text(time)))
    axes.set_ylabel(f"time of one {results.collective}, p50 (less is better)")


def _speed(axes: Axes, results: ResultsOf[Peer]) -> None:
    keys = [peer.key for peer in results.configs]
    if is_limited(results):
        axes.set_title("Part of the wire limit")
        _plot_all(axes, results, part_of_limit_of(results), keys)
        axes.axhline(TCP_CEILING, linestyle="--", **LIMIT)
        axes.set_ylim(0, 1)
        axes.set_ylabel("of all rails together (more is better; dashed: all that TCP can use)")
    else:
        axes.set_title("Bandwidth")
        _plot_all(axes, results, bandwidth_of, keys)
        axes.set_ylim(0)
        axes.set_ylabel("whole vector / p50 in MB/s (more is better)")


def _cpu(axes: Axes, results: ResultsOf[Peer]) -> None:
    axes.set_title("CPU time")
    _plot_all(axes, results, cpu_per_gib_of, [peer.key for peer in results.configs])
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(FuncFormatter(lambda seconds, _: f"{seconds:.12g}"))
    axes.set_ylabel("CPU seconds of all ranks per GiB (less is better)")


def _legend(axes: Axes, results: ResultsOf[Peer]) -> None:
    """Draws the legend of the other panels' lines in a panel of its own."""
    for peer in results.configs:
        colour, marker = LOOKS[peer.key]
        axes.plot([], [], color=colour, marker=marker, label=f"{peer.label} ({peer.regime})")
    axes.set_axis_off()
    axes.legend(loc="center left", fontsize=11)


def _plot_all(axes: Axes, results: ResultsOf[Peer], value: Value, keys: list[str]) -> None:
    for peer in results.configs:
        if peer.key in keys:
            plot(axes, results, peer, value, LOOKS[peer.key])
