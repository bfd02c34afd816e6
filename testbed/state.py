# SPDX-License-Identifier: Apache-2.0
"""The namespaces and files of a testbed on the machine, which its prefix identifies."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import shutil
from pathlib import Path

from processes import NETNS_DIR, end_all, held_namespaces, namespace_members
from system_tools import BedError, command

STATE_DIR = Path("/run/nezha-testbed")  # per testbed: PREFIX.json, PREFIX.hosts, PREFIX.shared

_numbers = itertools.count()


def check_prefix(prefix: str) -> str:
    if not re.fullmatch(r"[a-z][a-z0-9_]{0,31}", prefix):
        raise BedError(f"bad prefix '{prefix}': give up to 32 of a-z0-9_, the first one of a-z")
    return prefix


def state_file(prefix: str) -> Path:
    return STATE_DIR / f"{prefix}.json"


def hosts_file(prefix: str) -> Path:
    return STATE_DIR / f"{prefix}.hosts"


def shared_folder(prefix: str) -> Path:
    return STATE_DIR / f"{prefix}.shared"


def namespaces_of(prefix: str) -> list[str]:
    names = os.listdir(NETNS_DIR) if NETNS_DIR.is_dir() else []
    return [name for name in names if re.fullmatch(rf"{prefix}-(sw|h\d+)", name)]


def take_down(prefix: str) -> None:
    """Ends what runs inside, and deletes everything. It needs only the names, and no state."""
    names = namespaces_of(prefix)
    with held_namespaces(names) as namespaces:
        end_all(lambda: namespace_members(namespaces))
        try:
            lines = "".join(f"netns del {name}\n" for name in names)
            command(["ip", "-force", "-batch", "-"], lines)
        except BedError:
            if namespaces_of(prefix):  # If there are none, another process took it down.
                raise
        end_all(lambda: namespace_members(namespaces))  # A process may have entered meanwhile.
    shutil.rmtree(shared_folder(prefix), ignore_errors=True)
    hosts_file(prefix).unlink(missing_ok=True)
    state_file(prefix).unlink(missing_ok=True)
    with contextlib.suppress(OSError):  # another testbed's state is there, or none ever was
        STATE_DIR.rmdir()


def unused_prefix() -> str:
    """Returns a prefix that no testbed has.

    A testbed is left behind if all its processes are killed, its guard, too, as at a container's end.
    """
    prefixes = (f"nz{os.getpid()}_{number}" for number in _numbers)
    return next(each for each in prefixes if not (namespaces_of(each) or state_file(each).exists()))
