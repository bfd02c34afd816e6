# SPDX-License-Identifier: Apache-2.0
"""The measurements of a sweep (results.json), and the figures that are computed from them."""

from __future__ import annotations

import dataclasses
import json
import statistics
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Generic, TypeVar

from lib.shared.collective import ALLREDUCE, COLLECTIVES, Collective
from lib.shared.units import size_text

# The part that TCP's payload takes of a full frame, which has 1514 bytes at MTU 1500. TCP cannot use more.
TCP_CEILING = 1448 / 1514

# The operations in which nezha's load balancer learns how to divide a size.
LEARNING = 60
LEARNED_FROM, LEARNED_BELOW = 1 << 12, 1 << 23  # bytes; for other sizes it needs no learning
LEARNING_NOTE = (
    f"nezha over several rails has {LEARNING} operations of 4 KiB to 8 MiB, and of sizes that are run"
    " with these, to learn before the clock runs."
)

MARK_NOTE = "*: the median of fewer runs, as others failed."

ALONE = "alone-"  # the prefix of the keys of nezha's configurations on a single rail
Value = Callable[[dict], float]  # computes a value from a measurement


@dataclasses.dataclass(frozen=True)
class Config:
    """A configuration that is compared with others."""

    key: str
    label: str
    short: str  # the head of its column
    rails: list[str]
    command: list[str]

    def learns(self, size: int) -> bool:
        """Returns whether it is nezha, which has to learn how to divide such messages (the plan auto)."""
        is_nezha = any(Path(word).name == "nezha-bench" for word in self.command)
        is_told = "--share" in self.command or "stripe" in self.command
        may_learn = is_nezha and not is_told and len(self.rails) > 1
        return may_learn and LEARNED_FROM <= size < LEARNED_BELOW


AnyConfig = TypeVar("AnyConfig", bound=Config)


@dataclasses.dataclass
class ResultsOf(Generic[AnyConfig]):
    """The measurements of configurations that are all of one class."""

    machine: dict[str, str | int]
    hosts: int
    rails: dict[str, int | None]  # bits per second, None if not shaped
    configs: list[AnyConfig]
    sizes: list[int]  # bytes of the message, or of a rank's block; 0 if there is no data
    repeat: int
    collective: str = ALLREDUCE
    # Each one is a row of `--format json`, with "config" and "repeat" (from 0)
    measurements: list[dict] = dataclasses.field(default_factory=list)
    # For each launch: "config", "repeat", "sizes" (those that are missing), "errors"
    failures: list[dict] = dataclasses.field(default_factory=list)

    def save(self, path: Path) -> None:
        path.write_text(json.dumps(dataclasses.asdict(self), indent=1) + "\n")

    @staticmethod
    def load(path: Path) -> Results:
        data = json.loads(path.read_text())
        data["configs"] = [Config(**config) for config in data["configs"]]
        return Results(**data)

    @property
    def about(self) -> Collective:
        return COLLECTIVES[self.collective]

    def title(self) -> str:
        rails = " + ".join(
            f"{name} {rate / 1e9:g} Gbit/s" if rate else f"{name} unshaped"
            for name, rate in self.rails.items()
        )
        return f"{self.about.title}, {self.hosts} hosts, {rails}"

    def config(self, key: str) -> AnyConfig | None:
        return next((config for config in self.configs if config.key == key), None)

    def compared(self) -> list[AnyConfig]:
        """Returns the configurations with which "all" is compared."""
        return (
            [config for config in self.configs if config.key != "all"] if self.config("all") else []
        )

    def alone(self) -> list[AnyConfig]:
        """Returns nezha's configurations on a single rail, if each rail has one and "all" is there, too."""
        alone = [config for config in self.configs if config.key.startswith(ALONE)]
        return alone if self.config("all") and len(alone) == len(self.rails) else []

    def part_of_sum(self, size: int) -> float | None:
        """Returns the speed of nezha on all rails, as a part of the sum of its speeds on each rail alone."""
        both = self.config("all")
        mine = both and self.p50(both, size)
        times = [self.p50(config, size) for config in self.alone()]
        if not mine or not times or None in times:
            return None
        return 1 / mine / sum(1 / time for time in times if time)

    def rows(self, config: AnyConfig, size: int) -> list[dict]:
        """Returns the row of each repeat."""
        return [
            row
            for row in self.measurements
            if row["config"] == config.key and row["bytes"] == self.about.vector(size, self.hosts)
        ]

    def p50s(self, config: AnyConfig, size: int) -> list[float]:
        """Returns the p50 of each repeat, in microseconds."""
        return [p50_of(row) for row in self.rows(config, size)]

    def median(self, config: AnyConfig, size: int, value: Value) -> float | None:
        """Returns the median of the repeats that did not fail, or None if all failed."""
        rows = self.rows(config, size)
        return statistics.median(map(value, rows)) if rows else None

    def mark(self, config: AnyConfig, size: int) -> str:
        """Returns the mark of a figure that comes from fewer runs than others."""
        return "*" if 0 < len(self.rows(config, size)) < self.repeat else ""

    def p50(self, config: AnyConfig, size: int) -> float | None:
        """Returns the median of the repeats that did not fail, in microseconds, or None if all failed."""
        return self.median(config, size, p50_of)

    def speedup(self, config: AnyConfig, other: AnyConfig, size: int) -> float | None:
        """Returns how many times as fast as the other it is."""
        mine, others = self.p50(config, size), self.p50(other, size)
        return others / mine if mine and others else None

    def learns(self, config: AnyConfig, size: int) -> bool:
        """Returns whether it is nezha, whose load balancer has to learn how to divide such messages."""
        return self.collective == ALLREDUCE and config.learns(size)

    def wire_rate(self, config: AnyConfig) -> float | None:
        """Returns the bytes per second of all its rails, or None if one of them is not shaped."""
        rates = shaped_rates({name: self.rails[name] for name in config.rails})
        return None if rates is None else sum(rates.values()) / 8

    def wire_limit(self, config: AnyConfig, size: int) -> float | None:
        """Returns the microseconds that the wire alone takes.

        It returns None if a rail is not shaped, or if the wire carries nothing.
        """
        carried = self.about.carried(size, self.hosts)
        rate = self.wire_rate(config)
        return carried / rate * 1e6 if carried and rate else None


