# SPDX-License-Identifier: Apache-2.0
"""Runs the peers of bench/cores by turns, and a ring of iperf3 in each turn."""

from __future__ import annotations

import math
from collections.abc import Sequence

from lib.cores.busy import BusyCores
from lib.peers.peer import IPERF3, Peer
from lib.peers.sweep import PeerSweep

OF_A_CONNECTION = 10e9  # bits per second that a connection carries without filling its core
MOST_CONNECTIONS = 4  # the most connections of a ring on a rail
OF_A_STREAM = 12.5e9  # bits per second that nezha assumes a connection to carry
MOST_STREAMS = 8  # the most connections of nezha on all rails together


def connections_of(rates: Sequence[int | None], hosts: int, cores: int) -> int:
    """Returns the number of connections that a ring of iperf3 has on each rail.

    It has as many as the fastest rail needs, if the cores allow so many. A connection has two processes.
    """
    fastest = max(rate or math.inf for rate in rates)
    wanted = math.ceil(min(fastest / OF_A_CONNECTION, MOST_CONNECTIONS))
    return max(1, min(wanted, cores // (2 * hosts * len(rates))))


def streams_of(rates: Sequence[int | None], hosts: int, cores: int) -> int:
    """Returns nezha's number of connections on each rail of NICs of these rates (rails/streams.h)."""
    fastest = max(rate or math.inf for rate in rates)
    wanted = round(min(fastest / OF_A_STREAM, MOST_STREAMS))
    return max(1, min(wanted, min(cores // hosts, MOST_STREAMS) // len(rates)))


class CoreSweep(PeerSweep):
    def _measure(self, peer: Peer, sizes: list[int], repeat: int) -> None:
        """Measures a peer; a ring runs once for all sizes, because its rate is the same for all."""
        if peer.key == IPERF3:
            if sizes != self._groups[0]:
                return
            sizes = self._results.sizes
        super()._measure(peer, sizes, repeat)

    def _connections(self) -> int:
        results = self._results
        cores = int(results.machine["cores"])
        return connections_of(list(results.rails.values()), results.hosts, cores)

    def _ring_of_iperf3(self, sizes: list[int]) -> list[dict]:
        with BusyCores() as busy:
            rows = super()._ring_of_iperf3(sizes)
        return [row | {"busy_cores": busy.median} for row in rows]
