"""Rows (n, t, x) written with ranges: `0,-1:2` is n = 0 at t = -1, 0, 1 and 2.

    -3:20           t = -3 to 20, of the sequences that are named elsewhere
    0,-3:20         n = 0
    0:3,0:30:3      n = 0 to 3, each at t = 0, 3 ... 30: all rows of n = 0 first
    0:3@0:30:3      the same rows, all of t = 0 first
    0,0:4,0:39      each t with x = 0 to 39; without a third number x is 0
    0,-3:20;1,0:9   several lists of rows, one after the other

A range is FIRST:LAST, the last one included, or FIRST:LAST:STEP. The t of a padding row is `none`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from ...framework.base.errors import FormatError, ShapeError
from .indexes import NO_TIME, as_indexes

MOST_ROWS = 1 << 22
"""How many rows one text may stand for."""

_RANGE = re.compile(r"([+-]?\d{1,10})(?::([+-]?\d{1,10})(?::([+-]?\d{1,10}))?)?\Z")
_NONE = "none"


class RangeError(FormatError):
    """A text that stands for no rows; `offset` is the place of the mistake in it."""

    def __init__(self, message: str, offset: int) -> None:
        super().__init__(message)
        self.offset = offset


class Rows(NamedTuple):
    """Ranges of n, t and x as text, and whether all n of one t stand together."""

    n: str
    t: str
    x: str
    by_time: bool

    def __str__(self) -> str:
        x = "" if self.x == "0" else f",{self.x}"
        return f"{self.n}{'@' if self.by_time else ','}{self.t}{x}"


def parse_range(text: str, what: str, offset: int = 0) -> np.ndarray:
    """The numbers of a range, int64.

    Args:
        what: the word for one of the numbers in messages.
        offset: where the text stands in a longer one.

    Raises:
        RangeError: it is no range, runs backwards, or has too many numbers.
    """
    match = _RANGE.match(text)
    if match is None:
        raise RangeError(
            f"'{_cut(text)}' is no {what}; it is written as a whole number, FIRST:LAST, or"
            " FIRST:LAST:STEP",
            offset,
        )
    first, last, step = (int(part) if part else None for part in match.groups())
    assert first is not None
    if last is None:
        return np.array([first], np.int64)
    if step is not None and step < 1:
        raise RangeError(f"'{text}' has a step of {step}; it must be at least 1", offset)
    if last < first:
        raise RangeError(f"'{text}' ends before it begins", offset)
    step = step or 1
    _check_count((last - first) // step + 1, text, offset)
    return np.arange(first, last + 1, step)


def parse_rows(text: str, ns: np.ndarray | None = None) -> np.ndarray:
    """The rows that a text stands for, int32 [rows, 3]: see the module.

    Args:
        ns: the sequences of a list that names none; None: each list must name its sequences.

    Raises:
        RangeError: with the place in the text: what is wrong.
    """
    lists = []
    offset = 0
    for part in text.split(";"):
        try:
            lists.append(as_indexes(_one_list(part, ns, offset), f"'{_cut(part)}'"))
        except RangeError:
            raise
        except ShapeError as error:
            raise RangeError(str(error), offset) from None
        _check_count(sum(map(len, lists)), text, offset)
        offset += len(part) + 1
    return np.concatenate(lists)


def _one_list(text: str, ns: np.ndarray | None, offset: int) -> np.ndarray:
    n_text, mark, rest = _split(text)
    if not mark and ns is None:
        raise RangeError(f"'{_cut(text)}' is no index; it is written n,t or n,t,x", offset)
    start = offset + (len(n_text) + 1 if mark else 0)
    t_text, comma, x_text = rest.partition(",")
    n = parse_range(n_text, "number n of a sequence", offset) if mark else ns
    assert n is not None
    t = np.array([NO_TIME]) if t_text == _NONE else parse_range(t_text, "time t", start)
    x = np.zeros(1, np.int64)
    if comma:
        x = parse_range(x_text, "number x", start + len(t_text) + 1)
    _check_count(len(n) * len(t) * len(x), text, offset)
    if mark == "@":
        t, x, n = (part.reshape(-1) for part in np.meshgrid(t, x, n, indexing="ij"))
    else:
        n, t, x = (part.reshape(-1) for part in np.meshgrid(n, t, x, indexing="ij"))
    return np.stack((n, t, x), axis=1)


def _split(text: str) -> tuple[str, str, str]:
    """The text of n, the mark after it, and the rest; no mark where no n is named."""
    for place, character in enumerate(text):
        if character in ",@":
            return text[:place], character, text[place + 1 :]
    return "", "", text


def _check_count(count: int, text: str, offset: int) -> None:
    if count > MOST_ROWS:
        raise RangeError(f"'{_cut(text)}' stands for more than {MOST_ROWS:,} rows", offset)


def _cut(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:60]}..."


def format_rows(indexes: np.ndarray) -> str:
    """The text of rows [rows, 3], which `parse_rows` reads."""
    return ";".join(map(str, rows_of(indexes)))


def format_numbers(values: np.ndarray) -> str:
    """Numbers with ranges: `1,4,7:9,20:30:2`; equal ones that follow each other as `-1 x 12`."""
    values = np.asarray(values, np.int64).reshape(-1)
    steps = np.diff(values)[:, None]
    parts = []
    begin = 0
    while begin < len(values):
        step = int(steps[begin, 0]) if begin < len(steps) else 0
        count = _equal_steps(steps, begin, 0, step)
        if step < 0 or (count == 2 and step != 1):
            count = 1
        first = int(values[begin])
        last = int(values[begin + count - 1])
        parts.append(f"{first} x {count}" if step == 0 and count > 1 else _range(first, last, step))
        begin += count
    return ",".join(parts)


def rows_of(indexes: np.ndarray) -> Iterator[Rows]:
    """Rows [rows, 3] as few lists, in order."""
    rows = np.asarray(indexes, np.int64).reshape(-1, 3)
    orders = [(rows[:, order], order) for order in ([0, 1, 2], [1, 2, 0])]
    steps = [np.diff(columns, axis=0) for columns, _ in orders]
    begin = 0
    while begin < len(rows):
        products = [
            _product(columns, step, begin) for (columns, _), step in zip(orders, steps, strict=True)
        ]
        sizes = [np.prod([count for count, _ in axis_list]) for axis_list in products]
        by_time = bool(sizes[1] > sizes[0])
        texts = ["", "", ""]
        for column, (count, step) in zip(orders[by_time][1], products[by_time], strict=True):
            first = int(rows[begin, column])
            texts[column] = _range(first, first + (count - 1) * step, step)
        yield Rows(texts[0], texts[1], texts[2], by_time)
        begin += int(sizes[by_time])


def _product(columns: np.ndarray, steps: np.ndarray, begin: int) -> list[tuple[int, int]]:
    """How many values, and at what step, each column has; the last one runs fastest."""
    axes = []
    size = 1
    for axis in (2, 1, 0):
        count, step = _blocks(columns, steps, begin, size, axis)
        axes.insert(0, (count, step))
        size *= count
    return axes


def _blocks(
    columns: np.ndarray, steps: np.ndarray, begin: int, size: int, axis: int
) -> tuple[int, int]:
    """How many blocks of rows follow each other, each higher by one step in a column."""
    after = begin + size
    if after + size > len(columns):
        return 1, 0
    step = int(columns[after, axis] - columns[begin, axis])
    if step < 1:
        return 1, 0
    if size == 1:
        count = _equal_steps(steps, begin, axis, step)
    else:
        shift = np.zeros(3, np.int64)
        shift[axis] = step
        count = 1
        while (
            after + size <= len(columns)
            and not (columns[after : after + size] - columns[after - size : after] - shift).any()
        ):
            count += 1
            after += size
    return (1, 0) if count == 1 or (count == 2 and step != 1) else (count, step)


def _equal_steps(steps: np.ndarray, begin: int, axis: int, step: int) -> int:
    """How many rows follow from one on, each higher by `step` in one column alone."""
    wanted = np.zeros(steps.shape[1], np.int64)
    wanted[axis] = step
    window = 16
    at = begin
    while at < len(steps):
        others = np.flatnonzero((steps[at : at + window] != wanted).any(axis=1))
        if others.size:
            return at + int(others[0]) - begin + 1
        at += window
        window *= 2
    return len(steps) - begin + 1


def _range(first: int, last: int, step: int) -> str:
    if first == NO_TIME:
        return _NONE
    if first == last:
        return str(first)
    return f"{first}:{last}" if step == 1 else f"{first}:{last}:{step}"
