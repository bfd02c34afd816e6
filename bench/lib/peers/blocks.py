# SPDX-License-Identifier: Apache-2.0
"""Blocks of the peers' tables: a line for each peer, and a column for each size."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from lib.peers.peer import Peer
from lib.shared.results import ResultsOf, Value
from lib.shared.units import size_text

Cell = Callable[[Peer, int], str]  # the text of the cell for a peer and a size


def block(
    heading: str, results: ResultsOf[Peer], sizes: Sequence[int], cell: Cell, waits_by: str = ""
) -> str:
    """Returns a line for each peer; `waits_by` heads a column that says how its ranks wait."""
    rows = [[heading, *([waits_by] if waits_by else []), *map(size_text, sizes)]]
    for peer in results.configs:
        cells = [cell(peer, size) for size in sizes]
        rows.append([f"  {peer.key}", *([peer.regime] if waits_by else []), *cells])
    return "\n".join(aligned(rows, left=2 if waits_by else 1))


def medians(results: ResultsOf[Peer], value: Value, digits: str = "") -> Cell:
    """Returns the cells of the medians of the repeats, with a mark if some failed."""

    def cell(peer: Peer, size: int) -> str:
        return number(results.median(peer, size, value), digits) + results.mark(peer, size)

    return cell


def number(value: float | None, digits: str = "") -> str:
    """Returns a number as text, with three digits or more, unless `digits` is given."""
    if value is None:
        return "-"
    return format(value, digits or (".3g" if value < 100 else ".0f"))


def aligned(rows: Sequence[Sequence[str]], left: int) -> list[str]:
    """Returns the lines of a table; `left` columns are aligned to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(*rows)]
    return [
        "  ".join(
            cell.ljust(width) if index < left else cell.rjust(width)
            for index, (cell, width) in enumerate(zip(row, widths))
        ).rstrip()
        for row in rows
    ]
