# SPDX-License-Identifier: Apache-2.0
"""A dead rail costs only time; a dead or late rank is an error on every rank.

All faults come from outside the ranks' processes.
"""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Iterator
from typing import Any

import job
import pytest
from testbed import Testbed

RAILS = ["eth0", "eth1"]
BOTH = job.rails_option(RAILS)
MIB = 1 << 18  # elements
WAYS_TO_CUT = ["carrier", "admin", "silent"]

# A deadline of an operation in ms that is long enough to notice a dead link by its silence, but too
# short for TCP to give up the connection by itself.
FAILS_OVER = 5000


@pytest.fixture(scope="module")
def bed() -> Iterator[Testbed]:
    # slow enough that 64 MiB take most of a second
    with Testbed(hosts=5, rails=dict.fromkeys(RAILS, "500mbit")) as bed:
        yield bed


@pytest.fixture(autouse=True)
def healed(bed: Testbed) -> Iterator[None]:
    yield
    for host in range(bed.hosts):
        for rail in RAILS:
            bed.heal(host, rail)


# ---- a cable ----------------------------------------------------------------------------------

LARGE: dict[str, Any] = {
    "elements": 64 * MIB,
    "float": 1,
    "rails": BOTH,
    "operations": 2,
    "place": "out",
}


@pytest.fixture(scope="module")
def undisturbed(bed: Testbed) -> list[str]:
    """The hashes of the large operations' results without faults."""
    return job.run(bed, 3, algorithm="ring", **LARGE).hashes()


def cut_in_the_middle(bed: Testbed, work: job.Job, how: str) -> None:
    """Cuts host 1 off eth1 during its first operation."""
    work.well_into_it(1, "eth1")
    bed.cut(1, "eth1", how)
    assert not work.ranks[1].done, "the cut came too late"


@pytest.mark.parametrize("plan", ["stripe", "slice"])
@pytest.mark.parametrize("how", WAYS_TO_CUT)
def test_cut_in_the_middle(bed: Testbed, undisturbed: list[str], how: str, plan: str) -> None:
    """A cut in a large operation does not change the bits."""
    with job.Job(bed, 3) as work:
        work.start(algorithm="ring", plan=plan, **LARGE)
        cut_in_the_middle(bed, work, how)
        work.succeed()
        assert work.hashes() == undisturbed
        assert any(rank.rail("eth1")["failures"] for rank in work.ranks)


