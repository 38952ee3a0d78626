"""Kaldi's config lines: `component name=a type=NoOpComponent dim=40`; declarations of their keys.

A line is a first word, then `key=value` pairs. A value continues until the word before the next
`=`, so `input=Offset(a, -1) dim=3` needs no quotes; `'...'` and `"..."` quote (without escapes).
`#` begins a comment. Format: Kaldi's `util/text-utils.cc`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import Any, Final, NamedTuple

import numpy as np

from ...framework.base.errors import FormatError, nearest
from ...framework.base.files.atomic import PathLike
from ...framework.base.untrusted.limits import limit
from ...framework.base.untrusted.opener import read_text

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.\-]*\Z")
_INTEGER = re.compile(r"[+-]?[0-9]{1,40}\Z")
_FLOAT = re.compile(
    r"[+-]?(?:(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:e[+-]?[0-9]{1,9})?|inf|infinity|nan)\Z", re.I
)
_INT32 = 1 << 31
_SHOWN = 160  # characters of a line that messages show
_FEW = 1 << 16  # dimensions that are not compared with the limit


def is_valid_name(name: str) -> bool:
    """Whether Kaldi takes `name` for a node, a component or a key: letters, digits, `_`, `-`, `.`;
    the first a letter or `_`."""
    return _NAME.match(name) is not None


class ConfigLine:
    """One parsed line.

    Every look-up marks the key as used, so that what nothing asked for can be refused.

    Args:
        text: the line, without comment.
        place: where it stands (`file:line`), for messages.

    Raises:
        FormatError: the line is empty, a key is no name, a quote is not closed, or something is
            no `key=value`.
    """

    def __init__(self, text: str, place: str = "") -> None:
        self.text = text
        self.place = place
        self.first_token = ""
        self._values: dict[str, str] = {}
        self._used: set[str] = set()
        self._parse()

    def error(self, message: str) -> FormatError:
        """A `FormatError` about this line."""
        return FormatError(f"{self.place + ': ' if self.place else ''}{message}: {self._shown()}")

    def is_named_by(self, error: Exception) -> bool:
        """Whether an error shows this line already."""
        return str(error).endswith(f": {self._shown()}")

    def _shown(self) -> str:
        """The line as messages show it: of a long one its beginning."""
        text = self.text
        return repr(text if len(text) <= _SHOWN else f"{text[:_SHOWN]} ...")

    def keys(self) -> list[str]:
        """All keys, used or not, in the order of the line."""
        return list(self._values)

    def get(self, key: str) -> str | None:
        """The value of `key` as it stands, or None."""
        value = self._values.get(key)
        if value is not None:
            self._used.add(key)
        return value

    def require(self, key: str) -> str:
        """The value of `key`.

        Raises:
            FormatError: there is none.
        """
        value = self.get(key)
        if value is None:
            raise self.error(f"{key}= is missing{nearest(key, self._values)}")
        return value

    def value(self, key: str, kind: str = "str") -> Any:
        """The value of `key` as one of `TYPES`, or None.

        Raises:
            FormatError: it is none.
        """
        text = self.get(key)
        if text is None:
            return None
        value = TYPES[kind].parse(text)
        if value is None:
            raise self.error(f"{key}={text} is {TYPES[kind].wrong}")
        return value

    def unused(self) -> str:
        """The pairs that nothing asked for, `key=value key=value`."""
        return " ".join(f"{k}={self._values[k]}" for k in self._values if k not in self._used)

    def check_unused(self, known: Iterable[str] = ()) -> None:
        """Refuse pairs that nothing asked for; `known` keys are offered as corrections.

        Raises:
            FormatError: there are some.
        """
        for key, value in self._values.items():
            if key not in self._used:
                raise self.error(f"{key}={value} is not used here{nearest(key, known)}")

    def _parse(self) -> None:
        line = self.text.strip()
        if not line:
            raise self.error("an empty line")
        word = line.split(None, 1)[0]
        position = 0
        if "=" not in word:
            if not is_valid_name(word):
                raise self.error(f"{word!r} cannot begin a line")
            self.first_token = word
            position = len(word)
        while position < len(line):
            if line[position].isspace():
                position += 1
                continue
            position = self._parse_pair(line, position)

    def _parse_pair(self, line: str, position: int) -> int:
        """Take the pair that begins at `position`; returns where it ends."""
        equals = line.find("=", position)
        key = line[position:equals] if equals >= 0 else line[position:]
        if equals < 0 or not is_valid_name(key):
            raise self.error(f"expected key=value, not {key!r}")
        begin = equals + 1
        if line[begin : begin + 1] in ("'", '"'):
            end = line.find(line[begin], begin + 1)
            if end < 0:
                raise self.error(f"the quote after {key}= is not closed")
            value = line[begin + 1 : end]
            stop = end + 1
        else:
            stop = len(line)
            following = line.find("=", begin)
            if following >= 0:
                space = max(line.rfind(" ", begin, following), line.rfind("\t", begin, following))
                stop = space if space >= 0 else stop
            value = line[begin:stop].rstrip()
        self._values.setdefault(key, value)  # as in Kaldi, the first of several counts
        return stop


REQUIRED: Final = object()


@dataclass(frozen=True)
class Computed:
    """A default that is computed where the line has no value: in words, and the mark for it."""

    words: str
    mark: Any = None


@dataclass(frozen=True)
class Key:
    """A `key=value` of a config line.

    Attributes:
        name: as the line has it.
        type: one of `TYPES`.
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


