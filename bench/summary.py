# SPDX-License-Identifier: Apache-2.0
"""The table at the end of a run."""

from collections.abc import Callable

import stolen
from results import (
    LEARNING_NOTE,
    MARK_NOTE,
    TCP_CEILING,
    Config,
    Results,
    failure_text,
    megabytes_per_second,
)
from units import size_text

Cell = Callable[[Results, Config, int], str]


def table(results: Results) -> str:
    shaped = [config for config in results.configs if results.wire_rate(config)]
    blocks = [
        columns("", [["size", *(size_text(size) for size in results.sizes)]]),
        _block("p50 (µs)", results, results.configs, _microseconds),
        _block("MB/s", results, results.configs, _bandwidth),
        _block("part of the wire limit", results, shaped, _part_of_limit),
        _block("all rails: times as fast as", results, results.compared(), _speedup),
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
    """The lines of some columns under one heading, all of one width."""
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
    return f"{megabytes_per_second(size, time):.3g}" if time else "-"


def _part_of_limit(results: Results, config: Config, size: int) -> str:
    time, limit = results.p50(config, size), results.wire_limit(config, size)
    return f"{limit / time:.3f}" if time and limit else "-"


def _speedup(results: Results, config: Config, size: int) -> str:
    mine = results.config("all")
    assert mine  # `config` is of compared(), which is empty without "all"
    ratio = results.speedup(mine, config, size)
    return f"{ratio:.2f}{results.mark(mine, size)}" if ratio else "-"


def _notes(results: Results) -> list[str]:
    runs = f"; the median of {results.repeat} runs" if results.repeat > 1 else ""
    notes = [f"p50: of the rank where it is largest{runs}. MB/s: size over p50, MB = 10^6 bytes."]
    if any(results.wire_rate(config) for config in results.configs):
        notes.append(
            f"The wire limit: each rank sends 2 (n - 1) / n of the size at its rails' rates; TCP can"
            f" use {TCP_CEILING:.3f} of it."
        )
    if any(config.learns(size) for config in results.configs for size in results.sizes):
        notes.append(LEARNING_NOTE)
    notes += stolen.note([results])
    if results.failures:
        return [*notes, MARK_NOTE, "", *map(failure_text, results.failures)]
    return [*notes, "Every rank checked every element of every size."]
