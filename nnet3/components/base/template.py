"""Operators that are appended to a net many times, with other variables.

An operator list in the making is a list of bytes: each piece is the wire form of some operators of
a NetDesc. Names of variables are UTF-8 then.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any

from ....framework.ir.desc import OpDesc, attr_bytes
from ....framework.ir.names import EMPTY, grad_name, state_name
from ....framework.ir.wire import Field, Pattern, delimited
from ....proto import net_pb2 as pb
from .lowered_op import LoweredOp, Slots, field_of_indexes
from .lowering import FROZEN, IN_DERIV, MEMORY, OUT, OUT_DERIV, PARAMETER, TEMPORARY, X, is_own

Strings = tuple[bytes, ...]
"""What a template is filled with: the variables x and out, the prefix of temporaries, the name of
the component, the derivatives of out and x. Those at the end may be missing where the operators
have no use for them."""
_GIVEN = {X: 0, OUT: 1, OUT_DERIV: 4, IN_DERIV: 5}
_PREFIX, _COMPONENT = 2, 3
_OPS = pb.NetDesc.OPS_FIELD_NUMBER
_Parts = tuple[bytes | int | Field, ...]


@lru_cache(maxsize=1024)
def own_field(symbol: str) -> str:
    """What stands behind the component's name in the name of a variable of its own."""
    kind, slash, name = symbol.partition("/")
    if kind + slash == MEMORY:
        return "/" + state_name(name, "natural_gradient")
    if kind + slash == PARAMETER and name.endswith("@D"):
        return "/" + grad_name(name.removesuffix("@D"))
    return "/" + name


class Template(Pattern):
    """Lowered operators with places for the names of their variables.

    Args:
        lowered: with symbolic names of variables.
        role: of the operators.
    """

    def __init__(self, lowered: Iterable[LoweredOp], role: int) -> None:
        self._indexed: list[str] = []  # fields of the indexes that attributes stand for
        super().__init__(*[self._operator(op, role) for op in lowered])

    def _operator(self, op: LoweredOp, role: int) -> Field:
        attrs = self._attrs(op) if op.is_indexed else (op.attrs,)
        return Field(
            _OPS,
            (
                delimited(OpDesc.TYPE_FIELD_NUMBER, op.type.encode()),
                *_slots(OpDesc.INPUTS_FIELD_NUMBER, op.inputs),
                *_slots(OpDesc.OUTPUTS_FIELD_NUMBER, op.outputs),
                *attrs,
                OpDesc(role=role).SerializeToString(),
            ),
        )

    def _attrs(self, op: LoweredOp) -> _Parts:
        """The attributes; what indexes give is counted from the last string."""
        parts: list[Field] = []
        for name, attr in sorted(OpDesc.FromString(op.attrs).attrs.items()):
            value: bytes | int = attr.SerializeToString()
            wanted = field_of_indexes(attr)
            if wanted is not None:
                if wanted not in self._indexed:
                    self._indexed.insert(0, wanted)
                value = self._indexed.index(wanted) - len(self._indexed)
            entry = delimited(1, name.encode()), Field(2, (value,))  # of a map: its key and value
            parts.append(Field(OpDesc.ATTRS_FIELD_NUMBER, entry))
        return tuple(parts)

    def append(self, ops: list[bytes], strings: Strings, indexes: Any = None) -> None:
        """Append the operators to a list.

        Args:
            indexes: what attributes stand for.
        """
        if self._indexed:
            values = (getattr(indexes, name) if name else indexes for name in self._indexed)
            strings = *strings, *map(attr_bytes, values)
        ops.append(self.fill(strings))


def _slots(number: int, slots: Slots) -> list[Field]:
    """Slots as fields of an operator."""
    name, variables = OpDesc.Slot.NAME_FIELD_NUMBER, OpDesc.Slot.VARS_FIELD_NUMBER
    return [
        Field(
            number,
            (
                delimited(name, slot.encode()),
                *(Field(variables, _name(symbol)) for symbol in symbols),
            ),
        )
        for slot, symbols in slots
    ]


def _name(symbol: str) -> _Parts:
    """The name of the variable of a symbol."""
    if symbol in _GIVEN:
        return (_GIVEN[symbol],)
    if symbol in (FROZEN, EMPTY):
        return (symbol.encode(),)
    if is_own(symbol):
        return _COMPONENT, own_field(symbol).encode()
    return _PREFIX, f"/{symbol.removeprefix(TEMPORARY)}".encode()
