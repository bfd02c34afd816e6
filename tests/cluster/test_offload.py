# SPDX-License-Identifier: Apache-2.0
"""bench/flare: wire limits, the switch's counters, its table, what it refuses, and a whole run."""

from __future__ import annotations

import subprocess
from pathlib import Path

import cli
import job
import pytest
from lib.flare import offload, summary, trials
from lib.flare.trials import Sample, figures_of, make_case, part_by_switch
from lib.shared import one_group
from testbed import Testbed

BENCH = Path(__file__).parents[2] / "bench"
FLARE = str(BENCH / "flare")
MIB = 1 << 20


def test_wire_limits() -> None:
    """With a switch, each host sends the message once. Two rails each carry as much as they can."""
    case = make_case("hosts", 4, 800, [MIB], 1)
    flare, tcp = case.configs
    once = MIB / 100  # µs at 100 MB/s
    assert case.wire_limit(flare, MIB) == pytest.approx(once)
    assert case.wire_limit(tcp, MIB) == pytest.approx(1.5 * once)
    pair = make_case("rails", 4, 800, [MIB], 1)
    both, flare, tcp = pair.configs
    assert pair.wire_limit(both, MIB) == pytest.approx(once / (1 + 1 / 1.5))
    assert pair.wire_limit(flare, MIB) == pytest.approx(once)
    assert pair.wire_limit(tcp, MIB) == pytest.approx(1.5 * once / 2)
    two = make_case("hosts", 2, 800, [MIB], 1)
    assert two.wire_limit(two.configs[0], MIB) == two.wire_limit(two.configs[1], MIB)


def test_fabrics() -> None:
    """The hosts are spread over the switches, which are all connected."""
    bed = Testbed(6, {"eth0": "none"})  # not up: fabric_text() only needs addresses
    text = trials.fabric_text(bed, make_case("tree", 4, 100, [4], 1, switches=2))
    assert text.splitlines() == [
        "switch s4 10.0.0.5:7100 10.0.0.5:7101",
        "switch s5 10.0.0.6:7100 10.0.0.6:7101",
        "link s4 s5",
        "host 10.0.0.1 s4",
        "host 10.0.0.2 s4",
        "host 10.0.0.3 s5",
        "host 10.0.0.4 s5",
    ]
    case = make_case("hosts", 3, 100, [4], 1)
    assert "flare:eth0@10.0.0.4:7000" in case.configs[0].command  # the switch, after three hosts
    assert trials.fabric_text(bed, case).splitlines()[1:] == [
        f"host 10.0.0.{number} s3" for number in (1, 2, 3)
    ]
    case.multicast = True
    [last] = trials.fabric_text(bed, case).splitlines()[4:]
    assert last == "multicast 239.192.0.0:7200 64"


def test_one_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    setting = tmp_path / "autogroup"
    monkeypatch.setattr(one_group, "AUTOGROUP", setting)
    monkeypatch.setattr(one_group, "STATE_DIR", tmp_path / "state")
    with one_group.one_group():  # a kernel without this feature
        assert not setting.exists()
    setting.write_text("1\n")
    with pytest.raises(KeyError), one_group.one_group():
        assert setting.read_text() == "0"
        with one_group.one_group():  # a second run begins later and ends first
            assert setting.read_text() == "0"
        assert setting.read_text() == "0"
        raise KeyError
    assert setting.read_text() == "1\n"
    (tmp_path / "state" / "autogroup").write_text("1\n")  # a run was killed
    setting.write_text("0")
    with one_group.one_group():
        assert setting.read_text() == "0"
    assert setting.read_text() == "1\n"


def test_figures_of_a_switch() -> None:
    """The CPU time is per received data; the rate of frames is that of the busy intervals."""
    gib = 1 << 30
    samples = [
        Sample(seconds=0, frames=10, bytes=0, cpu=1.0),
        Sample(seconds=1, frames=10, bytes=0, cpu=1.0),
        Sample(seconds=2, frames=1010, bytes=gib, cpu=1.4),
        Sample(seconds=4, frames=3210, bytes=2 * gib, cpu=1.6),
        Sample(seconds=5, frames=3310, bytes=2 * gib, cpu=1.6),
    ]
    figures = figures_of(samples)
    assert figures["switch_cpu_s_per_gib"] == pytest.approx(0.3)
    assert figures["switch_frames_per_s"] == 1050
    assert figures_of(samples[:2]) == {}


