# SPDX-License-Identifier: Apache-2.0
"""The measurements of bench/cores (cores.json), and the limit that they show: the wires or the machine."""

from __future__ import annotations

import dataclasses
import json
import statistics
from pathlib import Path

from lib.peers.peer import IPERF3, KINDS, Peer
from lib.shared.results import TCP_CEILING, ResultsOf, bandwidth_of, megabytes_per_second

DATA = "cores.json"
CARRIED = 0.9  # the part of TCP's limit; a machine that carries this much is no bottleneck
TOO_MUCH = 1.03  # the part of TCP's limit; shapers that let this much through are wrong
BUSY_WITH_OTHERS = 0.1  # the part of the CPU time; with this much for others the machine is not quiet
ALL_BUSY = 0.9  # the part of the cores; with this many at work there is no room for more

Measured = ResultsOf[Peer]  # the measurements on one configuration of rails


@dataclasses.dataclass
class CoreResults:
    networks: dict[str, Measured]  # the measurements by configuration, as --config has it
    left_out: dict[str, str] = dataclasses.field(default_factory=dict)  # the reason by peer
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
        """Returns the peers of all configurations, in the order of KINDS; a peer has one label in all."""
        each = self.networks.values()
        by_key = {peer.key: peer for results in each for peer in results.configs}
        return [by_key[key] for key in KINDS if key in by_key]

    def on_one_rail(self, config: str) -> Measured | None:
        """Returns the measurements on a single rail of the same rate, if this configuration has several."""
        rates = list(self.networks[config].rails.values())
        if len(rates) == 1 or len(set(rates)) > 1:
            return None
        each = self.networks.values()
        return next((other for other in each if list(other.rails.values()) == rates[:1]), None)


def busy_cores(results: Measured, peer: Peer, size: int) -> float | None:
    """Returns the median of the repeats, or None if it is not known."""
    told = [row.get("busy_cores") for row in results.rows(peer, size)]
    return statistics.median(known) if (known := [each for each in told if each is not None]) else None


def wires(results: Measured, size: int) -> float | None:
    """Returns the MB/s of the message that TCP can carry, or None if a rail is not shaped."""
    limit = results.wire_limit(results.configs[0], size)
    return megabytes_per_second(size, limit) * TCP_CEILING if limit else None


@dataclasses.dataclass(frozen=True)
class Ring:
    """The rate of a ring of iperf3, and the cores that it kept busy."""

    gbits: float  # Gbit/s from each host
    of_wires: float | None  # the part of what TCP can use; None if a rail is not shaped
    busy: float | None  # busy cores


def ring_of(results: Measured) -> Ring | None:
    peer, size = results.config(IPERF3), results.sizes[-1]
    time = results.p50(peer, size) if peer else None
    if not peer or not time:
        return None
    carried, limit = results.about.carried(size, results.hosts), wires(results, size)
    part = megabytes_per_second(size, time) / limit if limit else None
    return Ring(carried * 8 / time / 1e3, part, busy_cores(results, peer, size))


def is_short_of_cores(results: Measured, peer: Peer, size: int) -> bool:
    """Returns whether all cores were busy while the wires had room.

    A rank that waits by yielding keeps its core busy, so that all cores may be busy when the wires are
    full.
    """
    limit, speed = wires(results, size), results.median(peer, size, bandwidth_of)
    if speed is None or (limit and speed >= CARRIED * limit):
        return False
    return (busy_cores(results, peer, size) or 0) >= ALL_BUSY * int(results.machine["cores"])


def others_share(results: Measured) -> float:
    """Returns the part of the CPU time that other processes took, in the median run."""
    shares = [row["other_processes"] for row in results.measurements if "other_processes" in row]
    return statistics.median(shares) if shares else 0.0


def is_machine_the_limit(results: Measured) -> bool | None:
    """Returns whether the machine is the limit, or None if that is not known without iperf3."""
    if wires(results, results.sizes[-1]) is None:
        return True
    ring = ring_of(results)
    return None if ring is None or ring.of_wires is None else ring.of_wires < CARRIED
