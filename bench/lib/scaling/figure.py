# SPDX-License-Identifier: Apache-2.0
"""Draws what bench/scaling measured: costs and times by the number of ranks, as PNG and SVG.

usage: PYTHONPATH=bench python3 -m lib.scaling.figure scaling.json    draws again, next to the file
"""

from __future__ import annotations

import sys
from pathlib import Path

from lib.scaling.scale import COSTS, PICTURES, Cost, Scaling
from lib.shared.figure import STYLE, plt
from lib.shared.units import size_text
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullLocator

# The colour and the marker of each way.
LOOKS = {
    "auto": ("#0b4f8a", "s"),
    "ring": ("#5aa7dc", "o"),
    "recursive-doubling": ("#1b7837", "^"),
    "halving-doubling": ("#5aae61", "v"),
    "direct": ("#762a83", "D"),
    "bcube": ("#b48ac9", "P"),
    "gloo-ring": ("#e08214", "^"),
    "gloo-bcube": ("#f0b462", "v"),
}
DRAWN = ["first_ms", "cpu_ms", "memory_kib", "sockets", "store_requests"]
COLUMNS = 3


def draw(results: Scaling, out: Path) -> list[Path]:
    costs = [cost for cost in COSTS if cost.key in DRAWN]
    panels = len(costs) + len(results.sizes) + 1  # The legend is the last panel.
    rows = -(-panels // COLUMNS)
    with plt.rc_context(STYLE):
        drawing, all_axes = plt.subplots(
            rows, COLUMNS, figsize=(16, 4.4 * rows), layout="constrained", squeeze=False
        )
        free = iter(all_axes.flat)
        for cost in costs:
            _cost_panel(next(free), results, cost)
        for size in results.sizes:
            _time_panel(next(free), results, size)
        _legend(next(free), results)
        for axes in free:
            axes.set_axis_off()
        drawing.suptitle(results.title(), x=0.007, ha="left", fontsize=13)
        paths = [out / name for name in PICTURES]
        for path in paths:
            drawing.savefig(path, dpi=120)
        plt.close(drawing)
    return paths


def _cost_panel(axes: Axes, results: Scaling, cost: Cost) -> None:
    axes.set_title(cost.label)
    for way in results.ways:
        _line(axes, way.key, results.costs_of(way, cost))
    _ranks_axis(axes, results.all_ranks())
    _log_axis(axes)


def _time_panel(axes: Axes, results: Scaling, size: int) -> None:
    axes.set_title(f"{size_text(size)}: p50 in µs")
    for way in results.ways:
        _line(axes, way.key, results.times_of(way, size))
    _ranks_axis(axes, results.all_ranks())
    _log_axis(axes)


def _log_axis(axes: Axes) -> None:
    axes.set_yscale("log")
    axes.yaxis.set_minor_locator(LogLocator(subs=[2, 5]))
    for set_formatter in (axes.yaxis.set_major_formatter, axes.yaxis.set_minor_formatter):
        set_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


def _line(axes: Axes, key: str, points: list[tuple[float, float]]) -> None:
    colour, marker = LOOKS[key]
    axes.plot(*zip(*points or [(float("nan"),) * 2]), color=colour, marker=marker, lw=1.4, ms=5)


def _ranks_axis(axes: Axes, ranks: list[int]) -> None:
    axes.set_xscale("log", base=2)
    axes.set_xlim(0.9 * ranks[0], 1.1 * ranks[-1])
    axes.xaxis.set_major_locator(FixedLocator(ranks))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.set_xlabel("ranks")


def _legend(axes: Axes, results: Scaling) -> None:
    for way in results.ways:
        colour, marker = LOOKS[way.key]
        label = way.label if way.key.startswith("gloo") else f"nezha, {way.label}"
        axes.plot([], [], color=colour, marker=marker, label=label)
    axes.set_axis_off()
    axes.legend(loc="center left", fontsize=11)


def main() -> None:
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    path = Path(sys.argv[1])
    print("\n".join(str(picture) for picture in draw(Scaling.load(path), path.parent)))


if __name__ == "__main__":
    main()
