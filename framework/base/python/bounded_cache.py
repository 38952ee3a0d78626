"""Caches of bounded size, for what is made once for each shape, batch, net or request.

All caches of a process together keep no more bytes than the limit `cache`. The value that a cache
gave last is in use, and is not counted: a net that runs the same shapes again and again loses
nothing, however large they are. What is counted are the values of other shapes. Where they are too
many, the one goes first that was used least recently, in whichever cache it is.
"""

from __future__ import annotations

import ctypes
import functools
import sys
import weakref
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable
from typing import Any, Generic, TypeVar, cast

from ..errors import OpscopeError
from ..untrusted.limits import limit
from .cached import new_rlock

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")

_MISSING = object()
_TRIMMED = 16 << 20
"""Bytes that caches let go of before the memory is given back to the system."""

CAPACITY = 64
"""Values of a cache whose bytes are not counted."""


class HashedOnce(tuple[Any, ...]):
    """A key of many parts: whoever walks through a cache hashes each of its keys."""

    _hash: int | None = None

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = super().__hash__()
        return self._hash


class BoundedCache(Generic[Key, Value]):
    """Values by key; a full cache drops the value that was used least recently.

    Args:
        capacity: the greatest number of values; None: as many as the limit of bytes lets be, or
            `CAPACITY` where bytes are not counted.
        nbytes: the memory that a value keeps; looked at when another one is used after it. None:
            too little to be counted.
        release: takes apart a value that is dropped for want of room, so that its memory is free at
            once: values that refer to themselves would wait for Python to look for circles.

    Raises:
        OpscopeError: the capacity is not positive.
    """

    def __init__(
        self,
        capacity: int | None = None,
        nbytes: Callable[[Value], int] | None = None,
        release: Callable[[Value], None] | None = None,
    ) -> None:
        self._charges: dict[Key, _Charge] = {}
        if capacity is None:
            capacity = CAPACITY if nbytes is None else sys.maxsize
        if capacity < 1:
            raise OpscopeError(f"a cache of {capacity} values")
        self.capacity = capacity
        self._nbytes = nbytes
        self._release = release
        self._values: OrderedDict[Key, Value] = OrderedDict()
        self._last: list[Key] = []  # the key of the value in use

    def __len__(self) -> int:
        return len(self._values)

    def __del__(self) -> None:
        if self._charges and _IDLE is not None:  # which is gone while the interpreter ends
            _IDLE.remove(self._charges.values())

    def values(self) -> list[Value]:
        """All values, the most recently used last."""
        with _IDLE.lock:
            return list(self._values.values())

    def items(self) -> list[tuple[Key, Value]]:
        """As `values`, with their keys."""
        with _IDLE.lock:
            return list(self._values.items())

    def get(self, key: Key) -> Value | None:
        """The value of a key; None where there is none."""
        value = self._values.get(key)
        return value if value is not None and self._use(key) else None

    def add(self, key: Key, value: Value) -> Value:
        """Store a value and return it."""
        with _IDLE.lock:
            self._values[key] = value
        self._use(key)
        while len(self._values) > self.capacity:
            with _IDLE.lock:
                oldest = next(iter(self._values), key)
            self.give_up(oldest)
        return value

    def get_or_make(self, key: Key, make: Callable[[], Value]) -> Value:
        """The value of a key; a missing one is made and stored."""
        value = self._values.get(key, _MISSING)
        if value is _MISSING or not self._use(key):
            return self.add(key, make())
        return cast(Value, value)

    def give_up(self, key: Key) -> None:
        """Drop a value for want of room."""
        value = self.drop(key)
        if value is not None and self._release is not None:
            self._release(value)

    def drop(self, key: Key) -> Value | None:
        """Forget a value, where it is there, and return it."""
        with _IDLE.lock:
            charge = self._charges.pop(key, None)
            value = self._values.pop(key, None)
            if charge is not None:
                _IDLE.remove([charge])
        if charge is not None:
            _IDLE.dropped(charge.nbytes)
        return value

    def drop_where(self, condition: Callable[[Value], bool]) -> None:
        """Forget the values for which a condition holds."""
        for key, value in self.items():
            if condition(value):
                self.drop(key)

    def _use(self, key: Key) -> bool:
        """Note which value is in use; False: another thread has just had it dropped."""
        if self._last == [key]:
            return key in self._values
        # Keys compare in Python, where threads change: an OrderedDict takes no two changes at once.
        with _IDLE.lock:
            if key not in self._values:
                return False
            self._values.move_to_end(key)
            before = self._last
            self._last = [key]
            charge = self._charges.pop(key, None)
            if charge is not None:
                _IDLE.remove([charge])
        if self._nbytes is None:
            return True
        for idle in before:
            value = self._values.get(idle)
            if value is not None:
                self._charge(idle, self._nbytes(value))
        return True

    def _charge(self, key: Key, nbytes: int) -> None:
        """Count a value that is no longer in use."""
        with _IDLE.lock:
            if key not in self._values or key in self._last or key in self._charges:
                return
            charge = self._charges[key] = _Charge(self, key, nbytes)
            _IDLE.add(charge)
        _IDLE.make_room()


class _Charge:
    """The bytes of one value that is not in use."""

    __slots__ = ("_cache", "_key", "nbytes")

    def __init__(self, cache: BoundedCache[Any, Any], key: Hashable, nbytes: int) -> None:
        # Weak: what waits to be dropped must not keep its cache alive.
        self._cache = weakref.ref(cache)
        self._key = key
        self.nbytes = nbytes

    def taken(self) -> Callable[[], None]:
        """Takes the value out of its cache; the call that takes the value apart."""
        cache = self._cache()
        if cache is None:
            _IDLE.remove([self])
            return lambda: None
        value = cache.drop(self._key)
        release = cache._release
        return lambda: None if value is None or release is None else release(value)


class _IdleValues:
    """What the values of all caches that are not in use keep, the least recently used first.

    Attributes:
        lock: held while a value comes into use or goes out of it. What makes or takes apart a value
            runs without it.
    """

    def __init__(self) -> None:
        self.nbytes = 0
        self.lock = new_rlock()
        self._dropped = 0
        self._charges: OrderedDict[_Charge, None] = OrderedDict()

    def add(self, charge: _Charge) -> None:
        """Count a value."""
        with self.lock:
            self._charges[charge] = None
            self.nbytes += charge.nbytes

    def make_room(self) -> None:
        """Drop the oldest values where all together are too many."""
        most = limit("cache")
        while True:
            with self.lock:
                if self.nbytes <= most or not self._charges:
                    return
                release = next(iter(self._charges)).taken()
            release()

    def dropped(self, nbytes: int) -> None:
        """Note that a value was let go of.

        What lies between others in memory stays with the process, where nothing asks the C library
        to give it back: a served model of 30 MB then takes 90 after some hundred shapes.
        """
        self._dropped += nbytes
        if self._dropped > _TRIMMED:
            self._dropped = 0
            give_back()

    def remove(self, charges: Iterable[_Charge]) -> None:
        """Count values no more."""
        with self.lock:
            for charge in list(charges):
                if self._charges.pop(charge, self) is None:
                    self.nbytes -= charge.nbytes


def give_back() -> None:
    """Let the C library give memory that is free back to the system, where it can."""
    trim = _malloc_trim()
    if trim is not None:
        trim(0)


@functools.cache
def _malloc_trim() -> Any:
    """The function of glibc; None where there is another library."""
    try:
        return ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError, TypeError):
        return None


_IDLE = _IdleValues()
"""What all caches keep for shapes other than the last ones."""
