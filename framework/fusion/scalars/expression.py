"""Scalar expressions of elementwise operators: parsed once, then printed for C or CUDA.

The grammar is C's for one value: `?:`, `||`, `&&`, comparisons, `+ - * /`, unary `-` and `!`, calls
of the functions below, names and numbers. Every number is a number of the element type, so `1 / 2`
is a half; `sum(x)` adds up all variables of the slot x. A tree is made of nested tuples: ("num",
value), ("var", name), ("call", function, then its arguments), ("unary", sign, tree), ("binary",
sign, left, right), ("choose", condition, then, otherwise), and ("sum", then its terms), which is
added up from left to right: however many terms there are, it is one level of the tree.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NoReturn, TypeVar

from ...base.errors import OpscopeError

Tree = tuple[Any, ...]
_Value = TypeVar("_Value")

FUNCTIONS = {
    name: count
    for count, names in {
        1: "acos acosh asin asinh atan atanh cbrt ceil cos cosh erf erfc exp exp2 expm1 fabs floor"
        " isfinite isinf isnan lgamma log log10 log1p log2 rint round signbit sin sinh sqrt tan"
        " tanh tgamma trunc",
        2: "atan2 copysign fmax fmin fmod hypot pow",
        3: "fma",
    }.items()
    for name in names.split()
}
"""Functions an expression may call, and how many arguments each takes."""

_SUM = "sum"
_CHEAP = frozenset("ceil copysign fabs floor fma fmax fmin rint signbit sqrt trunc".split())
_TOKEN = re.compile(
    r"\s*(?:(?P<num>(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?)|(?P<name>[A-Za-z_]\w*)"
    r"|(?P<sign>\|\||&&|[=!<>]=|[-+*/<>!?:(),]))"
)
_LEVELS = (("||",), ("&&",), ("==", "!="), ("<", ">", "<=", ">="), ("+", "-"), ("*", "/"))
_STRENGTHS = {sign: level for level, signs in enumerate(_LEVELS) for sign in signs}
_DEEPEST = 40  # brackets and choices inside one another: at most nine Python calls each
_HIGHEST = 100  # levels of a tree: what rewrites trees calls itself from level to level
_CALL_COST = 16


class ExpressionError(OpscopeError):
    """A scalar expression that does not follow the grammar."""


@functools.cache
def parse(text: str, extra: tuple[tuple[str, int], ...] = ()) -> Tree:
    """The tree of an expression, which may also call the `extra` functions (name, arguments).

    Raises:
        ExpressionError: it does not follow the grammar, or is nested too deeply.
    """
    reader = _Reader(text, {**FUNCTIONS, **dict(extra)})
    tree = reader.choose()
    if reader.kind != "end":
        reader.fail("nothing more")
    return of_bounded_height(tree)


def of_bounded_height(tree: Tree) -> Tree:
    """The tree itself.

    Raises:
        ExpressionError: too many operations inside one another.
    """
    height = fold(tree, lambda _, below: 1 + max(below, default=0))
    if height > _HIGHEST:
        raise ExpressionError(
            f"a scalar expression of {height} operations inside one another; {_HIGHEST} is the most"
        )
    return tree


class _Reader:
    """Recursive descent over the tokens of one expression."""

    def __init__(self, text: str, functions: Mapping[str, int]) -> None:
        self.text = text
        self.functions = functions
        self.at = self.next_at = self.depth = 0
        self.kind = self.token = ""
        self.step()

    def step(self) -> None:
        self.at = self.next_at
        rest = self.text[self.at :]
        if not rest.strip():
            self.kind = "end"
            self.token = ""
            return
        match = _TOKEN.match(rest)
        if match is None:
            raise self.error("a number, a name or a sign")
        self.kind = str(match.lastgroup)
        self.token = match[self.kind]
        self.next_at += match.end()

    def fail(self, wanted: str) -> NoReturn:
        raise self.error(wanted)

    def error(self, wanted: str) -> ExpressionError:
        marked = f"{self.text[: self.at]} >>> {self.text[self.at :]}"
        return ExpressionError(f"scalar expression, want {wanted}: {marked}")

    def take(self, *tokens: str) -> str:
        """The token at hand if it is a sign among `tokens`, which is then passed."""
        token = self.token
        if self.kind == "sign" and token in tokens:
            self.step()
            return token
        return ""

    def expect(self, token: str) -> None:
        if not self.take(token):
            self.fail(repr(token))

    def choose(self) -> Tree:
        self.depth += 1
        if self.depth > _DEEPEST:
            self.fail(f"at most {_DEEPEST} levels of nesting")
        tree = self.binary(0)
        if self.take("?"):
            then = self.choose()
            self.expect(":")
            tree = ("choose", tree, then, self.choose())
        self.depth -= 1
        return tree

    def binary(self, weakest: int) -> Tree:
        """Operations of signs that bind at least as strongly as those of this level."""
        tree = self.unary()
        while self.kind == "sign" and _STRENGTHS.get(self.token, -1) >= weakest:
            sign = self.token
            self.step()
            tree = ("binary", sign, tree, self.binary(_STRENGTHS[sign] + 1))
        return tree

    def unary(self) -> Tree:
        # A loop, as a row of signs may be longer than Python's stack is deep.
        signs = []
        while sign := self.take("-", "+", "!"):
            signs.append(sign)
        tree = self.primary()
        for sign in reversed(signs):
            tree = ("unary", sign, tree)
        return tree

    def primary(self) -> Tree:
        if self.take("("):
            tree = self.choose()
            self.expect(")")
            return tree
        kind, token = self.kind, self.token
        if kind == "num":
            self.step()
            return ("num", float(token))
        if kind != "name":
            self.fail("a value")
        if token in ("INFINITY", "NAN"):
            self.step()
            return ("num", float("inf" if token == "INFINITY" else "nan"))
        name_at = self.at
        self.step()
        if not self.take("("):
            return ("var", token)
        args = [self.choose()]
        while self.take(","):
            args.append(self.choose())
        self.expect(")")
        # No function of the table: how many terms it has is known only with an operator at hand.
        if token == _SUM and len(args) == 1 and args[0][0] == "var":
            return ("call", token, *args)
        if self.functions.get(token) != len(args):
            self.at = name_at
            self.fail("a known function with as many arguments as it takes")
        return ("call", token, *args)


def parts(tree: Tree) -> list[Tree]:
    """The trees directly below."""
    return [item for item in tree[1:] if isinstance(item, tuple)]


def nodes(tree: Tree) -> Iterator[Tree]:
    """The tree and everything below it."""
    waiting = [tree]
    while waiting:
        one = waiting.pop()
        yield one
        waiting += reversed(parts(one))


def fold(tree: Tree, value: Callable[[Tree, Sequence[_Value]], _Value]) -> _Value:
    """What `value` makes of a tree and of the values of its parts, which come first."""
    order = []
    waiting = [tree]
    while waiting:
        one = waiting.pop()
        order.append(one)
        waiting += parts(one)
    folded: list[_Value] = []  # of trees that are not yet part of another
    for one in reversed(order):
        first = len(folded) - len(parts(one))
        folded[first:] = [value(one, folded[first:])]
    return folded[0]


def with_parts(tree: Tree, new: Sequence[Tree]) -> Tree:
    """The tree with others directly below it."""
    rest = iter(new)
    return tuple(next(rest) if isinstance(item, tuple) else item for item in tree)


@functools.lru_cache(maxsize=1024)
def names(tree: Tree) -> frozenset[str]:
    """Variables that an expression mentions."""
    return frozenset(node[1] for node in nodes(tree) if node[0] == "var")


def replace_names(tree: Tree, by: Mapping[str, Tree]) -> Tree:
    """The tree with other trees in place of its variables."""

    def replaced(one: Tree, below: Sequence[Tree]) -> Tree:
        return by[one[1]] if one[0] == "var" else with_parts(one, below)

    return fold(tree, replaced)


def text_of(tree: Tree) -> str:
    """The text of a tree without `sum` terms, with no brackets but those it needs."""
    return fold(tree, _text_and_strength)[0]


def _text_and_strength(tree: Tree, below: Sequence[tuple[str, int]]) -> tuple[str, int]:
    """The text of a tree, and how strongly its outermost sign binds."""

    def within(number: int, strength: int) -> str:
        text, own = below[number]
        return text if own >= strength else f"({text})"

    kind = tree[0]
    primary = len(_LEVELS) + 1
    if kind == "num":
        # A negative number binds like the unary minus that it is read back as.
        return _number_text(tree[1]), primary if math.copysign(1, tree[1]) > 0 else primary - 1
    if kind == "var":
        return tree[1], primary
    if kind == "call":
        return f"{tree[1]}({', '.join(text for text, _ in below)})", primary
    if kind == "unary":
        return f"{tree[1]}{within(0, primary)}", primary - 1
    if kind == "binary":
        own = _STRENGTHS[tree[1]]
        # Signs of one level group from the left: a - (b - c) keeps its brackets.
        return f"{within(0, own)} {tree[1]} {within(1, own + 1)}", own
    return f"{within(0, 0)} ? {within(1, 0)} : {within(2, -1)}", -1


def _number_text(value: float) -> str:
    if not math.isfinite(value):
        return "NAN" if math.isnan(value) else "INFINITY" if value > 0 else "-INFINITY"
    whole = value.is_integer() and abs(value) < 1e6
    # As an integer, minus zero would lose its sign.
    return repr(int(value)) if whole and (value or math.copysign(1, value) > 0) else repr(value)


def part_name(slot: str, number: int) -> str:
    """The name in a tree of one of several variables of a slot."""
    return f"{slot}[{number}]"


def written_out(tree: Tree, counts: Mapping[str, int]) -> Tree:
    """The tree with the terms of every `sum(x)`, for so many variables of each slot."""

    def written(one: Tree, below: Sequence[Tree]) -> Tree:
        if one[:2] != ("call", _SUM):
            return with_parts(one, below)
        slot = one[2][1]
        terms = [("var", part_name(slot, i)) for i in range(counts.get(slot, 1))]
        return terms[0] if len(terms) == 1 else ("sum", *terms)

    return fold(tree, written)


def cost(tree: Tree) -> int:
    """Rough work of one element: operations, transcendental functions counted several times."""
    total = 0
    for node in nodes(tree):
        if node[0] == "call":
            total += 1 if node[1] in _CHEAP else _CALL_COST
        elif node[0] == "sum":
            total += len(node) - 2
        elif node[0] not in ("num", "var"):
            total += 1
    return total
