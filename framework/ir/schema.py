"""The arguments that an operator type declares: slots for variables, and typed attributes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..base.dtypes import DTYPES, to_dtype
from ..base.errors import AttributeTypeError, nearest
from .messages import ATTR_FIELDS, EmptyList, attr_type, attr_value, undamaged
from .op_list import OpList

_SCALAR_TYPES = {"bool": bool, "int": int, "float": float, "string": str, "net": OpList}
_ITEM_TYPES = {"bools": bool, "ints": int, "floats": float, "strings": str}
REQUIRED = object()
"""Default of an attribute that must be given."""


@dataclass(frozen=True)
class Slot:
    """A named argument of an operator, as `OpProto.SlotProto` describes it."""

    name: str
    doc: str
    duplicable: bool = False
    optional: bool = False
    intermediate: bool = False
    not_in_gradient: bool = False
    shape_only: bool = False
    inplace: str = ""
    needed_by: str = ""


@dataclass(frozen=True)
class AttrSpec:
    """A named attribute with type, default and bounds (both inclusive).

    Attributes:
        is_free: whether every value of the type is allowed.
        scalar_type: the Python type of the values of a scalar attribute; None for other ones.
        item_type: the Python type of the items of a list; None for other attributes.
    """

    name: str
    type: str
    doc: str
    default: Any = REQUIRED
    minimum: float | None = None
    maximum: float | None = None
    choices: tuple[Any, ...] = ()
    is_free: bool = field(init=False, repr=False, compare=False)
    scalar_type: type | None = field(init=False, repr=False, compare=False)
    item_type: type | None = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.type not in ATTR_FIELDS:
            raise AttributeTypeError(f"attribute {self.name!r} has no such type: {self.type!r}")
        free = self.minimum is None and self.maximum is None and not self.choices
        object.__setattr__(self, "is_free", free)
        object.__setattr__(self, "scalar_type", _SCALAR_TYPES.get(self.type))
        object.__setattr__(self, "item_type", _ITEM_TYPES.get(self.type))

    def check(self, value: Any, where: object) -> Any:
        """The value of an attribute as kernels get it.

        An int is taken where a float is wanted, and a scalar or an empty list where a list is.

        Args:
            value: as `attr_value` gives it, or what that takes.
            where: what prints as the operator, for errors.

        Raises:
            AttributeTypeError: wrong type, out of bounds, no such choice.
            FormatError, ShapeError: it comes from a file and is damaged.
        """
        if not self._is_of_type(value):
            value = attr_value(value)
            given = attr_type(value)
            value = undamaged(value)
            if given != self.type:
                value = self._convert(value, given, where)
            elif type(value) is EmptyList:
                value = ()
        if self.is_free:
            return value
        for item in value if isinstance(value, tuple) else (value,):
            # `not >=` instead of `<`: NaN fails every comparison and is refused so.
            if self.minimum is not None and not item >= self.minimum:
                raise AttributeTypeError(f"{where}: {self.name}={item} is below {self.minimum}")
            if self.maximum is not None and not item <= self.maximum:
                raise AttributeTypeError(f"{where}: {self.name}={item} is above {self.maximum}")
            if self.choices and item not in self.choices:
                known = ", ".join(repr(choice) for choice in self.choices)
                hint = nearest(str(item), map(str, self.choices))
                raise AttributeTypeError(f"{where}: {self.name}={item!r} is none of {known}{hint}")
        return value

    def _is_of_type(self, value: Any) -> bool:
        """Whether a value is just what is declared, as nearly all are: nothing is converted."""
        kind = type(value)
        if kind is tuple:
            item = self.item_type
            return bool(value) and all([type(one) is item for one in value])
        if kind is self.scalar_type:
            return True
        return self.type == "dtype" and isinstance(value, np.dtype) and value in DTYPES

    def _convert(self, value: Any, given: str, where: object) -> Any:
        wanted = self.type
        if wanted == "float" and given == "int":
            return float(value)
        if wanted.endswith("s") and given == wanted[:-1]:
            return (value,)
        if wanted == "floats" and given in ("int", "ints"):
            return tuple(float(item) for item in (value if given == "ints" else (value,)))
        if wanted.endswith("s") and isinstance(value, tuple) and not value:
            return ()
        if wanted == "dtype" and given == "string":
            return to_dtype(value)
        if wanted == "tensor" and given in ("ints", "floats", "int", "float"):
            return np.asarray(value)
        raise AttributeTypeError(f"{where}: {self.name}={value!r} is {given}, want {wanted}")
