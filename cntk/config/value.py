"""One configuration value: text until it is read as a number, a boolean, an array or a section."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...framework.base.errors import FormatError, OpscopeError
from ..base.text import Chain, Location, Text, located

if TYPE_CHECKING:
    from .array import ConfigArray
    from .parameters import ConfigParameters

# What C's strtod and strtol take, with nothing behind it.
_DOUBLE = re.compile(
    r"[ \t]*[+-]?(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|inf(?:inity)?|nan)",
    re.IGNORECASE,
)
_HEX_DOUBLE = re.compile(
    r"[ \t]*[+-]?0x(?:[0-9a-f]+\.?[0-9a-f]*|\.[0-9a-f]+)(?:p[+-]?[0-9]+)?", re.IGNORECASE
)
_HASH_INFINITY = re.compile(r"[ \t]*[+-]?[0-9.]*#inf", re.IGNORECASE)
_LONG = re.compile(r"[ \t]*[+-]?[0-9]{1,40}")
_TRUE = ("t", "true", "T", "True", "TRUE", "1")
_FALSE = ("f", "false", "F", "False", "FALSE", "0", "")


def parse_double(string: str) -> float | None:
    """The number that a whole string is, as C reads it, or None."""
    if _DOUBLE.fullmatch(string):
        return float(string)
    if _HEX_DOUBLE.fullmatch(string):
        try:
            return float.fromhex(string.strip())
        except OverflowError:
            return -math.inf if string.strip().startswith("-") else math.inf
    if _HASH_INFINITY.match(string):
        return math.inf
    return None


@dataclass(frozen=True)
class ConfigValue:
    """A value of a config with its path and place.

    Reading it as a type it is not raises FormatError with CNTK's message, the path
    (`case.cntk:Train:SGD:maxEpochs`), and the place where the value was written.

    Attributes:
        text: the value without surrounding quotes and blanks.
        path: file and keys, separated by colons.
        parent: the section that the value stands in; where a section made from it looks further.
    """

    text: Text
    path: str = ""
    parent: ConfigParameters | None = None

    def __str__(self) -> str:
        return self.text.string

    @property
    def location(self) -> Location | None:
        return self.text.locate()

    def error(
        self,
        message: str,
        chain: Chain = (),
        error_class: type[OpscopeError] = FormatError,
    ) -> OpscopeError:
        """An error about this value."""
        at = f" in {self.path}" if self.path else ""
        return located(error_class, f"{message}{at}", self.location, chain)

    def float(self) -> float:
        """The value as a number; `1.#inf` is infinity."""
        number = parse_double(self.text.string)
        if number is None:
            raise self.error(f"ConfigValue (double): invalid input string '{self._shown}'")
        return number

    def int(self) -> int:
        """The value as a 32-bit integer."""
        value = self._long("long")
        if not -(2**31) <= value < 2**31:
            raise self.error(f"ConfigValue (int): integer argument expected, not '{self._shown}'")
        return value

    def long(self) -> int:
        """The value as a 64-bit integer."""
        value = self._long("int64_t")
        if not -(2**63) <= value < 2**63:
            raise self.error(f"ConfigValue (int64_t): '{self._shown}' has more than 64 bits")
        return value

    def size(self) -> int:
        """The value as an unsigned 64-bit number; -1 is 2**64 - 1, CNTK's "all there is"."""
        value = self._long("uint64_t")
        if not -(2**63) <= value < 2**64:
            raise self.error(f"ConfigValue (uint64_t): '{self._shown}' has more than 64 bits")
        return value % 2**64

    def _long(self, kind: str) -> int:
        if not _LONG.fullmatch(self.text.string):
            raise self.error(f"ConfigValue ({kind}): invalid input string '{self._shown}'")
        return int(self.text.string)

    def bool(self) -> bool:
        """The value as a boolean: t, true or 1; f, false, 0 or nothing."""
        if self.text.string in _TRUE:
            return True
        if self.text.string in _FALSE:
            return False
        raise self.error(f"ConfigValue (bool): boolean argument expected, not '{self._shown}'")

    @property
    def _shown(self) -> str:
        """The value as an error shows it: cut where it is long."""
        string = self.text.string
        return string if len(string) <= 60 else string[:57] + "..."

    def array(self, separator: str = ":", repeat: bool = True) -> ConfigArray:
        """The value as an array: `a:b*3:c`, or lines, or in brackets."""
        from .array import ConfigArray

        return ConfigArray(self, separator, repeat)

    def section(self) -> ConfigParameters:
        """The value as a section `[ name = value ; ... ]`."""
        from .parameters import ConfigParameters

        return ConfigParameters.of(self)
