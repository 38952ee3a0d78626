"""Normalization: over batches, layers, instances, groups, channels."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..calls import Call, Value, lowers


@lowers("BatchNormalization")
def _batch(n: Call) -> Any:
    x = n[0]
    training = n.version >= 14 and bool(n.attr("training_mode", 0))
    is_mixed = any(v.dtype != x.dtype for v in n.inputs if v)
    if training or x.ndim < 2 or is_mixed or not (_is_held(n[3]) and _is_held(n[4])):
        return _wide_batch(n, training)
    return n.op(
        "batch_norm",
        x,
        *(n[i] for i in (1, 2)),
        *(_state(n, i) for i in (3, 4)),
        epsilon=n.attr("epsilon", 1e-5),
        momentum=1 - n.attr("momentum", 0.9),
        use_global_stats=True,
        outs=("out",),
    )


def _wide(*values: Value | None) -> type[np.floating]:
    """What values of several types are computed in."""
    return (
        np.float64 if any(v is not None and v.dtype == np.float64 for v in values) else np.float32
    )


def _wide_batch(n: Call, training: bool) -> list[Value]:
    """Inputs of several types, statistics that the graph computes, or those of the batch and new
    running ones."""
    wide = _wide(*n.inputs)
    inputs = [n[0], n[1], n[2], _state(n, 3), _state(n, 4)]
    x, scale, bias, mean, variance = (n.cast(value, wide) for value in inputs)
    dims = [-1, *(1,) * (x.ndim - 2)]
    running: list[Value] = []
    if training:
        now, spread, _ = _moments(n, x, [0, *range(2, x.ndim)])
        keep = n.attr("momentum", 0.9)
        for k, (old, new) in enumerate(((mean, now), (variance, spread))):
            new = n.op("scale", n.reshape(new, old.shape), scale=1 - keep)
            total = n.op("add", n.op("scale", old, scale=keep), new)
            running.append(n.cast(total, n[3 + k].dtype))
    else:
        now, spread = n.reshape(mean, dims), n.reshape(variance, dims)
    root = n.op("sqrt", n.op("scale", spread, bias=n.attr("epsilon", 1e-5)))
    normalized = n.op("mul", n.op("div", n.op("sub", x, now), root), n.reshape(scale, dims))
    return [n.cast(n.op("add", normalized, n.reshape(bias, dims)), n[0].dtype), *running]


def _moments(n: Call, x: Value, axes: list[int]) -> tuple[Value, Value, Value]:
    """Mean and variance over axes, which stay with size 1, and the value without its mean."""
    mean = n.op("reduce_mean", x, axes=axes, keepdims=True)
    rest = n.op("sub", x, mean)
    return mean, n.op("reduce_mean", n.op("square", rest), axes=axes, keepdims=True), rest


def _is_held(value: Value) -> bool:
    """Whether statistics are in the file. A gradient goes through those that nodes compute."""
    return value.array is not None and not (value.is_parameter and value.roots is not None)


def _state(n: Call, number: int) -> Value:
    """Statistics: those in the file are constants of the net, not trained."""
    value = n[number]
    return n.const(value.array) if value.is_parameter and _is_held(value) else value


@lowers("LayerNormalization")
def _layer(n: Call) -> list[Value | None]:
    x = n[0]
    axis = n.axis(n.attr("axis", -1), n[0].ndim)
    scale = n[1]
    bias = n.get(2)
    tail = x.shape[axis:]
    values = [v for v in (scale, bias) if v is not None]
    if n.wants(1) or n.wants(2) or any(v.dtype != x.dtype for v in values):
        return _wide_layer(n, axis)
    if all(v.shape == tail and v.dtype == x.dtype for v in values):
        normalized = n.op(
            "layer_norm",
            x,
            scale,
            bias,
            begin_norm_axis=axis,
            epsilon=n.attr("epsilon", 1e-5),
            outs=("out",),
        )
        return [normalized[0] if isinstance(normalized, list) else normalized]
    normalized = n.op(
        "layer_norm", x, begin_norm_axis=axis, epsilon=n.attr("epsilon", 1e-5), outs=("out",)
    )
    normalized = n.op("mul", normalized, scale)
    return [normalized if bias is None else n.op("add", normalized, bias)]


def _wide_layer(n: Call, axis: int) -> list[Value | None]:
    """Inputs of several types, or the statistics beside the result."""
    wide = _wide(n[0])
    x, scale = n.cast(n[0], wide), n.cast(n[1], wide)
    mean, variance, rest = _moments(n, x, list(range(axis, x.ndim)))
    root = n.op("sqrt", n.op("scale", variance, bias=n.attr("epsilon", 1e-5)))
    normalized = n.op("mul", n.op("div", rest, root), scale)
    bias = n.get(2)
    normalized = normalized if bias is None else n.op("add", normalized, n.cast(bias, wide))
    return [n.cast(normalized, n[0].dtype), mean, n.op("reciprocal", root)]


@lowers("RMSNormalization")
def _rms(n: Call) -> Value:
    x = n[0]
    scale = n[1]
    axis = n.axis(n.attr("axis", -1), n[0].ndim)
    wide = x.dtype if scale.dtype == x.dtype else _wide(x, scale)
    x = n.cast(x, wide)
    normalized = n.op(
        "rms_norm", x, begin_norm_axis=axis, epsilon=n.attr("epsilon", 1e-5), outs=("out",)
    )
    return n.cast(n.op("mul", normalized, n.cast(scale, wide)), scale.dtype)


@lowers("InstanceNormalization")
def _instance(n: Call) -> Value:
    return n.op("instance_norm", n[0], n[1], n[2], epsilon=n.attr("epsilon", 1e-5), outs=("out",))


@lowers("GroupNormalization")
def _group(n: Call) -> Value:
    groups = n.attr("num_groups", 1)
    epsilon = n.attr("epsilon", 1e-5)
    scale, bias = n[1], n[2]
    if n.version < 21:
        times = n[0].shape[1] // groups
        scale, bias = (
            n.op("repeat_interleave", v, repeats=times) if times > 1 else v for v in (scale, bias)
        )
    return n.op("group_norm", n[0], scale, bias, groups=groups, epsilon=epsilon, outs=("out",))


@lowers("MeanVarianceNormalization")
def _mean_variance(n: Call) -> Value:
    x = n[0]
    axes = [n.axis(a, n[0].ndim) for a in n.ints("axes", [0, 2, 3]) or []]
    centered = n.op("sub", x, n.op("reduce_mean", x, axes=axes, keepdims=True))
    spread = n.op("reduce_mean", n.op("square", centered), axes=axes, keepdims=True)
    return n.op("div", centered, n.op("scale", n.op("sqrt", spread), bias=1e-9))


@lowers("LRN")
def _lrn(n: Call) -> Value:
    size = n.attr("size", 1)
    if size % 2 == 0:
        return _even_lrn(n, size)
    return n.op(
        "lrn",
        n[0],
        size=size,
        alpha=n.attr("alpha", 1e-4),
        beta=n.attr("beta", 0.75),
        k=n.attr("bias", 1.0),
        outs=("out",),
    )


def _even_lrn(n: Call, size: int) -> Value:
    """Windows of an even size, which reach one channel further to the back."""
    x = n[0]
    channels = n[0].shape[1]
    around = [0, 0, (size - 1) // 2, size // 2, *(0, 0) * (x.ndim - 2)]
    squares = n.op("pad", n.op("square", x), paddings=around)
    total = [
        n.op("slice", squares, axes=[1], starts=[at], ends=[at + channels]) for at in range(size)
    ]
    scaled = n.op("scale", n.op("sum", total), scale=n.attr("alpha", 1e-4) / size)
    base = n.op("scale", scaled, bias=n.attr("bias", 1.0))
    return n.op("div", x, n.op("pow", base, n.const(n.attr("beta", 0.75), x.dtype)))
