# SPDX-License-Identifier: Apache-2.0
"""Ranks that mpirun starts on two rails, or that use a Redis server as their store."""

from __future__ import annotations

import dataclasses
import json
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import job
import pytest
from system_tools import tool
from testbed import Testbed

RAILS = {"eth0": "1gbit", "eth1": "500mbit"}
HOSTS = 4
PASSWORD = "s3cret/word"
PROGRAMS = {
    "nezha": [str(job.BUILD / "bench" / "nezha-bench"), "--rails", job.rails_option(RAILS)],
    "gloo": [str(job.BUILD / "bench" / "gloo-bench"), "--tcp-device", ",".join(RAILS)],
}
QUICK = [
    *("--elements", "1,1000,256K", "--warmup-iters", "2", "--iteration-count", "3"),
    *("--timeout", "20s", "--format", "json", "allreduce"),
]


@pytest.fixture(scope="module")
def bed() -> Iterator[Testbed]:
    with Testbed(hosts=HOSTS, rails=RAILS, mgmt=True) as bed:
        yield bed


@dataclasses.dataclass
class Redis:
    """A Redis server with a password, on a host or on the switch. Its data outlives the process."""

    bed: Testbed
    folder: Path
    host: str = "10.250.0.254"  # the switch's address on the management network
    port: int = 6379
    where: int | str = "sw"

    def url(self, options: str = "") -> str:
        return f"redis://:{PASSWORD.replace('/', '%2F')}@{self.host}:{self.port}/2?{options}"

    def ask(self, *words: str) -> str:
        login = ["-h", self.host, "-a", PASSWORD, "--no-auth-warning", "-n", "2"]
        return self.bed.exec(self.where, ["redis-cli", *login, *words]).stdout.strip()

    def start(self) -> subprocess.Popen[bytes]:
        command = [
            *("redis-server", "--bind", self.host, "--port", str(self.port)),
            *("--requirepass", PASSWORD, "--save", "", "--appendonly", "yes"),
            *("--dir", str(self.folder)),
        ]
        process = subprocess.Popen(
            self.bed.exec_argv(self.where, command), stdout=subprocess.DEVNULL
        )
        job.await_that("redis-server answers", lambda: self._answers(process))
        return process

    def _answers(self, process: subprocess.Popen[bytes]) -> bool:
        assert process.poll() is None, "redis-server has ended"
        login = ["-h", self.host, "-a", PASSWORD, "--no-auth-warning"]
        done = self.bed.exec(self.where, ["redis-cli", *login, "ping"], check=False)
        return done.stdout.strip() == "PONG"


@pytest.fixture
def redis(bed: Testbed, tmp_path: Path) -> Iterator[Redis]:
    server = Redis(bed, tmp_path)
    process = server.start()
    yield server
    process.kill()
    process.wait(job.PATIENCE)


