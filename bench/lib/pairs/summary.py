# SPDX-License-Identifier: Apache-2.0
"""The conclusions of bench/pairs: ratios of runs that followed each other, and their confidence intervals."""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Sequence

from lib.shared import stolen
from lib.shared.results import MARK_NOTE, Config, Results, Value, cpu_seconds_of, failure_text, p50_of
from lib.shared.summary import columns
from lib.shared.units import size_text

CONFIDENCE = 0.95


def median_interval(values: Sequence[float]) -> tuple[float, float] | None:
    """Returns an interval that has the median of the values' distribution with that confidence.

    The sign test assumes nothing about the distribution but that a value is as often above its median as
    below. The function returns None if there are too few values.
    """
    n = len(values)
    below, left_out = 0.0, 0  # the probability that so few values are below the median
    while (below := below + math.comb(n, left_out) / 2**n) <= (1 - CONFIDENCE) / 2:
        left_out += 1
    ordered = sorted(values)
    return (ordered[left_out - 1], ordered[n - left_out]) if left_out else None


@dataclasses.dataclass
class Comparison:
    """The ratios of a way's times to those of the first way, at one size."""

    config: Config
    size: int
    ratios: list[float]  # one for each pair
    cpu_ratios: list[float]  # the same for CPU time

    @property
    def interval(self) -> tuple[float, float] | None:
        return median_interval(self.ratios)


def compare(results: Results, runs: int = 1) -> list[Comparison]:
    """Returns the comparisons by size. A pair has `runs` runs of each way.

    Ways of which no run has a partner are left out.
    """
    first, *others = results.configs
    comparisons = []
    for size in results.sizes:
        for config in others:
            times = _ratios(results, size, config, first, runs, p50_of)
            cpu = _ratios(results, size, config, first, runs, cpu_seconds_of)
            if times:
                comparisons.append(Comparison(config, size, times, cpu))
    return comparisons


def _ratios(
    results: Results, size: int, config: Config, first: Config, runs: int, value: Value
) -> list[float]:
    mine, firsts = (_by_pair(results.rows(each, size), runs, value) for each in (config, first))
    return [mine[pair] / firsts[pair] for pair in mine if pair in firsts]


def _by_pair(rows: Sequence[dict], runs: int, value: Value) -> dict[int, float]:
    """Returns the median of each pair's runs."""
    values: dict[int, list[float]] = {}
    for row in rows:
        values.setdefault(row["repeat"] // runs, []).append(value(row))
    return {pair: statistics.median(each) for pair, each in values.items()}


def slower_than(comparisons: Sequence[Comparison], ratio: float | None) -> list[str]:
    """Returns a text for each way that may take more than `ratio` of the first way's time."""
    if ratio is None:
        return []
    slow = []
    for each in comparisons:
        interval = each.interval
        if interval is None:
            slow.append(f"{size_text(each.size)}, {each.config.key}: too few pairs to tell")
        elif interval[1] > ratio:
            most = f"{interval[1]:.3f} of A's time"
            slow.append(f"{size_text(each.size)}, {each.config.key}: may take {most}")
    return slow


def table(results: Results, comparisons: Sequence[Comparison]) -> str:
    first = results.configs[0]
    head = ["size", f"{first.key} (µs)", "way", "(µs)", "time of A's", "95% interval"]
    rows = [[*head, "CPU of A's", "95% interval", "pairs"]]
    for each in comparisons:
        rows.append(
            [
                size_text(each.size),
                _microseconds(results, first, each.size),
                each.config.key,
                _microseconds(results, each.config, each.size),
                *_median_and_interval(each.ratios),
                *_median_and_interval(each.cpu_ratios),
                str(len(each.ratios)),
            ]
        )
    cells = [list(column) for column in zip(*rows)]
    legend = [f"{config.key}  {config.label}" for config in results.configs]
    title = f"{results.title()}; {results.machine['cores']} cores"
    notes = [
        "Times: the largest p50 of any rank, as the median of the runs. "
        f"CPU: time of all ranks. {MARK_NOTE}",
        *stolen.note([results]),
    ]
    failures = [failure_text(failure) for failure in results.failures]
    return "\n".join(["", title, *legend, "", *columns("", cells)[1:], "", *notes, *failures])


def _median_and_interval(ratios: list[float]) -> list[str]:
    interval = median_interval(ratios)
    text = "{:.3f} to {:.3f}".format(*interval) if interval else "-"
    return [f"{statistics.median(ratios):.3f}", text]


def _microseconds(results: Results, config: Config, size: int) -> str:
    return f"{results.p50(config, size):.1f}{results.mark(config, size)}"
