"""Layers of transformers that ONNX Runtime has as one operator, with weights of floats or of 8-bit
integers: what its quantizer makes of them begins with Q."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from ..calls import Call, NotHere, Value, lowers
from .attention import merged_heads, split_heads
from .quantized import MICROSOFT, Integers, real_product

_HIDDEN = -10000.0
"""Added to what a mask hides."""


@lowers("Attention", domain=MICROSOFT)
def _attention(n: Call) -> list[Value | None]:
    bias, last = n.get(2), n.get(6)
    if last is not None:
        raise NotHere
    projected = n.op("matmul", n[0], n[1])
    projected = projected if bias is None else n.op("add", projected, bias)
    return _attended(n, projected, n.get(3), n.get(4), n.get(5))


@lowers("QAttention", domain=MICROSOFT)
def _attention_of_integers(n: Call) -> list[Value | None]:
    x, w = Integers(n[0], n[3], n.get(6)), Integers(n[1], n[4], n.get(7))
    return _attended(n, n.op("add", real_product(n, x, w), n[2]), n.get(5), n.get(8), None)


def _attended(
    n: Call, projected: Value, mask: Value | None, past: Value | None, bias: Value | None
) -> list[Value | None]:
    """What heads see, and the keys and values after those of `past`.

    Args:
        projected: [N, T, D + D + E]: queries, keys, values. mask: see `_hidden`.
        past: [2, N, heads, T before, d]. bias: added to the scores, [N or 1, heads or 1, T, keys].
    """
    heads = n.attr("num_heads", 0)
    if n.attr("do_rotary", 0) or n.attr("past_present_share_buffer", 0):
        raise NotHere
    width = projected.shape[2]
    sizes = n.ints("qkv_hidden_sizes") or [width // 3] * 3
    if heads < 1 or any(size % heads for size in sizes) or sum(sizes) != width:
        n.fail(f"{heads} heads for {width} columns")
    ends = np.cumsum([0, *sizes]).tolist()
    q, k, v = (
        split_heads(n, n.op("slice", projected, axes=[2], starts=[begin], ends=[end]), heads)
        for begin, end in zip(ends, ends[1:], strict=False)
    )
    before = 0
    if past is not None:
        before = past.shape[3]
        k, v = (n.op("concat", [_half(n, past, at), one], axis=2) for at, one in enumerate((k, v)))
    queries, keys = q.shape[2], k.shape[2]
    least = n.attr("mask_filter_value", _HIDDEN)
    added = [] if bias is None else [bias]
    if mask is not None:
        hidden = _hidden(n, mask, keys)
        added.append(n.op("where", hidden, n.const(least, q.dtype), n.const(0, q.dtype)))
    if n.attr("unidirectional", 0):
        later = np.arange(keys) > before + np.arange(queries)[:, None]
        lowest = np.finfo(np.float32).min
        added.append(n.const(np.where(later, lowest, 0), q.dtype))
    scores = None
    for one in added:
        scores = one if scores is None else n.op("add", scores, one)
    scale = n.attr("scale", 0.0) or 1 / math.sqrt(q.shape[3])
    made = n.op("scaled_dot_product_attention", q, k, v, scores, scale=scale, outs=("out",))
    present = n.op("stack", [k, v], axis=0) if n.wants(1) else None
    return [merged_heads(n, made), present]


def _half(n: Call, past: Value, at: int) -> Value:
    one = n.op("slice", past, axes=[0], starts=[at], ends=[at + 1])
    return n.reshape(one, list(past.shape[1:]))


def _hidden(n: Call, mask: Value, keys: int) -> Value:
    """Whether a mask hides keys, for [N, heads, queries, keys].

    Args:
        mask: 0 where it hides, [N, keys] or [N, queries, keys]; or the ends of sequences, [N].
    """
    zero = n.const(0, mask.dtype)
    if mask.ndim in (2, 3) and mask.shape[-1] == keys:
        shape = [mask.shape[0], 1, *(mask.shape[1:-1] or (1,)), keys]
        return n.op("less_equal", n.reshape(mask, shape), zero)
    if mask.ndim == 1 and mask.shape[0] == n[0].shape[0]:
        ends = n.reshape(mask, [mask.shape[0], 1, 1, 1])
        return n.op("less_equal", ends, n.const(np.arange(keys), mask.dtype))
    raise NotHere


@lowers("Gelu", domain=MICROSOFT)
def _gelu(n: Call) -> Value:
    return n.op("gelu_erf", n[0])


@lowers("EmbedLayerNormalization", domain=MICROSOFT)
def _embedding(n: Call) -> list[Value]:
    return _embedded(n, lambda at, ids: n.op("gather", n[at], ids, axis=0), [n[5], n[6]], n.get(8))


@lowers("QEmbedLayerNormalization", domain=MICROSOFT)
def _embedding_of_integers(n: Call) -> list[Value]:
    def real(at: int, whole: Value) -> Value:
        return n.op("dequantize_linear", whole, n[6 + at], n.get(11 + at))

    def rows(at: int, ids: Value) -> Value:  # of a table of integers no more than these are floats
        return real(at, n.op("gather", n[at], ids, axis=0))

    return _embedded(n, rows, [real(at, n[at]) for at in (5, 6)], None)


def _embedded(
    n: Call,
    rows: Callable[[int, Value], Value],
    normalizing: Sequence[Value],
    places: Value | None,
) -> list[Value]:
    """The normalized sum of rows of tables, how much of each row the mask leaves, and the sum.

    Args:
        rows: gives those of a table, by its input and the numbers of the rows.
        normalizing: scale and bias. places: [N, T] or [1, T]; by default 0, 1, ... of each row.
    """
    ids = n[0]
    batch, steps = ids.shape
    if places is None:
        places = n.const(np.arange(steps).reshape(1, -1), ids.dtype)
    total = n.op("add", rows(2, ids), rows(3, places))
    if n.get(4) is not None and n.get(1) is not None:
        total = n.op("add", total, rows(4, n[1]))
    epsilon = n.attr("epsilon", 1e-12)
    made = n.op(
        "layer_norm", total, *normalizing, begin_norm_axis=2, epsilon=epsilon, outs=("out",)
    )
    mask = n.get(7)
    ends = (
        n.const(np.zeros(batch), np.int32) if mask is None else n.op("reduce_sum", mask, axes=[1])
    )
    return [made, ends, total]
