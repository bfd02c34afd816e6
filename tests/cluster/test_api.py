# SPDX-License-Identifier: Apache-2.0
"""The public API between processes: runs each scenario of scenarios/ over two rails."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import job
import pytest
from testbed import Testbed

RAILS = {"eth0": "1gbit", "eth1": "1gbit"}
# Scenarios about groups of ranks have several ranks on each host. All others have one.
RANKS_PER_HOST = {
    "a-further-context": 2,
    "all-pairs": 3,
    "any-of-several": 3,
    "at-the-begin": 3,
    "blocks-in-flight": 3,
    "exchanges-that-pass": 2,
    "halves": 3,
    "horovods-contexts": 2,
    "nothing-sent-by-any": 2,
    "other-counts": 2,
    "other-elements": 2,
    "source-that-exits": 2,
    "sources-that-leave": 2,
    "splits": 2,
    "strangers": 2,
}
SCENARIOS = str(job.BUILD / "tests" / "cluster_scenarios")


@pytest.fixture(scope="module")
def bed() -> Iterator[Testbed]:
    with Testbed(hosts=2, rails=RAILS) as bed:
        yield bed


def names() -> list[str]:
    listed = subprocess.run([SCENARIOS], capture_output=True, text=True, check=True)
    return listed.stdout.split()


@pytest.mark.parametrize("name", names())
def test_scenario(bed: Testbed, name: str, tmp_path: Path) -> None:
    ranks_per_host = RANKS_PER_HOST.get(name, 1)
    bed.run(
        [SCENARIOS, name, str(tmp_path), job.rails_option(RAILS)],
        ranks_per_host=ranks_per_host,
        env={"SIZE": str(bed.hosts * ranks_per_host)},
    )
