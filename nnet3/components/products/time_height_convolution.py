"""Convolution over time and height, the layer of Kaldi's CNNs."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np

from ....framework.base.sizes.shape import ShapeArgs
from ....framework.fusion.team import in_order
from ....framework.ir.kernel_args import Call, KernelArgs
from ....framework.ir.registry import AttrSpec, Slot, operator
from ....operators.backends.products.product_kernels import register_product_kernels
from ....operators.base.blocks import chunks_of
from ....operators.base.calls import reducing
from ....operators.linear.matmul import Product, product
from ...index.indexes import IndexList
from ..base.component import Properties, UpdatableComponent
from ..base.dependence import Reads, offset_reads
from ..base.fields import BOOL, FLOAT, INT, INTS, MARK, MATRIX, PAIRS, VECTOR, Field
from ..base.initial import default_ranks, normal
from ..base.keys import Computed, key, optional, required
from ..base.lowering import OUT, Recipe, X
from ..base.preconditioning import (
    FisherEstimate,
    add_natural,
    joined_gradients,
    split_gradients,
)
from ..base.summary import number, parameter_stats
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
_HEIGHTS = ("num_filters_in", "num_filters_out", "height_in", "height_out", "height_subsample_out")
_PAIR = re.compile(r"\s*([+-]?\d{1,9})\s*,\s*([+-]?\d{1,9})\s*\Z")


class TimeHeightConvolutionComponent(OnTimeGrid, UpdatableComponent):
    """A convolution over time (rows) and height; each row holds, for each height, the filters.

    `offsets`: (time, height) of each tap, sorted; output height h sees input height
    h * height_subsample_out + height offset, zero outside. `linear_params`
    [num_filters_out, offsets * num_filters_in], `bias_params` [num_filters_out]. Inputs at
    `required_time_offsets` must be there; others count as zero where they are not.
    """

    num_filters_in: int
    num_filters_out: int
    height_in: int
    height_out: int
    height_subsample_out: int
    offsets: list[tuple[int, int]]
    required_time_offsets: list[int]
    linear_params: np.ndarray
    bias_params: np.ndarray
    max_memory_mb: float
    use_natural_gradient: bool
    num_minibatches_history: float
    alpha_in: float
    alpha_out: float
    rank_in: int
    rank_out: int

    own_fields = (
        Field("<Model>", MARK),
        Field("<ConvolutionModel>", MARK),
        Field("<NumFiltersIn>", INT, "num_filters_in"),
        Field("<NumFiltersOut>", INT, "num_filters_out"),
        Field("<HeightIn>", INT, "height_in"),
        Field("<HeightOut>", INT, "height_out"),
        Field("<HeightSubsampleOut>", INT, "height_subsample_out"),
        Field("<Offsets>", PAIRS, "offsets"),
        Field("<RequiredTimeOffsets>", INTS, "required_time_offsets"),
        Field("</ConvolutionModel>", MARK),
        Field("<LinearParams>", MATRIX, "linear_params"),
        Field("<BiasParams>", VECTOR, "bias_params"),
        Field("<MaxMemoryMb>", FLOAT, "max_memory_mb"),
        Field("<UseNaturalGradient>", BOOL, "use_natural_gradient"),
        Field("<NumMinibatchesHistory>", FLOAT, "num_minibatches_history"),
        Field("<AlphaInOut>", FLOAT, "alpha_in", "alpha_out"),
        Field("<RankInOut>", INT, "rank_in", "rank_out"),
    )
    own_keys = (
        *required(int, "num-filters-in", "num-filters-out", "height-in", "height-out"),
        *optional(
            int,
            height_subsample_out=1,
            rank_in=Computed("min(80, (num-filters-in * offsets + 2) / 2)", -1),
            rank_out=Computed("min(80, (num-filters-out + 1) / 2)", -1),
        ),
        *optional(str, offsets=Computed("height-offsets by time-offsets")),
        key("height-offsets", "offsets", Computed("of offsets")),
        key("time-offsets", "offsets", Computed("of offsets")),
        key("required-time-offsets", "offsets", Computed("all")),
        *optional(
            float,
            max_memory_mb=200.0,
            param_stddev=Computed("1 / sqrt(num-filters-in * offsets)", -1.0),
            bias_stddev=0.0,
        ),
        *optional(float, alpha_in=4.0, alpha_out=4.0, num_minibatches_history=4.0),
        *optional(bool, init_unit=False, use_natural_gradient=True),
    )
    trained = ("linear_params", "bias_params")
    indexes_type = OffsetRows
    flags = (
        _P.UPDATABLE
        | _P.REORDERS_INDEXES
        | _P.BACKPROP_ADDS
        | _P.BACKPROP_NEEDS_INPUT
        | _P.INPUT_CONTIGUOUS
        | _P.OUTPUT_CONTIGUOUS
    )

    @property
    def input_dim(self) -> int:
        return self.num_filters_in * self.height_in

    @property
    def output_dim(self) -> int:
        return self.num_filters_out * self.height_out

    @property
    def all_time_offsets(self) -> list[int]:
        """The time offsets, sorted, each once."""
        return sorted({t for t, _ in self.offsets})

    @property
    def time_offsets_modulus(self) -> int:
        """The greatest common divisor of the differences of time offsets (0: only one)."""
        times = self.all_time_offsets
        return math.gcd(*(b - a for a, b in zip(times, times[1:], strict=False)))

    def set_up(self, o: SimpleNamespace, rng: np.random.Generator) -> None:
        self.set_attributes(o, *_HEIGHTS)
        self.offsets = _parse_offsets(o)
        required_offsets = o.required_time_offsets
        if required_offsets is None:
            required_offsets = self.all_time_offsets
        self.required_time_offsets = required_offsets
        self.check_model()
        self.demand(o.max_memory_mb > 0, "max-memory-mb must be positive")
        shape = self.num_filters_out, self.num_filters_in * len(self.offsets)
        stddev = shape[1] ** -0.5 if o.param_stddev < 0 else o.param_stddev
        self.linear_params = self._unit(shape) if o.init_unit else normal(rng, shape, stddev)
        self.bias_params = normal(rng, self.num_filters_out, o.bias_stddev)
        default_ranks(o, shape[1] + 1, shape[0], most_in=80)
        self.set_attributes(
            o,
            "max_memory_mb",
            "use_natural_gradient",
            "num_minibatches_history",
            "alpha_in",
            "alpha_out",
            "rank_in",
            "rank_out",
        )

    def _unit(self, shape: tuple[int, int]) -> np.ndarray:
        """Parameters that copy the input: a unit matrix at the offset (0, 0)."""
        self.demand(self.num_filters_in == self.num_filters_out, "init-unit wants as many filters")
        self.demand((0, 0) in self.offsets, "init-unit wants the offset 0,0")
        params = np.zeros(shape, np.float32)
        begin = self.offsets.index((0, 0)) * self.num_filters_in
        params[:, begin : begin + self.num_filters_in] = np.eye(self.num_filters_in)
        return params

    def check_model(self) -> None:
        """Refuse offsets that do not fit the heights, as Kaldi does."""
        for name in _HEIGHTS:
            self.demand(getattr(self, name) > 0, f"{name.replace('_', '-')} must be positive")
        offsets, times = self.offsets, self.all_time_offsets
        self.demand(
            len(offsets) > 0 and all(a < b for a, b in zip(offsets, offsets[1:], strict=False)),
            "offsets must be sorted, each once, and at least one",
        )
        needed = self.required_time_offsets
        self.demand(
            len(needed) > 0 and all(a < b for a, b in zip(needed, needed[1:], strict=False)),
            "required-time-offsets must be sorted, each once, and at least one",
        )
        self.demand(set(needed) <= set(times), "a required time offset is not among the offsets")
        seen = [(self._seeing(height), time, height) for time, height in offsets]
        for heights, time, height in seen:
            self.demand(len(heights) > 0, f"the offset {time},{height} is never used")
        covered = 0  # the output heights below see an input that is required
        for heights in sorted((h for h, time, _ in seen if time in needed), key=lambda h: h.start):
            if heights.start <= covered:
                covered = max(covered, heights.stop)
        self.demand(
            covered >= self.height_out, f"output height {covered} sees no input that is required"
        )

    def _seeing(self, offset: int) -> range:
        """The output heights for which the input height at a height offset is not padding."""
        step = self.height_subsample_out
        first = max(0, -(offset // step))
        return range(first, min(self.height_out - 1, (self.height_in - 1 - offset) // step) + 1)

    def check(self) -> None:
        self.check_model()
        super().check()
        shape = self.num_filters_out, self.num_filters_in * len(self.offsets)
        there = self.linear_params.shape
        self.demand(there == shape, f"linear parameters have shape {there}, not {shape}")
        size = self.bias_params.size
        self.demand(size == shape[0], f"{shape[0]} output filters, but {size} biases")

    def info(self) -> str:
        dims = ", ".join(f"{n.replace('_', '-')}={getattr(self, n)}" for n in _HEIGHTS)
        offsets = " ".join(f"{t},{h}" for t, h in self.offsets)
        needed = ",".join(map(str, self.required_time_offsets))
        text = (
            f"{super().info()} {dims}, {{time,height}}-offsets=[{offsets}]"
            f", required-time-offsets=[{needed}]"
            f", input-dim={self.input_dim}, output-dim={self.output_dim}"
            f"{parameter_stats('filter-params', self.linear_params)}"
            f"{parameter_stats('bias-params', self.bias_params, mean=True)}"
            f", num-params={self.num_parameters}, max-memory-mb={number(self.max_memory_mb)}"
            f", use-natural-gradient={int(self.use_natural_gradient)}"
        )
        if self.use_natural_gradient:
            text += (
                f", num-minibatches-history={number(self.num_minibatches_history)}"
                f", rank-in={self.rank_in}, rank-out={self.rank_out}"
                f", alpha={number(self.alpha_in)}"
            )
        return text

    def reads(self) -> Reads:
        required = set(self.required_time_offsets)
        times = self.all_time_offsets
        return offset_reads(times, [time in required for time in times])

    def grid(self, inputs: IndexList, outputs: IndexList) -> TimeGrid:
        """Inputs cover all offsets, some by padding."""
        grid = TimeGrid.of(inputs, outputs)
        offsets, modulus = self.all_time_offsets, self.time_offsets_modulus
        if modulus:
            step = math.gcd(grid.step_in, modulus, grid.step_out)
            last_in = grid.start_in + grid.step_in * (grid.count_in - 1)
            start = min(grid.start_in, grid.start_out + offsets[0])
            last = grid.start_out + (grid.count_out - 1) * grid.step_out + offsets[-1]
            count = 1 + (max(last, last_in) - start) // step
            grid = replace(grid, start_in=start, step_in=step, count_in=count)
        if grid.step_out == 0:
            grid = replace(grid, step_out=grid.step_in)
        return grid if grid.step_out == grid.step_in else grid.with_whole_blocks()

    def locate(self, grid: TimeGrid, rows: int) -> OffsetRows:
        first = tuple(grid.first_row(int(time)) for time, _ in self.offsets)
        return OffsetRows(first, grid.reorder, rows)

    def lower(self, recipe: Recipe) -> None:
        w = recipe.parameter("linear_params", self.linear_params)
        b = recipe.parameter("bias_params", self.bias_params)
        attrs = OFFSETS | {
            "height_offsets": [int(height) for _, height in self.offsets],
            "height_in": int(self.height_in),
            "height_out": int(self.height_out),
            "height_step": int(self.height_subsample_out),
        }
        recipe.op("nnet3.time_height_convolution", OUT, attrs=attrs, x=X, w=w, b=b)

    def precondition(self, recipe: Recipe) -> None:
        if not self.use_natural_gradient:
            return
        units, width = self.linear_params.shape
        batches = self.num_minibatches_history
        before = FisherEstimate(recipe, "in", self.rank_in, 1, self.alpha_in, batches=batches)
        after = FisherEstimate(recipe, "out", self.rank_out, 1, self.alpha_out, batches=batches)
        rows, scale_in = before.apply(joined_gradients(recipe), width + 1, summed=True)
        turned, back = recipe.temp(), recipe.temp()
        add_natural(recipe, "transpose", {"x": rows}, {"out": turned})
        cols, scale_out = after.apply(turned, units, summed=True)
        add_natural(recipe, "transpose", {"x": cols}, {"out": back})
        split_gradients(recipe, back, scale_in + scale_out)


def _parse_offsets(o: SimpleNamespace) -> list[tuple[int, int]]:
    """(time, height) offsets from `offsets=t,h;t,h` or from time-offsets and height-offsets."""
    if o.offsets is not None:
        matches = [_PAIR.match(part) for part in o.offsets.split(";")]
        if not all(matches):
            raise ValueError(f"offsets={o.offsets}: pairs time,height;time,height are wanted")
        return sorted((int(m[1]), int(m[2])) for m in matches if m)
    if o.height_offsets is None or o.time_offsets is None:
        raise ValueError("wants offsets=, or height-offsets= and time-offsets=")
    for name, values in (("height", o.height_offsets), ("time", o.time_offsets)):
        if not values or sorted(set(values)) != values:
            raise ValueError(f"{name}-offsets must be sorted, each once, and at least one")
    return [(t, h) for t in o.time_offsets for h in o.height_offsets]


convolution = operator(
    "nnet3.time_height_convolution",
    doc=(
        "Convolution over time and height. A row of x [N, HI*F] holds HI heights of F filters; out"
        " [rows, HO*M]. For each offset o, out[r, h] += w[:, o*F : (o+1)*F] x[first[o] +"
        " stride * r, h * height_step + height_offsets[o]], where heights outside of x count as 0;"
        " b [M] is added at every height. w [M, O*F]."
    ),
    inputs=[
        Slot("x", "[N, HI*F]"),
        Slot("w", "[M, O*F]"),
        Slot("b", "[M]", not_in_gradient=True),
    ],
    outputs=[Slot("out", "[rows, HO*M]", not_in_gradient=True)],
    attrs=[
        FIRST,
        STRIDE,
        ROWS,
        AttrSpec("height_offsets", "ints", "height that each offset adds"),
        AttrSpec("height_in", "int", "HI", minimum=1),
        AttrSpec("height_out", "int", "HO", minimum=1),
        AttrSpec("height_step", "int", "heights of x to one of out", 1, minimum=1),
    ],
    source="Kaldi: nnet3/convolution.cc",
)


@convolution.shape_rule
def convolution_shape(s: ShapeArgs) -> None:
    dtype = s.floats("x", "w", "b")
    attrs = s.attrs
    cols = s.rank("x", 2)[1]
    units, taps = s.rank("w", 2)
    units = s.same("the rows of w and the length of b", units, s.rank("b", 1)[0])
    if len(attrs["first"]) != len(attrs["height_offsets"]):
        s.fail("first and height_offsets want one number for each offset")
    if cols >= 0 and cols % attrs["height_in"]:
        s.fail(f"the {cols} columns of x do not fall into {attrs['height_in']} heights")
    wanted = cols // attrs["height_in"] * len(attrs["first"]) if cols >= 0 else -1
    s.same("the columns of w and the filters of x, times offsets,", taps, wanted)
    check_offset_rows(s)
    s.set("out", ((attrs["rows"], attrs["height_out"] * units if units >= 0 else -1), dtype))


def _places(k: KernelArgs, array: Any) -> list[tuple[slice, Any]]:
    """For each offset: the output heights whose input exists, and these inputs [rows, h, F]."""
    attrs = k.attrs
    places = []
    height, step = attrs["height_in"], attrs["height_step"]
    for part, offset in zip(rows_of_offsets(k, array), attrs["height_offsets"], strict=True):
        begin = max(0, -(offset // step))
        end = max(begin, min(attrs["height_out"], (height - 1 - offset) // step + 1))
        image = part.reshape(part.shape[0], height, part.shape[1] // height)
        first = begin * step + offset
        places.append((slice(begin, end), image[:, first : first + (end - begin) * step : step]))
    return places


class _Patches:
    """Scratch memory for the inputs of a range of rows [rows, HO, O, F], filled and emptied."""

    def __init__(self, k: KernelArgs, array: Any) -> None:
        attrs = k.attrs
        self.xp = k.xp
        self.places = _places(k, array)
        shape = (attrs["height_out"], len(self.places), array.shape[1] // attrs["height_in"])
        cells = shape[0] * shape[1] * shape[2]
        self.chunks = chunks_of(attrs["rows"], cells * array.itemsize)
        longest = max((c.stop - c.start for c in self.chunks), default=0)
        self.memory = k.scratch((longest, *shape), array.dtype)
        self.taps = shape[1] * shape[2]

    def of(self, rows: slice) -> Any:
        """The patches as a matrix [rows * HO, O*F]."""
        part = self.memory[: rows.stop - rows.start]
        return part.reshape(part.shape[0] * part.shape[1], self.taps)

    def load(self, rows: slice) -> list[Call]:
        """Calls that fill the patches; heights outside of the input become 0."""
        part = self.memory[: rows.stop - rows.start]
        calls = []
        for i, (heights, values) in enumerate(self.places):
            for edge in (part[:, : heights.start, i], part[:, heights.stop :, i]):
                if edge.size:
                    calls.append(partial(edge.fill, 0))
            calls.append(partial(self.xp.copyto, part[:, heights, i], values[rows]))
        return calls

    def spread(self, rows: slice) -> list[Call]:
        """Calls that add the patches to where they come from."""
        part = self.memory[: rows.stop - rows.start]
        calls = []
        for i, (heights, values) in enumerate(self.places):
            target = values[rows]
            calls.append(partial(self.xp.add, target, part[:, heights, i], target))
        return calls


def _by_height(k: KernelArgs, array: Any, units: int) -> tuple[Any, list[Call]]:
    """[rows, HO*M] as [rows * HO, M], and the calls that fill it where that is a copy."""
    rows = array.shape[0] * k.attrs["height_out"]
    if array.flags.c_contiguous:
        return array.reshape(rows, units), []
    copy = k.scratch(array.shape, array.dtype)
    return copy.reshape(rows, units), [partial(k.xp.copyto, copy, array)]


@convolution.kernel
def bind_convolution(k: KernelArgs, product: Product = product) -> Call:
    """Kernel of `nnet3.time_height_convolution` on top of a product of two matrices."""
    w = k["w"]
    b = k["b"]
    out = k["out"]
    height = k.attrs["height_out"]
    patches = _Patches(k, k["x"])
    target = out
    if not out.flags.c_contiguous:
        target = k.scratch(out.shape, out.dtype)
    flat = target.reshape(out.shape[0] * height, w.shape[0])
    calls = []
    for rows in patches.chunks:
        part = flat[rows.start * height : rows.stop * height]
        calls += [*patches.load(rows), product(k.xp, patches.of(rows), w.T, part, bias=b)]
    if target is not out:
        calls.append(partial(k.xp.copyto, out, target))
    return in_order(*calls)


@convolution.backward("x", "w", "b")
def bind_convolution_grad(k: KernelArgs, product: Product = product) -> Call:
    """Kernel of the gradient of `nnet3.time_height_convolution` on top of a product."""
    xp = k.xp
    w = k["w"]
    height = k.attrs["height_out"]
    grad, load = _by_height(k, k["out_grad"], w.shape[0])
    calls: list[Call | None] = [*load]
    if k.get("b_grad") is not None:
        calls.append(reducing(xp, grad, k["b_grad"]))
    w_grad, x_grad = k.get("w_grad"), k.get("x_grad")
    if w_grad is not None:
        patches = _Patches(k, k["x"])
        share = k.scratch(w.shape, w.dtype)
        calls.append(partial(w_grad.fill, 0))
        for rows in patches.chunks:
            part = grad[rows.start * height : rows.stop * height]
            calls += [
                *patches.load(rows),
                product(xp, part.T, patches.of(rows), share),
                partial(xp.add, w_grad, share, w_grad),
            ]
    if x_grad is not None:
        patches = _Patches(k, x_grad)
        calls.append(partial(x_grad.fill, 0))
        for rows in patches.chunks:
            part = grad[rows.start * height : rows.stop * height]
            calls += [product(xp, part, w, patches.of(rows)), *patches.spread(rows)]
    return in_order(*calls)


register_product_kernels("nnet3.time_height_convolution", bind_convolution)
register_product_kernels("nnet3.time_height_convolution_grad", bind_convolution_grad)
