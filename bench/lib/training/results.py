# SPDX-License-Identifier: Apache-2.0
"""The measurements of bench/training (training.json), beside Nezha's Table IV and the law in it."""

from __future__ import annotations

import dataclasses
import json
import statistics
from pathlib import Path

from lib.shared import stolen
from lib.shared.collective import part_sent
from lib.shared.results import TCP_CEILING, failure_text
from lib.shared.summary import columns
from lib.shared.units import size_text
from lib.training.horovod_trace import CYCLE, FUSION_THRESHOLD, step_flops
from lib.training.models import FLOAT, MODELS

DATA = "training.json"
COPIES = ["one", "two", "three"]  # numbers of equal rails
# Nezha's Table IV: images a second on 4 nodes of a GPU each, with 1, 2 and 3 NICs.
TABLE_IV = {
    ("alexnet", 32): (215.7, 319.0, 376.8),
    ("alexnet", 64): (426.6, 612.5, 753.2),
    ("vgg11", 32): (114.8, 154.8, 179.2),
    ("vgg11", 64): (253.2, 303.7, 362.5),
}
BASE_BATCH = 32  # the batch from which the computation's rate is derived


def rest_by_communication(model: str) -> float:
    """Returns rest / communication in Table IV, by its law that a step takes rest + communication / NICs."""
    one, two = (1 / speed for speed in TABLE_IV[model, BASE_BATCH][:2])
    communication = 2 * (one - two)
    return (one - communication) / communication


@dataclasses.dataclass(frozen=True)
class Workload:
    model: str
    batch: int

    @property
    def label(self) -> str:
        return f"{MODELS[self.model].name}, batch {self.batch}"


@dataclasses.dataclass(frozen=True)
class Way:
    """A library, and the rails it has."""

    key: str
    label: str
    library: str  # nezha or gloo
    layout: str  # the rails: one of COPIES, or unequal
    rails: list[str]
    command: list[str]

    @property
    def copies(self) -> int:
        """The number of equal rails; 0 if they are not equal."""
        return COPIES.index(self.layout) + 1 if self.layout in COPIES else 0


@dataclasses.dataclass
class Training:
    machine: dict[str, str | int]
    hosts: int
    rails: dict[str, int]  # bits per second
    scale: int  # all sizes are divided by this
    overlap: bool  # whether gradients are sent during back-propagation
    workloads: list[Workload]
    ways: list[Way]
    repeat: int
    # Each one is a row of `replay --format json`, with "model", "batch", "way" and "repeat"
    rows: list[dict] = dataclasses.field(default_factory=list)
    failures: list[dict] = dataclasses.field(default_factory=list)

    def save(self, path: Path) -> None:
        path.write_text(json.dumps(dataclasses.asdict(self), indent=1) + "\n")

    def size(self, workload: Workload) -> float:
        """Returns the bytes of a step."""
        return FLOAT * MODELS[workload.model].parameters() / self.scale

    def wire_time(self, workload: Workload) -> float:
        """Returns the microseconds that a step's communication takes on the first rail at best."""
        rate = next(iter(self.rails.values())) * TCP_CEILING / 8e6  # bytes a microsecond
        return part_sent(self.hosts) * self.size(workload) / rate

    def flops_rate(self, model: str) -> float:
        """Returns the operations a second at which computation and communication are as in Table IV."""
        base = Workload(model, BASE_BATCH)
        time = rest_by_communication(model) * self.wire_time(base)
        return step_flops(MODELS[model], BASE_BATCH) / time * 1e6

    def computation(self, workload: Workload) -> float:
        """Returns the microseconds of a step's computation."""
        flops = step_flops(MODELS[workload.model], workload.batch)
        return flops / self.flops_rate(workload.model) * 1e6

    def median(self, workload: Workload, way: Way, member: str) -> float | None:
        """Returns the median of the repeats, or None if all failed."""
        values = [
            row[member]
            for row in self.rows
            if (row["model"], row["batch"], row["way"])
            == (workload.model, workload.batch, way.key)
        ]
        return statistics.median(values) if values else None

    def step(self, workload: Workload, way: Way) -> float | None:
        return self.median(workload, way, "step_p50_us")

    def way(self, library: str, layout: str) -> Way | None:
        found = (way for way in self.ways if (way.library, way.layout) == (library, layout))
        return next(found, None)

    def law(self, workload: Workload, way: Way) -> float | None:
        """Returns the step that the library's run on one rail predicts: rest + communication / rails."""
        one = self.way(way.library, "one")
        if one is None or way.copies == 0:
            return None
        step = self.step(workload, one)
        communication = self.median(workload, one, "communication_p50_us")
        if step is None or communication is None:
            return None
        return step - communication * (1 - 1 / way.copies)


