"""Keys of config lines, declared once: parsing, the reference page and the command read these.

Format: `KEY=VALUE` after the first word of a line, as Kaldi's `ConfigLine` takes it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Final

import numpy as np

from ...framework.base.errors import nearest
from .config import ConfigLine

REQUIRED: Final = object()


@dataclass(frozen=True)
class Key:
    """A `key=value` of a config line.

    Attributes:
        name: as the line has it.
        type: one of `GETTERS`.
        default: the value where the line has none; None means "not given".
        unset: in words, what takes the place of a default that is None or a mark like -1.
        doc: what the value means.
        minimum: the least value of a number that may stand in the line.
        numbered: whether the line has NAME1, NAME2 ...; whoever declares it reads these.
    """

    name: str
    type: str
    default: Any = REQUIRED
    unset: str = ""
    doc: str = ""
    minimum: int | None = None
    numbered: bool = False

    @property
    def shown_name(self) -> str:
        """The name, as a page has it."""
        return f"{self.name}1, {self.name}2 ..." if self.numbered else self.name

    @property
    def shown_default(self) -> str:
        """The default in words, or `required`."""
        if self.default is REQUIRED:
            return "required"
        if self.unset or self.default is None:
            return self.unset or "none"
        if isinstance(self.default, bool):
            return "true" if self.default else "false"
        return f"{self.default:g}" if isinstance(self.default, float) else str(self.default)


GETTERS: Final[dict[str, Callable[[ConfigLine, str], Any]]] = {
    "int": ConfigLine.get_int,
    "float": ConfigLine.get_float,
    "bool": ConfigLine.get_bool,
    "str": lambda line, name: line.get(name),
    "ints": ConfigLine.get_ints,
    "columns": lambda line, name: line.get_ints(name, ","),
    "offsets": lambda line, name: line.get_ints(name, ",", gaps=False),
}

TYPES: Final = {
    "int": "an integer of 32 bits",
    "float": "a number, also inf or nan, rounded to float32",
    "bool": "a word that begins with t or f",
    "str": "text, in quotes where `=` follows a space in it",
    "ints": "integers with `:` or `,` between them; empty places are passed over",
    "columns": "integers with `,` between them; empty places are passed over",
    "offsets": "integers with `,` between them, without empty places",
}
"""The types of `GETTERS` in words."""


def read_keys(line: ConfigLine, keys: Sequence[Key], owner: str = "") -> SimpleNamespace:
    """The values of `keys` (but numbered ones), by name with `_` for `-`.

    Args:
        line: where they stand.
        keys: what is asked for, in this order.
        owner: who wants them, for messages.

    Raises:
        FormatError: a key is missing, is not of its type, or is below its least value.
    """
    values = {}
    for key in keys:
        if key.numbered:
            continue
        value = GETTERS[key.type](line, key.name)
        if value is None:
            if key.default is REQUIRED:
                raise line.error(
                    f"{owner} wants {key.name}="
                    if owner
                    else f"{key.name}= is missing{nearest(key.name, line.keys())}"
                )
            value = key.default
        elif key.minimum is not None and value < key.minimum:
            raise line.error(f"{key.name}={value}: at least {key.minimum} is wanted")
        if key.type == "float" and value is not None:
            value = float(np.float32(value))
        values[key.name.replace("-", "_")] = value
    return SimpleNamespace(**values)
