# SPDX-License-Identifier: Apache-2.0
"""Gloo programs get the same results over nezha's device as over Gloo's own, and survive cuts.

The program (gloo/) is linked only with Gloo. It loads a library that makes its device, or runs with
that library preloaded, which then also carries out whole collectives.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from typing import Any

import job
import pytest
from testbed import Testbed

PROGRAM = str(job.BUILD / "tests" / "cluster_gloo_cases")
LIBRARY = str(job.BUILD / "interop" / "libnezha_gloo.so")
RAILS = ["eth0", "eth1"]
HOSTS = 4
DEVICES: dict[str, dict[str, Any]] = {
    "tcp": {"interface": "eth0"},
    "nezha": {"device_library": LIBRARY, "rails": job.rails_option(RAILS)},
    "preload": {
        "interface": "eth0",
        "env": {"LD_PRELOAD": LIBRARY, "NEZHA_RAILS": job.rails_option(RAILS)},
    },
}
OVER_NEZHA = ["nezha", "preload"]
NEVER = 600_000  # ms: a timeout that no test waits for


@pytest.fixture(scope="module")
def bed() -> Iterator[Testbed]:
    with Testbed(hosts=HOSTS, rails=dict.fromkeys(RAILS, "500mbit")) as bed:
        yield bed


@pytest.fixture(autouse=True)
def healed(bed: Testbed) -> Iterator[None]:
    yield
    for rail in RAILS:
        bed.set_rate(rail, "500mbit")
        for host in range(HOSTS):
            bed.heal(host, rail)


# ---- as over Gloo's own device ----------------------------------------------------------------

Outcomes = dict[str, list[str]]

# Intended differences: the outcome with Gloo's own device, and the one that replaces it.
OTHERWISE = {
    # Gloo serves a receive from one rank before those from several ranks. nezha's device serves the
    # one that was posted first.
    "any source beside one source": ("that names the rank", "that was posted first"),
    # Gloo closes the pairs of the rank that gave up. With nezha's device all ranks learn of it, as
    # in nezha's contexts.
    "wait that the others hear of": (r"(with rank \d+) ok", r"\1 IoException"),
}
# These cases have the same outcomes on other ranks, because a rank's parent in nezha's tree is not
# that in Gloo's.
AT_OTHER_RANKS = {"wait of the broadcast without one rank"}
# A collective of nezha's has one deadline. In Gloo's, each send and receive has its own.
WHOLE_OPERATION = ("for (recv|send|collective) operation", "for an operation")


def outcomes(work: job.Job, patience: float) -> Outcomes:
    """The outcomes of each case at all ranks."""
    work.succeed(patience)
    found: Outcomes = {}
    for rank in work.ranks:
        for event in rank.all("case"):
            found.setdefault(event["name"], []).extend(event["outcomes"])
    return found


def compare(bed: Testbed, device: str, processes: int, patience: float, **options: Any) -> None:
    """Runs the cases over `device` and Gloo's own at the same time, because they mostly wait."""
    with (
        job.Job(bed, processes, program=PROGRAM) as tcp,
        job.Job(bed, processes, program=PROGRAM) as nezha,
    ):
        tcp.start(**DEVICES["tcp"], **options)
        nezha.start(**DEVICES[device], **options)
        wanted, got = outcomes(tcp, patience), outcomes(nezha, patience)
    # Gloo's class overwrites data that it has sent, so its sums are sometimes wrong over its own
    # device.
    for name in wanted:
        if name.startswith("class reduce-scatter"):
            wanted[name] = ["ok"] * len(wanted[name])
    # The cases themselves are right: with Gloo's own device no other case fails.
    assert wanted and not [name for name, each in wanted.items() if "failed: " in str(each)]
    for name in OTHERWISE.keys() & wanted.keys():
        wanted[name] = [re.sub(*OTHERWISE[name], each) for each in wanted[name]]
    if device == "preload":
        for found in (wanted, got):
            for name in found:
                found[name] = [re.sub(*WHOLE_OPERATION, each) for each in found[name]]
        for name in AT_OTHER_RANKS & wanted.keys():
            wanted[name], got[name] = sorted(wanted[name]), sorted(got[name])
    differences = [
        f"{name}: {got.get(name)}, not {each}"
        for name, each in wanted.items()
        if got.get(name) != each
    ]
    assert not differences, "\n".join(differences)
    assert list(got) == list(wanted)


