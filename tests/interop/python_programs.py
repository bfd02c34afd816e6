# SPDX-License-Identifier: Apache-2.0
"""Programs for one rank that use the package nezha; test_python.py reads their output.

usage: python_programs.py NAME STORE
"""

from __future__ import annotations

import array
import ctypes
import datetime
import gc
import os
import resource
import signal
import sys
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import nezha
import numpy

PROGRAMS: dict[str, Callable[[str], None]] = {}


def program(function: Callable[[str], None]) -> Callable[[str], None]:
    PROGRAMS[function.__name__] = function
    return function


def say(text: object) -> None:
    print(text, flush=True)


def join(store: str, **options: Any) -> nezha.Context:
    return nezha.create(nezha.FileStore(store), **options)


def raised(call: Callable[[], Any]) -> BaseException:
    """The exception that the call raises."""
    try:
        call()
    except (Exception, KeyboardInterrupt) as error:
        return error
    raise AssertionError("the call raises nothing")


def once_it_waits(act: Callable[[], Any]) -> Callable[[], None]:
    """Returns a function to call just before a blocking call of nezha: `act` runs during that call.

    Here no thread takes the GIL from another, so `act` runs when the thread releases the GIL, which
    happens only in nezha.
    """
    sys.setswitchinterval(1000)
    is_next = threading.Event()

    def run() -> None:
        is_next.wait()
        act()

    threading.Thread(target=run, daemon=True).start()
    return is_next.set


def total(context: nezha.Context) -> float:
    """The sum of rank + 1 over all ranks."""
    return context.size * (context.size + 1) / 2


def meet(context: nezha.Context, store: str) -> None:
    """Returns when all ranks are here and out of operations. Then a rank may break the context."""
    context.barrier()
    files = nezha.FileStore(store)
    files.set(f"here {context.rank}", b"")
    files.wait([f"here {rank}" for rank in range(context.size)], 60)


# ---- Memory ------------------------------------------------------------------------------------


@program
def buffers(store: str) -> None:
    """Uses objects of all kinds, in place."""
    with join(store) as context:
        mine = context.rank + 1
        doubles = array.array("d", [mine] * 3)
        context.allreduce(doubles)
        assert list(doubles) == [total(context)] * 3
        view = memoryview(array.array("i", [mine] * 4))[1:3]
        context.allreduce(view)
        assert list(view) == [total(context)] * 2
        numbers = (ctypes.c_int64 * 2)(mine, -mine)
        context.allreduce(numbers)
        assert list(numbers) == [total(context), -total(context)]
        raw = bytearray(numpy.float32(mine).tobytes())
        context.allreduce(raw, dtype="float32")
        assert numpy.frombuffer(raw, "f4")[0] == total(context)
        cube = numpy.full((2, 3, 4), mine, "f4")
        context.allreduce(cube[1])
        assert (cube[0] == mine).all() and (cube[1] == total(context)).all()
        scalar = numpy.array(float(mine))
        context.allreduce(scalar)
        assert scalar == total(context)
        raw.append(0)  # nothing refers to its memory any more


