# SPDX-License-Identifier: Apache-2.0
"""nezha-check on RDMA rails: what it measures, and faults that a TCP connection does not show."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import job
import pytest
from guest_bed import GuestBed

CHECK = str(job.BUILD / "check" / "nezha-check")
SWITCH = ["tc", "-netns", "switch"]


def check(store: Path, rail: str = "rdma:rxe{host}?rail=r") -> dict[str, Any]:
    """The report of two ranks, each of which considers itself a separate host."""
    command = f"hostname host$HOST; exec {CHECK} --json --shared-path {store} --prefix run"
    with GuestBed([rail]) as bed:
        ranks = bed.start(
            ["unshare", "--uts", "sh", "-c", command], on=[0, 1], env={"SIZE": "2"}
        )
        codes = [rank.wait(job.PATIENCE) for rank in ranks]
        report: dict[str, Any] = json.loads(ranks[0].stdout)
        assert codes == [1 if report["findings"] else 0] * 2
        return report


def test_all_is_well(tmp_path: Path) -> None:
    sent = GuestBed().rdma_packets(0)
    report = check(tmp_path)
    assert not report["findings"]
    [path] = report["paths"]
    assert path["rail"] == "r" and path["packet_there"] == path["packet_back"] == 9000
    assert path["gbps_there"] > 0 and path["gbps_back"] > 0 and path["round_trip_us"] > 0
    assert GuestBed().rdma_packets(0) > sent + (16 << 20) // 4096


@pytest.fixture
def firewall() -> Iterator[None]:
    """Host 1 cannot send RoCE packets."""
    rule = "protocol ip u32 match ip dport 4791 0xffff action drop"
    subprocess.run([*SWITCH, "qdisc", "add", "dev", "s-h1", "clsact"], check=True)
    add = [*SWITCH, "filter", "add", "dev", "s-h1", "ingress", *rule.split()]
    subprocess.run(add, check=True)
    yield
    subprocess.run([*SWITCH, "qdisc", "del", "dev", "s-h1", "clsact"], check=True)


@pytest.mark.usefixtures("firewall")
def test_packets_that_do_not_get_through(tmp_path: Path) -> None:
    """TCP connections can still be made."""
    report = check(tmp_path)
    assert {each["outcome"] for each in report["connections"]} == {"connected"}
    [finding] = report["findings"]
    assert finding["kind"] == "broken" and finding["ranks"] == [0, 1]
    assert "TCP connections work, but the rail's own connections do not" in finding["text"]
    assert "UDP to port 4791" in finding["text"]


def test_a_device_that_is_not_there(tmp_path: Path) -> None:
    report = check(tmp_path, "rdma:none{host}?rail=r")
    assert any("no RDMA device 'none0'" in finding["text"] for finding in report["findings"])
