# SPDX-License-Identifier: Apache-2.0
"""What the commands of bench/ are made of: a folder for each, and shared/.

To import it makes the modules of testbed/ importable, too: a command imports from here first.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "testbed"))
