"""RestrictedAttentionComponent: attention over a window of time, with several heads."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from math import gcd
from types import SimpleNamespace
from typing import Any

import numpy as np

from ...framework.base.sizes.shape import ShapeArgs
from ...framework.fusion.team import in_order
from ...framework.ir.kernel_args import Call, KernelArgs
from ...framework.ir.registry import AttrSpec, Slot, operator
from ..index.indexes import IndexList
from .base.component import Component, Properties
from .base.dependence import Reads, offset_reads
from .base.fields import BOOL, DOUBLE, DOUBLE_MATRIX, DOUBLE_VECTOR, FLOAT, INT, Field
from .base.keys import Computed, optional, required
from .base.lowering import OUT, Recipe, X
from .base.statistics import NO_GRADIENT, keep_totals, totals_slots
from .base.summary import flag, number
from .base.time_grid import OnTimeGrid, TimeGrid

_P = Properties
_LEAST = 1e-20


@dataclass(frozen=True)
class AttentionRows:
    """The input row of the first query, and the distance in rows between neighbors in context."""

    first_query: int
    shift: int
    rows: int  # of the output


class RestrictedAttentionComponent(OnTimeGrid, Component):
    """Attention over a fixed window of frames, with a position code, in `num_heads` heads.

    Input of each head: key (key_dim), value (value_dim), query (key_dim + context_dim); output:
    value (value_dim) and, with `output_context`, the weights (context_dim). Statistics:
    `entropy_stats` [heads] and `posterior_stats` [heads, context] are sums over `stats_count` rows.
    """

    num_heads: int
    key_dim: int
    value_dim: int
    num_left_inputs: int
    num_right_inputs: int
    time_stride: int
    num_left_inputs_required: int
    num_right_inputs_required: int
    output_context: bool
    key_scale: float
    stats_count: float
    entropy_stats: np.ndarray
    posterior_stats: np.ndarray

    fields = (
        Field("<NumHeads>", INT, "num_heads"),
        Field("<KeyDim>", INT, "key_dim"),
        Field("<ValueDim>", INT, "value_dim"),
        Field("<NumLeftInputs>", INT, "num_left_inputs"),
        Field("<NumRightInputs>", INT, "num_right_inputs"),
        Field("<TimeStride>", INT, "time_stride"),
        Field("<NumLeftInputsRequired>", INT, "num_left_inputs_required"),
        Field("<NumRightInputsRequired>", INT, "num_right_inputs_required"),
        Field("<OutputContext>", BOOL, "output_context"),
        Field("<KeyScale>", FLOAT, "key_scale"),
        Field("<StatsCount>", DOUBLE, "stats_count"),
        Field("<EntropyStats>", DOUBLE_VECTOR, "entropy_stats"),
        Field("<PosteriorStats>", DOUBLE_MATRIX, "posterior_stats"),
    )
    indexes_type = AttentionRows
    keys = (
        *required(int, "key-dim", "value-dim", "num-left-inputs", "num-right-inputs"),
        *optional(int, num_heads=1, time_stride=1),
        *optional(
            int,
            num_left_inputs_required=Computed("num-left-inputs", -1),
            num_right_inputs_required=Computed("num-right-inputs", -1),
        ),
        *optional(bool, output_context=True),
        *optional(float, key_scale=Computed("1 / sqrt(key-dim)", -1.0)),
    )
    flags = (
        _P.REORDERS_INDEXES
        | _P.BACKPROP_NEEDS_INPUT
        | _P.PROPAGATE_ADDS
        | _P.BACKPROP_ADDS
        | _P.STORES_STATS
        | _P.USES_MEMO
    )

    @property
    def context_dim(self) -> int:
        """Frames of the window."""
        return self.num_left_inputs + 1 + self.num_right_inputs

    @property
    def query_dim(self) -> int:
        """Columns of the query of one head: for the key, and for the position."""
        return self.key_dim + self.context_dim

    @property
    def input_dim(self) -> int:
        return self.num_heads * (self.key_dim + self.value_dim + self.query_dim)

    @property
    def output_dim(self) -> int:
        return self.num_heads * (self.value_dim + (self.context_dim if self.output_context else 0))

    def configure(self, o: SimpleNamespace, rng: np.random.Generator) -> None:
        super().configure(o, rng)
        self.demand(o.key_dim > 0, "key-dim must be positive")
        if o.key_scale < 0:
            self.key_scale = float(np.float32(o.key_dim**-0.5))
        for side in ("left", "right"):
            if getattr(o, f"num_{side}_inputs_required") < 0:
                needed = getattr(o, f"num_{side}_inputs")
                setattr(self, f"num_{side}_inputs_required", needed)
        self.zero_stats()

    def zero_stats(self) -> None:
        """Forget all statistics."""
        self.stats_count = 0.0
        self.entropy_stats = np.zeros(0)
        self.posterior_stats = np.zeros((0, 0))

    def check(self) -> None:
        super().check()
        for name in ("num_heads", "key_dim", "value_dim", "time_stride"):
            self.demand(getattr(self, name) > 0, f"{name.replace('_', '-')} must be positive")
        for side in ("left", "right"):
            inputs = getattr(self, f"num_{side}_inputs")
            needed = getattr(self, f"num_{side}_inputs_required")
            self.demand(
                0 <= needed <= inputs, f"num-{side}-inputs-required={needed} of {inputs} inputs"
            )
        self.demand(self.context_dim > 1, "a window of one frame is no attention")
        self.demand(0 < self.key_scale <= 1, "key-scale is not in (0, 1]")
        self.demand(self.stats_count >= 0, "the count is negative")

    def info(self) -> str:
        text = (
            f"{super().info()}, num-heads={self.num_heads}, time-stride={self.time_stride}"
            f", key-dim={self.key_dim}, value-dim={self.value_dim}"
            f", num-left-inputs={self.num_left_inputs}, num-right-inputs={self.num_right_inputs}"
            f", context-dim={self.context_dim}"
            f", num-left-inputs-required={self.num_left_inputs_required}"
            f", num-right-inputs-required={self.num_right_inputs_required}"
            f", output-context={flag(self.output_context)}, key-scale={number(self.key_scale)}"
        )
        if self.stats_count != 0:
            averages = self.entropy_stats / self.stats_count
            text += ", entropy=" + "".join(f"{number(v)}," for v in averages)
            for i, row in enumerate(self.posterior_stats[:5] / self.stats_count):
                text += f" posterior-stats[{i}]=" + "".join(f"{number(v)}," for v in row)
            text += f" stats-count={number(self.stats_count)}"
        return text

    def reads(self) -> Reads:
        numbers = range(-self.num_left_inputs, self.num_right_inputs + 1)
        left, right = self.num_left_inputs_required, self.num_right_inputs_required
        required = [-left <= number <= right for number in numbers]
        return offset_reads([number * self.time_stride for number in numbers], required)

    def grid(self, inputs: IndexList, outputs: IndexList) -> TimeGrid:
        """One step for inputs and outputs."""
        grid = TimeGrid.of(inputs, outputs)
        stride = int(self.time_stride)
        step_in, step_out = grid.step_in or stride, grid.step_out or stride
        step = gcd(step_in, step_out, stride)
        start = grid.start_out - stride * int(self.num_left_inputs)
        last_out = grid.start_out + (grid.count_out - 1) * step_out
        last = last_out + stride * int(self.num_right_inputs)
        return replace(
            grid,
            step_in=step,
            step_out=step,
            start_in=start,
            count_in=1 + (last - start) // step,
            count_out=1 + (last_out - grid.start_out) // step,
        )

    def locate(self, grid: TimeGrid, rows: int) -> AttentionRows:
        shift = int(self.time_stride) // grid.step_in * len(grid.images)
        return AttentionRows(grid.first_row(0), shift, rows)

    def lower(self, recipe: Recipe) -> None:
        where = recipe.indexes
        attrs = {
            "heads": int(self.num_heads),
            "key_dim": int(self.key_dim),
            "value_dim": int(self.value_dim),
            "context": int(self.context_dim),
            "key_scale": float(self.key_scale),
            "output_context": bool(self.output_context),
            "first_query": where.first_query,
            "shift": where.shift,
            "rows": where.rows,
        }
        weights = recipe.temp()
        recipe.op("nnet3.attention", {"out": OUT, "weights": weights}, attrs=attrs, x=X)
        shape = (int(self.num_heads), int(self.context_dim))
        totals = {
            "posterior": recipe.state("posterior_stats", self.posterior_stats, shape),
            "entropy": recipe.state("entropy_stats", self.entropy_stats, shape[:1]),
            "count": recipe.state("stats_count", self.stats_count),
        }
        recipe.collect("nnet3.attention_statistics", when="forward", weights=weights, **totals)


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
        AttrSpec("shift", "int", "rows between neighbors in a window", minimum=1),
        AttrSpec("rows", "int", "rows of the output", minimum=0),
    ],
    source="Kaldi: nnet3/attention.cc",
)


@attention.shape_rule
def attention_shape(s: ShapeArgs) -> None:
    a = s.attrs
    dtype = s.floats("x")
    rows, cols = s.rank("x", 2)
    wanted = a["heads"] * (2 * a["key_dim"] + a["value_dim"] + a["context"])
    s.same("the columns of x and the columns of all heads", cols, wanted)
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
    xp = k.xp
    x = _Heads(k, k["x"])
    a = k.attrs
    out = k["out"].reshape(a["rows"], a["heads"], k["out"].shape[1] // a["heads"])
    mixed, rest = out[:, :, : a["value_dim"]], out[:, :, a["value_dim"] :]
    shape = (a["rows"], a["heads"], a["context"])
    weights = k.get("weights")
    weights = k.scratch(shape, out.dtype) if weights is None else weights
    edge = k.scratch((*shape[:2], 1), out.dtype)
    products = k.scratch(x.queries.shape, out.dtype)
    shares = k.scratch(mixed.shape, out.dtype)
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
    xp = k.xp
    a = k.attrs
    x_grad = k["x_grad"]
    weights = k["weights"]
    x = _Heads(k, k["x"])
    target = _Heads(k, x_grad)
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


_IN, _OUT = totals_slots(posterior="[H, C]", entropy="[H]", count="[1]: rows so far")

attention_statistics = operator(
    "nnet3.attention_statistics",
    doc=(
        "Adds to the statistics of an attention with weights [N, H, C]: their sums over rows to"
        " posterior [H, C], their entropies to entropy [H], N to count [1]."
    ),
    inputs=[Slot("weights", "[N, H, C]"), *_IN],
    outputs=_OUT,
    source="Kaldi: nnet3/nnet-attention-component.cc",
    no_gradient=NO_GRADIENT,
)


@attention_statistics.shape_rule
def attention_statistics_shape(s: ShapeArgs) -> None:
    s.floats("weights")
    shape = s.rank("weights", 3)
    keep_totals(s, posterior=shape[1:], entropy=shape[1:2], count=(1,))


@attention_statistics.kernel
def attention_statistics_kernel(k: KernelArgs) -> Call:
    xp = k.xp
    weights = k["weights"]
    work = k.scratch(weights.shape, weights.dtype)
    sums, entropies = (k.scratch(weights.shape[1:end], weights.dtype) for end in (3, 2))
    return in_order(
        partial(xp.sum, weights, axis=0, out=sums),
        partial(xp.add, k["posterior"], sums, k["posterior_out"]),
        partial(xp.maximum, weights, weights.dtype.type(_LEAST), out=work),
        partial(xp.log, work, out=work),
        partial(xp.multiply, work, weights, work),
        partial(xp.sum, work, axis=(0, 2), out=entropies),
        partial(xp.subtract, k["entropy"], entropies, k["entropy_out"]),
        partial(xp.add, k["count"], weights.shape[0], k["count_out"]),
    )
