"""Operators as methods of NetBuilder.

A method has its signature and documentation from the operator's class; calls.py converts its
arguments.
"""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable
from typing import Any

import numpy as np

from ...framework.ir.registry import REQUIRED, AttrSpec, OperatorDef, Slot, lookup, operator_types
from .calls import ALGORITHM

_CONSTANTS = (bool, int, float, np.generic, np.ndarray)
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


BESIDE_NUMBERS = frozenset(
    (
        *("add", "sub", "mul", "div", "pow", "mod", "fmod", "floor_divide", "atan2"),
        *("equal", "not_equal", "less", "less_equal", "greater", "greater_equal"),
        *("logical_and", "logical_or", "logical_xor"),
    )
)
"""Operators of x and y, element by element, whose methods take a number or an array for one of
them; `maximum`, `minimum` and `where` do it in functions of their own."""


def method_types() -> list[str]:
    """Operator types that are methods: all except gradients, updates and other dialects."""
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
        if entry.type in BESIDE_NUMBERS:
            inputs, keywords = _with_constants(self, entry.type, inputs, keywords)
        return self.add_op(entry.type, *inputs, name=name, **keywords)

    method.__name__ = method.__qualname__ = entry.type
    method.__doc__ = describe(entry)
    vars(method)["__signature__"] = inspect.Signature(method_parameters(entry))
    return method


def _with_constants(
    builder: Any, op_type: str, inputs: tuple[Any, ...], keywords: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Arguments with constants in place of numbers and arrays, of the other operand's dtype."""
    given = dict(zip("xy", inputs, strict=False)) | {k: v for k, v in keywords.items() if k in "xy"}
    plain = [value for value in given.values() if isinstance(value, _CONSTANTS)]
    if len(given) != 2 or len(inputs) > 2 or not plain:
        return inputs, keywords
    x, y = builder.operands(op_type, given["x"], given["y"])
    return (x, y), {name: value for name, value in keywords.items() if name not in given}


def method_parameters(entry: OperatorDef) -> list[inspect.Parameter]:
    """Parameters of an operator's method: inputs, then attributes as keywords, then `name`."""
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    keyword = inspect.Parameter.KEYWORD_ONLY
    parameters = [inspect.Parameter("self", kind)]
    required = [slot for slot in entry.inputs if not slot.optional]
    beside = " | float | np.ndarray" if entry.type in BESIDE_NUMBERS else ""
    for slot in (*required, *(slot for slot in entry.inputs if slot.optional)):
        parameters.append(
            inspect.Parameter(
                slot.name,
                kind,
                default=None if slot.optional else inspect.Parameter.empty,
                annotation=f"{_slot_type(slot)}{beside}",
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
        words = " | str" if attr.name + ALGORITHM in entry.attr_specs else ""
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
        lines.append(f"    {attr.name}: {attr.doc} ({attr_facts(attr)})")
    lines.append("Returns:")
    lines += [f"    {slot.name}: {slot.doc}" for slot in entry.outputs if not slot.intermediate]
    if entry.no_gradient:
        lines += ["", f"No gradient: {entry.no_gradient}."]
    if entry.source:
        lines += ["", f"Source: {entry.source}"]
    return "\n".join(lines)


def _shown(value: Any) -> str:
    return str(value) if isinstance(value, np.dtype) else repr(value)


def attr_facts(attr: AttrSpec) -> str:
    """Type, default, bounds and choices of an attribute, as a text."""
    parts = [attr.type]
    parts.append("required" if attr.default is REQUIRED else f"default {_shown(attr.default)}")
    if attr.minimum is not None:
        parts.append(f"at least {attr.minimum}")
    if attr.maximum is not None:
        parts.append(f"at most {attr.maximum}")
    if attr.choices:
        parts.append(f"one of {', '.join(map(repr, attr.choices))}")
    return ", ".join(parts)
