# SPDX-License-Identifier: Apache-2.0
"""The table at the end of bench/flare."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from lib.flare.offload import GROUPS, SWITCH_CEILING, TCP, Case, Way, points_of
from lib.shared import stolen
from lib.shared.results import MARK_NOTE, TCP_CEILING, failure_text
from lib.shared.summary import columns
from lib.shared.units import time_text

NOTES = f"""\
Times: the largest p50 of any rank; the median over runs that took turns, and in brackets the least and
the most. Wire limit: with the switch each host sends the message once, and by TCP 2 (n - 1) / n of it.
For both rails it is the time that they take if they end together. Headers leave {SWITCH_CEILING:.3f} of
the limit to the switch and {TCP_CEILING:.3f} to TCP. xTCP: how many times as fast as TCP, and how many
times the wire limits allow. The switch: CPU seconds for each GiB that it receives, and frames that it
receives in a second while it is busy; of two switches together.
{MARK_NOTE}"""


def table(cases: Sequence[Case]) -> str:
    machine = cases[0].machine
    title = f"allreduce by a switch, float32 sum; {machine['cores']} cores, {machine['cpu']}"
    blocks = [title]
    for group, about in GROUPS.items():
        of_group = [case for case in cases if case.group == group]
        if of_group:
            blocks.append(_block(about, of_group))
    failures = [
        f"{case.title()}: {failure_text(failure)}" for case in cases for failure in case.failures
    ]
    return "\n\n".join([*blocks, NOTES, *stolen.note(cases), *failures])


def _block(about: str, cases: Sequence[Case]) -> str:
    points = points_of(cases)
    cells = [["", *(name for _, _, name in points)]]
    for index, way in enumerate(cases[0].configs):
        ways = [case.configs[index] for case, _, _ in points]
        of_points = [(case, each, size) for (case, size, _), each in zip(points, ways)]
        cells.append([way.short, *(_time(*point) for point in of_points)])
        cells.append(["of its limit", *(_part(*point) for point in of_points)])
    for index, way in enumerate(cases[0].configs):
        if way.key != TCP:
            cells.append(
                [f"{way.short} xTCP", *(_speedup(case, index, size) for case, size, _ in points)]
            )
            cells.append(["allowed", *(_limit(case, index, size) for case, size, _ in points)])
    by_switch = [(case, case.configs[0], size) for case, size, _ in points]
    cells.append(
        ["switch CPU s/GiB", *(_figure(*p, "switch_cpu_s_per_gib", ".2f") for p in by_switch)]
    )
    cells.append(["frames/s", *(_figure(*p, "switch_frames_per_s", ",.0f") for p in by_switch)])
    return "\n".join(line.rstrip() for line in columns(about, cells))


def _time(case: Case, way: Way, size: int) -> str:
    time = case.p50(way, size)
    return "failed" if time is None else time_text(time) + case.mark(way, size)


def _part(case: Case, way: Way, size: int) -> str:
    return _spread(case.parts_of_limit(way, size), ".3f")


def _tcp(case: Case) -> Way:
    [way] = [way for way in case.configs if way.key == TCP]
    return way


def _speedup(case: Case, index: int, size: int) -> str:
    return _spread(case.speedups(case.configs[index], _tcp(case), size), ".2f")


def _limit(case: Case, index: int, size: int) -> str:
    limit = case.wire_limit(_tcp(case), size) / case.wire_limit(case.configs[index], size)
    return f"{limit:.2f}"


def _spread(values: Sequence[float], digits: str) -> str:
    if not values:
        return "-"
    text = format(statistics.median(values), digits)
    if len(values) == 1:
        return text
    return f"{text} ({min(values):{digits}}–{max(values):{digits}})"


def _figure(case: Case, way: Way, size: int, name: str, digits: str) -> str:
    value = case.switch_median(way, size, name)
    return "-" if value is None else format(value, digits)
