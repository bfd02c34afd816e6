# SPDX-License-Identifier: Apache-2.0
"""The measurements of bench/flare (flare.json): cases of allreduces by a switch and without one."""

from __future__ import annotations

import dataclasses
import json
import statistics
from collections.abc import Sequence
from pathlib import Path

from lib.shared.collective import part_sent
from lib.shared.results import Config, ResultsOf, Value, p50_of, shaped_rates
from lib.shared.units import size_text

DATA, TABLE = "flare.json", "flare.txt"
PICTURES = ["flare.png", "flare.svg"]
FLARE, TCP, BOTH = "flare", "tcp", "both"  # the ways
# The part that a block's elements take of a full frame, which has 1514 bytes at MTU 1500. The headers
# of Ethernet, IP, UDP and nezha (flare_offload/wire/frame.h) take the rest.
SWITCH_CEILING = 1440 / 1514

GROUPS = {
    "sizes": "4 hosts at 1 Gbit/s, by the size",
    "hosts": "2, 4, 6 and 8 hosts at 500 Mbit/s",
    "tree": "a switch below another one, 4 hosts at each, 250 Mbit/s",
    "loss": "frames that are lost, 4 hosts at 250 Mbit/s",
    "rails": "a rail by the switch and one by TCP in one context, 1 Gbit/s each",
}


@dataclasses.dataclass(frozen=True)
class Way(Config):
    switched: list[str]  # the rails that go by the switch


@dataclasses.dataclass
class Case(ResultsOf[Way]):
    """The measurements of ways that take turns on one testbed."""

    group: str = ""
    label: str = ""  # the case's name within its group
    switches: int = 1  # the number of switches; they form a tree, over which the hosts are spread
    loss: float | None = None  # percent of the frames, lost one by one; None: no loss
    multicast: bool = False  # the hosts get the results by multicast

    def wire_limit(self, way: Way, size: int) -> float:
        """Returns the microseconds that the wire alone takes.

        With a switch, each host sends and receives the message once, for any number of hosts. Over
        point-to-point links, each host sends and receives 2 (n - 1) / n of it. Rails that are used
        together divide the message so that they end together.
        """
        rates = shaped_rates({name: self.rails[name] for name in way.rails})
        assert rates  # every rail of a case is shaped
        crossings = {name: 1 if name in way.switched else part_sent(self.hosts) for name in rates}
        return size / sum(rate / 8 / crossings[name] for name, rate in rates.items()) * 1e6

    def title(self) -> str:
        tree = f", {self.switches} switches" if self.switches > 1 else ""
        loss = f", {self.loss:g}% of the frames lost" if self.loss is not None else ""
        multicast = ", results by multicast" if self.multicast else ""
        return super().title() + tree + loss + multicast

    def part_of_limit(self, way: Way) -> Value:
        return lambda row: self.wire_limit(way, row["bytes"]) / p50_of(row)

    def parts_of_limit(self, way: Way, size: int) -> list[float]:
        return list(map(self.part_of_limit(way), self.rows(way, size)))

    def speedups(self, way: Way, other: Way, size: int) -> list[float]:
        """Returns how many times as fast as the other way it is, for runs that followed each other."""
        others = {row["repeat"]: p50_of(row) for row in self.rows(other, size)}
        return [
            others[row["repeat"]] / p50_of(row)
            for row in self.rows(way, size)
            if row["repeat"] in others
        ]

    def switch_median(self, way: Way, size: int, name: str) -> float | None:
        """Returns the median of a figure of the switches, which exists if the size was measured alone."""
        values = [row[name] for row in self.rows(way, size) if row.get(name) is not None]
        return statistics.median(values) if values else None


def points_of(cases: Sequence[Case]) -> list[tuple[Case, int, str]]:
    """Returns the case, the size and the name of each point of one group."""

    def name(case: Case, size: int) -> str:
        if len(case.sizes) == 1 and case.label:
            return case.label
        return ", ".join(filter(None, [case.label, size_text(size)]))

    return [(case, size, name(case, size)) for case in cases for size in case.sizes]


def save(cases: Sequence[Case], path: Path) -> None:
    path.write_text(json.dumps([dataclasses.asdict(case) for case in cases], indent=1) + "\n")


def load(path: Path) -> list[Case]:
    cases = json.loads(path.read_text())
    for data in cases:
        data["configs"] = [Way(**way) for way in data["configs"]]
    return [Case(**data) for data in cases]