@program
def bad_arguments(store: str) -> None:
    """A call with bad arguments sends nothing, and the context can still be used."""
    with join(store) as context:
        ones = numpy.ones(12)
        read_only = ones.copy()
        read_only.flags.writeable = False
        cases: list[tuple[str, type[Exception], Callable[[], Any]]] = [
            ("has no buffer", TypeError, lambda: context.allreduce([1.0])),  # type: ignore[arg-type]
            ("not contiguous", nezha.InvalidArgument, lambda: context.allreduce(ones[::2])),
            ("not contiguous", nezha.InvalidArgument, lambda: context.allreduce(ones.reshape(3, 4).T)),
            ("read-only", nezha.InvalidArgument, lambda: context.allreduce(read_only)),
            ("read-only", nezha.InvalidArgument, lambda: context.recv(b"1", 0)),
            ("cannot be reduced", nezha.InvalidArgument, lambda: context.allreduce(ones > 0)),
            ("cannot be reduced", nezha.InvalidArgument, lambda: context.allreduce(ones.astype(">f8"))),
            ("Python objects", nezha.InvalidArgument, lambda: context.send(ones.astype(object), 0)),
            ("another type", nezha.InvalidArgument, lambda: context.allreduce(ones, ones.astype("f4"))),
            ("the outputs have 3", nezha.InvalidArgument, lambda: context.allreduce(ones, ones[:3].copy())),
            ("overlap", nezha.InvalidArgument, lambda: context.allreduce(ones[1:], ones[:-1])),
            ("divided into equal blocks", nezha.InvalidArgument, lambda: context.alltoall(ones[:5])),
            ("another sum", nezha.InvalidArgument,
             lambda: context.allgather(ones[:1], ones, counts=[1] * context.size)),
            ("one for each of", nezha.InvalidArgument,
             lambda: context.allgather(ones[:1], ones, counts=[12])),
            ("counts[0] is -1", nezha.InvalidArgument,
             lambda: context.allgather(ones[:1], ones, counts=[-1] * context.size)),
            ("root is 9", nezha.InvalidArgument, lambda: context.broadcast(ones, root=9)),
            ("it must be sum,", nezha.InvalidArgument, lambda: context.allreduce(ones, operation="plus")),
            ("cannot use the algorithm tree", nezha.InvalidArgument,
             lambda: context.allreduce(ones, algorithm="tree")),
            ("tag is -1", nezha.InvalidArgument, lambda: context.barrier(tag=-1)),
            ("0 seconds", nezha.InvalidArgument, lambda: context.barrier(timeout=0)),
            ("timeout is nan", nezha.InvalidArgument, lambda: context.barrier(timeout=float("nan"))),
            ("seconds or a", TypeError, lambda: context.barrier(timeout="1")),  # type: ignore[arg-type]
            ("which cannot be bfloat16", nezha.InvalidArgument,
             lambda: context.allreduce(ones, dtype="bfloat16")),
        ]  # fmt: skip
        for text, kind, call in cases:
            error = raised(call)
            assert isinstance(error, kind) and text in str(error), (text, error)
            assert kind is TypeError or isinstance(error, ValueError)
        context.allreduce(ones, timeout=datetime.timedelta(seconds=60))
        assert (ones == context.size).all()
    assert "closed" in str(raised(context.barrier)) and context.size > 1
    context.close()


# ---- Several operations at once ----------------------------------------------------------------


@program
def many_in_flight(store: str) -> None:
    with join(store) as context:
        arrays = [numpy.full(10_000, context.rank + 1.0) for _ in range(100)]
        handles = [context.allreduce_async(each, tag=tag) for tag, each in enumerate(arrays)]
        assert nezha.wait_all(handles)
        assert all((each == total(context)).all() for each in arrays)
        assert all(handle.test() and handle.error() is None for handle in handles)
        message = context.recv_async(bytearray(1), (context.rank - 1) % context.size)
        assert not message.wait(0.01) and not nezha.wait_all([message, *handles], 0.01)
        context.barrier()
        context.send(b"1", (context.rank + 1) % context.size)
        assert nezha.wait_all([message, *handles], 60)


@program
def dropped_handles(store: str) -> None:
    """Operations continue without their handles, and keep their memory as long as they need it."""
    with join(store) as context:
        if context.rank == 0:
            # The other ranks' operations stay in flight until each of them has looked.
            for rank in range(1, context.size):
                context.recv(bytearray(1), rank)
        big, small = numpy.full(300_000, context.rank + 1.0), numpy.full(3, context.rank + 1.0)
        gone = [weakref.ref(big), weakref.ref(small)]
        context.allreduce_async(big, tag=1)
        context.allreduce_async(small, tag=2)
        del big, small
        gc.collect()
        if context.rank > 0:
            assert all(each() is not None for each in gone), "memory of an operation in flight is gone"
            context.send(b"1", 0)
        # Later operations release the memory of completed ones.
        while not all_agree(context, all(each() is None for each in gone)):
            time.sleep(0.01)
        check = numpy.full(3, context.rank + 1.0)
        context.allreduce(check)
        assert (check == total(context)).all()


