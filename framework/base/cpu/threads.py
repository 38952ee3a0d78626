"""How many threads products, compiled loops and recurrent nets may use: one setting for all.

Compiled code draws its threads from one pool. `POOL` is the memory that it reads: how many threads
may run, and how many do. A region takes what is left, so that nets that run at the same time in
several Python threads do not use more of them together.

By default the number follows from the cores that are free: those that the process may use, less
those that other processes keep busy, measured five times a second while nets run. A team waits for
its slowest thread, so that beside a busy process two threads on two cores can be ten times slower
than one. How work is cut does not depend on this number, and so no result does.

How much work is worth a thread is decided where the work is known, in fusion/ and operators/.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import warnings
from collections.abc import Callable, Iterator
from time import monotonic

from ..errors import OpscopeError
from ..options import settings
from .cores import Load, usable_cores
from .numpy_blas import BlasThreads, controllers

_INTERVAL = 0.2  # seconds from one look at the load to the next
_COST = 500  # times the duration of a look is the least interval
_ENOUGH = 0.4  # a core of which more than 0.6 is free counts as free

POOL = (ctypes.c_int64 * 2)()
"""The most threads that compiled code may use now, and the number that it uses."""

SPIN = ctypes.c_int64()
"""For how many nanoseconds an idle thread of the pool (native/pool.h) waits awake."""


class _Setting:
    """What was asked for, and what is known of the machine.

    Attributes:
        asked: threads by `set_threads`; None: by the environment, or automatic.
        most: into how many parts work is cut; no more threads are ever used.
        chosen: whether `set_threads` or `OPSCOPE_THREADS` says the number.
        load: None where the number is fixed.
        next: when to look at the load again, on the monotonic clock.
        more: whether a core more was free at the last look.
        forked: whether this is the child of a fork, where the pool has no threads.
        followers: called at each change. numpy: the one among them that is for NumPy's BLAS.
    """

    def __init__(self) -> None:
        self.asked: int | None = None
        self.most = 0
        self.chosen = False
        self.load: Load | None = None
        self.next = 0.0
        self.more = False
        self.forked = False
        self.followers: list[Callable[[int, bool], None]] = []
        self.numpy: BlasThreads | None = None


_setting = _Setting()


def set_threads(count: int | None = None) -> None:
    """Set the number of threads of everything that computes: products, loops, recurrent nets.

    It reaches compiled code, MKL and NumPy's BLAS, also for the caller's own use of NumPy. Without
    a call it is `OPSCOPE_THREADS` or `OMP_NUM_THREADS` of the environment, and else automatic: as
    many as there are cores that the process may use and that are free.

    Args:
        count: 1 or more; more than the usable cores are a warning, and only as many are used.
            None goes back to the default.

    Raises:
        OpscopeError: no such number.
    """
    if count is not None and (isinstance(count, bool) or not isinstance(count, int) or count < 1):
        raise OpscopeError(f"set_threads: want a whole number from 1 on, or None, not {count!r}")
    cores = usable_cores()
    if count is not None and count > cores:
        warnings.warn(
            f"set_threads({count}): this process may use {cores} cores, and gets as many threads",
            stacklevel=2,
        )
        count = cores
    _setting.asked = count
    _start()


@contextlib.contextmanager
def threads_set(count: int) -> Iterator[None]:
    """`set_threads(count)` for a while; then what was set before holds again."""
    before = _setting.asked
    set_threads(count)
    try:
        yield
    finally:
        _setting.asked = before
        _start()


def get_threads() -> int:
    """The number of threads that a computation may use now; see `set_threads`."""
    look()
    return POOL[0]


def most_threads() -> int:
    """Into how many parts work is cut; it does not change with the load of the machine."""
    if not _setting.most:
        _start()
    return _setting.most


def follow(function: Callable[[int, bool], None]) -> None:
    """Call a function now and after each change.

    Its arguments are the number, and whether `set_threads` or `OPSCOPE_THREADS` chose it.
    """
    most_threads()  # decided now, if it was not
    _setting.followers.append(function)
    function(POOL[0], _setting.chosen)


def follow_by_numpy(*, always: bool) -> None:
    """Let NumPy's BLAS follow the number, always or only where somebody chose it."""
    most_threads()
    if _setting.numpy is None:
        _setting.numpy = BlasThreads(controllers())
        _setting.followers.append(_setting.numpy)
    _setting.numpy.always |= always
    _setting.numpy(POOL[0], _setting.chosen)


def look() -> None:
    """Adapt the number to the load of the machine; what runs a net calls it before. It is cheap."""
    if monotonic() < _setting.next:
        return
    now = monotonic()
    if not _setting.most:
        _start()
    load = _setting.load
    if load is None:
        return
    busy = load.busy()
    if busy is not None:
        free = _within((os.cpu_count() or 1) - busy)
        if free <= POOL[0] or _setting.more:  # a core must have been free twice in a row
            _use(free)
        _setting.more = free > POOL[0]
    after = monotonic()
    _setting.next = after + max(_INTERVAL, _COST * (after - now))


def _start() -> None:
    """Begin with what is asked for: by the caller, by the environment, or automatically."""
    chosen = _setting.asked or _from_switch()
    asked = 1 if _setting.forked else chosen or _from_openmp()
    cores = usable_cores()
    _setting.most = cores if asked is None else min(asked, cores)
    _setting.chosen = chosen is not None
    _setting.load = None if asked or cores == 1 else Load()
    _setting.more = False
    _setting.next = float("inf")
    number = _setting.most
    if _setting.load is not None:
        _setting.next = monotonic() + _INTERVAL
        others = _setting.load.runnable()
        if others is not None:
            number = _within((os.cpu_count() or 1) - others)
    SPIN.value = 1000 * _number("OPSCOPE_SPIN", 0)
    POOL[0] = 0  # followers hear of it in any case
    _use(number)
    if chosen is not None:
        follow_by_numpy(always=False)


def _from_switch() -> int | None:
    """The number that `OPSCOPE_THREADS` says.

    Raises:
        OpscopeError: it says something else.
    """
    return _number("OPSCOPE_THREADS", 1) if settings.switch("OPSCOPE_THREADS") else None


def _number(name: str, least: int) -> int:
    """The whole number that a switch says.

    Raises:
        OpscopeError: it says something else, or one below `least`.
    """
    text = settings.switch(name)
    number = int(text[:9]) if text.isascii() and text.isdecimal() else -1
    if number < least:
        raise OpscopeError(f"{name}={text}: want a whole number from {least} on, or nothing")
    return number


def _from_openmp() -> int | None:
    """The first number of `OMP_NUM_THREADS`, which NumPy's BLAS reads as well."""
    first = os.environ.get("OMP_NUM_THREADS", "").split(",")[0].strip()
    return int(first[:9]) or None if first.isascii() and first.isdecimal() else None


def _within(free: float) -> int:
    return max(1, min(_setting.most, int(free + _ENOUGH)))


def _use(number: int) -> None:
    if number == POOL[0]:
        return
    POOL[0] = number
    for function in _setting.followers:
        function(number, _setting.chosen)


def _after_fork() -> None:
    """The pool's threads do not survive a fork, and waiting for them would hang."""
    _setting.forked = True
    _setting.most = 1
    _setting.load = None
    _setting.next = float("inf")
    POOL[0], POOL[1] = 1, 0
    for function in _setting.followers:
        function(1, False)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
