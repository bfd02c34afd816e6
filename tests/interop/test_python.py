# SPDX-License-Identifier: Apache-2.0
"""The Python package nezha, on four hosts with two rails.

ways.py knows where the package is.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import job
import pytest
import ways
from processes import Process, end_sessions
from testbed import Testbed

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
URIS = [f"tcp:{name}" for name in ways.RAILS]
HOSTS = 4


@pytest.fixture(scope="module")
def bed() -> Iterator[Testbed]:
    with Testbed(hosts=HOSTS, rails=dict.fromkeys(ways.RAILS, "1gbit")) as bed:
        yield bed


class Ranks:
    """One program on all hosts, or on some of them."""

    def __init__(self, bed: Testbed, folder: Path, *program: str, on: Sequence[int] = range(HOSTS)) -> None:
        self.bed = bed
        self._store = folder / "store"
        self._store.mkdir()
        self.ranks = [self._start(rank, program) for rank in on]

    def _start(self, rank: int, program: Sequence[str]) -> Process:
        env = ways.OVER_RAILS | {"RANK": str(rank), "WORLD_SIZE": str(HOSTS)}
        env |= {"REDIS_HOST": self._redis_host()}
        argv = [sys.executable, "-B", "-X", "faulthandler", str(HERE / program[0]), *program[1:]]
        [process] = self.bed.start([*argv, str(self._store)], on=[rank], env=env)
        return process

    def _redis_host(self) -> str:
        return self.bed.environment(0)["RAIL0_ADDR"]

    def __enter__(self) -> Ranks:
        return self

    def __exit__(self, *exception: object) -> None:
        end_sessions(self.ranks, gently=False)

    def told(self) -> str:
        return "\n".join(f"--- {each} {each.returncode}\n{each.output}" for each in self.ranks)

    def succeed(self, ranks: Sequence[Process] | None = None) -> None:
        waiting = list(self.ranks if ranks is None else ranks)

        def ended() -> bool:
            failed = any(each.returncode for each in waiting)
            return failed or all(each.returncode is not None for each in waiting)

        job.await_that("all ranks ended", ended, tell=self.told)
        assert not any(each.returncode for each in waiting), self.told()


def run(bed: Testbed, folder: Path, *program: str) -> None:
    with Ranks(bed, folder, *program) as ranks:
        ranks.succeed()


def test_collectives(bed: Testbed, tmp_path: Path) -> None:
    with Ranks(bed, tmp_path, "python_collectives.py") as ranks:
        ranks.succeed()
        assert all("all right" in rank.stdout for rank in ranks.ranks)


@pytest.mark.parametrize(
    "program",
    [
        "buffers",
        "bad_arguments",
        "many_in_flight",
        "dropped_handles",
        "threads",
        "waiters",
        "over_for_all",
        "messages",
        "groups",
        "functions",
        "short_of_memory",
        "late",
        "closes",
        "forks",
        "reports",
    ],
)
def test_program(bed: Testbed, tmp_path: Path, program: str) -> None:
    """The programs check themselves."""
    run(bed, tmp_path, "python_programs.py", program)


def test_stores(bed: Testbed, tmp_path: Path) -> None:
    argv = ["redis-server", "--save", "", "--protected-mode", "no", "--dir", str(tmp_path)]
    [server] = bed.start(argv, on=[0])
    try:
        server.wait_for("Ready to accept connections", job.PATIENCE)
        run(bed, tmp_path, "python_programs.py", "stores")
    finally:
        end_sessions([server])


def test_a_rail_is_cut(bed: Testbed, tmp_path: Path) -> None:
    with Ranks(bed, tmp_path, "python_programs.py", "until_told") as ranks:
        for rank in ranks.ranks:
            rank.wait_for("(done\n){3}", job.PATIENCE)
        bed.cut(host=2, rail="eth1")
        try:
            seen = [rank.stdout.count("done") for rank in ranks.ranks]
            job.await_that(
                "ten operations more",
                lambda: all(rank.stdout.count("done") > n + 10 for rank, n in zip(ranks.ranks, seen)),
                tell=ranks.told,
            )
            (tmp_path / "stop").touch()
            ranks.succeed()
        finally:
            bed.heal(host=2, rail="eth1")
        failures = ranks.ranks[2].wait_for(r"eth1 (\d+) (\d+) (rank .*)")
        assert int(failures[1]) > 0 and int(failures[2]) > 0, ranks.told()


def test_a_rank_is_killed(bed: Testbed, tmp_path: Path) -> None:
    with Ranks(bed, tmp_path, "python_programs.py", "until_lost") as ranks:
        for rank in ranks.ranks:
            rank.wait_for("(done\n){3}", job.PATIENCE)
        ranks.ranks[2].kill()
        others = [rank for rank in ranks.ranks if rank.rank != 2]
        ranks.succeed(others)
        for rank in others:
            assert rank.wait_for(r"lost (.*?):")[1] == "[2]", ranks.told()


@pytest.mark.parametrize("program, hosts", [("exits", HOSTS), ("exits_early", 1), ("exits_in_create", 1)])
def test_exit_without_close(bed: Testbed, tmp_path: Path, program: str, hosts: int) -> None:
    with Ranks(bed, tmp_path, "python_programs.py", program, on=range(hosts)) as ranks:
        ranks.succeed()
        for rank in ranks.ranks:
            assert rank.stdout == "ends\n" and not rank.stderr, ranks.told()


def test_no_context_begins_after_the_end(tmp_path: Path) -> None:
    """An exit handler that was registered before the package's runs after it."""
    program = """
import atexit, sys
atexit.register(lambda: nezha.create(nezha.FileStore(sys.argv[1]), rank=0, size=1))
import nezha
"""
    env = dict(os.environ) | {"PYTHONPATH": ways.SITE}
    argv = [sys.executable, "-B", "-c", program, str(tmp_path)]
    done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=job.PATIENCE)
    assert "nezha.InvalidArgument: nezha: the program ends" in done.stderr, done


