# SPDX-License-Identifier: Apache-2.0
"""Draws the results of a run: latency, bandwidth and speed-up over size, as PNG and SVG.

usage: PYTHONPATH=bench python3 -m lib.shared.figure RESULTS.json    draws again, next to the file
"""

import itertools
import math
import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

# Matplotlib warns if it has no home directory to write to, as in a user namespace.
_cache = tempfile.TemporaryDirectory()
os.environ.setdefault("MPLCONFIGDIR", _cache.name)

import matplotlib  # noqa: E402

matplotlib.use("Agg")  # No display is needed.
import matplotlib.pyplot as plt  # noqa: E402
from matplotlib.axes import Axes  # noqa: E402
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator  # noqa: E402

from lib.shared.collective import COLLECTIVES  # noqa: E402
from lib.shared.results import (  # noqa: E402
    AnyConfig,
    Config,
    Results,
    ResultsOf,
    Value,
    bandwidth_of,
    megabytes_per_second,
    p50_of,
)
from lib.shared.units import size_text, time_text  # noqa: E402

# The colour and the marker of each configuration. Colour-blind people can tell these colours apart, too.
LOOKS = {
    "one": ("#5aa7dc", "o"),
    "all": ("#0b4f8a", "s"),
    "slice": ("#1b9e77", "D"),
    "gloo": ("#e08214", "^"),
    "gloo2": ("#9c3d10", "v"),
}
# The colours and markers of nezha on a single rail.
ALONE_LOOKS = [("#5aa7dc", "<"), ("#8cc5ec", ">"), ("#2f78b7", "p"), ("#b9dbf2", "h")]
STYLE = {
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#e6e6e6",
    "axes.titlesize": 11,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "legend.frameon": False,
    "svg.hashsalt": "nezha",  # the same results make the same file
}
LIMIT = {"color": "#6e6e6e", "linewidth": 1.2, "zorder": 1}
LIMIT_DASHES = ["--", ":", "-."]


Panel = Callable[[Axes, ResultsOf[AnyConfig]], None]


def pictures_of(collective: str) -> list[str]:
    """Returns the names of the pictures. A barrier has none, because it has one size."""
    kinds = ["png", "svg"] if COLLECTIVES[collective].has_data else []
    return [f"{collective}.{kind}" for kind in kinds]


def looks_of(configs: Sequence[Config]) -> dict[str, tuple[str, str]]:
    """Returns the colour and the marker of each configuration, by key."""
    alone = [config.key for config in configs if config.key not in LOOKS]
    return LOOKS | dict(zip(alone, itertools.cycle(ALONE_LOOKS)))


def draw(results: Results, out: Path) -> list[Path]:
    panels = [_latency, _bandwidth, _speedup] if results.compared() else [_latency, _bandwidth]
    paths = [out / name for name in pictures_of(results.collective)]
    return draw_panels(results, panels, paths) if paths else []


