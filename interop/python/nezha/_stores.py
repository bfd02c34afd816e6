# SPDX-License-Identifier: Apache-2.0
"""Rendezvous stores, through which the ranks of a context find each other."""

from __future__ import annotations

import os
import urllib.parse
from collections.abc import Sequence
from datetime import timedelta
from typing import Protocol, Union

from . import _nezha


class Store(Protocol):
    """A rendezvous store. Any object with these methods is one.

    A context calls its store from any thread, one call at a time. A store that several contexts share
    must be thread-safe, as nezha's own are. Each context needs keys of its own in the store: give each
    run another directory or prefix.
    """

    def set(self, key: str, value: bytes) -> None:
        """Sets a key, which is not there yet, and is never changed."""

    def get(self, key: str) -> bytes:
        """Returns the value of a key. Waits for the key if it is not there yet."""

    def wait(self, keys: Sequence[str], timeout: float) -> None:
        """Waits until all keys are there. Raises an exception, of any type, after `timeout` seconds."""


Timeout = Union[float, timedelta, None]


class _OwnStore:
    """The base class of nezha's own stores."""

    _store: _nezha.Store

    def set(self, key: str, value: bytes) -> None:
        """Sets a key that is not there yet."""
        self._store.set(key, value)

    def get(self, key: str) -> bytes:
        """Returns the value of a key. Waits for the key up to 30 seconds."""
        return self._store.get(key)

    def wait(self, keys: Sequence[str], timeout: Timeout = None) -> None:
        """Waits until all keys are there. Raises IoError after `timeout` (default: 30 seconds)."""
        self._store.wait(keys, timeout)


class FileStore(_OwnStore):
    """A store in a directory that all ranks see, on NFS for example. Thread-safe.

    The directory must exist. Each run needs a new directory, or an empty one. Raises InvalidArgument if
    there is no such directory.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._store = _nezha.FileStore(os.fspath(path))
        self.path = os.fspath(path)

    def __repr__(self) -> str:
        return f"FileStore({self.path!r})"


class RedisStore(_OwnStore):
    """A store on a Redis server (2.6.12 or later). Thread-safe.

    `host` is a host's name or address, or a whole URL ("redis://:PASSWORD@HOST:6379/0?ttl=90m"), beside
    which nothing else is given. `prefix` is a name of the job: the same on all ranks, and another one
    for each run. Raises IoError or TimeoutError if the server refuses or does not answer.
    """

    def __init__(
        self,
        host: str,
        port: int = 6379,
        *,
        password: str | None = None,
        database: int = 0,
        prefix: str = "nezha",
    ) -> None:
        url = host
        if "://" not in host:
            name = f"[{host}]" if ":" in host else host
            secret = "" if password is None else f":{urllib.parse.quote(password, safe='')}@"
            quoted = urllib.parse.quote(prefix, safe="")
            url = f"redis://{secret}{name}:{port}/{database}?prefix={quoted}"
        self._store = _nezha.RedisStore(url)


class PrefixStore(_OwnStore):
    """Another store, in which each key begins with `prefix` and a slash. It keeps that store alive, and is
    thread-safe if that store is."""

    def __init__(self, prefix: str, store: Store) -> None:
        self._store = _nezha.PrefixStore(prefix, inner(store))


def inner(store: object) -> object:
    """Returns what the C++ part takes: its own store, or the object itself."""
    return store._store if isinstance(store, _OwnStore) else store
