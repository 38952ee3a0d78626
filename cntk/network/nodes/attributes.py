"""Attributes of nodes: their types, their defaults, and their fields in model files."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from ....framework.base.errors import FormatError
from ....framework.base.untrusted.values import count_of

Dims = tuple[int, ...]
_ITEM_BYTES = 4  # of the values of most networks


class _Required:
    def __repr__(self) -> str:
        return "REQUIRED"


REQUIRED = _Required()  # the default of an attribute that must be given


def _integer(value: Any) -> int:
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, int):
        return value
    number = float(value)
    if not math.isfinite(number) or number != int(number):
        raise ValueError
    return int(number)


def _boolean(value: Any) -> bool:
    if isinstance(value, str):
        lower = value.lower()
        if lower in ("true", "1", "yes", "t"):
            return True
        if lower in ("false", "0", "no", "f", ""):
            return False
        raise ValueError
    return bool(value)


def _items(value: Any, convert: Callable[[Any], Any]) -> tuple[Any, ...]:
    if isinstance(value, (str, bytes)) or not isinstance(value, Iterable):
        return (convert(value),)
    return tuple(convert(item) for item in value)


_CONVERT: dict[str, Callable[[Any], Any]] = {
    "bool": _boolean,
    "int": _integer,
    "float": float,
    "string": str,
    "dims": lambda value: _items(value, _integer),
    "bools": lambda value: _items(value, _boolean),
    "ints": lambda value: _items(value, _integer),
    "any": lambda value: value,
}


@dataclass(frozen=True)
class AttributeSpec:
    """One attribute as a `ComputationNode` record names it.

    `type` is bool, int, float, string, dims, bools, ints or any. A single number does for dims,
    bools and ints. `choices` are compared without regard to case. `doc` says what it does.
    """

    type: str
    default: Any = REQUIRED
    choices: tuple[str, ...] = ()
    doc: str = ""

    def convert(self, value: Any) -> Any:
        """`value` as this attribute holds it.

        Raises:
            ValueError: it is of another type or none of the choices; the text says what is wanted.
        """
        try:
            converted = _CONVERT[self.type](value)
        except (TypeError, ValueError, OverflowError) as error:
            raise ValueError(f"a value of type {self.type} is needed, not {value!r}") from error
        if self.type == "dims":
            if any(d < 0 for d in converted):
                raise ValueError(f"dimensions are not negative: {value!r}")
            try:
                count_of(converted, _ITEM_BYTES, "its values")
            except FormatError as error:
                raise ValueError(str(error)) from None
        if self.choices:
            for choice in self.choices:
                if choice.lower() == converted.lower():
                    return choice
            raise ValueError(f"one of {', '.join(self.choices)} is needed, not {value!r}")
        return converted


@dataclass(frozen=True)
class FileField:
    """An attribute in a binary model file.

    Attributes:
        attribute: its name.
        type: int32, int64, uint32, uint64, float, double or bool; wide or narrow (text); shape;
            bools; layout (of images).
        since: the first version of model files that has the field.
        before: the value of the attribute in older files.
    """

    attribute: str
    type: str
    since: int = 1
    before: Any = None
