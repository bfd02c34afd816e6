#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Tests tests/check_includes: trees that it must refuse, and why, and a tree that passes."""

import os
import subprocess
import sys
import tempfile
import unittest

CHECK = os.path.join(os.path.dirname(os.path.abspath(__file__)), "check_includes")

TREE = {  # a tree without a fault; each test adds one
    "include/nezha/context.h": "#include <vector>\n#include <gloo/common/error.h>\n",
    "include/nezha/allreduce.h": '#include "nezha/context.h"\n',
    "common/log.h": "#include <sys/socket.h>\n#include <spdlog/spdlog.h>\n",
    "transport/tcp/link.h": '#include "common/log.h"\n#include "absl/status/status.h"\n',
    "transport/channel.cc": '#include "transport/tcp/link.h"\n#include "nezha/context.h"\n',
    "collectives/ring.cc": '#include "transport/tcp/link.h"\n#include "common/log.h"\n',
    "flare_offload/core/slot.h": "",
    "control/timer.h": "",
    "context/context.cc": '#include "control/timer.h"\n#include "flare_offload/core/slot.h"\n',
    "bench/main.cc": '#include "common/log.h"\n',
    "examples/allreduce/main.cc": "#include <nezha/context.h>\n",
    "tests/unit/common/log_test.cc": '#include "bench/anything.h"\n',
}


class CheckIncludes(unittest.TestCase):
    def run_on(self, extra: dict[str, str]) -> tuple[int, list[str]]:
        """The exit status and the printed lines for TREE with these extra files."""
        with tempfile.TemporaryDirectory() as root:
            for path, text in {**TREE, **extra}.items():
                os.makedirs(os.path.join(root, os.path.dirname(path)), exist_ok=True)
                with open(os.path.join(root, path), "w", encoding="utf-8") as file:
                    file.write(text)
            done = subprocess.run(
                [sys.executable, CHECK, root], capture_output=True, text=True, check=False
            )
            self.assertEqual(done.stderr, "")
            return done.returncode, done.stdout.splitlines()

    def refused(self, path: str, text: str, line: int, why: str) -> None:
        status, lines = self.run_on({path: text})
        self.assertEqual(status, 1)
        self.assertEqual(len(lines), 1, lines)
        self.assertTrue(lines[0].startswith(f"{path}:{line}: "), lines[0])
        self.assertIn(why, lines[0])

    def test_a_good_tree_passes(self) -> None:
        self.assertEqual(self.run_on({}), (0, []))

    def test_against_the_arrow(self) -> None:
        for path, include in [
            ("common/a.cc", "transport/tcp/link.h"),
            ("transport/a.h", "context/context.cc"),
            ("collectives/a.cc", "control/timer.h"),
            ("collectives/a.cc", "flare_offload/core/slot.h"),
            ("control/a.cc", "bench/main.cc"),
            ("context/a.cc", "tests/unit/common/log_test.cc"),
        ]:
            with self.subTest(path=path, include=include):
                self.refused(path, f'\n#include "{include}"\n', 2, "may not include")

    def test_between_siblings(self) -> None:
        self.refused("control/a.cc", '#include "flare_offload/core/slot.h"\n', 1, "may not include")
        self.refused("flare_offload/a.h", '#include "control/timer.h"\n', 1, "may not include")
        self.refused("interop/a.h", '#include "bench/main.cc"\n', 1, "may not include")

    def test_all_spellings(self) -> None:
        for line in ['  #  include "control/timer.h"', "#include <control/timer.h>"]:
            with self.subTest(line=line):
                self.refused("transport/a.cc", line + "\n", 1, "may not include")

    def test_public_headers(self) -> None:
        for line in [
            '#include "common/log.h"',
            '#include "absl/status/status.h"',
            "#include <absl/status/status.h>",
            "#include <sys/socket.h>",
            "#include <unistd.h>",
            '#include "context.h"',
        ]:
            with self.subTest(line=line):
                self.refused("include/nezha/a.h", line + "\n", 1, "includes only")

    def test_examples_are_users(self) -> None:
        self.refused("examples/b/main.cc", '#include "common/log.h"\n', 1, "includes only")

    def test_not_from_the_root(self) -> None:
        self.refused("transport/a.cc", '#include "tcp/link.h"\n', 1, "from the repository's root")
        self.refused(
            "transport/a.cc", '#include "../control/timer.h"\n', 1, "from the repository's root"
        )

    def test_no_such_file(self) -> None:
        self.refused("transport/a.cc", '#include "common/no.h"\n', 1, "no such file")

    def test_not_a_root(self) -> None:
        with tempfile.TemporaryDirectory() as root:
            done = subprocess.run(
                [sys.executable, CHECK, root], capture_output=True, text=True, check=False
            )
        self.assertEqual(done.returncode, 2)
        self.assertIn("not nezha's root", done.stderr)


if __name__ == "__main__":
    unittest.main()