Results = ResultsOf[Config]


def shaped_rates(rates: Mapping[str, int | None]) -> dict[str, int] | None:
    """Returns the rates by rail, or None if one of the rails is not shaped."""
    shaped = {name: rate for name, rate in rates.items() if rate is not None}
    return shaped if len(shaped) == len(rates) else None


def p50_of(row: dict) -> float:
    return row["p50_us"]


def bandwidth_of(row: dict) -> float:
    return megabytes_per_second(row["bytes"], row["p50_us"])


def cpu_seconds_of(row: dict) -> float:
    """Returns the CPU seconds of one operation, of all ranks together."""
    return row["cpu_s"] / row["iterations"]


def cpu_per_gib_of(row: dict) -> float:
    """Returns the CPU seconds of all ranks for each GiB of the whole vector."""
    return cpu_seconds_of(row) / row["bytes"] * (1 << 30)


def size_of(results: ResultsOf[AnyConfig], row: dict) -> int:
    """Returns the size of a row as results.sizes has it."""
    return row["bytes"] // results.about.vector(1, results.hosts)


def is_limited(results: ResultsOf[AnyConfig]) -> bool:
    """Returns whether all rails are shaped and the collective has data."""
    return results.wire_limit(results.configs[0], results.sizes[0]) is not None


def part_of_limit_of(results: ResultsOf[AnyConfig]) -> Value:
    """Returns the function that computes the part of the wire limit from a measurement.

    is_limited() must be true of the results. All configurations are held to the wire limit of the first.
    """
    config = results.configs[0]

    def part_of_limit(row: dict) -> float:
        limit = results.wire_limit(config, size_of(results, row))
        assert limit
        return limit / p50_of(row)

    return part_of_limit


def megabytes_per_second(size: int, microseconds: float) -> float:
    """Returns the algorithm bandwidth: the bytes of the whole vector over the time, MB = 10^6 bytes."""
    return size / microseconds


def failure_text(failure: dict) -> str:
    sizes = ", ".join(size_text(size) for size in failure["sizes"]) or "after its last size"
    return "\n    ".join([f"{failure['config']}, {sizes}: failed", *failure["errors"]])
