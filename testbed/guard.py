# SPDX-License-Identifier: Apache-2.0
"""Takes a testbed down when its maker has died."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys

from state import take_down
from system_tools import STEP_TIMEOUT


class Guard:
    """A process that takes the testbed down if its maker dies without dismissing it.

    It reads from a pipe. The maker, and the build commands that could still be making namespaces
    after the maker was killed, hold the other end; an end of file without a byte means that all
    of them died.
    """

    def __init__(self, prefix: str) -> None:
        read_end, self.fd = os.pipe()
        self._process = subprocess.Popen(
            [sys.executable, os.path.abspath(__file__), prefix],
            stdin=read_end,
            cwd="/",
            start_new_session=True,  # The terminal's signals do not reach it.
        )
        os.close(read_end)

    def dismiss(self) -> None:
        with contextlib.suppress(BrokenPipeError):
            os.write(self.fd, b"x")
        os.close(self.fd)
        self._process.wait(STEP_TIMEOUT)


def main(prefix: str) -> None:
    for sig in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(sig, signal.SIG_IGN)
    if not os.read(sys.stdin.fileno(), 1):
        take_down(prefix)


if __name__ == "__main__":  # only Guard starts this file
    main(sys.argv[1])