@pytest.mark.parametrize("spares", [["eth0"], ["eth0", "other"]], ids=["one", "two"])
def test_a_rail_without_a_share_is_a_spare(
    bed: Testbed, spares: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rail without a share carries nothing until the others have failed, and then everything.
    Until the links of the others are up, it also carries."""
    monkeypatch.setenv("NEZHA_LOG", "info")
    others = len(spares) - 1
    rails, shares = BOTH + ",tcp:eth0?rail=other" * others, "0,100" + ",0" * others
    with job.Job(bed, 3) as work:
        small: dict[str, Any] = {"elements": f"1000,{MIB}", "until": work.stop_file, "report": 1}
        work.start(plan="slice", shares=shares, rails=rails, **small)

        def sent_by(rails: list[str]) -> list[int]:
            return [sum(rank.rail(rail)["sent"] for rail in rails) for rank in work.ranks]

        for rank in work.ranks:
            for peer in {0, 1, 2} - {rank.number}:
                up = rf"the link to rank {peer} of 3 .* on eth1 is up"
                rank.process.wait_for(up, job.PATIENCE)
        work.all_done(10)  # operations from before that may still use the spares
        by_spares, by_other = sent_by(spares), sent_by(["eth1"])
        work.all_done(20)
        assert sent_by(spares) == by_spares, work.told()
        assert all(new > old + MIB for new, old in zip(sent_by(["eth1"]), by_other)), work.told()
        bed.cut(1, "eth1", "carrier")
        work.all_done(20)
        assert all(new > old + MIB for new, old in zip(sent_by(spares), by_spares)), work.told()
        work.stop()
        work.succeed()


@pytest.mark.parametrize("place", ["out", "in"])
@pytest.mark.parametrize("algorithm", job.ALGORITHMS[1:])
def test_cut_in_the_middle_of_other_algorithms(bed: Testbed, algorithm: str, place: str) -> None:
    """A cut in a large operation does not change the bits, in place and not. Each algorithm has
    its own order of summation."""
    options: dict[str, Any] = LARGE | {"algorithm": algorithm, "place": place}
    options |= {"elements": 32 * MIB}
    undisturbed = job.run(bed, 4, **options).hashes()
    with job.Job(bed, 4) as work:
        work.start(**options)
        cut_in_the_middle(bed, work, "silent")
        work.succeed()
        assert work.hashes() == undisturbed
        assert any(rank.rail("eth1")["failures"] for rank in work.ranks)


def test_reproducible(bed: Testbed) -> None:
    """Reproducible sums have the same bits with any algorithm, also if a cable is cut."""
    options: dict[str, Any] = LARGE | {"elements": 32 * MIB, "reproducible": 1}
    results = [
        job.run(bed, 3, algorithm=algorithm, **options).hashes()
        for algorithm in ("recursive-doubling", "halving-doubling")
    ]
    with job.Job(bed, 3) as work:
        work.start(**options)
        cut_in_the_middle(bed, work, "silent")
        work.succeed()
        assert [work.hashes()] * 2 == results
        assert any(rank.rail("eth1")["failures"] for rank in work.ranks)


def await_loss(rank: job.Rank, rail: str) -> None:
    rank.process.wait_for(rf"the link to .* on {rail} is down", job.PATIENCE)


def test_cut_one_after_the_other(
    bed: Testbed, monkeypatch: pytest.MonkeyPatch, undisturbed: list[str]
) -> None:
    """Two hosts lose different rails in one operation, but each pair of hosts always has a rail."""
    monkeypatch.setenv("NEZHA_LOG", "info")
    with job.Job(bed, 3) as work:
        work.start(algorithm="ring", **LARGE)
        work.well_into_it(0, "eth0")
        bed.cut(0, "eth0")
        await_loss(work.ranks[0], "eth0")
        bed.heal(0, "eth0")
        bed.cut(1, "eth1", "silent")
        assert not work.ranks[1].done, "the cut came too late"
        work.succeed()
        assert work.hashes() == undisturbed


@pytest.mark.parametrize("rail", RAILS)
@pytest.mark.parametrize("how", WAYS_TO_CUT)
def test_cut_and_heal_between(bed: Testbed, how: str, rail: str) -> None:
    """Small operations go on over the other rail, and use the healed rail again.

    By default the log reports both events, with the ranks.
    """
    with job.Job(bed, 4) as work:
        sizes = f"1,1000,{MIB // 4}"
        work.start(
            elements=sizes, until=work.stop_file, pause="0:5", rails=BOTH, timeout=FAILS_OVER
        )
        work.all_done(12)
        bed.cut(1, rail, how)
        work.all_done(30)
        bed.heal(1, rail)
        carried = work.ranks[1].rail(rail)["sent"]
        job.await_that(
            f"host 1 sends by {rail} again",
            lambda: work.ranks[1].rail(rail)["sent"] > carried + 4 * MIB,
            tell=work.told,
        )
        work.stop()
        work.succeed()
        link = rf"nezha warning \[[^]]*\]: the link to rank \d of 4 \(.*\) on {rail} is "
        assert re.search(f"(?s){link}down: (?![A-Z_]+:).*{link}up again\n", work.ranks[1].process.stderr)


def test_cut_while_nobody_calls(bed: Testbed) -> None:
    """A cable is cut while all ranks compute."""
    with job.Job(bed, 3) as work:
        work.start(elements="1000", operations=5, pause="700:700", rails=BOTH, timeout=FAILS_OVER)
        work.all_done(2)
        bed.cut(2, "eth0", "silent")
        work.succeed()


def test_all_cables_of_a_host_and_back(bed: Testbed, monkeypatch: pytest.MonkeyPatch) -> None:
    """While a host has no rail, the operation waits. Its result is right."""
    monkeypatch.setenv("NEZHA_LOG", "info")
    with job.Job(bed, 3) as work:
        work.start(algorithm="ring", **LARGE)
        work.well_into_it(1, "eth1")
        for rail in RAILS:
            bed.cut(1, rail)
        for rail in RAILS:
            await_loss(work.ranks[1], rail)
        assert not work.ranks[1].done, work.told()
        for rail in RAILS:
            bed.heal(1, rail)
        work.succeed()


def test_all_cables_of_a_host(bed: Testbed) -> None:
    """If no rail reaches a host any more, the error at the deadline names its rank."""
    with job.Job(bed, 3) as work:
        options: dict[str, Any] = {"algorithm": "ring", "rails": BOTH, "timeout": 3000}
        work.start(elements=1000, until=work.stop_file, pause="0:5", **options)
        work.all_done(10)
        for rail in RAILS:
            bed.cut(1, rail, "silent")
        work.wait()
        for rank in work.ranks:
            error = rank.wait_for("error")
            assert error["seconds"] < 3 + job.SLACK
            others = "rank [02]" if rank.number == 1 else "rank 1"
            assert re.search(others, without_prefix(error["what"])), error
            # The rank that is cut off may first learn of it from another rank.
            assert set(error["ranks"]) <= {0, 2} if rank.number == 1 else error["ranks"] == [1], error


# ---- a rank -----------------------------------------------------------------------------------


def without_prefix(what: str) -> str:
    """The text of an error after "nezha: rank R of N: ", which names the rank that throws."""
    prefix = re.match(r"nezha: rank \d+ of \d+: ", what)
    assert prefix, what
    return what[prefix.end() :]


def check_errors_name(ranks: list[job.Rank], dead: int, within: float) -> None:
    """Each of these ranks throws before the deadline, and its error names the dead rank."""
    deadline = time.monotonic() + within
    for rank in ranks:
        error = rank.wait_for("error", timeout=max(0.0, deadline - time.monotonic()))
        assert error["type"] == "IoError", error
        assert re.search(rf"\brank {dead}\b", without_prefix(error["what"])), error
        assert error["ranks"] == [dead], error
    for rank in ranks:
        assert rank.process.wait(5) == 1  # the program then ends normally


@pytest.mark.parametrize("algorithm", ["ring", "recursive-doubling", "bcube"])
@pytest.mark.parametrize("elements", [100, 16 * MIB])
@pytest.mark.parametrize("victim", [0, 3])
def test_killed_rank(bed: Testbed, victim: int, elements: int, algorithm: str) -> None:
    with job.Job(bed, 5) as work:
        work.start(elements=elements, until=work.stop_file, algorithm=algorithm, rails=BOTH)
        for rank in work.ranks:
            rank.wait_for("start", operation=0)
        if elements == 100:
            work.all_done(20)
        work.ranks[victim].process.kill()
        others = [rank for rank in work.ranks if rank.number != victim]
        check_errors_name(others, victim, job.SLACK)


def test_killed_while_the_others_wait_for_it(bed: Testbed) -> None:
    with job.Job(bed, 4) as work:
        work.start(elements=1000, operations=4, late="2:3:30000", rails=BOTH)
        others = [rank for rank in work.ranks if rank.number != 2]
        for rank in others:
            rank.wait_for("start", operation=3)
        work.ranks[2].process.kill()
        check_errors_name(others, 2, job.SLACK)


def test_killed_while_nobody_calls(bed: Testbed) -> None:
    """The next call fails at once."""
    with job.Job(bed, 3) as work:
        work.start(elements=1000, operations=3, pause="1500:1500", rails=BOTH)
        work.all_done(1)
        work.ranks[1].process.kill()
        others = [work.ranks[0], work.ranks[2]]
        check_errors_name(others, 1, 1.5 + job.SLACK)
        for rank in others:
            assert rank.wait_for("error")["seconds"] < job.SLACK


def test_killed_before_it_joins(bed: Testbed) -> None:
    """The rank has published no record, so the others learn nothing of it before their deadline."""
    with job.Job(bed, 3) as work:
        options: dict[str, Any] = {
            "elements": 1000,
            "algorithm": "ring",
            "rails": BOTH,
            "timeout": 1000,
        }
        work.start(hosts=[0, 2], **options)
        [late] = work.start(hosts=[1], delay="30000:30000", **options)
        late.process.kill()
        check_timeouts_name([work.ranks[0], work.ranks[2]], late.number, 1)


# In a ring of three, each rank waits for all others.
WAITING_FOR_ALL: dict[str, Any] = {
    "elements": 100000,
    "algorithm": "ring",
    "rails": BOTH,
    "timeout": 2000,
}


def check_timeouts_name(ranks: list[job.Rank], missing: int, seconds: float) -> None:
    errors = [rank.wait_for("error", timeout=seconds + 10) for rank in ranks]
    assert any(error["type"] == "TimeoutError" for error in errors), errors
    for error in errors:
        assert error["seconds"] < seconds + job.SLACK, errors
        assert re.search(rf"\brank {missing}\b", without_prefix(error["what"])), errors
        assert error["ranks"] == [missing], errors


def test_stopped_rank(bed: Testbed) -> None:
    """A stopped rank is not dead, so the others wait for it until their deadline."""
    with job.Job(bed, 3) as work:
        work.start(until=work.stop_file, **WAITING_FOR_ALL)
        work.all_done(20)
        work.ranks[1].process.kill(signal.SIGSTOP)
        check_timeouts_name([work.ranks[0], work.ranks[2]], 1, 2)


@pytest.mark.parametrize(("ranks", "missing"), [(2, 1), (3, 0), (3, 1)])
def test_rank_that_never_enters(bed: Testbed, ranks: int, missing: int) -> None:
    """If all ranks but one have entered, the error at the deadline names the missing rank."""
    with job.Job(bed, ranks) as work:
        work.start(operations=3, late=f"{missing}:2:30000", **WAITING_FOR_ALL)
        others = [rank for rank in work.ranks if rank.number != missing]
        check_timeouts_name(others, missing, 2)


@pytest.mark.parametrize("algorithm", job.ALGORITHMS)
def test_rank_that_never_enters_behind_others(bed: Testbed, algorithm: str) -> None:
    """Some ranks wait for the missing rank only through others. All errors come by the deadline and
    name it."""
    with job.Job(bed, 5) as work:
        options: dict[str, Any] = WAITING_FOR_ALL | {"algorithm": algorithm}
        work.start(operations=3, late="2:2:30000", **options)
        others = [rank for rank in work.ranks if rank.number != 2]
        check_timeouts_name(others, 2, 2)
        for rank in others:
            assert "rank 2 has not entered" in rank.wait_for("error")["what"], rank.told()


def test_ranks_that_never_enter(bed: Testbed) -> None:
    """The error of a rank that times out names all missing ranks, also those with which it
    exchanges no data."""
    with job.Job(bed, 5) as work:
        options: dict[str, Any] = WAITING_FOR_ALL | {"operations": 3}
        work.start([0, 3], **options)
        for host in (1, 2, 4):
            work.start([host], late=f"{host}:2:30000", **options)
        for rank in (work.ranks[0], work.ranks[3]):
            error = rank.wait_for("error", timeout=12)
            assert "ranks 1, 2, 4 have not entered" in error["what"], work.told()
            assert error["ranks"] == [1, 2, 4], work.told()


@pytest.mark.parametrize(
    ("soon", "late"), [([1, 3], [0, 4]), ([1], [0, 3])], ids=["who sends", "who asks the store"]
)
def test_rank_that_never_joins_behind_others(
    bed: Testbed, soon: list[int], late: list[int]
) -> None:
    """Ranks that have timed out tell the others, whose deadlines are far away."""
    with job.Job(bed, len(soon + late) + 1) as work:
        options: dict[str, Any] = {"elements": 1000, "algorithm": "ring", "rails": BOTH}
        work.start(soon, timeout=1000, **options)
        work.start(late, timeout=20000, **options)
        for rank in work.ranks:
            error = rank.wait_for("error", timeout=10)
            assert re.search(r"\brank 2\b", without_prefix(error["what"])), work.told()
            assert error["ranks"] == [2], work.told()


# ---- connections from other programs ----------------------------------------------------------

# Connects COUNT times to each ADDRESS:PORT, sends something or nothing, and keeps the connections.
STRANGER = """
import os, socket, struct, sys, time
kept = []
for target in sys.argv[2:]:
    address, _, port = target.rpartition(":")
    for i in range(int(sys.argv[1])):
        s = socket.create_connection((address.strip("[]"), int(port)), timeout=5)
        if i % 4 == 1:
            s.sendall(os.urandom(1 + 50 * i))
        elif i % 4 == 2:
            s.sendall(b"GET / HTTP/1.1\\r\\n\\r\\n")
        elif i % 4 == 3:
            s.sendall(b"x")
            if i % 8 == 3:  # ends in a reset
                s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                s.close()
                continue
        kept.append(s)
print("connected", flush=True)
time.sleep(60)
"""


def listeners(bed: Testbed, host: int) -> list[str]:
    lines = bed.exec(host, ["ss", "-Hltn"]).stdout.splitlines()
    # ADDRESS%INTERFACE:PORT
    return [re.sub(r"%\w+", "", line.split()[3]) for line in lines]


@pytest.mark.parametrize("early", [True, False], ids=["before", "between"])
def test_strangers(bed: Testbed, early: bool) -> None:
    """Connections from other programs disturb no rank, whatever they send."""
    with job.Job(bed, 3) as work:
        options: dict[str, Any] = {
            "elements": f"1,1000,{MIB}",
            "until": work.stop_file,
            "rails": BOTH,
        }
        work.start(hosts=[0, 1], pause="0:3", timeout=20000, **options)
        for rank in work.ranks:
            rank.wait_for("joined")
        if not early:
            work.start(hosts=[2], **options)
            work.all_done(3)
        targets = listeners(bed, 0)
        assert len(targets) >= len(RAILS)
        [stranger] = bed.start(["/usr/bin/python3", "-c", STRANGER, "80", *targets], on=[3])
        stranger.wait_for("connected")
        if early:
            work.start(hosts=[2], **options)
        work.all_done(10)
        stranger.kill()
        work.all_done(5)
        work.stop()
        work.succeed()
        assert not any(rank.rail(rail)["failures"] for rank in work.ranks for rail in RAILS)
