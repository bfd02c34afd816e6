# SPDX-License-Identifier: Apache-2.0
"""The exceptions of nezha."""

from __future__ import annotations

import builtins
from collections.abc import Iterable


class Error(Exception):
    """Any error of nezha."""


class InvalidArgument(Error, ValueError):
    """Bad input, or a call in a state that forbids it.

    Nothing was sent and no memory was written. The context stays usable.
    """


class IoError(Error):
    """The operation failed, because a peer died, has left, disagreed, or could not be reached on any rail.

    The context is broken from here on, and each later call on it raises the same error. The process
    may make a new context with the ranks that are left. When a call raises this error, nothing writes
    to or reads from its arrays any more. The contents of its output are undefined.
    """

    ranks: list[int]
    """The lost ranks, as far as this rank knows, in increasing order. The list is empty if no rank is
    lost, as when two ranks called different operations."""

    def __init__(self, message: str, ranks: Iterable[int] = ()) -> None:
        super().__init__(message)
        self.ranks = list(ranks)


class TimeoutError(IoError, builtins.TimeoutError):
    """An IoError whose cause is a deadline. The message names whom the operation waited for."""


for _error in (Error, InvalidArgument, IoError, TimeoutError):
    _error.__module__ = "nezha"  # programs and tracebacks name them so
