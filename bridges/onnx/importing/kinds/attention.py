"""Attention and rotary positions."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .....framework.base.dtypes import DOUBLE, SINGLE
from ...files.tensors import dtype_of
from ..calls import Attributes, Call, NotHere, Value, evaluates, lowers


def _heads(n: Attributes, shape: tuple[int, ...], name: str) -> int:
    """The heads of an input [N, heads, T, d], or [N, T, heads * d] with an attribute."""
    if len(shape) == 4:
        return shape[1]
    count = n.attr(name, 0)
    if len(shape) != 3 or count < 1 or shape[-1] % count:
        n.fail(f"{name} {count} for an input {list(shape)}")
    return count


def _split(x: np.ndarray, heads: int) -> np.ndarray:
    if x.ndim == 4:
        return x
    return x.reshape(*x.shape[:2], heads, -1).transpose(0, 2, 1, 3)


def _allowed(n: Attributes, queries: int, keys: int, offset: np.ndarray | int) -> np.ndarray | None:
    """Which key each query may see, for causality and windows; None: all.

    Args:
        offset: how many keys come before the first query; an array for each sequence.
    """
    left, right = n.attr("left_window_size", -1), n.attr("right_window_size", -1)
    causal = n.attr("is_causal", 0)
    if not causal and left < 0 and right < 0:
        return None
    first = np.asarray(offset).reshape(-1, 1, 1, 1) if np.ndim(offset) else offset
    ahead = np.arange(keys)[None] - np.arange(queries)[:, None] - first
    seen = np.ones(ahead.shape, bool)
    if causal:
        seen &= ahead <= 0
    if left >= 0:
        seen &= -ahead <= left
    if right >= 0:
        seen &= ahead <= right
    return seen


@evaluates("Attention")
def _attention_on_host(
    n: Attributes,
    query: np.ndarray,
    key: np.ndarray,
    value: np.ndarray,
    mask: Any = None,
    past_key: Any = None,
    past_value: Any = None,
    lengths: Any = None,
) -> tuple[np.ndarray, ...]:
    dtype, flat = query.dtype, query.ndim == 3
    q = _split(query, _heads(n, query.shape, "q_num_heads"))
    k = _split(key, _heads(n, key.shape, "kv_num_heads"))
    v = _split(value, _heads(n, value.shape, "kv_num_heads"))
    offset: Any = 0
    if past_key is not None:
        offset = past_key.shape[2]
        k, v = np.concatenate([past_key, k], 2), np.concatenate([past_value, v], 2)
    elif lengths is not None:
        offset = lengths.reshape(-1) - q.shape[2]
    present = k, v
    times = q.shape[1] // k.shape[1]
    k, v = np.repeat(k, times, 1), np.repeat(v, times, 1)
    root = dtype.type(math.sqrt(n.attr("scale", 1 / math.sqrt(q.shape[-1]))))
    scores = np.matmul(q * root, np.swapaxes(k, 2, 3) * root)
    bias = np.zeros(scores.shape[2:], dtype)
    low = dtype.type(-np.inf)
    if mask is not None:
        lack = k.shape[2] - mask.shape[-1]
        fill: Any = False if mask.dtype == bool else -np.inf
        if lack > 0:
            mask = np.pad(mask, [(0, 0)] * (mask.ndim - 1) + [(0, lack)], constant_values=fill)
        bias = bias + (np.where(mask, dtype.type(0), low) if mask.dtype == bool else mask)
    seen = _allowed(n, q.shape[2], k.shape[2], offset)
    if seen is not None:
        bias = bias + np.where(seen, dtype.type(0), low)
    if lengths is not None:
        inside = np.arange(k.shape[2]) < lengths.reshape(-1, 1, 1, 1)
        bias = bias + np.where(inside, dtype.type(0), low)
    cap, mode = n.attr("softcap", 0.0), n.attr("qk_matmul_output_mode", 0)
    told = scores
    if cap > 0:
        scores = np.tanh(scores / dtype.type(cap)) * dtype.type(cap)
        told = scores
    scores = scores + bias
    told = scores if mode == 2 else told
    precision = n.attr("softmax_precision")
    wide = scores if precision is None else scores.astype(dtype_of(precision, n.node.title()))
    weights = _weights(wide)
    weights = np.where(np.isneginf(bias.max(axis=-1, keepdims=True)), 0, weights)
    told = weights if mode == 3 else told
    made = np.matmul(weights.astype(dtype), v)
    if flat:
        made = made.transpose(0, 2, 1, 3).reshape(*query.shape[:2], -1)
    return made.astype(dtype), *present, told.astype(dtype)


def _weights(scores: np.ndarray) -> np.ndarray:
    """Softmax over keys; zeros where a query sees none."""
    top = scores.max(axis=-1, keepdims=True)
    made = np.exp(scores - np.where(np.isneginf(top), 0, top))
    total = made.sum(axis=-1, keepdims=True)
    return made / np.where(total == 0, 1, total)


@lowers("Attention")
def _attention(n: Call) -> list[Value | None]:
    q, k, v, mask = n[0], n[1], n[2], n.get(3)
    past_k, past_v = n.get(4), n.get(5)
    special = n.attr("softcap", 0.0) > 0 or n.get(6) is not None or n.wants(3)
    if special or q.dtype not in (SINGLE, DOUBLE) or n.attr("softmax_precision") == 11:
        raise NotHere
    q_heads = _heads(n, q.shape, "q_num_heads")
    kv_heads = _heads(n, k.shape, "kv_num_heads")
    flat = q.ndim == 3
    batch, queries = q.shape[0], q.shape[1 if flat else 2]
    q, k, v = (_split_here(n, x, h) for x, h in ((q, q_heads), (k, kv_heads), (v, kv_heads)))
    offset = 0
    if past_k is not None and past_v is not None:
        offset = past_k.shape[2]
        k, v = n.op("concat", [past_k, k], axis=2), n.op("concat", [past_v, v], axis=2)
    present, keys = (k, v), k.shape[2]
    if q_heads != kv_heads:
        times = q_heads // kv_heads
        k, v = (n.op("repeat_interleave", x, repeats=times, axis=1) for x in (k, v))
    bias = _mask_here(n, mask, keys, _allowed(n, queries, keys, offset), q.dtype)
    made = n.op(
        "scaled_dot_product_attention",
        q,
        k,
        v,
        bias,
        scale=n.attr("scale", 1 / math.sqrt(q.shape[-1])),
        outs=("out",),
    )
    if flat:
        made = n.op("transpose", made, perm=[0, 2, 1, 3])
        made = n.op("reshape", made, shape=[batch, queries, made.shape[2] * made.shape[3]])
    return [made, *present]


def _split_here(n: Call, x: Value, heads: int) -> Value:
    if x.ndim == 4:
        return x
    x = n.op("reshape", x, shape=[*x.shape[:2], heads, x.shape[2] // heads])
    return n.op("transpose", x, perm=[0, 2, 1, 3])


def _mask_here(
    n: Call, mask: Value | None, keys: int, seen: np.ndarray | None, dtype: np.dtype
) -> Value | None:
    """The mask of the net's operator: booleans, or floats that are added."""
    if mask is None:
        return None if seen is None else n.const(seen)
    lack = keys - mask.shape[-1]
    if mask.dtype == bool:
        if lack > 0:
            blind = n.const(np.zeros((*mask.shape[:-1], lack), bool))
            mask = n.op("concat", [mask, blind], axis=mask.ndim - 1)
        return mask if seen is None else n.op("logical_and", mask, n.const(seen))
    if lack > 0:
        blind = n.const(np.full((*mask.shape[:-1], lack), -np.inf), dtype)
        mask = n.op("concat", [mask, blind], axis=mask.ndim - 1)
    if seen is None:
        return mask
    return n.op("add", mask, n.const(np.where(seen, 0, -np.inf), dtype))


