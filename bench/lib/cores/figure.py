# SPDX-License-Identifier: Apache-2.0
"""The picture of bench/cores: all configurations of rails side by side.

usage: PYTHONPATH=bench python3 -m lib.cores.figure CORES.json    draws again, next to the file
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable
from pathlib import Path

from lib.cores.results import CoreResults, Measured, busy_cores, is_machine_the_limit, wires
from lib.peers.looks import LOOKS
from lib.peers.peer import IPERF3, Peer
from lib.shared.figure import LIMIT, STYLE, plt
from lib.shared.results import bandwidth_of, cpu_per_gib_of
from lib.shared.units import size_text
from matplotlib.axes import Axes

WIDTH = 0.84  # the width of the bars of one configuration together; 1 leaves no space between two

# Returns the value of each run, for a network, a peer and a size.
Values = Callable[[Measured, Peer, int], list[float]]


def speeds(results: Measured, peer: Peer, size: int) -> list[float]:
    return [bandwidth_of(row) for row in results.rows(peer, size)]


def cpu_times(results: Measured, peer: Peer, size: int) -> list[float]:
    return [cpu_per_gib_of(row) for row in results.rows(peer, size)]


def cores(results: Measured, peer: Peer, size: int) -> list[float]:
    busy = busy_cores(results, peer, size)
    return [] if busy is None else [busy]


def draw(all_results: CoreResults, paths: list[Path]) -> None:
    sizes = next(iter(all_results.networks.values())).sizes
    with plt.rc_context(STYLE):
        panels = len(sizes) + 2
        figure, all_axes = plt.subplots(panels, figsize=(16, 3.4 * panels), layout="constrained")
        for axes, size in zip(all_axes, sizes):
            axes.set_title(f"{size_text(size)}: MB/s (more is better; line: all that TCP can use)")
            _bars(axes, all_results, size, speeds)
            _limits(axes, all_results, size)
        longest = sizes[-1]
        all_axes[-2].set_title(f"{size_text(longest)}: CPU seconds per GiB (less is better)")
        _bars(all_axes[-2], all_results, longest, cpu_times)
        all_axes[-1].set_title(f"{size_text(longest)}: busy cores (line: all of them)")
        _bars(all_axes[-1], all_results, longest, cores)
        _all_cores(all_axes[-1], all_results)
        figure.suptitle(_title(all_results), x=0.007, ha="left", fontsize=13)
        # The legend is above the first panel's title.
        all_axes[0].legend(loc="lower left", bbox_to_anchor=(0, 1.08), ncols=4)
        for path in paths:
            figure.savefig(path, dpi=120)
        plt.close(figure)


def _title(all_results: CoreResults) -> str:
    any_one = next(iter(all_results.networks.values()))
    runs = f"; median and range of {any_one.repeat} runs" if any_one.repeat > 1 else ""
    return f"{any_one.about.title}, {any_one.hosts} hosts on {any_one.machine['cores']} cores{runs}"


def _bars(axes: Axes, all_results: CoreResults, size: int, values: Values) -> None:
    """Draws a bar up to each peer's median, and a line from the lowest run to the highest."""
    peers = all_results.peers()
    step = WIDTH / len(peers)
    for index, peer in enumerate(peers):
        colour = LOOKS[peer.key][0]
        axes.plot([], [], "s", color=colour, label=peer.label)
        for place, results in enumerate(all_results.networks.values()):
            runs = values(results, peer, size)
            if runs:
                middle, x = statistics.median(runs), place - WIDTH / 2 + (index + 0.5) * step
                spread = [[middle - min(runs)], [max(runs) - middle]]
                hatch = "///" if peer.key == IPERF3 else None
                bar = {"width": 0.9 * step, "hatch": hatch, "edgecolor": "white", "linewidth": 0}
                axes.bar(x, middle, color=colour, yerr=spread, ecolor="#555555", **bar)
    axes.set_xticks(range(len(all_results.networks)), list(map(_name, *_items(all_results))))
    axes.set_xlim(-0.5, len(all_results.networks) - 0.5)
    axes.set_axisbelow(True)
    axes.grid(axis="x", visible=False)
    axes.set_ylim(0)


def _items(all_results: CoreResults) -> tuple[list[str], list[Measured]]:
    return list(all_results.networks), list(all_results.networks.values())


def _name(config: str, results: Measured) -> str:
    """Returns the text below the bars of a configuration."""
    return f"{config}\nlimited by the machine" if is_machine_the_limit(results) else config


def _limits(axes: Axes, all_results: CoreResults, size: int) -> None:
    """Draws the wire limits that are not far above all that was measured."""
    _, highest = axes.get_ylim()
    for place, results in enumerate(all_results.networks.values()):
        limit = wires(results, size)
        if limit and limit < 2 * highest:
            axes.hlines(limit, place - 0.47, place + 0.47, linestyles="--", **LIMIT)


def _all_cores(axes: Axes, all_results: CoreResults) -> None:
    any_one = next(iter(all_results.networks.values()))
    axes.axhline(int(any_one.machine["cores"]), linestyle="--", **LIMIT)


def main() -> None:
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    path = Path(sys.argv[1])
    pictures = [path.with_suffix(".png"), path.with_suffix(".svg")]
    draw(CoreResults.load(path), pictures)
    print("\n".join(map(str, pictures)))


if __name__ == "__main__":
    main()
