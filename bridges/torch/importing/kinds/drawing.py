"""Numbers drawn at random: in every run, as the program says, in training and testing alike."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .....framework.base.dtypes import is_float
from ....onnx.importing.calls import Value
from ..calls import Aten, aten

_UNIFORM = {"low": 0.0, "high": 1.0}


def _drawn(n: Aten, op_type: str, dims: Sequence[int], **attrs: Any) -> Value:
    dtype = n.dtypes[0] if is_float(n.dtypes[0]) else np.dtype(np.float32)
    return n.op(op_type, shape=list(dims), dtype=dtype, **attrs)


@aten("rand", "rand_like", "randn", "randn_like", is_random=True)
def _random(n: Aten, size: Any) -> Value:
    dims = size.shape if isinstance(size, Value) else size
    if n.name.startswith("randn"):
        return _drawn(n, "gaussian_random", dims)
    return _drawn(n, "uniform_random", dims, **_UNIFORM)


@aten("uniform", "normal_functional", is_random=True)
def _changed(n: Aten, x: Value) -> Value:
    if n.name == "uniform":
        return _drawn(n, "uniform_random", x.shape, low=float(n["from"]), high=float(n["to"]))
    return _drawn(n, "gaussian_random", x.shape, mean=float(n["mean"]), std=float(n["std"]))


@aten("bernoulli", is_random=True)
def _bernoulli(n: Aten, x: Value, p: Any = None) -> Value:
    chance = x if p is None else p
    if not isinstance(chance, Value):
        chance = n.const(chance, np.float32)
    drawn = n.op("uniform_random", shape=list(x.shape), dtype=chance.dtype, **_UNIFORM)
    return n.cast(n.op("less", drawn, chance), n.dtypes[0])


@aten("randperm", is_random=True)
def _randperm(n: Aten, count: int) -> Value:
    drawn = n.op("uniform_random", shape=[count], dtype=np.dtype(np.float64), **_UNIFORM)
    return n.cast(n.op("argsort", drawn, axis=0), n.dtypes[0])


@aten("randint", "randint_like", is_random=True)
def _randint(n: Aten, size: Any, high: int, low: int = 0) -> Value:
    dims = size.shape if isinstance(size, Value) else size
    drawn = n.op("uniform_random", shape=list(dims), dtype=np.dtype(np.float64), low=float(low),
                 high=float(high))  # fmt: skip
    return n.cast(n.op("floor", drawn), n.dtypes[0])
