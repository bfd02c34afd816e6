# SPDX-License-Identifier: Apache-2.0
"""Draws what bench/flare measured, as PNG and SVG.

usage: PYTHONPATH=bench python3 -m lib.flare.figure flare.json    draws again, next to the file
"""

from __future__ import annotations

import math
import statistics
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from lib.flare.offload import BOTH, FLARE, PICTURES, TCP, Case, load, points_of
from lib.shared.figure import LIMIT, STYLE, plot, plt, size_axis
from lib.shared.results import p50_of
from lib.shared.units import time_text
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter

LOOKS = {FLARE: ("#0b4f8a", "s"), TCP: ("#e08214", "^"), BOTH: ("#1b7837", "D")}
COLUMNS = 3

Panel = Callable[[Axes, list[Case]], None]


def draw(cases: Sequence[Case], out: Path) -> list[Path]:
    groups = {key: [case for case in cases if case.group == key] for key in PANELS}
    panels = [(draw_panel, groups[key]) for key in PANELS for draw_panel in PANELS[key]]
    panels = [(draw_panel, group) for draw_panel, group in panels if group]
    rows = -(-len(panels) // COLUMNS)
    with plt.rc_context(STYLE):
        drawing, all_axes = plt.subplots(
            rows, COLUMNS, figsize=(16, 4.6 * rows), layout="constrained", squeeze=False
        )
        free = iter(all_axes.flat)
        for draw_panel, group in panels:
            draw_panel(next(free), group)
        for axes in free:
            axes.set_axis_off()
        runs = f"; median and range of {cases[0].repeat} runs" if cases[0].repeat > 1 else ""
        title = f"allreduce by a switch and by TCP, float32 sum{runs}"
        drawing.suptitle(title, x=0.007, ha="left", fontsize=13)
        paths = [out / name for name in PICTURES]
        for path in paths:
            drawing.savefig(path, dpi=120)
        plt.close(drawing)
    return paths


# ---- by the size ------------------------------------------------------------------------------


def _latency(axes: Axes, cases: list[Case]) -> None:
    [case] = cases
    axes.set_title("4 hosts, 1 Gbit/s: latency")
    for way in case.configs:
        plot(axes, case, way, p50_of, LOOKS[way.key])
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(FuncFormatter(lambda time, _: time_text(time)))
    axes.set_ylabel("time of one allreduce, p50 (less is better)")
    axes.legend(loc="upper left")
    size_axis(axes, case)


def _part_of_limit(axes: Axes, cases: list[Case]) -> None:
    [case] = cases
    axes.set_title("4 hosts, 1 Gbit/s: part of the own wire limit")
    for way in case.configs:
        plot(axes, case, way, case.part_of_limit(way), LOOKS[way.key])
    axes.set_ylim(0, 1.02)
    axes.axhline(1, **LIMIT)
    axes.set_ylabel("of S/B by the switch, of 2(n-1)/n · S/B by TCP")
    axes.legend(loc="upper left")
    size_axis(axes, case)


def _speedup(axes: Axes, cases: list[Case]) -> None:
    [case] = cases
    axes.set_title("4 hosts, 1 Gbit/s: times as fast as TCP")
    flare, tcp = case.configs
    by_size = [case.speedups(flare, tcp, size) or [math.nan] for size in case.sizes]
    colour, marker = LOOKS[FLARE]
    medians = [statistics.median(values) for values in by_size]
    axes.plot(case.sizes, medians, color=colour, marker=marker, markersize=5)
    lows, highs = [min(values) for values in by_size], [max(values) for values in by_size]
    axes.fill_between(case.sizes, lows, highs, color=colour, alpha=0.2, lw=0)
    axes.axhline(1, **LIMIT)
    size = case.sizes[-1]
    limit = case.wire_limit(tcp, size) / case.wire_limit(flare, size)
    axes.axhline(limit, linestyle="--", **LIMIT)
    axes.set_ylabel("ratio of the p50 (more is better; dashed: of the wire limits)")
    axes.set_ylim(0)
    size_axis(axes, case)


# ---- bars -------------------------------------------------------------------------------------


def _bars(
    axes: Axes, cases: list[Case], values: Callable[[Case, int, int], list[float]], ways: range
) -> None:
    """Draws a group of bars for each point, with a bar for each way."""
    points = points_of(cases)
    width = 0.8 / len(ways)
    for place, index in enumerate(ways):
        way = cases[0].configs[index]
        by_point = [values(case, index, size) or [math.nan] for case, size, _ in points]
        medians = [statistics.median(each) for each in by_point]
        spread = [
            [median - min(each) for median, each in zip(medians, by_point)],
            [max(each) - median for median, each in zip(medians, by_point)],
        ]
        at = [number + (place - (len(ways) - 1) / 2) * width for number in range(len(points))]
        colour, _ = LOOKS[way.key]
        axes.bar(at, medians, 0.9 * width, yerr=spread, color=colour, label=way.label, zorder=2)
        for x, median in zip(at, medians):
            if not math.isnan(median):
                axes.annotate(f"{median:.2f}", (x, median / 2), ha="center", color="white")
    axes.set_xticks(range(len(points)), [name for _, _, name in points])
    axes.grid(axis="x", visible=False)


def _parts(title: str) -> Panel:
    """Returns a panel that shows the part of its own wire limit that each way reaches."""

    def draw_panel(axes: Axes, cases: list[Case]) -> None:
        def values(case: Case, index: int, size: int) -> list[float]:
            return case.parts_of_limit(case.configs[index], size)

        axes.set_title(title)
        _bars(axes, cases, values, range(len(cases[0].configs)))
        axes.axhline(1, **LIMIT)
        axes.set_ylim(0, 1.25)  # The top has room for the legend.
        axes.set_ylabel("part of the own wire limit (more is better)")
        axes.legend(loc="upper left", ncols=3, fontsize=8)

    return draw_panel


def _by_hosts(axes: Axes, cases: list[Case]) -> None:
    def values(case: Case, index: int, size: int) -> list[float]:
        return case.speedups(case.configs[index], case.configs[1], size)

    axes.set_title("500 Mbit/s: times as fast as TCP")
    _bars(axes, cases, values, range(1))
    for number, (case, size, _) in enumerate(points_of(cases)):
        limit = case.wire_limit(case.configs[1], size) / case.wire_limit(case.configs[0], size)
        axes.plot([number - 0.4, number + 0.4], [limit, limit], "--", **LIMIT)
    axes.set_ylabel("ratio of the p50 (more is better; dashed: of the wire limits)")


PANELS: dict[str, list[Panel]] = {
    "sizes": [_latency, _part_of_limit, _speedup],
    "hosts": [_by_hosts],
    "tree": [_parts("4 hosts at each of two switches, 250 Mbit/s")],
    "loss": [_parts("4 hosts, 250 Mbit/s, frames lost")],
    "rails": [_parts("4 hosts, two rails of 1 Gbit/s")],
}


def main() -> None:
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    path = Path(sys.argv[1])
    print("\n".join(str(picture) for picture in draw(load(path), path.parent)))


if __name__ == "__main__":
    main()
