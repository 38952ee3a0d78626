"""Arrays of types that no net holds, as whole numbers that one does: what rules compute on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ....framework.base.dtypes import DTYPES
from .calls import NotHere
from .graph import Node

_WIDE = np.dtype("int64")
_CASTS = ("Cast", "CastLike")
"""Operators that have a form on arrays of such types."""
_LIKE = {"OneHot": 2, "QuantizeLinear": 2, "Where": 1}
"""Operators whose results have the type of another input than the first."""
_COUNTED = {"ArgMax": 0, "ArgMin": 0, "Shape": 0, "Size": 0, "TopK": 1}
"""Operators whose results are int64 whatever is fed, from this output on."""
_ROUND = ("Add", "Sub", "Mul", "Sum", "Equal")
"""Arithmetic that is the same for all 64-bit numbers, with a sign or without."""


def is_foreign(value: Any) -> bool:
    """Whether a value is an array that no net holds."""
    return isinstance(value, np.ndarray) and value.dtype not in DTYPES


def as_held(
    node: Node, args: Sequence[Any]
) -> tuple[list[Any], Callable[[Sequence[Any]], list[Any]]]:
    """The arguments of a node for a rule, and what gives its results their type again.

    Unsigned numbers become int64; texts become their places in a sorted list, of which "" is the
    first.

    Raises:
        NotHere: of other types, of two, or beyond int64.
    """
    foreign = [arg for arg in args if is_foreign(arg)]
    if not foreign:
        return list(args), list
    if node.op in _CASTS:
        raise NotHere
    kinds = {arg.dtype for arg in foreign}
    dtype = kinds.pop()
    if kinds:
        raise NotHere
    if dtype == object:
        texts, codes = np.unique(
            np.concatenate([[""], *(arg.reshape(-1) for arg in foreign)]).astype(object),
            return_inverse=True,
        )
        ends = np.cumsum([1, *(arg.size for arg in foreign)])
        parts = iter(np.split(codes.reshape(-1), ends)[1:])
        given = [next(parts).reshape(arg.shape) if is_foreign(arg) else arg for arg in args]
        restore: Callable[[np.ndarray], np.ndarray] = texts.__getitem__
    elif dtype.kind == "u":
        if node.op not in _ROUND and any(int(a.max(initial=0)) >> 63 for a in foreign):
            raise NotHere
        given = [arg.astype(_WIDE) if is_foreign(arg) else arg for arg in args]
        restore = lambda array: array.astype(dtype)  # noqa: E731
    else:
        raise NotHere
    like = args[_LIKE.get(node.op, 0)]
    last = _COUNTED.get(node.op, len(node.outputs)) if is_foreign(like) else 0

    def back(arrays: Sequence[Any]) -> list[Any]:
        return [
            np.asarray(restore(one)) if k < last and one is not None and one.dtype == _WIDE else one
            for k, one in enumerate(arrays)
        ]

    return given, back
