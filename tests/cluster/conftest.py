# SPDX-License-Identifier: Apache-2.0
"""These tests also use the testbed and the modules of the benchmarks."""

import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "testbed"), str(ROOT / "bench")]
