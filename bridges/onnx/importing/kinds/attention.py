"""Attention and rotary positions."""

from __future__ import annotations

import math

import numpy as np

from .....framework.base.dtypes import DOUBLE, SINGLE
from ...files.tensors import dtype_of
from ..calls import Attributes, Call, Value, lowers


def _heads(n: Attributes, shape: tuple[int, ...], name: str) -> int:
    """The heads of an input [N, heads, T, d], or [N, T, heads * d] with an attribute."""
    if len(shape) == 4:
        return shape[1]
    count = n.attr(name, 0)
    if len(shape) != 3 or count < 1 or shape[-1] % count:
        n.fail(f"{name} {count} for an input {list(shape)}")
    return count


def _allowed(
    n: Call, queries: int, keys: int, before: int | None, ends: Value | None
) -> Value | None:
    """Which key each query may see, for causality, windows, and the ends of sequences; None: all.

    Args:
        before: how many keys come before the first query; None: as `ends` says, or none.
        ends: [N], how many keys each sequence has.
    """
    left, right = n.attr("left_window_size", -1), n.attr("right_window_size", -1)
    places = np.arange(keys)
    ahead = n.const(places - np.arange(queries)[:, None] - (before or 0))
    conditions = []
    if ends is not None:
        ends = n.reshape(n.cast(ends, np.int64), [-1, 1, 1, 1])
        conditions.append(_computed(n, "less", n.const(places), ends))
        if before is None:
            first = _computed(n, "sub", ends, n.const(queries, np.int64))
            ahead = _computed(n, "sub", ahead, first)
    for is_wanted, test, bound in (
        (n.attr("is_causal", 0), "less_equal", 0),
        (left >= 0, "greater_equal", -left),
        (right >= 0, "less_equal", right),
    ):
        if is_wanted:
            conditions.append(_computed(n, test, ahead, n.const(bound, np.int64)))
    seen = None
    for one in conditions:
        seen = one if seen is None else _computed(n, "logical_and", seen, one)
    return seen


def _computed(n: Call, op: str, x: Value, y: Value) -> Value:
    """A result of two arrays, beforehand where both are known."""
    if x.array is None or y.array is None:
        return n.op(op, x, y)
    function = "subtract" if op == "sub" else op
    return n.const(getattr(np, function)(x.array, y.array))


@lowers("Attention")
def _attention(n: Call) -> list[Value | None]:
    q = n[0]
    k = n[1]
    v = n[2]
    mask = n.get(3)
    past_k, past_v, ends = n.get(4), n.get(5), n.get(6)
    q_heads = _heads(n, q.shape, "q_num_heads")
    kv_heads = _heads(n, k.shape, "kv_num_heads")
    flat = q.ndim == 3
    dtype = q.dtype
    queries = q.shape[1 if flat else 2]
    q, k, v = (split_heads(n, x, h) for x, h in ((q, q_heads), (k, kv_heads), (v, kv_heads)))
    before = None
    if past_k is not None and past_v is not None:
        before = past_k.shape[2]
        k, v = n.op("concat", [past_k, k], axis=2), n.op("concat", [past_v, v], axis=2)
    present = (k, v)
    keys = k.shape[2]
    if q_heads != kv_heads:
        times = q_heads // kv_heads
        k, v = (n.op("repeat_interleave", x, repeats=times, axis=1) for x in (k, v))
    k, v = n.cast(k, dtype), n.cast(v, dtype)
    seen = _allowed(n, queries, keys, before, ends)
    if mask is not None and mask.dtype != bool:
        mask = n.cast(mask, dtype)
    bias = _mask(n, mask, keys, seen)
    scale = n.attr("scale", 1 / math.sqrt(q.shape[-1]))
    special = n.attr("softcap", 0.0) > 0 or n.wants(3) or n.attr("softmax_precision") == 11
    if special or dtype not in (SINGLE, DOUBLE):
        attended, scores = _in_steps(n, q, k, v, bias, math.sqrt(scale))
    else:
        given = (q, k, v, bias)
        attended = n.op("scaled_dot_product_attention", *given, scale=scale, outs=("out",))
        scores = None
    if flat:
        attended = merged_heads(n, attended)
    return [attended, *present, scores]


