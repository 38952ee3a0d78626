"""Parts of matrices by their diagonals: tril, triu, diag, and eye, the identity."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from ...framework.base.sizes.shape import ShapeArgs, same_as
from ...framework.fusion.team import in_order
from ...framework.ir.gradient_args import GradientArgs
from ...framework.ir.kernel_args import Call, KernelArgs
from ...framework.ir.op_list import OpNode
from ...framework.ir.registry import AttrSpec, Slot, operator
from ..base.calls import copying

_DIAGONAL = AttrSpec(
    "diagonal", "int", "0 is the main one, 1 the one to the right of it, -1 to the left", 0
)

# -- tril, triu --------------------------------------------------------------------------------


def _triangle(op_type: str, what: str) -> None:
    entry = operator(
        op_type,
        doc=f"The {what} triangle of each matrix, and 0 elsewhere: out[..., i, j] = x[..., i, j] on"
        f" the diagonal j = i + `diagonal` and {'below' if op_type == 'tril' else 'above'} it.",
        inputs=[Slot("x", "[..., M, N]", not_in_gradient=True)],
        outputs=[Slot("out", "[..., M, N]", inplace="x", not_in_gradient=True)],
        attrs=[_DIAGONAL],
        source=f"numpy.{op_type}",
    )

    @entry.shape_rule
    def shape(s: ShapeArgs) -> None:
        if len(s["x"]) < 2:
            s.fail(f"x wants at least 2 dimensions and has {len(s['x'])}")
        same_as("x")(s)

    @entry.kernel
    def kernel(k: KernelArgs) -> Call:
        xp = k.xp
        x = k["x"]
        out = k["out"]
        rows, columns = np.ogrid[: x.shape[-2], : x.shape[-1]]
        places = columns - rows - k.attrs["diagonal"]
        # One mask for all runs, which broadcasts over a stack of matrices.
        outside = xp.asarray(places > 0 if op_type == "tril" else places < 0)
        # A masked copy and no product: 0 * NaN would be NaN.
        clear = partial(xp.copyto, out, out.dtype.type(0), where=outside)
        return in_order(copying(xp, x, out), clear)

    @entry.gradient_maker
    def gradient(g: GradientArgs) -> list[OpNode]:
        # A mask of zeros and ones is its own gradient.
        return [g.op(op_type, {"x": g.output_grads("out")}, {"out": g.input_grads("x")}, g.attrs)]


_triangle("tril", "lower left")
_triangle("triu", "upper right")


# -- eye ---------------------------------------------------------------------------------------

eye = operator(
    "eye",
    doc="A matrix with 1 on a diagonal and 0 elsewhere: the identity.",
    outputs=[Slot("out", "[rows, columns]")],
    attrs=[
        AttrSpec("rows", "int", "number of rows", minimum=0),
        AttrSpec("columns", "int", "number of columns; -1 = as many as rows", -1, minimum=-1),
        _DIAGONAL,
        AttrSpec("dtype", "dtype", "of the result", np.dtype("float32")),
    ],
    source="numpy.eye",
    no_gradient="it reads no values",
)


@eye.shape_rule
def eye_shape(s: ShapeArgs) -> None:
    rows, columns = s.attrs["rows"], s.attrs["columns"]
    s.set("out", ((rows, rows if columns < 0 else columns), s.attrs["dtype"]))


@eye.kernel
def eye_kernel(k: KernelArgs) -> Call:
    out = k["out"]
    return partial(k.xp.copyto, out, k.xp.eye(*out.shape, k=k.attrs["diagonal"], dtype=out.dtype))


# -- diag --------------------------------------------------------------------------------------

diag = operator(
    "diag",
    doc="A vector on a diagonal of a matrix of zeros, or the diagonal of a matrix as a vector.",
    inputs=[Slot("x", "[N], or [M, N]", not_in_gradient=True)],
    outputs=[
        Slot("out", "[N + |diagonal|, N + |diagonal|], or the diagonal", not_in_gradient=True)
    ],
    attrs=[_DIAGONAL],
    source="numpy.diag",
)


@diag.shape_rule
def diag_shape(s: ShapeArgs) -> None:
    shape = s.rank("x", 1, 2)
    off = s.attrs["diagonal"]
    if len(shape) == 1:
        size = -1 if shape[0] < 0 else shape[0] + abs(off)
        out = (size, size)
    else:
        rows, columns = shape
        out = (-1 if -1 in shape else max(0, min(rows + min(off, 0), columns - max(off, 0))),)
    s.set("out", (out, s.dtype("x")))


def _places(k: KernelArgs, length: int) -> tuple[Any, Any]:
    """Rows and columns of the elements of the diagonal."""
    off = k.attrs["diagonal"]
    along = k.xp.arange(length)
    return along + max(-off, 0), along + max(off, 0)


def _moving(k: KernelArgs, source: Any, target: Any) -> Call:
    """A call that copies a vector to a diagonal of zeros, or a diagonal to a vector."""
    vector = source if source.ndim == 1 else target
    index = _places(k, len(vector))
    xp = k.xp
    if target.ndim == 1:

        def take() -> None:
            # Inside the call: indexing by arrays copies, and must copy this run's values.
            xp.copyto(target, source[index])

        return take

    def put() -> None:
        target.fill(0)
        target[index] = source

    return put


@diag.kernel
def diag_kernel(k: KernelArgs) -> Call:
    return _moving(k, k["x"], k["out"])


@diag.backward("x")
def diag_grad_kernel(k: KernelArgs) -> Call:
    return _moving(k, k["out_grad"], k["x_grad"])
