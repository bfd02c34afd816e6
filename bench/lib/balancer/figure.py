# SPDX-License-Identifier: Apache-2.0
"""Draws what bench/balancer measured: throughput and shares over operations, and from which size on
several rails carry a message, as PNG and SVG.

usage: PYTHONPATH=bench python3 -m lib.balancer.figure balancer.json    draws again, next to the file
"""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from lib.balancer.balance import LEARNING, MODES, PICTURES, WINDOW, Balance, rails_used, sliding
from lib.shared.figure import LIMIT, STYLE, plt
from lib.shared.results import TCP_CEILING, megabytes_per_second
from lib.shared.units import size_text
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

# The colour and the marker of each mode. Colour-blind people can tell these colours apart, too.
LOOKS = {
    "model": ("#0b4f8a", "s"),
    "paper": ("#e08214", "^"),
    "auto": ("#1b9e77", "D"),
    "stripe": ("#9a9a9a", "o"),
}
PAPER_COLD = (128 << 10, 512 << 10)  # Nezha §V-B, Fig. 5: TCP-TCP, 2 and 6 nodes


def draw(results: Balance, out: Path) -> list[Path]:
    with plt.rc_context(STYLE):
        drawing = plt.figure(figsize=(16, 8), layout="constrained")
        grid = drawing.add_gridspec(2, 2, width_ratios=[5, 3])
        throughput = drawing.add_subplot(grid[0, 0])
        share = drawing.add_subplot(grid[1, 0], sharex=throughput)
        _throughput(throughput, results)
        _share(share, results)
        if results.starts:
            _sizes(drawing.add_subplot(grid[0, 1]), results)
        if results.splits:
            _splits(drawing.add_subplot(grid[1, 1]), results)
        drawing.suptitle(
            f"{results.title()}; the change: {results.change_text()}",
            x=0.007,
            ha="left",
            fontsize=13,
        )
        paths = [out / name for name in PICTURES]
        for path in paths:
            drawing.savefig(path, dpi=120)
        plt.close(drawing)
    return paths


# ---- over operations --------------------------------------------------------------------------


def _throughput(axes: Axes, results: Balance) -> None:
    axes.set_title(f"Throughput (median of {WINDOW} operations)")
    for mode in results.measured():
        times = sliding([operation.us for operation in results.operations[mode.key]])
        rates = [megabytes_per_second(results.size, time) for time in times]
        axes.plot(_middles(rates), rates, color=LOOKS[mode.key][0], lw=1.3, label=mode.label)
    for begin, end, best in _spans(results):
        rate = megabytes_per_second(results.size, best["us"])
        axes.plot([begin, end], [rate, rate], "--", **LIMIT, label=_once(axes, "best fixed split"))
        is_changed = best is not results.best["start"]
        shaped = results.changed_rates() if is_changed else list(results.rails.values())
        limit = results.wire_limit(shaped, results.size) / TCP_CEILING
        rate = megabytes_per_second(results.size, limit)
        axes.plot([begin, end], [rate, rate], ":", **LIMIT, label=_once(axes, "what TCP can reach"))
    axes.set_ylim(0)
    axes.set_ylabel("size / time in MB/s (more is better)")
    _changes(axes, results)
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 0.06), ncols=3)


def _share(axes: Axes, results: Balance) -> None:
    rail = results.change.rail
    axes.set_title(f"What {rail} carries (of what rank 0 sent in {WINDOW} operations)")
    place = list(results.rails).index(rail)
    for mode in results.measured():
        sent = [operation.sent for operation in results.operations[mode.key]]
        parts = []
        for index in range(len(sent)):
            sums = [sum(column) for column in zip(*sent[index : index + WINDOW])]
            parts.append(100 * sums[place] / (sum(sums) or 1))
        axes.plot(_middles(parts), parts, color=LOOKS[mode.key][0], lw=1.3)
    for begin, end, best in _spans(results):
        axes.plot([begin, end], [best["shares"][place]] * 2, "--", **LIMIT)
    axes.set_ylim(-2, 102)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda part, _: f"{part:g}%"))
    axes.set_xlabel("operations from the start")
    _changes(axes, results)


