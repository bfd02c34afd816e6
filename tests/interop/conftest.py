# SPDX-License-Identifier: Apache-2.0
"""The testbed and the helpers of the cluster tests serve these tests, too."""

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "tests" / "cluster"), str(ROOT / "testbed")]


@pytest.fixture(scope="module", autouse=True)
def one_deadline() -> None:
    """All that a file waits for with ways.patience() has one deadline."""
    import ways

    ways.begin_file()
