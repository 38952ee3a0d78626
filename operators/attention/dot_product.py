"""Scaled dot-product attention: softmax of the products of queries and keys, as weights of values.

One operator, so that the weights [..., T, S] are computed in place, and of all that lies between
queries and result only they are kept for the gradient.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import sqrt
from typing import Any

import numpy as np

from ...framework.base.sizes.shape import Shape, ShapeArgs
from ...framework.fusion.team import in_order, nothing, recordable
from ...framework.ir.kernel_args import Call, KernelArgs
from ...framework.ir.registry import AttrSpec, Slot, operator
from ..base.calls import reducing, stacked
from ..linear.matmul import Product
from ..tensor.random import draw_below
from .caches import check_past
from .heads import HEADS, head_shape, split_heads

_BOOL = np.dtype(bool)

attention = operator(
    "scaled_dot_product_attention",
    doc=(
        "Attention: out = softmax(scale query key^T + mask) value. query [..., T, d], key"
        " [..., S, d], value [..., S, e] -> out [..., T, e]; the axes in front (batch, heads)"
        " broadcast. With `heads` query is [N, T, heads d], key [N, S, heads d], value"
        " [N, S, heads e] and out [N, T, heads e]: each head takes its own columns. `mask`"
        " broadcasts to the weights, [..., T, S] or [N, heads, T, S]: booleans are true where a"
        " query may look, floats are added. `key_mask` [N, S] says the same of keys, for all"
        " queries; N is the first axis. `causal` lets row t see the keys 0 .. t alone; with `past`"
        " 0 .. past[n] + t, where keys and values come from a cache, to which the rows of the"
        " query were appended. A row that sees nothing gives zeros, and has no gradient. While"
        " training, `dropout` sets weights to 0 with that probability and divides the others by"
        " 1 - dropout."
    ),
    inputs=[
        Slot("query", "[..., T, d]"),
        Slot("key", "[..., S, d]"),
        Slot("value", "[..., S, e]"),
        Slot("mask", "booleans or floats", optional=True, not_in_gradient=True),
        Slot("key_mask", "booleans [N, S], true at keys", optional=True, not_in_gradient=True),
        Slot("past", "int64 [N], keys before row 0's", optional=True, not_in_gradient=True),
    ],
    outputs=[
        Slot("out", "[..., T, e]"),
        Slot("weights", "softmax, before dropout, [..., T, S]", intermediate=True),
        Slot("kept", "factors of dropout, as weights; without it empty", intermediate=True),
    ],
    attrs=[
        AttrSpec("causal", "bool", "row t sees the keys 0 .. t alone", False),
        AttrSpec("dropout", "float", "probability that a weight is set to 0", 0.0, 0.0, 1.0),
        AttrSpec("scale", "float", "factor of the products; 0 = 1 / sqrt(d)", 0.0),
        HEADS,
        AttrSpec("seed", "int", "of dropout; 0: the run's random state", 0, 0),
    ],
    source="Vaswani et al. 2017, Attention is all you need",
    random=True,
)


@attention.shape_rule
def attention_shape(s: ShapeArgs) -> None:
    query, key, value = (head_shape(s, slot) for slot in ("query", "key", "value"))
    dtype = s.floats("query", "key", "value")
    s.same("the columns of query and key", query[-1], key[-1])
    keys = s.same("the rows of key and value", key[-2], value[-2])
    batch = s.broadcast(query[:-2], key[:-2], value[:-2])
    # Batch axes that only value has are axes of the weights, too: one shape serves both products.
    weights = (*batch, query[-2], keys)
    if s.has("mask"):
        _check_mask(s, weights, dtype)
    if s.has("key_mask"):
        _check_key_mask(s, weights)
    if s.has("past"):
        if not s.attrs["causal"] or len(weights) < 3:
            s.fail("past says what rows of sequences see: want causal=True and an axis N in front")
        check_past(s, weights[0])
    if s.attrs["heads"]:
        columns = s["value"][-1]
        s.set("out", ((batch[0], query[-2], columns), dtype))
    else:
        s.set("out", ((*batch, query[-2], value[-1]), dtype))
    s.set("weights", (weights, dtype))
    # Without dropout it takes no memory.
    s.set("kept", (weights if s.attrs["dropout"] else (0,), dtype))


def _check_mask(s: ShapeArgs, weights: Shape, dtype: np.dtype) -> None:
    if s.dtype("mask") not in (_BOOL, dtype):
        s.fail(
            f"mask wants bool, true where a query may look, or {dtype} to be added, and has"
            f" {s.dtype('mask')}"
        )
    mask = s["mask"]
    whole = s.broadcast(mask, weights)
    # A mask may be smaller than the weights and never larger, or it would change the shape of out.
    grown = any(was not in (-1, size) for was, size in zip(weights, whole, strict=False))
    if len(mask) > len(weights) or grown:
        shown = ", ".join("?" if size < 0 else str(size) for size in weights)
        s.fail(f"mask does not broadcast to the weights [{shown}]")


def _check_key_mask(s: ShapeArgs, weights: Shape) -> None:
    if s.dtype("key_mask") != _BOOL:
        s.fail(f"key_mask wants bool, true where there is a key, and has {s.dtype('key_mask')}")
    # Weights [T, S] have no axis N: queries would be taken for it.
    if len(weights) < 3:
        s.fail("key_mask is [N, S], and query, key and value have no axis N in front")
    mask_shape = s.rank("key_mask", 2)
    s.same_shape("key_mask and [N, S] of the weights", mask_shape, (weights[0], weights[-1]))


def _scaled(k: KernelArgs, query: Any) -> tuple[Any, Call]:
    """scale * query in scratch memory, and the call that puts it there."""
    out = k.scratch(query.shape, query.dtype)
    return out, partial(k.xp.multiply, query, _scale(k, query), out)


def _scale(k: KernelArgs, query: Any) -> Any:
    # Columns of width 0 have products of 0 whatever the scale; 1 stands in for the root of 0.
    return query.dtype.type(k.attrs["scale"] or 1 / sqrt(max(query.shape[-1], 1)))


def _masking(k: KernelArgs, weights: Any) -> list[Call]:
    """Calls that add 0 or minus infinity, or a float mask, to the products."""
    xp = k.xp
    mask = k.get("mask")
    keys = k.get("key_mask")
    added = []
    calls = []
    if k.get("past") is not None:
        bias, load = _after(k, weights)
        calls.append(load)
        added.append(bias)
    elif k.attrs["causal"]:
        # Made once when bound: the triangle follows from the shape alone.
        later = np.triu(np.full(weights.shape[-2:], -np.inf, weights.dtype), 1)
        added.append(xp.asarray(later))
    # Biases of several shapes are added one after the other, each broadcast: together they would be
    # an array as large as the weights.
    if keys is not None:
        keys = keys.reshape(len(keys), *(1,) * (weights.ndim - 2), keys.shape[1])
    for allowed in (mask, keys):
        if allowed is None or allowed.dtype != _BOOL:
            continue
        # In each run, as a mask is data; a bias is as small as its mask, so this is cheap.
        bias = k.scratch(allowed.shape, weights.dtype)
        calls += [partial(bias.fill, -np.inf), partial(xp.copyto, bias, 0, where=allowed)]
        added.append(bias)
    if mask is not None and mask.dtype != _BOOL:
        added.append(mask)
    return [*calls, *(partial(xp.add, weights, bias, weights) for bias in added)]


def _after(k: KernelArgs, weights: Any) -> tuple[Any, Call]:
    """Minus infinity at the keys after a row that begins behind `past` others, and what sets it."""
    xp = k.xp
    queries, keys = weights.shape[-2:]
    ahead = xp.asarray(np.arange(keys) - np.arange(queries)[:, None])
    past = k["past"].reshape(-1, *(1,) * (weights.ndim - 1))
    later = k.scratch((len(past), *(1,) * (weights.ndim - 3), queries, keys), np.bool_)
    bias = k.scratch(later.shape, weights.dtype)

    def load() -> None:
        xp.greater(ahead, past, out=later)
        bias.fill(0)
        xp.copyto(bias, -np.inf, where=later)

    return bias, recordable(load)


def _softmax(k: KernelArgs, x: Any) -> Call:
    """Softmax along the last axis, in place; a row of minus infinities becomes zeros."""
    xp = k.xp
    edge = k.scratch((*x.shape[:-1], 1), x.dtype)
    lowest = x.dtype.type(np.finfo(x.dtype).min)
    one = x.dtype.type(1)

    def run() -> None:
        # The largest comes off first, so that no exponential overflows.
        x.max(-1, edge, True)
        # A row of minus infinities: without it, minus infinity less itself would be NaN.
        xp.maximum(edge, lowest, out=edge)
        xp.subtract(x, edge, x)
        xp.exp(x, x)
        x.sum(-1, None, edge, True)
        xp.maximum(edge, one, out=edge)  # it is 1 or more, but for rows that see nothing
        xp.divide(x, edge, x)

    return recordable(run)


def _drops(k: KernelArgs) -> bool:
    return k.train and k.attrs["dropout"] > 0


def _dropping(k: KernelArgs, weights: Any) -> tuple[Any, Call | None]:
    """The weights that the values get, and the call that computes them."""
    if not _drops(k):
        return weights, None
    xp = k.xp
    p = k.attrs["dropout"]
    kept = k.get("kept")
    if kept is None:
        # No gradient asks for the factors.
        kept = k.scratch(weights.shape, weights.dtype)
    draw = draw_below(k, kept, 1 - p)
    # Scaled while training, so that testing needs no factor. At p = 1 nothing is kept, and 1 / 0 is
    # avoided.
    factor = kept.dtype.type(1 / (1 - p) if p < 1 else 0)
    # Not in place: the gradient of the softmax wants the weights before dropout.
    dropped = k.scratch(weights.shape, weights.dtype)

    def run() -> None:
        draw()
        xp.multiply(kept, factor, kept)
        xp.multiply(weights, kept, dropped)

    return dropped, run


@attention.kernel
def bind_attention(
    k: KernelArgs, stacked: Product = stacked, softmax: Callable[..., Call] = _softmax
) -> Call:
    """Kernel of attention on top of products of stacks, and of a softmax in place."""
    query, key, value, out = (
        split_heads(k[slot], k.attrs["heads"]) for slot in ("query", "key", "value", "out")
    )
    weights = k.get("weights")
    if weights is None:
        weights = k.scratch((*out.shape[:-1], key.shape[-2]), out.dtype)
    if not weights.size:
        # No key at all: rows that see nothing give zeros.
        return partial(k["out"].fill, 0)
    scaled, load = _scaled(k, query)
    # To the batch axes of the weights, of which query and key together may lack some of value.
    scaled = k.xp.broadcast_to(scaled, (*out.shape[:-1], query.shape[-1]))
    dropped, drop = _dropping(k, weights)
    return in_order(
        load,
        # A transposed view: matrix products read it as it is, so the keys are not copied.
        stacked(k.xp, scaled, key.swapaxes(-1, -2), weights),
        *_masking(k, weights),
        softmax(k, weights),
        drop,
        stacked(k.xp, dropped, value, out) if out.size else None,
    )


def _through_softmax(k: KernelArgs, out: Any, grad: Any, pull: Any) -> Call:
    """From the gradient of the dropped weights, in place, to the gradient of the masked products.

    The sum over a row of weight times gradient equals the sum of out times out_grad, a shorter row.
    """
    xp = k.xp
    weights = k["weights"]
    both = k.scratch(out.shape, out.dtype)
    edge = k.scratch((*out.shape[:-1], 1), out.dtype)

    def run() -> None:
        xp.multiply(out, grad, both)
        both.sum(-1, None, edge, True)
        xp.subtract(pull, edge, pull)
        # Rows that see nothing have weights of 0, and so a gradient of 0, without a case of their
        # own.
        xp.multiply(pull, weights, pull)

    return recordable(run)


@attention.backward("query", "key", "value", "mask")
def bind_attention_grad(
    k: KernelArgs,
    stacked: Product = stacked,
    through_softmax: Callable[..., Call] = _through_softmax,
) -> Call:
    """Kernel of its gradient, likewise."""
    xp = k.xp
    heads = k.attrs["heads"]
    weights = k["weights"]
    targets = {slot: k.get(f"{slot}_grad") for slot in ("query", "key", "value", "mask")}
    # Nothing was attended to, so no input has any influence.
    if not weights.size:
        return in_order(*(partial(t.fill, 0) for t in targets.values() if t is not None))
    query, key, value, out, grad = (
        split_heads(k[slot], heads) for slot in ("query", "key", "value", "out", "out_grad")
    )
    calls: list[Call | None] = []
    dropped = weights
    if targets["value"] is not None:
        # Computed again, one product, so that a net keeps two arrays [..., T, S] and not three.
        if _drops(k):
            dropped = k.scratch(weights.shape, weights.dtype)
            calls.append(partial(xp.multiply, weights, k["kept"], dropped))
        target = split_heads(targets["value"], heads)
        calls.append(_product(k, stacked, dropped.swapaxes(-1, -2), grad, target))
    # The gradient of value needs the weights alone; the others need a second product.
    if all(targets[slot] is None for slot in ("query", "key", "mask")):
        return in_order(*calls)
    pull = k.scratch(weights.shape, weights.dtype)
    calls.append(stacked(xp, grad, value.swapaxes(-1, -2), pull))
    if _drops(k):
        calls.append(partial(xp.multiply, pull, k["kept"], pull))
    calls.append(through_softmax(k, out, grad, pull))
    # A mask is added to the products, so it gets their gradient, summed over the axes along which
    # it was broadcast.
    if targets["mask"] is not None:
        calls.append(reducing(xp, pull, targets["mask"]))
    if targets["query"] is not None:
        target = split_heads(targets["query"], heads)
        calls.append(_product(k, stacked, pull, key, target))
        # The scale comes last here and first in the forward run: either way on the smaller array,
        # never on the weights.
        calls.append(partial(xp.multiply, target, _scale(k, query), target))
    # The scaled query comes from query again: scratch memory does not last from the forward run to
    # this one.
    if targets["key"] is not None:
        scaled, load = _scaled(k, query)
        target = split_heads(targets["key"], heads)
        calls += [load, _product(k, stacked, pull.swapaxes(-1, -2), scaled, target)]
    return in_order(*calls)


def _product(k: KernelArgs, stacked: Product, left: Any, right: Any, target: Any) -> Call:
    """target = left right, summed over the axes that the target was broadcast along."""
    if not target.size:
        return nothing
    # A key of one head for many queries, say: each gives a product, and their sum is the gradient.
    batch = np.broadcast_shapes(left.shape[:-2], right.shape[:-2])
    shape = (*batch, left.shape[-2], right.shape[-1])
    if shape == target.shape:
        return stacked(k.xp, left, right, target)
    whole = k.scratch(shape, target.dtype)
    return in_order(stacked(k.xp, left, right, whole), reducing(k.xp, whole, target))
