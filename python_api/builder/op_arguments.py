"""Arguments of a call, such as `b.split(x, num=3)`, as slots and attributes of an operator."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...framework.base.errors import AttributeTypeError, SlotError, nearest
from ...framework.ir.desc import caller_location, encode_attr
from ...framework.ir.registry import OperatorDef

_COUNT, _SECTIONS = "num", "sections"
"""How many variables a duplicable output slot gets: `num=3`, or one for each of `sections`."""


def where() -> str:
    """File and line of the user's call, for messages."""
    location = caller_location()
    return f"{location.file}:{location.line}" if location.file else "NetBuilder"


def split_arguments(
    entry: OperatorDef,
    inputs: Sequence[Any],
    keywords: Mapping[str, Any],
    names_of: Callable[[Any, OperatorDef, str], list[str]],
) -> tuple[dict[str, list[str]], dict[str, Any]]:
    """Split a call's arguments into input slots, as lists of variable names, and attributes.

    Args:
        inputs: positional arguments, in the order of the slots.
        keywords: further inputs by slot name, and attributes.
        names_of: (value, operator, slot) -> the names of the variables that the value stands for.

    Raises:
        SlotError: too many inputs, or a slot that is given twice.
        AttributeTypeError: a keyword that is neither a slot nor an attribute.
    """
    if len(inputs) > len(entry.inputs):
        raise SlotError(
            f"{where()}: {entry.type} takes {len(entry.inputs)} inputs, not {len(inputs)}"
        )
    slots = {}
    for slot, value in zip(entry.inputs, inputs, strict=False):
        if value is not None:
            slots[slot.name] = names_of(value, entry, slot.name)
    attrs = {}
    for key, value in keywords.items():
        if key in entry.input_slots:
            if key in slots:
                raise SlotError(f"{where()}: {entry.type}: slot {key!r} is given twice")
            if value is not None:
                slots[key] = names_of(value, entry, key)
        elif key in entry.attr_specs:
            attrs[key] = value
        else:
            known = (*entry.input_slots, *entry.attr_specs)
            raise AttributeTypeError(
                f"{where()}: {entry.type} has no slot or attribute {key!r}"
                f"{nearest(key, known)}; it has {', '.join(known)}"
            )
    return slots, attrs


def encoded_attrs(entry: OperatorDef, attrs: Mapping[str, Any]) -> dict[str, Any]:
    """Attributes in the form that descriptions hold; those that are None are left out."""
    return {
        key: encode_attr(value, _kind(entry, key))
        for key, value in attrs.items()
        if value is not None
    }


def _kind(entry: OperatorDef, key: str) -> str | None:
    """The declared attribute type where Python's own type would be ambiguous."""
    kind = entry.attr_specs[key].type
    return kind if kind in ("dtype", "tensor", "net") else None


def pop_count(entry: OperatorDef, keywords: dict[str, Any]) -> int:
    """Take `num` out of the keywords where it says how many variables an output slot gets."""
    counted = _COUNT not in entry.attr_specs and any(slot.duplicable for slot in entry.outputs)
    return keywords.pop(_COUNT, 1) if counted else 1


def output_names(
    entry: OperatorDef, name: str, count: int, attrs: Mapping[str, Any], fixed: Mapping[str, str]
) -> dict[str, list[str]]:
    """Output slot -> variable names: `name` for the first slot, `name.slot` for others.

    Args:
        count: of variables in a duplicable slot, where no attribute `sections` says it.
        fixed: slots whose variable exists already.
    """
    count = len(attrs[_SECTIONS]) if attrs.get(_SECTIONS) else count
    names = {slot: [var] for slot, var in fixed.items()}
    first = True
    for slot in entry.outputs:
        if slot.name in names:
            continue
        own = name if first else f"{name}.{slot.name}"
        first = False
        names[slot.name] = [f"{own}.{n}" for n in range(count)] if slot.duplicable else [own]
    return names
