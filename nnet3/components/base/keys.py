"""Keys of config lines: the `KEY=VALUE` of `component name=... type=... KEY=VALUE ...`, by type."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from ...language.config import ConfigLine
from .fields import REQUIRED


@dataclass(frozen=True)
class Key:
    """A `key=value` of a config line; `default` None means "not given"."""

    name: str
    type: str  # int, float, bool, str, ints, columns, offsets
    default: Any = REQUIRED


def key(name: str, type: type | str, default: Any = REQUIRED) -> Key:
    """A key; `type` is int, float, bool, str, or lists of integers as Kaldi splits them: "ints" at
    colons and commas, "columns" at commas, "offsets" at commas and without gaps."""
    return Key(name, type if isinstance(type, str) else type.__name__, default)


def optional(type: type | str, **defaults: Any) -> tuple[Key, ...]:
    """Keys of one type with their defaults; `_` in a name becomes `-`."""
    return tuple(key(name.replace("_", "-"), type, value) for name, value in defaults.items())


def required(type: type | str, *names: str) -> tuple[Key, ...]:
    """Keys of one type that a line must have."""
    return tuple(key(name, type) for name in names)


GETTERS: Final[dict[str, Callable[[ConfigLine, str], Any]]] = {
    "int": ConfigLine.get_int,
    "float": ConfigLine.get_float,
    "bool": ConfigLine.get_bool,
    "str": ConfigLine.get,
    "ints": ConfigLine.get_ints,
    "columns": lambda line, name: line.get_ints(name, ","),
    "offsets": lambda line, name: line.get_ints(name, ",", gaps=False),
}
