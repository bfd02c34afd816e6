# SPDX-License-Identifier: Apache-2.0
"""The measurements of bench/scaling (scaling.json), and their extrapolation to many more ranks."""

from __future__ import annotations

import csv
import dataclasses
import json
import math
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path

from lib.shared.results import failure_text
from lib.shared.summary import columns
from lib.shared.units import size_text

DATA = "scaling.json"
TABLE = "scaling.csv"
PICTURES = ["scaling.png", "scaling.svg"]
FAR = [1000, 10000]  # numbers of ranks that are extrapolated, not measured

# The forms in which a cost may grow with the number of ranks n: the form's name, and the term that is
# added to a constant. The slowest growth comes first.
FORMS: dict[str, Callable[[float], float]] = {
    "constant": lambda n: 0.0,
    "log n": lambda n: math.log2(n),
    "n": lambda n: n,
    "n²": lambda n: n * n,
}
LEAST_POINTS = 4  # numbers of ranks that a fit needs
LEAST_FOR_SQUARE = 6  # numbers of ranks that a fit with n² needs, which magnifies noise a thousandfold
CLEARLY = 0.9  # a faster form replaces a slower one if its error is at most this part


# ---- fits -------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Fit:
    form: str
    constant: float
    slope: float
    residual: float  # root mean square of the errors, as a part of the points' mean

    def at(self, ranks: float) -> float:
        return self.constant + self.slope * FORMS[self.form](ranks)


def line_through(points: Sequence[tuple[float, float]], form: str) -> tuple[float, float]:
    """Returns the constant and the slope of the least-squares line."""
    xs = [FORMS[form](n) for n, _ in points]
    ys = [y for _, y in points]
    x_mean, y_mean = statistics.fmean(xs), statistics.fmean(ys)
    spread = sum((x - x_mean) ** 2 for x in xs)
    if spread == 0:
        return y_mean, 0.0
    slope = sum((x - x_mean) * (y - y_mean) for x, y in zip(xs, ys)) / spread
    return y_mean - slope * x_mean, slope


def fit_of(points: Sequence[tuple[float, float]], form: str) -> Fit:
    constant, slope = line_through(points, form)
    f = FORMS[form]
    off = math.sqrt(statistics.fmean((y - constant - slope * f(n)) ** 2 for n, y in points))
    mean = statistics.fmean(y for _, y in points)
    return Fit(form, constant, slope, off / mean if mean else 0.0)


def error_left_out(points: Sequence[tuple[float, float]], form: str) -> float:
    """Returns the root mean square error of a form that predicts each point from the other points."""
    squares = []
    f = FORMS[form]
    for index, (n, y) in enumerate(points):
        constant, slope = line_through([*points[:index], *points[index + 1 :]], form)
        squares.append((y - constant - slope * f(n)) ** 2)
    return math.sqrt(statistics.fmean(squares))


def best_fit(points: Sequence[tuple[float, float]]) -> Fit | None:
    """Returns the fit of the form that best predicts points to which it was not fitted.

    No cost falls with the ranks. A form that grows faster is taken only if it is clearly better, because it
    extrapolates to much higher costs. The function returns None if there are too few points.
    """
    known = len({n for n, _ in points})
    if known < LEAST_POINTS:
        return None
    best, least = "constant", error_left_out(points, "constant")
    for form in list(FORMS)[1 : 4 if known >= LEAST_FOR_SQUARE else 3]:
        error = error_left_out(points, form)
        if error < CLEARLY * least and line_through(points, form)[1] > 0:
            best, least = form, error
    return fit_of(points, best)


# ---- what was measured ------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Way:
    """A library and an algorithm."""

    key: str
    label: str
    command: list[str]


MEDIAN_AND_WORST: list[Callable[[list], float]] = [statistics.median, max]  # of the ranks' values


@dataclasses.dataclass(frozen=True)
class Cost:
    """A figure of each rank's start-up."""

    key: str  # the figure's name in a row of --start-up
    label: str
    digits: int = 0
    # This selects the rank's value that is drawn and extrapolated: the greatest one, because a site must
    # provide for it. For times it is the median, because the load of other ranks determines the largest.
    of_ranks: Callable[[list], float] = max
    is_own: bool = True  # whether others that share the cores do not affect the cost


