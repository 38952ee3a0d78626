"""Powers by numbers that products and roots give: `pow` takes twenty times as long, and floats."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

_ROOTS: Final = {0.5: "sqrt", -0.5: "rsqrt", -1: "reciprocal"}
_MOST: Final = 4  # products of floats are rounded one by one, pow once


def raised(add: Callable[..., Any], x: Any, exponent: float, is_float: bool) -> Any:
    """x ** exponent, or None where neither products nor roots give it.

    Whole powers of integers, from 0 on, are always products.

    Args:
        add: adds an operator of a type with inputs and attributes, and gives its output.
    """
    if float(exponent).is_integer() and 0 <= exponent and (exponent <= _MOST or not is_float):
        return _product(add, x, int(exponent))
    if not is_float:
        return None
    if exponent == -2:
        return add("reciprocal", add("square", x))
    return add(_ROOTS[exponent], x) if exponent in _ROOTS else None


def _product(add: Callable[..., Any], x: Any, count: int) -> Any:
    """The product of `count` times x, by squaring."""
    if count == 0:
        return add("fill_like", x, value=1.0)
    result = None
    square = x
    while True:
        if count & 1:
            result = square if result is None else add("mul", result, square)
        count >>= 1
        if not count:
            return result
        square = add("square", square)
