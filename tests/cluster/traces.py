# SPDX-License-Identifier: Apache-2.0
"""The testbed's command line, and what a testbed leaves on the machine."""

from __future__ import annotations

import re
import subprocess
import time
from pathlib import Path

from probes import PYTHON
from processes import held_namespaces, namespace_members
from state import STATE_DIR, namespaces_of

TESTBED = Path(__file__).parents[2] / "testbed"
TOOL = str(TESTBED / "testbed")


def traces(prefix: str) -> dict[str, list[str]]:
    """Everything on the machine that has a testbed's prefix."""
    with held_namespaces(namespaces_of(prefix)) as namespaces:
        inside = namespace_members(namespaces)
    return {
        "namespaces": namespaces_of(prefix),
        "state": [str(path) for path in STATE_DIR.glob(f"{prefix}.*")],
        "mounts": re.findall(rf"\S*/{prefix}-\S*", Path("/proc/self/mounts").read_text()),
        "processes inside": [str(pid) for pid in inside],
        "guards": [str(pid) for pid in processes_with("guard.py", prefix)],
    }


def processes_with(*words: str) -> list[int]:
    """Live processes that have, for each of these words, an argument that ends with it."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            arguments = (entry / "cmdline").read_text().split("\0")
        except OSError:
            continue  # it has ended
        if all(any(argument.endswith(word) for argument in arguments) for word in words):
            found.append(int(entry.name))
    return found


def no_traces(prefix: str) -> dict[str, list[str]]:
    """What is left after the time that an orderly end may take; {} if nothing is."""
    deadline = time.monotonic() + 10
    while left := {kind: found for kind, found in traces(prefix).items() if found}:
        if time.monotonic() > deadline:
            break
        time.sleep(0.05)
    return left


def cli(*arguments: str, timeout: float = 60) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [PYTHON, TOOL, *arguments], capture_output=True, text=True, timeout=timeout
    )
