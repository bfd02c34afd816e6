# SPDX-License-Identifier: Apache-2.0
"""The tests here start their ranks as those of the cluster do."""

import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / folder) for folder in ("tests/cluster", "testbed", "bench")]
