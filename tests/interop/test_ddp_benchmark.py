# SPDX-License-Identifier: Apache-2.0
"""bench/ddp: a short run of all methods with real PyTorch."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import job
import pytest
import ways

DDP = str(Path(__file__).parents[2] / "bench" / "ddp")
SITE = os.environ.get("PYTHONPATH", str(job.BUILD / "interop" / "site"))


def run(folder: Path, *options: str) -> tuple[subprocess.CompletedProcess[str], Path]:
    words = [DDP, "--no-build", "--hosts", "2", "--hidden", "1", "--quick", "--out", str(folder)]
    argv = [*words, *options]
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=ways.patience())
    except subprocess.TimeoutExpired as late:
        said = [stream.decode(errors="replace") for stream in (late.stdout, late.stderr) if stream]
        pytest.fail("\n".join([str(late), *said]))
    return done, folder / "ddp.json"


def test_all_methods_train_alike(tmp_path: Path) -> None:
    done, data = run(tmp_path, "--site", SITE, "--cases", "equal,cut")
    assert done.returncode == 0, done.stdout + done.stderr
    results = json.loads(data.read_text())
    equal = {run["method"]: run for run in results["runs"] if run["case"] == "equal"}
    assert set(equal) == {"a", "b", "c", "d"}
    losses = [step["loss"] for step in equal["a"]["steps"]]
    assert losses[-1] < losses[0] and len(losses) == 10, "the training learns"
    survivors = {run["method"] for run in results["runs"] if run["case"] == "cut"}
    assert {"c", "d"} <= survivors, "a cut rail does not end methods c and d"
    assert "Ranks end with the same parameters" in done.stdout


def test_a_package_that_is_not_there(tmp_path: Path) -> None:
    """The run reports the missing package instead of silently leaving out a method."""
    done, data = run(tmp_path, "--site", str(tmp_path), "--cases", "equal")
    assert done.returncode == 1 and not data.exists()
    assert "the package nezha_torch is not in" in done.stderr
