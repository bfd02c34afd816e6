# SPDX-License-Identifier: Apache-2.0
"""Reductions by a function that is written in Python.

C++ calls a user's function on any thread that drives the networks, under a lock. A Python function there
would wait for the GIL, and meanwhile nothing of the process would be sent or received. So the calling
thread itself calls the function, between two exchanges: each rank gets all ranks' values of its part of
the elements, reduces them, and hands the result to whoever needs it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import operator
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Any

from ._errors import Error, InvalidArgument

if TYPE_CHECKING:
    import numpy

    from ._context import Context

    Vector = numpy.ndarray[Any, Any]


class Options:
    """The things that the caller has asked for."""

    def __init__(
        self,
        function: Any,
        tag: int,
        timeout: float | timedelta | None,
        dtype: str | None,
        algorithm: str | None,
        reproducible: bool,
    ) -> None:
        if not callable(function):
            kind = type(function).__name__
            raise TypeError(f"operation must be a name or a function, and is {kind}")
        if dtype is not None or algorithm is not None or reproducible:
            raise InvalidArgument(
                "dtype, algorithm and reproducible cannot be given with a function as the operation"
            )
        self.function: Callable[[Any, Any], Any] = function
        self.tag = tag
        self.timeout = timeout.total_seconds() if isinstance(timeout, timedelta) else timeout


@dataclasses.dataclass
class _Call:
    """One reduction, on its way.

    The other ranks wait for this one during a `with` block of it. They hear that nothing will come if an
    error ends the block.
    """

    context: Context
    options: Options
    deadline: float
    tells_others: bool = True

    def __enter__(self) -> _Call:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None or not self.tells_others:
            return
        # A barrier has no data that the others could take for this rank's part. The context refuses it
        # if the others have heard already.
        with contextlib.suppress(Error):
            self.context.barrier_async(tag=self.options.tag).cancel()

    def left(self) -> dict[str, Any]:
        """Returns what the next exchange is given: the tag, and the rest of the time."""
        return {"tag": self.options.tag, "timeout": max(0.001, self.deadline - time.monotonic())}

    def exchange(self, vector: Vector, counts: Sequence[int]) -> Vector:
        """Returns all ranks' elements of this rank's part, a row for each rank."""
        import numpy

        size, mine = self.context.size, counts[self.context.rank]
        parts = numpy.empty((size, mine), vector.dtype)
        try:
            self.context.alltoallv(
                vector, parts, counts=counts, out_counts=[mine] * size, **self.left()
            )
        except (InvalidArgument, TypeError):
            self.tells_others = False  # nothing was started: the context stays usable
            raise
        return parts

    def reduced(self, parts: Vector) -> Vector:
        """Returns the reduction of the rows."""
        import numpy

        size, mine = parts.shape
        result = parts[0]
        for rank in range(1, size if mine > 0 else 1):
            result = self.options.function(result, parts[rank])
        return numpy.ascontiguousarray(result, parts.dtype).reshape(mine)


def _begin(context: Context, options: Options) -> _Call:
    timeout = context.timeout if options.timeout is None else options.timeout
    if not timeout > 0:
        raise InvalidArgument(f"timeout is {timeout} seconds; it must be more than 0")
    return _Call(context, options, time.monotonic() + timeout)


def _flat(array: Any, what: str, is_output: bool = False) -> Vector:
    """Returns the array's memory as a vector."""
    import numpy

    try:
        found = numpy.asarray(memoryview(array))
    except TypeError as error:
        raise TypeError(f"{what}: {error}") from None
    except (BufferError, ValueError) as error:
        raise InvalidArgument(
            f"{what} gives no access to its memory (dates of numpy give it by array.view('int64')): {error}"
        ) from None
    if not found.flags.c_contiguous:
        raise InvalidArgument(f"{what} is not contiguous in C order")
    if is_output and not found.flags.writeable:
        raise InvalidArgument(f"{what} is read-only")
    return found.reshape(-1)


def _parts(elements: int, size: int) -> list[int]:
    """Returns how many elements each rank reduces."""
    return [elements // size + (rank < elements % size) for rank in range(size)]


def allreduce(context: Context, array: Any, out: Any, options: Options) -> None:
    call = _begin(context, options)
    vector = _flat(array, "array")
    result = _flat(array if out is None else out, "out", is_output=True)
    _check_alike(vector, result, len(vector))
    counts = _parts(len(vector), context.size)
    with call:
        part = call.reduced(call.exchange(vector, counts))
        context.allgather(part, result, counts=counts, **call.left())


def reduce(context: Context, array: Any, out: Any, root: int, options: Options) -> None:
    call = _begin(context, options)
    vector = _flat(array, "array")
    if not 0 <= root < context.size:
        raise InvalidArgument(f"root is {root}; it must be from 0 to {context.size - 1}")
    result = None
    if root == context.rank:
        result = _flat(array if out is None else out, "out", is_output=True)
        _check_alike(vector, result, len(vector))
    counts = _parts(len(vector), context.size)
    root_counts = None if result is None else counts
    with call:
        part = call.reduced(call.exchange(vector, counts))
        context.gatherv(part, result, root=root, counts=root_counts, **call.left())


def reduce_scatter(
    context: Context, array: Any, out: Any, counts: Sequence[int] | None, options: Options
) -> None:
    call = _begin(context, options)
    vector = _flat(array, "array")
    result = _flat(out, "out", is_output=True)
    if counts is None:
        if len(vector) % context.size != 0:
            raise InvalidArgument(f"array has {len(vector)} elements, not as many for each rank")
        counts = [len(vector) // context.size] * context.size
    counts = [operator.index(count) for count in counts]
    if len(counts) != context.size:
        raise InvalidArgument(f"counts has {len(counts)} entries; it must have {context.size}")
    _check_alike(vector, result, counts[context.rank])
    with call:
        parts = call.exchange(vector, counts)
    result[:] = call.reduced(parts)


def _check_alike(vector: Vector, result: Vector, elements: int) -> None:
    if result.dtype != vector.dtype:
        raise InvalidArgument(f"array has elements of {vector.dtype}, and out of {result.dtype}")
    if len(result) != elements:
        raise InvalidArgument(f"out has {len(result)} elements; it must have {elements}")
