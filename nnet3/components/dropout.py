"""Dropout of elements, rows and sequences by random masks; in test mode nothing is random.

A mask is an operator of its own that draws from the run's random state; its product with the input
is another. In test mode components lower to plain operators. The state of `train` plays no part:
as in Kaldi, a component is random unless it is in test mode itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np

from ...framework.base.sizes.shape import ShapeArgs
from ...framework.fusion.team import in_order
from ...framework.ir.kernel_args import Call, KernelArgs
from ...framework.ir.registry import AttrSpec, OperatorDef, Slot, operator
from ...operators.base.blocks import blocks_across, blocks_of
from ..index.indexes import IndexList
from .base.checks import check_block
from .base.component import Component, KeepsDim, Properties
from .base.dependence import NOTHING, Reads
from .base.fields import BOOL, FLAG, FLOAT, INT, Field
from .base.keys import Computed, key, optional
from .base.lowering import OUT, Recipe, X, scale_by
from .base.summary import flag, number

_P = Properties
RANDOM_IN_PLACE = _P.RANDOM | _P.PROPAGATE_IN_PLACE | _P.BACKPROP_IN_PLACE | _P.USES_MEMO
_SOURCE = "Kaldi: nnet3/nnet-general-component.cc"
_NO_GRADIENT = "a random mask depends on no input's values"


def check_proportion(component: Component, name: str) -> None:
    value = getattr(component, name)
    component.demand(0 <= value <= 1, f"{name.replace('_', '-')}={value} is not between 0 and 1")


class RandomComponent(Component):
    """A component whose output is random unless `test_mode` is set."""

    abstract = True
    test_mode: bool


class DropoutComponent(KeepsDim, RandomComponent):
    """Zeroes elements (or whole rows, `dropout_per_frame`) with probability
    `dropout_proportion`; in test mode all are scaled by 1 - `dropout_proportion`."""

    dropout_proportion: float
    dropout_per_frame: bool

    fields = (
        Field("<Dim>", INT, "dim"),
        Field("<DropoutProportion>", FLOAT, "dropout_proportion"),
        Field("<DropoutPerFrame>", BOOL, "dropout_per_frame", default=False),
        Field("<TestMode>", BOOL, "test_mode", default=False),
    )
    keys = (
        key("dim", int),
        key("dropout-proportion", float),
        *optional(bool, dropout_per_frame=False, test_mode=False),
    )
    flags = (
        _P.BACKPROP_IN_PLACE
        | _P.SIMPLE
        | _P.BACKPROP_NEEDS_INPUT
        | _P.BACKPROP_NEEDS_OUTPUT
        | _P.RANDOM
    )

    def check(self) -> None:
        super().check()
        check_proportion(self, "dropout_proportion")

    def info(self) -> str:
        return (
            f"{self.type}, dim={self.dim}, dropout-proportion={number(self.dropout_proportion)}"
            f", dropout-per-frame={flag(self.dropout_per_frame)}"
        )

    def lower(self, recipe: Recipe) -> None:
        p = float(self.dropout_proportion)
        if self.test_mode:
            recipe.op("scale", OUT, attrs={"scale": 1.0 - p}, x=X)
            return
        mask = recipe.temp()
        attrs = {"columns": 1 if self.dropout_per_frame else int(self.dim), "p": p}
        recipe.op("nnet3.dropout_mask", mask, attrs=attrs, like=X)
        scale_by(recipe, mask)


class DropoutMaskComponent(RandomComponent):
    """A dropout mask without any input: zeros and ones, or uniform if `continuous`."""

    dropout_proportion: float
    continuous: bool

    fields = (
        Field("<OutputDim>", INT, "output_dim"),
        Field("<DropoutProportion>", FLOAT, "dropout_proportion"),
        Field("<TestMode>", BOOL, "test_mode", default=False),
        Field("<Continuous>", FLAG, "continuous", default=False),
    )
    keys = (
        key("output-dim", int),
        *optional(float, dropout_proportion=0.5),
        *optional(bool, continuous=False, test_mode=False),
    )
    flags = _P.RANDOM

    @property
    def input_dim(self) -> int:
        return self.output_dim

    def info(self) -> str:
        text = f"{self.type}, output-dim={self.output_dim}"
        text += f", dropout-proportion={number(self.dropout_proportion)}"
        return text + (", continuous=true" if self.continuous else "")

    def reads(self) -> Reads:
        return NOTHING

    def lower(self, recipe: Recipe) -> None:
        p = float(self.dropout_proportion)
        columns = int(self.output_dim)
        if self.test_mode or p == 0:
            value = 1.0 if self.continuous or p == 0 else 1.0 - p
            recipe.op("fill_constant", OUT, attrs={"shape": [recipe.rows, columns], "value": value})
            return
        attrs = {
            "rows": recipe.rows,
            "columns": columns,
            "p": p,
            "continuous": bool(self.continuous),
            "exclusive": not self.continuous and columns in (2, 3),
        }
        recipe.op("nnet3.dropout_mask", OUT, attrs=attrs)


@dataclass(frozen=True)
class MaskRows:
    """For each row, which of `count` masks applies to it; int64 [N]."""

    rows: np.ndarray
    count: int


class GeneralDropoutComponent(KeepsDim, RandomComponent):
    """Dropout with one mask for each sequence, or for each `time_period` frames of it; masks have
    `block_dim` columns and repeat; or SpecAugment's masks over columns."""

    block_dim: int
    time_period: int
    dropout_proportion: float
    specaugment_max_proportion: float
    specaugment_max_regions: int
    continuous: bool

    fields = (
        Field("<Dim>", INT, "dim"),
        Field("<BlockDim>", INT, "block_dim"),
        Field("<TimePeriod>", INT, "time_period"),
        Field("<DropoutProportion>", FLOAT, "dropout_proportion"),
        Field(
            "<SpecAugmentMaxProportion>",
            FLOAT,
            "specaugment_max_proportion",
            default=0.0,
            when=lambda c: c.specaugment_max_proportion != 0,
        ),
        Field(
            "<SpecAugmentMaxRegions>",
            INT,
            "specaugment_max_regions",
            default=1,
            when=lambda c: c.specaugment_max_proportion != 0 and c.specaugment_max_regions != 1,
        ),
        Field("<TestMode>", FLAG, "test_mode", default=False),
        Field("<Continuous>", FLAG, "continuous", default=False),
    )
    indexes_type = MaskRows
    keys = (
        key("dim", int),
        key("block-dim", int, Computed("dim")),
        *optional(int, time_period=0, specaugment_max_regions=1),
        *optional(float, dropout_proportion=0.5, specaugment_max_proportion=0.0),
        *optional(bool, continuous=False, test_mode=False),
    )

    @property
    def properties(self) -> Properties:
        blocks = self.block_dim != self.dim
        return RANDOM_IN_PLACE | (_P.INPUT_CONTIGUOUS | _P.OUTPUT_CONTIGUOUS if blocks else _P(0))

    def configure(self, o: SimpleNamespace, rng: np.random.Generator) -> None:
        super().configure(o, rng)
        self.block_dim = o.dim if o.block_dim is None else o.block_dim

    def check(self) -> None:
        check_block(self.dim, self.block_dim)
        check_proportion(self, "specaugment_max_proportion")
        if self.specaugment_max_proportion != 0:
            self.demand(not self.continuous, "continuous= does not go with SpecAugment")
            self.demand(self.specaugment_max_regions >= 1, "specaugment-max-regions is below 1")

    def info(self) -> str:
        text = (
            f"{self.type}, dim={self.dim}, block-dim={self.block_dim}"
            f", dropout-proportion={number(self.dropout_proportion)}"
        )
        if self.continuous:
            text += ", continuous=true"
        if self.specaugment_max_proportion != 0:
            text += f", specaugment-max-proportion={number(self.specaugment_max_proportion)}"
            text += f", specaugment-max-regions={self.specaugment_max_regions}"
        return text + (f", time-period={self.time_period}" if self.time_period > 0 else "")

    def precompute(self, inputs: IndexList, outputs: IndexList) -> MaskRows:
        n, t, _ = inputs.indexes.astype(np.int64).T
        period = self.time_period
        pairs = np.stack((n, t // period if period else np.zeros_like(t)), axis=1)
        masks, rows = np.unique(pairs, axis=0, return_inverse=True)
        return MaskRows(rows.reshape(-1), len(masks))

    def lower(self, recipe: Recipe) -> None:
        p, specaugment = (
            float(self.dropout_proportion),
            float(self.specaugment_max_proportion),
        )
        if self.test_mode or (p == 0 and specaugment == 0):
            recipe.op("assign", OUT, x=X)
            return
        mask = recipe.temp()
        where = recipe.indexes
        shape = {"rows": where.count, "columns": int(self.block_dim)}
        if specaugment:
            attrs = {"proportion": specaugment, "regions": int(self.specaugment_max_regions)}
            recipe.op("nnet3.spec_augment_mask", mask, attrs=shape | attrs)
        else:
            attrs = {"p": p, "continuous": bool(self.continuous), "scaled": True}
            recipe.op("nnet3.dropout_mask", mask, attrs=shape | attrs)
        recipe.op("nnet3.multiply_rows", OUT, attrs={"rows": where.rows}, x=X, mask=mask)


MASK_DTYPE = AttrSpec(
    "dtype", "dtype", "of the mask, where there is no `like`", np.dtype("float32")
)
_LIKE = Slot(
    "like",
    "[N, ...]: its rows are counted, its values are not read",
    optional=True,
    shape_only=True,
)


def mask_operator(op_type: str, doc: str, *attrs: AttrSpec) -> OperatorDef:
    """Register an operator that draws a mask [rows, columns]."""
    return operator(
        op_type,
        doc=doc,
        inputs=[_LIKE],
        outputs=[Slot("out", "[rows, columns]")],
        attrs=[
            AttrSpec("rows", "int", "rows of the mask; -1: as many as `like` has", -1),
            AttrSpec("columns", "int", "columns of the mask", minimum=1),
            *attrs,
            MASK_DTYPE,
        ],
        source=_SOURCE,
        shape=_mask_shape,
        no_gradient=_NO_GRADIENT,
        random=True,
    )


def _mask_shape(s: ShapeArgs) -> None:
    rows = s.attrs["rows"]
    if rows < 0:
        if not s.has("like"):
            s.fail("wants rows, or an input `like`")
        rows = s["like"][0]
    dtype = s.dtype("like") if s.has("like") else s.attrs["dtype"]
    s.set("out", ((rows, s.attrs["columns"]), dtype))


dropout_mask = mask_operator(
    "nnet3.dropout_mask",
    "Random mask [rows, columns]: 0 with probability p, else 1 (`scaled`: 1 / (1 - p));"
    " `continuous`: uniform between 1 - 2p and 1 + 2p. `exclusive`: the first two columns are"
    " never both 0, as long as p <= 0.5.",
    AttrSpec("p", "float", "probability of a zero", 0.5, 0.0, 1.0),
    AttrSpec("continuous", "bool", "uniform instead of zeros and ones", False),
    AttrSpec("scaled", "bool", "divide by 1 - p, so that the mean is 1", False),
    AttrSpec("exclusive", "bool", "zeros of the first two columns exclude each other", False),
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
    xp = k.xp
    out = k["out"]
    p = k.attrs["p"]
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
    survives = k.scratch(out.shape, bool)
    value = out.dtype.type(1 / (1 - p) if k.attrs["scaled"] and p < 1 else 1)
    return in_order(
        *calls,
        partial(xp.greater, drawn, real(p), survives),
        partial(xp.multiply, survives, value, out),
    )


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
    blocks_across(s, cols, width, "the columns of mask")
    s.set("out", ((len(which), cols), s.floats("x", "mask")))


def _product(k: KernelArgs, source: str, target: str) -> Call:
    xp = k.xp
    mask = k["mask"]
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
