# SPDX-License-Identifier: Apache-2.0
"""The functions that the benchmark programs have in common: options, building, the sandbox."""

import argparse
import importlib.util
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn

from layout import MAX_HOSTS
from lib.shared import stolen
from lib.shared.progress import Progress
from lib.shared.units import parse_size, size_text
from rails import bits_per_second, parse_rails
from system_tools import BedError

ROOT = Path(__file__).resolve().parents[3]
BUILD = ROOT / "build" / "release"
PROGRAMS = ["nezha-bench", "gloo-bench"]
SWITCH_PROGRAMS = ["nezha-switch", "nezha-manager"]
GLOO_LIBRARY = "nezha_gloo"  # the target; the file is libnezha_gloo.so
PACKAGES = ["build", "bench"]  # groups of tools/packages
RAILS = ["eth0=1gbit", "eth1=1gbit"]
SANDBOX = "TESTBED_SANDBOX"  # an environment variable
NAME = f"bench/{Path(sys.argv[0]).name}"


def warn(message: str) -> None:
    print(f"{NAME}: {message}", file=sys.stderr)


def stop(message: str, status: int = 1) -> NoReturn:
    warn(message)
    sys.exit(status)


# ---- options ----------------------------------------------------------------------------------


def rails_of(words: list[str]) -> dict[str, str]:
    for word in words:
        if "=" not in word:
            raise BedError(f"--rail '{word}': give NAME=RATE, such as {word}=1gbit")
    rails = dict(word.partition("=")[::2] for word in words)
    if len(rails) < len(words):
        raise BedError("two rails have one name")
    return rails


def whole(least: int, most: int) -> Callable[[str], int]:
    def number(text: str) -> int:
        if not text.isdecimal() or not least <= int(text) <= most:
            raise argparse.ArgumentTypeError(f"'{text}' is not a number from {least} to {most}")
        return int(text)

    return number


def check_rails(words: list[str]) -> dict[str, str]:
    """Returns the rails for Testbed, as rails_of() does; ends the program if they are not valid."""
    try:
        rails = rails_of(words)
        parse_rails(rails)
    except BedError as error:
        stop(str(error), 2)
    return rails


def rates_of(rails: dict[str, str]) -> dict[str, int | None]:
    """Returns the bits per second by rail, and None for a rail that is not shaped."""
    return {
        rail.name: None if rail.rate == "none" else bits_per_second(rail.rate)
        for rail in parse_rails(rails)
    }


def sizes_of(text: str) -> list[int]:
    return sorted({parse_size(word) for word in text.split(",")})


def network_of(text: str) -> dict[str, str]:
    """Returns the rails of a configuration: `text` has their rates joined by +, and RATExN is N of them."""
    rates: list[str] = []
    for word in text.split("+"):
        times = re.fullmatch(r"(.+)x([1-9][0-9]?)", word)
        rates += [times[1]] * int(times[2]) if times else [word]
    rails = {f"eth{index}": rate for index, rate in enumerate(rates)}
    try:
        parse_rails(rails)
    except BedError as error:
        raise argparse.ArgumentTypeError(f"'{text}': {error}") from None
    return rails


def networks_of(text: str) -> dict[str, dict[str, str]]:
    return {word: network_of(word) for word in text.split(",")}


def add_common(add: Callable[..., argparse.Action]) -> None:
    add_rails(add)
    add_common_but_rails(add)


def add_rails(add: Callable[..., argparse.Action]) -> None:
    add("--rail", action="append", metavar="NAME=RATE", help="a rail; repeat it for each")


def add_common_but_rails(add: Callable[..., argparse.Action]) -> None:
    add_hosts(add, 4, "hosts, a rank on each")
    add_place(add)


def add_hosts(add: Callable[..., argparse.Action], default: int, about: str) -> None:
    number = whole(2, MAX_HOSTS)
    add("--hosts", type=number, default=default, metavar="N", help=about)


def rate(text: str) -> str:
    """Checks a rate, which is written as for tc, and returns it."""
    try:
        bits_per_second(text)
    except BedError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text


def some_of(known: Sequence[str]) -> Callable[[str], list[str]]:
    """Returns a parser of a list of words, which puts them in the order of the known ones."""

    def chosen(text: str) -> list[str]:
        words = text.split(",")
        unknown = [word for word in words if word not in known]
        if unknown:
            raise argparse.ArgumentTypeError(f"'{unknown[0]}' (there are {', '.join(known)})")
        return [word for word in known if word in words]

    return chosen


def percent(text: str) -> float:
    """Returns a percentage as a part of 1."""
    try:
        value = float(text.removesuffix("%"))
    except ValueError:
        value = -1
    if not 0 <= value <= 100:
        raise argparse.ArgumentTypeError(f"'{text}' is not a percentage from 0 to 100")
    return value / 100