@pytest.mark.parametrize("device", OVER_NEZHA)
@pytest.mark.parametrize("ranks", range(1, 17) if job.LONG else [4])
def test_ranks_of_one_process(bed: Testbed, ranks: int, device: str) -> None:
    largest = 1 << (26 if ranks <= 4 else 22) if job.LONG else 1 << 18
    patience = 600 if job.LONG else job.PATIENCE
    compare(bed, device, 1, patience, threads=ranks, max_bytes=largest)


@pytest.mark.parametrize("device", OVER_NEZHA)
@pytest.mark.parametrize("ranks", [2, 3, 4] if job.LONG else [3])
def test_ranks_of_several_hosts(bed: Testbed, ranks: int, device: str) -> None:
    """The rails have different rates, so that messages overtake each other."""
    bed.set_rate("eth1", "50mbit")
    largest = 1 << (24 if job.LONG else 20)
    compare(bed, device, ranks, 600 if job.LONG else job.PATIENCE, max_bytes=largest)


# ---- rails ------------------------------------------------------------------------------------

OPERATIONS = ["ring", "bcube", "alltoall", "broadcast", "halving-doubling"]


def start(work: job.Job, device: str, operations: list[str] = OPERATIONS, **options: Any) -> None:
    all_options: dict[str, Any] = DEVICES[device] | {"timeout": NEVER} | options
    work.start(load=work.stop_file, operations=",".join(operations), **all_options)


def finish(work: job.Job) -> None:
    work.stop()
    work.succeed()


@pytest.mark.parametrize("operation", OPERATIONS if job.LONG else ["ring", "halving-doubling"])
@pytest.mark.parametrize("how", ["silent", "carrier"])
def test_cut_in_the_middle(bed: Testbed, how: str, operation: str) -> None:
    """Every result is right, and the rail is used again when it is back."""
    host = 2 if operation == "broadcast" else 1  # rank 2 is the root of the first broadcast
    with job.Job(bed, program=PROGRAM) as work:
        start(work, "nezha", [operation], elements=8 << 20)
        work.well_into_it(host, "eth1")
        bed.cut(host, "eth1", how)
        assert not work.ranks[host].done, "the cut came too late"
        work.all_done(1)
        bed.heal(host, "eth1")
        work.sends_by(host, "eth1", 1 << 20)
        work.all_done(1)
        finish(work)


def test_slow_rail(bed: Testbed) -> None:
    """A rail becomes slow and then fast again, and every result is right."""
    with job.Job(bed, program=PROGRAM) as work:
        start(work, "nezha", elements=1 << 20)
        work.well_into_it(1, "eth1")
        bed.set_rate("eth1", "20mbit")
        work.all_done(len(OPERATIONS))
        bed.set_rate("eth1", "500mbit")
        work.all_done(len(OPERATIONS))
        finish(work)


# ---- ranks ------------------------------------------------------------------------------------


# This is not tested over Gloo's own device: there, a send from an unbound buffer that is in flight
# when its receiver dies fails only by its timeout.
@pytest.mark.parametrize("operation", OPERATIONS if job.LONG else ["alltoall", "halving-doubling"])
def test_killed_rank(bed: Testbed, operation: str) -> None:
    """All other ranks get an IoException long before the timeout."""
    with job.Job(bed, program=PROGRAM) as work:
        start(work, "nezha", [operation])
        work.all_done(1)
        work.ranks[2].process.kill(signal.SIGKILL)
        for rank in work.ranks:
            if rank.number != 2:
                assert rank.wait_for("error", timeout=job.SLACK)["type"] == "IoException"


@pytest.mark.parametrize("device", DEVICES)
def test_stopped_rank(bed: Testbed, device: str) -> None:
    """Ranks that wait for the stopped rank time out, and all others learn of the timeout."""
    with job.Job(bed, program=PROGRAM) as work:
        start(work, device, ["alltoall"], timeout=3000)
        work.all_done(1)
        work.ranks[2].process.kill(signal.SIGSTOP)
        others = [rank for rank in work.ranks if rank.number != 2]
        errors = [rank.wait_for("error", timeout=3 + job.SLACK) for rank in others]
        assert all(error["type"].startswith("IoException") for error in errors)
        assert any(error["type"].endswith("operation to complete") for error in errors)
