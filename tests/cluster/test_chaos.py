# SPDX-License-Identifier: Apache-2.0
"""Whatever happens to the network and the ranks, every result has the right bits.

A seed determines cuts, silence, large frames that vanish, connections that a firewall refuses,
interfaces that are made anew, loss, changed rates and stopped ranks. The test prints the seed.
CHAOS_SEED repeats a run, with the same events, but not at exactly the same times. The ranks log the
steps of their channels, and the test checks the logs against the rules. CHAOS_LOGS names a folder
in which the logs are kept.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import signal
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import job
import pytest
from processes import Process, end_sessions
from replay import replay
from system_tools import BedError
from testbed import Testbed

CHAOS = str(job.BUILD / "tests" / "cluster_chaos")
HOSTS = 4
# These rates make the network the bottleneck, and not the cores that the ranks share.
RAILS = {"eth0": "200mbit", "eth1": "150mbit", "eth2": "100mbit"}
RATES = ["20mbit", "50mbit", "100mbit", "200mbit", "400mbit"]
OPERATIONS = 20_000 if job.LONG else 2_000
PATIENCE = 720.0 if job.LONG else 240.0  # seconds; ctest's own limit is longer


class Weather:
    """Disturbs a testbed and its ranks. Each pair of hosts always has a rail that is not cut."""

    def __init__(self, bed: Testbed, seed: int) -> None:
        self.bed = bed
        self.random = random.Random(seed)
        self.cuts: set[tuple[int, str]] = set()
        self.losses: set[str] = set()
        self.count: dict[str, int] = {}
        self.said: list[str] = []
        self._begin = time.monotonic()

    def change(self, ranks: list[Process]) -> None:
        """Makes one disturbance, or ends some."""
        often = ["cut", "cut", "cut", "heal", "heal", "heal"]
        kinds = [*often, "large", "refuse", "renew", "silence", "rate", "loss", "stop"]
        kind = self.random.choice(kinds)
        what = getattr(self, kind)(ranks)
        if what:
            self.count[kind] = self.count.get(kind, 0) + 1
            self.said.append(f"{time.monotonic() - self._begin:.3f} {kind} {what}")

    def _may_cut(self, ports: set[tuple[int, str]]) -> bool:
        cuts = self.cuts | ports
        return all(
            any((one, rail) not in cuts and (other, rail) not in cuts for rail in RAILS)
            for one, other in itertools.combinations(range(HOSTS), 2)
        )

    def _port_to_cut(self) -> tuple[int, str] | None:
        port = (self.random.randrange(HOSTS), self.random.choice(list(RAILS)))
        return port if port not in self.cuts and self._may_cut({port}) else None

    def _cut(self, how: str) -> str:
        port = self._port_to_cut()
        if port is None:
            return ""
        self.bed.cut(*port, how)
        self.cuts.add(port)
        return f"{port} {how}"

    def cut(self, _: list[Process]) -> str:
        return self._cut(self.random.choice(["carrier", "admin", "silent"]))

    def large(self, _: list[Process]) -> str:
        """Makes a path lose large frames and pass small ones."""
        return self._cut("large")

    def refuse(self, _: list[Process]) -> str:
        """Makes a firewall refuse new connections to a host; existing ones stay."""
        return self._cut("refused")

    def renew(self, _: list[Process]) -> str:
        """Deletes an interface and creates it again."""
        port = self._port_to_cut()
        if port is None:
            return ""
        self.bed.renew(*port)
        return str(port)

    def silence(self, _: list[Process]) -> str:
        """Silences a rail at all hosts."""
        rail = self.random.choice(list(RAILS))
        ports = {(host, rail) for host in range(HOSTS)} - self.cuts
        if not self._may_cut(ports):
            return ""
        for port in sorted(ports):
            self.bed.cut(*port, "silent")
        self.cuts |= ports
        return rail

    def heal(self, _: list[Process]) -> str:
        healed = sorted(port for port in self.cuts if self.random.random() < 0.6)
        for port in healed:
            self.bed.heal(*port)
            self.cuts.discard(port)
        for rail in sorted(self.losses):
            self.bed.loss(rail, 0)
        lossless, self.losses = self.losses, set()
        return " ".join(map(str, [*healed, *sorted(lossless)]))

    def rate(self, _: list[Process]) -> str:
        rail = self.random.choice(list(RAILS))
        rate = self.random.choice(RATES)
        host = self.random.choice([None, *range(HOSTS)])
        self.bed.set_rate(rail, rate, host)
        return f"{rail} {rate} at {'all' if host is None else host}"

    def loss(self, _: list[Process]) -> str:
        rail = self.random.choice(list(RAILS))
        percent = self.random.choice([0.5, 1, 3])
        self.bed.loss(rail, percent)
        self.losses.add(rail)
        return f"{rail} {percent}%"

    def stop(self, ranks: list[Process]) -> str:
        """Stops a rank for a while."""
        rank = self.random.choice(ranks)
        seconds = self.random.uniform(0.01, 0.3)
        rank.kill(signal.SIGSTOP)
        time.sleep(seconds)
        rank.kill(signal.SIGCONT)
        return f"{rank} for {seconds:.3f} s"


@pytest.fixture
def bed() -> Iterator[Testbed]:
    with Testbed(hosts=HOSTS, rails=RAILS) as bed:
        yield bed


def lines_of(log: Path) -> Iterator[str]:
    with log.open() as file:
        yield from file


@pytest.mark.parametrize("threads", ["0", "1"])
def test_chaos(bed: Testbed, threads: str) -> None:
    """Thousands of operations run under disturbances, with and without rail threads."""
    seed = int(os.environ.get("CHAOS_SEED") or random.SystemRandom().randrange(1 << 32))
    print(f"CHAOS_SEED={seed}")
    weather = Weather(bed, seed)
    with tempfile.TemporaryDirectory() as folder:
        kept = Path(os.environ.get("CHAOS_LOGS") or folder).resolve()
        logs = [kept / f"log.{host}" for host in range(HOSTS)]
        to_log = ["sh", "-c", 'exec "$@" 2>"$0.$RANK"', str(kept / "log")]
        argv = [CHAOS, folder, job.rails_option(RAILS), str(seed), str(OPERATIONS)]
        ranks = bed.start(to_log + argv, env={"NEZHA_LOG": "trace", "NEZHA_RAIL_THREADS": threads})
        try:
            for rank in ranks:  # a rank whose interface is gone cannot join
                rank.wait_for('"joined"', job.PATIENCE)
            deadline = time.monotonic() + PATIENCE
            while all(rank.returncode is None for rank in ranks):
                if time.monotonic() > deadline:
                    raise TimeoutError(f"timed out after {PATIENCE:g} s")
                weather.change(ranks)
                time.sleep(weather.random.uniform(0, 0.3))
            for rank in ranks:
                rank.wait(job.PATIENCE)
            assert not any(rank.returncode for rank in ranks)
        except (AssertionError, BedError, TimeoutError):
            print("\n".join(weather.said[-100:]))
            for rank, log in zip(ranks, logs):
                said = [line for line in log.read_text().splitlines() if " nezha trace " not in line]
                print("\n".join([f"--- {rank}, {rank.returncode}", *said[-20:]]))
            raise
        finally:
            end_sessions(ranks, gently=False)
        counts = replay(lines_of(log) for log in logs)
    rails = [rail for rank in ranks for rail in json.loads(rank.stdout.splitlines()[-1])["rails"]]
    print(weather.count, dict(counts), rails)
    # If none of these was needed, the run proves nothing.
    assert sum(rail["failures"] for rail in rails) > 0
    assert counts["down"] > 0 and counts["resent"] > 0, counts
