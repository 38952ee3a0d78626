"""Lowered operators: a component's recipe holds them, over symbolic names of variables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from ....framework.base.python.cached import cached_property
from ....framework.ir.desc import attr_values
from ....framework.ir.messages import attr_type
from ....framework.ir.op_list import OpNode
from ....framework.ir.registry import lookup

Slots = tuple[tuple[str, tuple[str, ...]], ...]
SlotNames = Mapping[str, "str | Sequence[str]"]

_INDEXES = "@INDEXES@"


def of_indexes(field: str = "") -> str:
    """A placeholder for the precomputed indexes of each use, or for a field of them."""
    return _INDEXES + field


def field_of_indexes(value: Any) -> str | None:
    """The field that `of_indexes` names; None for any other attribute."""
    if isinstance(value, str) and value.startswith(_INDEXES):
        return value.removeprefix(_INDEXES)
    return None


class Attrs:
    """The attributes of a step: hashable, and equal where the values and their types are.

    Attributes:
        values: as `OpNode.attrs` has them; not to be changed.
    """

    def __init__(self, values: dict[str, Any]) -> None:
        self.values = values

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Attrs:
        """Attributes from plain Python values."""
        try:
            return _attrs(tuple(values), *values.values())
        except TypeError:  # lists, arrays and the like cannot be looked up
            return cls(attr_values(values))

    @cached_property
    def _key(self) -> tuple[Any, ...]:
        return tuple([(name, *_key_of(self.values[name])) for name in sorted(self.values)])

    @cached_property
    def _hash(self) -> int:
        return hash(self._key)

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Attrs) and self._key == other._key)

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def nbytes(self) -> int:
        """Bytes of the arrays among them."""
        return sum([v.nbytes for v in self.values.values() if isinstance(v, np.ndarray)])


def _key_of(value: Any) -> tuple[Any, ...]:
    """Equal for values that are the same to the bit."""
    if isinstance(value, np.ndarray):
        return value.dtype, value.shape, value.tobytes()
    return attr_type(value), repr(value)


@lru_cache(maxsize=1024, typed=True)
def _attrs(names: tuple[str, ...], *values: Any) -> Attrs:
    return Attrs(attr_values(dict(zip(names, values, strict=True))))


_NO_ATTRS = Attrs({})


class LoweredOp(NamedTuple):
    """One operator of a recipe. It is hashable, so that components with the same ones share them.

    Attributes:
        inputs, outputs: variables by slot.
    """

    type: str
    inputs: Slots
    outputs: Slots
    attrs: Attrs = _NO_ATTRS

    @classmethod
    def of(
        cls,
        op_type: str,
        inputs: SlotNames,
        outputs: SlotNames,
        attrs: Attrs | Mapping | None = None,
    ) -> LoweredOp:
        """From plain Python values; `attrs` may also be another one's."""
        if not isinstance(attrs, Attrs):
            attrs = Attrs.of(attrs) if attrs else _NO_ATTRS
        return cls(op_type, _slots(inputs), _slots(outputs), attrs)

    def reads(self, name: str) -> bool:
        """Whether the operator reads the value of `name` (and not its shape alone)."""
        read = [slot for slot, names in self.inputs if name in names]
        if not read:
            return False
        slots = lookup(self.type).input_slots
        return not all(slots[slot].shape_only for slot in read)

    def writes(self, name: str) -> bool:
        return any(name in names for _, names in self.outputs)

    def variables(self) -> Iterator[str]:
        """All that it reads and writes."""
        for slots in (self.inputs, self.outputs):
            for _, names in slots:
                yield from names

    def renamed(self, names: Mapping[str, str]) -> LoweredOp:
        inputs, outputs = _renamed(self.inputs, names), _renamed(self.outputs, names)
        return LoweredOp(self.type, inputs, outputs, self.attrs)

    def node(self, role: int) -> OpNode:
        """The operator, over symbolic names."""
        return OpNode(self.type, dict(self.inputs), dict(self.outputs), self.attrs.values, role)


def _renamed(slots: Slots, names: Mapping[str, str]) -> Slots:
    return tuple([(slot, tuple([names.get(v, v) for v in variables])) for slot, variables in slots])


def _slots(slots: SlotNames) -> Slots:
    return tuple(
        [
            (slot, (names,) if isinstance(names, str) else tuple(names))
            for slot, names in slots.items()
        ]
    )
