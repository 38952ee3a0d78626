"""Scalar expressions rewritten into what array functions do well.

A choice between two values is a masked copy for arrays, several times slower than a product. So
`x < 0 ? 0 : x` becomes a maximum, and `c ? x : 0` a product with the truth value. Operations on
numbers are done here, once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import frexp, isfinite

import numpy as np

from .expression import Tree, parse, parts, replace_names

BINARY = {
    "+": "add",
    "-": "subtract",
    "*": "multiply",
    "/": "divide",
    "==": "equal",
    "!=": "not_equal",
    "<": "less",
    "<=": "less_equal",
    ">": "greater",
    ">=": "greater_equal",
    "&&": "logical_and",
    "||": "logical_or",
}
_RENAMED = {
    "acos": "arccos",
    "acosh": "arccosh",
    "asin": "arcsin",
    "asinh": "arcsinh",
    "atan": "arctan",
    "atan2": "arctan2",
    "atanh": "arctanh",
    "fabs": "absolute",
    "pow": "power",
}
NOT_IN_NUMPY = frozenset("erf erfc lgamma round tgamma".split())
_EXTRA = (("maximum", 2), ("minimum", 2), ("sign", 1), ("logaddexp", 2))
"""Functions of NumPy that idioms use."""
TRUTH = frozenset(
    "equal not_equal less less_equal greater greater_equal logical_and logical_or logical_not"
    " isfinite isinf isnan signbit".split()
)


@dataclass(frozen=True)
class _Idiom:
    """A faster computation for expressions of a certain form.

    In `form` the names s and t match numbers, all others match any expression. `holds` tells
    from the number s whether the idiom applies.
    """

    form: Tree
    instead: Tree
    holds: Callable[[float], bool] | None = None


def _idiom(form: str, instead: str, holds: Callable[[float], bool] | None = None) -> _Idiom:
    return _Idiom(parse(form), parse(instead, _EXTRA), holds)


_IDIOMS = (
    _idiom("a < b ? b : a > c ? c : a", "minimum(maximum(a, b), c)"),
    _idiom("a > b ? b : a < c ? c : a", "maximum(minimum(a, b), c)"),
    _idiom("a != a || a > b ? a : b", "maximum(a, b)"),
    _idiom("a != a || a < b ? a : b", "minimum(a, b)"),
    _idiom("a < b ? b : a", "maximum(a, b)"),
    _idiom("a > b ? b : a", "minimum(a, b)"),
    _idiom("a < s ? a : s", "fmin(a, s)"),
    _idiom("a > s ? a : s", "fmax(a, s)"),
    _idiom("a > 0 ? 1 : a < 0 ? -1 : a", "sign(a)"),
    _idiom("a > b ? 1 : a < b ? -1 : a - b", "sign(a - b)"),
    _idiom("a > 0 ? b : a < 0 ? -b : a * b", "b * sign(a)"),
    # A slope below 0: the larger or the smaller of two lines. 0 * infinity is no number.
    _idiom("a > 0 ? a : s * a", "maximum(a, s * minimum(a, 0))", lambda s: s == 0),
    _idiom("a > 0 ? a : s * a", "maximum(a, s * a)", lambda s: 0 < s <= 1),
    _idiom("a > 0 ? a : s * a", "minimum(a, s * a)", lambda s: s > 1),
    _idiom("a > 0 ? b : s * b", "b * ((a > 0) * (1 - s) + s)"),
    _idiom("a > 0 ? a : s * expm1(a)", "maximum(a, 0) + s * expm1(minimum(a, 0))"),
    _idiom("a > 0 ? b : b * (a + s)", "b * (minimum(a, 0) + s + (a > 0) * (1 - s))"),
    _idiom(
        "a == b ? a + 0.6931471805599453 : (a > b ? a : b) + log1p(exp(-fabs(a - b)))",
        "logaddexp(a, b)",
    ),
)


def array_tree(tree: Tree) -> Tree:
    """The tree of an expression as array functions compute it best."""
    return _folded(_rewritten(tree))


def _match(form: Tree, tree: Tree, found: dict[str, Tree]) -> bool:
    """Whether a tree has a form; `found` receives the matches of its names."""
    if form[0] == "var":
        if form[1] in "st" and tree[0] != "num":
            return False
        return found.setdefault(form[1], tree) == tree
    if form[0] != tree[0] or len(form) != len(tree):
        return False
    pairs = zip(form[1:], tree[1:], strict=True)
    return all(_match(f, t, found) if isinstance(f, tuple) else f == t for f, t in pairs)


def _rewritten(tree: Tree) -> Tree:
    """The tree with idioms in place of what they do."""
    if tree[0] == "choose":
        for idiom in _IDIOMS:
            found: dict[str, Tree] = {}
            if _match(idiom.form, tree, found):
                if idiom.holds is None or idiom.holds(found["s"][1]):
                    return _rewritten(replace_names(idiom.instead, found))
        _, condition, then, otherwise = tree
        if otherwise == ("num", 0.0) and _is_product(then):
            return _rewritten(("binary", "*", then, condition))
    return tuple(_rewritten(part) if isinstance(part, tuple) else part for part in tree)


def _is_product(tree: Tree) -> bool:
    """Whether a tree is a product of inputs and numbers: as finite as these are."""
    if tree[0] == "binary":
        return tree[1] == "*" and all(map(_is_product, parts(tree)))
    return tree[0] in ("var", "num") or (tree[0] == "unary" and _is_product(tree[2]))


def _folded(tree: Tree) -> Tree:
    """The tree with operations on numbers done, and those without effect left out."""
    if tree[0] in ("num", "var"):
        return tree
    tree = tuple(_folded(part) if isinstance(part, tuple) else part for part in tree)
    own = tree[0] == "call" and tree[1] in NOT_IN_NUMPY
    if all(part[0] == "num" for part in parts(tree)) and not own:
        return ("num", _value(tree))
    if tree[0] == "unary" and (tree[1] == "+" or (tree[1] == "-" and _is_negative(tree[2]))):
        return tree[2] if tree[1] == "+" else tree[2][2]
    if tree[0] == "choose" and tree[1][0] == "num":
        return tree[2] if tree[1][1] else tree[3]
    if tree[0] != "binary":
        return tree
    _, sign, left, right = tree
    if sign == "/" and right[0] == "num" and _is_power_of_two(right[1]):
        sign, right = "*", ("num", 1 / right[1])  # as exact, and faster
    if sign == "*" and left[0] == "num":
        left, right = right, left
    if sign == "*" and right == ("num", -1.0):
        return ("unary", "-", left)
    # Signs move outwards, which is exact: to a number, a sum, or the end of a product.
    if sign in "*/" and right[0] == "num" and _is_negative(left):
        return ("binary", sign, _unsigned(left), ("num", -right[1]))
    if sign in "*/" and _is_negative(left):
        return _folded(("unary", "-", ("binary", sign, _unsigned(left), right)))
    if sign in "*/" and _is_negative(right):
        return _folded(("unary", "-", ("binary", sign, left, _unsigned(right))))
    if sign in "+-" and _is_negative(right):
        return ("binary", "-" if sign == "+" else "+", left, _unsigned(right))
    if sign == "*" and right == ("num", 0.0) and is_truth(left):
        return right
    if sign == "+" and left == ("num", 0.0):
        return right
    if (sign in "+-" and right == ("num", 0.0)) or (sign in "*/" and right == ("num", 1.0)):
        return left
    return ("binary", sign, left, right)


def _is_negative(tree: Tree) -> bool:
    return tree[:2] == ("unary", "-")


def _unsigned(tree: Tree) -> Tree:
    """The tree below a minus sign."""
    return tree[2]


def _value(tree: Tree) -> float:
    """The number that a tree of numbers is."""
    args = [np.float64(part[1]) for part in parts(tree)]
    with np.errstate(all="ignore"):
        if tree[0] == "choose":
            return float(args[1] if args[0] else args[2])
        if tree[0] == "unary":
            return float({"-": -args[0], "+": args[0], "!": not args[0]}[tree[1]])
        name = BINARY[tree[1]] if tree[0] == "binary" else array_function(tree[1])
        return float(getattr(np, name)(*args))


def _is_power_of_two(value: float) -> bool:
    return isfinite(value) and abs(frexp(value)[0]) == 0.5 and 2.0**-100 < abs(value) < 2.0**100


def is_truth(tree: Tree) -> bool:
    """Whether a tree's value is a truth value."""
    if tree[0] == "binary":
        return BINARY[tree[1]] in TRUTH
    return (tree[0] == "unary" and tree[1] == "!") or (tree[0] == "call" and tree[1] in TRUTH)


def array_function(name: str) -> str:
    """The array function that computes a function of expressions.

    Raises:
        ExpressionError: there is none.
    """
    return _RENAMED.get(name, name)