@evaluates("RotaryEmbedding")
def _rotary_on_host(
    n: Attributes, x: np.ndarray, cos: np.ndarray, sin: np.ndarray, places: Any = None
) -> np.ndarray:
    parts = x.transpose(0, 2, 1, 3) if x.ndim == 4 else x
    parts = parts.reshape(*parts.shape[:2], _rotary_heads(n, x.shape), -1)
    size = n.attr("rotary_embedding_dim", 0) or parts.shape[-1]
    if places is not None:
        cos, sin = cos[places], sin[places]
    cos, sin = cos[:, :, None], sin[:, :, None]
    turned, rest = parts[..., :size], parts[..., size:]
    if n.attr("interleaved", 0):
        a, b = turned[..., ::2], turned[..., 1::2]
    else:
        a, b = np.split(turned, 2, -1)
    a, b = a * cos - b * sin, a * sin + b * cos
    if n.attr("interleaved", 0):
        turned = np.stack([a, b], -1).reshape(turned.shape)
    else:
        turned = np.concatenate([a, b], -1)
    made = np.concatenate([turned, rest], -1).astype(x.dtype)
    return made.transpose(0, 2, 1, 3) if x.ndim == 4 else made.reshape(x.shape)


def _rotary_heads(n: Attributes, shape: tuple[int, ...]) -> int:
    return shape[1] if len(shape) == 4 else _heads(n, shape, "num_heads")


@lowers("RotaryEmbedding")
def _rotary(n: Call) -> Value:
    x, cos, sin, places = n[0], n[1], n[2], n.get(3)
    heads = _rotary_heads(n, x.shape)
    parts = n.op("transpose", x, perm=[0, 2, 1, 3]) if x.ndim == 4 else x
    width = x.shape[3] if x.ndim == 4 else x.shape[2] // heads
    batch, steps = parts.shape[:2]
    parts = n.op("reshape", parts, shape=[batch, steps, heads, width])
    size = n.attr("rotary_embedding_dim", 0) or width
    if places is not None:
        cos, sin = (n.op("gather", table, places, axis=0) for table in (cos, sin))
    cos, sin = (n.op("reshape", v, shape=[*v.shape[:2], 1, size // 2]) for v in (cos, sin))
    inner = bool(n.attr("interleaved", 0))

    def cut(begin: int, end: int, step: int = 1) -> Value:
        return n.op("slice", parts, axes=[3], starts=[begin], ends=[end], steps=[step])

    a, b = (
        (cut(0, size, 2), cut(1, size, 2)) if inner else (cut(0, size // 2), cut(size // 2, size))
    )
    turned = [
        n.op("sub", n.op("mul", a, cos), n.op("mul", b, sin)),
        n.op("add", n.op("mul", a, sin), n.op("mul", b, cos)),
    ]
    if inner:
        pairs = n.op("stack", turned, axis=4)
        turned = [n.op("reshape", pairs, shape=[batch, steps, heads, size])]
    if size < width:
        turned.append(cut(size, width))
    made = turned[0] if len(turned) == 1 else n.op("concat", turned, axis=3)
    if x.ndim == 4:
        return n.op("transpose", made, perm=[0, 2, 1, 3])
    return n.op("reshape", made, shape=list(x.shape))
