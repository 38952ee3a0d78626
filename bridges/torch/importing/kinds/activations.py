"""Functions of one tensor: activations, exponentials, rounding, conversions, dropout."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ....onnx.importing.calls import Value
from ..calls import Aten, aten

_SAME = (
    "abs acos acosh asin asinh atan atanh ceil cos cosh erf exp exp2 expm1 floor log log1p log2"
    " log_sigmoid mish neg reciprocal relu round rsqrt selu sigmoid sign sin sinh sqrt square tan"
    " tanh trunc silu isnan isinf isfinite"
).split()
_OTHER = {
    "hardswish": "hard_swish",
    "negative": "neg",
    "absolute": "abs",
    "sgn": "sign",
}
_WHOLE = {"abs", "neg", "square"}
"""Operators of the net that take whole numbers as well."""


def _sign_of_whole(n: Aten, x: Value) -> Value:
    zero = n.const(0, x.dtype)
    above, below = (n.cast(n.op(op, x, zero), x.dtype) for op in ("greater", "less"))
    return n.op("sub", above, below)


def _is_of_whole(n: Aten, x: Value, answer: bool) -> Value:
    return n.op("fill_like", n.cast(x, np.bool_), value=float(answer))


_OF_WHOLE: dict[str, Callable[[Aten, Value], Value]] = {
    "relu": lambda n, x: n.op("maximum", x, n.const(0, x.dtype)),
    "sign": _sign_of_whole,
    "isnan": lambda n, x: _is_of_whole(n, x, False),
    "isinf": lambda n, x: _is_of_whole(n, x, False),
    "isfinite": lambda n, x: _is_of_whole(n, x, True),
}
"""What operators of floats alone are of whole numbers."""


def _unary(n: Aten) -> Value:
    x = n["self"]
    op = _OTHER.get(n.name, n.name)
    if x.dtype.kind in "iub" and op in _OF_WHOLE:
        return _OF_WHOLE[op](n, x)
    if op not in _WHOLE and not op.startswith("is"):
        x = n.cast(x, n.dtypes[0])
        if x.dtype.kind in "iub":  # rounding of whole numbers
            return x
    n.refuse_unless(not n.get("decimals"), "rounding to decimals is not supported")
    return n.op(op, x)


aten(*_SAME, *_OTHER)(_unary)


@aten("alias", "clone", "contiguous", "detach", "lift_fresh_copy", "lift_fresh")
def _same(n: Aten) -> Value:
    if n.name == "detach":
        return n.op("stop_gradient", n["self"])
    return n["self"]


@aten("log_sigmoid_forward")
def _log_sigmoid(n: Aten) -> list[Value]:
    return [n.op("log_sigmoid", n["self"])]


@aten("log10")
def _log10(n: Aten) -> Value:
    return n.op("scale", n.op("log", n.tensor("self", n.dtypes[0])), scale=1 / np.log(10))


@aten("gelu")
def _gelu(n: Aten) -> Value:
    return n.op("gelu_tanh" if n.get("approximate") == "tanh" else "gelu_erf", n["self"])


@aten("leaky_relu")
def _leaky_relu(n: Aten) -> Value:
    return n.op("leaky_relu", n["self"], alpha=float(n["negative_slope"]))


@aten("elu")
def _elu(n: Aten) -> Value:
    x, alpha = n["self"], float(n["alpha"])
    scale, inner = n.get("scale", 1), n.get("input_scale", 1)
    if inner == 1:
        made = n.op("elu", x, alpha=alpha)
        return made if scale == 1 else n.op("scale", made, scale=float(scale))
    n.fail(f"input_scale {inner}")


@aten("celu")
def _celu(n: Aten) -> Value:
    return n.op("celu", n["self"], alpha=float(n["alpha"]))


@aten("hardsigmoid")
def _hard_sigmoid(n: Aten) -> Value:
    return n.op("hard_sigmoid", n["self"], alpha=1 / 6, beta=0.5)


@aten("softplus")
def _softplus(n: Aten) -> Value:
    # Above `threshold` PyTorch takes x itself, which differs by less than a float can hold.
    n.refuse_unless(n["threshold"] >= 15, "its threshold is below 15")
    return n.op("softplus", n["self"], beta=float(n["beta"]))


@aten("softsign")
def _softsign(n: Aten) -> Value:
    return n.op("softsign", n["self"])


@aten("prelu", "_prelu_kernel")
def _prelu(n: Aten) -> Value:
    w = n["weight"]
    return n.op("prelu", n["self"], n.reshaped(w, [int(np.prod(w.shape))]))


@aten("threshold")
def _threshold(n: Aten) -> Value:
    x = n["self"]
    keep = n.op("greater", x, n.const(n["threshold"], x.dtype))
    return n.op("where", keep, x, n.const(n["value"], x.dtype))


@aten("hardshrink", "softshrink")
def _shrink(n: Aten) -> Value:
    x, lambd = n["self"], float(n["lambd"])
    if n.name == "softshrink":
        inside = n.op("clip", x, minimum=-lambd, maximum=lambd)
        return n.op("sub", x, inside)
    keep = n.op("greater", n.op("abs", x), n.const(lambd, x.dtype))
    return n.op("where", keep, x, n.const(0, x.dtype))


@aten("glu")
def _glu(n: Aten) -> Value:
    return n.op("glu", n["self"], axis=n.axis("dim", n["self"].ndim))


@aten("softmax", "_softmax", "log_softmax", "_log_softmax", "_safe_softmax")
def _softmax(n: Aten) -> Value:
    x = n.cast(n["self"], n.dtypes[0])
    op = "log_softmax" if "log" in n.name else "softmax"
    return n.op(op, x, axis=n.axis("dim", x.ndim))


@aten("dropout", "feature_dropout", "native_dropout")
def _dropout(n: Aten) -> Value | list[Value]:
    native = n.name == "native_dropout"
    x = n["input"]
    made = x
    if n.get("train", True) and n["p"]:
        made = n.op("dropout", x, p=float(n["p"]), channels=n.name == "feature_dropout")
    if native:
        n.refuse_unless(not n.wants(1), "its mask is read")
        return [made]
    return made


@aten("to", "_to_copy", "type_as", "_to_dtype")
def _to(n: Aten) -> Value:
    return n.cast(n["self"], n.dtypes[0])
