# SPDX-License-Identifier: Apache-2.0
"""Collective operations and messages between the machines of a cluster, over all of their networks.

    import numpy, nezha

    store = nezha.FileStore("/shared/run-1")
    with nezha.create(store, rank, size, rails=["tcp:eth0", "tcp:eth1"]) as context:
        context.allreduce(array)

Arrays are numpy arrays, or other objects with the buffer protocol. The GIL is released while a call
waits, and a context may be used by several threads.
"""

from __future__ import annotations

import atexit

from . import _nezha
from ._context import Array, Context, Handle, create, wait_all
from ._errors import Error, InvalidArgument, IoError, TimeoutError
from ._names import Algorithm, BalancePolicy, DataType, Plan, Polling, ReduceOperation
from ._reports import BalanceStats, LaunchEnvironment, NetworkInterface, RailStats, SizeClassStats
from ._stores import FileStore, PrefixStore, RedisStore, Store

__version__: str = _nezha.version()


def environment_help() -> str:
    """Returns what each NEZHA_ variable does, for people."""
    return _nezha.environment_help()


def network_interfaces() -> list[NetworkInterface]:
    """Returns all interfaces of this host. Those that ["auto"] stands for have a `uri`, and come first."""
    return _nezha.network_interfaces()


def launch_environment() -> LaunchEnvironment:
    """Returns what torchrun, mpirun, srun or another launcher says of this process. Raises InvalidArgument if
    its variables make no sense."""
    return _nezha.launch_environment()


# This runs while the interpreter still serves all threads: waits end, and no thread calls a store later.
atexit.register(_nezha.close_all)

__all__ = [
    "Algorithm",
    "Array",
    "BalancePolicy",
    "BalanceStats",
    "Context",
    "DataType",
    "Error",
    "FileStore",
    "Handle",
    "InvalidArgument",
    "IoError",
    "LaunchEnvironment",
    "NetworkInterface",
    "Plan",
    "Polling",
    "PrefixStore",
    "RailStats",
    "RedisStore",
    "ReduceOperation",
    "SizeClassStats",
    "Store",
    "TimeoutError",
    "create",
    "environment_help",
    "launch_environment",
    "network_interfaces",
    "wait_all",
]