# ---- the table --------------------------------------------------------------------------------

NOTES = """\
step: the largest median step of any rank, as the median over runs; p25 to p75 likewise. alone: the same
allreduces without computation. hidden: the part of alone that took place during computation. exposed: the
step without its computation. of one rail, of Gloo: how many times as fast as the same library on one rail,
and as Gloo on the same rails. law: time = rest + communication / rails, where both come from the run on one
rail; off: how much longer the step is. c: the computation alone takes longer than the law. Table IV: how
many times as fast the paper's training was as on one NIC. Gloo with several rails has a context for each
rail, and operations take turns (as PyTorch does with GLOO_SOCKET_IFNAME=eth0,eth1)."""


def table(results: Training) -> str:
    blocks = [_head(results), *(_block(results, each) for each in results.workloads)]
    notes = [NOTES, *stolen.note_of(results.rows)]
    return "\n\n".join([*blocks, "\n".join(notes), *map(failure_text, results.failures)])


def _head(results: Training) -> str:
    rails = ", ".join(f"{name} {rate / 1e6:g} Mbit/s" for name, rate in results.rails.items())
    fusion = f"fused up to {size_text(FUSION_THRESHOLD / results.scale)} in cycles of {CYCLE / 1e3:g} ms"
    when = "during back-propagation" if results.overlap else "after all computation"
    lines = [
        f"training steps, {results.hosts} hosts, {rails}; {results.machine['cores']} cores",
        f"Scaled: tensors and the fusion threshold have 1/{results.scale} of their size. Gradients are"
        f" {fusion},",
        f"and sent {when}.",
    ]
    for model in dict.fromkeys(each.model for each in results.workloads):
        rate = results.flops_rate(model)
        lines.append(
            f"{MODELS[model].name}: {MODELS[model].parameters():,} parameters. Computation at"
            f" {rate / 1e9:.0f} GFLOP/s, by which at batch {BASE_BATCH} it takes"
            f" {rest_by_communication(model):.2f} of the"
        )
        lines.append("  communication on one rail, as the rest of the step in Table IV does.")
    return "\n".join(lines)


def _block(results: Training, workload: Workload) -> str:
    cells = [
        ["rails", *(way.label for way in results.ways)],
        ["step (ms)", *(_ms(results.step(workload, way)) for way in results.ways)],
        ["p25 to p75", *(_spread(results, workload, way) for way in results.ways)],
    ]
    for name, member in (("alone", "communication_p50_us"), ("hidden", ""), ("exposed", "")):
        values = [results.median(workload, w, member or f"{name}_us") for w in results.ways]
        cells.append([name, *(_ms(value) for value in values)])
    cells.append(["of one rail", *(_times(results, workload, w, w.library, "one") for w in results.ways)])
    cells.append(["of Gloo", *(_times(results, workload, w, "gloo", w.layout) for w in results.ways)])
    cells.append(["law (ms)", *(_law(results, workload, way) for way in results.ways)])
    cells.append(["off", *(_off(results, workload, way) for way in results.ways)])
    cells.append(["Table IV", *(_paper(workload, way) for way in results.ways)])
    head = (
        f"{workload.label}: {size_text(results.size(workload))} a step,"
        f" {results.computation(workload) / 1e3:.0f} ms of computation"
    )
    return "\n".join(line.rstrip() for line in columns(head, cells))


def _ms(value: float | None) -> str:
    return "failed" if value is None else f"{value / 1e3:.0f}"


def _spread(results: Training, workload: Workload, way: Way) -> str:
    low, high = (results.median(workload, way, f"step_{p}_us") for p in ("p25", "p75"))
    return f"{_ms(low)} to {_ms(high)}"


def _times(
    results: Training, workload: Workload, way: Way, library: str, layout: str
) -> str:
    other = results.way(library, layout)
    mine = results.step(workload, way)
    theirs = other and results.step(workload, other)
    return f"{theirs / mine:.2f}" if mine and theirs else "-"


def _law(results: Training, workload: Workload, way: Way) -> str:
    law = results.law(workload, way)
    if law is None:
        return "-"
    return _ms(law) + ("c" if results.computation(workload) > law else "")


def _off(results: Training, workload: Workload, way: Way) -> str:
    law, step = results.law(workload, way), results.step(workload, way)
    return f"{step / law - 1:+.1%}" if law and step else "-"


def _paper(workload: Workload, way: Way) -> str:
    speeds = TABLE_IV[workload.model, workload.batch]
    is_there = way.library == "nezha" and way.copies
    return f"{speeds[way.copies - 1] / speeds[0]:.2f}" if is_there else "-"
