# SPDX-License-Identifier: Apache-2.0
"""The testbed and the modules of the benchmarks serve these tests, too."""

import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "testbed"), str(ROOT / "bench")]