def _middles(windows: Sequence[float]) -> range:
    """Returns the operations in the middle of the windows."""
    return range(WINDOW // 2, WINDOW // 2 + len(windows))


def _spans(results: Balance) -> Iterator[tuple[int, int, dict]]:
    """Yields the first operation, the end and the best split of each phase."""
    if not results.measured():
        return
    for phase in results.phases(results.measured()[0]):
        best = results.best_of(phase.name)
        if best:
            yield phase.begin, phase.begin + len(phase.operations), best


def _changes(axes: Axes, results: Balance) -> None:
    """Marks where the rate changed, which is after nearly the same number of operations in every mode."""
    for phase in results.phases(results.measured()[0])[1:]:
        axes.axvline(phase.begin, color="#c0392b", lw=0.8)
        own = f"back at {results.rails[results.change.rail] / 1e9:g} Gbit/s"
        text = results.change_text() if phase.name == "changed" else own
        axes.annotate(
            text,
            (phase.begin, 0),
            xycoords=("data", "axes fraction"),
            xytext=(4, 4),
            textcoords="offset points",
            color="#c0392b",
            fontsize=9,
        )


def _once(axes: Axes, label: str) -> str | None:
    """Returns the label, or None if a line of the panel has it already."""
    return None if label in axes.get_legend_handles_labels()[1] else label


# ---- over sizes and splits --------------------------------------------------------------------


def _sizes(axes: Axes, results: Balance) -> None:
    axes.set_title("From nothing: one rail (hollow) or several")
    alone = results.fixed.get("fastest rail")
    sizes = sorted({start["bytes"] for start in results.starts})
    if alone is None:
        return
    axes.axvspan(*PAPER_COLD, color="#f3e3cf", zorder=0)
    axes.annotate(
        "cold up to here on 2 to 6 nodes\n(Nezha §V-B, Fig. 5, TCP-TCP)",
        (PAPER_COLD[0], 0),
        xycoords=("data", "axes fraction"),
        xytext=(3, 4),
        textcoords="offset points",
        fontsize=8,
    )
    for mode in (mode for mode in MODES if mode.key in LEARNING):
        starts = sorted(
            (start for start in results.starts if start["mode"] == mode.key),
            key=lambda start: start["bytes"],
        )
        ratios = [alone[start["bytes"]] / start["us"] for start in starts]
        colour, marker = LOOKS[mode.key]
        axes.plot([start["bytes"] for start in starts], ratios, color=colour, label=mode.label)
        for start, ratio in zip(starts, ratios):
            face = colour if rails_used(start["carried"]) > 1 else "white"
            look = {"markerfacecolor": face, "markeredgecolor": colour, "zorder": 3}
            axes.plot(start["bytes"], ratio, marker, **look)
    split = results.fixed.get("fixed split")
    if split:
        ratios = [alone[size] / split[size] for size in sizes]
        axes.plot(sizes, ratios, "--", **LIMIT, label="split as the rates")
    axes.axhline(1, **LIMIT)
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_locator(FixedLocator(sizes[:: -(-len(sizes) // 5)]))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda size, _: size_text(size)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda ratio, _: f"{ratio:g}×"))
    axes.set_ylabel("times as fast as the fastest rail alone")
    axes.legend(loc="upper left", fontsize=9)


def _splits(axes: Axes, results: Balance) -> None:
    place = list(results.rails).index(results.change.rail)
    axes.set_title("Fixed splits")
    for (phase, tried), marker in zip(results.splits.items(), "os"):
        parts = [split["shares"][place] for split in tried]
        rates = [megabytes_per_second(results.size, split["us"]) for split in tried]
        pairs = sorted(zip(parts, rates))
        label = "as built" if phase == "start" else results.change_text()
        look = {"lw": 0.8 if len(results.rails) == 2 else 0, "markersize": 4}
        axes.plot(*zip(*pairs), marker=marker, **look, label=label)
    axes.set_ylim(0)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda part, _: f"{part:g}%"))
    axes.set_xlabel(f"what {results.change.rail} carries")
    axes.set_ylabel("size / time in MB/s")
    axes.legend(loc="best")


def main() -> None:
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    path = Path(sys.argv[1])
    print("\n".join(str(picture) for picture in draw(Balance.load(path), path.parent)))


if __name__ == "__main__":
    main()
