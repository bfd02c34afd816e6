# SPDX-License-Identifier: Apache-2.0
"""What the log says, and who wrote each line: by default, with NEZHA_LOG and in NEZHA_LOG_FILE."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import job
import pytest
from testbed import Testbed

RAILS = {"eth0": "500mbit", "eth1": "250mbit"}
HOSTS = 2
PER_HOST = 2
RANKS = HOSTS * PER_HOST
LINE = re.compile(
    r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} nezha (?P<level>\w+) "
    r"\[(?P<rank>rank \d+ of \d+), host (?P<host>\S+), pid (?P<pid>\d+)\]: (?P<text>.*)"
)


@pytest.fixture(scope="module")
def bed() -> Iterator[Testbed]:
    with Testbed(hosts=HOSTS, rails=RAILS) as bed:
        yield bed


def lines(log: str) -> list[re.Match[str]]:
    """Parses the lines of a log. Each has a time, a level, a writer and a message."""
    found = [(line, LINE.fullmatch(line)) for line in log.splitlines()]
    assert all(match for _, match in found), [line for line, match in found if not match]
    return [match for _, match in found if match]


def run(bed: Testbed, env: dict[str, str], **options: object) -> job.Job:
    settings = {"rails": job.rails_option(RAILS), "elements": "1,1000"} | options
    return job.run(bed, RANKS, PER_HOST, env=env, **settings)


def test_each_line_says_who(bed: Testbed) -> None:
    """Lines about a context name their writer, and so do lines about the connections that all
    contexts of a process share."""
    work = run(bed, {"NEZHA_LOG": "debug"})
    for rank in work.ranks:
        said = lines(rank.process.stderr)
        assert {match["rank"] for match in said} == {f"rank {rank.number} of {RANKS}"}
        assert len({(match["host"], match["pid"]) for match in said}) == 1
        assert any(match["text"].startswith("the link to ") for match in said), rank.told()
        assert not any(match["text"].startswith(match["rank"]) for match in said), rank.told()
    assert len({lines(rank.process.stderr)[0]["pid"] for rank in work.ranks}) == RANKS


def test_links_are_named_by_their_ranks(bed: Testbed) -> None:
    """The log names a link by the peer's rank, also if that is unknown when the peer connects."""
    work = run(bed, {"NEZHA_LOG": "info"}, algorithm="ring")
    for rank in work.ranks:
        up = [match["text"] for match in lines(rank.process.stderr) if " is up" in match["text"]]
        named = rf"the link to rank \d of {RANKS} \(h\d, pid \d+\) on eth[01] is up"
        assert all(re.fullmatch(named, text) for text in up), up
        for peer in ((rank.number + 1) % RANKS, (rank.number - 1) % RANKS):
            for rail in RAILS:
                link = f"the link to rank {peer} of {RANKS} "
                assert any(text.startswith(link) and f" on {rail} " in text for text in up), up


def test_a_file_for_each_rank(bed: Testbed, tmp_path: Path) -> None:
    """The second run appends to the files of the first; standard error stays empty."""
    for run_number in (1, 2):
        pattern = f"{tmp_path}/%h%%-%r.log"
        work = run(bed, {"NEZHA_LOG": "info", "NEZHA_LOG_FILE": pattern})
        assert not any(rank.process.stderr for rank in work.ranks), work.told()
        files = sorted(tmp_path.iterdir())
        names = [re.fullmatch(r".+%-(\d)\.log", file.name) for file in files]
        assert [name[1] for name in names if name] == [str(rank) for rank in range(RANKS)], files
        for rank, file in enumerate(files):
            said = lines(file.read_text())
            assert {match["rank"] for match in said} == {f"rank {rank} of {RANKS}"}
            assert len({match["pid"] for match in said}) == run_number


def test_one_file_for_all(bed: Testbed, tmp_path: Path) -> None:
    """The file has whole lines of all ranks."""
    file = tmp_path / "log"
    run(bed, {"NEZHA_LOG": "trace", "NEZHA_LOG_FILE": str(file)}, elements="1,100000")
    said = lines(file.read_text())
    assert {match["rank"] for match in said} == {f"rank {rank} of {RANKS}" for rank in range(RANKS)}


