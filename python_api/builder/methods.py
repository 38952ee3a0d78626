"""Layers and operators as methods of NetBuilder.

Every registered operator is a documented, typed method, made from its class on first use, so
operators of plug-ins also have methods. Further methods are functions whose first argument is the
builder, registered by `builder_method` or `layer`:

    @layer("w")
    def fc(b: NetBuilder, x: Var | str, size: int | None = None, *, w: Any = None, ...) -> Var:

`methods.pyi`, written by ../stubs.py, tells type checkers and editors the same.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from ...framework.base.dtypes import is_whole
from ...framework.base.errors import UnknownOperatorError
from ...framework.ir.registry import OperatorDef, lookup
from .calls import all_or_nothing, checked
from .operator_methods import make_method, method_types
from .typed_names import elsewhere

_F = TypeVar("_F", bound=Callable[..., Any])

BUILDER_METHODS: dict[str, Callable[..., Any]] = {}
"""Functions that are methods of NetBuilder, by name."""

_PARAMETERS: dict[str, str] = {}
"""Operator type -> its first parameter slot, for operators that have a layer of the same name."""


class BuilderMethods:
    """The methods of NetBuilder that are registered somewhere else: layers and operators."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        try:
            entry = lookup(name)
        except UnknownOperatorError as error:
            ours = elsewhere(name)
            said = f"write b.{ours}" if ours else error
            raise AttributeError(f"NetBuilder has no attribute {name!r}; {said}") from None
        method = make_method(entry)
        setattr(BuilderMethods, name, method)
        return method.__get__(self)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *method_types()})

    def layer_for(
        self, entry: OperatorDef, inputs: Sequence[Any], given: Mapping[str, Any]
    ) -> Callable[..., Any] | None:
        """The layer that `add_op` should call; None where there is none or parameters are given.

        Args:
            inputs: the positional arguments of the call. Numbers where the operator has its
                parameter belong to the layer: `add_op("fc", x, 100, "sigmoid")`.
            given: its keyword arguments.
        """
        slot = _PARAMETERS.get(entry.type)
        if slot is None or slot in given:
            return None
        for value in inputs[list(entry.input_slots).index(slot) :][:1]:
            if not all(map(is_whole, value if isinstance(value, (list, tuple)) else [value])):
                return None
        return getattr(self, entry.type)


def builder_method(function: _F) -> _F:
    """Make a function of (builder, further arguments), which appends operators, a method.

    Calls of the method with arguments that there are not, or without those that it needs, raise an
    AttributeTypeError that names the line of the call; so does an `activation` that is no name. A
    call that fails leaves the net as it was, so that the line may be mended and tried again.
    """
    BUILDER_METHODS[function.__name__] = function
    setattr(BuilderMethods, function.__name__, all_or_nothing(checked(function)))
    return function


def running_method(function: _F) -> _F:
    """Like `builder_method`, for a function that appends no forward operators."""
    BUILDER_METHODS[function.__name__] = function
    setattr(BuilderMethods, function.__name__, checked(function))
    return function


def takes(options: type) -> Callable[[_F], _F]:
    """Tell the signature of a function whose `**keywords` are the fields of a dataclass.

    Functions that share arguments then name them once: help(), stubs and messages know them all.
    """

    def tell(function: _F) -> _F:
        signature = inspect.signature(function)
        own = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
        shared = [
            inspect.Parameter(
                field.name,
                inspect.Parameter.KEYWORD_ONLY,
                default=inspect.Parameter.empty if _is_required(field) else field.default,
                annotation=field.type,
            )
            for field in dataclasses.fields(options)
        ]
        vars(function)["__signature__"] = signature.replace(parameters=[*own, *shared])
        return function

    return tell


def _is_required(field: dataclasses.Field[Any]) -> bool:
    return field.default is dataclasses.MISSING


def layer(parameter: str) -> Callable[[_F], _F]:
    """Register the layer of the operator that has the function's name.

    `b.add_op` calls the layer instead of appending the operator where the call does not give the
    input slot `parameter`.
    """

    def register(function: _F) -> _F:
        _PARAMETERS[function.__name__] = parameter
        return builder_method(function)

    return register
