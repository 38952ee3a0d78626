"""Scalar expressions rewritten into what array functions do well.

A choice between two values is a masked copy for arrays, several times slower than a product. So
`x < 0 ? 0 : x` becomes a maximum, and `c ? x : 0` a product with the truth value. Operations on
numbers are done here, once. Printers for other systems bring idioms of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from math import frexp, isfinite

import numpy as np

from .expression import FUNCTIONS, Tree, parse, parts, replace_names

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
_KNOWN = FUNCTIONS.keys() | {"maximum", "minimum"}
_EXTRA = (("maximum", 2), ("minimum", 2), ("sign", 1), ("logaddexp", 2))
"""Functions of NumPy that idioms use."""
TRUTH = frozenset(
    "equal not_equal less less_equal greater greater_equal logical_and logical_or logical_not"
    " isfinite isinf isnan signbit".split()
)


@dataclass(frozen=True)
class Idiom:
    """A better computation for expressions of a certain form.

    In `form` the names among `numbers` match numbers, all others match any expression. `holds`
    tells from what the names match whether the idiom applies.
    """

    form: Tree
    instead: Tree
    holds: Callable[[Mapping[str, Tree]], bool] | None = None
    numbers: Collection[str] = ("s", "t")


def idiom(
    form: str,
    instead: str,
    holds: Callable[[Mapping[str, Tree]], bool] | None = None,
    functions: tuple[tuple[str, int], ...] = _EXTRA,
) -> Idiom:
    """An idiom from the texts of its two forms; `functions`: see `parse`."""
    return Idiom(parse(form), parse(instead, functions), holds)


def _slope(holds: Callable[[float], bool]) -> Callable[[Mapping[str, Tree]], bool]:
    return lambda binding: holds(binding["s"][1])


def _is_product(tree: Tree) -> bool:
    """Whether a tree is a product of inputs and numbers: as finite as these are."""
    if tree[0] == "binary":
        return tree[1] == "*" and all(map(_is_product, parts(tree)))
    return tree[0] in ("var", "num") or (tree[0] == "unary" and _is_product(tree[2]))


_IDIOMS = (
    idiom("a < b ? b : a > c ? c : a", "minimum(maximum(a, b), c)"),
    idiom("a > b ? b : a < c ? c : a", "maximum(minimum(a, b), c)"),
    idiom("a != a || a > b ? a : b", "maximum(a, b)"),
    idiom("a != a || a < b ? a : b", "minimum(a, b)"),
    idiom("a < b ? b : a", "maximum(a, b)"),
    idiom("a > b ? b : a", "minimum(a, b)"),
    # With a number on the other side: NaN in `a` gives the number, which is what fmin does.
    idiom("a < s ? a : s", "fmin(a, s)"),
    idiom("a > s ? a : s", "fmax(a, s)"),
    idiom("a > 0 ? 1 : a < 0 ? -1 : a", "sign(a)"),
    idiom("a > b ? 1 : a < b ? -1 : a - b", "sign(a - b)"),
    idiom("a > 0 ? b : a < 0 ? -b : a * b", "b * sign(a)"),
    # A slope below 0: the larger or the smaller of two lines. 0 * infinity is no number.
    idiom("a > 0 ? a : s * a", "maximum(a, s * minimum(a, 0))", _slope(lambda s: s == 0)),
    idiom("a > 0 ? a : s * a", "maximum(a, s * a)", _slope(lambda s: 0 < s <= 1)),
    idiom("a > 0 ? a : s * a", "minimum(a, s * a)", _slope(lambda s: s > 1)),
    idiom("a > 0 ? b : s * b", "b * ((a > 0) * (1 - s) + s)"),
    idiom("a > 0 ? a : s * expm1(a)", "maximum(a, 0) + s * expm1(minimum(a, 0))"),
    idiom("a > 0 ? b : b * (a + s)", "b * (minimum(a, 0) + s + (a > 0) * (1 - s))"),
    idiom(
        "a == b ? a + 0.6931471805599453 : (a > b ? a : b) + log1p(exp(-fabs(a - b)))",
        "logaddexp(a, b)",
    ),
    # Only where `b` is finite: 0 times an infinity that the condition rules out is NaN.
    idiom("a ? b : 0", "b * a", lambda binding: _is_product(binding["b"])),
)


def array_tree(tree: Tree) -> Tree:
    """The tree of an expression as array functions compute it best."""
    return folded(rewritten(tree, _IDIOMS))


def simplified(tree: Tree, idioms: Sequence[Idiom]) -> Tree:
    """The tree with idioms and with numbers done, whichever of these the other one uncovers."""
    return folded(rewritten(folded(rewritten(tree, idioms)), idioms))


def _match(form: Tree, tree: Tree, numbers: Collection[str], binding: dict[str, Tree]) -> bool:
    """Whether a tree has a form; `binding` receives the matches of its names."""
    if form[0] == "var":
        if form[1] in numbers and tree[0] != "num":
            return False
        return binding.setdefault(form[1], tree) == tree
    if form[0] != tree[0] or len(form) != len(tree):
        return False
    pairs = zip(form[1:], tree[1:], strict=True)
    return all(_match(f, t, numbers, binding) if isinstance(f, tuple) else f == t for f, t in pairs)


def rewritten(tree: Tree, idioms: Sequence[Idiom]) -> Tree:
    """The tree with idioms, the first that fits, in place of what they do."""
    for one in idioms:
        binding: dict[str, Tree] = {}
        if _match(one.form, tree, one.numbers, binding) and (
            one.holds is None or one.holds(binding)
        ):
            return rewritten(replace_names(one.instead, binding), idioms)
    return tuple(rewritten(part, idioms) if isinstance(part, tuple) else part for part in tree)


def folded(tree: Tree) -> Tree:
    """The tree with operations on numbers done, and those without effect left out."""
    if tree[0] in ("num", "var"):
        return tree
    tree = tuple(folded(part) if isinstance(part, tuple) else part for part in tree)
    known = tree[0] != "call" or (tree[1] in _KNOWN and tree[1] not in NOT_IN_NUMPY)
    if all(part[0] == "num" for part in parts(tree)) and known:
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
        return folded(("unary", "-", ("binary", sign, _unsigned(left), right)))
    if sign in "*/" and _is_negative(right):
        return folded(("unary", "-", ("binary", sign, left, _unsigned(right))))
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
    # Infinity and NaN are meant where somebody writes 1 / 0.
    with np.errstate(all="ignore"):
        if tree[0] == "choose":
            return float(args[1] if args[0] else args[2])
        if tree[0] == "unary":
            return float({"-": -args[0], "+": args[0], "!": not args[0]}[tree[1]])
        name = BINARY[tree[1]] if tree[0] == "binary" else array_function(tree[1])
        return float(getattr(np, name)(*args))


def _is_power_of_two(value: float) -> bool:
    # Within bounds, so that 1 / value is exact and no denormal.
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
