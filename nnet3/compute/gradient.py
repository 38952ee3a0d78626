"""Components that pass their input on and change the gradient on its way back."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from ...framework.base.shape import ShapeArgs, same_as
from ...framework.ir.kernel_args import Call, KernelArgs
from ...framework.ir.registry import AttrSpec, Slot, operator
from ...operators.base.calls import copying, in_order
from .lowering import OUT, Recipe, X, lowers
from .step import of_indexes
from .time_grid import precomputes_by_row

_UNLIMITED = 1e10
"""What a threshold of 0 or less stands for in a BackpropTruncationComponent."""


@lowers("NoOpComponent")
def lower_no_op_component(component: Any, recipe: Recipe) -> None:
    if component.backprop_scale == 1.0:
        recipe.op("assign", OUT, x=X)
    else:
        attrs = {"scale": float(component.backprop_scale)}
        recipe.op("nnet3.scale_gradient", OUT, attrs=attrs, x=X)


@lowers("ClipGradientComponent")
def lower_clip_gradient_component(component: Any, recipe: Recipe) -> None:
    if component.clipping_threshold < 0:
        recipe.op("assign", OUT, x=X)
        return
    attrs = {
        "threshold": float(component.clipping_threshold),
        "norm_based": bool(component.norm_based_clipping),
    }
    recipe.op("nnet3.clip_gradient", OUT, attrs=attrs, x=X)


@lowers("BackpropTruncationComponent")
def lower_backprop_truncation_component(component: Any, recipe: Recipe) -> None:
    source = X
    if component.scale != 1.0:
        source = recipe.temp()
        recipe.op("scale", source, attrs={"scale": float(component.scale)}, x=X)
    clipping, zeroing = component.clipping_threshold, component.zeroing_threshold
    attrs = {
        "clipping_threshold": float(clipping) if clipping > 0 else _UNLIMITED,
        "zeroing_threshold": float(zeroing) if zeroing > 0 else _UNLIMITED,
        "scale": float(component.scale),
        "boundary": of_indexes(),
    }
    recipe.op("nnet3.truncate_gradient", OUT, attrs=attrs, x=source)


@precomputes_by_row("BackpropTruncationComponent")
def precompute_by_row_backprop_truncation_component(
    component: Any, outputs: np.ndarray
) -> np.ndarray:
    """Which rows lie on a boundary where the gradient may be cut; these differ among sequences."""
    shifted = np.subtract(outputs[:, 1], outputs[:, 0], dtype=np.int64)
    # With `recurrence_interval` steps back one is on the other side of a multiple.
    return shifted % component.zeroing_interval < component.recurrence_interval


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
    )

    @entry.kernel
    def kernel(k: KernelArgs) -> Call:
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
    xp, grad, x_grad, bound = k.xp, k["out_grad"], k["x_grad"], k.attrs["threshold"]
    real = grad.dtype.type
    if bound == 0:
        return partial(x_grad.fill, 0)
    if not k.attrs["norm_based"]:
        return in_order(
            partial(xp.minimum, grad, real(bound), out=x_grad),
            partial(xp.maximum, x_grad, real(-bound), out=x_grad),
        )
    squares, scales = k.scratch(grad.shape, grad.dtype), k.scratch(grad.shape[:1], grad.dtype)
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
    xp, grad, attrs = k.xp, k["out_grad"], k.attrs
    real = grad.dtype.type
    boundary = xp.asarray(attrs["boundary"])
    squares, norms = k.scratch(grad.shape, grad.dtype), k.scratch(grad.shape[:1], grad.dtype)
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

    return in_order(
        *_row_norms(k, grad, squares, norms, attrs["scale"] ** 2),
        scales,
        partial(xp.multiply, grad, norms[:, None], k["x_grad"]),
    )