COSTS = [
    Cost("first_ms", "ms until connected and one operation is over", 1, statistics.median, False),
    Cost("cpu_ms", "CPU ms of that", 2, statistics.median),
    Cost("memory_kib", "memory of the process's own that it took, KiB"),
    Cost("peak_kib", "resident at most, with libraries, KiB"),
    Cost("sockets", "sockets"),
    Cost("descriptors", "open files"),
    Cost("threads", "threads beside the caller's"),
    Cost("store_requests", "requests to the store"),
]


@dataclasses.dataclass
class Scaling:
    machine: dict[str, str | int]
    rails: dict[str, int | None]
    ways: list[Way]
    ranks: list[int]  # numbers of ranks that are measured in full
    many: list[int]  # numbers that are measured with small operations only
    sizes: list[int]  # bytes
    repeat: int
    # For each rank: a row of --start-up, with "way" and "repeat"
    start_ups: list[dict] = dataclasses.field(default_factory=list)
    # For each operation: a row of --format json, with "way", "repeat" and "ranks"
    operations: list[dict] = dataclasses.field(default_factory=list)
    failures: list[dict] = dataclasses.field(default_factory=list)

    def save(self, path: Path) -> None:
        path.write_text(json.dumps(dataclasses.asdict(self), indent=1) + "\n")

    @staticmethod
    def load(path: Path) -> Scaling:
        data = json.loads(path.read_text())
        data["ways"] = [Way(**way) for way in data["ways"]]
        return Scaling(**data)

    def title(self) -> str:
        rails = " + ".join(
            f"{name} {rate / 1e9:g} Gbit/s" if rate else f"{name} unshaped"
            for name, rate in self.rails.items()
        )
        return f"starting and allreduce by the number of ranks, float32 sum, {rails}"

    def all_ranks(self) -> list[int]:
        return sorted({*self.ranks, *self.many})

    def _runs(self, way: Way, ranks: int) -> list[list[dict]]:
        """Returns the ranks' rows of each repeat, without runs that failed half-way."""
        runs: dict[int, list[dict]] = {}
        for row in self.start_ups:
            if row["way"] == way.key and row["ranks"] == ranks:
                runs.setdefault(row["repeat"], []).append(row)
        return [rows for rows in runs.values() if len(rows) == ranks]

    def cost(
        self, way: Way, ranks: int, cost: Cost, of_ranks: Callable[[list], float]
    ) -> float | None:
        """Returns the median over the repeats of what `of_ranks` selects, such as the worst rank's value."""
        runs = self._runs(way, ranks)
        return (
            statistics.median(of_ranks([row[cost.key] for row in rows]) for rows in runs)
            if runs
            else None
        )

    def p50(self, way: Way, ranks: int, size: int) -> float | None:
        times = [
            row["p50_us"]
            for row in self.operations
            if row["way"] == way.key and row["ranks"] == ranks and row["bytes"] == size
        ]
        return statistics.median(times) if times else None

    def costs_of(self, way: Way, cost: Cost) -> list[tuple[float, float]]:
        """Returns the cost by the number of ranks; Cost.of_ranks selects the rank's value."""
        costs = [(n, self.cost(way, n, cost, cost.of_ranks)) for n in self.all_ranks()]
        return [(n, value) for n, value in costs if value is not None]

    def fit(self, way: Way, cost: Cost) -> Fit | None:
        return best_fit(self.costs_of(way, cost)) if cost.is_own else None

    def times_of(self, way: Way, size: int) -> list[tuple[float, float]]:
        """Returns the times by the number of ranks, in microseconds."""
        times = [(n, self.p50(way, n, size)) for n in self.all_ranks()]
        return [(n, value) for n, value in times if value is not None]


# ---- the table --------------------------------------------------------------------------------


