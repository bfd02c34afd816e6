# SPDX-License-Identifier: Apache-2.0
"""What libnezha_gloo.so reports if it cannot do its job after it was preloaded."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import job
import pytest
from processes import end_sessions
from testbed import Testbed

PROGRAM = str(job.BUILD / "bench" / "gloo-bench")
LIBRARY = str(job.BUILD / "interop" / "libnezha_gloo.so")
RAILS = ["eth0", "eth1"]
PRELOADED = {"LD_PRELOAD": LIBRARY, "NEZHA_RAILS": job.rails_option(RAILS)}


@pytest.fixture(scope="module")
def bed() -> Iterator[Testbed]:
    with Testbed(hosts=2, rails=dict.fromkeys(RAILS, "1gbit")) as bed:
        yield bed


def run(bed: Testbed, folder: Path, *envs: dict[str, str]) -> list[str]:
    """Runs two ranks with these environments. Returns the output of each."""
    argv = [PROGRAM, "--shared-path", str(folder / "store"), "--tcp-device", "eth0"]
    argv += ["--elements", "1K", "--iteration-count", "10", "--timeout", "5s", "allreduce"]
    ranks = [
        rank
        for host, env in enumerate(envs)
        for rank in bed.start(argv, on=[host], env={"SIZE": str(len(envs))} | env)
    ]
    try:
        for each in ranks:
            each.wait(job.PATIENCE)
    finally:
        end_sessions(ranks, gently=False)
    return [each.stdout + each.stderr for each in ranks]


def test_without_rails_nothing_changes(bed: Testbed, tmp_path: Path) -> None:
    said = run(bed, tmp_path, *[{"LD_PRELOAD": LIBRARY, "NEZHA_LOG": "info"}] * 2)
    assert "nezha" not in said[0] + said[1], said
    assert "eth0" in said[0], said


def test_says_what_the_context_is_made_of(bed: Testbed, tmp_path: Path) -> None:
    said = run(bed, tmp_path, *[PRELOADED | {"NEZHA_LOG": "info"}] * 2)
    for rank, each in enumerate(said):
        assert f"[rank {rank} of 2" in each and "rails eth0, eth1" in each, each


def test_a_rank_without_it_is_refused(bed: Testbed, tmp_path: Path) -> None:
    with_it, _ = run(bed, tmp_path, PRELOADED, {})
    assert "rank 1: its address is not one of nezha's" in with_it


def test_a_rank_with_fewer_rails(bed: Testbed, tmp_path: Path) -> None:
    """A missing rail costs speed, and only the log shows this."""
    said = run(bed, tmp_path, PRELOADED, PRELOADED | {"NEZHA_RAILS": "tcp:eth0"})
    assert "this rank has the rails eth0, eth1, and rank 1 has eth0" in said[0]
    assert "this rank has the rails eth0, and rank 0 has eth0, eth1" in said[1]


def test_settings_that_differ(bed: Testbed, tmp_path: Path) -> None:
    said = run(bed, tmp_path, PRELOADED | {"NEZHA_GLOO_COLLECTIVES": "gloo"}, PRELOADED)
    for rank, each in enumerate(said):
        assert f"rank {1 - rank} runs by other settings than this rank" in each, each


def test_an_unknown_rail(bed: Testbed, tmp_path: Path) -> None:
    """The error occurs when the context connects, and has a type of Gloo's."""
    said, _ = run(bed, tmp_path, *[PRELOADED | {"NEZHA_RAILS": "tcp:eth7"}] * 2)
    assert "there is no interface 'eth7'" in said


def in_python(statement: str, **env: str) -> str:
    """The output of a Python process that has preloaded the library."""
    environment = dict(os.environ) | PRELOADED | env
    argv = [sys.executable, "-c", statement]
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, check=True)
    return done.stderr


def test_a_program_that_makes_no_device() -> None:
    assert in_python("pass") == ""
    assert "has made no device through libgloo.so" in in_python("pass", NEZHA_LOG="debug")


def test_a_pytorch_that_has_a_gloo_of_its_own(tmp_path: Path) -> None:
    """The library recognises it by its name; it is not linked to libgloo.so."""
    [libm] = {line.split()[-1] for line in open("/proc/self/maps") if "/libm.so" in line}
    library = tmp_path / "libtorch_cpu.so"
    shutil.copy(libm, library)
    said = in_python(f"import ctypes; ctypes.CDLL({str(library)!r})")
    assert "this process's PyTorch contains a Gloo of its own" in said
