#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""One process of a job that trains with the library, as a framework's process does with Horovod.

A file of the store lists the job's processes, `{"ID": "HOST", ...}` in the order of their ranks.
After an error the process waits for the next such file, and goes on.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import sys
import time
from pathlib import Path


MEETING_TIME = 120.0  # seconds, for which a process waits for the next generation of the job


class Place(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_int) for name in ("rank", "size", "local_rank", "local_size")),
        *((name, ctypes.c_int) for name in ("cross_rank", "cross_size")),
        ("host", ctypes.c_char_p),
        ("id", ctypes.c_int),
        *((name, ctypes.c_char_p) for name in ("all_ids", "local_ids", "cross_ids")),
    ]


def text_of(ids: list[int]) -> bytes:
    return "".join(f"{each} " for each in ids).encode()


def place_of(own: int, members: dict[int, str]) -> Place:
    """The process's position among the members of the job."""
    everyone = list(members)
    local = [each for each in everyone if members[each] == members[own]]
    by_host = {host: [i for i in everyone if members[i] == host] for host in members.values()}
    at = local.index(own)
    cross = [ids[at] for ids in by_host.values() if at < len(ids)]
    return Place(
        rank=everyone.index(own),
        size=len(everyone),
        local_rank=at,
        local_size=len(local),
        cross_rank=cross.index(own),
        cross_size=len(cross),
        host=members[own].encode(),
        id=own,
        all_ids=text_of(everyone),
        local_ids=text_of(local),
        cross_ids=text_of(cross),
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--store", type=Path, required=True)
    parser.add_argument("--library", required=True)
    parser.add_argument("--elements", type=int, default=1 << 20, help="of each large sum")
    parser.add_argument("--generation", type=int, default=0, help="of the job, when this one joins")
    parser.add_argument("--generations", type=int, default=1, help="a later one is not waited for")
    options = parser.parse_args()
    library = ctypes.CDLL(options.library)
    own = int(os.environ["RANK"])
    for generation in range(options.generation, options.generations):
        folder = options.store / str(generation)
        end = time.monotonic() + MEETING_TIME
        while not (folder / "members").exists():
            assert time.monotonic() < end, f"nobody says who is in generation {generation}"
            time.sleep(0.01)
        read = json.loads((folder / "members").read_text())
        members = {int(process): str(host) for process, host in read.items()}
        stop_file = str(options.store.parent / "stop").encode()
        result = library.train(
            ctypes.byref(place_of(own, members)),
            str(folder).encode(),
            stop_file,
            ctypes.c_size_t(options.elements),
        )
        if result == 0:
            return 0
    return 1


if __name__ == "__main__":
    sys.exit(main())
