"""NormalizeComponent: blocks of each row scaled to a given root mean square."""

from __future__ import annotations

import math
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np

from ...framework.base.sizes.shape import ShapeArgs
from ...framework.fusion.team import in_order
from ...framework.ir.kernel_args import Call, KernelArgs
from ...framework.ir.registry import AttrSpec, Slot, operator
from ...operators.base.blocks import blocks_of, whole_blocks
from .base.checks import check_block
from .base.component import Component, Properties
from .base.fields import BOOL, DOUBLE, FLOAT, INT, VECTOR, Field
from .base.keys import Computed, optional
from .base.lowering import OUT, Recipe, X
from .base.summary import flag, number

_P = Properties
_BLOCKS = _P.INPUT_CONTIGUOUS | _P.OUTPUT_CONTIGUOUS
_IN_PLACE = _P.PROPAGATE_IN_PLACE | _P.BACKPROP_IN_PLACE
SQUARED_NORM_FLOOR = 2.0**-66
"""Least value of the scaled squared norm of a row."""


class NormalizeComponent(Component):
    """Each block of `block_dim` columns of a row scaled to the root mean square `target_rms`; if
    `add_log_stddev`, the log of the root mean square is appended."""

    block_dim: int
    target_rms: float
    add_log_stddev: bool

    fields = (
        Field("<InputDim>", INT, "input_dim", older=Field("<Dim>", INT, "input_dim")),
        Field(
            "<BlockDim>",
            INT,
            "block_dim",
            default=lambda c: c.input_dim,
            when=lambda c: c.block_dim != c.input_dim,
        ),
        Field("<TargetRms>", FLOAT, "target_rms", default=1.0),
        Field("<AddLogStddev>", BOOL, "add_log_stddev", default=False),
        # Early versions were nonlinear components, with statistics that nothing reads.
        Field("<ValueAvg>", VECTOR, old=True),
        Field("<DerivAvg>", VECTOR, old=True),
        Field("<Count>", DOUBLE, old=True),
    )
    keys = (
        *optional(
            int, dim=Computed("input-dim"), input_dim=Computed("dim"), block_dim=Computed("dim")
        ),
        *optional(float, target_rms=1.0),
        *optional(bool, add_log_stddev=False),
    )

    @property
    def properties(self) -> Properties:
        flags = _P.SIMPLE | _P.BACKPROP_NEEDS_INPUT | _P.BACKPROP_ADDS
        if not self.add_log_stddev:
            flags |= _IN_PLACE
        return flags | (_BLOCKS if self.block_dim != self.input_dim else _P(0))

    @property
    def output_dim(self) -> int:
        extra = self.input_dim // self.block_dim if self.add_log_stddev else 0
        return self.input_dim + extra

    def configure(self, o: SimpleNamespace, rng: np.random.Generator) -> None:
        self.demand((o.dim is None) != (o.input_dim is None), "wants either dim= or input-dim=")
        self.input_dim = o.input_dim if o.dim is None else o.dim
        self.block_dim = self.input_dim if o.block_dim is None else o.block_dim
        self.target_rms = o.target_rms
        self.add_log_stddev = o.add_log_stddev

    def check(self) -> None:
        check_block(self.input_dim, self.block_dim)
        self.demand(self.target_rms > 0, "target-rms must be positive")

    def info(self) -> str:
        text = f"{super().info()}, target-rms={number(self.target_rms)}"
        text += f", add-log-stddev={flag(self.add_log_stddev)}"
        if self.block_dim != self.input_dim:
            text += f", block-dim={self.block_dim}"
        return text

    def lower(self, recipe: Recipe) -> None:
        attrs = {
            "block": int(self.block_dim),
            "target_rms": float(self.target_rms),
            "add_log_stddev": bool(self.add_log_stddev),
        }
        recipe.op("nnet3.normalize", OUT, attrs=attrs, x=X)


