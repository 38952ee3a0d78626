"""DistributeComponent: blocks of columns become rows with their own x."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from ...framework.base.errors import ShapeError
from ...framework.base.sizes.shape import ShapeArgs
from ...framework.fusion.team import in_order
from ...framework.ir.kernel_args import Call, KernelArgs
from ...framework.ir.registry import AttrSpec, Slot, operator
from ...operators.base.indexing import scatter_adder
from ...operators.linear.matmul import as_rows
from ..index.indexes import NO_TIME, IndexList
from .base.checks import check_divides
from .base.component import Component
from .base.dependence import Reads
from .base.lowering import OUT, Recipe, X
from .base.time_grid import sort_keys
from .columns import DIM_FIELDS, DIM_KEYS


class DistributeComponent(Component):
    """Spreads the input-dim / output-dim blocks of a row over that many rows (x of the index)."""

    fields = DIM_FIELDS
    indexes_type = np.ndarray
    keys = DIM_KEYS

    def check(self) -> None:
        check_divides(self)

    def reads(self) -> Reads:
        blocks = self.input_dim // self.output_dim
        return Reads(lambda t, x: [(t, x // blocks)], (True,))

    def precompute(self, inputs: IndexList, outputs: IndexList) -> np.ndarray:
        return block_numbers(inputs.indexes, outputs.indexes, self.input_dim // self.output_dim)

    def lower(self, recipe: Recipe) -> None:
        attrs = {
            "blocks": int(self.input_dim // self.output_dim),
            "ids": np.asarray(recipe.indexes, np.int64),
        }
        recipe.op("nnet3.distribute", OUT, attrs=attrs, x=X)


def block_numbers(inputs: np.ndarray, outputs: np.ndarray, blocks: int) -> np.ndarray:
    """The block that each output row is a copy of: input row * blocks + block, int64 [N]."""
    wanted = outputs.copy()
    wanted[:, 2] //= blocks
    real = np.flatnonzero(inputs[:, 1] != NO_TIME)
    keys = sort_keys(inputs[real])
    order = np.argsort(keys, kind="stable")
    place = np.searchsorted(keys, sort_keys(wanted), sorter=order)
    rows = order[np.minimum(place, len(order) - 1)] if len(order) else np.zeros(len(wanted), int)
    missing = np.ones(len(wanted), bool)
    if len(order):
        missing = keys[rows] != sort_keys(wanted)
    if missing.any():
        n, t, x = wanted[np.flatnonzero(missing)[0]].tolist()
        raise ShapeError(f"a DistributeComponent lacks its input (n, t, x) = ({n}, {t}, {x})")
    return real[rows] * blocks + (outputs[:, 2] - wanted[:, 2] * blocks)


distribute = operator(
    "nnet3.distribute",
    doc=(
        "Picks blocks of columns: x [N, B*D] is taken as N*B rows of D columns; out[r] is number"
        " ids[r] of these; out [R, D]."
    ),
    inputs=[Slot("x", "[N, B*D]", not_in_gradient=True)],
    outputs=[Slot("out", "[R, D]", not_in_gradient=True)],
    attrs=[
        AttrSpec("blocks", "int", "B", minimum=1),
        AttrSpec("ids", "tensor", "[R] integers: the block for each row of out"),
    ],
    source="Kaldi: nnet3/nnet-general-component.cc",
)


@distribute.shape_rule
def distribute_shape(s: ShapeArgs) -> None:
    rows, cols = s.rank("x", 2)
    blocks, ids = s.attrs["blocks"], s.attrs["ids"]
    if cols >= 0 and cols % blocks:
        s.fail(f"the {cols} columns of x do not fall into {blocks} blocks")
    if ids.ndim != 1 or ids.dtype.kind not in "iu":
        s.fail("ids wants one integer for each row of out")
    if len(ids) and (ids.min() < 0 or 0 <= rows * blocks <= ids.max()):
        s.fail(f"ids run from {ids.min()} to {ids.max()} and there are {rows * blocks} blocks")
    s.set("out", ((len(ids), cols // blocks if cols >= 0 else -1), s.floats("x")))


def _split(k: KernelArgs, slot: str, write: bool = False) -> tuple[Any, list[Call]]:
    array = k[slot]
    blocks = k.attrs["blocks"]
    rows, cols = array.shape
    return as_rows(k, array, rows * blocks, cols // blocks, write=write)


@distribute.kernel
def distribute_kernel(k: KernelArgs) -> Call:
    xp = k.xp
    out = k["out"]
    x, load = _split(k, "x")
    if not out.size:
        return in_order()
    ids = xp.asarray(k.attrs["ids"])
    target = out if out.flags.c_contiguous else k.scratch(out.shape, out.dtype)
    options = {"mode": "clip"} if xp is np else {}
    calls = [*load, partial(xp.take, x, ids, axis=0, out=target, **options)]
    if target is not out:
        calls.append(partial(xp.copyto, out, target))
    return in_order(*calls)


@distribute.backward("x")
def distribute_grad_kernel(k: KernelArgs) -> Call:
    x_grad, store = _split(k, "x_grad", write=True)
    ids = k.xp.asarray(k.attrs["ids"])
    add = scatter_adder(k, x_grad, ids, k["out_grad"])
    return in_order(partial(x_grad.fill, 0), add, *store)
