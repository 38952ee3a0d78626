"""What nnet3's descriptors mean, written from the document on nnet3's data types alone.

Nothing here knows the package: an expression of the general grammar is evaluated as it is written,
row by row.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

Row = np.ndarray
Rows = Callable[[str, int, int], Row | None]
"""The row (t, x) of a node; None where it cannot be computed."""


@dataclass(frozen=True)
class Expression:
    """A form with its arguments: expressions, numbers and names; the form is "" for a node."""

    form: str
    arguments: tuple[Any, ...]

    def value(self, t: int, x: int, rows: Rows, dims: Mapping[str, int]) -> Row | None:
        """The row for the index (t, x); None where it cannot be computed."""
        if not self.form:
            return rows(self.arguments[0], t, x)
        return getattr(self, f"_{self.form}")(t, x, rows, dims)

    def dim(self, dims: Mapping[str, int]) -> int:
        """Columns of the result."""
        if not self.form:
            return dims[self.arguments[0]]
        if self.form == "Const":
            return self.arguments[1]
        parts = [each.dim(dims) for each in self.arguments if isinstance(each, Expression)]
        return sum(parts) if self.form == "Append" else parts[0]

    def needed(self, t: int, x: int) -> list[tuple[str, int, int]]:
        """Every row that may take part."""
        if not self.form:
            return [(self.arguments[0], t, x)]
        return [row for each, place in self._places(t, x) for row in each.needed(*place)]

    def _places(self, t: int, x: int) -> list[tuple[Expression, tuple[int, int]]]:
        """The arguments that are evaluated for an index, each with the index it is evaluated at."""
        parts = [each for each in self.arguments if isinstance(each, Expression)]
        others = [each for each in self.arguments if not isinstance(each, Expression)]
        match self.form:
            case "Switch":
                return [(parts[t % len(parts)], (t, x))]
            case "Offset":
                return [(parts[0], (t + others[0], x + (others[1] if len(others) > 1 else 0)))]
            case "Round":
                return [(parts[0], (t // others[0] * others[0], x))]
            case "ReplaceIndex":
                return [(parts[0], (others[1], x) if others[0] == "t" else (t, others[1]))]
            case _:
                return [(each, (t, x)) for each in parts]

    def _all(self, t: int, x: int, rows: Rows, dims: Mapping[str, int]) -> list[Row] | None:
        found = []
        for each, place in self._places(t, x):
            row = each.value(*place, rows, dims)
            if row is None:
                return None
            found.append(row)
        return found

    def _Append(self, t: int, x: int, rows: Rows, dims: Mapping[str, int]) -> Row | None:
        found = self._all(t, x, rows, dims)
        return None if found is None else np.concatenate(found)

    def _Sum(self, t: int, x: int, rows: Rows, dims: Mapping[str, int]) -> Row | None:
        found = self._all(t, x, rows, dims)
        return None if found is None else np.sum(found, axis=0)

    def _one(self, t: int, x: int, rows: Rows, dims: Mapping[str, int]) -> Row | None:
        ((only, place),) = self._places(t, x)
        return only.value(*place, rows, dims)

    _Offset = _Round = _ReplaceIndex = _Switch = _one

    def _Scale(self, t: int, x: int, rows: Rows, dims: Mapping[str, int]) -> Row | None:
        found = self._one(t, x, rows, dims)
        return None if found is None else self.arguments[0] * found

    def _Const(self, t: int, x: int, rows: Rows, dims: Mapping[str, int]) -> Row:
        return np.full(self.arguments[1], float(self.arguments[0]))

    def _Failover(self, t: int, x: int, rows: Rows, dims: Mapping[str, int]) -> Row | None:
        first, second = self.arguments
        found = first.value(t, x, rows, dims)
        return second.value(t, x, rows, dims) if found is None else found

    def _IfDefined(self, t: int, x: int, rows: Rows, dims: Mapping[str, int]) -> Row:
        found = self.arguments[0].value(t, x, rows, dims)
        return np.zeros(self.arguments[0].dim(dims)) if found is None else found


_TOKEN = re.compile(r"\s*([(),]|[^\s(),]+)")
_FORMS = (
    *("Append", "Sum", "Const", "Scale", "Failover", "IfDefined", "Offset"),
    *("Switch", "Round", "ReplaceIndex"),
)


def parse(text: str) -> Expression:
    """The expression of a text that follows the grammar."""
    tokens = _TOKEN.findall(text)
    tree = _parsed(tokens)
    assert not tokens and isinstance(tree, Expression), text
    return tree


def _parsed(tokens: list[str]) -> Any:
    word = tokens.pop(0)
    if word not in _FORMS:
        return _atom(word)
    arguments = []
    assert tokens.pop(0) == "("
    while True:
        arguments.append(_parsed(tokens))
        if tokens.pop(0) == ")":
            break
    if word == "ReplaceIndex":  # the variable is a name, and no node
        arguments[1] = arguments[1].arguments[0]
    return Expression(word, tuple(arguments))


def _atom(word: str) -> Any:
    try:
        return int(word)
    except ValueError:
        pass
    try:
        return float(word)
    except ValueError:
        return Expression("", (word,))
