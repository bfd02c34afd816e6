# SPDX-License-Identifier: Apache-2.0
"""Each operation has a new tag, as with PyTorch. Memory does not grow with the number of tags."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import job
import pytest
from testbed import Testbed

FRESH_TAGS = str(job.BUILD / "tests" / "cluster_fresh_tags")
RANKS = 3
RAILS = {"eth0": "1gbit", "eth1": "1gbit"}
TAGS = 1_000_000 if job.LONG else 200_000
PATIENCE = 1200.0 if job.LONG else 240.0  # seconds; ctest's own limit is longer
# Eight bytes per tag would exceed this. Fragmentation of free memory may take half of it.
TOLERATED = 1024  # KiB


@pytest.fixture(scope="module")
def bed() -> Iterator[Testbed]:
    with Testbed(hosts=1, rails=RAILS) as bed:
        yield bed


def test_fresh_tags(bed: Testbed, tmp_path: Path) -> None:
    ranks = bed.run(
        [FRESH_TAGS, str(tmp_path), job.rails_option(RAILS), str(TAGS)],
        ranks_per_host=RANKS,
        timeout=PATIENCE,
    )
    memory = [json.loads(rank.stdout) for rank in ranks]
    print(memory)
    assert all(rank["after"] - rank["before"] < TOLERATED for rank in memory), memory
