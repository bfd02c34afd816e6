# SPDX-License-Identifier: Apache-2.0
"""The tests here start their ranks as those of the cluster do."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "cluster"))
