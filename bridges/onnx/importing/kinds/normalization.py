"""Normalisation: over batches, layers, instances, groups, channels."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..calls import Attributes, Call, NotHere, Value, evaluates, lowers


def _by_channel(values: np.ndarray, rank: int) -> np.ndarray:
    return values.reshape((-1,) + (1,) * (rank - 2))


@evaluates("BatchNormalization")
def _batch_on_host(
    n: Attributes,
    x: np.ndarray,
    scale: np.ndarray,
    bias: np.ndarray,
    mean: np.ndarray,
    variance: np.ndarray,
) -> tuple[np.ndarray, ...]:
    momentum, made = n.attr("momentum", 0.9), ()
    if n.version >= 14 and n.attr("training_mode", 0):
        axes = (0, *range(2, x.ndim))
        now, spread = np.mean(x, axis=axes), np.var(x, axis=axes)
        made = (
            (mean * momentum + now * (1 - momentum)).astype(mean.dtype),
            (variance * momentum + spread * (1 - momentum)).astype(variance.dtype),
        )
        mean, variance = now, spread
    root = np.sqrt(_by_channel(variance, x.ndim) + n.attr("epsilon", 1e-5))
    y = (x - _by_channel(mean, x.ndim)) / root
    y = y * _by_channel(scale, x.ndim) + _by_channel(bias, x.ndim)
    return (y.astype(x.dtype), *made)


@lowers("BatchNormalization")
def _batch(n: Call) -> Value:
    x = n[0]
    training = n.version >= 14 and n.attr("training_mode", 0)
    if training or not x.is_float or x.ndim < 2 or any(v.dtype != x.dtype for v in n.inputs if v):
        raise NotHere
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


def _state(n: Call, number: int) -> Value:
    """Statistics: constants of the net, not trained."""
    value = n[number]
    return n.const(value.array) if value.is_parameter else value


def _standard(
    x: np.ndarray, axes: tuple[int, ...], epsilon: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    mean = np.mean(x, axis=axes, keepdims=True)
    scale = 1 / np.sqrt(np.var(x, axis=axes, keepdims=True) + epsilon)
    return (x - mean) * scale, mean, scale


@evaluates("LayerNormalization")
def _layer_on_host(
    n: Attributes, x: np.ndarray, scale: np.ndarray, bias: Any = None
) -> tuple[np.ndarray, ...]:
    axis = n.axis(n.attr("axis", -1), x.ndim)
    wide = x.astype(np.float32) if x.dtype != np.float64 else x
    made, mean, spread = _standard(wide, tuple(range(axis, x.ndim)), n.attr("epsilon", 1e-5))
    made = made * scale + (0 if bias is None else bias)
    stash = np.float32 if x.dtype != np.float64 else np.float64
    return made.astype(x.dtype), mean.astype(stash), spread.astype(stash)


@lowers("LayerNormalization")
def _layer(n: Call) -> list[Value | None]:
    x, axis = n[0], n.axis(n.attr("axis", -1), n[0].ndim)
    scale, bias = n[1], n.get(2)
    tail = x.shape[axis:]
    if n.wants(1) or n.wants(2) or not x.is_float:
        raise NotHere
    values = [v for v in (scale, bias) if v is not None]
    if all(v.shape == tail and v.dtype == x.dtype for v in values):
        made = n.op(
            "layer_norm",
            x,
            scale,
            bias,
            begin_norm_axis=axis,
            epsilon=n.attr("epsilon", 1e-5),
            outs=("out",),
        )
        return [made[0] if isinstance(made, list) else made]
    made = n.op(
        "layer_norm", x, begin_norm_axis=axis, epsilon=n.attr("epsilon", 1e-5), outs=("out",)
    )
    made = n.op("mul", made, scale)
    return [made if bias is None else n.op("add", made, bias)]


@evaluates("RMSNormalization")
def _rms_on_host(n: Attributes, x: np.ndarray, scale: np.ndarray) -> np.ndarray:
    axis = n.axis(n.attr("axis", -1), x.ndim)
    wide = x.astype(np.float32) if x.dtype != np.float64 else x
    size = np.mean(wide * wide, axis=tuple(range(axis, x.ndim)), keepdims=True)
    made = wide / np.sqrt(size + n.attr("epsilon", 1e-5))
    return (made * scale).astype(np.result_type(scale))


@lowers("RMSNormalization")
def _rms(n: Call) -> Value:
    x, scale, axis = n[0], n[1], n.axis(n.attr("axis", -1), n[0].ndim)
    if not x.is_float or scale.dtype != x.dtype:
        raise NotHere
    made = n.op("rms_norm", x, begin_norm_axis=axis, epsilon=n.attr("epsilon", 1e-5), outs=("out",))
    return n.op("mul", made, scale)


@evaluates("InstanceNormalization")
def _instance_on_host(
    n: Attributes, x: np.ndarray, scale: np.ndarray, bias: np.ndarray
) -> np.ndarray:
    made, _, _ = _standard(x, tuple(range(2, x.ndim)), n.attr("epsilon", 1e-5))
    return (made * _by_channel(scale, x.ndim) + _by_channel(bias, x.ndim)).astype(x.dtype)


@lowers("InstanceNormalization")
def _instance(n: Call) -> Value:
    return n.op("instance_norm", n[0], n[1], n[2], epsilon=n.attr("epsilon", 1e-5), outs=("out",))


@evaluates("GroupNormalization")
def _group_on_host(n: Attributes, x: np.ndarray, scale: np.ndarray, bias: np.ndarray) -> np.ndarray:
    groups = n.attr("num_groups", 1)
    grouped = x.reshape(len(x), groups, -1)
    made = _standard(grouped, (2,), n.attr("epsilon", 1e-5))[0].reshape(x.shape)
    if n.version < 21:
        scale, bias = (np.repeat(v, x.shape[1] // groups) for v in (scale, bias))
    return (made * _by_channel(scale, x.ndim) + _by_channel(bias, x.ndim)).astype(x.dtype)


@lowers("GroupNormalization")
def _group(n: Call) -> Value:
    groups, epsilon = n.attr("num_groups", 1), n.attr("epsilon", 1e-5)
    scale, bias = n[1], n[2]
    if n.version < 21:
        times = n[0].shape[1] // groups
        scale, bias = (
            n.op("repeat_interleave", v, repeats=times) if times > 1 else v for v in (scale, bias)
        )
    return n.op("group_norm", n[0], scale, bias, groups=groups, epsilon=epsilon, outs=("out",))


@evaluates("MeanVarianceNormalization")
def _mean_variance_on_host(n: Attributes, x: np.ndarray) -> np.ndarray:
    axes = tuple(n.ints("axes", [0, 2, 3]) or ())
    mean = np.mean(x, axis=axes, keepdims=True)
    spread = np.mean(x * x, axis=axes, keepdims=True) - mean * mean
    return ((x - mean) / (np.sqrt(spread) + 1e-9)).astype(x.dtype)


@lowers("MeanVarianceNormalization")
def _mean_variance(n: Call) -> Value:
    x, axes = n[0], [n.axis(a, n[0].ndim) for a in n.ints("axes", [0, 2, 3]) or []]
    centred = n.op("sub", x, n.op("reduce_mean", x, axes=axes, keepdims=True))
    spread = n.op("reduce_mean", n.op("square", centred), axes=axes, keepdims=True)
    return n.op("div", centred, n.op("scale", n.op("sqrt", spread), bias=1e-9))


@evaluates("LRN")
def _lrn_on_host(n: Attributes, x: np.ndarray) -> np.ndarray:
    size = n.attr("size", 1)
    before, after = (size - 1) // 2, size // 2
    squares = np.pad(x * x, [(0, 0), (before, after)] + [(0, 0)] * (x.ndim - 2))
    total = sum(squares[:, i : i + x.shape[1]] for i in range(size))
    base = n.attr("bias", 1.0) + n.attr("alpha", 1e-4) / size * total
    return (x / base ** n.attr("beta", 0.75)).astype(x.dtype)


@lowers("LRN")
def _lrn(n: Call) -> Value:
    size = n.attr("size", 1)
    if size % 2 == 0:
        raise NotHere
    return n.op(
        "lrn",
        n[0],
        size=size,
        alpha=n.attr("alpha", 1e-4),
        beta=n.attr("beta", 0.75),
        k=n.attr("bias", 1.0),
        outs=("out",),
    )
