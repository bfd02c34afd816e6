# SPDX-License-Identifier: Apache-2.0
"""PyTorch's torch.distributed over all networks of a machine.

To import this module registers the backend "nezha" (``init_process_group("nezha")``). If PyTorch's
Gloo is the shared library that nezha is built with, as Debian's is, PyTorch's own backend "gloo"
sends by nezha's device where the environment has ``GLOO_DEVICE_TRANSPORT=NEZHA``.

``NEZHA_RAILS`` names the networks; without it all that are found are used.
"""

from __future__ import annotations

import atexit
import inspect
from datetime import timedelta
from typing import Any, Optional

import torch
import torch.distributed as dist

__all__ = ["has_gloo_device", "monitored_barrier"]


def _register() -> None:
    options: dict[str, Any] = {}
    # PyTorch 2 asks on which devices a backend's tensors may be.
    if "devices" in inspect.signature(dist.Backend.register_backend).parameters:
        options["devices"] = ["cpu", "cuda"]
    dist.Backend.register_backend("nezha", _C.create, **options)


def has_gloo_device() -> bool:
    """Returns whether GLOO_DEVICE_TRANSPORT=NEZHA works with this PyTorch."""
    return _C.has_gloo_device()


def monitored_barrier(
    group: Any = None, timeout: Optional[timedelta] = None, wait_all_ranks: bool = False
) -> None:
    """Replaces torch.distributed.monitored_barrier for groups of this backend, which that one refuses.

    Returns once all ranks of the group (the default group if it is None) have called it. If some have
    not by the timeout (the group's own if it is None), raises RuntimeError on all ranks that have. The
    text names those that have not: all of them with `wait_all_ranks`, and else the first. The group
    cannot be used any more then. Rank 0 of the group collects who has come: if it has not come itself,
    the others get an error that says so, after twice the timeout. A process that is not in the group
    returns at once.
    """
    if group is dist.GroupMember.NON_GROUP_MEMBER:
        return
    if group is None:
        group = dist.group.WORLD
    if group is None:
        raise RuntimeError("there is no default process group; call init_process_group first")
    backend = group._get_backend(torch.device("cpu")) if hasattr(group, "_get_backend") else group
    _C.monitored_barrier(backend, timedelta(milliseconds=-1) if timeout is None else timeout, wait_all_ranks)


if dist.is_available():
    # The classes of torch.distributed must be there first.
    from nezha_torch import _C

    _register()
    # Callbacks of futures need Python, which ends after this.
    atexit.register(_C.stop)
else:
    raise ImportError("this PyTorch was built without torch.distributed, which nezha_torch is for")
