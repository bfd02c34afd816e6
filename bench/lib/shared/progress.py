# SPDX-License-Identifier: Apache-2.0
"""What is going on: one line that changes on a terminal, plain lines in a pipe."""

import shutil
import sys
import time


class Progress:
    def __init__(self) -> None:
        self._live = sys.stderr.isatty()
        self._start = time.monotonic()

    def show(self, text: str) -> None:
        """What is under way; on a terminal alone."""
        if self._live:
            width = shutil.get_terminal_size().columns - 1
            elapsed = time.monotonic() - self._start
            line = f"{int(elapsed) // 60}:{int(elapsed) % 60:02} {text}"
            print(f"\r\033[K{line[:width]}", end="", file=sys.stderr, flush=True)

    def say(self, text: str) -> None:
        """A step: seen in passing on a terminal, a line of its own in a pipe."""
        if self._live:
            self.show(text)
        else:
            print(text, file=sys.stderr, flush=True)

    def keep(self, text: str) -> None:
        """What is to stay readable, on a terminal too."""
        self.clear()
        print(text, file=sys.stderr, flush=True)

    def clear(self) -> None:
        if self._live:
            print("\r\033[K", end="", file=sys.stderr, flush=True)