def _integer(text: str) -> int | None:
    return int(text) if _INTEGER.match(text) and -_INT32 <= int(text) < _INT32 else None


def _number(text: str) -> float | None:
    return float(text) if _FLOAT.match(text) else None


def _flag(text: str) -> bool | None:
    # As in Kaldi, the first letter decides.
    return text[0] in "tT" if text[:1] in ("t", "T", "f", "F") else None


def _integers(separators: str, gaps: bool, text: str) -> list[int] | None:
    parts = [part.strip() for part in re.split(f"[{separators}]", text)]
    values = [_integer(part) for part in parts if part or not gaps]
    known = [value for value in values if value is not None]
    return known if len(known) == len(values) else None


class Type(NamedTuple):
    """A type of values.

    Attributes:
        doc: the type in words.
        parse: from the text to the value; None: it is of another type.
        wrong: what such a text is, for errors.
    """

    doc: str
    parse: Callable[[str], Any]
    wrong: str = "no list of integers"


TYPES: Final = {
    "int": Type("an integer of 32 bits", _integer, "no integer of 32 bits"),
    "float": Type("a number, also inf or nan, rounded to float32", _number, "no number"),
    "bool": Type("a word that begins with t or f", _flag, "neither true nor false"),
    "str": Type("text, in quotes where `=` follows a space in it", str),
    "ints": Type(
        "integers with `:` or `,` between them; empty places are passed over",
        partial(_integers, ":,", True),
    ),
    "columns": Type(
        "integers with `,` between them; empty places are passed over",
        partial(_integers, ",", True),
    ),
    "offsets": Type(
        "integers with `,` between them, without empty places", partial(_integers, ",", False)
    ),
}


def _too_many(key: Key, value: int) -> bool:
    """Whether a dimension is beyond the limit of columns."""
    return key.name.endswith("dim") and value > limit("columns")


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
        value = line.value(key.name, key.type)
        if value is None:
            if key.default is REQUIRED:
                problem = f"{owner} wants {key.name}=" if owner else f"{key.name}= is missing"
                raise line.error(problem + nearest(key.name, line.keys()))
            value = key.default
        elif key.type == "int" and value > _FEW and _too_many(key, value):
            raise line.error(f"{key.name}={value}: {limit('columns')} columns are the limit")
        elif key.minimum is not None and not value >= key.minimum:  # nor nan
            raise line.error(f"{key.name}={value}: at least {key.minimum} is wanted")
        if key.type == "float" and value is not None:
            value = float(np.float32(value))
        values[key.name.replace("-", "_")] = value
    return SimpleNamespace(**values)


def numbered_lines(text: str, source: str = "") -> Iterator[tuple[str, str]]:
    """Where each line of a config stands, and the line; without comments and empty lines."""
    for number, line in enumerate(text.split("\n"), 1):
        line = line.split("#", 1)[0].strip()
        if line:
            yield f"{source}:{number}" if source else f"line {number}", line


def split_lines(text: str, source: str = "") -> list[ConfigLine]:
    """The lines of a config file, without comments and empty lines.

    Raises:
        FormatError: one is no config line.
    """
    return [ConfigLine(line, place) for place, line in numbered_lines(text, source)]


def read_config_lines(path: PathLike) -> list[ConfigLine]:
    """The lines of the config file `path`.

    Raises:
        FormatError: the file cannot be read, is no UTF-8 text, or holds a line that is none.
    """
    return split_lines(read_config_text(path), os.fspath(path))


def read_config_text(path: PathLike) -> str:
    """The text of the config file `path`.

    Raises:
        FormatError: the file cannot be read, or is no UTF-8 text.
    """
    return read_text(path, pipes=True)
