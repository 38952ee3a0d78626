"""Lowered operators: those of a component's recipe, over symbolic names of variables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from ....framework.ir.desc import OpDesc, set_attrs
from ....framework.ir.registry import lookup
from ....proto import net_pb2 as pb

Slots = tuple[tuple[str, tuple[str, ...]], ...]
Given = Mapping[str, "str | Sequence[str]"]

_INDEXES = "@INDEXES@"


def of_indexes(field: str = "") -> pb.Attr:
    """A placeholder attribute: each use puts its precomputed indexes, or a field of them, here."""
    return pb.Attr(s=_INDEXES + field)


def field_of_indexes(attr: pb.Attr) -> str | None:
    """The field that `of_indexes` was given; None for any other attribute."""
    return attr.s.removeprefix(_INDEXES) if attr.s.startswith(_INDEXES) else None


class LoweredOp(NamedTuple):
    """One operator of a recipe. It is hashable, so that components with the same ones share them.

    Attributes:
        inputs, outputs: variables by slot.
        attrs: the wire form of an OpDesc that holds the attributes and nothing else.
    """

    type: str
    inputs: Slots
    outputs: Slots
    attrs: bytes = b""

    @classmethod
    def of(cls, op_type: str, inputs: Given, outputs: Given, attrs: Any = None) -> LoweredOp:
        """From plain Python values; `attrs` may also be those of another one."""
        wire = attrs if isinstance(attrs, bytes) else encode_attrs(attrs) if attrs else b""
        return cls(op_type, _slots(inputs), _slots(outputs), wire)

    def reads(self, name: str) -> bool:
        """Whether the operator reads the value of `name` (and not its shape alone)."""
        read = [slot for slot, names in self.inputs if name in names]
        if not read:
            return False
        slots = lookup(self.type).input_slots
        return not all(slots[slot].shape_only for slot in read)

    def writes(self, name: str) -> bool:
        return any(name in names for _, names in self.outputs)

    @property
    def is_indexed(self) -> bool:
        """Whether attributes stand for something of the indexes of each use."""
        return _INDEXES.encode() in self.attrs

    def variables(self) -> Iterator[str]:
        """All that it reads and writes."""
        for slots in (self.inputs, self.outputs):
            for _, names in slots:
                yield from names

    def renamed(self, names: Mapping[str, str]) -> LoweredOp:
        sides = (
            tuple([(slot, tuple([names.get(v, v) for v in given])) for slot, given in slots])
            for slots in (self.inputs, self.outputs)
        )
        return LoweredOp(self.type, *sides, self.attrs)

    def message(self, role: int) -> OpDesc:
        """The operator, over symbolic names."""
        op = OpDesc.FromString(_encode_names(self.type, self.inputs, self.outputs) + self.attrs)
        op.role = role
        return op


def _slots(given: Given) -> Slots:
    return tuple(
        [
            (slot, (names,) if isinstance(names, str) else tuple(names))
            for slot, names in given.items()
        ]
    )


@lru_cache(maxsize=4096)
def _encode_names(op_type: str, inputs: Slots, outputs: Slots) -> bytes:
    """The wire form of an operator without attributes; reading it takes a third of making it."""
    read, written = (
        [{"name": slot, "vars": names} for slot, names in side] for side in (inputs, outputs)
    )
    return OpDesc(type=op_type, inputs=read, outputs=written).SerializeToString()


def encode_attrs(attrs: Mapping[str, Any]) -> bytes:
    """Attributes as a lowered operator holds them."""
    try:
        return _encoded(tuple(attrs), *attrs.values())
    except TypeError:  # lists, arrays and the like cannot be looked up
        return _encoded.__wrapped__(tuple(attrs), *attrs.values())


@lru_cache(maxsize=1024, typed=True)
def _encoded(names: tuple[str, ...], *values: Any) -> bytes:
    op = OpDesc()
    set_attrs(op, dict(zip(names, values, strict=True)))
    return op.SerializeToString(deterministic=True)
