"""Arrays of configuration values, and the argument vectors made from them."""

from __future__ import annotations

import builtins
import re
from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar

from ...framework.base.errors import FormatError
from ..base.text import Text
from .scan import records, skip_blanks
from .value import ConfigValue

LIMIT = 1_000_000  # elements; a count behind `*` may ask for any number

T = TypeVar("T")
_BRACKET = re.compile(r'[\[{("]')


class ConfigArray:
    """Values separated by `:`, commas or newlines: `0.8:0.4*2:0.1`, in brackets or not.

    `{|c:\\temp|12*3|x}` uses `|` instead of the colon. `a*3` is `a` three times, if `repeat`.
    An index behind the end gives the last value.
    """

    def __init__(
        self, value: ConfigValue | Text | str, separator: str = ":", repeat: bool = True
    ) -> None:
        if not isinstance(value, ConfigValue):
            value = ConfigValue(Text(value) if isinstance(value, str) else value)
        self.source = value
        self._values: list[ConfigValue] = []
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
            if len(self._values) + count > LIMIT:
                raise number.error(f"an array holds at most {LIMIT} values")
        path = f"{self.source.path}[{len(self._values)}]"
        stop = len(string) if star < 0 else star
        item = ConfigValue(text.cut(start, stop).strip(), path, self.source.parent)
        self._values.extend([item] * count)
        if len(self._values) > LIMIT:
            raise item.error(f"an array holds at most {LIMIT} values")
        return True

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

    def _vector(self, read: Callable[[ConfigValue], Any]) -> ArgVector[Any]:
        known: dict[int, Any] = {}  # a repeated value is one object: read once
        out = []
        for value in self._values:
            key = id(value)
            if key not in known:
                known[key] = read(value)
            out.append(known[key])
        return ArgVector(out, self.source.path)


class ArgVector(Generic[T]):
    """Values of one type, read once; an index behind the end gives the last value.

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