def mpirun(bed: Testbed, folder: Path, command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """Runs mpirun as on a cluster, except for a wrapper that puts each rank on its host."""
    wrapper = folder / "on-host"
    wrapper.write_text(
        "#!/bin/sh\n"
        f'exec {tool("ip")} netns exec {bed.prefix}-h$OMPI_COMM_WORLD_RANK "$@"\n'
    )
    wrapper.chmod(0o755)
    launch = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", str(HOSTS)]
    return subprocess.run(
        [*launch, str(wrapper), *command], capture_output=True, text=True, timeout=job.PATIENCE
    )


def check(done: subprocess.CompletedProcess[str]) -> None:
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [row["elements"] for row in rows] == [1, 1000, 1 << 18]
    assert all(row["ranks"] == HOSTS for row in rows)
    assert [rail["name"] for rail in rows[-1]["rails"]] == list(RAILS)
    assert all(rail["bytes"] > 0 for rail in rows[-1]["rails"])


@pytest.mark.parametrize("program", PROGRAMS)
def test_mpirun_with_a_shared_folder(bed: Testbed, tmp_path: Path, program: str) -> None:
    store = tmp_path / "store"
    store.mkdir()
    command = [*PROGRAMS[program], "--shared-path", str(store), *QUICK]
    # Two runs can use one folder without a prefix, because each run of mpirun has its own name.
    for _ in range(2):
        check(mpirun(bed, tmp_path, command))


@pytest.mark.parametrize("program", PROGRAMS)
def test_mpirun_with_redis(bed: Testbed, tmp_path: Path, redis: Redis, program: str) -> None:
    command = [*PROGRAMS[program], "--store", redis.url("prefix=job&ttl=1h"), *QUICK]
    check(mpirun(bed, tmp_path, command))
    assert redis.ask("dbsize") == "0"  # each rank has removed its keys


def test_ranks_that_a_password_keeps_out(bed: Testbed, tmp_path: Path, redis: Redis) -> None:
    where = ["--redis-host", redis.host, "--redis-port", str(redis.port)]
    done = mpirun(bed, tmp_path, [*PROGRAMS["nezha"], *where, *QUICK])
    assert done.returncode == 1
    assert f"Redis server {redis.host}:{redis.port}" in done.stderr
    assert "NOAUTH" in done.stderr and "password" in done.stderr


def test_ranks_of_the_testbed_meet_on_redis(bed: Testbed, redis: Redis) -> None:
    ranks = bed.run([*PROGRAMS["nezha"], "--store", redis.url(), *QUICK], timeout=job.PATIENCE)
    assert len(ranks[0].stdout.splitlines()) == 3
    assert redis.ask("dbsize") == "0"


def test_localhost_where_other_addresses_are_ipv6(tmp_path: Path) -> None:
    """The server listens only on 127.0.0.1; /etc/hosts has that address and ::1."""
    with Testbed(hosts=1, rails=RAILS, ipv4=False, ipv6=True, ranks_per_host=2) as bed:
        server = Redis(bed, tmp_path, "127.0.0.1", where=0)
        process = server.start()
        store = server.url("timeout=5s").replace(server.host, "localhost")
        command = [*PROGRAMS["nezha"], "--store", store, *QUICK]
        bed.run(command, timeout=job.PATIENCE)
        assert server.ask("dbsize") == "0"
        process.kill()
        process.wait(job.PATIENCE)
        for rank in bed.start(command):
            assert rank.wait(job.PATIENCE) == 1
            for address in ("127.0.0.1", "[::1]"):
                assert f"{address}:6379: connecting: Connection refused" in rank.stderr


def test_a_server_that_restarts_while_ranks_wait(bed: Testbed, tmp_path: Path) -> None:
    """Three ranks wait for the fourth, which starts after the server has restarted."""
    server = Redis(bed, tmp_path)
    command = [*PROGRAMS["nezha"], "--store", server.url("prefix=late"), *QUICK]
    process = server.start()
    early = bed.start(command, on=[0, 1, 2])
    # rank 0 has written the settings for all ranks, and each of the three its options
    job.await_that("three have written", lambda: server.ask("dbsize") == "4")
    process.kill()
    process.wait(job.PATIENCE)
    process = server.start()
    late = bed.start(command, on=[3])
    for rank in [*early, *late]:
        assert rank.wait(job.PATIENCE) == 0, rank.output
    process.kill()
    process.wait(job.PATIENCE)


def test_a_rank_that_never_comes_is_named(bed: Testbed, redis: Redis) -> None:
    command = [*PROGRAMS["nezha"], "--store", redis.url(), "--timeout", "1s"]
    ranks = bed.start([*command, "--elements", "1", "allreduce"], on=[1])
    assert ranks[0].wait(job.PATIENCE) == 1
    assert "rank 0 has not come to the server of --store, --prefix prefix" in ranks[0].stderr
    assert "'nezha/prefix/nezha-bench-given-0'" in ranks[0].stderr
    assert PASSWORD not in ranks[0].stderr


def test_command_lines_that_differ_on_redis(bed: Testbed, redis: Redis) -> None:
    """Every rank reports the difference, also ranks that come after the others have ended."""
    command = [*PROGRAMS["nezha"], "--store", redis.url(), *QUICK]
    ranks = bed.start([*command, "--threads", "2"], on=[1]) + bed.start(command, on=[0])
    assert [rank.wait(job.PATIENCE) for rank in ranks] == [1, 1]
    ranks += bed.start(command, on=[2, 3])
    assert [rank.wait(job.PATIENCE) for rank in ranks[2:]] == [1, 1]
    for rank in ranks:
        assert "the ranks' command lines differ: --threads is" in rank.stderr, rank.stderr
    again = bed.start([*command, "--in-place"], on=[0])
    assert again[0].wait(job.PATIENCE) == 1
    assert "used --prefix prefix in the server of --store: take a new" in again[0].stderr


def test_a_rank_that_is_started_twice(bed: Testbed, redis: Redis) -> None:
    """The second process of a rank is refused, although both have the same command line."""
    command = [*PROGRAMS["nezha"], "--store", redis.url(), *QUICK]
    ranks = bed.start(command, on=[0]) + bed.start(command, on=[0])
    refused = job.await_that("one ends", lambda: [rank for rank in ranks if rank.returncode == 1])
    ranks = [rank for rank in ranks if rank not in refused] + bed.start(command, on=[1, 2, 3])
    assert [rank.wait(job.PATIENCE) for rank in [*refused, *ranks]] == [1, *[0] * HOSTS]
    assert "another process of this one with --rank 0, used --prefix prefix" in refused[0].stderr
