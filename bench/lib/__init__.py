# SPDX-License-Identifier: Apache-2.0
"""The modules of the commands of bench/: a folder for each command, and shared/.

The import of this package makes the modules of testbed/ importable, too. A command therefore imports from
here first.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "testbed"))
