# SPDX-License-Identifier: Apache-2.0
"""The testbed and the helpers of the cluster tests serve these tests, too."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "cluster"))
