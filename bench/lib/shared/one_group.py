# SPDX-License-Identifier: Apache-2.0
"""Lets a process that yields give its core to any other process."""

from __future__ import annotations

import contextlib
import fcntl
from collections.abc import Iterator
from pathlib import Path

from lib.shared import program
from state import STATE_DIR

AUTOGROUP = Path("/proc/sys/kernel/sched_autogroup_enabled")


@contextlib.contextmanager
def one_group() -> Iterator[None]:
    """Has the kernel schedule all processes as one group, if that may be set.

    The kernel groups processes by session, and a process that yields gives its core only to processes of
    its own group. Here a rank, a switch or an mpirun with its ranks is a session, and they share cores.

    A file keeps the old setting: a run that is killed leaves it for the next one to restore. If several
    runs go on beside each other, the first one sets and restores it.
    """
    kept = STATE_DIR / "autogroup"
    with contextlib.ExitStack() as stack:
        try:
            STATE_DIR.mkdir(parents=True, exist_ok=True)
            lock = stack.enter_context(kept.with_suffix(".lock").open("w"))
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            before = kept.read_text() if kept.exists() else AUTOGROUP.read_text()
            kept.write_text(before)
            stack.callback(kept.unlink)
            AUTOGROUP.write_text("0")
            stack.callback(AUTOGROUP.write_text, before)
        except BlockingIOError:
            pass  # Another run has turned the groups off.
        except FileNotFoundError:
            pass  # The kernel has no such groups.
        except OSError as error:
            program.warn(f"small messages take longer than they need to: {error}")
        yield
