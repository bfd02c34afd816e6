# SPDX-License-Identifier: Apache-2.0
"""The project that replaces Horovod's third_party/gloo.

The library in horovod/ is built with this project as Horovod's own is, and makes the same calls.
The ranks load it into Python as they would load Horovod's.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import job
import pytest
from testbed import Testbed

PREFIX = Path(os.environ.get("INTEROP_PREFIX", job.BUILD / "interop" / "prefix")).resolve()
PROJECT = PREFIX / "share" / "nezha" / "horovod"
SOURCES = Path(__file__).parent / "horovod"
PROGRAM = str(SOURCES / "rank.py")
RAILS = ["eth0", "eth1"]
HOSTS, RANKS_PER_HOST = 2, 2
WARNINGS = "-Wall -Wextra -Werror"
INTERFACES = {"HOROVOD_GLOO_IFACE": ",".join(RAILS)}
ELEMENTS = 2 << 20  # elements of each large sum

# The bits of reductions of NaNs. nezha replaces Gloo's functions by its own operations, but calls
# the program's own functions.
BY_NEZHA = "7fc00000 7fc00000 7fc00000 7fc00000 ffc12345 7ff8000000000000 7e00"
BY_GLOO = "ffc12345 ffc12345 ffc12345 ffc12345 ffc12345 fff8123456789abc"


def configure(
    folder: Path, variables: dict[str, str], linked: bool = False
) -> subprocess.CompletedProcess[str]:
    """Adds the project to a copy of the library's sources, as a user does with Horovod's."""
    shutil.copytree(SOURCES, folder / "source")
    place = folder / "source" / "third_party" / "gloo"
    if linked:
        place.parent.mkdir()
        place.symlink_to(PROJECT)
    else:
        shutil.copytree(PROJECT, place)
    argv = ["cmake", "-G", "Ninja", "-S", str(folder / "source"), "-B", str(folder / "build")]
    argv += ["-DCMAKE_BUILD_TYPE=RelWithDebInfo", f"-DCMAKE_CXX_FLAGS={WARNINGS}"]
    argv += [f"-D{name}={value}" for name, value in variables.items()]
    environment = dict(os.environ) | {"CMAKE_PREFIX_PATH": str(PREFIX)}
    return subprocess.run(argv, capture_output=True, text=True, env=environment)


def build(folder: Path, variables: dict[str, str]) -> Path:
    done = configure(folder, variables)
    assert done.returncode == 0, done.stdout + done.stderr
    argv = ["cmake", "--build", str(folder / "build"), "--parallel", "2", "--target", "training"]
    done = subprocess.run(argv, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "build" / "libtraining.so"


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("library"), {})


@pytest.fixture(scope="module")
def bed() -> Iterator[Testbed]:
    rails = dict.fromkeys(RAILS, "500mbit")
    with Testbed(hosts=HOSTS, rails=rails, ranks_per_host=RANKS_PER_HOST) as bed:
        yield bed


@pytest.fixture(autouse=True)
def healed(bed: Testbed) -> Iterator[None]:
    yield
    bed.heal(1, "eth1")


class Training(job.Job):
    """A job that tells its processes their members, again after each error."""

    def __init__(self, bed: Testbed, library: Path) -> None:
        super().__init__(bed, ranks_per_host=RANKS_PER_HOST, program=PROGRAM)
        self.library = library

    def __enter__(self) -> Training:
        return self

    def set_members(self, generation: int, processes: list[int]) -> None:
        """Tells the job's processes who they are. `processes` is in the order of the ranks."""
        folder = self._store / str(generation)
        folder.mkdir()
        members = {str(each): f"host{each // RANKS_PER_HOST}" for each in processes}
        (folder / "part").write_text(json.dumps(members))
        (folder / "part").rename(folder / "members")

    def begin(self, env: dict[str, str], generations: int = 1) -> None:
        self.set_members(0, list(range(self.size)))
        self.start(env=env, library=self.library, elements=ELEMENTS, generations=generations)

    def join(self, process: int, env: dict[str, str], **options: int) -> None:
        """Starts another process on the first host; for the job, it is on a host of its own."""
        argv = [PROGRAM, "--store", str(self._store), "--library", str(self.library)]
        for name, value in ({"elements": ELEMENTS} | options).items():
            argv += [f"--{name}", str(value)]
        env = env | {"RANK": str(process)}
        self.ranks += map(job.Rank, self.bed.start(argv, on=[0], ranks_per_host=1, env=env))

    def devices(self) -> set[str]:
        """All devices that any rank has made."""
        events = [rank.wait_for("devices") for rank in self.ranks]
        return {event[which] for event in events for which in ("first", "second")}

    def sums(self) -> set[str]:
        return {rank.wait_for("checked")["sums"] for rank in self.ranks}

    def end(self) -> None:
        self.stop()
        self.succeed()


