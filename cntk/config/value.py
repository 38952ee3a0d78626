"""Configuration values: text until they are read as a number, a boolean or an array of values."""

from __future__ import annotations

import builtins
import logging
import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

from ...framework.base.errors import FormatError, OpscopeError
from ...framework.base.untrusted.limits import check_limit
from ..base.text import Chain, Location, Text, located
from .scan import records, skip_blanks
from .section import Section

_log = logging.getLogger("opscope.cntk")

T = TypeVar("T")

# The texts that C's strtod and strtol read to their end.
_DOUBLE = re.compile(
    r"[ \t]*[+-]?(?:(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|inf(?:inity)?|nan)",
    re.IGNORECASE,
)
_HEX_DOUBLE = re.compile(
    r"[ \t]*[+-]?0x(?:[0-9a-f]+(?:\.[0-9a-f]*)?|\.[0-9a-f]+)(?:p[+-]?[0-9]+)?", re.IGNORECASE
)
_HASH_INFINITY = re.compile(r"[ \t]*[+-]?[0-9.]*#inf", re.IGNORECASE)
_LONG = re.compile(r"[ \t]*[+-]?[0-9]{1,40}")
_TRUE = ("t", "true", "T", "True", "TRUE", "1")
_ELEMENT = re.compile(r"(?:\[\d+\])+$")  # at the end of a path
_BRACKET = re.compile(r'[\[{("]')
# Several words in brackets, none of them quoted, without any separator: `{ a b c*3 }`.
_WORD = r"[^\s,:;|\"=\[\](){}]+"
_BLANK_SEPARATED = re.compile(rf"[{{(\[][ \t]*{_WORD}(?:[ \t]+{_WORD})+[ \t]*[}})\]]")
# A further `name=` after a blank, where CNTK reads on.
_SWALLOWED = re.compile(r"[^\s=\[({][^=\[({]*[ \t]([A-Za-z_]\w*)[ \t]*=")
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
        parent: the section of the value; a section made from the value looks up names there.
    """

    text: Text
    path: str = ""
    parent: Section | None = None

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
        needed: bool = False,
    ) -> OpscopeError:
        """An error about this value; a lenient reading ignores it unless it is `needed`."""
        at = f" in {self.path}" if self.path else ""
        error = located(error_class, f"{message}{at}", self.location, chain)
        if not needed:
            vars(error)["parameter"] = _ELEMENT.sub("", self.path)
        return error

    def string(self) -> str:
        """The value as a string. `[ a=b c=d ]` is one parameter in CNTK, whose value is "b c=d":
        blanks separate nothing. That is warned of, once for each place of a config."""
        if (match := _SWALLOWED.match(self.text.string)) and not self._quoted:
            self._warn(
                f"blanks separate nothing: the value is {self._shown!r}, and {match[1]} is no"
                " parameter; write ';' before it, or quotes around the value"
            )
        return self.text.string

    @property
    def _quoted(self) -> bool:
        place = self.location
        if place is None:
            return False
        return place.source.line(place.line)[: place.column - 1].endswith('"')

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
        """The value as an array: `a:b*3:c`, or lines, or in brackets.

        `{ a b c*3 }`, which CNTK's manual shows, is one element, "a b c", three times in CNTK:
        blanks separate nothing. That is warned of, once for each place of a config.
        """
        array = ConfigArray(self, separator, repeat)
        string = self.text.string
        if string[:1] in ("{", "(", "[") and _BLANK_SEPARATED.fullmatch(string):
            self._warn(
                f"blanks separate nothing: the array has {len(array)} elements {str(array[0])!r};"
                f" write {separator.join(string[1:-1].split())!r} for one element for each word"
            )
        return array

    def _warn(self, message: str) -> None:
        """Log a warning with the place, unless the config was warned of that already."""
        config = None if self.parent is None else list(self.parent.outwards())[-1]
        text = f"{self.location or self.path}: {message}"
        if config is None or text not in config.warned:
            _log.warning("%s", text)
        if config is not None:
            config.warned.add(text)


class ConfigArray:
    """Values separated by `:`, commas or newlines: `0.8:0.4*2:0.1`, in brackets or not.

    `{|c:\\temp|12*3|x}` uses `|` instead of the colon. `a*3` is `a` three times, if `repeat`.
    An index after the end gives the last value. `most_times`: as often as one value may be in it
    by a count after `*`, where many arrays are read at once.
    """

    def __init__(
        self,
        value: ConfigValue | Text | str,
        separator: str = ":",
        repeat: bool = True,
        most_times: int | None = None,
    ) -> None:
        if not isinstance(value, ConfigValue):
            value = ConfigValue(Text(value) if isinstance(value, str) else value)
        self.source = value
        self._values: list[ConfigValue] = []
        self._most_times = most_times
        for start, end in records(value.text, separator):
            if not self._add(value.text.cut(start, end), repeat):
                break

    def _add(self, text: Text, repeat: bool) -> bool:
        """Append the values of one record; False where a count is missing, which ends the array."""
        string = text.string
        start = skip_blanks(string, 0)
        if start == len(string):
            return True
        star = string.find("*", start) if repeat else -1
        if _BRACKET.search(string, start, max(star, start)):
            star = -1  # inside a call or a quoted string
        count = 1
        if star >= 0:
            if star + 1 == len(string):
                return False
            number = ConfigValue(text.cut(star + 1, len(string)).strip(), self.source.path)
            count = number.int()
            self._check_size(max(count, 0), number)
        path = f"{self.source.path}[{len(self._values)}]"
        stop = len(string) if star < 0 else star
        item = ConfigValue(text.cut(start, stop).strip(), path, self.source.parent)
        self._values.extend([item] * count)
        return True

    def _check_size(self, count: int, number: ConfigValue) -> None:
        """Refuse to repeat a value too often; values that are written out are no matter."""
        if self._most_times is not None and count > self._most_times:
            raise number.error(f"a value is repeated at most {self._most_times} times here")
        try:
            check_limit("elements", len(self._values) + count, "the array")
        except FormatError as error:
            raise number.error(str(error)) from None

    def __len__(self) -> int:
        return len(self._values)

    def __iter__(self) -> Iterator[ConfigValue]:
        return iter(self._values)

    def __getitem__(self, index: int) -> ConfigValue:
        if not self._values:
            raise self.source.error("the array is empty")
        return self._values[min(index, len(self._values) - 1)]

    def strings(self) -> list[str]:
        return [str(value) for value in self._values]

    def ints(self) -> ArgVector[int]:
        return self._vector(ConfigValue.int)

    def sizes(self) -> ArgVector[int]:
        return self._vector(ConfigValue.size)

    def floats(self) -> ArgVector[builtins.float]:
        return self._vector(ConfigValue.float)

    def bools(self) -> ArgVector[bool]:
        return self._vector(ConfigValue.bool)

    def _vector(self, read: Callable[[ConfigValue], T]) -> ArgVector[T]:
        known: dict[int, T] = {}  # a repeated value is one object: read once
        out = []
        for value in self._values:
            key = id(value)
            if key not in known:
                known[key] = read(value)
            out.append(known[key])
        return ArgVector(out, self.source.path)


class ArgVector(Generic[T]):
    """Values of one type, read once; an index after the end gives the last value.

    Learning rates, minibatch sizes and the like are given per epoch this way.
    """

    def __init__(self, values: list[T], path: str = "") -> None:
        self._values = values
        self._path = path

    def __getitem__(self, index: int) -> T:
        if not self._values:
            raise FormatError(f"{self._path or 'the argument'} holds no values")
        return self._values[min(index, len(self._values) - 1)]

    def __len__(self) -> int:
        return len(self._values)

    def __iter__(self) -> Iterator[T]:
        return iter(self._values)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ArgVector) and self._values == other._values

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"ArgVector({self._values})"

    @property
    def last(self) -> T:
        return self[len(self._values)]


def param_list(value: ConfigValue | Text | str) -> ConfigArray:
    """The parameters of a MEL call: separated by commas, `*` is an ordinary character."""
    return ConfigArray(value, ",", repeat=False)
