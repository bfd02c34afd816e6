# SPDX-License-Identifier: Apache-2.0
"""What tests of the command lines of bench/'s programs share."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence

import pytest


def bad_command_lines(cases: Sequence[tuple[list[str], str]]) -> pytest.MarkDecorator:
    """Parametrizes a test with `arguments` and the `reason` for which they are refused."""
    return pytest.mark.parametrize(
        ("arguments", "reason"), cases, ids=[" ".join(arguments) for arguments, _ in cases]
    )


def assert_refused(done: subprocess.CompletedProcess[str], reason: str) -> None:
    assert done.returncode == 2
    assert reason in done.stderr.splitlines()[-1] and not done.stdout