def test_a_file_that_cannot_be_written(bed: Testbed, tmp_path: Path) -> None:
    """The operations go on, and the log goes where it would go without the file."""
    work = run(bed, {"NEZHA_LOG": "info", "NEZHA_LOG_FILE": f"{tmp_path}/none/%r"})
    for rank in work.ranks:
        first, *others = lines(rank.process.stderr)
        assert first["level"] == "warning"
        assert f"{tmp_path}/none/{rank.number} cannot be opened: No such file" in first["text"]
        assert "NEZHA_LOG_FILE" in first["text"] and others


def test_a_bad_name_of_a_file(bed: Testbed) -> None:
    with job.Job(bed, 1) as work:
        env = {"NEZHA_LOG_FILE": "/tmp/%q"}
        work.start([0], env=env, rails=job.rails_option(RAILS), elements=1)
        what = work.ranks[0].wait_for("error")["what"]
        assert "the environment variable NEZHA_LOG_FILE is '/tmp/%q'; it may be" in what
        assert "%r stands for the rank" in what
        work.wait()


def test_what_a_context_is(bed: Testbed) -> None:
    """A new context logs once: the version, its settings, and each rail with its address."""
    rails = "tcp:eth0,tcp:eth1?rail=blue"
    work = run(bed, {"NEZHA_LOG": "info"}, rails=rails, plan="slice", shares="3,1", timeout=12500)
    for rank in work.ranks:
        said = [match["text"] for match in lines(rank.process.stderr)]
        settings = "plan slice, shares 3,1, policy none, algorithm auto, timeout 12.5s"
        made = re.compile(rf"the context is made, by nezha [\d.]+: {settings}, rails eth0, blue")
        assert sum(bool(made.fullmatch(text)) for text in said) == 1, rank.told()
        host = rank.number // PER_HOST
        for name, interface in {"eth0": "eth0", "blue": "eth1"}.items():
            address = re.escape(bed.rail(interface).address(host))
            # The driver of a veth reports a meaningless number.
            what = rf"rail {name}: interface {interface}, address {address}:\d+, unknown rate"
            assert sum(bool(re.fullmatch(what, text)) for text in said) == 1, (what, rank.told())


def test_an_interface_of_unknown_rate(bed: Testbed) -> None:
    with job.Job(bed, PER_HOST, PER_HOST) as work:
        work.start([0], env={"NEZHA_LOG": "info"}, rails="tcp:lo", elements=1)
        work.succeed()
        for rank in work.ranks:
            said = [match["text"] for match in lines(rank.process.stderr)]
            [rail] = [text for text in said if text.startswith("rail lo: ")]
            what = r"rail lo: interface lo, address 127\.0\.0\.1:\d+, unknown rate"
            assert re.fullmatch(what, rail), rail


def test_what_the_balancer_decides(bed: Testbed) -> None:
    """Rank 0 logs its decisions and the reasons; every rank logs which plan it uses."""
    work = run(bed, {"NEZHA_LOG": "debug"}, elements=64 << 10, operations=100, plan="auto")
    of_rank = [[match["text"] for match in lines(rank.process.stderr)] for rank in work.ranks]
    decisions = [text for text in of_rank[0] if text.startswith("balancer: ")]
    change = re.compile(
        r"balancer: messages of 256 KiB to 512 KiB go from .*%.* to .*%.* \([a-z]+: [^()]+\); "
        r"measured over \d+ operations of 262144 bytes: .*\(.* MB/s\); rates known: .*eth1.*"
    )
    assert any(change.fullmatch(text) for text in decisions), work.ranks[0].told()
    taken = r"takes plan \d+: messages of 256 KiB to 512 KiB go as .*%, algorithm [a-z][a-z-]*"
    plans = [[text for text in said if re.fullmatch(taken, text)] for said in of_rank]
    fewest = min(map(len, plans))  # the last plan may reach some ranks after they have ended
    assert fewest and all(each[:fewest] == plans[0][:fewest] for each in plans), work.told()
    assert not any(text.startswith("balancer: ") for said in of_rank[1:] for text in said)
    assert "algorithm algorithm" not in "".join(rank.process.stderr for rank in work.ranks)
