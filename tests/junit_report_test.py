#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Tests tests/junit_report: what it prints of tests that fail, hang and crash, and its counts."""

import os
import subprocess
import sys
import tempfile
import unittest
from xml.sax.saxutils import escape

REPORT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "junit_report")


def case(name: str, end: str | None = "      OK", text: str = "") -> str:
    return f"[ RUN      ] {name}\n{text}" + (f"[ {end} ] {name} (3 ms)\n" if end else "")


class JunitReport(unittest.TestCase):
    def run_on(self, *tests: tuple[str, str, str]) -> tuple[list[str], str]:
        """The counts and the printed text for these tests of ctest (name, status, output)."""
        xml = "<testsuite>"
        for name, status, output in tests:
            failure = '<failure message="SEGFAULT"/>' if status == "fail" else ""
            xml += f'<testcase name="{name}" status="{status}">{failure}'
            xml += f"<system-out>{escape(output)}</system-out></testcase>"
        return self.report(xml + "</testsuite>")

    def report(self, xml: str) -> tuple[list[str], str]:
        with tempfile.TemporaryDirectory() as folder:
            junit, counts = (os.path.join(folder, name) for name in ("junit.xml", "counts"))
            with open(junit, "w", encoding="utf-8") as file:
                file.write(xml)
            done = subprocess.run(
                [sys.executable, REPORT, junit, counts], capture_output=True, text=True
            )
            with open(counts, encoding="utf-8") as file:
                numbers = file.read().split()
            self.assertEqual(done.returncode, int(numbers[1] != "0"), done.stderr)
            return numbers, done.stdout

    def test_a_shard_counts_by_its_cases(self) -> None:
        output = case("A.One") + case("A.Two/3") + case("B.Three", " SKIPPED")
        self.assertEqual(self.run_on(("common.1", "run", output)), (["2", "0", "1"], "\n"))

    def test_a_program_that_runs_nothing_has_failed(self) -> None:
        output = "[==========] Running 0 tests from 0 test suites.\n[  PASSED  ] 0 tests.\n"
        counts, said = self.run_on(("common.1", "run", output))
        self.assertEqual((counts, said), (["0", "1", "0"], "---- common.1 ran no test\n"))

    def test_a_case_that_ends_the_program_has_failed_though_that_says_it_was_well(self) -> None:
        counts, said = self.run_on(("common.1", "run", case("A.One", None)))
        self.assertEqual((counts, said), (["0", "1", "0"], "---- A.One did not end\n"))

    def test_output_without_a_newline(self) -> None:
        counts, _ = self.run_on(("common.1", "run", case("A.One", text="dots...")))
        self.assertEqual(counts, ["1", "0", "0"])

    def test_another_test_is_one(self) -> None:
        tests = ("cluster.a", "run", "2 passed\n"), ("cluster.b", "notrun", "")
        self.assertEqual(self.run_on(*tests), (["1", "0", "1"], "\n"))

    def test_a_failed_case_is_named_with_its_own_text(self) -> None:
        output = case("A.One", text="noise\n") + case("A.Two", " FAILED ", "a.cc:7: Failure\n")
        counts, said = self.run_on(("common.1", "fail", output + "[  FAILED  ] A.Two\n"))
        self.assertEqual(counts, ["1", "1", "0"])
        self.assertEqual(said, "---- A.Two failed\na.cc:7: Failure\n")

    def test_a_case_that_dies_or_hangs_is_named(self) -> None:
        output = case("A.One") + case("A.Two", None, "ERROR: AddressSanitizer\n")
        counts, said = self.run_on(("common.1", "fail", output))
        self.assertEqual(counts, ["1", "1", "0"])
        self.assertEqual(said, "---- A.Two did not end\nERROR: AddressSanitizer\n")

    def test_a_leak_that_is_found_at_the_end(self) -> None:
        output = case("A.One") + "ERROR: LeakSanitizer\n"
        counts, said = self.run_on(("common.1", "fail", output))
        self.assertEqual(counts, ["1", "1", "0"])
        self.assertEqual(said, "---- common.1 failed\nERROR: LeakSanitizer\nSEGFAULT\n")

    def test_of_pytest_the_failures(self) -> None:
        output = "test_a.py ...F\n=== FAILURES ===\n___ test_x ___\nE   assert 1 == 2\n"
        counts, said = self.run_on(("cluster.a", "fail", output))
        self.assertEqual(counts, ["0", "1", "0"])
        self.assertNotIn("...F", said)
        self.assertIn("---- cluster.a failed\n=== FAILURES", said)
        self.assertIn("assert 1 == 2", said)

    def test_cases_of_pytest(self) -> None:
        outcomes = [
            "",
            '<skipped message="no time"/>',
            '<failure message="short">E assert 1 == 2</failure>',
            '<error message="short">E fixture</error>',
        ]
        cases = [
            f'<testcase classname="t" name="n{n}">{end}</testcase>' for n, end in enumerate(outcomes)
        ]
        counts, said = self.report(f"<testsuites><testsuite>{''.join(cases)}</testsuite></testsuites>")
        self.assertEqual(counts, ["1", "2", "1"])
        self.assertEqual(said, "---- t::n2 failed\nE assert 1 == 2\n---- t::n3 failed\nE fixture\n")

    def test_much_is_cut(self) -> None:
        text = "".join(f"line {n}\n" for n in range(1000))
        output = "".join(case(f"A.N{n}", " FAILED ", text) for n in range(30))
        counts, said = self.run_on(("common.1", "fail", output))
        self.assertEqual(counts, ["0", "30", "0"])
        self.assertIn("line 999\n", said)
        self.assertNotIn("line 99\n", said)
        self.assertLess(len(said.splitlines()), 1100)
        self.assertIn("A.N29 failed\n", said)


if __name__ == "__main__":
    unittest.main()