def draw_panels(
    results: ResultsOf[AnyConfig],
    panels: Sequence[Panel[AnyConfig]],
    paths: list[Path],
    columns: int = 3,
) -> list[Path]:
    with plt.rc_context(STYLE):
        columns = min(columns, len(panels))
        rows = -(-len(panels) // columns)
        size = (16 / 3 * columns, 5.4 * rows)
        figure, all_axes = plt.subplots(
            rows, columns, figsize=size, layout="constrained", squeeze=False
        )
        for axes, draw_panel in zip(all_axes.flat, panels):
            draw_panel(axes, results)
            size_axis(axes, results)
        runs = f"; median and range of {results.repeat} runs" if results.repeat > 1 else ""
        figure.suptitle(results.title() + runs, x=0.007, ha="left", fontsize=13)
        for path in paths:
            figure.savefig(path, dpi=120)
        plt.close(figure)
    return paths


# ---- the panels -------------------------------------------------------------------------------


def _latency(axes: Axes, results: Results) -> None:
    axes.set_title("Latency")
    looks = looks_of(results.configs)
    for config in results.configs:
        plot(axes, results, config, p50_of, looks[config.key])
    _, highest = axes.get_ylim()
    lowest = min(
        time for c in results.configs for s in results.sizes for time in results.p50s(c, s)
    )
    for config, dashes in _limits(results):
        limits = [results.wire_limit(config, size) for size in results.sizes]
        axes.plot(results.sizes, limits, dashes, **LIMIT, label=_limit_name(results, config))
    axes.set_yscale("log")
    axes.set_ylim(lowest / 2, highest * 2)  # the limits of short messages may lie outside
    axes.yaxis.set_major_formatter(FuncFormatter(lambda time, _: time_text(time)))
    axes.set_ylabel(f"time of one {results.collective}, p50 (less is better)")
    axes.legend(loc="upper left")


def _bandwidth(axes: Axes, results: Results) -> None:
    axes.set_title("Bandwidth")
    looks = looks_of(results.configs)
    for config in results.configs:
        plot(axes, results, config, bandwidth_of, looks[config.key])
    limits = _limits(results)
    for config, dashes in limits:
        size = results.sizes[-1]
        least = results.wire_limit(config, size)
        assert least  # _limits() gives configurations whose rails are shaped
        limit = megabytes_per_second(results.about.vector(size, results.hosts), least)
        axes.axhline(limit, linestyle=dashes, **LIMIT)
        above = config is limits[-1][0]  # two limits may be close
        axes.annotate(
            f"{_limit_name(results, config)}: {limit:.3g}",
            (0, limit),
            xycoords=("axes fraction", "data"),
            xytext=(4, 3 if above else -3),
            textcoords="offset points",
            verticalalignment="bottom" if above else "top",
            color=LIMIT["color"],
            fontsize=9,
        )
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(FuncFormatter(lambda rate, _: f"{rate:g}"))
    whole = "vector" if results.about.has_blocks else "size"
    axes.set_ylabel(f"{whole} / p50 in MB/s (more is better)")
    axes.legend(loc="lower right")


def _speedup(axes: Axes, results: Results) -> None:
    axes.set_title("nezha on all rails: times as fast as")
    mine = results.config("all")
    assert mine  # draw() has this panel only if there is something to compare "all" with
    for config in results.compared():
        ratios = [results.speedup(mine, config, size) or math.nan for size in results.sizes]
        colour, marker = looks_of(results.configs)[config.key]
        axes.plot(results.sizes, ratios, color=colour, marker=marker, label=config.label)
    axes.axhline(1, **LIMIT)
    axes.set_yscale("log", base=2)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda ratio, _: f"{ratio:g}×"))
    axes.set_ylabel("ratio of the p50 (more is better)")
    axes.legend(loc="best")


# ---- what they share --------------------------------------------------------------------------


def plot(
    axes: Axes,
    results: ResultsOf[AnyConfig],
    config: AnyConfig,
    value: Value,
    look: tuple[str, str],
) -> None:
    """Draws a line through the medians, and a band from the smallest to the largest of the repeats."""
    colour, marker = look
    medians, lows, highs = [], [], []
    for size in results.sizes:
        median = results.median(config, size, value)
        # A failed size leaves a gap.
        repeats = [value(row) for row in results.rows(config, size)] if median else [math.nan]
        medians.append(median or math.nan)
        lows.append(min(repeats))
        highs.append(max(repeats))
    axes.plot(results.sizes, medians, color=colour, marker=marker, markersize=5, label=config.label)
    axes.fill_between(results.sizes, lows, highs, color=colour, alpha=0.2, lw=0)


def _limits(results: Results) -> list[tuple[Config, str]]:
    """Returns one configuration for each wire limit, and the dashes of its line."""
    by_rate = {results.wire_rate(config): config for config in results.configs}
    rates = sorted(rate for rate in by_rate if rate)
    return [(by_rate[rate], dashes) for rate, dashes in zip(rates, itertools.cycle(LIMIT_DASHES))]


def _limit_name(results: Results, config: Config) -> str:
    rate = results.wire_rate(config)
    assert rate  # _limits() gives configurations whose rails are shaped
    return f"wire limit of {rate * 8 / 1e9:g} Gbit/s"


def size_axis(axes: Axes, results: ResultsOf[AnyConfig]) -> None:
    axes.set_xscale("log", base=2)
    step = -(-len(results.sizes) // 7)  # At most seven labels fit.
    axes.xaxis.set_major_locator(FixedLocator(results.sizes[::step]))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda size, _: size_text(size)))
    axes.tick_params(axis="x", labelsize=9)
    axes.set_xlabel(results.about.size_name)


def main() -> None:
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    path = Path(sys.argv[1])
    print("\n".join(str(picture) for picture in draw(Results.load(path), path.parent)))


if __name__ == "__main__":
    main()