def all_agree(context: nezha.Context, value: bool) -> bool:
    """Whether `value` is true on all ranks."""
    flag = numpy.array([int(value)], "i4")
    context.allreduce(flag, operation="min")
    return bool(flag[0])


@program
def threads(store: str) -> None:
    """Each thread has its own tag; one thread waits for an operation that another started."""
    with join(store) as context:
        failures: list[BaseException] = []

        def work(tag: int) -> None:
            try:
                for round in range(50):
                    values = numpy.full(1 + 500 * tag, context.rank + float(round))
                    handle = context.allreduce_async(values, tag=tag)
                    others = [threading.Thread(target=handle.wait) for _ in range(2)]
                    for each in others:
                        each.start()
                    handle.wait()
                    for each in others:
                        each.join()
                    wanted = context.size * round + total(context) - context.size
                    assert (values == wanted).all()
            except BaseException as error:
                failures.append(error)

        workers = [threading.Thread(target=work, args=[tag]) for tag in range(4)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        assert not failures, failures


@program
def waiters(store: str) -> None:
    """Several threads wait for one operation, with and without a timeout of their own."""
    with join(store) as context:
        if context.rank == 0:
            handle = context.recv_async(bytearray(1), 1)
            results: list[bool] = []
            limits = [None, 0.5, 60, None]
            all_threads = [
                threading.Thread(target=lambda limit=limit: results.append(handle.wait(limit)))
                for limit in limits
            ]
            for each in all_threads:
                each.start()
            all_threads[1].join()  # the message comes after the timeout of this thread
            context.send(b"1", 1)
            for each in all_threads:
                each.join()
            assert sorted(results) == [False, True, True, True], results
        elif context.rank == 1:
            context.recv(bytearray(1), 0)
            context.send(b"1", 0)
        context.barrier()


@program
def over_for_all(store: str) -> None:
    """Once test() has seen an operation end, a wait of 0 seconds does, while threads wait."""
    with join(store) as context:
        if context.rank > 1:
            return context.barrier()
        for _ in range(300):
            if context.rank == 1:
                context.recv(bytearray(1), 0, tag=1)
                context.send(b"1", 0)
                continue
            handle = context.recv_async(bytearray(1), 1)
            others = [threading.Thread(target=handle.wait) for _ in range(4)]
            for each in others:
                each.start()
            context.send(b"1", 1, tag=1)
            while not handle.test():
                pass
            assert handle.wait(0) and nezha.wait_all([handle], 0)
            for each in others:
                each.join()
        context.barrier()


# ---- Messages, groups, functions ---------------------------------------------------------------


@program
def messages(store: str) -> None:
    with join(store) as context:
        rank, size = context.rank, context.size
        for source in (None, list(range(1, size)), tuple(range(size))):
            if rank > 0:
                context.send(numpy.full(5, rank), 0, tag=2**61)
            else:
                values = numpy.empty(5, int)
                seen = set()
                for _ in range(1, size):
                    seen.add(context.recv(values, source, tag=2**61))
                    assert (values == values[0]).all() and values[0] in seen
                assert seen == set(range(1, size))
            context.barrier()
        right, left = (rank + 1) % size, (rank - 1) % size
        big = numpy.full(1_000_000, rank)  # more than a rank accepts before it asks
        out = numpy.empty_like(big)
        handles = [context.recv_async(out, left), context.send_async(big, right)]
        assert nezha.wait_all(handles, datetime.timedelta(seconds=60))
        assert (out == left).all() and handles[0].source() == left and handles[1].source() == -1


@program
def groups(store: str) -> None:
    with join(store) as context:
        half = context.split(context.rank % 2, key=-context.rank)
        assert half is not None and half.size == context.size // 2
        ranks = numpy.empty(half.size, int)
        half.allgather(numpy.array([context.rank]), ranks)
        assert list(ranks) == sorted(ranks, reverse=True) and ranks[half.rank] == context.rank
        lonely = context.split(None if context.rank else 7)
        assert (lonely is None) == (context.rank > 0)
        assert lonely is None or lonely.size == 1
        with context.dup() as twin:
            context.close()
            values = numpy.ones(3)
            twin.allreduce(values)
            assert (values == twin.size).all()
        half.close()


@program
def functions(store: str) -> None:
    """Reduces with Python functions, one of which fails on one rank."""
    with join(store, timeout=50.0) as context:
        rank, size = context.rank, context.size
        for elements in (0, 1, 10, 10_007):
            everyone = numpy.random.default_rng(elements).integers(1, 99, (size, elements))
            out = numpy.empty_like(everyone[0])
            context.allreduce(everyone[rank], out, operation=numpy.bitwise_xor)
            assert (out == numpy.bitwise_xor.reduce(everyone)).all()
            values = everyone[rank].astype(complex) * 1j
            context.allreduce(values, operation=lambda a, b: a + b)
            assert (values == everyone.sum(axis=0) * 1j).all()
            # The left operand comes from the lower ranks.
            context.reduce(everyone[rank], out, root=1, operation=lambda a, b: a)
            if rank == 1:
                assert (out == everyone[0]).all()
            counts = [elements] + [0] * (size - 1)
            block = numpy.empty(counts[rank], everyone.dtype)
            context.reduce_scatter(everyone[rank], block, counts=counts, operation=numpy.maximum)
            assert rank or (block == everyone.max(axis=0)).all()
        error = raised(lambda: context.allreduce(numpy.ones(9), operation=numpy.add, dtype="float64"))
        assert isinstance(error, nezha.InvalidArgument)

        def fails(a: Any, b: Any) -> Any:
            raise LookupError("as it is to")

        function: Any = fails if rank == 2 else numpy.add
        dates = numpy.zeros(9, "M8[s]")
        either: list[Any] = ["max", numpy.maximum]
        for operation in either:
            error = raised(lambda: context.allreduce(dates, operation=operation))
            assert isinstance(error, nezha.InvalidArgument) and "view('int64')" in str(error), error
        uneven = [2] + [1] * (size - 1)
        out = numpy.empty(uneven[rank])
        error = raised(lambda: context.reduce_scatter(out, out, counts=uneven, operation=numpy.add))
        assert isinstance(error, nezha.InvalidArgument), error
        context.barrier()  # nothing was started
        third = numpy.empty(3)
        try:  # no rank waits for rank 2's block of the result
            context.reduce_scatter(numpy.ones(3 * size), third, operation=function)
        except LookupError:
            assert rank == 2
        error = raised(lambda: context.allreduce(numpy.ones(9), operation=function))
        assert isinstance(error, LookupError if rank == 2 else nezha.IoError), repr(error)
        assert rank == 2 or "rank 2" in str(error), error
        assert isinstance(raised(context.barrier), nezha.IoError)


@program
def short_of_memory(store: str) -> None:
    """One rank has no memory for a function's operands, and the others learn of it."""
    files = nezha.FileStore(store)
    with nezha.create(files, timeout=300) as context:
        values = numpy.zeros(8 << 20)  # 64 MiB
        context.allreduce(values[:99], operation=numpy.add)  # everything is set up now
        meet(context, store)
        if context.rank == 2:
            pages = int(Path("/proc/self/statm").read_text().split()[0])
            limit = pages * resource.getpagesize() + (32 << 20)
            resource.setrlimit(resource.RLIMIT_AS, (limit, resource.RLIM_INFINITY))
        error = raised(lambda: context.allreduce(values, operation=numpy.add))
        if context.rank == 2:
            resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
            assert isinstance(error, MemoryError), repr(error)
            files.wait([f"heard {rank}" for rank in (0, 1, 3)], 50)  # stays until the others know
        else:
            assert isinstance(error, nezha.IoError) and "rank 2" in str(error), repr(error)
            files.set(f"heard {context.rank}", b"")


# ---- Failures ----------------------------------------------------------------------------------


@program
def until_told(store: str) -> None:
    """Reduces until a file exists, and reports each right result and the rail eth1."""
    stop = Path(store).parent / "stop"
    with join(store) as context:
        while True:
            values = numpy.full(1_000_000, context.rank + 1, "f4")
            context.allreduce(values)
            assert (values == total(context)).all()
            say("done")
            if not all_agree(context, not stop.exists()):
                break
        rails = {rail.name: rail for rail in context.rails()}
        context.barrier()  # ranks that have left no longer count
        assert all(rail.bytes_sent > 1_000_000 for rail in rails.values()), rails
        say(f"eth1 {rails['eth1'].failures} {rails['eth1'].down_peers} {rails['eth1'].last_failure}")


@program
def until_lost(store: str) -> None:
    """Reduces until a rank is lost."""
    with join(store, timeout=120) as context:
        error: BaseException | None = None
        while error is None:
            say("done")
            try:
                context.allreduce(numpy.ones(1_000_000))
            except nezha.IoError as caught:
                error = caught
        assert isinstance(error, nezha.IoError) and not isinstance(error, TimeoutError)
        assert isinstance(raised(context.barrier), nezha.IoError)
        say(f"lost {error.ranks}: {error}")


@program
def late(store: str) -> None:
    """Rank 1 waits for a message that rank 0 does not send."""
    with join(store) as context:
        meet(context, store)
        if context.rank != 1:
            assert isinstance(raised(context.barrier), nezha.IoError)
            return
        handle = context.recv_async(bytearray(1), 0, timeout=0.5)
        error = raised(handle.wait)
        assert isinstance(error, nezha.TimeoutError) and isinstance(error, TimeoutError)
        assert isinstance(error, nezha.IoError) and error.ranks == [0], error.ranks
        assert type(handle.error()) is nezha.TimeoutError
        assert isinstance(raised(context.barrier), nezha.TimeoutError)


# ---- Processes ---------------------------------------------------------------------------------


@program
def forks(store: str) -> None:
    """A child has no part in its parent's context, and may create a context of its own."""
    context = join(store)
    values = numpy.full(3, context.rank + 1.0)
    handle = context.allreduce_async(values) if context.rank else None
    child = os.fork()
    if child == 0:
        assert isinstance(raised(context.barrier), nezha.InvalidArgument)
        assert isinstance(raised(lambda: handle.wait() if handle else context.dup()), nezha.InvalidArgument)
        del handle
        with nezha.create(nezha.PrefixStore("children", nezha.FileStore(store))) as own:
            numbers = numpy.ones(3)
            own.allreduce(numbers)
            assert (numbers == own.size).all()
        sys.exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    handle = handle or context.allreduce_async(values)
    handle.wait()
    assert (values == total(context)).all()
    context.close()


@program
def exits(store: str) -> None:
    """Ends with an open context, operations in flight and a thread that waits for one of them."""
    context = join(store)
    meet(context, store)
    if context.rank == 0:
        global kept
        kept = [context, context.recv_async(numpy.empty(1000), 1, tag=1)]
        context.recv_async(bytearray(1000), 1, tag=2)
        waits = threading.Event()
        waits_next = once_it_waits(waits.set)

        def work() -> None:
            waits_next()
            raised(lambda: context.recv(bytearray(1), 1))

        threading.Thread(target=work, daemon=True).start()
        waits.wait()
    else:
        error = raised(lambda: context.barrier())
        assert isinstance(error, nezha.IoError) and "rank 0" in str(error), error
    say("ends")


kept: list[Any] = []


@program
def closes(store: str) -> None:
    """A thread that waits in a call learns that another thread has closed the context."""
    context = join(store, timeout=300)
    meet(context, store)
    errors: list[BaseException] = []
    if context.rank == 0:
        waits = threading.Event()
        waits_next = once_it_waits(waits.set)

        def work() -> None:
            waits_next()
            errors.append(raised(lambda: context.recv(bytearray(1), 1)))

        waiter = threading.Thread(target=work)
        waiter.start()
        waits.wait()
        context.close()
        waiter.join()
    else:
        errors.append(raised(context.barrier))
    assert isinstance(errors[0], nezha.IoError), errors
    context.close()


@program
def interrupted_call(store: str) -> None:
    """Ctrl-C ends a blocking call of rank 0, and the other ranks learn of it."""
    with join(store, timeout=300) as context:
        meet(context, store)
        if context.rank == 0:
            once_it_waits(lambda: say("waits"))()
            assert isinstance(raised(lambda: context.recv(bytearray(1), 1)), KeyboardInterrupt)
        else:
            error = raised(context.barrier)
            assert isinstance(error, nezha.IoError), error
            assert "rank 0: recv" in str(error) and "was cancelled" in str(error), error
        say("interrupted")


@program
def interrupted_wait(store: str) -> None:
    """Ctrl-C during rank 0's wait does not harm the operation."""
    with join(store, timeout=300) as context:
        values = numpy.ones(3)
        if context.rank == 0:
            handle = context.allreduce_async(values)
            once_it_waits(lambda: say("waits"))()
            assert isinstance(raised(handle.wait), KeyboardInterrupt)
            say("interrupted")
        else:
            context.recv(bytearray(1), 0)
            handle = context.allreduce_async(values)
        for other in range(1, context.size if context.rank == 0 else 1):
            context.send(b"1", other)
        handle.wait()
        assert (values == context.size).all()


@program
def interrupted_create(store: str) -> None:
    """Ctrl-C ends create() while it waits for a rank that does not come."""
    files = nezha.FileStore(store)
    once_it_waits(lambda: say("waits"))()
    assert isinstance(raised(lambda: nezha.create(files, rank=1, size=2, timeout=300)), KeyboardInterrupt)
    say("interrupted")


# ---- Stores ------------------------------------------------------------------------------------


class StoreInPython:
    """A store that keeps files in a folder."""

    def __init__(self, folder: str) -> None:
        self.folder = Path(folder)

    def set(self, key: str, value: bytes) -> None:
        unfinished = self.folder / f".{key.replace('/', '-')}-{os.getpid()}"
        unfinished.write_bytes(value)
        unfinished.rename(self.folder / key.replace("/", "-"))

    def get(self, key: str) -> bytes:
        self.wait([key], 30)
        return (self.folder / key.replace("/", "-")).read_bytes()

    def wait(self, keys: Sequence[str], timeout: float) -> None:
        end = time.monotonic() + timeout
        while not all((self.folder / key.replace("/", "-")).exists() for key in keys):
            if time.monotonic() > end:
                raise LookupError(f"{keys} not there")
            time.sleep(0.01)


class StoreThatTells(StoreInPython):
    """Reports that nezha waits for a key."""

    def __init__(self, folder: str) -> None:
        super().__init__(folder)
        self.waits = threading.Event()

    def wait(self, keys: Sequence[str], timeout: float) -> None:
        self.waits.set()
        super().wait(keys, timeout)


@program
def exits_early(store: str) -> None:
    """Ends while nezha waits in a store in Python for a rank that does not come."""
    global kept
    mine = StoreThatTells(store)
    context = nezha.create(mine, rank=0, size=2, timeout=300)
    kept = [context, context.barrier_async()]
    mine.waits.wait()
    say("ends")


class SlowToGo:
    """Gives threads that have not ended time to ask for the GIL while the interpreter ends."""

    def __init__(self) -> None:
        self._sleep = time.sleep

    def __del__(self) -> None:
        self._sleep(0.5)


@program
def exits_in_create(store: str) -> None:
    """Ends while threads wait for a rank that does not come, in two stores, one in Python."""
    global kept
    kept = [SlowToGo()]
    mine = StoreThatTells(store)
    for each in (mine, nezha.FileStore(store)):
        options = {"rank": 1, "size": 2, "timeout": 300}
        threading.Thread(target=nezha.create, args=[each], kwargs=options, daemon=True).start()
    mine.waits.wait()
    say("ends")


@program
def interrupted_store(store: str) -> None:
    """Ctrl-C ends create() while a store in Python waits for a rank that does not come."""
    mine = StoreThatTells(store)

    def tell() -> None:
        mine.waits.wait()
        say("waits")

    threading.Thread(target=tell, daemon=True).start()
    assert isinstance(raised(lambda: nezha.create(mine, rank=1, size=2, timeout=300)), KeyboardInterrupt)
    say("interrupted")


@program
def stores(store: str) -> None:
    """Creates several contexts with one store, for each kind of store."""
    files = nezha.FileStore(store)
    redis = nezha.RedisStore(os.environ["REDIS_HOST"], prefix="a job")
    mine = StoreInPython(store)
    kinds: list[nezha.Store] = [files, redis, mine]
    for number, each in enumerate(kinds):
        kept = [nezha.PrefixStore(f"{number}-{context}", each) for context in range(2)]
        contexts = [nezha.create(prefixed) for prefixed in kept]
        del kept
        for context in contexts:
            values = numpy.ones(3)
            context.allreduce(values)
            assert (values == context.size).all()
        for context in contexts:
            context.close()
    rank = int(os.environ["RANK"])
    files.set(f"note {rank}", b"\0note")
    assert files.get(f"note {rank ^ 1}") == b"\0note"
    assert isinstance(raised(lambda: files.wait(["never"], 0.1)), nezha.IoError)
    assert isinstance(raised(lambda: nezha.FileStore("/nowhere")), nezha.InvalidArgument)
    assert isinstance(raised(lambda: nezha.create(3)), TypeError)  # type: ignore[arg-type]

    class Broken(StoreInPython):
        def set(self, key: str, value: bytes) -> None:
            raise LookupError("no room")

    with_reason = raised(lambda: nezha.create(Broken(store), rank=0, size=2))
    assert isinstance(with_reason, nezha.IoError) and "no room" in str(with_reason), with_reason


@program
def reports(store: str) -> None:
    """The information that a context and the host give about themselves."""
    with join(store, rails=["tcp:eth0", "tcp:eth1"], timeout=44, plan=nezha.Plan.STRIPE) as context:
        assert context.timeout == 44 and repr(context) == f"<nezha.Context: rank {context.rank} of 4>"
        assert [rail.name for rail in context.rails()] == ["eth0", "eth1"]
    with nezha.create(nezha.PrefixStore("learns", nezha.FileStore(store))) as context:
        for _ in range(30):
            context.allreduce(numpy.ones(1 << 18, "f4"))
        balance = context.balance()
        assert balance.lanes and abs(sum(balance.classes[0].shares) - 1) < 1e-6, balance
        assert balance.classes[0].least_bytes == 1 << 20
    assert isinstance(raised(lambda: join(store, plan="best")), nezha.InvalidArgument)
    interfaces = {each.name: each for each in nezha.network_interfaces()}
    assert interfaces["eth0"].uri and not interfaces["lo"].uri, interfaces
    assert nezha.launch_environment().size == 4
    assert "NEZHA_RAILS" in nezha.environment_help() and nezha.__version__[0].isdigit()


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)
    PROGRAMS[sys.argv[1]](sys.argv[2])
