"""Files of JSON that hold records: each value has the type that its field has, or is refused.

Such files are written by the package and read again, by it or by another process, later; but who
may write to the folder may have written anything.
"""

from __future__ import annotations

import dataclasses
import math
import os
import types
import typing
from collections.abc import Mapping
from functools import cache
from typing import Any, NewType, TypeVar, cast

from ..errors import FormatError, OpscopeError
from .opener import is_missing, read_file
from .values import INT64, json_value, shown

Value = TypeVar("Value")
_REFUSED = object()
AnyFloat = NewType("AnyFloat", float)
"""A number that may be infinite or NaN."""


def json_file(path: str | os.PathLike[str], missing: Any = _REFUSED) -> Any:
    """The value in a file of JSON.

    Args:
        missing: what is returned where there is no file; by default that is an error.

    Raises:
        FormatError: it cannot be read, is no regular file, or holds no JSON in UTF-8, or one that
            is nested beyond the limit.
    """
    name = os.fspath(path)
    try:
        data = read_file(name)
    except FormatError as error:
        if missing is not _REFUSED and is_missing(error):
            return missing
        raise
    try:
        return json_value(data.decode(), name)
    except UnicodeDecodeError as error:
        raise FormatError(f"{name}: no text in UTF-8 (byte {error.start})") from None


def record_file(path: str | os.PathLike[str], kind: type[Value]) -> Value:
    """The dataclass whose fields a file of JSON holds. Raises FormatError: see `record`."""
    return record(json_file(path), kind, os.fspath(path))


def record(value: Any, kind: type[Value], what: str) -> Value:
    """A dataclass of the members of a JSON object.

    Args:
        what: names the object, for messages.

    Raises:
        FormatError: it is no object; a member is missing, unknown, or of another type than the
            field, or refused by the dataclass.
    """
    fields = _fields(kind)
    values: dict[str, Any] = {}
    for name, member in typed(value, dict[str, Any], what).items():
        if name not in fields:
            raise FormatError(f"{what}: {shown(name)} is not known here")
        values[name] = typed(member, fields[name][0], f"{what}: {name!r}")
    missing = [name for name, (_, wanted) in fields.items() if wanted and name not in values]
    if missing:
        raise FormatError(f"{what}: {missing[0]!r} is missing")
    try:
        return kind(**values)
    except OpscopeError as error:
        raise FormatError(f"{what}: {error}") from None


def typed(value: Any, kind: Any, what: str) -> Any:
    """A JSON value, if it is of a type.

    Args:
        kind: `Any`; str, in which bytes that are no UTF-8 are kept as `surrogateescape` does it;
            int, of 64 bits; float, which takes whole numbers as well, but nothing that is not
            finite; `AnyFloat`, which takes those, too, and leaves whole numbers whole; bool; a
            dataclass; `list[kind]`, `dict[str, kind]`, `tuple[kind, kind]`, `tuple[kind, ...]`,
            `kind | None`.

    Raises:
        FormatError: it is not; `what` names the value.
    """
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if kind is Any:
        return value
    if origin in (typing.Union, types.UnionType):
        return _one_of(value, inner, what)
    if origin is list:
        _check(value, list, what)
        return [typed(one, inner[0], f"{what}: [{at}]") for at, one in enumerate(value)]
    if origin is tuple:
        _check(value, list, what)
        if inner[1:] == (...,):
            inner = inner[:1] * len(value)
        if len(value) != len(inner):
            raise FormatError(f"{what}: {len(value)} values, where {len(inner)} are wanted")
        pairs = enumerate(zip(value, inner, strict=True))
        return tuple(typed(one, each, f"{what}: [{at}]") for at, (one, each) in pairs)
    if origin in (dict, Mapping):
        _check(value, dict, what)
        return {
            typed(name, str, what): typed(one, inner[1], f"{what}: {shown(name)}")
            for name, one in value.items()
        }
    if dataclasses.is_dataclass(kind):
        return record(value, cast(Any, kind), what)
    return _plain(value, kind, what)


def _plain(value: Any, kind: type, what: str) -> Any:
    if kind is AnyFloat:
        kind = int if type(value) is int else float
        if type(value) is float:
            return value
    if kind is float and type(value) is int and INT64[0] <= value <= INT64[1]:
        value = float(value)
    _check(value, kind, what)
    if kind is int and not INT64[0] <= value <= INT64[1]:
        raise FormatError(f"{what}: the number has more than 64 bits")
    if kind is float and not math.isfinite(value):
        raise FormatError(f"{what}: {value} is not finite")
    return value


def _check(value: Any, kind: type, what: str) -> None:
    if type(value) is not kind:
        name = {dict: "an object", list: "a list", type(None): "null"}.get(kind, kind.__name__)
        raise FormatError(f"{what}: {shown(value)}, where {name} is wanted")


def _one_of(value: Any, kinds: tuple[Any, ...], what: str) -> Any:
    """The value as the one kind of those that fits its JSON type."""
    for kind in kinds:
        plain = typing.get_origin(kind) or (dict if dataclasses.is_dataclass(kind) else kind)
        plain = float if plain is AnyFloat else plain
        if type(value) is plain or (plain is float and type(value) is int):
            return typed(value, kind, what)
    names = " or ".join(_name(kind) for kind in kinds)
    raise FormatError(f"{what}: {shown(value)}, where {names} is wanted")


def _name(kind: Any) -> str:
    if kind is type(None):
        return "null"
    return "an object" if dataclasses.is_dataclass(kind) else getattr(kind, "__name__", str(kind))


@cache
def _fields(kind: type) -> Mapping[str, tuple[Any, bool]]:
    """The type of each field of a dataclass that its constructor takes, and whether it must."""
    hints = typing.get_type_hints(kind)
    nothing = dataclasses.MISSING
    return {
        each.name: (hints[each.name], each.default is nothing and each.default_factory is nothing)
        for each in dataclasses.fields(cast(Any, kind))
        if each.init
    }
