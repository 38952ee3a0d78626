"""The door for what files say: numbers, names and sizes pass here before anybody uses them.

Readers of messages take attributes through `framework/ir/attributes/checked.py`, readers of Kaldi's
files numbers through `kaldi/files/tokens.py`; both, and all readers of text, rest on these.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from typing import Any, TypeVar

from ..errors import FormatError
from .limits import check_limit, shown_number

Value = TypeVar("Value")
INT32 = (-(1 << 31), (1 << 31) - 1)
INT64 = (-(1 << 63), (1 << 63) - 1)
# Bounded: `int` refuses more than 4300 digits with an error of its own.
_WHOLE = re.compile(r"[+-]?0*([0-9]{1,40})", re.ASCII)
_HALF = re.compile(r"\\u[dD][89a-fA-F]|[\ud800-\udfff]")
"""Half of a surrogate pair in JSON, or what may be one."""
_MARK = re.compile(r'"(?:[^"\\]++|\\.?)*+(?:"|\Z)|[\[\]{}]', re.DOTALL)
"""A string of JSON, to its end or the end of the text, or a bracket."""
MAX_RANK = 64
"""Dimensions that an array has at most: as many as NumPy's."""
_SHOWN = 40  # characters of what a file says that a message repeats


def shown(text: object) -> str:
    """What a file says, for a message: in quotes, and only its beginning where it is long."""
    text = str(text)
    return repr(text) if len(text) <= _SHOWN else f"{text[:_SHOWN]!r}..."


def plain(name: str) -> str:
    """A name from a file, without quotes where a message can hold it as it is."""
    return name if name.isprintable() and 0 < len(name) <= _SHOWN else shown(name)


def whole_number(text: str, what: str, low: int = INT32[0], high: int = INT32[1]) -> int:
    """The whole number that a text is, in decimal digits of ASCII; of any length of text.

    Raises:
        FormatError: it is none, or does not lie from `low` to `high`; `what` names it.
    """
    match = _WHOLE.fullmatch(text)
    value = int(text) if match and len(text) <= 400 else None
    if value is None or not low <= value <= high:
        raise FormatError(f"{what}: {shown(text)} is no whole number from {low} to {high}")
    return value


def in_range(value: int, what: str, low: int, high: int) -> int:
    """A whole number that is already one, if it lies from `low` to `high`.

    Raises:
        FormatError: it does not.
    """
    if not low <= value <= high:
        raise FormatError(f"{what}: {value} is not from {low} to {high}")
    return value


def unicode_text(text: str, what: str) -> str:
    """Text that a message or a file in UTF-8 can hold.

    Raises:
        FormatError: it has a lone surrogate, which is how bytes that are no UTF-8 are kept.
    """
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise FormatError(
                f"{what}: {shown(text)} is no text in UTF-8 (character {error.start})"
            ) from None
    return text


def stem_of(path: str | os.PathLike[str]) -> str:
    """The name of a file without folder and ending, as the name of what is in it.

    Bytes of the name that are no UTF-8 are shown as `\\xe4`: no message could hold them.
    """
    stem = os.path.splitext(os.path.basename(os.fspath(path)))[0]
    return stem.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def check_nesting(depth: int, what: str) -> None:
    """Refuse things that lie too deep inside one another.

    Raises:
        FormatError: `depth` is beyond the limit `nesting`.
    """
    check_limit("nesting", depth, what)


def count_of(dims: Sequence[int], item_bytes: int, what: str) -> int:
    """How many elements a shape has that a file gives to data that it holds.

    The data pay for the sizes, by their length, unless one size is 0: then there are none, and
    what the other sizes promise is held to the limit `fill`.

    Args:
        dims: sizes. item_bytes: of an element. what: names the array, for messages.

    Raises:
        FormatError: sizes that no array has: too many, negative ones, or beyond the limit.
    """
    if len(dims) > MAX_RANK:
        raise FormatError(f"{what} has {len(dims)} dimensions; {MAX_RANK} is the most")
    if min(dims, default=0) < 0:
        raise FormatError(f"{what} has the shape {list(dims)}")
    # Python's integers do not wrap around, as a product in int64 would.
    count = math.prod(dims)
    if not count:
        described = _bytes_of(dims, item_bytes)
        check_limit("fill", described, f"{what}: the shape {list(dims)}")
    return count