def test_operations_by_the_hosts_are_seen() -> None:
    """In short operations, most bytes are the TCP messages of the ranks' agreement."""
    rails = [{"name": "eth0", "bytes": 9000}, {"name": "flare", "bytes": 1600}]
    row = {"bytes": 4, "iterations": 100, "ranks": 4, "rails": rails}
    assert part_by_switch(row) == 1
    assert part_by_switch(row | {"rails": rails[:1]}) == 0


def measured(way: str, size: int, p50s: list[float], **more: float) -> list[dict]:
    row = {"config": way, "bytes": size} | more
    return [row | {"repeat": repeat, "p50_us": p50} for repeat, p50 in enumerate(p50s)]


def made_cases() -> list[offload.Case]:
    sizes = make_case("sizes", 4, 1000, [4, MIB], 3)
    switch = {"switch_cpu_s_per_gib": 0.25, "switch_frames_per_s": 12345.0}
    sizes.measurements = [
        *measured("flare", 4, [50, 60, 70]),
        *measured("tcp", 4, [30, 30, 30]),
        *measured("flare", MIB, [10e3, 9e3, 9.5e3], **switch),
        *measured("tcp", MIB, [15e3, 18e3]),  # failed once
    ]
    failure = {"config": "tcp", "repeat": 2, "sizes": [MIB], "errors": ["it ended", "why"]}
    sizes.failures.append(failure)
    lossy = make_case("loss", 4, 250, [MIB], 3, loss=1, label="1% lost")
    lossy.measurements = measured("flare", MIB, [50e3, 40e3, 60e3])
    return [sizes, lossy]


def test_table(tmp_path: Path) -> None:
    cases = made_cases()
    offload.save(cases, tmp_path / offload.DATA)
    assert offload.load(tmp_path / offload.DATA) == cases
    text = summary.table(cases)
    lines = [line.split() for line in text.splitlines()]
    # The wire limit is 8389 µs, and 12583 µs with TCP. Each ratio is that of two consecutive runs.
    large = "1 MiB 9.5 ms 0.883 (0.839–0.932) 16.5 ms* 0.769 (0.699–0.839) 1.75 (1.50–2.00) 1.50 0.25 12,345"
    assert large.split() in lines
    assert "1% lost 50 ms 0.671 (0.559–0.839) failed - - 1.50 - -".split() in lines
    assert "tcp, 1 MiB: failed\n    it ended\n    why" in text


# ---- the program ------------------------------------------------------------------------------


def call(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [FLARE, "--no-build", *arguments], capture_output=True, text=True, timeout=job.PATIENCE
    )


@cli.bad_command_lines(
    [
        (["--cases", "sizes,trees"], "'trees' (there are sizes, hosts,"),
        (["--sizes", "3"], "'3' is no size"),
        (["--repeat", "0"], "'0' is not a number from 1"),
        (["--out", "/dev/null/out"], "cannot write to --out /dev/null/out"),
    ]
)
def test_bad_command_lines(arguments: list[str], reason: str) -> None:
    cli.assert_refused(call(*arguments), reason)


def test_a_whole_run(tmp_path: Path) -> None:
    """Runs two switches in a tree, and one switch beside a TCP rail."""
    (tmp_path / offload.TABLE).write_text("an earlier run's")
    done = call("--quick", "--cases", "tree,rails", "--sizes", "256K", "--out", str(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr
    first = done.stderr.splitlines()[0]  # eight hosts, two switches and a manager, three times 8 x 256 KiB
    assert "needs root or user namespaces" in first and "6 MiB of memory" in first
    assert "up to 11 processes at a time" in first
    tree, rails = offload.load(tmp_path / offload.DATA)
    for case in (tree, rails):
        for way in case.configs:
            assert (case.p50(way, 1 << 18) or 0) > 0 and case.parts_of_limit(way, 1 << 18)[0] < 1
    # The counters are those of both switches, with the frames that one switch sends to the other.
    [row] = tree.rows(tree.configs[0], 1 << 18)
    assert row["switch_cpu_s_per_gib"] > 0 and row["switch_frames_per_s"] > 100
    text = (tmp_path / offload.TABLE).read_text()
    assert text in done.stdout and "8 hosts" in text
    for name in offload.PICTURES:
        assert (tmp_path / name).stat().st_size > 1000
