"""A cache of bounded size, for what is made once for each shape, batch, net or request."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from ..errors import OpscopeError

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class BoundedCache(Generic[Key, Value]):
    """Values by key; a full cache drops the value that was used least recently.

    Args:
        capacity: the greatest number of values.

    Raises:
        OpscopeError: the capacity is not positive.
    """

    def __init__(self, capacity: int) -> None:
        if capacity < 1:
            raise OpscopeError(f"a cache of {capacity} values")
        self.capacity = capacity
        self._values: OrderedDict[Key, Value] = OrderedDict()

    def __len__(self) -> int:
        return len(self._values)

    def values(self) -> list[Value]:
        """All values, the most recently used last."""
        return list(self._values.values())

    def get(self, key: Key) -> Value | None:
        """The value of a key; None where there is none."""
        value = self._values.get(key)
        if value is not None:
            self._mark_used(key)
        return value

    def add(self, key: Key, value: Value) -> Value:
        """Store a value and return it."""
        self._values[key] = value
        self._mark_used(key)
        while len(self._values) > self.capacity:
            self._values.popitem(last=False)
        return value

    def get_or_make(self, key: Key, make: Callable[[], Value]) -> Value:
        """The value of a key; a missing one is made and stored."""
        if key not in self._values:
            return self.add(key, make())
        value = self._values[key]
        self._mark_used(key)
        return value

    def _mark_used(self, key: Key) -> None:
        try:
            self._values.move_to_end(key)
        except KeyError:  # another thread has just dropped it
            pass
