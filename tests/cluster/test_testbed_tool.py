# SPDX-License-Identifier: Apache-2.0
"""The testbed's command line, for root and other users. A testbed leaves nothing behind."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from probes import PYTHON, ping, silence, start_echo
from processes import session_members
from state import take_down
from system_tools import BedError, tool, wait_until
from testbed import Testbed
from traces import TESTBED, TOOL, cli, no_traces, processes_with, traces

NOBODY = 65534
NESTED = ["unshare", "--user", f"--map-user={NOBODY}", f"--map-group={NOBODY}"]


@pytest.fixture
def prefix(request: pytest.FixtureRequest) -> Iterator[str]:
    """A prefix for a testbed of the command line. The fixture takes down what the test leaves."""
    name = f"nzt{os.getpid()}"
    yield name
    take_down(name)


# ---- the command line -------------------------------------------------------------------------


def test_command_line(prefix: str) -> None:
    rails = ["--rail", "eth0=200mbit", "--rail", "eth1=none"]
    assert cli("-p", prefix, "up", "--hosts", "2", *rails, "--ranks-per-host", "2").returncode == 0
    assert all(traces(prefix)[kind] for kind in ("namespaces", "state"))
    assert not traces(prefix)["guards"]

    done = cli("-p", prefix, "run", "sh", "-c", "echo o$RANK; printf e$RANK >&2")
    assert sorted(done.stdout.split("\n")) == ["", "[0] o0", "[1] o1", "[2] o2", "[3] o3"]
    assert sorted(done.stderr.split("\n")) == ["", "[0] e0", "[1] e1", "[2] e2", "[3] e3"]
    done = cli("-p", prefix, "run", "--only-rank", "1", "sh", "-c", "echo o$RANK; echo e >&2")
    assert done.stdout == "o1\n"
    assert sorted(done.stderr.split()) == sorted("[0] e [1] e [2] e [3] e".split())
    done = cli("-p", prefix, "run", "--raw", "--on", "1", "--", "sh", "-c", "echo o$LOCAL_RANK")
    assert sorted(done.stdout.split()) == ["o0", "o1"]
    done = cli("-p", prefix, "run", "sh", "-c", "[ $RANK = 3 ] && exit 7; exec sleep 100")
    assert done.returncode == 7
    assert "rank 3 (host 1) failed (7)" in done.stderr
    assert cli("-p", prefix, "run", "sh", "-c", "kill -9 $$").returncode == 128 + 9
    assert cli("-p", prefix, "run", "--timeout", "0.3", "sleep", "100").returncode == 124
    assert cli("-p", prefix, "exec", "1", "sh", "-c", "echo $HOST; exit 4").stdout == "1\n"
    assert cli("-p", prefix, "exec", "sw", "sh", "-c", "exit 4").returncode == 4

    with_state = Testbed.attach(prefix)
    start_echo(with_state)
    address = with_state.rail("eth0").address(1)
    assert cli("-p", prefix, "cut", "--how", "silent", "1", "eth0").returncode == 0
    assert silence(with_state, 0, address, "eth0")
    assert cli("-p", prefix, "heal", "1", "eth0").returncode == 0
    assert ping(with_state, 0, address, "eth0")
    assert cli("-p", prefix, "loss", "eth0", "100").returncode == 0
    assert silence(with_state, 0, address, "eth0")
    assert cli("-p", prefix, "loss", "eth0", "0").returncode == 0
    assert ping(with_state, 0, address, "eth0")
    assert cli("-p", prefix, "set-rate", "eth0", "50mbit", "0").returncode == 0
    status = cli("-p", prefix, "status").stdout
    assert re.search(r"h0 10\.0\.0\.1 up\n    up   50 mbit", status)
    assert re.search(r"h1 10\.0\.0\.2 up\n    up   200 mbit", status)
    assert re.search(r"h1 10\.1\.0\.2 up\n    up   unshaped", status)

    assert cli("-p", prefix, "down").returncode == 0
    assert no_traces(prefix) == {}
    assert cli("-p", prefix, "status").returncode == 2
    assert cli("-p", prefix, "down").returncode == 0  # there is no such testbed


def test_with(prefix: str) -> None:
    build = ["-p", prefix, "with", "--hosts", "2", "--rail", "eth0=200mbit"]
    done = cli(*build, "--", "sh", "-c", f"{TOOL} run hostname; exit 6")
    assert done.returncode == 6, done.stderr
    assert sorted(done.stdout.splitlines()) == ["[0] h0", "[1] h1"]
    assert no_traces(prefix) == {}
    done = cli(*build, "--timeout", "0.5", "--", "sleep", "100")
    assert done.returncode == 124
    assert no_traces(prefix) == {}


@pytest.mark.parametrize("sig", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_with_cleans_up_however_it_ends(prefix: str, sig: signal.Signals) -> None:
    mark = f"{prefix}.{sig.name}"  # an argument that identifies the processes
    job = "trap '' TERM; echo up; while :; do sleep 0.1; done"
    cmd = [TOOL, "run", "--timeout", "30", "sh", "-c", job, mark]
    build = ["-p", prefix, "with", "--hosts", "2", "--rail", "eth0=200mbit", "--"]
    tool = subprocess.Popen([PYTHON, TOOL, *build, *cmd], stdout=subprocess.PIPE, text=True)
    assert tool.stdout
    with tool.stdout as out:
        assert {out.readline(), out.readline()} == {"[0] up\n", "[1] up\n"}
        found = traces(prefix)
        assert all(found.values()), found  # otherwise their end would prove nothing
        assert len(processes_with(mark)) >= 4  # with, run, and two ranks
        tool.send_signal(sig)
        assert tool.wait(20) == (-sig if sig == signal.SIGKILL else 128 + sig)
    assert no_traces(prefix) == {}
    assert wait_until(lambda: not processes_with(mark), 5)


def test_api_is_guarded_too(prefix: str, tmp_path: Path) -> None:
    script = tmp_path / "killed.py"
    script.write_text(
        "import os, signal, sys\n"
        f"sys.path.insert(0, {str(TESTBED)!r})\n"
        "from testbed import Testbed\n"
        f"bed = Testbed(2, {{'eth0': '1gbit'}}, prefix={prefix!r})\n"
        "bed.up()\n"
        "bed.start(['sleep', '100'])\n"
        "print('up', flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([PYTHON, script], stdout=subprocess.PIPE, text=True, timeout=30)
    assert (done.returncode, done.stdout) == (-signal.SIGKILL, "up\n")
    assert no_traces(prefix) == {}


def test_context_manager_leaves_nothing() -> None:
    with Testbed(hosts=2, rails={"eth0": "1gbit"}) as bed:
        for rank in bed.start(["sh", "-c", "echo up; exec sleep 100"]):
            rank.wait_for("up")
        found = traces(bed.prefix)
        assert all(found.values()), found
        assert len(found["processes inside"]) == 2
    assert {kind: left for kind, left in traces(bed.prefix).items() if left} == {}


def test_ranks_that_have_hardly_started_end_too() -> None:
    with Testbed(hosts=2, rails={"eth0": "none"}) as bed:
        sessions = {rank.pid for rank in bed.start(["sh", "-c", "sleep 100; true"])}
        assert set(session_members(sessions)) >= sessions
    assert session_members(sessions) == []


def test_a_failed_build_leaves_nothing() -> None:
    bed = Testbed(hosts=2, rails={"eth0": "1gbit"}, mtu=9)
    with pytest.raises(BedError, match="mtu"):
        bed.up()
    assert {kind: left for kind, left in traces(bed.prefix).items() if left} == {}


def test_a_prefix_is_used_once(prefix: str) -> None:
    with Testbed(hosts=2, rails={"eth0": "none"}) as first:
        with pytest.raises(BedError, match="is up already"):
            Testbed(hosts=1, rails={"eth0": "none"}, prefix=first.prefix).up()
        first.run(["true"])  # the second try did not affect it
    build = ["up", "--hosts", "1", "--rail"]
    assert cli("-p", prefix, *build, "eth0=none").returncode == 0
    assert cli("-p", prefix, *build, "eth1=none").returncode == 2
    assert cli("-p", prefix, *build, "eth1=none", "--force").returncode == 0
    assert Testbed.attach(prefix).environment(0)["RAILS"] == "eth1"


# ---- without root -----------------------------------------------------------------------------


@pytest.fixture
def anywhere() -> Iterator[Path]:
    """A copy of the testbed that every user can read.

    It is not in pytest's own folder, which other pytest sessions close to all but its owner.
    """
    tests = [Path(__file__).with_name(name) for name in ("probes.py", "test_testbed.py")]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        for file in [TESTBED / "testbed", *TESTBED.glob("*.py"), *tests]:
            shutil.copy(file, folder)
        yield folder


def as_ordinary_user(*cmd: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Runs as another user with setpriv; in a sandbox, which knows only one user, in another user
    namespace."""
    nested = int(Path("/proc/self/uid_map").read_text().split()[2]) == 1
    if nested:
        become = NESTED
    else:
        ids = [f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
        become = [tool("setpriv"), *ids]
    bare = {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"}  # without sbin
    return subprocess.run(
        [*become, *cmd], capture_output=True, text=True, timeout=60, cwd=cwd, env=bare
    )


def test_with_as_an_ordinary_user(anywhere: Path) -> None:
    prefix = f"nzu{os.getpid()}"
    job = "id -u; ./testbed run hostname; ./testbed cut --how silent 1 eth0; ./testbed status"
    build = ["--hosts", "2", "--rail", "eth0=200mbit", "--cc", "nosuch"]
    done = as_ordinary_user(
        "./testbed", "-p", prefix, "with", *build, "--", "sh", "-c", job, cwd=anywhere
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("0\n")
    assert {"[0] h0", "[1] h1"} <= set(done.stdout.splitlines())
    assert "200 mbit" in done.stdout and "table netdev cut_eth0_h1" in done.stdout
    # The testbed continues without the congestion control, and reports that once.
    assert [line for line in done.stderr.splitlines() if "nosuch" in line] == [
        "testbed: warning: the hosts may not choose TCP congestion control 'nosuch', so they keep"
        " the kernel's default"
    ]
    assert no_traces(prefix) == {}


def test_pytest_as_an_ordinary_user(anywhere: Path) -> None:
    """Runs the tests of real traffic in a sandbox."""
    wanted = "shaped or (cut and silent) or two_ports"
    pytest_cmd = [PYTHON, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", wanted]
    done = as_ordinary_user(
        "./testbed", "sandbox", "--", *pytest_cmd, "test_testbed.py", cwd=anywhere
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 passed" in done.stdout


def test_other_commands_need_root(anywhere: Path) -> None:
    for cmd in (["up", "--hosts", "1", "--rail", "eth0=none"], ["down"], ["run", "true"]):
        done = as_ordinary_user("./testbed", *cmd, cwd=anywhere)
        assert done.returncode == 2
        assert "needs root; as an ordinary user: 'testbed with" in done.stderr


def test_a_kernel_that_gives_no_namespaces() -> None:
    forbid = 'echo 0 > /proc/sys/user/max_user_namespaces; exec "$@"'
    become = [*NESTED, "--keep-caps", "sh", "-c", forbid, "sh"]
    build = ["with", "--hosts", "1", "--rail", "eth0=none", "--", "true"]
    done = subprocess.run(
        [*become, PYTHON, TOOL, *build], capture_output=True, text=True, timeout=30
    )
    assert done.returncode == 2
    assert "gives an ordinary user no namespaces" in done.stderr
    assert "user.max_user_namespaces" in done.stderr


# ---- what it refuses -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["with", "--hosts", "1", "--rail", "eth0=1gbit"], "with: no command given"),
        (["up", "--hosts", "1", "--rail", "e=1gbit", "--rail", "e=none"], "two rails have one"),
        (["up", "--hosts", "x", "--rail", "eth0=1gbit"], "'x' is no number"),
        (["up", "--hosts", "1"], "required: --rail"),
        (["-p", "no-such", "down"], "bad prefix 'no-such'"),
        (["run", "--raw", "--only-rank", "0", "true"], "not allowed with argument --raw"),
    ],
)
def test_bad_command_lines(arguments: Sequence[str], message: str) -> None:
    done = cli(*arguments)
    assert done.returncode == 2
    assert message in done.stderr
