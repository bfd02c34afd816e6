# SPDX-License-Identifier: Apache-2.0
"""Draws what bench/failover measured: throughput over time around a cut and a heal, as PNG and SVG.

usage: PYTHONPATH=bench python3 -m lib.failover.figure failover.json    draws again, next to the file
"""

import sys
from pathlib import Path

from lib.failover.outage import PICTURES, WAYS, Outage, Run
from lib.peers.figure import LOOKS
from lib.shared.collective import part_sent
from lib.shared.figure import LIMIT, STYLE, plt
from lib.shared.results import TCP_CEILING
from matplotlib.axes import Axes

CUT = "#c0392b"


def draw(results: Outage, out: Path) -> list[Path]:
    ways = results.ways()
    with plt.rc_context(STYLE):
        drawing, all_axes = plt.subplots(
            len(ways), 1, figsize=(14, 3.6 * len(ways)), layout="constrained", squeeze=False
        )
        for axes, way in zip(all_axes.flat, ways):
            _panel(axes, results, [run for run in results.runs if run.way == way and run.cut])
            axes.set_title(f"{results.rail}: {WAYS[way]}")
        all_axes.flat[-1].set_xlabel("seconds since the cut")
        drawing.suptitle(results.title(), x=0.007, ha="left", fontsize=13)
        paths = [out / name for name in PICTURES]
        for path in paths:
            drawing.savefig(path, dpi=120)
        plt.close(drawing)
    return paths


def _panel(axes: Axes, results: Outage, runs: list[Run]) -> None:
    for run in runs:
        times, rates = [], []
        for each in run.operations:
            times += [each.begin - run.cut, each.end - run.cut]
            rates += [results.size / each.seconds / 1e6] * 2
        usual = run.before() or 0
        if times and times[-1] + 3 * usual < run.end - run.cut:  # the peer stands still
            times += [times[-1], run.end - run.cut]
            rates += [0, 0]
        label = f"{results.labels[run.peer]}: {run.told()}"
        axes.plot(times, rates, color=LOOKS[run.peer][0], lw=1.4, label=label)
    _limits(axes, results)
    if runs:
        heal = max(run.heal - run.cut for run in runs)
        for at, text in ((0, "cut"), (heal, "healed")):
            axes.axvline(at, color=CUT, lw=0.8)
            axes.annotate(
                text,
                (at, 0),
                xycoords=("data", "axes fraction"),
                xytext=(4, 4),
                textcoords="offset points",
                color=CUT,
                fontsize=9,
            )
        axes.set_xlim(-min(1.5, heal), max(run.end - run.cut for run in runs))
    axes.set_ylim(0)
    axes.set_ylabel("size / time in MB/s")
    axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), fontsize=9)


def _limits(axes: Axes, results: Outage) -> None:
    """Draws what TCP can reach on all rails, and without the one that is cut."""
    rates = results.rails
    left = sum(rate for name, rate in rates.items() if name != results.rail)
    for rate in (sum(rates.values()), left):
        limit = rate / 8 * TCP_CEILING / part_sent(results.hosts) / 1e6
        axes.axhline(limit, linestyle=":", **LIMIT)


def main() -> None:
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    path = Path(sys.argv[1])
    print("\n".join(str(picture) for picture in draw(Outage.load(path), path.parent)))


if __name__ == "__main__":
    main()