def _in_steps(
    n: Call, q: Value, k: Value, v: Value, bias: Value | None, root: float
) -> tuple[Value, Value]:
    """The result, and the products of queries and keys after the step that the node names."""
    cap = n.attr("softcap", 0.0)
    mode = n.attr("qk_matmul_output_mode", 0)
    x, y = (n.op("mul", one, n.const(root, q.dtype)) for one in (q, k))
    shown = scores = n.op("matmul", x, y, transpose_y=True)
    if cap > 0:
        capped = n.op("tanh", n.op("scale", scores, scale=1 / cap))
        shown = scores = n.op("scale", capped, scale=cap)
    if bias is not None:
        if bias.dtype == bool:
            bias = n.op("where", bias, n.const(0, q.dtype), n.const(-math.inf, q.dtype))
        scores = n.op("add", scores, bias)
    shown = scores if mode == 2 else shown
    precision = n.attr("softmax_precision")
    wide = scores if precision is None else n.cast(scores, dtype_of(precision, n.node.title()))
    top = n.op("reduce_max", wide, axes=[3], keepdims=True)
    # In halves every step is rounded, as the standard has it; the operator softmax is more exact.
    powers = n.op("exp", n.op("sub", wide, top))
    weights = n.op("div", powers, n.op("reduce_sum", powers, axes=[3], keepdims=True))
    sees_none = n.op("equal", top, n.const(-math.inf, wide.dtype))
    weights = n.op("where", sees_none, n.const(0, wide.dtype), weights)
    weights = n.cast(weights, q.dtype)
    return n.op("matmul", weights, v), weights if mode == 3 else shown


def split_heads(n: Call, x: Value, heads: int) -> Value:
    """[N, T, heads * d] as [N, heads, T, d]; what has such a shape stays."""
    if x.ndim == 4:
        return x
    x = n.reshape(x, [*x.shape[:2], heads, x.shape[2] // heads])
    return n.op("transpose", x, perm=[0, 2, 1, 3])


def merged_heads(n: Call, x: Value) -> Value:
    """The way back of `split_heads`."""
    turned = n.op("transpose", x, perm=[0, 2, 1, 3])
    return n.reshape(turned, [*turned.shape[:2], turned.shape[2] * turned.shape[3]])


def _mask(n: Call, mask: Value | None, keys: int, seen: Value | None) -> Value | None:
    """The mask of the net's operator: booleans, or floats that are added."""
    if mask is None:
        return seen
    lack = keys - mask.shape[-1]
    dtype = mask.dtype
    if dtype == bool:
        if lack > 0:
            blind = n.const(np.zeros((*mask.shape[:-1], lack), bool))
            mask = n.op("concat", [mask, blind], axis=mask.ndim - 1)
        return mask if seen is None else n.op("logical_and", mask, seen)
    if lack > 0:
        blind = n.const(np.full((*mask.shape[:-1], lack), -np.inf), dtype)
        mask = n.op("concat", [mask, blind], axis=mask.ndim - 1)
    if seen is None:
        return mask
    if seen.array is not None:
        return n.op("add", mask, n.const(np.where(seen.array, 0, -np.inf), dtype))
    hidden = n.op("where", seen, n.const(0, dtype), n.const(-np.inf, dtype))
    return n.op("add", mask, hidden)


def _rotary_heads(n: Attributes, shape: tuple[int, ...]) -> int:
    return shape[1] if len(shape) == 4 else _heads(n, shape, "num_heads")


@lowers("RotaryEmbedding")
def _rotary(n: Call) -> Value:
    x = n[0]
    cos = n[1]
    sin = n[2]
    places = n.get(3)
    heads = _rotary_heads(n, x.shape)
    parts = n.op("transpose", x, perm=[0, 2, 1, 3]) if x.ndim == 4 else x
    width = x.shape[3] if x.ndim == 4 else x.shape[2] // heads
    batch, steps = parts.shape[:2]
    parts = n.reshape(parts, [batch, steps, heads, width])
    size = n.attr("rotary_embedding_dim", 0) or width
    if places is not None:
        cos, sin = (n.op("gather", table, places, axis=0) for table in (cos, sin))
    cos, sin = (n.reshape(v, [*v.shape[:2], 1, size // 2]) for v in (cos, sin))
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
        turned = [n.reshape(pairs, [batch, steps, heads, size])]
    if size < width:
        turned.append(cut(size, width))
    rotated = turned[0] if len(turned) == 1 else n.op("concat", turned, axis=3)
    if x.ndim == 4:
        return n.op("transpose", rotated, perm=[0, 2, 1, 3])
    return n.reshape(rotated, x.shape)
