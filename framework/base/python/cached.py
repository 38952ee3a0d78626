"""Properties that are computed once, and locks: both such that the child of a fork does not hang.

A lock that another thread held at the fork stays held in the child, where that thread is not there.
Python 3.11 holds one lock for all objects of a class while a `functools.cached_property` computes.
"""

from __future__ import annotations

# A fork takes logging's lock, too, and takes first what was registered last. Were logging imported
# by the holder of a lock that forks wait for, the fork would hold logging's lock and wait for ours,
# and the holder of ours for logging's.
import logging  # noqa: F401
import os
import threading
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

_register: Callable[..., None] | None = getattr(os, "register_at_fork", None)
# Weak: a lock goes with its object; the handler of forks would keep all alive.
_locks: weakref.WeakSet[Any] = weakref.WeakSet()

if TYPE_CHECKING:
    from functools import cached_property
else:

    class cached_property:
        """As in `functools` from Python 3.12: two threads may both compute the value."""

        def __init__(self, function: Callable[[Any], Any]) -> None:
            self.function = function
            self.name = function.__name__
            self.__doc__ = function.__doc__

        def __set_name__(self, owner: type, name: str) -> None:
            self.name = name

        def __get__(self, instance: Any, owner: type | None = None) -> Any:
            if instance is None:
                return self
            # From now on Python finds the value in the object itself.
            value = instance.__dict__[self.name] = self.function(instance)
            return value


def new_lock() -> threading.Lock:
    """A lock that is open in the child of a fork."""
    lock = threading.Lock()
    _locks.add(lock)
    return lock


def new_rlock() -> threading.RLock:
    """The same, which its holder may take again."""
    lock = threading.RLock()
    _locks.add(lock)
    return lock


def new_waiting_rlock() -> threading.RLock:
    """A lock for what must not be half done in the child of a fork: the fork waits for its end."""
    lock = threading.RLock()
    if _register is not None:
        _register(before=lock.acquire, after_in_parent=lock.release, after_in_child=lock.release)
    return lock


def _after_fork() -> None:
    for lock in _locks:
        lock._at_fork_reinit()


if _register is not None:
    _register(after_in_child=_after_fork)