def test_interfaces_that_horovod_is_told(bed: Testbed, library: Path) -> None:
    """All calls give the right results, and messages use each interface of the list.

    Horovod's second device, for process sets, is made without the list.
    """
    with Training(bed, library) as work:
        work.begin(INTERFACES)
        assert work.devices() == {"nezha, rails=tcp:eth0,tcp:eth1"}
        assert work.sums() == {BY_NEZHA}
        for rail in RAILS:
            work.sends_by(0, rail, 1 << 20)
        work.end()


def test_rails_go_before_interfaces(bed: Testbed, library: Path) -> None:
    with Training(bed, library) as work:
        work.begin({"HOROVOD_GLOO_IFACE": "eth0", "NEZHA_RAILS": "tcp:eth1"})
        assert work.devices() == {"nezha, rails=NEZHA_RAILS"}
        assert work.sums() == {BY_NEZHA}
        before = bed.counters(1, "eth0")["tx_bytes"]
        work.sends_by(1, "eth1", 1 << 20)
        assert bed.counters(1, "eth0")["tx_bytes"] - before < 1 << 16
        work.end()


def test_no_interface(bed: Testbed, library: Path) -> None:
    """Gloo's own device is made, on the network to which the host's name resolves."""
    with Training(bed, library) as work:
        work.begin({})
        assert not [device for device in work.devices() if "nezha" in device]
        assert {sums.rpartition(" ")[0] for sums in work.sums()} == {BY_GLOO}
        work.end()


def test_gloo_algorithms(bed: Testbed, library: Path) -> None:
    """The linker finds Gloo's algorithms after the library's, and they run over nezha's device."""
    with Training(bed, library) as work:
        work.begin(INTERFACES | {"NEZHA_GLOO_COLLECTIVES": "gloo"})
        assert work.devices() == {"nezha, rails=tcp:eth0,tcp:eth1"}
        assert {sums.rpartition(" ")[0] for sums in work.sums()} == {BY_GLOO}
        work.end()


@pytest.mark.parametrize("how", ["silent", "carrier"])
def test_cut_in_the_middle(bed: Testbed, library: Path, how: str) -> None:
    """No rank has an error, all sums are right, and the rail is used again when it is back."""
    with Training(bed, library) as work:
        work.begin(INTERFACES)
        work.well_into_it(1, "eth1")
        bed.cut(1, "eth1", how)
        work.all_done(2)
        bed.heal(1, "eth1")
        work.sends_by(1, "eth1", 1 << 20)
        work.all_done(1)
        work.end()


def test_killed_rank(bed: Testbed, library: Path) -> None:
    """The other ranks learn of the death at once. Their processes continue with a new rank."""
    with Training(bed, library) as work:
        work.begin(INTERFACES, generations=2)
        work.all_done(1)
        killed = work.ranks.pop(1)
        killed.process.kill(signal.SIGKILL)
        for rank in work.ranks:
            rank.wait_for("error", timeout=job.SLACK)
        work.join(4, INTERFACES, generation=1, generations=2)
        work.set_members(1, [0, 2, 3, 4])
        work.all_done(2)
        work.end()


def test_second_copy(bed: Testbed, tmp_path: Path) -> None:
    """For C++17 frameworks Horovod uses a copy of the project with another target name."""
    with Training(bed, build(tmp_path, {"COPY_NAME": "compatible17_gloo"})) as work:
        work.begin(INTERFACES)
        assert work.devices() == {"nezha, rails=tcp:eth0,tcp:eth1"}
        assert work.sums() == {BY_NEZHA}
        work.end()


def refusal(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode != 0
    return " ".join(done.stderr.split())


def test_old_abi(tmp_path: Path) -> None:
    """Horovod uses a copy with this name for frameworks that cannot be linked with libgloo."""
    assert "C++ ABI of GCC 4" in refusal(configure(tmp_path, {"COPY_NAME": "compatible_gloo"}))


def test_mpi(tmp_path: Path) -> None:
    assert "Set HOROVOD_WITHOUT_MPI=1" in refusal(configure(tmp_path, {"USE_MPI": "TRUE"}))


def test_symbolic_link(tmp_path: Path) -> None:
    """A link is refused: Horovod's writes to its copies would reach the installed project."""
    assert "put a copy of it here" in refusal(configure(tmp_path, {}, linked=True))