NOTES = """\
nezha runs on all rails, Gloo on the one that is named with it. Start-up costs are given as the ranks'
median / the rank that has most, each as the median over runs. Memory, files and threads: what was
added from the start of the program until all ranks had run one operation of the first size. From 4 KiB
on, where the load balancer learns (auto), rank 0 also connects to all other ranks. The kernel's memory
of sockets does not count. Gloo's file store looks again every 10 ms. p50: the largest p50 of any rank.
Extrapolated: the fit is a constant and a part that grows as the form, by least squares, to the rank that
has most, or to the median for CPU times. The form is the one that best predicts points to which it was
not fitted. off by: the root mean square of what the fit misses, in parts of the points' mean. All ranks
share this machine's cores, so wall times of many ranks are this machine's, not a cluster's, and are not
extrapolated. CPU times, memory and counts are a rank's own."""


def table(results: Scaling) -> str:
    blocks = [f"{results.title()}; {results.machine['cores']} cores"]
    blocks += [_cost_block(results, cost) for cost in COSTS]
    blocks += [_time_block(results, size) for size in results.sizes]
    failures = [failure_text(failure) for failure in results.failures]
    return "\n\n".join([*blocks, NOTES, *failures])


def _cost_block(results: Scaling, cost: Cost) -> str:
    def cell(way: Way, ranks: int) -> str:
        pair = [results.cost(way, ranks, cost, of) for of in MEDIAN_AND_WORST]
        return "-" if None in pair else " / ".join(f"{each:.{cost.digits}f}" for each in pair)

    fits = {way.key: results.fit(way, cost) for way in results.ways}
    return _block(results, cost.label, results.all_ranks(), cell, fits, cost.digits)


def _time_block(results: Scaling, size: int) -> str:
    def cell(way: Way, ranks: int) -> str:
        time = results.p50(way, ranks, size)
        return "-" if time is None else f"{time:.1f}"

    ranks = [n for n in results.all_ranks() if any(results.p50(w, n, size) for w in results.ways)]
    return _block(results, f"p50 of {size_text(size)}, µs", ranks, cell, {}, 1)


def _block(
    results: Scaling,
    heading: str,
    ranks: list[int],
    cell: Callable[[Way, int], str],
    fits: dict[str, Fit | None],
    digits: int,
) -> str:
    """Returns a block with a row for each number of ranks, a column for each way, and the extrapolation."""
    below = ["grows as", "off by", *(f"{n:,}" for n in FAR)] if any(fits.values()) else []
    cells = [["ranks", *(str(n) for n in ranks), *below]]
    for way in results.ways:
        column = [way.label, *(cell(way, n) for n in ranks)]
        fit = fits.get(way.key)
        if below:
            column += (
                [fit.form, f"{fit.residual:.1%}", *(f"{fit.at(n):,.{digits}f}" for n in FAR)]
                if fit
                else ["-"] * len(below)
            )
        cells.append(column)
    lines = [line.rstrip() for line in columns(heading, cells)]
    if below:
        lines.insert(2 + len(ranks), "extrapolated")
    return "\n".join(lines)


def save_csv(results: Scaling, path: Path) -> None:
    """Writes a line for each figure, which is either measured or extrapolated."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["what", "way", "ranks", "median", "worst", "extrapolated_as", "off_by"])
        for cost in COSTS:
            for way in results.ways:
                for n in results.all_ranks():
                    pair = [results.cost(way, n, cost, of) for of in MEDIAN_AND_WORST]
                    if None not in pair:
                        writer.writerow([cost.key, way.key, n, *pair, "", ""])
                if fit := results.fit(way, cost):
                    for n in FAR:
                        value = round(fit.at(n), 3)
                        far = ["", value] if cost.of_ranks is max else [value, ""]
                        form = [fit.form, f"{fit.residual:.4f}"]
                        writer.writerow([cost.key, way.key, n, *far, *form])
        for size in results.sizes:
            for way in results.ways:
                for ranks, time in results.times_of(way, size):
                    writer.writerow([f"p50_us of {size}", way.key, ranks, "", time, "", ""])
