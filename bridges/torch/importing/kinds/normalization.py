"""Normalization over batches, layers, groups and instances."""

from __future__ import annotations

import math

import numpy as np

from ....onnx.importing.calls import Value
from ..calls import Aten, aten, wants_floats


@aten("batch_norm", "_native_batch_norm_legit_no_training", "_native_batch_norm_legit_functional",
      "native_batch_norm", "_native_batch_norm_legit")  # fmt: skip
def _batch_norm(n: Aten, x: Value) -> Value | list[Value]:
    wants_floats(n, x)
    training = n.get("training", False)
    channels = x.shape[1]
    mean, variance = n.get("running_mean"), n.get("running_var")
    if mean is None or variance is None:
        n.refuse_unless(n.get("training", False), "it has neither running statistics nor batches")
        return _by_batch(n, x)
    scale = n.get("weight") or n.const(np.ones(channels), x.dtype)
    bias = n.get("bias") or n.const(np.zeros(channels), x.dtype)
    more = {"epsilon": float(n["eps"])}
    if training:
        more["momentum"] = float(n["momentum"])
        into = {"mean_out": mean, "variance_out": variance}
    else:
        more["use_global_stats"] = True
        into = {}
    normalized = n.op(
        "batch_norm", x, scale, bias, mean, variance, outs=("out",), into=into, **more
    )
    if n.name == "batch_norm":
        return normalized
    n.refuse_unless(not (n.wants(1) or n.wants(2)), "its saved statistics are read")
    # the new statistics stand in the variables of the old ones
    return [normalized, None, None, mean, variance]  # type: ignore[list-item]


def _by_batch(n: Aten, x: Value) -> Value:
    """Without running statistics the batch's own always count."""
    axes = [axis for axis in range(x.ndim) if axis != 1]
    away = n.op("sub", x, n.op("reduce_mean", x, axes=axes, keepdims=True))
    power = n.op("reduce_mean", n.op("square", away), axes=axes, keepdims=True)
    normalized = n.op("mul", away, n.op("rsqrt", n.op("scale", power, bias=float(n["eps"]))))
    shape = [1, x.shape[1]] + [1] * (x.ndim - 2)
    if n.has("weight"):
        normalized = n.op("mul", normalized, n.reshaped(n["weight"], shape))
    return n.op("add", normalized, n.reshaped(n["bias"], shape)) if n.has("bias") else normalized


def _last_axes(n: Aten, x: Value) -> int:
    return x.ndim - len(n["normalized_shape"])


@aten("layer_norm", "native_layer_norm")
def _layer_norm(n: Aten, x: Value) -> Value | list[Value]:
    wants_floats(n, x)
    normalized = n.op(
        "layer_norm",
        x,
        n.get("weight"),
        n.get("bias"),
        outs=("out",),
        begin_norm_axis=_last_axes(n, x) - x.ndim,
        epsilon=float(n["eps"]),
    )
    if n.name == "layer_norm":
        return normalized
    first = _last_axes(n, x)
    return [normalized, *_statistics(n, x, list(range(first, x.ndim)))]


def _statistics(n: Aten, x: Value, axes: list[int], keepdims: bool = True) -> list[Value]:
    """Mean and 1 / deviation over axes, which PyTorch notes for the gradient."""
    if not (n.wants(1) or n.wants(2)):
        return []
    mean = n.op("reduce_mean", x, axes=axes, keepdims=keepdims)
    power = n.op("reduce_var", x, axes=axes, keepdims=keepdims, ddof=0)
    return [mean, n.op("rsqrt", n.op("scale", power, bias=float(n["eps"])))]


@aten("rms_norm", "_fused_rms_norm")
def _rms_norm(n: Aten, x: Value) -> Value | list[Value]:
    wants_floats(n, x)
    epsilon = float(n.get("eps", np.finfo(np.float32).eps))
    axis = _last_axes(n, x) - x.ndim
    normalized = n.op(
        "rms_norm", x, n.get("weight"), outs=("out",), begin_norm_axis=axis, epsilon=epsilon
    )
    return normalized if n.name == "rms_norm" else [normalized]


@aten("group_norm", "native_group_norm")
def _group_norm(n: Aten, x: Value) -> Value | list[Value]:
    wants_floats(n, x)
    groups = int(n["num_groups"] if n.has("num_groups") else n["group"])
    normalized = n.op(
        "group_norm",
        x,
        n.get("weight"),
        n.get("bias"),
        outs=("out",),
        groups=groups,
        epsilon=float(n["eps"]),
    )
    if n.name == "group_norm":
        return normalized
    groups_apart = n.reshaped(x, [x.shape[0], groups, math.prod(x.shape[1:]) // groups])
    return [normalized, *_statistics(n, groups_apart, [2], keepdims=False)]


@aten("instance_norm")
def _instance_norm(n: Aten, x: Value) -> Value:
    wants_floats(n, x)
    n.refuse_unless(bool(n["use_input_stats"]), "its running statistics are read")
    scale, bias = n.get("weight"), n.get("bias")
    return n.op("instance_norm", x, scale, bias, outs=("out",), epsilon=float(n["eps"]))


@aten("linalg_vector_norm", "norm")
def _norm(n: Aten) -> Value:
    x = n.cast(n["self"], n.dtypes[0])
    p = n.get("ord", n.get("p", 2))
    axes = n.axes("dim", x.ndim)
    return n.op("norm", x, axes=axes, keepdims=bool(n.get("keepdim", False)), p=float(p))


@aten("_weight_norm", "_weight_norm_interface")
def _weight_norm(n: Aten) -> Value | list[Value]:
    v, g = n["v"], n["g"]
    axes = [axis for axis in range(v.ndim) if axis != n["dim"] % v.ndim]
    if n["dim"] == -1:  # as PyTorch has it: of the whole tensor
        axes = list(range(v.ndim))
    size = n.op("norm", v, axes=axes, keepdims=True, p=2.0)
    weight = n.op("mul", v, n.op("div", g, size))
    return weight if n.name == "_weight_norm" else [weight, size]


@aten("cosine_similarity")
def _cosine_similarity(n: Aten) -> Value:
    x, y = n["x1"], n["x2"]
    return n.op("cosine_similarity", x, y, axis=n.axis("dim", x.ndim), epsilon=float(n["eps"]))
