"""Results that equal nets share: what is made of an inner net is made once for all its copies."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, wraps
from typing import TypeVar
from weakref import WeakKeyDictionary

from .messages import to_message
from .op_list import OpList

Made = TypeVar("Made")


class _Content:
    """A net as a key: equal to nets that say the same."""

    __slots__ = ("_data", "net")

    def __init__(self, net: OpList) -> None:
        self.net = net
        # Deterministic: protobuf writes maps (attributes) in any order otherwise.
        self._data = to_message(net).SerializeToString(deterministic=True)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Content) and self._data == other._data

    def __hash__(self) -> int:
        return hash(self._data)


def shared_by_equal_nets(make: Callable[[OpList], Made]) -> Callable[[OpList], Made]:
    """Decorator: what is made of a net, which must not change; equal nets share one result."""
    known: WeakKeyDictionary[OpList, Made] = WeakKeyDictionary()
    by_content = lru_cache(maxsize=256)(lambda content: make(content.net))

    @wraps(make)
    def shared(net: OpList) -> Made:
        # First by identity: to compare contents a net is written out as a message.
        equal = known.get(net)
        if equal is None:
            equal = known[net] = by_content(_Content(net))
        return equal

    return shared
