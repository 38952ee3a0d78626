"""Operators as methods of NetBuilder.

A method has its signature and documentation from the operator's class; the arguments of a call,
such as `b.split(x, num=3)`, become input slots and attributes.
"""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ...framework.base.errors import (
    AttributeTypeError,
    SlotError,
)
from ...framework.ir.messages import attr_value
from ...framework.ir.registry import REQUIRED, AttrSpec, OperatorDef, Slot, lookup, operator_types
from .call_checks import instead_of, where

_PYTHON_TYPES = {
    "bool": "bool",
    "int": "int",
    "float": "float",
    "string": "str",
    "strings": "Sequence[str]",
    "bools": "Sequence[bool]",
    "tensor": "Any",
    "net": "Any",
    "dtype": "Any",
}


_ALGORITHM = "_algorithm"
"""`padding="same"` says `padding_algorithm="same"`: a word where the attribute holds numbers."""

_COUNT, _SECTIONS = "num", "sections"
"""How many variables a duplicable output slot gets: `num=3`, or one for each of `sections`."""


def method_types() -> list[str]:
    """Operator types that are methods: all but gradients, updates and those of other dialects."""
    return [
        name
        for name in operator_types()
        if name.isidentifier()
        and not name.endswith("_grad")
        and "param_out" not in lookup(name).output_slots
    ]


def make_method(entry: OperatorDef) -> Callable[..., Any]:
    """The method of an operator: signature and docstring from its documented class."""

    def method(self: Any, *inputs: Any, name: str = "", **keywords: Any) -> Any:
        return self.add_op(entry.type, *inputs, name=name, **keywords)

    method.__name__ = method.__qualname__ = entry.type
    method.__doc__ = describe(entry)
    vars(method)["__signature__"] = inspect.Signature(method_parameters(entry))
    return method


def method_parameters(entry: OperatorDef) -> list[inspect.Parameter]:
    """Parameters of an operator's method: inputs, then attributes as keywords, then `name`."""
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    keyword = inspect.Parameter.KEYWORD_ONLY
    parameters = [inspect.Parameter("self", kind)]
    required = [slot for slot in entry.inputs if not slot.optional]
    for slot in (*required, *(slot for slot in entry.inputs if slot.optional)):
        parameters.append(
            inspect.Parameter(
                slot.name,
                kind,
                default=None if slot.optional else inspect.Parameter.empty,
                annotation=_slot_type(slot),
            )
        )
    for attr in entry.attrs:
        default = inspect.Parameter.empty if attr.default is REQUIRED else attr.default
        parameters.append(
            inspect.Parameter(
                attr.name, keyword, default=default, annotation=_attr_type(entry, attr)
            )
        )
    parameters.append(inspect.Parameter("name", keyword, default="", annotation="str"))
    return parameters


def _slot_type(slot: Slot) -> str:
    single = "Sequence[Var | str]" if slot.duplicable else "Var | str"
    return f"{single} | None" if slot.optional else single


def _attr_type(entry: OperatorDef, attr: AttrSpec) -> str:
    if attr.type == "ints":
        words = " | str" if attr.name + _ALGORITHM in entry.attr_specs else ""
        return f"int | Sequence[int]{words}"
    if attr.type == "floats":
        return "float | Sequence[float]"
    return _PYTHON_TYPES[attr.type]


def describe(entry: OperatorDef) -> str:
    """The docstring of an operator: what it does, its slots, attributes, gradient and source."""
    lines = [textwrap.fill(entry.doc.strip(), 88), ""]
    if entry.inputs or entry.attrs:
        lines.append("Args:")
    for slot in entry.inputs:
        flags = ", ".join(f for f in ("duplicable", "optional") if getattr(slot, f))
        lines.append(f"    {slot.name}: {slot.doc}" + (f" ({flags})" if flags else ""))
    for attr in entry.attrs:
        lines.append(f"    {attr.name}: {attr.doc} ({_bounds(attr)})")
    lines.append("Returns:")
    lines += [f"    {slot.name}: {slot.doc}" for slot in entry.outputs if not slot.intermediate]
    if entry.no_gradient:
        lines += ["", f"No gradient: {entry.no_gradient}."]
    if entry.source:
        lines += ["", f"Source: {entry.source}"]
    return "\n".join(lines)


def _shown(value: Any) -> str:
    return str(value) if isinstance(value, np.dtype) else repr(value)


