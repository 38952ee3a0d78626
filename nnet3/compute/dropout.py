"""Random masks: dropout of elements, rows and sequences, and SpecAugment.

A mask is an operator of its own that draws from the run's random state; its product with the input
is another. In test mode components lower to plain operators. The state of `train` plays no part:
as in Kaldi, a component is random unless it is in test mode itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from ...framework.base.shape import ShapeArgs
from ...framework.ir.kernel_args import Call, KernelArgs
from ...framework.ir.registry import AttrSpec, Slot, operator
from ...operators.base.calls import in_order
from .elementwise import blocks_of, scale_by
from .lowering import OUT, Recipe, X, lowers
from .time_grid import precomputes

_SOURCE = "Kaldi: nnet3/nnet-general-component.cc"
_NO_GRADIENT = "a random mask depends on no input's values"


@dataclass(frozen=True)
class MaskRows:
    """For each row, which of `count` masks applies to it; int64 [N]."""

    rows: np.ndarray
    count: int


@dataclass(frozen=True)
class SequenceRows:
    """Rows ordered by sequence and time, int64 [N], and the number of rows of each sequence."""

    order: np.ndarray
    lengths: tuple[int, ...]


@precomputes("GeneralDropoutComponent")
def precompute_general_dropout_component(
    component: Any, inputs: np.ndarray, outputs: np.ndarray
) -> MaskRows:
    n, t, _ = inputs.astype(np.int64).T
    period = component.time_period
    pairs = np.stack((n, t // period if period else np.zeros_like(t)), axis=1)
    masks, rows = np.unique(pairs, axis=0, return_inverse=True)
    return MaskRows(rows.reshape(-1), len(masks))


@precomputes("SpecAugmentTimeMaskComponent")
def precompute_spec_augment_time_mask_component(
    component: Any, inputs: np.ndarray, outputs: np.ndarray
) -> SequenceRows:
    n, t, _ = inputs.T
    lengths = np.unique(n, return_counts=True)[1]
    return SequenceRows(np.lexsort((t, n)), tuple(lengths.tolist()))


@lowers("DropoutComponent")
def lower_dropout_component(component: Any, recipe: Recipe) -> None:
    p = float(component.dropout_proportion)
    if component.test_mode:
        recipe.op("scale", OUT, attrs={"scale": 1.0 - p}, x=X)
        return
    mask = recipe.temp()
    attrs = {"columns": 1 if component.dropout_per_frame else int(component.dim), "p": p}
    recipe.op("nnet3.dropout_mask", mask, attrs=attrs, like=X)
    scale_by(recipe, mask)


@lowers("DropoutMaskComponent")
def lower_dropout_mask_component(component: Any, recipe: Recipe) -> None:
    p, columns = float(component.dropout_proportion), int(component.output_dim)
    if component.test_mode or p == 0:
        value = 1.0 if component.continuous or p == 0 else 1.0 - p
        recipe.op("fill_constant", OUT, attrs={"shape": [recipe.rows, columns], "value": value})
        return
    attrs = {
        "rows": recipe.rows,
        "columns": columns,
        "p": p,
        "continuous": bool(component.continuous),
        "exclusive": not component.continuous and columns in (2, 3),
    }
    recipe.op("nnet3.dropout_mask", OUT, attrs=attrs)


@lowers("GeneralDropoutComponent")
def lower_general_dropout_component(component: Any, recipe: Recipe) -> None:
    p, specaugment = (
        float(component.dropout_proportion),
        float(component.specaugment_max_proportion),
    )
    if component.test_mode or (p == 0 and specaugment == 0):
        recipe.op("assign", OUT, x=X)
        return
    mask, where = recipe.temp(), recipe.indexes
    shape = {"rows": where.count, "columns": int(component.block_dim)}
    if specaugment:
        attrs = {"proportion": specaugment, "regions": int(component.specaugment_max_regions)}
        recipe.op("nnet3.spec_augment_mask", mask, attrs=shape | attrs)
    else:
        attrs = {"p": p, "continuous": bool(component.continuous), "scaled": True}
        recipe.op("nnet3.dropout_mask", mask, attrs=shape | attrs)
    recipe.op("nnet3.multiply_rows", OUT, attrs={"rows": where.rows}, x=X, mask=mask)


@lowers("SpecAugmentTimeMaskComponent")
def lower_spec_augment_time_mask_component(component: Any, recipe: Recipe) -> None:
    if component.test_mode or component.zeroed_proportion == 0:
        recipe.op("assign", OUT, x=X)
        return
    mask = recipe.temp()
    attrs = {
        "order": recipe.indexes.rows,
        "lengths": list(recipe.indexes.lengths),
        "proportion": float(component.zeroed_proportion),
        "longest": int(component.time_mask_max_frames),
    }
    recipe.op("nnet3.time_mask", mask, attrs=attrs)
    scale_by(recipe, mask)


_ROWS = AttrSpec("rows", "int", "rows of the mask; -1: those of `like`", -1)
_COLUMNS = AttrSpec("columns", "int", "columns of the mask", minimum=1)
_DTYPE = AttrSpec("dtype", "dtype", "of the mask, where there is no `like`", np.dtype("float32"))
_LIKE = Slot(
    "like",
    "[N, ...]: its rows are counted, its values are not read",
    optional=True,
    shape_only=True,
)


def _mask_shape(s: ShapeArgs) -> None:
    rows = s.attrs["rows"]
    if rows < 0:
        if not s.has("like"):
            s.fail("wants rows, or an input `like`")
        rows = s["like"][0]
    dtype = s.dtype("like") if s.has("like") else s.attrs["dtype"]
    s.set("out", ((rows, s.attrs["columns"]), dtype))


dropout_mask = operator(
    "nnet3.dropout_mask",
    doc=(
        "Random mask [rows, columns]: 0 with probability p, else 1 (`scaled`: 1 / (1 - p));"
        " `continuous`: uniform between 1 - 2p and 1 + 2p. `exclusive`: the first two columns are"
        " never both 0, as long as p <= 0.5."
    ),
    inputs=[_LIKE],
    outputs=[Slot("out", "[rows, columns]")],
    attrs=[
        _ROWS,
        _COLUMNS,
        AttrSpec("p", "float", "probability of a zero", 0.5, 0.0, 1.0),
        AttrSpec("continuous", "bool", "uniform instead of zeros and ones", False),
        AttrSpec("scaled", "bool", "divide by 1 - p, so that the mean is 1", False),
        AttrSpec("exclusive", "bool", "zeros of the first two columns exclude each other", False),
        _DTYPE,
    ],
    source=_SOURCE,
    shape=_mask_shape,
    no_gradient=_NO_GRADIENT,
    random=True,
)


def _uniform(k: KernelArgs, out: Any) -> tuple[Any, Callable[[], None]]:
    """Memory for uniform numbers of the shape of `out`, and the call that draws them."""
    direct = out.flags.c_contiguous and out.dtype != np.float16
    dtype = np.dtype("float32") if out.dtype == np.float16 else out.dtype
    drawn = out if direct else k.scratch(out.shape, dtype)
    state = k.state

    def draw() -> None:
        state.generator.random(drawn.shape, dtype, out=drawn)

    return drawn, draw


@dropout_mask.kernel
def dropout_mask_kernel(k: KernelArgs) -> Call:
    xp, out, p = k.xp, k["out"], k.attrs["p"]
    drawn, draw = _uniform(k, out)
    real = drawn.dtype.type
    if k.attrs["continuous"]:
        return in_order(
            draw,
            partial(xp.multiply, drawn, real(4 * p), drawn),
            partial(xp.add, drawn, real(1 - 2 * p), out),
        )
    calls = [draw]
    if k.attrs["exclusive"]:  # the other end of the same number
        calls.append(partial(xp.subtract, real(1), drawn[:, 0], drawn[:, 1]))
    kept = k.scratch(out.shape, bool)
    value = out.dtype.type(1 / (1 - p) if k.attrs["scaled"] and p < 1 else 1)
    return in_order(
        *calls,
        partial(xp.greater, drawn, real(p), kept),
        partial(xp.multiply, kept, value, out),
    )


spec_augment_mask = operator(
    "nnet3.spec_augment_mask",
    doc=(
        "SpecAugment over columns: each row of the mask [rows, columns] is 1 but for a range of"
        " columns (cyclic) of a random length up to proportion * columns; `regions` - 1 times"
        " two stretches of a random half are swapped, which splits the range."
    ),
    inputs=[_LIKE],
    outputs=[Slot("out", "[rows, columns]")],
    attrs=[
        _ROWS,
        _COLUMNS,
        AttrSpec(
            "proportion", "float", "greatest part of the columns that is zeroed", 0.0, 0.0, 1.0
        ),
        AttrSpec("regions", "int", "greatest number of zeroed ranges", 1, minimum=1),
        _DTYPE,
    ],
    source=_SOURCE,
    shape=_mask_shape,
    no_gradient=_NO_GRADIENT,
    random=True,
)


@spec_augment_mask.kernel
def spec_augment_mask_kernel(k: KernelArgs) -> Call:
    xp, out, state = k.xp, k["out"], k.state
    rows, columns = out.shape
    most = int(columns * k.attrs["proportion"] + 0.5)
    half, quarter = columns // 2, columns // 2 // 2
    every, step = xp.arange(columns), xp.arange(quarter)
    every_row = xp.arange(rows)[:, None]

    def draw(limit: int) -> Any:
        return xp.floor(state.generator.random((rows, 1)) * limit).astype(every.dtype)

    def compute() -> None:
        length, start = draw(most + 1), draw(columns)
        mask = ((every - start) % columns >= length).astype(out.dtype)
        for _ in range(1, k.attrs["regions"]):
            start = draw(columns)
            left, right = (start + step) % columns, (start + half - step) % columns
            source = xp.broadcast_to(every, mask.shape).copy()
            source[every_row, left] = right
            source[every_row, right] = left
            mask = xp.take_along_axis(mask, source, axis=1)
        xp.copyto(out, mask)

    return compute


time_mask = operator(
    "nnet3.time_mask",
    doc=(
        "SpecAugment over time: mask [N, 1] in which, along each sequence, stretches of ones and"
        " of zeros alternate; zeros last 1 to `longest` rows, ones 1 to longest * (1 - proportion)"
        " / proportion. A sequence begins with ones with probability `proportion`."
    ),
    outputs=[Slot("out", "[N, 1]")],
    attrs=[
        AttrSpec("order", "tensor", "[N] rows ordered by sequence and time"),
        AttrSpec("lengths", "ints", "rows of each sequence", minimum=1),
        AttrSpec("proportion", "float", "of zeros", 0.25, 0.0, 1.0),
        AttrSpec("longest", "int", "rows of the longest stretch of zeros", 10, minimum=1),
        _DTYPE,
    ],
    source=_SOURCE,
    no_gradient="a random mask has no inputs",
    random=True,
)


@time_mask.shape_rule
def time_mask_shape(s: ShapeArgs) -> None:
    order, lengths, p = s.attrs["order"], s.attrs["lengths"], s.attrs["proportion"]
    if order.shape != (sum(lengths),):
        s.fail(f"order names {order.size} rows and lengths {sum(lengths)}")
    if not p or int(s.attrs["longest"] * (1 - p) / p) < 1:
        s.fail(f"a proportion of {p} leaves no stretches of zeros, or none of ones")
    s.set("out", ((len(order), 1), s.attrs["dtype"]))


@time_mask.kernel
def time_mask_kernel(k: KernelArgs) -> Call:
    xp, out, state, lengths = k.xp, k["out"], k.state, k.attrs["lengths"]
    order, p = xp.asarray(k.attrs["order"]), k.attrs["proportion"]
    longest = k.attrs["longest"]
    limits = (int(longest * (1 - p) / p), longest)

    def sequence(rows: int) -> np.ndarray:
        """Zeros and ones of one sequence: enough stretches, cut to its length."""
        generator = state.host_generator
        sizes = np.floor(generator.random((rows, 2)) * limits).astype(np.int64) + 1
        if generator.random() >= p:
            sizes[0, 0] = 0
        ends = np.cumsum(sizes.reshape(-1))
        return 1 - np.searchsorted(ends, np.arange(rows), side="right") % 2

    def compute() -> None:
        values = np.concatenate([sequence(rows) for rows in lengths] or [np.zeros(0)])
        out[order, 0] = xp.asarray(values, out.dtype)

    return compute


multiply_rows = operator(
    "nnet3.multiply_rows",
    doc=(
        "Product with rows of a mask, the same for every block of columns: out[r, b] = x[r, b] *"
        " mask[rows[r]]; x [N, B*D], mask [M, D] -> out [N, B*D]."
    ),
    inputs=[Slot("x", "[N, B*D]", not_in_gradient=True), Slot("mask", "[M, D]")],
    outputs=[Slot("out", "[N, B*D]", inplace="x", not_in_gradient=True)],
    attrs=[AttrSpec("rows", "tensor", "[N] row of the mask for each row of x")],
    source=_SOURCE,
)


@multiply_rows.shape_rule
def multiply_rows_shape(s: ShapeArgs) -> None:
    (rows, cols), (masks, width) = s.rank("x", 2), s.rank("mask", 2)
    which = s.attrs["rows"]
    if which.ndim != 1 or which.dtype.kind not in "iu":
        s.fail("rows wants one integer for each row of x")
    s.same("the rows of x and the length of rows", rows, len(which))
    if len(which) and (which.min() < 0 or 0 <= masks <= which.max()):
        s.fail(f"rows run from {which.min()} to {which.max()} and there are {masks} masks")
    if width == 0 or (min(cols, width) >= 0 and cols % width):
        s.fail(f"the {cols} columns of x are no multiple of the {width} columns of mask")
    s.set("out", ((len(which), cols), s.floats("x", "mask")))


def _product(k: KernelArgs, source: str, target: str) -> Call:
    xp, mask = k.xp, k["mask"]
    x, out = blocks_of(k[source], mask.shape[1]), blocks_of(k[target], mask.shape[1])
    if not x.size:
        return in_order()
    rows = xp.asarray(k.attrs["rows"])
    chosen = k.scratch((len(rows), mask.shape[1]), mask.dtype)
    options = {"mode": "clip"} if xp is np else {}
    return in_order(
        partial(xp.take, mask, rows, axis=0, out=chosen, **options),
        partial(xp.multiply, x, chosen[:, None], out),
    )


@multiply_rows.kernel
def multiply_rows_kernel(k: KernelArgs) -> Call:
    return _product(k, "x", "out")


@multiply_rows.backward("x", inplace={"x_grad": "out_grad"})
def multiply_rows_grad_kernel(k: KernelArgs) -> Call:
    return _product(k, "out_grad", "x_grad")
