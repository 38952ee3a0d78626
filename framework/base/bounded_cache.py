"""A cache of bounded size, for what is made once for each shape, batch or net."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class BoundedCache(Generic[Key, Value]):
    """Values by key; where it is full, the value that was added first makes room for a new one.

    Args:
        most: how many values it holds at most.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._values: dict[Key, Value] = {}

    def __len__(self) -> int:
        return len(self._values)

    def get(self, key: Key) -> Value | None:
        """The value of a key; None where there is none."""
        return self._values.get(key)

    def add(self, key: Key, value: Value) -> Value:
        """Store a value and return it."""
        values = self._values
        while len(values) >= self._most:
            values.pop(next(iter(values)), None)
        values[key] = value
        return value