normalize = operator(
    "nnet3.normalize",
    doc=(
        "Scales every block of `block` columns in every row to the root mean square `target_rms`:"
        " p = max(mean(x^2) / target_rms^2, 2^-66), out = x / sqrt(p). With `add_log_stddev` each"
        " block of out has one column more, log(sqrt(p) * target_rms). x [N, B*block] ->"
        " out [N, B*block] or [N, B*(block+1)]."
    ),
    inputs=[Slot("x", "[N, B*block]")],
    outputs=[Slot("out", "[N, B*block] or [N, B*(block+1)]", inplace="x", not_in_gradient=True)],
    attrs=[
        AttrSpec("block", "int", "columns that are scaled together", minimum=1),
        AttrSpec("target_rms", "float", "root mean square of the result", 1.0),
        AttrSpec("add_log_stddev", "bool", "append the logarithm of the standard deviation", False),
    ],
    source="Kaldi: nnet3/nnet-normalize-component.cc, cudamatrix/cu-math.cc",
)


@normalize.shape_rule
def normalize_shape(s: ShapeArgs) -> None:
    blocks = whole_blocks(s)
    block = s.attrs["block"] + int(s.attrs["add_log_stddev"])
    s.set("out", ((s["x"][0], blocks * block if blocks >= 0 else -1), s.floats("x")))


def _inverse_rms(k: KernelArgs, x: Any, squares: Any, scale: Any) -> list[Call]:
    """Calls: scale = max(sum(x^2) / (D target_rms^2), floor) ** -0.5 for every row and block."""
    xp = k.xp
    real = x.dtype.type
    factor = 1.0 / (x.shape[2] * k.attrs["target_rms"] ** 2)
    return [
        partial(xp.multiply, x, x, squares),
        partial(xp.sum, squares, axis=2, out=scale),
        partial(xp.multiply, scale, real(factor), scale),
        partial(xp.maximum, scale, real(SQUARED_NORM_FLOOR), out=scale),
        partial(xp.sqrt, scale, out=scale),
        partial(xp.divide, real(1), scale, scale),
    ]


@normalize.kernel
def normalize_kernel(k: KernelArgs) -> Call:
    xp = k.xp
    block = k.attrs["block"]
    x = blocks_of(k["x"], block)
    out = blocks_of(k["out"], block + int(k.attrs["add_log_stddev"]))
    scale = k.scratch(x.shape[:2], x.dtype)
    squares = k.scratch(x.shape, x.dtype)
    calls = _inverse_rms(k, x, squares, scale)
    calls.append(partial(xp.multiply, x, scale[..., None], out[..., :block]))
    if k.attrs["add_log_stddev"]:
        last = out[..., block]
        log_rms = x.dtype.type(math.log(k.attrs["target_rms"]))
        calls += [partial(xp.log, scale, out=last), partial(xp.subtract, log_rms, last, last)]
    return in_order(*calls)


@normalize.backward("x", inplace={"x_grad": "out_grad"})
def normalize_grad_kernel(k: KernelArgs) -> Call:
    xp = k.xp
    block = k.attrs["block"]
    log = int(k.attrs["add_log_stddev"])
    x = blocks_of(k["x"], block)
    grad = blocks_of(k["out_grad"], block + log)
    target = blocks_of(k["x_grad"], block)
    real = x.dtype.type
    work = k.scratch(x.shape, x.dtype)
    scale = k.scratch(x.shape[:2], x.dtype)
    dot = k.scratch(x.shape[:2], x.dtype)
    floored = k.scratch(x.shape[:2], bool)
    top = real(1 / math.sqrt(SQUARED_NORM_FLOOR))
    factor = real(-1.0 / (block * k.attrs["target_rms"] ** 2))

    def through_scale() -> None:
        # d scale / d x = -scale^3 x / (D target_rms^2), nothing where the floor holds
        xp.multiply(grad[..., :block], x, work)
        xp.sum(work, axis=2, out=dot)
        xp.multiply(dot, scale, dot)
        if log:  # the last column is minus the logarithm of the scale
            xp.subtract(dot, grad[..., block], dot)
        xp.multiply(dot, scale, dot)
        xp.multiply(dot, scale, dot)
        xp.multiply(dot, factor, dot)
        xp.greater_equal(scale, top, out=floored)
        xp.copyto(dot, real(0), where=floored)
        xp.multiply(x, dot[..., None], work)
        xp.multiply(grad[..., :block], scale[..., None], target)
        xp.add(target, work, target)

    return in_order(*_inverse_rms(k, x, work, scale), through_scale)
