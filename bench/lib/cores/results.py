# SPDX-License-Identifier: Apache-2.0
"""What bench/cores measured (cores.json), and whether the wires or the machine were the limit."""

from __future__ import annotations

import dataclasses
import json
import statistics
from pathlib import Path

from lib.peers.peer import IPERF3, KINDS, Peer
from lib.shared.results import TCP_CEILING, ResultsOf, bandwidth_of, megabytes_per_second

DATA = "cores.json"
CARRIED = 0.9  # of what TCP can use of the wires: a machine that carries this much is no bottleneck
TOO_MUCH = 1.03  # of the same: shapers that let this much through are wrong
BUSY_WITH_OTHERS = 0.1  # of the CPU time: with this much for others the machine is not quiet
ALL_BUSY = 0.9  # of the cores: with this many at work there is no room for more

Measured = ResultsOf[Peer]  # what was measured on one configuration of rails


@dataclasses.dataclass
class CoreResults:
    networks: dict[str, Measured]  # by configuration, as --config has it
    left_out: dict[str, str] = dataclasses.field(default_factory=dict)  # why, by peer
    burst: int | None = None  # bytes that a shaper lets through at once; None: the testbed's choice

    def save(self, path: Path) -> None:
        path.write_text(json.dumps(dataclasses.asdict(self), indent=1) + "\n")

    @staticmethod
    def load(path: Path) -> CoreResults:
        data = json.loads(path.read_text())
        networks = {}
        for config, fields in data["networks"].items():
            fields["configs"] = [Peer(**peer) for peer in fields["configs"]]
            networks[config] = Measured(**fields)
        return CoreResults(networks, data["left_out"], data["burst"])

    def peers(self) -> list[Peer]:
        """Those of any configuration, in the order of KINDS; their labels are the same in all."""
        each = self.networks.values()
        by_key = {peer.key: peer for results in each for peer in results.configs}
        return [by_key[key] for key in KINDS if key in by_key]

    def on_one_rail(self, config: str) -> Measured | None:
        """What was measured on a single rail of the same rate, if this has several."""
        rates = list(self.networks[config].rails.values())
        if len(rates) == 1 or len(set(rates)) > 1:
            return None
        each = self.networks.values()
        return next((other for other in each if list(other.rails.values()) == rates[:1]), None)


def busy_cores(results: Measured, peer: Peer, size: int) -> float | None:
    """The median of the repeats; None if it is not known."""
    told = [row.get("busy_cores") for row in results.rows(peer, size)]
    return statistics.median(known) if (known := [each for each in told if each is not None]) else None


def wires(results: Measured, size: int) -> float | None:
    """The MB/s of the message that TCP can carry; None if a rail is not shaped."""
    limit = results.wire_limit(results.configs[0], size)
    return megabytes_per_second(size, limit) * TCP_CEILING if limit else None


@dataclasses.dataclass(frozen=True)
class Ring:
    """What a ring of iperf3 has carried."""

    gbits: float  # per second, from each host
    of_wires: float | None  # the part of what TCP can use; None if a rail is not shaped
    busy: float | None  # cores


def ring_of(results: Measured) -> Ring | None:
    peer, size = results.config(IPERF3), results.sizes[-1]
    time = results.p50(peer, size) if peer else None
    if not peer or not time:
        return None
    carried, limit = results.about.carried(size, results.hosts), wires(results, size)
    part = megabytes_per_second(size, time) / limit if limit else None
    return Ring(carried * 8 / time / 1e3, part, busy_cores(results, peer, size))


def is_short_of_cores(results: Measured, peer: Peer, size: int) -> bool:
    """Whether all cores were at work, and the wires had room. A rank that waits by yielding is at work,
    too, so that all cores may be with the wires full.
    """
    limit, speed = wires(results, size), results.median(peer, size, bandwidth_of)
    if speed is None or (limit and speed >= CARRIED * limit):
        return False
    return (busy_cores(results, peer, size) or 0) >= ALL_BUSY * int(results.machine["cores"])


def others_share(results: Measured) -> float:
    """The part of the CPU time that other processes took, in the median run."""
    shares = [row["other_processes"] for row in results.measurements if "other_processes" in row]
    return statistics.median(shares) if shares else 0.0


def is_machine_the_limit(results: Measured) -> bool | None:
    """None if it is not known: without iperf3."""
    if wires(results, results.sizes[-1]) is None:
        return True
    ring = ring_of(results)
    return None if ring is None or ring.of_wires is None else ring.of_wires < CARRIED