def _bounds(attr: AttrSpec) -> str:
    parts = [attr.type]
    parts.append("required" if attr.default is REQUIRED else f"default {_shown(attr.default)}")
    if attr.minimum is not None:
        parts.append(f"at least {attr.minimum}")
    if attr.maximum is not None:
        parts.append(f"at most {attr.maximum}")
    if attr.choices:
        parts.append(f"one of {', '.join(map(repr, attr.choices))}")
    return ", ".join(parts)


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
        raise SlotError(_too_many(entry, inputs))
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
        elif isinstance(value, str) and key + _ALGORITHM in entry.attr_specs:
            attrs[key + _ALGORITHM] = value
        elif key in entry.attr_specs:
            attrs[key] = value
        else:
            known = (*entry.input_slots, *entry.attr_specs)
            raise AttributeTypeError(
                f"{where()}: {entry.type} has no slot or attribute {key!r}"
                f"{instead_of(key, value, known)}; it has {', '.join(known)}"
            )
    return slots, attrs


def _too_many(entry: OperatorDef, inputs: Sequence[Any]) -> str:
    """The message of a call with more positional arguments than input slots, and what to write."""
    slots = [slot.name for slot in entry.inputs]
    extra = inputs[len(slots) :]
    text = f"{where()}: {entry.type} takes {', '.join(slots) or 'nothing'} by position"
    if len(slots) == 1 and entry.inputs[0].duplicable:
        return f"{text}, as a list: {entry.type}([{', '.join(map(str, inputs))}])"
    if extra and isinstance(inputs[0], (list, dict)) and isinstance(inputs[1], (list, dict)):
        return (
            f"{text}; lists of inputs and of outputs are what the add_op of a net takes,"
            f" b.forward_net.add_op({entry.type!r}, ...). A builder names outputs by name=:"
            f" b.{entry.type}({', '.join(slots)}, name='y')"
        )
    if len(extra) == 1 and isinstance(extra[0], str) and len(entry.attrs) == 1:
        return f"{text} and attributes by name: {entry.attrs[0].name}={extra[0]!r}"
    listed = entry.attrs and entry.attrs[0].type in ("ints", "floats")
    if listed and len(extra) > 1 and all(isinstance(v, int) for v in extra):
        return f"{text} and attributes by name: {entry.attrs[0].name}={list(extra)!r}"
    if all(not isinstance(value, str) and not hasattr(value, "builder") for value in extra):
        names = [attr.name for attr in entry.attrs][: len(extra)]
        if len(names) == len(extra):
            pairs = (f"{name}={value!r}" for name, value in zip(names, extra, strict=True))
            return f"{text} and attributes by name: {', '.join(pairs)}"
    return f"{text}, which are {len(slots)} inputs, not {len(inputs)}"


def encoded_attrs(entry: OperatorDef, attrs: Mapping[str, Any]) -> dict[str, Any]:
    """Attributes in the form that descriptions hold; those that are None are left out."""
    return {
        key: attr_value(value, _kind(entry, key))
        for key, value in attrs.items()
        if value is not None
    }


def _kind(entry: OperatorDef, key: str) -> str | None:
    """The declared attribute type where Python's own type would be ambiguous."""
    kind = entry.attr_specs[key].type
    return kind if kind in ("dtype", "tensor", "net") else None


def pop_count(entry: OperatorDef, keywords: dict[str, Any]) -> int:
    """Take `num`, the number of variables in an output slot, out of the keywords; 0 for none."""
    counted = _COUNT not in entry.attr_specs and any(slot.duplicable for slot in entry.outputs)
    return keywords.pop(_COUNT, 0) if counted else 0


def counterparts(entry: OperatorDef, slots: Mapping[str, Sequence[str]]) -> int:
    """How many variables a duplicable output slot gets where the call does not say it.

    One for each variable of the input, where one input and one output are duplicable; else 1.
    """
    inputs = [slot.name for slot in entry.inputs if slot.duplicable]
    outputs = [slot.name for slot in entry.outputs if slot.duplicable]
    return len(slots.get(inputs[0], ())) if len(inputs) == len(outputs) == 1 else 1


def output_names(
    entry: OperatorDef, name: str, count: int, attrs: Mapping[str, Any], fixed: Mapping[str, str]
) -> dict[str, list[str]]:
    """Output slot -> variable names: `name` for the first slot, `name.slot` for others.

    Args:
        count: of variables in a duplicable slot, where no attribute `sections` says it.
        fixed: slots whose variable exists already.
    """
    sections = attrs.get(_SECTIONS)
    if sections is not None and not isinstance(sections, (list, tuple, np.ndarray)):
        raise AttributeTypeError(
            f"{where()}: {entry.type}: sections is a list of sizes, not {sections!r};"
            f" {_COUNT}={sections!r} makes so many equal parts"
        )
    count = len(sections) if sections is not None and len(sections) else count
    names = {slot: [var] for slot, var in fixed.items()}
    first = True
    for slot in entry.outputs:
        if slot.name in names:
            continue
        own = name if first else f"{name}.{slot.name}"
        first = False
        names[slot.name] = [f"{own}.{n}" for n in range(count)] if slot.duplicable else [own]
    return names
