# SPDX-License-Identifier: Apache-2.0
"""Runs the system's tools, one at a time, and reports their failures."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Sequence

STEP_TIMEOUT = 60.0  # seconds that one ip, tc or nft command may take
POLL = 0.01  # seconds between two looks at something that is awaited

PACKAGES = {
    "ip": "iproute2",
    "tc": "iproute2",
    "nft": "nftables",
    "unshare": "util-linux",
    "setpriv": "util-linux",
    "mount": "mount",
    "hostname": "hostname",
}


class BedError(Exception):
    """Reports what the testbed refuses or could not do, and what to do about it."""


def _find_tool(name: str) -> str | None:
    # An ordinary user's PATH often lacks the sbin folders.
    return shutil.which(name, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin:/usr/bin:/bin")


@functools.cache
def tool(name: str) -> str:
    """Returns the absolute path of a system tool, one of those that check_tools() looks for."""
    path = _find_tool(name)
    if path is None:
        raise BedError(f"'{name}' is missing: apt install {PACKAGES[name]}")
    return path


def check_tools() -> None:
    missing = sorted({package for name, package in PACKAGES.items() if not _find_tool(name)})
    if missing:
        raise BedError(f"Debian packages are missing: apt install {' '.join(missing)}")


def check_root() -> None:
    if os.geteuid() != 0:
        raise BedError(
            "needs root; as an ordinary user: 'testbed with ... -- CMD', or "
            "'testbed sandbox -- CMD', in which CMD (a shell, pytest) can make testbeds"
        )


def command(argv: Sequence[str], text: str = "", keep_fds: Sequence[int] = ()) -> str:
    """Runs one tool to its end, with `text` as its input; returns its output, or raises BedError."""
    done = subprocess.run(
        [tool(argv[0]), *argv[1:]],
        input=text,
        capture_output=True,
        text=True,
        timeout=STEP_TIMEOUT,
        pass_fds=keep_fds,
    )
    if done.returncode:
        raise BedError(f"'{' '.join(argv)}' failed: {(done.stderr or done.stdout).strip()}")
    return done.stdout


def wait_until(test: Callable[[], bool], timeout: float) -> bool:
    deadline = time.monotonic() + timeout
    while not test():
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL)
    return True
