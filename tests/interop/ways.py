# SPDX-License-Identifier: Apache-2.0
"""The ways in which a PyTorch program can use nezha, as the backend and environment of its ranks."""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

import job
from processes import Process, end_sessions

PREFIX = Path(os.environ.get("INTEROP_PREFIX", job.BUILD / "interop" / "prefix"))
SITE = os.environ.get("PYTHONPATH", str(job.BUILD / "interop" / "site"))
RAILS = ["eth0", "eth1"]


@dataclasses.dataclass
class Way:
    backend: str
    env: dict[str, str]


IS_TORCH_2 = int(version("torch").split(".")[0]) >= 2
# PyTorch 2.6 of Debian 13 is built without libuv, but its store requests libuv anyway. The store that
# torchrun shares with its workers ignores the first variable.
STORE = {"USE_LIBUV": "0", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
OVER_RAILS = STORE | {"NEZHA_RAILS": job.rails_option(RAILS), "PYTHONPATH": SITE}
STOCK = Way("gloo", STORE | {"GLOO_SOCKET_IFNAME": RAILS[0]})
PRELOAD = Way("gloo", OVER_RAILS | {"LD_PRELOAD": str(PREFIX / "lib" / "libnezha_gloo.so")})
BACKEND = Way("nezha", OVER_RAILS)

FILE = 240.0  # seconds: less than the 300 after which ctest ends a file and loses its output
_deadline = 0.0


def begin_file() -> None:
    global _deadline
    _deadline = time.monotonic() + FILE


def patience() -> float:
    """The seconds that are left for the file's tests, at least one."""
    return max(1.0, _deadline - time.monotonic())


def told(ranks: Sequence[Process]) -> str:
    """The end of each rank's output."""
    return "\n".join(f"--- {rank}, {rank.returncode}\n{rank.output[-6000:]}" for rank in ranks)


def finish(ranks: Sequence[Process]) -> None:
    """Waits until all have ended, successfully or not. They may take half of the remaining time."""
    end = time.monotonic() + max(20.0, patience() / 2)
    try:
        while any(rank.returncode is None for rank in ranks):
            assert time.monotonic() < end, f"not all have ended\n{told(ranks)}"
            time.sleep(0.05)
        for rank in ranks:
            rank.wait(1)  # so that the last output arrives
    finally:
        end_sessions(ranks, gently=False)
