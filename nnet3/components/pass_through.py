"""Components that pass their input on and change the gradient on its way back."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np

from ...framework.base.sizes.shape import ShapeArgs, same_as
from ...framework.fusion.team import in_order, recordable
from ...framework.ir.kernel_args import Call, KernelArgs
from ...framework.ir.registry import AttrSpec, Slot, operator
from ...operators.base.calls import copying
from .base.component import Component, KeepsDim, Properties
from .base.fields import BOOL, DOUBLE, FLOAT, INT, VECTOR, Field
from .base.keys import key, optional
from .base.lowered_op import of_indexes
from .base.lowering import OUT, Recipe, X
from .base.precompute import RowByRow
from .base.summary import flag, number

_P = Properties
_UNLIMITED = 1e10
"""A BackpropTruncationComponent takes thresholds of 0 or less for this one: no bound."""


class NoOpComponent(KeepsDim, Component):
    """y = x; the derivative is multiplied by `backprop_scale`."""

    backprop_scale: float

    fields = (
        Field("<Dim>", INT, "dim"),
        # Early versions were nonlinear components, with statistics that nothing reads.
        Field("<ValueAvg>", VECTOR, old=True),
        Field("<DerivAvg>", VECTOR, old=True),
        Field("<Count>", DOUBLE, old=True),
        Field("<OderivRms>", VECTOR, old=True),
        Field("<OderivCount>", DOUBLE, old=True),
        Field("<NumDimsSelfRepaired>", DOUBLE, old=True),
        Field("<NumDimsProcessed>", DOUBLE, old=True),
        Field("<BackpropScale>", FLOAT, "backprop_scale", default=1.0),
    )
    keys = (key("dim", int), *optional(float, backprop_scale=1.0))
    flags = _P.SIMPLE | _P.PROPAGATE_IN_PLACE | _P.BACKPROP_IN_PLACE

    def info(self) -> str:
        text = f"{self.type}, dim={self.dim}"
        if self.backprop_scale != 1:
            text += f", backprop-scale={number(self.backprop_scale)}"
        return text

    def lower(self, recipe: Recipe) -> None:
        if self.backprop_scale == 1.0:
            recipe.op("assign", OUT, x=X)
        else:
            attrs = {"scale": float(self.backprop_scale)}
            recipe.op("nnet3.scale_gradient", OUT, attrs=attrs, x=X)


class ClipGradientComponent(KeepsDim, Component):
    """y = x; the derivative is clipped, by value or by the norm of each row."""

    clipping_threshold: float
    norm_based_clipping: bool
    self_repair_clipped_proportion_threshold: float
    self_repair_target: float
    self_repair_scale: float
    num_clipped: int
    count: int
    num_self_repaired: int
    num_backpropped: int

    fields = (
        Field("<Dim>", INT, "dim"),
        Field("<ClippingThreshold>", FLOAT, "clipping_threshold"),
        Field("<NormBasedClipping>", BOOL, "norm_based_clipping"),
        Field(
            "<SelfRepairClippedProportionThreshold>",
            FLOAT,
            "self_repair_clipped_proportion_threshold",
            default=1.0,
        ),
        Field("<SelfRepairTarget>", FLOAT, "self_repair_target", default=0.0),
        Field("<SelfRepairScale>", FLOAT, "self_repair_scale", default=0.0),
        Field("<NumElementsClipped>", INT, "num_clipped"),
        Field("<NumElementsProcessed>", INT, "count"),
        Field("<NumSelfRepaired>", INT, "num_self_repaired", default=0),
        Field("<NumBackpropped>", INT, "num_backpropped", default=0),
    )
    keys = (
        key("dim", int),
        key("norm-based-clipping", bool, False),
        *optional(
            float,
            clipping_threshold=15.0,
            self_repair_clipped_proportion_threshold=0.01,
            self_repair_target=0.0,
            self_repair_scale=1.0,
        ),
    )
    flags = _P.SIMPLE | _P.PROPAGATE_IN_PLACE | _P.BACKPROP_IN_PLACE | _P.BACKPROP_NEEDS_INPUT

    def configure(self, o: SimpleNamespace, rng: np.random.Generator) -> None:
        super().configure(o, rng)
        self.zero_stats()

    def zero_stats(self) -> None:
        """Forget how much was clipped."""
        self.num_clipped = self.count = self.num_self_repaired = self.num_backpropped = 0

    def check(self) -> None:
        super().check()
        for name in (
            "clipping_threshold",
            "self_repair_clipped_proportion_threshold",
            "self_repair_target",
            "self_repair_scale",
        ):
            option = name.replace("_", "-")
            self.demand(getattr(self, name) >= 0, f"{option} must not be negative")

    def info(self) -> str:
        proportion = np.float32(self.num_clipped) / np.float32(self.count) if self.count > 0 else 0
        text = (
            f"{self.type}, dim={self.dim}, norm-based-clipping={flag(self.norm_based_clipping)}"
            f", clipping-threshold={number(self.clipping_threshold)}"
            f", clipped-proportion={number(proportion)}"
        )
        if self.self_repair_scale != 0:
            threshold = self.self_repair_clipped_proportion_threshold
            text += (
                f", self-repair-clipped-proportion-threshold={number(threshold)}"
                f", self-repair-target={number(self.self_repair_target)}"
                f", self-repair-scale={number(self.self_repair_scale)}"
            )
        return text

    def lower(self, recipe: Recipe) -> None:
        if self.clipping_threshold < 0:
            recipe.op("assign", OUT, x=X)
            return
        attrs = {
            "threshold": float(self.clipping_threshold),
            "norm_based": bool(self.norm_based_clipping),
        }
        recipe.op("nnet3.clip_gradient", OUT, attrs=attrs, x=X)


class BackpropTruncationComponent(RowByRow, KeepsDim, Component):
    """y = x; derivatives are scaled, clipped by row norm, and zeroed at intervals of time where
    they have grown too large."""

    scale: float
    clipping_threshold: float
    zeroing_threshold: float
    zeroing_interval: int
    recurrence_interval: int
    num_clipped: float
    num_zeroed: float
    count: float
    count_zeroing_boundaries: float

    fields = (
        Field("<Dim>", INT, "dim"),
        Field("<Scale>", FLOAT, "scale", default=1.0),
        Field("<ClippingThreshold>", FLOAT, "clipping_threshold"),
        Field("<ZeroingThreshold>", FLOAT, "zeroing_threshold"),
        Field("<ZeroingInterval>", INT, "zeroing_interval"),
        Field("<RecurrenceInterval>", INT, "recurrence_interval"),
        Field("<NumElementsClipped>", DOUBLE, "num_clipped"),
        Field("<NumElementsZeroed>", DOUBLE, "num_zeroed"),
        Field("<NumElementsProcessed>", DOUBLE, "count"),
        Field("<NumZeroingBoundaries>", DOUBLE, "count_zeroing_boundaries"),
    )
    indexes_type = np.ndarray
    keys = (
        key("dim", int),
        *optional(float, scale=1.0, clipping_threshold=30.0, zeroing_threshold=15.0),
        *optional(int, zeroing_interval=20, recurrence_interval=1),
    )
    flags = _P.PROPAGATE_IN_PLACE | _P.BACKPROP_IN_PLACE

    def configure(self, o: SimpleNamespace, rng: np.random.Generator) -> None:
        super().configure(o, rng)
        self.zero_stats()

    def zero_stats(self) -> None:
        """Forget how much was clipped and zeroed."""
        self.num_clipped = self.num_zeroed = 0.0
        self.count = self.count_zeroing_boundaries = 0.0

    def check(self) -> None:
        super().check()
        self.demand(
            self.clipping_threshold >= 0 and self.zeroing_threshold >= 0,
            "clipping-threshold and zeroing-threshold must not be negative",
        )
        self.demand(
            self.scale > 0 and self.zeroing_interval > 0 and self.recurrence_interval > 0,
            "scale, zeroing-interval and recurrence-interval must be positive",
        )

    def info(self) -> str:
        clipped = self.num_clipped / self.count if self.count > 0 else 0
        boundaries = self.count_zeroing_boundaries
        zeroed = self.num_zeroed / boundaries if boundaries > 0 else 0
        return (
            f"{self.type}, dim={self.dim}, scale={number(self.scale)}"
            f", count={number(self.count, 3)}, recurrence-interval={self.recurrence_interval}"
            f", clipping-threshold={number(self.clipping_threshold)}"
            f", clipped-proportion={number(clipped)}"
            f", zeroing-threshold={number(self.zeroing_threshold)}"
            f", zeroing-interval={self.zeroing_interval}, zeroed-proportion={number(zeroed)}"
            f", count-zeroing-boundaries={np.trunc(boundaries):.0f}"
        )

    def lower(self, recipe: Recipe) -> None:
        source = X
        if self.scale != 1.0:
            source = recipe.temp()
            recipe.op("scale", source, attrs={"scale": float(self.scale)}, x=X)
        clipping, zeroing = self.clipping_threshold, self.zeroing_threshold
        attrs = {
            "clipping_threshold": float(clipping) if clipping > 0 else _UNLIMITED,
            "zeroing_threshold": float(zeroing) if zeroing > 0 else _UNLIMITED,
            "scale": float(self.scale),
            "boundary": of_indexes(),
        }
        recipe.op("nnet3.truncate_gradient", OUT, attrs=attrs, x=source)

    def precompute_rows(self, outputs: np.ndarray) -> np.ndarray:
        """Whether each row lies on a boundary of time, where the gradient may be cut: bool [N].

        Sequences have their boundaries at different times.
        """
        shifted = np.subtract(outputs[:, 1], outputs[:, 0], dtype=np.int64)
        # With `recurrence_interval` steps back one is on the other side of a multiple.
        return shifted % self.zeroing_interval < self.recurrence_interval


def _passing(op_type: str, doc: str, attrs: list[AttrSpec], source: str, shape: Any = None) -> Any:
    """Register an operator out = x whose gradient is special."""
    entry = operator(
        op_type,
        doc=f"Passes x on: out = x. {doc}",
        inputs=[Slot("x", "[N, D]", not_in_gradient=True)],
        outputs=[Slot("out", "shape of x", inplace="x", not_in_gradient=True)],
        attrs=attrs,
        source=source,
        shape=shape or same_as("x"),
        scalar="x",
    )

    @entry.kernel
    def passing_kernel(k: KernelArgs) -> Call:
        return in_order(copying(k.xp, k["x"], k["out"]))

    return entry


scale_gradient = _passing(
    "nnet3.scale_gradient",
    "The gradient is multiplied by `scale`.",
    [AttrSpec("scale", "float", "factor of the gradient")],
    "Kaldi: nnet3/nnet-simple-component.cc (NoOpComponent)",
)


@scale_gradient.backward("x", inplace={"x_grad": "out_grad"})
def scale_gradient_grad_kernel(k: KernelArgs) -> Call:
    grad = k["out_grad"]
    return partial(k.xp.multiply, grad, grad.dtype.type(k.attrs["scale"]), k["x_grad"])


clip_gradient = _passing(
    "nnet3.clip_gradient",
    "The gradient is clipped: each element to [-threshold, threshold], or if `norm_based` each row"
    " to the Euclidean norm `threshold`. A threshold of 0 stops the gradient.",
    [
        AttrSpec("threshold", "float", "bound of an element or of a row's norm", minimum=0.0),
        AttrSpec("norm_based", "bool", "bound the norm of rows", False),
    ],
    "Kaldi: nnet3/nnet-simple-component.cc (ClipGradientComponent)",
)


def _row_norms(k: KernelArgs, grad: Any, squares: Any, total: Any, factor: float) -> list[Any]:
    """Calls: total = factor * the squared norm of every row of grad."""
    return [
        partial(k.xp.multiply, grad, grad, squares),
        partial(k.xp.sum, squares, axis=1, out=total),
        partial(k.xp.multiply, total, total.dtype.type(factor), total),
    ]


@clip_gradient.backward("x", inplace={"x_grad": "out_grad"})
def clip_gradient_grad_kernel(k: KernelArgs) -> Call:
    xp = k.xp
    grad = k["out_grad"]
    x_grad = k["x_grad"]
    bound = k.attrs["threshold"]
    real = grad.dtype.type
    if bound == 0:
        return partial(x_grad.fill, 0)
    if not k.attrs["norm_based"]:
        return in_order(
            partial(xp.minimum, grad, real(bound), out=x_grad),
            partial(xp.maximum, x_grad, real(-bound), out=x_grad),
        )
    squares = k.scratch(grad.shape, grad.dtype)
    scales = k.scratch(grad.shape[:1], grad.dtype)
    return in_order(
        *_row_norms(k, grad, squares, scales, bound**-2),
        partial(xp.maximum, scales, real(1), out=scales),
        partial(xp.sqrt, scales, out=scales),
        partial(xp.divide, grad, scales[:, None], out=x_grad),
    )


def _one_flag_a_row(s: ShapeArgs) -> None:
    boundary = s.attrs["boundary"]
    if boundary.ndim != 1 or boundary.dtype != bool:
        s.fail("boundary wants one bool for each row")
    s.same("the rows of x and the length of boundary", s.rank("x", 2)[0], len(boundary))
    s.set("out", (s["x"], s.floats("x")))


truncate_gradient = _passing(
    "nnet3.truncate_gradient",
    "Of the gradient, rows whose norm is above `clipping_threshold` are scaled down to it; rows"
    " that lie on a boundary of time and whose norm is above `zeroing_threshold` are set to 0."
    " Norms are taken after a multiplication by `scale` that happens elsewhere.",
    [
        AttrSpec("clipping_threshold", "float", "greatest norm of a row", minimum=0.0),
        AttrSpec("zeroing_threshold", "float", "norm from which boundaries are cut", minimum=0.0),
        AttrSpec("scale", "float", "factor of the gradient in the norms", 1.0),
        AttrSpec("boundary", "tensor", "[N] bool: rows on a boundary"),
    ],
    "Kaldi: nnet3/nnet-general-component.cc (BackpropTruncationComponent)",
    _one_flag_a_row,
)


@truncate_gradient.backward("x", inplace={"x_grad": "out_grad"})
def truncate_gradient_grad_kernel(k: KernelArgs) -> Call:
    xp = k.xp
    grad = k["out_grad"]
    attrs = k.attrs
    if attrs["clipping_threshold"] == 0:
        return partial(k["x_grad"].fill, 0)
    real = grad.dtype.type
    boundary = xp.asarray(attrs["boundary"])
    norms = k.scratch(grad.shape[:1], grad.dtype)
    cut = k.scratch(grad.shape[:1], bool)
    clip, zero = attrs["clipping_threshold"], attrs["zeroing_threshold"]

    def scales() -> None:
        xp.greater(norms, real(zero * zero), out=cut)
        xp.logical_and(cut, boundary, out=cut)
        xp.multiply(norms, real(clip**-2), out=norms)
        xp.maximum(norms, real(1), out=norms)
        xp.sqrt(norms, out=norms)
        xp.divide(real(1), norms, out=norms)
        xp.copyto(norms, real(0), where=cut)

    calls = [recordable(scales), partial(xp.multiply, grad, norms[:, None], k["x_grad"])]
    if xp is not np:
        squares = k.scratch(grad.shape, grad.dtype)
        return in_order(*_row_norms(k, grad, squares, norms, attrs["scale"] ** 2), *calls)
    change = in_order(*calls)
    keep = in_order(copying(xp, grad, k["x_grad"]))
    factor = real(attrs["scale"] ** 2)
    harmless = real(min(clip, zero) ** 2)

    def run() -> None:  # most gradients are small, and stay what they are
        np.vecdot(grad, grad, out=norms)
        np.multiply(norms, factor, norms)
        if norms.max(initial=0) < harmless:
            keep()
        else:
            change()

    return run
