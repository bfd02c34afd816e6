#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Tests tests/rdma/guest: what reaches its caller, and that nothing is left behind."""

import os
import signal
import subprocess
import tempfile
import time
import unittest
from pathlib import Path

GUEST = str(Path(__file__).resolve().parent / "guest")
PATIENCE = 300.0  # seconds: the deadline for what should take ten


class Guest(unittest.TestCase):
    def setUp(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.variables = os.environ | {"TMPDIR": self.folder.name}

    def start(self, *argv: str) -> "subprocess.Popen[str]":
        process = subprocess.Popen(
            [GUEST, *argv],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=self.variables,
        )
        self.addCleanup(process.kill)
        return process

    def left(self) -> list[str]:
        """Files that are left, and machines that run with the folder in their command lines."""
        found = [str(path) for path in Path(self.folder.name).glob("nezha-guest-*")]
        for process in Path("/proc").glob("[0-9]*"):
            try:
                words = (process / "cmdline").read_text()
            except OSError:  # the process has ended
                continue
            if "qemu" in words and self.folder.name in words:
                found.append(words)
        return found

    def test_what_comes_through(self) -> None:
        writable = tempfile.mkdtemp(dir=self.folder.name)
        script = f'echo "$1" $X; echo told >&2; pwd; touch {writable}/in {self.folder.name}/out; exit 7'
        self.variables["X"] = "a  'b'"
        process = self.start("--writable", writable, "sh", "-c", script, "sh", "one  two")
        out, err = process.communicate(timeout=PATIENCE)
        self.assertEqual((process.returncode, err), (7, "told\n"))
        self.assertEqual(out, f"one  two a 'b'\n{os.getcwd()}\n")
        self.assertTrue(os.path.exists(f"{writable}/in"))
        self.assertFalse(os.path.exists(f"{self.folder.name}/out"))
        self.assertEqual(self.left(), [])

    def test_a_command_that_hangs(self) -> None:
        process = self.start("--timeout", "5", "sleep", "1000")
        out, err = process.communicate(timeout=PATIENCE)
        self.assertEqual((process.returncode, out), (124, ""))
        self.assertIn("timed out after 5 s", err)
        self.assertEqual(self.left(), [])

    def test_an_end_from_outside(self) -> None:
        for end in (signal.SIGTERM, signal.SIGKILL):
            process = self.start("sleep", "1000")
            deadline = time.monotonic() + PATIENCE
            while not any("qemu-system" in each for each in self.left()):
                self.assertLess(time.monotonic(), deadline)
                time.sleep(0.05)
            process.send_signal(end)
            process.communicate(timeout=PATIENCE)  # the output ends only when the machine does
            machines = [each for each in self.left() if "qemu-system" in each]
            self.assertEqual(machines if end == signal.SIGKILL else self.left(), [])

    def test_bad_command_lines(self) -> None:
        lines: list[list[str]] = [[], ["--hosts", "0", "true"], ["--prepare", "true"]]
        lines.append(["--kind", "roce", "true"])
        for argv in lines:
            process = self.start(*argv)
            process.communicate(timeout=PATIENCE)
            self.assertEqual(process.returncode, 2, argv)


if __name__ == "__main__":
    unittest.main()
