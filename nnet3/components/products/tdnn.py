"""TdnnComponent: an affine map of several frames side by side."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np

from ....framework.base.sizes.shape import ShapeArgs, count
from ....framework.fusion.rows.row_copies import fill_call
from ....framework.fusion.team import in_order, takes_blocks
from ....framework.ir.kernel_args import Call, KernelArgs
from ....framework.ir.registry import Slot, operator
from ....operators.backends.column_sums import sum_of_rows
from ....operators.backends.products.product_kernels import register_product_kernels
from ....operators.linear.matmul import Product, product
from ...index.indexes import IndexList
from ..base.component import Properties, UpdatableComponent
from ..base.dependence import Reads, offset_reads
from ..base.fields import BOOL, FLOAT, INT, INTS, MATRIX, VECTOR, Field
from ..base.initial import default_ranks, normal
from ..base.keys import Computed, key, optional, required
from ..base.lowering import OUT, Recipe, X
from ..base.preconditioning import FisherEstimate, precondition_product
from ..base.summary import flag, number, parameter_stats
from ..base.time_grid import OnTimeGrid, TimeGrid
from ..base.time_offsets import (
    FIRST,
    OFFSETS,
    ROWS,
    STRIDE,
    OffsetRows,
    check_offset_rows,
    rows_of_offsets,
)

_P = Properties
_NARROW = 64  # columns
_SPAN = 384
_SMALL = 1 << 17
"""Rows of the output that are taken together, and the weights of an offset up to which that pays:
6208 rows of 96 to 512 columns take 12.3 ms at once and 10.4 ms in spans, their gradients 25.3 and
19.1; with 512 to 512 columns the products alone decide."""


class TdnnComponent(OnTimeGrid, UpdatableComponent):
    """An affine transform of several frames side by side: y_t = sum_i x_{t+offset_i} W_i^T + b.

    `linear_params` [out, in * offsets], `bias_params` [out], empty if there is no bias.
    """

    time_offsets: list[int]
    linear_params: np.ndarray
    bias_params: np.ndarray
    orthonormal_constraint: float
    use_natural_gradient: bool
    num_samples_history: float
    alpha_in: float
    alpha_out: float
    rank_in: int
    rank_out: int

    indexes_type = OffsetRows
    own_fields = (
        Field("<TimeOffsets>", INTS, "time_offsets"),
        Field("<LinearParams>", MATRIX, "linear_params"),
        Field("<BiasParams>", VECTOR, "bias_params"),
        Field("<OrthonormalConstraint>", FLOAT, "orthonormal_constraint"),
        Field("<UseNaturalGradient>", BOOL, "use_natural_gradient"),
        Field("<NumSamplesHistory>", FLOAT, "num_samples_history"),
        Field(
            "<AlphaInOut>",
            FLOAT,
            "alpha_in",
            "alpha_out",
            older=Field("<Alpha>", FLOAT, "alpha_in"),
        ),
        Field("<RankInOut>", INT, "rank_in", "rank_out"),
    )
    own_keys = (
        key("time-offsets", "offsets"),
        *required(int, "input-dim", "output-dim"),
        *optional(
            float,
            param_stddev=Computed("1 / sqrt(input-dim * offsets)", -1.0),
            bias_mean=0.0,
            bias_stddev=1.0,
        ),
        *optional(float, orthonormal_constraint=0.0, num_samples_history=2000.0),
        *optional(float, alpha_in=4.0, alpha_out=4.0),
        *optional(
            int,
            rank_in=Computed("min(20, (input-dim * offsets + 1) / 2)", -1),
            rank_out=Computed("min(80, (output-dim + 1) / 2)", -1),
        ),
        *optional(bool, use_bias=True, use_natural_gradient=True),
    )
    trained = ("linear_params", "bias_params")
    update_period = 4  # of the natural gradient; files do not hold it

    @property
    def properties(self) -> Properties:
        return (
            _P.UPDATABLE
            | _P.REORDERS_INDEXES
            | _P.BACKPROP_ADDS
            | _P.BACKPROP_NEEDS_INPUT
            | (_P(0) if self.bias_params.size else _P.PROPAGATE_ADDS)
        )

    @property
    def input_dim(self) -> int:
        return self.linear_params.shape[1] // len(self.time_offsets)

    @property
    def output_dim(self) -> int:
        return self.linear_params.shape[0]

    def set_up(self, o: SimpleNamespace, rng: np.random.Generator) -> None:
        self.demand(bool(o.time_offsets), "time-offsets is empty")
        self.demand(o.input_dim > 0 and o.output_dim > 0, "dimensions must be positive")
        spliced = o.input_dim * len(o.time_offsets)
        stddev = spliced**-0.5 if o.param_stddev < 0 else o.param_stddev
        self.time_offsets = o.time_offsets
        self.linear_params = normal(rng, (o.output_dim, spliced), stddev)
        self.bias_params = np.zeros(0, np.float32)
        if o.use_bias:
            self.bias_params = normal(rng, o.output_dim, o.bias_stddev, o.bias_mean)
        default_ranks(o, spliced, o.output_dim)
        self.set_attributes(
            o,
            "orthonormal_constraint",
            "use_natural_gradient",
            "num_samples_history",
            "alpha_in",
            "alpha_out",
            "rank_in",
            "rank_out",
        )

    def after_read(self) -> None:
        super().after_read()
        if "alpha_out" not in self.__dict__:
            self.alpha_out = self.alpha_in

    def check(self) -> None:
        offsets = self.time_offsets
        rows, columns = self.linear_params.shape
        self.demand(len(offsets) > 0, "time-offsets is empty")
        self.demand(len(set(offsets)) == len(offsets), "a time offset is given twice")
        self.demand(
            rows > 0 and columns > 0 and columns % len(offsets) == 0,
            f"linear parameters [{rows}, {columns}] do not fit {len(offsets)} time offsets",
        )
        size = self.bias_params.size
        self.demand(size in (0, rows), f"{rows} rows of linear parameters, but {size} biases")

    def info(self) -> str:
        text = super().info()
        if self.orthonormal_constraint != 0:
            text += f", orthonormal-constraint={number(self.orthonormal_constraint)}"
        text += f", time-offsets={','.join(map(str, self.time_offsets))}"
        text += parameter_stats("linear-params", self.linear_params, norms=True)
        if self.bias_params.size:
            text += parameter_stats("bias", self.bias_params, mean=True)
        else:
            text += f", has-bias={flag(False)}"
        if not self.use_natural_gradient:
            return text + ", use-natural-gradient=false"
        return (
            f"{text}, rank-in={self.rank_in}, rank-out={self.rank_out}"
            f", num-samples-history={number(self.num_samples_history)}"
            f", update-period={self.update_period}"
            f", alpha-in={number(self.alpha_in)}, alpha-out={number(self.alpha_out)}"
        )

    def reads(self) -> Reads:
        return offset_reads(self.time_offsets, [True] * len(self.time_offsets))

    def grid(self, inputs: IndexList, outputs: IndexList) -> TimeGrid:
        grid = TimeGrid.of(inputs, outputs)
        if grid.step_out == 0:
            step = grid.step_in or 1
            grid = replace(grid, step_in=step, step_out=step)
        return grid.with_whole_blocks()

    def locate(self, grid: TimeGrid, rows: int) -> OffsetRows:
        first = tuple(grid.first_row(int(offset)) for offset in self.time_offsets)
        return OffsetRows(first, grid.reorder, rows)

    def lower(self, recipe: Recipe) -> None:
        inputs = {"x": X, "w": recipe.parameter("linear_params", self.linear_params)}
        if len(self.bias_params):
            inputs["b"] = recipe.parameter("bias_params", self.bias_params)
        recipe.op("nnet3.tdnn", OUT, attrs=OFFSETS, **inputs)

    def precondition(self, recipe: Recipe) -> None:
        if not self.use_natural_gradient:
            return
        history = self.num_samples_history
        precondition_product(
            recipe,
            FisherEstimate(recipe, "in", self.rank_in, 4, self.alpha_in, history),
            FisherEstimate(recipe, "out", self.rank_out, 4, self.alpha_out, history),
            self.linear_params.shape,
            ("linear_params", "bias_params" if len(self.bias_params) else None),
            OFFSETS,
        )


tdnn = operator(
    "nnet3.tdnn",
    doc=(
        "Affine map of K rows of the input for each row of the output: out[r] = b + sum over k of"
        " w[:, k*D : (k+1)*D] x[first[k] + stride * r]. x [N, D], w [M, K*D], b [M] ->"
        " out [rows, M]."
    ),
    inputs=[
        Slot("x", "[N, D]"),
        Slot("w", "[M, K*D]"),
        Slot("b", "[M]", optional=True, not_in_gradient=True),
    ],
    outputs=[Slot("out", "[rows, M]", not_in_gradient=True)],
    attrs=[FIRST, STRIDE, ROWS],
    source="Kaldi: nnet3/nnet-tdnn-component.cc",
)


@tdnn.shape_rule
def tdnn_shape(s: ShapeArgs) -> None:
    dtype = s.floats("x", "w", "b") if s.has("b") else s.floats("x", "w")
    cols = s.rank("x", 2)[1]
    units, taps = s.rank("w", 2)
    if s.has("b"):
        units = s.same("the rows of w and the length of b", units, s.rank("b", 1)[0])
    if cols == 0:
        s.fail("x has no columns")
    wanted = cols * len(s.attrs["first"]) if cols >= 0 else -1
    s.same("the columns of w and the columns of x, times offsets,", taps, wanted)
    check_offset_rows(s)
    s.set("out", ((s.attrs["rows"], units), dtype))


def _spliced(k: KernelArgs) -> tuple[Any, list[Call]]:
    """The input rows of all offsets beside one another, and the calls that put them there."""
    parts = rows_of_offsets(k, k["x"])
    width = k["x"].shape[1]
    whole = k.scratch((k.attrs["rows"], width * len(parts)), k["x"].dtype)
    return whole, [
        partial(k.xp.copyto, share, part)
        for share, part in zip(_blocks(whole, width), parts, strict=True)
    ]


def _spans(k: KernelArgs) -> list[slice]:
    """Ranges of the output's rows, which stay in the cache while all products take them."""
    rows = k.attrs["rows"]
    weights = count(k.shape("w")) // len(k.attrs["first"])
    short = rows < 2 * _SPAN or weights > _SMALL
    if k.xp is not np or short:
        return [slice(0, rows)]
    return [slice(begin, begin + _SPAN) for begin in range(0, rows, _SPAN)]


