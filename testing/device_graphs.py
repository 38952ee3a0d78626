"""CUDA graphs of the stand-in of CuPy: what a stream records is not computed, but replayed.

While a stream records, copies to and from the host are refused, and so is memory that comes from no
pool of the caller's: the graph would write to it when others have it.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

Work = tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any], Any]

launches: list[str] = []
"""Calls that start a kernel, or several, since the test emptied the list."""

_arrays: dict[int, tuple[weakref.ref[Any], int]] = {}
"""All arrays of the devices, each with the thread that made it: ranks are threads, with a device
each."""


class Tape(threading.local):
    """What the stream that records has been given, in order; nothing where none records."""

    def __init__(self) -> None:
        self.work: list[Work] | None = None
        self.pools: list[Any] = []
        self.streams: list[Stream] = []
        self.inside = 0  # a function of CuPy calls others
        self._before: list[tuple[np.ndarray, np.ndarray]] = []

    @property
    def records(self) -> bool:
        return self.work is not None

    def begin(self) -> None:
        self.work = []
        # What runs while it is recorded has no effect.
        self._before = [(memory, memory.copy()) for memory in _memories()]

    def end(self) -> list[Work]:
        work, self.work = self.work, None
        assert work is not None
        for memory, before in self._before:
            memory[...] = before
        self._before = []
        return work


tape = Tape()


class Crossings(list[str]):
    """Copies between host and device; none while a stream records."""

    def append(self, what: str) -> None:
        if tape.records:
            raise RuntimeError(f"{what}: operation not permitted when stream is capturing")
        super().append(what)


def keep(array: Any) -> None:
    """Know of an array of the device."""
    if tape.records and array.memory.base is None and not tape.pools:
        raise RuntimeError("memory from outside of the pool while a stream records")
    number = id(array)
    reference = weakref.ref(array, lambda _: _arrays.pop(number, None))
    _arrays[number] = reference, threading.get_ident()


def _memories(device: int | None = None) -> list[np.ndarray]:
    """The memory of all arrays of this thread, or of those on a device, each once."""
    found: dict[int, np.ndarray] = {}
    own = threading.get_ident()
    for reference, thread in list(_arrays.values()):
        array = reference() if thread == own else None
        if array is None or device not in (None, array.device):
            continue
        memory = array.memory
        while isinstance(memory.base, np.ndarray):
            memory = memory.base
        if memory.flags.writeable:
            found[id(memory)] = memory
    return list(found.values())


def recorded(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of the device, which a stream that records takes note of."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if tape.work is None or tape.inside:
            return function(*args, **kwargs)
        tape.inside += 1
        try:
            result = function(*args, **kwargs)
        finally:
            tape.inside -= 1
        tape.work.append((function, args, kwargs, result))
        return result

    return call


class Graph:
    """`cupy.cuda.Graph`."""

    def __init__(self, work: list[Work]) -> None:
        self._work = work

    def launch(self, stream: Any = None) -> None:
        before = len(launches)
        for function, args, kwargs, result in self._work:
            _into(result, function(*args, **kwargs))
        launches[before:] = ["graph"]


def _into(result: Any, found: Any) -> None:
    """What a function gave when it was recorded has what it gives now."""
    if isinstance(result, (list, tuple)):
        for one, other in zip(result, found, strict=True):
            _into(one, other)
    elif result is not found and hasattr(result, "memory"):
        result.memory[...] = found.memory


_handles = itertools.count(1 << 20)


class Stream:
    """`cupy.cuda.Stream`. What is copied on a stream of its own is copied as late as may be: when
    another one waits for it."""

    ptr = 0

    def __init__(self, null: bool = False, non_blocking: bool = False) -> None:
        self.ptr = 0 if null else next(_handles)
        # Others wait for what the null stream does, unless they are told not to.
        if not (null or non_blocking):
            raise ValueError("a stream that waits for the null stream records nothing")
        self._work: list[Callable[[], Any]] = []

    def later(self, function: Callable[..., Any], *args: Any) -> None:
        self._work.append(functools.partial(function, *args))

    def synchronize(self) -> None:
        work, self._work = self._work, []
        for one in work:
            one()

    def record(self) -> Stream:
        return self

    def wait_event(self, event: Any) -> None:
        if isinstance(event, Stream):  # else of a communicator, which waits itself
            event.synchronize()

    def __enter__(self) -> None:
        tape.streams.append(self)

    def __exit__(self, *error: Any) -> None:
        tape.streams.pop()

    def begin_capture(self) -> None:
        if not self.ptr:
            raise RuntimeError("cannot capture on the default (legacy) stream")
        tape.begin()

    def end_capture(self) -> Graph:
        return Graph(tape.end())


def get_current_stream() -> Stream:
    """`cupy.cuda.get_current_stream`."""
    return tape.streams[-1] if tape.streams else Stream(null=True)


class MemoryPool:
    """`cupy.cuda.MemoryPool`, as far as `using_allocator` takes it, and what arrays have of it: a
    pool has memory of each GPU, and knows how much of the current one is used."""

    def __init__(self, current: Callable[[], int] = int) -> None:
        self._current = current

    def malloc(self, size: int) -> Any:
        raise NotImplementedError("arrays of the double are NumPy's")

    def used_bytes(self) -> int:
        return sum(memory.nbytes for memory in _memories(self._current()))


_pinned: weakref.WeakValueDictionary[int, np.ndarray] = weakref.WeakValueDictionary()


def alloc_pinned_memory(size: int) -> Any:
    """`cupy.cuda.alloc_pinned_memory`."""
    memory = np.empty(size, np.uint8)
    _pinned[memory.ctypes.data] = memory
    return memory


def is_pinned(array: np.ndarray) -> bool:
    """Whether an array of the host begins where pinned memory does."""
    return array.ctypes.data in _pinned


@contextlib.contextmanager
def using_allocator(allocator: Any) -> Iterator[None]:
    tape.pools.append(allocator)
    try:
        yield
    finally:
        tape.pools.pop()
