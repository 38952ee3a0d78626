"""Statistics over time: their extraction, and pooling over windows.

Rows are sorted by (n, x, t), so that every window is a range of rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from ...framework.base.errors import ShapeError
from ...framework.base.sizes.shape import ShapeArgs
from ...framework.fusion.team import in_order
from ...framework.ir.kernel_args import Call, KernelArgs
from ...framework.ir.registry import AttrSpec, Slot, operator
from ..index.indexes import Columns, IndexList
from .base.component import Component, Properties
from .base.dependence import Column, Reads
from .base.fields import BOOL, FLOAT, INT, Field
from .base.keys import Computed, key, optional
from .base.lowering import OUT, Recipe, X

_P = Properties
_SOURCE = "Kaldi: nnet3/nnet-general-component.cc"


@dataclass(frozen=True)
class RowRanges:
    """For each output row, the input rows `begin` to `end` (exclusive); int64 [N] each."""

    begin: np.ndarray
    end: np.ndarray


class StatisticsExtractionComponent(Component):
    """Sums over `output_period` frames: how many, sum of x, and sum of squares if
    `include_variance`."""

    input_period: int
    output_period: int
    include_variance: bool

    fields = (
        Field("<InputDim>", INT, "input_dim"),
        Field("<InputPeriod>", INT, "input_period"),
        Field("<OutputPeriod>", INT, "output_period"),
        Field("<IncludeVarinance>", BOOL, "include_variance"),  # Kaldi's spelling
    )
    indexes_type = RowRanges
    keys = (
        key("input-dim", int),
        *optional(int, input_period=1, output_period=1),
        *optional(bool, include_variance=True),
    )

    @property
    def properties(self) -> Properties:
        needs_input = _P.BACKPROP_NEEDS_INPUT if self.include_variance else _P(0)
        return _P.PROPAGATE_ADDS | _P.REORDERS_INDEXES | needs_input

    @property
    def output_dim(self) -> int:
        return 1 + self.input_dim * (2 if self.include_variance else 1)

    def check(self) -> None:
        super().check()
        period, output = self.input_period, self.output_period
        self.demand(
            period > 0 and output > 0 and output % period == 0,
            f"input-period={period} does not divide output-period={output}",
        )
        self.check_window(output // period)
        self.within("period", output)

    def reads(self) -> Reads:
        period = self.output_period

        def columns(t: Any, x: Any) -> list[Column]:
            start = t - t % period
            return [(start + step, x) for step in range(0, period, self.input_period)]

        return Reads(columns, None)

    def reorder(self, inputs: Columns, outputs: Columns) -> tuple[Columns, Columns]:
        return _sorted(inputs), _sorted(outputs)

    def precompute(self, inputs: IndexList, outputs: IndexList) -> RowRanges:
        t = outputs.indexes[:, 1]
        start = t - t % self.output_period
        return _ranges(inputs.indexes, outputs.indexes, start, start + self.output_period)

    def lower(self, recipe: Recipe) -> None:
        attrs = _range_attrs(recipe.indexes) | {"variance": bool(self.include_variance)}
        recipe.op("nnet3.statistics", OUT, attrs=attrs, x=X)


class StatisticsPoolingComponent(Component):
    """Means, and with `output_stddevs` deviations, from the sums of StatisticsExtractionComponent
    within a window of `left_context` and `right_context` frames; the log of the count first,
    `num_log_count_features` times."""

    input_period: int
    left_context: int
    right_context: int
    num_log_count_features: int
    output_stddevs: bool
    variance_floor: float

    fields = (
        Field("<InputDim>", INT, "input_dim"),
        Field("<InputPeriod>", INT, "input_period"),
        Field("<LeftContext>", INT, "left_context"),
        Field("<RightContext>", INT, "right_context"),
        Field("<NumLogCountFeatures>", INT, "num_log_count_features"),
        Field("<OutputStddevs>", BOOL, "output_stddevs"),
        Field("<VarianceFloor>", FLOAT, "variance_floor"),
    )
    indexes_type = RowRanges
    keys = (
        key("input-dim", int),
        *optional(int, input_period=1),
        *(
            key(name, int, Computed("must be given", -1))
            for name in ("left-context", "right-context")
        ),
        *optional(int, num_log_count_features=0),
        *optional(bool, output_stddevs=False),
        *optional(float, variance_floor=1e-10),
    )

    @property
    def properties(self) -> Properties:
        flags = _P.REORDERS_INDEXES | _P.BACKPROP_ADDS
        if self.output_stddevs or self.num_log_count_features > 0:
            flags |= _P.BACKPROP_NEEDS_OUTPUT
        if self.num_log_count_features == 0:
            flags |= _P.BACKPROP_NEEDS_INPUT
        return flags

    @property
    def output_dim(self) -> int:
        return self.input_dim + self.num_log_count_features - 1

    def check(self) -> None:
        super().check()
        left, right = self.left_context, self.right_context
        self.demand(
            left >= 0 and right >= 0 and left + right > 0,
            "left-context and right-context must not be negative, nor both zero",
        )
        self.demand(
            self.input_period > 0 and left % self.input_period == right % self.input_period == 0,
            f"input-period={self.input_period} does not divide the contexts {left} and {right}",
        )
        self.check_window((left + right) // self.input_period + 1)
        self.demand(self.num_log_count_features >= 0, "num-log-count-features is negative")
        self.demand(0 < self.variance_floor < 1, "variance-floor is not between 0 and 1")
        self.demand(
            not self.output_stddevs or self.input_dim % 2 == 1,
            f"output-stddevs wants an odd input-dim, not {self.input_dim}",
        )

    def reads(self) -> Reads:
        steps = tuple(range(-self.left_context, self.right_context + 1, self.input_period))

        def columns(t: Any, x: Any) -> list[Column]:
            return [(t + step, x) for step in steps]

        def allowed(t: Any) -> Any:
            return t % self.input_period == 0

        return Reads(columns, None, allowed, steps)

    def reorder(self, inputs: Columns, outputs: Columns) -> tuple[Columns, Columns]:
        return _sorted(inputs), _sorted(outputs)

    def precompute(self, inputs: IndexList, outputs: IndexList) -> RowRanges:
        t = outputs.indexes[:, 1]
        first = t - self.left_context
        last = t + self.right_context + 1
        return _ranges(inputs.indexes, outputs.indexes, first, last)

    def lower(self, recipe: Recipe) -> None:
        attrs = _range_attrs(recipe.indexes) | {
            "log_counts": int(self.num_log_count_features),
            "stddevs": bool(self.output_stddevs),
            "variance_floor": float(self.variance_floor),
        }
        recipe.op("nnet3.pool_statistics", OUT, attrs=attrs, x=X)


def _sorted(rows: Columns) -> Columns:
    """Rows by n, then x, then t."""
    n, t, x = rows.indexes.T
    return Columns.of(rows.indexes[np.lexsort((t, x, n))])


def _ranges(
    inputs: np.ndarray, outputs: np.ndarray, first: np.ndarray, last: np.ndarray
) -> RowRanges:
    """Ranges of the sorted `inputs` with the n and x of each output and first <= t < last."""
    _, number = np.unique(
        np.concatenate((inputs[:, ::2], outputs[:, ::2])), axis=0, return_inverse=True
    )
    number = number.reshape(-1).astype(np.int64) << 32
    keys = number[: len(inputs)] + inputs[:, 1]
    begin = np.searchsorted(keys, number[len(inputs) :] + first)
    end = np.searchsorted(keys, number[len(inputs) :] + last)
    empty = np.flatnonzero(end <= begin)
    if len(empty):
        n, t, x = outputs[empty[0]].tolist()
        raise ShapeError(f"statistics for (n, t, x) = ({n}, {t}, {x}) have no input")
    return RowRanges(begin, end)


def _range_attrs(where: RowRanges) -> dict[str, np.ndarray]:
    return {"begin": where.begin.astype(np.int64), "end": where.end.astype(np.int64)}


def _check_ranges(s: ShapeArgs) -> int:
    begin, end = s.attrs["begin"], s.attrs["end"]
    if begin.ndim != 1 or begin.shape != end.shape or (begin >= end).any():
        s.fail("begin and end want one range of rows for each output, none empty")
    rows = s.rank("x", 2)[0]
    if len(begin) and (begin.min() < 0 or 0 <= rows < end.max()):
        s.fail(f"rows {begin.min()} to {end.max()} are read and x has {rows}")
    return len(begin)


def range_sums(k: KernelArgs, source: Any, begin: np.ndarray, end: np.ndarray, out: Any) -> Any:
    """A call: out[i] = sum of the rows begin[i] to end[i] of `source`; an empty range gives 0.

    It goes by ranges where these are few and long, else by places within them.
    """
    xp = k.xp
    lengths = end - begin
    longest = int(lengths.max(initial=0))
    if not source.shape[0] or longest <= 0:
        return partial(out.fill, 0)
    if len(begin) <= longest:
        ranges = enumerate(zip(begin.tolist(), end.tolist(), strict=True))
        return in_order(*(partial(xp.sum, source[a:b], axis=0, out=out[i]) for i, (a, b) in ranges))
    gathered = k.scratch(out.shape, out.dtype)
    places = []
    for place in range(longest):
        there = np.flatnonzero(lengths > place)
        rows = xp.asarray(begin[there] + place)
        places.append((None if len(there) == len(begin) else xp.asarray(there), rows))
    options = {"mode": "clip"} if xp is np else {}

    def compute() -> None:
        out.fill(0)
        for there, rows in places:
            part = gathered[: len(rows)]
            xp.take(source, rows, axis=0, out=part, **options)
            if there is None:
                xp.add(out, part, out)
            else:  # each row once
                out[there] += part

    return compute


def transposed(begin: np.ndarray, end: np.ndarray, rows: int) -> tuple[np.ndarray, np.ndarray]:
    """For each of `rows` input rows, the range of outputs whose own ranges hold it.

    The ranges must move on with the outputs, begin and end alike.
    """
    every = np.arange(rows)
    return np.searchsorted(end, every, side="right"), np.searchsorted(begin, every, side="right")


_RANGES = [
    AttrSpec("begin", "tensor", "[R] first input row of each output"),
    AttrSpec("end", "tensor", "[R] row after the last one"),
]

statistics = operator(
    "nnet3.statistics",
    doc=(
        "Sums over ranges of rows: out[r] = (count, sum of x, sum of x squared) over the rows"
        " begin[r] to end[r] of x [N, D]; out [R, 1 + 2D], or [R, 1 + D] without `variance`."
    ),
    inputs=[Slot("x", "[N, D]")],
    outputs=[Slot("out", "[R, 1 + 2D] or [R, 1 + D]", not_in_gradient=True)],
    attrs=[*_RANGES, AttrSpec("variance", "bool", "with sums of squares", True)],
    source=_SOURCE,
)


@statistics.shape_rule
def statistics_shape(s: ShapeArgs) -> None:
    rows = _check_ranges(s)
    cols = s["x"][1]
    sums = 2 if s.attrs["variance"] else 1
    s.set("out", ((rows, 1 + sums * cols if cols >= 0 else -1), s.floats("x")))


@statistics.kernel
def statistics_kernel(k: KernelArgs) -> Call:
    xp = k.xp
    x = k["x"]
    out = k["out"]
    begin = k.attrs["begin"]
    end = k.attrs["end"]
    width = x.shape[1]
    counts = xp.asarray((end - begin).astype(out.dtype))
    calls = [
        partial(xp.copyto, out[:, 0], counts),
        range_sums(k, x, begin, end, out[:, 1 : 1 + width]),
    ]
    if k.attrs["variance"]:
        squares = k.scratch(x.shape, x.dtype)
        calls += [
            partial(xp.multiply, x, x, squares),
            range_sums(k, squares, begin, end, out[:, 1 + width :]),
        ]
    return in_order(*calls)


@statistics.backward("x")
def statistics_grad_kernel(k: KernelArgs) -> Call:
    xp = k.xp
    grad = k["out_grad"]
    x_grad = k["x_grad"]
    rows, width = x_grad.shape
    begin, end = transposed(k.attrs["begin"], k.attrs["end"], rows)
    calls = [range_sums(k, grad[:, 1 : 1 + width], begin, end, x_grad)]
    if k.attrs["variance"]:
        share = k.scratch(x_grad.shape, x_grad.dtype)
        calls += [
            range_sums(k, grad[:, 1 + width :], begin, end, share),
            partial(xp.multiply, share, k["x"], share),
            partial(xp.multiply, share, share.dtype.type(2), share),
            partial(xp.add, x_grad, share, x_grad),
        ]
    return in_order(*calls)


pool_statistics = operator(
    "nnet3.pool_statistics",
    doc=(
        "Means over windows from counts and sums: x [N, 1 + D] holds a count and sums; over the"
        " rows begin[r] to end[r] their totals c and s give out[r] = (log c, L times; s / c)."
        " With `stddevs` the second half of s / c, means of squares, becomes"
        " sqrt(max(it - mean^2, variance_floor)). out [R, L + D]. No gradient passes to the"
        " counts, and the gradient of a deviation does not see its floor."
    ),
    inputs=[Slot("x", "[N, 1 + D]")],
    outputs=[Slot("out", "[R, L + D]")],
    attrs=[
        *_RANGES,
        AttrSpec("log_counts", "int", "L", 0, minimum=0),
        AttrSpec("stddevs", "bool", "deviations for the second half", False),
        AttrSpec("variance_floor", "float", "least variance", 1e-10, minimum=0.0),
    ],
    source=_SOURCE,
)


@pool_statistics.shape_rule
def pool_statistics_shape(s: ShapeArgs) -> None:
    rows = _check_ranges(s)
    cols = s["x"][1]
    if cols == 0 or (s.attrs["stddevs"] and cols > 0 and cols % 2 == 0):
        s.fail(f"x has {cols} columns; wants a count, then as many means as squares")
    s.set("out", ((rows, s.attrs["log_counts"] + cols - 1 if cols > 0 else -1), s.floats("x")))


@pool_statistics.kernel
def pool_statistics_kernel(k: KernelArgs) -> Call:
    xp = k.xp
    x = k["x"]
    out = k["out"]
    logs = k.attrs["log_counts"]
    begin, end = k.attrs["begin"], k.attrs["end"]
    totals = k.scratch((len(begin), x.shape[1]), x.dtype)
    counts = totals[:, :1]
    means = out[:, logs:]
    calls = [
        range_sums(k, x, begin, end, totals),
        partial(xp.divide, totals[:, 1:], counts, means),
    ]
    if logs:
        calls += [partial(xp.log, counts, out=counts), partial(xp.copyto, out[:, :logs], counts)]
    if k.attrs["stddevs"]:
        half = means.shape[1] // 2
        mean, deviation = means[:, :half], means[:, half:]
        squares = k.scratch(mean.shape, x.dtype)
        floor = x.dtype.type(k.attrs["variance_floor"])
        calls += [
            partial(xp.multiply, mean, mean, squares),
            partial(xp.subtract, deviation, squares, deviation),
            partial(xp.maximum, deviation, floor, out=deviation),
            partial(xp.sqrt, deviation, out=deviation),
        ]
    return in_order(*calls)


@pool_statistics.backward("x")
def pool_statistics_grad_kernel(k: KernelArgs) -> Call:
    xp = k.xp
    x = k["x"]
    out = k["out"]
    x_grad = k["x_grad"]
    logs = k.attrs["log_counts"]
    begin, end = k.attrs["begin"], k.attrs["end"]
    counts = k.scratch((len(begin), 1), x.dtype)
    part = k.scratch((len(begin), x.shape[1] - 1), x.dtype)
    calls = [partial(xp.copyto, part, k["out_grad"][:, logs:])]
    if logs:
        calls.append(partial(xp.exp, out[:, :1], out=counts))
    else:
        calls.append(range_sums(k, x[:, :1], begin, end, counts))
    if k.attrs["stddevs"]:
        half = part.shape[1] // 2
        mean = out[:, logs : logs + half]
        deviation = out[:, logs + half :]
        d_mean, d_deviation = part[:, :half], part[:, half:]
        share = k.scratch(mean.shape, x.dtype)
        calls += [
            partial(xp.divide, d_deviation, deviation, d_deviation),
            partial(xp.multiply, mean, d_deviation, share),
            partial(xp.subtract, d_mean, share, d_mean),
            partial(xp.multiply, d_deviation, x.dtype.type(0.5), d_deviation),
        ]
    calls += [
        partial(xp.divide, part, counts, part),
        partial(x_grad[:, :1].fill, 0),
        range_sums(k, part, *transposed(begin, end, x_grad.shape[0]), x_grad[:, 1:]),
    ]
    return in_order(*calls)
