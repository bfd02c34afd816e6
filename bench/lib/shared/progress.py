# SPDX-License-Identifier: Apache-2.0
"""Reports progress: one line that changes on a terminal, and plain lines in a pipe."""

import shutil
import sys
import time


class Progress:
    def __init__(self) -> None:
        self._live = sys.stderr.isatty()
        self._start = time.monotonic()

    def show(self, text: str) -> None:
        """Shows what is under way, on a terminal alone."""
        if self._live:
            width = shutil.get_terminal_size().columns - 1
            elapsed = time.monotonic() - self._start
            line = f"{int(elapsed) // 60}:{int(elapsed) % 60:02} {text}"
            print(f"\r\033[K{line[:width]}", end="", file=sys.stderr, flush=True)

    def say(self, text: str) -> None:
        """Reports a step: a terminal shows it until the next one, and a pipe gets a line of its own."""
        if self._live:
            self.show(text)
        else:
            print(text, file=sys.stderr, flush=True)

    def keep(self, text: str) -> None:
        """Prints a text that stays readable, on a terminal, too."""
        self.clear()
        print(text, file=sys.stderr, flush=True)

    def clear(self) -> None:
        if self._live:
            print("\r\033[K", end="", file=sys.stderr, flush=True)