def add_most_stolen(add: Callable[..., argparse.Action]) -> None:
    add(
        "--most-stolen",
        type=percent,
        default=1.0,
        metavar="PERCENT",
        help="on a virtual machine: a run during which its host took more of the CPU time is made"
        f" again, {stolen.TRIES} times at most, after a rest (100: none is)",
    )


def add_place(add: Callable[..., argparse.Action]) -> None:
    add("--out", type=Path, default=ROOT / "bench" / "out", metavar="DIR", help="bench/out")
    add("--no-build", action="store_true", help="install and build nothing, use what is there")


def memory_of(hosts: int, size: int) -> int:
    """Returns the bytes for each rank's input, its output, and as much again for messages in flight."""
    return 3 * hosts * size


def check_memory(hosts: int, size: int, option: str) -> None:
    needed = memory_of(hosts, size)
    lines = Path("/proc/meminfo").read_text().splitlines()
    free = next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable:")) << 10
    if needed > free:
        stop(
            f"{option}: {size_text(size)} on {hosts} hosts takes about {size_text(needed)} of"
            f" memory; {size_text(free)} is free",
            2,
        )


def check_writable(folder: Path, option: str = "") -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        what = f"{option} {folder}".strip()
        advice = "" if option else ": be its owner, or use a copy of the sources that is yours"
        stop(f"cannot write to {what} ({error.strerror}){advice}", 2 if option else 1)


# ---- what is needed ---------------------------------------------------------------------------


def try_to_install(groups: Sequence[str]) -> int:
    """Runs tools/install-packages, which says what is wrong, and returns its exit status."""
    return subprocess.run([ROOT / "tools" / "install-packages", *groups], cwd=ROOT).returncode


def install_packages(groups: Sequence[str]) -> None:
    status = try_to_install(groups)
    if status:
        sys.exit(status)


def build(targets: Sequence[str], progress: Progress) -> None:
    """Builds the targets. It shows only the last line of the output, unless the build fails."""
    for step in (
        ["cmake", "--preset", "release"],
        ["cmake", "--build", str(BUILD), "--target", *targets],
    ):
        progress.say(f"build: {' '.join(step[:3])}")
        lines = []
        with subprocess.Popen(
            step, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        ) as process:
            assert process.stdout
            for line in process.stdout:
                lines.append(line)
                progress.show(f"build: {line.strip()}")
        progress.clear()
        if process.returncode:
            stop("the build failed:\n" + "".join(lines[-40:]))


def path_of(program: str) -> Path:
    if program == GLOO_LIBRARY:
        return BUILD / "interop" / f"lib{GLOO_LIBRARY}.so"
    return BUILD / ("flare_offload" if program in SWITCH_PROGRAMS else "bench") / program


def check_programs(programs: Sequence[str]) -> None:
    for path in map(path_of, programs):
        if not os.access(path, os.X_OK):
            raise BedError(f"{path} is not there; run without --no-build")


def can_draw() -> bool:
    return importlib.util.find_spec("matplotlib") is not None


def check_what_is_needed(programs: Sequence[str], draws: bool) -> None:
    if draws and not can_draw():
        stop("python3-matplotlib is not installed; run without --no-build", 3)
    try:
        check_programs(programs)
    except BedError as error:
        stop(str(error))


def prepare(
    no_build: bool,
    progress: Progress,
    packages: Sequence[str] = PACKAGES,
    programs: Sequence[str] = PROGRAMS,
    needed: Sequence[str] = PROGRAMS,
    draws: bool = True,
) -> None:
    """Installs and builds.

    It ends the program if one of those `needed` is not there, or if the program `draws` and cannot.
    """
    # These signals exit, because every exit takes the testbed down.
    for sig in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(sig) != signal.SIG_IGN:  # nohup ignores SIGHUP
            signal.signal(sig, lambda number, frame: sys.exit(128 + number))
    if not no_build:
        check_writable(BUILD)
        install_packages(packages)
        build(programs, progress)
    check_what_is_needed(needed, draws)


def is_sandboxed() -> bool:
    """Returns whether become_root() has started this program anew."""
    return SANDBOX in os.environ


def become_root(argv: Sequence[str]) -> None:
    """Starts the program anew as root of a user namespace, if it is not root."""
    if os.geteuid() != 0:
        tool = ROOT / "testbed" / "testbed"
        program = str(Path(sys.argv[0]).resolve())
        os.environ[SANDBOX] = "1"
        os.execv(tool, [str(tool), "sandbox", "--", program, *argv, "--no-build"])


def main_of(main: Callable[[list[str]], int]) -> None:
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        print(f"\n{NAME}: interrupted", file=sys.stderr)
        sys.exit(128 + signal.SIGINT)
