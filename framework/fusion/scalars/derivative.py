"""Derivatives of scalar expressions, as expressions: an operator gives its value alone.

    gradients("1 / (1 + exp(-x))", ["x"])   # {"x_grad": "out_grad * out * (1 - out)"}

A derivative reads the value `out` instead of inputs where it then reads fewer of them: what it
reads decides which arrays training keeps. A quotient's derivative is written by the reciprocal of
the divisor, so that no infinite exponential meets its own inverse.

The derivative of a choice is that of the branch taken, so an expression decides what holds where
two branches meet; NaN takes whichever branch a comparison written the other way round gives.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from math import frexp, log, pi, sqrt

from .expression import (
    ExpressionError,
    Tree,
    fold,
    names,
    nodes,
    of_bounded_height,
    parse,
    parts,
    replace_names,
    text_of,
    with_parts,
)

_ZERO, _ONE = ("num", 0.0), ("num", 1.0)
_OPPOSITES = {"<": ">=", ">=": "<", ">": "<=", "<=": ">", "==": "!=", "!=": "=="}

_SLOPES: dict[str, tuple[str, ...]] = {
    **dict.fromkeys("ceil floor isfinite isinf isnan rint round signbit trunc".split(), ("0",)),
    # Products of sums where the books have 1 - u * u: that difference cancels near 1.
    "acos": ("-1 / sqrt((1 - u) * (1 + u))",),
    "acosh": ("1 / sqrt((u - 1) * (u + 1))",),
    "asin": ("1 / sqrt((1 - u) * (1 + u))",),
    "asinh": ("1 / sqrt(u * u + 1)",),
    "atan": ("1 / (1 + u * u)",),
    "atan2": ("w / (u * u + w * w)", "-u / (u * u + w * w)"),
    "atanh": ("1 / ((1 - u) * (1 + u))",),
    "cbrt": ("1 / (3 * v * v)",),
    "cos": ("-sin(u)",),
    "cosh": ("sinh(u)",),
    "erf": (f"exp(-(u * u)) * {2 / sqrt(pi)}",),
    "erfc": (f"-exp(-(u * u)) * {2 / sqrt(pi)}",),
    "exp": ("v",),
    "exp2": (f"v * {log(2)}",),
    "expm1": ("v + 1",),
    "fabs": ("u > 0 ? 1 : u < 0 ? -1 : u",),
    # A tie belongs to the first argument alone, so that the two slopes add up to 1.
    "fmax": ("u >= w ? 1 : 0", "u < w ? 1 : 0"),
    "fmin": ("u <= w ? 1 : 0", "u > w ? 1 : 0"),
    "fmod": ("1", "-trunc(u / w)"),
    "hypot": ("u / v", "w / v"),
    "log": ("1 / u",),
    "log10": (f"1 / (u * {log(10)})",),
    "log1p": ("1 / (1 + u)",),
    "log2": (f"1 / (u * {log(2)})",),
    "pow": ("w * pow(u, w - 1)", "v * log(u)"),
    "sin": ("cos(u)",),
    "sinh": ("cosh(u)",),
    "sqrt": ("0.5 / v",),
    "tan": ("1 + v * v",),
    "tanh": ("1 - v * v",),
}
"""Function -> its derivative by each argument, in terms of these (u, w) and of its value v."""


def gradients(text: str, wrt: Sequence[str], out: str = "out") -> dict[str, str]:
    """Expressions of the gradients `NAME_grad` of inputs, from that of `out` and `OUT_grad`.

    They stand in the opposite order of `wrt`: the first one may share memory with `OUT_grad`.

    Raises:
        ExpressionError: the expression calls a function without a derivative here.
    """
    return {f"{name}_grad": _gradient(text, name, out) for name in reversed(wrt)}


@functools.cache
def _gradient(text: str, name: str, out: str) -> str:
    tree = parse(text)
    arriving = ("var", f"{out}_grad")
    by_inputs, by_value = (
        _product([arriving, derivative(tree, name, value)]) for value in ("", out)
    )
    # Strictly fewer: with the same inputs training would keep `out` on top of them.
    saves = names(by_value) - {out} < names(by_inputs)
    return text_of(of_bounded_height(by_value if saves else by_inputs))


def derivative(tree: Tree, name: str, value: str = "") -> Tree:
    """The derivative of an expression by one of its variables, simplified.

    Args:
        value: a variable that stands for the value of the whole expression; "" = none does.

    Raises:
        ExpressionError: the expression calls a function without a derivative here.
    """
    slope, reciprocals = _unwritten(tree, name)
    if value:
        slope = _named(slope, tree, value)
        reciprocals = {r: _named(one, tree, value) for r, one in reciprocals.items()}
    return _written(slope, reciprocals)


@functools.lru_cache(maxsize=64)
def _unwritten(tree: Tree, name: str) -> tuple[Tree, dict[str, Tree]]:
    """A derivative with variables in place of reciprocals, and what these stand for."""
    reciprocals: dict[str, Tree] = {}

    def rule(one: Tree, below: Sequence[Tree]) -> Tree:
        kind = one[0]
        if kind in ("num", "var"):
            return _ONE if one == ("var", name) else _ZERO
        # Before the rules, so that a function without a derivative is refused only where the
        # variable is among its arguments.
        if all(part == _ZERO for part in below):
            return _ZERO
        if kind == "sum":
            return _sum(below)
        if kind == "choose":
            return _choose(one[1], below[1], below[2])
        if kind == "unary":
            return _product([("num", {"-": -1.0, "+": 1.0, "!": 0.0}[one[1]]), below[0]])
        if kind == "call":
            return _of_call(one, below)
        _, sign, left, right = one
        if sign in "+-":
            return _sum([below[0], _product([below[1], ("num", 1.0 if sign == "+" else -1.0)])])
        if sign == "*":
            return _sum([_product([below[0], right]), _product([left, below[1]])])
        if sign == "/":
            return _of_quotient(one, below, reciprocals)
        return _ZERO  # of a truth value

    return fold(tree, rule), reciprocals


def _of_call(call: Tree, below: Sequence[Tree]) -> Tree:
    """The chain rule: the slopes of a function times the derivatives of its arguments."""
    slopes = ("w", "u", "1") if call[1] == "fma" else _SLOPES.get(call[1])
    if slopes is None:
        raise ExpressionError(f"the derivative of {call[1]} is not known; write the gradient")
    known = dict(zip(("u", "w"), call[2:4], strict=False), v=call)
    return _sum(
        _product([replace_names(parse(slope), known), part])
        for slope, part in zip(slopes, below, strict=True)
        if part != _ZERO
    )


def _of_quotient(quotient: Tree, below: Sequence[Tree], reciprocals: dict[str, Tree]) -> Tree:
    """(a / b)' = a' r + (a / b) (r' / r), where r = 1 / b."""
    _, _, left, right = quotient
    if below[1] == _ZERO:
        return _product([below[0]], [right])
    r = ("var", f"1/{len(reciprocals)}")
    reciprocals[r[1]] = ("binary", "/", _ONE, right)
    relative = _relative(right, below[1], r)
    if below[0] == _ZERO:
        whole = r if left == _ONE else ("var", f"{r[1]}:whole")
        if whole != r:
            reciprocals[whole[1]] = quotient
        return _product([whole, relative])
    return _product([r, _sum([below[0], _product([left, relative])])])


def _relative(divisor: Tree, slope: Tree, r: Tree) -> Tree:
    """r' / r of r = 1 / divisor, in terms of r."""
    powers = [part for part in parts(divisor) if part[:2] == ("call", "exp")]
    if divisor[:2] == ("binary", "+") and len(powers) == 1:
        # exp(u) = 1 / r - c, so exp(u) u' / (c + exp(u)) is (1 - c r) u', also where exp is inf
        other = next(part for part in parts(divisor) if part != powers[0])
        if not any(node == powers[0] for node in nodes(other)):
            coefficient, factors, divisors = _factors([slope], [])
            if powers[0] in factors and not divisors:
                factors.remove(powers[0])
                share = _sum([_ONE, _product([("num", -1.0), other, r])])
                return _product([share, ("num", -coefficient), *factors])

    def by_reciprocal(one: Tree, below: Sequence[Tree]) -> Tree:
        if one[:2] == ("binary", "/") and one[3] == divisor:
            return _product([below[0], r])
        return with_parts(one, below)

    return _product([("num", -1.0), r, fold(slope, by_reciprocal)])


def _named(tree: Tree, known: Tree, name: str) -> Tree:
    """The tree with a variable in place of every `known` in it."""

    def named(one: Tree, below: Sequence[Tree]) -> Tree:
        return ("var", name) if one == known else with_parts(one, below)

    return fold(tree, named)


def _written(tree: Tree, reciprocals: dict[str, Tree]) -> Tree:
    """The tree with reciprocals written out: as a division where it is the only one by this."""
    for r, one in reversed(reciprocals.items()):
        if one[0] == "var":
            tree = replace_names(tree, {**_themselves(tree), r: one})
            continue
        count = sum(node == ("var", r) for node in nodes(tree))
        if count == 1:
            tree = _divided(tree, ("var", r), one)
        elif count:
            tree = replace_names(tree, {**_themselves(tree), r: one})
    return tree


def _themselves(tree: Tree) -> dict[str, Tree]:
    return {name: ("var", name) for name in names(tree)}


def _divided(tree: Tree, r: Tree, quotient: Tree) -> Tree:
    """The tree where the factor r is part of a division."""

    def divided(one: Tree, below: Sequence[Tree]) -> Tree:
        one = with_parts(one, below)
        if one == r:
            return quotient
        return _product([one]) if one[0] in ("unary", "binary") and one[1] in "*/-" else one

    return fold(tree, divided)


# -- trees in their simplest form ----------------------------------------------------------------


def _factors(
    factors: Iterable[Tree], divisors: Iterable[Tree]
) -> tuple[float, list[Tree], list[Tree]]:
    """A product without products in it: its number, its factors, and what it is divided by."""
    number = 1.0
    above = list[Tree]()
    below = list[Tree]()
    waiting = [(one, 1) for one in factors] + [(one, -1) for one in divisors]
    waiting.reverse()
    while waiting:
        one, power = waiting.pop()
        if one[0] == "num" and (power == 1 or abs(frexp(one[1])[0]) == 0.5):  # exact
            number *= one[1] ** power
        elif one[:2] in (("unary", "-"), ("unary", "+")):
            number = -number if one[1] == "-" else number
            waiting.append((one[2], power))
        elif one[:2] in (("binary", "*"), ("binary", "/")):
            waiting.append((one[3], power if one[1] == "*" else -power))
            waiting.append((one[2], power))
        else:
            (above if power == 1 else below).append(one)
    return number, above, below


def _product(factors: Iterable[Tree], divisors: Iterable[Tree] = ()) -> Tree:
    """A product, divided: zeros, ones and numbers done, the sign at the first factor.

    What is a variable or a number moves into the branches of a choice.
    """
    number, above, below = _factors(factors, divisors)
    choices = [one for one in above if one[0] == "choose"]
    if not choices or not number:
        return _fraction(number, above, below)
    chosen = choices[-1]
    others = [one for one in above if one is not chosen]
    plain = not below and all(one[0] == "var" for one in others)
    if not plain and any(part[0] != "num" for part in chosen[2:]):
        return _fraction(number, above, below)

    def multiplied(one: Tree, branches: Sequence[Tree]) -> Tree:
        if one[0] == "choose":
            return _choose(one[1], *branches[1:])
        own, inner, outer = _factors([("num", number), *others, one], below)
        return _fraction(own, inner, outer)

    return fold(chosen, multiplied)


def _fraction(number: float, above: Sequence[Tree], below: Sequence[Tree]) -> Tree:
    """The tree of a product from its number, its factors, and what it is divided by."""
    if number == 0:
        return _ZERO
    above = list(above)
    if abs(number) != 1 or not above:
        above.append(("num", abs(number)))
    if number < 0:
        above[0] = ("num", -above[0][1]) if above[0][0] == "num" else ("unary", "-", above[0])
    numerator = functools.reduce(_times, above)
    return ("binary", "/", numerator, functools.reduce(_times, below)) if below else numerator


def _times(left: Tree, right: Tree) -> Tree:
    return ("binary", "*", left, right)


def _sum(trees: Iterable[Tree]) -> Tree:
    """A sum: equal terms together, those with a plus before those with a minus."""
    trees = list(trees)
    if len(trees) > 1 and all(one == trees[0] for one in trees):
        return _product([("num", float(len(trees))), trees[0]])
    terms: dict[Tree, float] = {}
    waiting = [(one, 1.0) for one in reversed(trees)]
    while waiting:
        one, scale = waiting.pop()
        if one[:2] in (("binary", "+"), ("binary", "-")):
            waiting.append((one[3], scale if one[1] == "+" else -scale))
            waiting.append((one[2], scale))
            continue
        number, above, below = _factors([one], [])
        key = _product(above or [_ONE], below)
        terms[key] = terms.get(key, 0.0) + scale * number
    kept = sorted(((n, one) for one, n in terms.items() if n), key=lambda term: term[0] < 0)
    if not kept:
        return _ZERO
    (number, first), *others = kept
    total = _product([("num", number), first])
    for number, one in others:
        sign = "+" if number > 0 else "-"
        total = ("binary", sign, total, _product([("num", abs(number)), one]))
    return total


def _choose(condition: Tree, then: Tree, otherwise: Tree) -> Tree:
    """A choice; where one branch is zero it is the second, which array functions do best."""
    if then == otherwise:
        return then
    if then == _ZERO:
        condition, then, otherwise = _opposite(condition), otherwise, then
    if otherwise == _ZERO and then[0] == "choose" and then[3] == _ZERO:
        return ("choose", ("binary", "&&", condition, then[1]), then[2], _ZERO)
    return ("choose", condition, then, otherwise)


def _opposite(condition: Tree) -> Tree:
    if condition[0] == "binary" and condition[1] in _OPPOSITES:
        return ("binary", _OPPOSITES[condition[1]], *condition[2:])
    return ("unary", "!", condition)
