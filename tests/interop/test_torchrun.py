# SPDX-License-Identifier: Apache-2.0
"""torchrun starts training over nezha, and restarts it when a worker has died."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import job
import pytest
import ways
from processes import Process, end_sessions
from testbed import Testbed

PROGRAM = str(Path(__file__).parent / "training.py")
HOSTS, RANKS_PER_HOST = 2, 2

Events = list[dict[str, Any]]


@pytest.fixture(scope="module")
def bed() -> Iterator[Testbed]:
    with Testbed(hosts=HOSTS, rails=dict.fromkeys(ways.RAILS, "200mbit"), mgmt=True) as bed:
        yield bed


@pytest.fixture(autouse=True)
def healed(bed: Testbed) -> Iterator[None]:
    yield
    for rail in ways.RAILS:
        bed.heal(1, rail)


class Run:
    """A torchrun job with an agent on each host."""

    def __init__(self, bed: Testbed, folder: Path, way: ways.Way, *options: str) -> None:
        argv = ["/usr/bin/python3", "-m", "torch.distributed.run"]
        argv += ["--nnodes", str(HOSTS), "--nproc_per_node", str(RANKS_PER_HOST), "--max_restarts", "1"]
        # Debian's torchrun fails without the first two options.
        self.logs = folder / "logs"
        argv += ["--redirects", "1", "--tee", "1", "--log_dir", str(self.logs)]
        argv += ["--rdzv_backend", "c10d", "--rdzv_id", "job"]
        if ways.IS_TORCH_2:  # Debian 13's version cannot create torchrun's own TCPStore
            argv += ["--rdzv_endpoint", str(folder / "rendezvous")]
        else:
            argv += ["--rdzv_endpoint", "h0:29400"]
        program = [PROGRAM, "--backend", way.backend, "--checkpoint", str(folder / "checkpoint")]
        self.agents: list[Process] = []
        for host in range(HOSTS):
            here = ["--rdzv_conf", "store_type=file" if ways.IS_TORCH_2 else f"is_host={int(host == 0)}"]
            self.agents += bed.start(argv + here + program + list(options), on=[host], env=way.env)

    def __enter__(self) -> Run:
        return self

    def __exit__(self, *exception: object) -> None:
        end_sessions(self.agents, gently=False)

    def told(self) -> str:
        return "\n".join(f"--- {agent}\n{agent.output[-4000:]}" for agent in self.agents)

    def events(self, kind: str) -> Events:
        """Reads each worker's own log, because an agent mixes up the lines of its workers."""
        lines = [line for log in sorted(self.logs.rglob("stdout.log")) for line in whole_lines(log)]
        events = [json.loads(line) for line in lines if line.startswith("{")]
        return [event for event in events if event["event"] == kind]

    def await_step(self, step: int) -> None:
        def there() -> bool:
            assert all(agent.returncode is None for agent in self.agents), self.told()
            return any(event["step"] >= step for event in self.events("step"))

        job.await_that(f"step {step}", there, ways.patience(), self.told)

    def finish(self) -> Events:
        """What each rank reports at its end."""
        ways.finish(self.agents)
        assert [agent.returncode for agent in self.agents] == [0] * HOSTS, self.told()
        ends = self.events("end")
        assert sorted(end["rank"] for end in ends) == list(range(HOSTS * RANKS_PER_HOST)), self.told()
        return ends


def whole_lines(log: Path) -> list[str]:
    return [line for line in log.read_text().splitlines(keepends=True) if line.endswith("\n")]


Losses = dict[tuple[int, int], float]


def losses(run: Run) -> Losses:
    """The losses by step and rank."""
    return {(event["step"], event["rank"]): event["loss"] for event in run.events("step")}


@pytest.fixture(scope="module")
def expected(bed: Testbed, tmp_path_factory: pytest.TempPathFactory) -> Losses:
    """The losses with PyTorch's own Gloo."""
    with Run(bed, tmp_path_factory.mktemp("stock"), ways.STOCK) as run:
        run.finish()
        return losses(run)


WAYS = {"preload": ways.PRELOAD, "backend": ways.BACKEND}


@pytest.mark.parametrize("way", WAYS)
def test_a_worker_dies(bed: Testbed, tmp_path: Path, expected: Losses, way: str) -> None:
    """The agents restart all workers on new connections, and the training has the same losses."""
    with Run(bed, tmp_path, WAYS[way], "--die-at", "7") as run:
        ends = run.finish()
        starts = [event["step"] for event in run.events("start")]
        # Sums of floating-point numbers depend on the order of the ranks.
        assert losses(run) == pytest.approx(expected, rel=1e-4)
    assert sorted(starts) == [0] * 4 + [7] * 4
    assert len({end["digest"] for end in ends}) == 1


@pytest.mark.parametrize("way", WAYS)
def test_a_rail_is_cut(bed: Testbed, tmp_path: Path, way: str) -> None:
    """No worker notices the cut, and none is restarted."""
    stop = tmp_path / "stop"
    with Run(bed, tmp_path, WAYS[way], "--until", str(stop)) as run:
        run.await_step(10)
        bed.cut(1, "eth1", "silent")
        run.await_step(max(event["step"] for event in run.events("step")) + 20)
        stop.touch()
        ends = run.finish()
        assert len(run.events("start")) == HOSTS * RANKS_PER_HOST
    assert len({(end["step"], end["digest"]) for end in ends}) == 1
