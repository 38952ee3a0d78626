"""Runs the elementwise CUDA of fused chains on NumPy memory, for the stand-in of CuPy.

The statements are `const TYPE NAME = VALUE;` and `OUT = VALUE;`, where VALUE is the scalar
expressions' language (framework/fusion/scalars/expression.py) with casts: anything else is an
error.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from ..framework.fusion.scalars.expression import Tree, parse
from .device_graphs import recorded

sys.setrecursionlimit(max(sys.getrecursionlimit(), 20_000))  # sums of many variables nest deeply

_STATEMENT = re.compile(r"(?:const (float|double) )?(\w+) = (.*);")
_TYPES = {"float": np.float32, "double": np.float64}
_RENAMED = {
    "acos": "arccos",
    "acosh": "arccosh",
    "asin": "arcsin",
    "asinh": "arcsinh",
    "atan": "arctan",
    "atan2": "arctan2",
    "atanh": "arctanh",
    "pow": "power",
}
_BINARY = {
    "+": np.add,
    "-": np.subtract,
    "*": np.multiply,
    "/": np.divide,
    "<": np.less,
    ">": np.greater,
    "<=": np.less_equal,
    ">=": np.greater_equal,
    "==": np.equal,
    "!=": np.not_equal,
    "&&": np.logical_and,
    "||": np.logical_or,
}
_OWN = {
    "erf": np.vectorize(math.erf, otypes=[float]),
    "erfc": np.vectorize(math.erfc, otypes=[float]),
    "tgamma": np.vectorize(math.gamma, otypes=[float]),
    "lgamma": np.vectorize(math.lgamma, otypes=[float]),
    "round": lambda x: np.trunc(x + np.copysign(0.5, x)),
    "fma": lambda x, y, z: x * y + z,
}


def make_kernel(
    operand: Callable[[str, Any], Any],
    no_race: Callable[..., None],
    note: Callable[[str], None],
    in_params: str,
    out_params: str,
    operation: str,
    name: str = "kernel",
) -> Callable[..., Any]:
    """What `cupy.ElementwiseKernel` makes: a callable of the inputs and then the outputs."""
    ins = [part.split() for part in in_params.split(", ") if part]
    outs = [part.split() for part in out_params.split(", ")]
    statements = [_read(line) for line in operation.splitlines()]

    def call(*args: Any) -> None:
        if len(args) != len(ins) + len(outs):
            raise TypeError(f"Wrong number of arguments for {name!r}: {len(args)}")
        note(name)
        arrays = [operand(name, arg) for arg in args]
        held: dict[str, Any] = {}
        for (dtype, own), array in zip(ins, arrays[: len(ins)], strict=True):
            held[own] = array.astype(dtype, copy=False)
        targets = {}
        shape = np.broadcast_shapes(*(np.shape(array) for array in arrays))
        for (dtype, own), array in zip(outs, arrays[len(ins) :], strict=True):
            if array.dtype != dtype:
                raise TypeError(f"{name}: {own} is {array.dtype}, want {dtype}")
            if array.shape != shape:
                raise ValueError(f"{name}: {own} is {array.shape}, the loop runs over {shape}")
            targets[own] = array
            no_race(name, array, *(a for a in arrays if a is not array), same=True)
        with np.errstate(all="ignore"):
            for kind, target, tree in statements:
                value = _value(tree, held, _TYPES.get(kind, np.float64))
                if kind:
                    held[target] = np.asarray(value).astype(_TYPES[kind])
                else:
                    targets[target][...] = value

    call.__name__, call.__module__ = name, "cupy"
    return recorded(call)


def _read(line: str) -> tuple[str, str, Tree]:
    match = _STATEMENT.fullmatch(line)
    if match is None:
        raise ValueError(f"no statement of an elementwise kernel: {line}")
    kind, target, text = match.groups()
    text = re.sub(r"\((?:float|double)\)", "", text)
    text = re.sub(r"(?<=[\d.])f\b", "", text)
    return kind or "", target, parse(text)


def _value(tree: Tree, held: dict[str, Any], number: type) -> Any:
    kind, *rest = tree
    if kind == "num":
        return number(rest[0])
    if kind == "var":
        return held[rest[0]]
    if kind == "call":
        function: str = rest[0]
        args = [_value(one, held, number) for one in rest[1:]]
        own = _OWN.get(function) or getattr(np, _RENAMED.get(function, function))
        return own(*args)
    if kind == "unary":
        value = _value(rest[1], held, number)
        return np.logical_not(value) if rest[0] == "!" else -_number(value, number)
    if kind == "binary":
        left, right = (_value(one, held, number) for one in rest[1:])
        if rest[0] in "+-*/":
            left, right = _number(left, number), _number(right, number)
        return _BINARY[rest[0]](left, right)
    condition, then, otherwise = (_value(one, held, number) for one in rest)
    return np.where(condition, then, otherwise)


def _number(value: Any, number: type) -> Any:
    return value.astype(number) if value.dtype.kind == "b" else value
