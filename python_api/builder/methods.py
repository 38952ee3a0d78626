"""One documented, typed NetBuilder method for each registered operator, made from its OpProto.

Methods are made on first use, so operators of plug-ins have theirs too. `op_methods.pyi` tells type
checkers and editors the same; `python -m opscope.python_api.builder.methods` prints it.
"""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...framework.base.errors import UnknownOperatorError
from ...framework.ir.registry import REQUIRED, AttrSpec, OperatorDef, lookup, operator_types

_PYTHON_TYPES = {
    "bool": "bool",
    "int": "int",
    "float": "float",
    "string": "str",
    "ints": "Sequence[int]",
    "floats": "Sequence[float]",
    "strings": "Sequence[str]",
    "bools": "Sequence[bool]",
    "tensor": "Any",
    "net": "Any",
    "dtype": "Any",
}


class OpMethods:
    """Gives a class with `add_op` a method for every operator that is not a gradient."""

    if TYPE_CHECKING:
        add_op: Callable[..., Any]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        try:
            entry = lookup(name)
        except UnknownOperatorError as error:
            raise AttributeError(f"NetBuilder has no attribute {name!r}; {error}") from None
        method = make_method(entry)
        setattr(OpMethods, name, method)
        return method.__get__(self)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *method_types()})


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

    def method(self: Any, *inputs: Any, name: str = "", **given: Any) -> Any:
        return self.add_op(entry.type, *inputs, name=name, **given)

    method.__name__ = method.__qualname__ = entry.type
    method.__doc__ = describe(entry)
    method.__signature__ = inspect.Signature(_parameters(entry))  # type: ignore[attr-defined]
    return method


def _parameters(entry: OperatorDef) -> list[inspect.Parameter]:
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
            inspect.Parameter(attr.name, keyword, default=default, annotation=_attr_type(attr))
        )
    parameters.append(inspect.Parameter("name", keyword, default="", annotation="str"))
    return parameters


def _slot_type(slot: Any) -> str:
    single = "Sequence[Var | str]" if slot.duplicable else "Var | str"
    return f"{single} | None" if slot.optional else single


def _attr_type(attr: AttrSpec) -> str:
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


_STUB_HEAD = '''"""Written by `python -m opscope.python_api.builder.methods`; do not edit."""

from collections.abc import Callable, Sequence
from typing import Any

from ...framework.ir.registry import OperatorDef
from .variable import Var

def method_types() -> list[str]: ...
def make_method(entry: OperatorDef) -> Callable[..., Any]: ...
def describe(entry: OperatorDef) -> str: ...
def stub_text(types: Sequence[str] | None = ...) -> str: ...

class OpMethods:
    add_op: Callable[..., Any]
'''


def stub_text(types: Sequence[str] | None = None) -> str:
    """Text of `op_methods.pyi`: the methods of `types` (by default of this package's operators)."""
    lines = [_STUB_HEAD.rstrip("\n")]
    package = __package__.partition(".")[0] + ".operators"
    for name in types if types is not None else method_types():
        entry = lookup(name)
        if types is None and not _defined_in(entry, package):
            continue
        outputs = [slot for slot in entry.outputs if not slot.intermediate]
        single = len(outputs) == 1 and not outputs[0].duplicable
        result = "Var" if single else "tuple[Var, ...]"
        lines.append(f"    def {name}(")
        lines += [f"        {text}," for text in _stub_parameters(entry)]
        lines.append(f"    ) -> {result}: ...")
    return "\n".join(lines) + "\n"


def _stub_parameters(entry: OperatorDef) -> list[str]:
    texts, keyword_seen = [], False
    for parameter in _parameters(entry):
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY and not keyword_seen:
            texts.append("*")
            keyword_seen = True
        text = parameter.name
        if parameter.annotation is not inspect.Parameter.empty:
            text += f": {parameter.annotation}"
        if parameter.default is not inspect.Parameter.empty:
            text += " = ..."
        texts.append(text)
    return texts


def _defined_in(entry: OperatorDef, package: str) -> bool:
    return any(kernel.bind.__module__.startswith(package) for kernel in entry.kernels) or (
        entry.expand is not None and entry.expand.__module__.startswith(package)
    )


if __name__ == "__main__":
    print(stub_text(), end="")