@pytest.mark.parametrize("where", ["call", "wait", "create", "store"])
def test_ctrl_c(bed: Testbed, tmp_path: Path, where: str) -> None:
    on = [1] if where in ("create", "store") else range(HOSTS)
    with Ranks(bed, tmp_path, "python_programs.py", f"interrupted_{where}", on=on) as ranks:
        rank = ranks.ranks[0]
        rank.wait_for("waits", job.PATIENCE)
        os.kill(rank.pid, signal.SIGINT)
        rank.wait_for("interrupted", job.PATIENCE)  # long before the deadline of the call
        ranks.succeed()


def test_the_guide(bed: Testbed, tmp_path: Path) -> None:
    """Runs the program in docs/python.md."""
    page = (ROOT / "docs" / "python.md").read_text()
    [program] = re.findall(r"^```python\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    (tmp_path / "mean.py").write_text(program)
    said = [
        bed.start(
            [sys.executable, "-B", str(tmp_path / "mean.py"), str(rank), "2", str(tmp_path), *URIS],
            on=[rank],
            env={"PYTHONPATH": ways.SITE},
        )[0]
        for rank in range(2)
    ]
    for rank in said:
        assert rank.wait(job.PATIENCE) == 0, rank.output
    means = [re.findall(r"mean (\S+), largest (\S+)\n.*eth0 has.*\n.*eth1 has", rank.stdout) for rank in said]
    assert len(means[0]) == 1 and means[0] == means[1], means


if job.LONG:  # it compiles for a minute or two

    def test_pip_installs_it(tmp_path: Path) -> None:
        """Installs from a copy of the sources, without a network, into a separate environment."""
        sources = tmp_path / "sources"
        shutil.copytree(ROOT / "interop" / "python", sources)
        python = tmp_path / "environment" / "bin" / "python"
        env = dict(os.environ) | {"PKG_CONFIG_PATH": f"{ways.PREFIX}/lib/pkgconfig", "PYTHONPATH": ""}

        def call(*argv: str) -> str:
            done = subprocess.run(argv, cwd=tmp_path, env=env, check=True, stdout=subprocess.PIPE, text=True)
            return done.stdout.strip()

        call(sys.executable, "-m", "venv", "--system-site-packages", str(tmp_path / "environment"))
        call(str(python), "-m", "pip", "install", "--no-index", "--no-build-isolation", str(sources))
        where = Path(call(str(python), "-c", "import nezha; print(nezha.__file__)"))
        assert tmp_path in where.parents and (where.parent / "py.typed").exists()


@pytest.mark.parametrize(
    "settings, reason",
    [({}, "'nezha'"), ({"PKG_CONFIG": "/nowhere/pkg-config"}, "/nowhere/pkg-config does not run")],
)
def test_without_the_library(tmp_path: Path, settings: dict[str, str], reason: str) -> None:
    """The build reports what is missing."""
    env = dict(os.environ) | {"PKG_CONFIG_PATH": "", "PKG_CONFIG_LIBDIR": str(tmp_path)} | settings
    argv = [sys.executable, "-B", "setup.py", "-q", "build", "--build-base", str(tmp_path)]
    done = subprocess.run(argv, cwd=ROOT / "interop" / "python", env=env, capture_output=True, text=True)
    assert done.returncode != 0
    assert "pkg-config does not find libnezha" in done.stderr and "PKG_CONFIG_PATH" in done.stderr
    assert reason in done.stderr, done.stderr
