"""Parameters of calls that are no nodes: numbers, strings, arrays, and options."""

from __future__ import annotations

from typing import Any

from ...framework.base.errors import AttributeTypeError, nearest
from ..base.text import located
from ..network.nodes.kind import NdlFunction
from .scope import Instance, Scope, Value, reduce
from .syntax import Array, Call, Expression, Word, place


def number_of(value: Value) -> float | None:
    """The number that a value is, if it is one."""
    if isinstance(value, tuple) and isinstance(value[0], Word):
        return value[0].number
    return None


def plain(value: Value, parameter: Expression, scope: Scope) -> Any:
    """A parameter as a number, a string, or a list of them.

    Raises:
        AttributeTypeError: it is a node.
    """
    if value is None or isinstance(value, Instance):
        raise located(
            AttributeTypeError,
            f"Scalar expected, '{parameter}' must be a constant or variable that resolves to a "
            "constant",
            place(parameter),
            scope.chain(),
        )
    found, where = value
    if isinstance(found, Array):
        return [plain(reduce(item, where), item, where) for item in found.items]
    number = found.number
    if number is None:
        return found.string
    return int(number) if number == number // 1 and abs(number) < 2**63 else number


def read_options(
    call: Call, function: NdlFunction, scope: Scope, warnings: list[str]
) -> dict[str, Any]:
    """The options of a call, without `tag`. Options that the function does not have are ignored,
    as in CNTK, with a warning in `warnings`.

    Raises:
        AttributeTypeError: a value is of the wrong type.
    """
    names = {name.lower(): name for name in function.options}
    options = {}
    for option in call.options:
        name = names.get(option.name.string.lower())
        if name is not None:
            value = plain(reduce(option.value, scope), option.value, scope)
            try:
                options[name] = function.options[name].convert(value)
            except ValueError as error:
                message = f"{function.name}: {option.name}: {error}"
                raise located(AttributeTypeError, message, place(option), scope.chain()) from None
        elif option.name.string.lower() != "tag":
            message = (
                f"{function.name} has no option {option.name}, it is ignored"
                f"{nearest(option.name.string, [*names.values(), 'tag'])}"
            )
            warnings.append(str(located(AttributeTypeError, message, place(option), scope.chain())))
    return options
