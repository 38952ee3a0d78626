"""RestrictedAttentionComponent: attention over a window of time, with several heads."""

from __future__ import annotations

from typing import Any

from ...framework.base.shape import ShapeArgs
from ...framework.ir.kernel_args import Call, KernelArgs
from ...framework.ir.registry import AttrSpec, Slot, operator
from .lowering import OUT, Recipe, X, lowers


@lowers("RestrictedAttentionComponent")
def lower_restricted_attention_component(component: Any, recipe: Recipe) -> None:
    c, where = component, recipe.indexes
    attrs = {
        "heads": int(c.num_heads),
        "key_dim": int(c.key_dim),
        "value_dim": int(c.value_dim),
        "context": int(c.context_dim),
        "key_scale": float(c.key_scale),
        "output_context": bool(c.output_context),
        "first_query": where.first_query,
        "shift": where.shift,
        "rows": where.rows,
    }
    weights = recipe.temp()
    recipe.op("nnet3.attention", {"out": OUT, "weights": weights}, attrs=attrs, x=X)
    shape = (int(c.num_heads), int(c.context_dim))
    totals = {
        "posterior": recipe.state("posterior_stats", c.posterior_stats, shape),
        "entropy": recipe.state("entropy_stats", c.entropy_stats, shape[:1]),
        "count": recipe.state("stats_count", c.stats_count),
    }
    recipe.keep("nnet3.attention_statistics", weights=weights, **totals)


attention = operator(
    "nnet3.attention",
    doc=(
        "Attention of each output row over C input rows, the window. For each of H heads a row of"
        " x [N, H*(K+V+K+C)] holds key, value, query and a score for each place in the window."
        " Output row r has the query of row first_query + r; its window are the rows r + shift * c."
        " weights = softmax over c of (key_scale * query . key + score), [rows, H, C];"
        " out [rows, H*V], or [rows, H*(V+C)] with `output_context`: the weighted sum of values,"
        " then the weights."
    ),
    inputs=[Slot("x", "[N, H*(2K+V+C)]")],
    outputs=[
        Slot("out", "[rows, H*V] or [rows, H*(V+C)]", not_in_gradient=True),
        Slot("weights", "[rows, H, C]", intermediate=True),
    ],
    attrs=[
        AttrSpec("heads", "int", "H", minimum=1),
        AttrSpec("key_dim", "int", "K", minimum=1),
        AttrSpec("value_dim", "int", "V", minimum=1),
        AttrSpec("context", "int", "C: rows in a window", minimum=1),
        AttrSpec("key_scale", "float", "factor of the products of query and key"),
        AttrSpec("output_context", "bool", "append the weights to the output", False),
        AttrSpec("first_query", "int", "input row of the first query", minimum=0),
        AttrSpec("shift", "int", "rows between neighbours in a window", minimum=1),
        AttrSpec("rows", "int", "rows of the output", minimum=0),
    ],
    source="Kaldi: nnet3/attention.cc",
)


@attention.shape_rule
def attention_shape(s: ShapeArgs) -> None:
    a, dtype = s.attrs, s.floats("x")
    rows, cols = s.rank("x", 2)
    wanted = a["heads"] * (2 * a["key_dim"] + a["value_dim"] + a["context"])
    s.same("the columns of x and those of all heads", cols, wanted)
    last = max(a["first_query"], a["shift"] * (a["context"] - 1)) + a["rows"] - 1
    if a["rows"] and 0 <= rows <= last:
        s.fail(f"rows up to {last} are read and x has {rows}")
    per_head = a["value_dim"] + (a["context"] if a["output_context"] else 0)
    s.set("out", ((a["rows"], a["heads"] * per_head), dtype))
    s.set("weights", ((a["rows"], a["heads"], a["context"]), dtype))