def _blocks(array: Any, width: int) -> list[Any]:
    """The blocks of `width` columns of a matrix: one for each offset."""
    return [array[:, begin : begin + width] for begin in range(0, array.shape[1], width)]


@tdnn.kernel
def bind_tdnn(k: KernelArgs, product: Product = product, *, tiles: bool = False) -> Call:
    """Kernel of `nnet3.tdnn` on top of a product of two matrices.

    Products of the offsets are added up. Where x is narrow, one product of all is quicker; so it is
    where the offsets follow each other, by our own tiles.
    """
    w = k["w"]
    out = k["out"]
    width = k["x"].shape[1]
    parts = rows_of_offsets(k, k["x"])
    begin = k.attrs["first"][0]
    neighbors = list(k.attrs["first"]) == [*range(begin, begin + len(parts))]
    if tiles and len(parts) > 1 and k.attrs["stride"] == 1 and neighbors:
        from ....operators.backends.products import row_products  # loaded by what computes

        whole = row_products.of_neighbors(parts[0], len(parts), w.T, out, k.get("b"))
        if whole is not None:
            return whole
    if len(parts) > 1 and width < _NARROW:
        x, load = _spliced(k)
        return in_order(*load, product(k.xp, x, w.T, out, bias=k.get("b")))
    (first, *others), (w_first, *w_others) = parts, _blocks(w, width)
    if not others:
        return product(k.xp, first, w.T, out, bias=k.get("b"))
    by = k.scratch(out.shape, out.dtype)

    def in_span(span: slice) -> list[Call]:
        target = out[span]
        calls = [product(k.xp, first[span], w_first.T, target, bias=k.get("b"))]
        for part, block in zip(others, w_others, strict=True):
            calls.append(product(k.xp, part[span], block.T, target, by=by[: len(target)]))
        return calls

    spans = _spans(k)
    whole = in_span(slice(0, len(out)))
    if len(spans) == 1 or takes_blocks(whole):
        return in_order(*whole)
    return in_order(*(call for span in spans for call in in_span(span)))


