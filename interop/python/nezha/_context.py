# SPDX-License-Identifier: Apache-2.0
"""The context: a group of ranks, and the operations among them."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Any, Union

from . import _custom, _nezha
from ._errors import IoError
from ._nezha import Handle
from ._reports import BalanceStats, RailStats
from ._stores import Store, inner

if TYPE_CHECKING:
    import array
    import ctypes
    import mmap

    import numpy

    _Memory = Union["array.array[Any]", "ctypes.Array[Any]", mmap.mmap, bytes, bytearray, memoryview]
    Array = Union["numpy.ndarray[Any, Any]", _Memory]
    """A numpy array, or another object with the buffer protocol. It must be contiguous in C order."""
else:
    Array = Any

Function = Callable[[Any, Any], Any]
Timeout = Union[float, timedelta, None]


def create(
    store: Store,
    rank: int | None = None,
    size: int | None = None,
    *,
    rails: Sequence[str] = (),
    timeout: Timeout = None,
    plan: str | None = None,
    shares: Sequence[float] = (),
    policy: str | None = None,
    polling: str | None = None,
    table: str | os.PathLike[str] = "",
    ports: str = "",
) -> Context:
    """Joins a group. Every rank calls it with a store of the same contents. Thread-safe.

    `rank` and `size` are the launcher's (torchrun, mpirun, srun, ...) if they are None. `rails` are this
    rank's networks, such as ["tcp:eth0", "tcp:eth1"]. What is not given is that of the NEZHA_ variables,
    or the default: `environment_help()` tells both. `timeout` is the deadline of this call, and of each
    operation that has none of its own.

    Raises InvalidArgument for a bad option, TimeoutError if rank 0 does not appear in time, and IoError
    if the ranks disagree or the store fails. Each failed call uses up its keys: the next one takes
    another directory or prefix.
    """
    names = [_text("rails", each) for each in ([rails] if isinstance(rails, str) else rails)]
    parts = [float(each) for each in shares]
    file = _text("table", os.fspath(table))
    range_of_ports = _text("ports", ports)
    return Context(
        _nezha.Context(
            inner(store), rank, size, names, timeout, plan, parts, policy, polling, file, range_of_ports
        )
    )


def _text(what: str, value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{what} must be text, and is {type(value).__name__}")
    return value


def wait_all(handles: Iterable[Handle], timeout: Timeout = None) -> bool:
    """Waits until all operations are over, and then raises the error of the first one in order that has
    failed. Returns False if not all are over after `timeout`, which does the operations no harm."""
    all_handles = list(handles)
    limit = timeout.total_seconds() if isinstance(timeout, timedelta) else timeout
    end = None if limit is None else time.monotonic() + limit
    for handle in all_handles:
        try:
            left = None if end is None else max(0.0, end - time.monotonic())
            if not handle.wait(left):
                return False
        except IoError:
            pass  # the others may still use their memory
    for handle in all_handles:
        handle.wait()
    return True


class Context:
    """A group of ranks. `create`, `split` and `dup` make contexts.

    Thread-safe: several threads may run operations at once, each with its own `tag`. Operations of one tag
    match in the order in which each rank starts them, so that must be the same order on all ranks.

    Arrays are numpy arrays or other objects with the buffer protocol, contiguous in C order, of any number
    of dimensions. Their shapes do not matter, only their numbers of elements. Collectives that reduce take
    integers of 8 to 64 bits, float16, float32 and float64; `dtype="bfloat16"` says that 16-bit integers
    are bfloat16 numbers (and `dtype` of any type what the bytes of a bytearray are). Collectives that
    reduce nothing take elements of any type without Python objects.

    Each operation has a blocking form, and a form `..._async` that returns a Handle. An array must not be
    changed, and an output not be read, until its operation is over. An operation goes on and keeps its
    arrays alive whether or not the program keeps the handle. What is in flight when the context is closed
    fails.

    `timeout` is the deadline of an operation, in seconds or as a timedelta. Errors: InvalidArgument and
    TypeError for arguments (nothing was started), IoError and TimeoutError for operations that fail (the
    context is broken then). Ctrl-C in a blocking call cancels the operation, which breaks the context;
    other ranks get an IoError that names this one. Ctrl-C in `Handle.wait` only ends the wait.

    In a child of fork() only `rank`, `size`, `timeout` and `close` work.
    """

    __slots__ = ("_impl", "__weakref__")

    def __init__(self, impl: _nezha.Context) -> None:
        self._impl = impl

    def __repr__(self) -> str:
        return f"<nezha.Context: rank {self.rank} of {self.size}{', closed' if self.closed else ''}>"

    def __enter__(self) -> Context:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # ---- The group ----

    @property
    def rank(self) -> int:
        """This process's rank, from 0 to size - 1."""
        return self._impl.rank

    @property
    def size(self) -> int:
        """The number of ranks."""
        return self._impl.size

    @property
    def timeout(self) -> float:
        """The default deadline of an operation, in seconds."""
        return self._impl.timeout

    @property
    def closed(self) -> bool:
        """Whether close() was called."""
        return self._impl.closed

    def close(self) -> None:
        """Leaves the group. Takes a second at most, while peers fetch data that they still need.

        Operations in flight fail, on the other ranks too. A context is also closed when nobody refers to it
        any more, and at the end of the program.
        """
        self._impl.close()

    def split(self, color: int | None, key: int = 0) -> Context | None:
        """Makes a context for the ranks of each color, as MPI_Comm_split does.

        Ranks are in the order of their keys, and of their ranks here where keys are equal. A rank whose color
        is None takes part and gets None. Every rank calls it, by one thread at a time. Ctrl-C does not end
        the call before the context's timeout.
        """
        made = self._impl.split(color, key)
        return None if made is None else Context(made)

    def dup(self) -> Context:
        """Makes a context of the same ranks, whose operations match none of this one's. See split()."""
        made = self.split(0, self.rank)
        assert made is not None
        return made

    def rails(self) -> list[RailStats]:
        """Returns what each rail of this process has carried, in the order of create()'s `rails`."""
        return self._impl.rails()

    def balance(self) -> BalanceStats:
        """Returns how the load balancer divides messages of each size now."""
        return self._impl.balance()

    # ---- Collectives that reduce ----

    def allreduce(
        self,
        array: Array,
        out: Array | None = None,
        *,
        operation: str | Function = "sum",
        dtype: str | None = None,
        tag: int = 0,
        timeout: Timeout = None,
        algorithm: str | None = None,
        reproducible: bool = False,
    ) -> None:
        """Every rank gets the element-wise reduction of all ranks' arrays, in `out`, or in `array` itself.

        `operation` is a ReduceOperation or its name, or a function f(a, b) on numpy arrays of equal length
        that returns a reduced array, such as numpy.maximum. Such a function must be associative. It runs
        on the calling thread, between two exchanges, with this rank's part of the elements. Its operands
        come in the order of the ranks. `dtype`, `algorithm` and `reproducible` are not for functions.

        With `reproducible` an element's bits depend on nothing but the ranks' values of this element.
        """
        if not isinstance(operation, str):
            options = _custom.Options(operation, tag, timeout, dtype, algorithm, reproducible)
            return _custom.allreduce(self, array, out, options)
        self._impl.allreduce(
            array, out, operation, dtype, reproducible, tag, timeout, algorithm, True
        )

    def allreduce_async(
        self,
        array: Array,
        out: Array | None = None,
        *,
        operation: str = "sum",
        dtype: str | None = None,
        tag: int = 0,
        timeout: Timeout = None,
        algorithm: str | None = None,
        reproducible: bool = False,
    ) -> Handle:
        """Starts an allreduce. It takes no function as its operation."""
        handle: Handle = self._impl.allreduce(
            array, out, operation, dtype, reproducible, tag, timeout, algorithm, False
        )
        return handle

    def reduce(
        self,
        array: Array,
        out: Array | None = None,
        *,
        root: int,
        operation: str | Function = "sum",
        dtype: str | None = None,
        tag: int = 0,
        timeout: Timeout = None,
        algorithm: str | None = None,
        reproducible: bool = False,
    ) -> None:
        """Does an allreduce whose result only the rank `root` gets. The others' `out` is ignored."""
        if not isinstance(operation, str):
            options = _custom.Options(operation, tag, timeout, dtype, algorithm, reproducible)
            return _custom.reduce(self, array, out, root, options)
        self._impl.reduce(
            array, out, root, operation, dtype, reproducible, tag, timeout, algorithm, True
        )

    def reduce_async(
        self,
        array: Array,
        out: Array | None = None,
        *,
        root: int,
        operation: str = "sum",
        dtype: str | None = None,
        tag: int = 0,
        timeout: Timeout = None,
        algorithm: str | None = None,
        reproducible: bool = False,
    ) -> Handle:
        """Starts a reduce. It takes no function as its operation."""
        handle: Handle = self._impl.reduce(
            array, out, root, operation, dtype, reproducible, tag, timeout, algorithm, False
        )
        return handle

    def reduce_scatter(
        self,
        array: Array,
        out: Array,
        *,
        counts: Sequence[int] | None = None,
        operation: str | Function = "sum",
        dtype: str | None = None,
        tag: int = 0,
        timeout: Timeout = None,
        algorithm: str | None = None,
        reproducible: bool = False,
    ) -> None:
        """Every rank gets its own block of the reduction of all ranks' arrays in `out`.

        `array` has a block for each rank, of equal lengths, or of counts[r] elements for rank r. `counts` is
        the same on every rank. `out` may be this rank's block of `array`. See allreduce for `operation`.
        """
        if not isinstance(operation, str):
            options = _custom.Options(operation, tag, timeout, dtype, algorithm, reproducible)
            return _custom.reduce_scatter(self, array, out, counts, options)
        self._impl.reduce_scatter(
            array, out, counts, operation, dtype, reproducible, tag, timeout, algorithm, True
        )

    def reduce_scatter_async(
        self,
        array: Array,
        out: Array,
        *,
        counts: Sequence[int] | None = None,
        operation: str = "sum",
        dtype: str | None = None,
        tag: int = 0,
        timeout: Timeout = None,
        algorithm: str | None = None,
        reproducible: bool = False,
    ) -> Handle:
        """Starts a reduce_scatter. It takes no function as its operation."""
        handle: Handle = self._impl.reduce_scatter(
            array, out, counts, operation, dtype, reproducible, tag, timeout, algorithm, False
        )
        return handle

    # ---- Collectives that move ----

    def broadcast(
        self,
        array: Array,
        *,
        root: int,
        tag: int = 0,
        timeout: Timeout = None,
        algorithm: str | None = None,
    ) -> None:
        """Every rank's `array` gets the contents of that of the rank `root`."""
        self._impl.broadcast(array, root, tag, timeout, algorithm, True)

    def broadcast_async(
        self,
        array: Array,
        *,
        root: int,
        tag: int = 0,
        timeout: Timeout = None,
        algorithm: str | None = None,
    ) -> Handle:
        """Starts a broadcast."""
        handle: Handle = self._impl.broadcast(array, root, tag, timeout, algorithm, False)
        return handle

    def allgather(
        self,
        block: Array | None,
        out: Array,
        *,
        counts: Sequence[int] | None = None,
        tag: int = 0,
        timeout: Timeout = None,
        algorithm: str | None = None,
    ) -> None:
        """Every rank gets the blocks of all ranks in `out`, in the order of the ranks.

        Blocks have equal lengths, or counts[r] elements from rank r. `counts` is the same on every rank. If
        `block` is None, this rank's block is in its place in `out` already.
        """
        self._impl.allgather(block, out, counts, tag, timeout, algorithm, True)

    def allgather_async(
        self,
        block: Array | None,
        out: Array,
        *,
        counts: Sequence[int] | None = None,
        tag: int = 0,
        timeout: Timeout = None,
        algorithm: str | None = None,
    ) -> Handle:
        """Starts an allgather."""
        handle: Handle = self._impl.allgather(block, out, counts, tag, timeout, algorithm, False)
        return handle

    def alltoall(
        self,
        array: Array,
        out: Array | None = None,
        *,
        tag: int = 0,
        timeout: Timeout = None,
        algorithm: str | None = None,
    ) -> None:
        """Every rank sends a block to each rank, and gets one from each in `out`, or in `array` itself.

        All blocks have the same length."""
        self._impl.alltoall(array, out, tag, timeout, algorithm, True)

    def alltoall_async(
        self,
        array: Array,
        out: Array | None = None,
        *,
        tag: int = 0,
        timeout: Timeout = None,
        algorithm: str | None = None,
    ) -> Handle:
        """Starts an alltoall."""
        handle: Handle = self._impl.alltoall(array, out, tag, timeout, algorithm, False)
        return handle

    def alltoallv(
        self,
        array: Array,
        out: Array,
        *,
        counts: Sequence[int],
        out_counts: Sequence[int],
        tag: int = 0,
        timeout: Timeout = None,
        algorithm: str | None = None,
    ) -> None:
        """Does an alltoall of unequal blocks: counts[r] elements to rank r, and out_counts[r] from rank r."""
        self._impl.alltoallv(array, out, counts, out_counts, tag, timeout, algorithm, True)

    def alltoallv_async(
        self,
        array: Array,
        out: Array,
        *,
        counts: Sequence[int],
        out_counts: Sequence[int],
        tag: int = 0,
        timeout: Timeout = None,
        algorithm: str | None = None,
    ) -> Handle:
        """Starts an alltoallv."""
        handle: Handle = self._impl.alltoallv(
            array, out, counts, out_counts, tag, timeout, algorithm, False
        )
        return handle

    def gather(
        self,
        block: Array | None,
        out: Array | None = None,
        *,
        root: int,
        tag: int = 0,
        timeout: Timeout = None,
        algorithm: str | None = None,
    ) -> None:
        """The rank `root` gets the blocks of all ranks in `out`, in the order of the ranks.

        All blocks have the same length. At the root `block` may be None: its block is in its place in `out`
        already. The others' `out` is ignored.
        """
        self._impl.gather(block, out, root, tag, timeout, algorithm, True)

    def gather_async(
        self,
        block: Array | None,
        out: Array | None = None,
        *,
        root: int,
        tag: int = 0,
        timeout: Timeout = None,
        algorithm: str | None = None,
    ) -> Handle:
        """Starts a gather."""
        handle: Handle = self._impl.gather(block, out, root, tag, timeout, algorithm, False)
        return handle

    def gatherv(
        self,
        block: Array | None,
        out: Array | None = None,
        *,
        root: int,
        counts: Sequence[int] | None = None,
        tag: int = 0,
        timeout: Timeout = None,
        algorithm: str | None = None,
    ) -> None:
        """Does a gather of unequal blocks: counts[r] elements from rank r. The root must give `counts`."""
        self._impl.gatherv(block, out, root, counts, tag, timeout, algorithm, True)

    def gatherv_async(
        self,
        block: Array | None,
        out: Array | None = None,
        *,
        root: int,
        counts: Sequence[int] | None = None,
        tag: int = 0,
        timeout: Timeout = None,
        algorithm: str | None = None,
    ) -> Handle:
        """Starts a gatherv."""
        handle: Handle = self._impl.gatherv(
            block, out, root, counts, tag, timeout, algorithm, False
        )
        return handle

    def scatter(
        self,
        array: Array | None,
        out: Array | None = None,
        *,
        root: int,
        tag: int = 0,
        timeout: Timeout = None,
        algorithm: str | None = None,
    ) -> None:
        """Every rank gets its own block of the `array` of the rank `root` in `out`.

        All blocks have the same length. The others' `array` is ignored. The root may do without `out`.
        """
        self._impl.scatter(array, out, root, tag, timeout, algorithm, True)

    def scatter_async(
        self,
        array: Array | None,
        out: Array | None = None,
        *,
        root: int,
        tag: int = 0,
        timeout: Timeout = None,
        algorithm: str | None = None,
    ) -> Handle:
        """Starts a scatter."""
        handle: Handle = self._impl.scatter(array, out, root, tag, timeout, algorithm, False)
        return handle

    def scatterv(
        self,
        array: Array | None,
        out: Array | None = None,
        *,
        root: int,
        counts: Sequence[int] | None = None,
        tag: int = 0,
        timeout: Timeout = None,
        algorithm: str | None = None,
    ) -> None:
        """Does a scatter of unequal blocks: counts[r] elements for rank r. The root must give `counts`."""
        self._impl.scatterv(array, out, root, counts, tag, timeout, algorithm, True)

    def scatterv_async(
        self,
        array: Array | None,
        out: Array | None = None,
        *,
        root: int,
        counts: Sequence[int] | None = None,
        tag: int = 0,
        timeout: Timeout = None,
        algorithm: str | None = None,
    ) -> Handle:
        """Starts a scatterv."""
        handle: Handle = self._impl.scatterv(
            array, out, root, counts, tag, timeout, algorithm, False
        )
        return handle

    def barrier(self, *, tag: int = 0, timeout: Timeout = None) -> None:
        """Returns once all ranks have called it. Says nothing of operations that are in flight."""
        self._impl.barrier(tag, timeout, True)

    def barrier_async(self, *, tag: int = 0, timeout: Timeout = None) -> Handle:
        """Starts a barrier."""
        handle: Handle = self._impl.barrier(tag, timeout, False)
        return handle

    # ---- Messages ----

    def send(
        self, array: Array, destination: int, *, tag: int = 0, timeout: Timeout = None
    ) -> None:
        """Sends one message: the bytes of `array`. Returns when `array` may be changed again.

        Messages to one rank by one tag match the receives there in the order of the calls. Their tags have
        nothing to do with those of collectives. About 2 MiB may wait at the destination for a receive.
        """
        self._impl.send(array, destination, tag, timeout, True)

    def send_async(
        self, array: Array, destination: int, *, tag: int = 0, timeout: Timeout = None
    ) -> Handle:
        """Starts a send."""
        handle: Handle = self._impl.send(array, destination, tag, timeout, False)
        return handle

    def recv(
        self,
        array: Array,
        source: int | Sequence[int] | None = None,
        *,
        tag: int = 0,
        timeout: Timeout = None,
    ) -> int:
        """Receives one message into `array`, and returns the rank that it has come from.

        `source` is a rank, several ranks, or None for any rank. The message must have exactly as many bytes
        as `array`: a message of another size breaks the context on both ranks.
        """
        rank: int = self._impl.recv(array, source, tag, timeout, True)
        return rank

    def recv_async(
        self,
        array: Array,
        source: int | Sequence[int] | None = None,
        *,
        tag: int = 0,
        timeout: Timeout = None,
    ) -> Handle:
        """Starts a receive. `Handle.source` tells the rank that the message has come from."""
        handle: Handle = self._impl.recv(array, source, tag, timeout, False)
        return handle