class _Heads:
    """Views of a matrix laid out as x: keys and values of all rows, queries of the outputs'."""

    def __init__(self, k: KernelArgs, x: Any) -> None:
        a = k.attrs
        key, value = a["key_dim"], a["value_dim"]
        per_head = x.reshape(x.shape[0], a["heads"], x.shape[1] // a["heads"])
        at = slice(a["first_query"], a["first_query"] + a["rows"])
        self.keys = per_head[:, :, :key]
        self.values = per_head[:, :, key : key + value]
        self.queries = per_head[at, :, key + value : 2 * key + value]
        self.scores = per_head[at, :, 2 * key + value :]
        self.windows = [
            slice(a["shift"] * c, a["shift"] * c + a["rows"]) for c in range(a["context"])
        ]


@attention.kernel
def attention_kernel(k: KernelArgs) -> Call:
    xp, x, a = k.xp, _Heads(k, k["x"]), k.attrs
    out = k["out"].reshape(a["rows"], a["heads"], k["out"].shape[1] // a["heads"])
    mixed, rest = out[:, :, : a["value_dim"]], out[:, :, a["value_dim"] :]
    shape = (a["rows"], a["heads"], a["context"])
    weights = k.get("weights")
    weights = k.scratch(shape, out.dtype) if weights is None else weights
    edge = k.scratch((*shape[:2], 1), out.dtype)
    products, shares = k.scratch(x.queries.shape, out.dtype), k.scratch(mixed.shape, out.dtype)
    factor = out.dtype.type(a["key_scale"])

    def compute() -> None:
        for c, window in enumerate(x.windows):
            xp.multiply(x.queries, x.keys[window], products)
            xp.sum(products, axis=2, out=weights[:, :, c])
        xp.multiply(weights, factor, weights)
        xp.add(weights, x.scores, weights)
        xp.max(weights, axis=2, keepdims=True, out=edge)
        xp.subtract(weights, edge, weights)
        xp.exp(weights, out=weights)
        xp.sum(weights, axis=2, keepdims=True, out=edge)
        xp.divide(weights, edge, weights)
        mixed.fill(0)
        for c, window in enumerate(x.windows):
            xp.multiply(x.values[window], weights[:, :, c, None], shares)
            xp.add(mixed, shares, mixed)
        if rest.size:
            xp.copyto(rest, weights)

    return compute


@attention.backward("x")
def attention_grad_kernel(k: KernelArgs) -> Call:
    xp, a, x_grad, weights = k.xp, k.attrs, k["x_grad"], k["weights"]
    x, target = _Heads(k, k["x"]), _Heads(k, x_grad)
    whole = k["out_grad"]
    grad = whole.reshape(a["rows"], a["heads"], whole.shape[1] // a["heads"])
    mixed, rest = grad[:, :, : a["value_dim"]], grad[:, :, a["value_dim"] :]
    delta = k.scratch(weights.shape, weights.dtype)
    work = k.scratch(weights.shape, weights.dtype)
    edge = k.scratch((*weights.shape[:2], 1), weights.dtype)
    shares, products = (k.scratch(v.shape, weights.dtype) for v in (mixed, x.queries))
    factor = weights.dtype.type(a["key_scale"])

    def compute() -> None:
        x_grad.fill(0)
        for c, window in enumerate(x.windows):
            xp.multiply(mixed, x.values[window], shares)
            xp.sum(shares, axis=2, out=delta[:, :, c])
            xp.multiply(mixed, weights[:, :, c, None], shares)
            xp.add(target.values[window], shares, target.values[window])
        if rest.size:
            xp.add(delta, rest, delta)
        xp.multiply(delta, weights, work)
        xp.sum(work, axis=2, keepdims=True, out=edge)
        xp.subtract(delta, edge, delta)
        xp.multiply(delta, weights, delta)
        xp.copyto(target.scores, delta)
        xp.multiply(delta, factor, delta)
        for c, window in enumerate(x.windows):
            share = delta[:, :, c, None]
            xp.multiply(x.keys[window], share, products)
            xp.add(target.queries, products, target.queries)
            xp.multiply(x.queries, share, products)
            xp.add(target.keys[window], products, target.keys[window])

    return compute
