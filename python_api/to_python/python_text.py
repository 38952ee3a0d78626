"""Python expressions as small trees, and their layout in lines of at most 100 columns.

The layout follows `ruff format`: what does not fit on a line is broken at the outermost bracket,
arguments first with all on one line of their own, then with one on each and a comma after the
last.
"""

from __future__ import annotations

import json
import keyword
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

WIDTH = 100
INDENT = "    "

# How tightly infix operators bind.
_RANKS = {"+": 1, "-": 1, "*": 2, "/": 2, "@": 2}
_UNARY, _ATOM = 3, 4
_COLLECTIONS = ("(", "[", "{")


@dataclass(frozen=True)
class Text:
    """An expression without parts: a name, a number, a string."""

    text: str
    rank: int = _ATOM


@dataclass(frozen=True)
class Group:
    """Items in brackets, as a call or a list: `head` a, key=b `tail`."""

    head: str
    items: tuple[tuple[str, Expr], ...]
    tail: str = ")"
    rank: int = _ATOM


@dataclass(frozen=True)
class Infix:
    """Two operands and an operator, and the call that means the same."""

    left: Expr
    sign: str
    right: Expr
    call: Group

    @property
    def rank(self) -> int:
        return _RANKS[self.sign]


Expr: TypeAlias = "Text | Group | Infix"


def call(function: str, *items: Expr, **named: Expr) -> Group:
    """`function(item, ..., key=item, ...)`."""
    pairs = [("", item) for item in items] + [(f"{key}=", item) for key, item in named.items()]
    return Group(f"{function}(", tuple(pairs))


def string(text: str) -> Text:
    return Text(json.dumps(text, ensure_ascii=False))


def literal(value: Any, single: bool = False) -> Expr:
    """A value of an attribute; `single`: floats need to be right in single precision only."""
    if isinstance(value, np.dtype):
        return string(value.name)
    if isinstance(value, np.ndarray):
        return call("np.array", literal(value.tolist(), single), dtype=string(value.dtype.name))
    if isinstance(value, str):
        return string(value)
    if isinstance(value, (bool, np.bool_)):
        return Text(str(bool(value)))
    if isinstance(value, (int, np.integer)):
        return _number(str(int(value)))
    if isinstance(value, (float, np.floating)):
        return _number(_float(float(value), single))
    if isinstance(value, Mapping):
        items = tuple((f"{string(key).text}: ", literal(v, single)) for key, v in value.items())
        return Group("{", items, "}")
    if isinstance(value, tuple) and len(value) == 2 and isinstance(value[0], str):
        return Group("(", tuple(("", literal(item, single)) for item in value))
    return Group("[", tuple(("", literal(item, single)) for item in value), "]")


def _number(text: str) -> Text:
    return Text(text, _UNARY if text.startswith("-") else _ATOM)


def _float(value: float, single: bool) -> str:
    if not np.isfinite(value):
        return f'float("{value}")'
    with np.errstate(over="ignore"):
        short = str(np.float32(value)) if single else repr(value)
    return short if not single or np.float32(float(short)) == np.float32(value) else repr(value)


def prose(text: str) -> str:
    """Text for a docstring, which it cannot end; what cannot be printed is left out."""
    printable = "".join(c if c.isprintable() else " " for c in text)
    return " ".join(printable.replace("\\", "/").replace('"', "'").split())


def flat(expr: Expr) -> str:
    """An expression on one line."""
    if isinstance(expr, Text):
        return expr.text
    if isinstance(expr, Group):
        return expr.head + ", ".join(key + flat(item) for key, item in expr.items) + expr.tail
    left, right = flat(expr.left), flat(expr.right)
    if expr.left.rank < expr.rank:
        left = f"({left})"
    if expr.right.rank <= expr.rank:
        right = f"({right})"
    return f"{left} {expr.sign} {right}"


def wrapped(prefix: str, expr: Expr, indent: str = "", suffix: str = "") -> list[str]:
    """The lines of `prefix` and an expression."""
    line = f"{indent}{prefix}{flat(expr)}{suffix}"
    if len(line) <= WIDTH:
        return [line]
    if isinstance(expr, Infix):
        expr = expr.call
    if isinstance(expr, Text) or not expr.items:
        return [line]
    inner = indent + INDENT
    lines = [f"{indent}{prefix}{expr.head}"]
    body = inner + ", ".join(key + flat(item) for key, item in expr.items)
    if len(body) <= WIDTH and expr.head not in _COLLECTIONS:
        lines.append(body)
    else:
        for key, item in expr.items:
            lines += wrapped(key, item, inner, ",")
    lines.append(f"{indent}{expr.tail}{suffix}")
    return lines


class Names:
    """Python names for names of any kind: valid, and each used once."""

    def __init__(self, reserved: Iterable[str] = ()) -> None:
        self._taken = set(reserved)

    def new(self, wanted: str) -> str:
        """A free name as near to `wanted` as can be: `h1.W` becomes `h1_W`."""
        stem = re.sub(r"_*\W[\W_]*|__+", "_", wanted, flags=re.ASCII).strip("_") or "value"
        if stem[0].isdigit() or keyword.iskeyword(stem):
            stem = f"_{stem}" if stem[0].isdigit() else f"{stem}_"
        name = stem
        number = 2
        while name in self._taken:
            name = f"{stem}_{number}"
            number = number + 1
        self._taken.add(name)
        return name
