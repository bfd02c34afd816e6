# SPDX-License-Identifier: Apache-2.0
"""The table at the end of a run."""

from collections.abc import Callable

from lib.shared import stolen
from lib.shared.results import (
    LEARNING_NOTE,
    MARK_NOTE,
    TCP_CEILING,
    Config,
    Results,
    failure_text,
    megabytes_per_second,
)
from lib.shared.units import size_text

Cell = Callable[[Results, Config, int], str]


def table(results: Results) -> str:
    limited = _limited(results)
    has_data = results.about.has_data
    blocks = [
        columns("", [["size", *(size_text(size) for size in results.sizes)]]),
        _block("p50 (µs)", results, results.configs, _microseconds),
        _block("MB/s", results, results.configs if has_data else [], _bandwidth),
        _block("part of the wire limit", results, limited, _part_of_limit),
        _block("all rails: times as fast as", results, results.compared(), _speedup),
        _part_of_sum(results),
    ]
    rows = ["    ".join(parts).rstrip() for parts in zip(*(block for block in blocks if block))]
    return "\n".join(
        [
            "",
            f"{results.title()}; {results.machine['cores']} cores",
            "",
            *rows,
            "",
            *_notes(results),
        ]
    )


def _limited(results: Results) -> list[Config]:
    """Returns the configurations whose rails are all shaped, if the collective has data."""
    return [config for config in results.configs if results.wire_limit(config, results.sizes[-1])]


def _block(heading: str, results: Results, configs: list[Config], cell: Cell) -> list[str]:
    cells = [
        [
            config.short,
            *(cell(results, config, size) + results.mark(config, size) for size in results.sizes),
        ]
        for config in configs
    ]
    return columns(heading, cells) if cells else []


def columns(heading: str, cells: list[list[str]]) -> list[str]:
    """Returns the lines of some columns under one heading, all of one width."""
    widths = [max(len(cell) for cell in column) for column in cells]
    lines = [
        "  ".join(cell.rjust(width) for cell, width in zip(row, widths)) for row in zip(*cells)
    ]
    width = max(len(heading), len(lines[0]))
    return [heading.ljust(width), *(line.ljust(width) for line in lines)]


def _microseconds(results: Results, config: Config, size: int) -> str:
    time = results.p50(config, size)
    return "failed" if time is None else f"{time:.1f}" if time < 1e4 else f"{time:.0f}"


def _bandwidth(results: Results, config: Config, size: int) -> str:
    time = results.p50(config, size)
    vector = results.about.vector(size, results.hosts)
    return f"{megabytes_per_second(vector, time):.3g}" if time else "-"


def _part_of_limit(results: Results, config: Config, size: int) -> str:
    time, limit = results.p50(config, size), results.wire_limit(config, size)
    return f"{limit / time:.3f}" if time and limit else "-"


def _speedup(results: Results, config: Config, size: int) -> str:
    mine = results.config("all")
    assert mine  # `config` comes from compared(), which is empty without "all"
    ratio = results.speedup(mine, config, size)
    return f"{ratio:.2f}{results.mark(mine, size)}" if ratio else "-"


def _part_of_sum(results: Results) -> list[str]:
    if not results.alone():
        return []
    parts = [results.part_of_sum(size) for size in results.sizes]
    cells = ["each alone", *(f"{part:.3f}" if part else "-" for part in parts)]
    return columns("all rails: part of the sum of", [cells])


def _notes(results: Results) -> list[str]:
    runs = f"; the median of {results.repeat} runs" if results.repeat > 1 else ""
    notes = [f"p50: the largest of any rank{runs}."]
    notes += results.about.notes()
    if results.about.has_data:
        whole = "the whole vector" if results.about.has_blocks else "size"
        notes.append(f"MB/s: {whole} divided by p50, MB = 10^6 bytes.")
    if _limited(results):
        notes.append(
            f"The wire limit: {results.about.busiest} at its rails' rates; TCP can use"
            f" {TCP_CEILING:.3f} of it."
        )
    if any(results.learns(config, size) for config in results.configs for size in results.sizes):
        notes.append(LEARNING_NOTE)
    notes += stolen.note([results])
    if results.failures:
        return [*notes, MARK_NOTE, "", *map(failure_text, results.failures)]
    return [*notes, "Every rank checked every element of every size."]
