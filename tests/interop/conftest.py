# SPDX-License-Identifier: Apache-2.0
"""These tests also use the testbed and the helpers of the cluster tests."""

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "tests" / "cluster"), str(ROOT / "testbed")]


@pytest.fixture(scope="module", autouse=True)
def one_deadline() -> None:
    """All waits of a file with ways.patience() share one deadline."""
    import ways

    ways.begin_file()
