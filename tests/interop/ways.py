# SPDX-License-Identifier: Apache-2.0
"""The ways in which a PyTorch program comes to use nezha, as its ranks' backend and environment."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

import job

PREFIX = Path(os.environ.get("INTEROP_PREFIX", job.BUILD / "interop" / "prefix"))
SITE = os.environ.get("PYTHONPATH", str(job.BUILD / "interop" / "site"))
RAILS = ["eth0", "eth1"]


@dataclasses.dataclass
class Way:
    backend: str
    env: dict[str, str]


OVER_RAILS = {"NEZHA_RAILS": job.rails_option(RAILS), "PYTHONPATH": SITE}
STOCK = Way("gloo", {"GLOO_SOCKET_IFNAME": RAILS[0]})
PRELOAD = Way("gloo", OVER_RAILS | {"LD_PRELOAD": str(PREFIX / "lib" / "libnezha_gloo.so")})
BACKEND = Way("nezha", OVER_RAILS)
