# SPDX-License-Identifier: Apache-2.0
"""These tests start their ranks as the cluster tests do."""

import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / folder) for folder in ("tests/cluster", "testbed", "bench")]