def check_fill(dims: Sequence[int], item_bytes: int, what: str) -> None:
    """Refuse an array that is described and not given where the limit `fill` does not allow it.

    It counts with those before it where a `Fills` is open. A size of 0 counts as 1: it must not
    hide the others, which were not checked.

    Raises:
        FormatError: its bytes are beyond the limit.
    """
    described = _bytes_of(dims, item_bytes)
    fills = _fills.get()
    if fills is None:
        check_limit("fill", described, what)
    else:
        fills.add(described, what)


def _bytes_of(dims: Sequence[int], item_bytes: int) -> int:
    return math.prod((max(dim, 1) for dim in dims), start=item_bytes)


class Fills:
    """Counts what one file describes and does not hold: many small arrays are as much as a large.

    `with Fills() as fills:` counts the arrays of all `check_fill` inside. Where one is open
    already, the block counts there: a file that another includes is part of it.

    Attributes:
        nbytes: of all arrays so far.
    """

    def __init__(self) -> None:
        self.nbytes = 0

    def __enter__(self) -> Fills:
        counting = _fills.get() or self
        self._before = _fills.set(counting)
        return counting

    def __exit__(self, *error: object) -> None:
        _fills.reset(self._before)

    def add(self, nbytes: int, what: str) -> None:
        """Count an array.

        Raises:
            FormatError: all together are beyond the limit `fill`; `what` names the last.
        """
        more = f", with {shown_number(self.nbytes)} bytes before it" if self.nbytes else ""
        check_limit("fill", self.nbytes + nbytes, what + more)
        self.nbytes += nbytes


_fills: ContextVar[Fills | None] = ContextVar("fills", default=None)


def json_value(text: str, what: str) -> Any:
    """The value of a JSON text.

    Raises:
        FormatError: it is none, is nested beyond the limit, has a number of too many digits, or a
            string with half of a surrogate pair, other than those that stand for bytes.
    """
    depth = deepest = 0
    # Python's own reader recurses: it would end with a RecursionError, deep in C on some versions.
    for mark in _MARK.findall(text):
        if mark in "[{":
            depth += 1
            deepest = max(deepest, depth)
        elif mark in "]}":
            depth -= 1
    check_nesting(deepest, what)
    try:
        value = json.loads(text)
        # json keeps a lone half as it is; the first one to write the text out would fail instead.
        if _HALF.search(text):
            json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogateescape")
        return value
    except UnicodeEncodeError:
        raise FormatError(f"{what}: a string in it holds half of a character") from None
    except ValueError as error:
        raise FormatError(f"{what}: no JSON that can be read: {error}") from None


def member(
    values: Mapping[str, Any],
    name: str,
    kind: type[Value],
    what: str,
    low: int = 0,
    high: int = INT32[1],
) -> Value:
    """A member of a JSON object, of the type that is wanted.

    Args:
        kind: `float` takes whole numbers as well, but no NaN and no infinity.
        low, high: the range of a whole number.

    Raises:
        FormatError: it is missing, of another type, or out of its range; `what` names the object.
    """
    value: Any = values.get(name)
    if kind is float and type(value) is int and INT64[0] <= value <= INT64[1]:
        value = float(value)
    if type(value) is not kind:
        problem = "is missing" if name not in values else f"is {shown(value)}"
        raise FormatError(f"{what}: {name!r} {problem}; a {kind.__name__} is wanted")
    if isinstance(value, float) and not math.isfinite(value):
        raise FormatError(f"{what}: {name!r} is {value}")
    if type(value) is int:
        in_range(value, f"{what}: {name!r}", low, high)
    return value