def _written(k: KernelArgs) -> int | None:
    """The offset whose rows of the input's gradient are written; other offsets' rows are added to.

    It is the first one: the others, span by span from the last on, then reach no row that it has
    yet to write. None where there are rows between an offset's rows.
    """
    first = k.attrs["first"]
    return int(np.argmin(first)) if k.attrs["stride"] == 1 and k.attrs["rows"] else None


def _cleared(k: KernelArgs, x_grad: Any) -> list[Call]:
    """Calls that set to zero what is only added to."""
    number = _written(k)
    if number is None:
        return [fill_call(x_grad, 0)]
    begin = k.attrs["first"][number]
    others = x_grad[:begin], x_grad[begin + k.attrs["rows"] :]
    return [fill_call(rows, 0) for rows in others if len(rows)]


@tdnn.backward("x", "w", "b")
def bind_tdnn_grad(k: KernelArgs, product: Product = product) -> Call:
    """Kernel of `nnet3.tdnn_grad` on top of a product of two matrices."""
    xp = k.xp
    w = k["w"]
    grad = k["out_grad"]
    calls = []
    width = w.shape[1] // len(k.attrs["first"])
    w_grad = k.get("w_grad")
    x_grad = k.get("x_grad")
    narrow = w_grad is not None and width < _NARROW
    if narrow:
        x, load = _spliced(k)
        calls += [*load, product(xp, grad.T, x, w_grad)]
    if k.get("b_grad") is not None:
        calls.append(sum_of_rows(k, grad, k["b_grad"]))
    if x_grad is not None:
        calls += _cleared(k, x_grad)
    spans = _spans(k)
    by_rows = None
    by_weights = None
    if x_grad is not None:
        by_rows = k.scratch((len(grad[spans[0]]), width), grad.dtype)
    if len(spans) > 1 and w_grad is not None and not narrow:
        by_weights = k.scratch((w.shape[0], width), grad.dtype)
    for span in reversed(spans):
        slopes = grad[span]
        if w_grad is not None and not narrow:
            by = None if span is spans[-1] else by_weights  # one span sets what others add to
            parts = rows_of_offsets(k, k["x"])
            for part, block in zip(parts, _blocks(w_grad, width), strict=True):
                calls.append(product(xp, slopes.T, part[span], block, by=by))
        if by_rows is not None:
            first = k.attrs["first"]
            written = _written(k)
            parts = rows_of_offsets(k, x_grad)
            blocks = _blocks(w, width)
            for number in sorted(range(len(first)), key=lambda one: one != written):
                by = None if number == written else by_rows[: len(slopes)]
                calls.append(product(xp, slopes, blocks[number], parts[number][span], by=by))
    return in_order(*calls)


register_product_kernels("nnet3.tdnn", bind_tdnn, tiles=True)
register_product_kernels("nnet3.tdnn_grad", bind_tdnn_grad)
