"""The attributes of operators in files, through checks: there, of their type, in their range.

Files give any attribute any type. Whoever makes something of an operator that no registration
has checked, of a dialect, takes its attributes here.
"""

from __future__ import annotations

from typing import Any

from ...base.errors import FormatError
from ...base.untrusted.values import INT32, in_range, unicode_text
from ..messages import attr_type, undamaged
from ..op_list import OpNode, SlotNames


def only_variable(slots: SlotNames, name: str) -> str:
    """The one variable of a slot.

    Raises:
        FormatError: the slot is missing, or holds another number of them.
    """
    if len(slots.get(name, ())) != 1:
        raise FormatError(f"the slot {name!r} must hold one variable")
    return slots[name][0]


def attribute(op: OpNode, name: str, kind: str, low: int = INT32[0], high: int = INT32[1]) -> Any:
    """An attribute of an operator, of the type that is wanted.

    Args:
        kind: the declared name of the type: `int`, `floats`, `net` ....
        low, high: the range of an `int`, and of each of `ints`.

    Raises:
        FormatError: it is missing, of another type, damaged, or out of its range.
    """
    if name not in op.attrs:
        raise FormatError(f"the attribute {name!r} is missing")
    value = op.attrs[name]
    own_type = attr_type(value)
    is_empty = isinstance(value, tuple) and not value  # a list of any type
    if own_type != kind and not (is_empty and kind in ("ints", "floats", "strings")):
        raise FormatError(
            f"the attribute {name!r} should be a {kind}, not a {own_type or 'nothing'}"
        )
    value = undamaged(value)
    if kind == "int":
        in_range(value, f"the attribute {name!r}", low, high)
    elif kind == "ints":
        for item in value:
            in_range(item, f"the attribute {name!r}", low, high)
    elif kind == "string":
        unicode_text(value, f"the attribute {name!r}")
    return value
