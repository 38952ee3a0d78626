"""Distances between samples."""

from __future__ import annotations

from typing import Any

from ....framework.base.sizes.shape import ShapeArgs
from ....framework.ir.kernel_args import Call, KernelArgs
from ....framework.ir.registry import AttrSpec, Slot, operator

_TINY = 1e-30  # norms below count as that


cos_distance = operator(
    "cntk.cos_distance",
    doc=(
        "Cosine of the angle between rows: out[i, 0] between x[i] and y[i], and out[i, m] for"
        " 1 <= m <= negatives between x[i] and y[(i + shift + m - 1) % N]."
    ),
    inputs=[Slot("x", "[N, D]"), Slot("y", "[N, D]")],
    outputs=[Slot("out", "[N, 1 + negatives]")],
    attrs=[
        AttrSpec("shift", "int", "rows to the first negative sample", 1),
        AttrSpec("negatives", "int", "negative samples of each row", 0, 0),
    ],
    source="CNTK: Source/ComputationNetworkLib/LinearAlgebraNodes.h",
)


@cos_distance.shape_rule
def cos_distance_shape(s: ShapeArgs) -> None:
    rows, _ = s.same_shape("x and y", s.rank("x", 2), s.rank("y", 2))
    s.set("out", ((rows, 1 + s.attrs["negatives"]), s.floats("x", "y")))


def _norms(xp: Any, rows: Any, work: Any, out: Any) -> None:
    """1 / |row| of each row."""
    xp.multiply(rows, rows, work)
    work.sum(1, None, out)
    xp.sqrt(out, out)
    xp.maximum(out, out.dtype.type(_TINY), out=out)
    xp.reciprocal(out, out)


def _partners(k: KernelArgs) -> list[Any]:
    """For each column of out the row of y beside each row of x; None: the same."""
    count = k.shape("x")[0]
    shift = k.attrs["shift"]
    numbers = k.xp.arange(count)
    others = range(k.attrs["negatives"])
    return [None, *((numbers + shift + m) % max(count, 1) for m in others)]


@cos_distance.kernel
def cos_distance_kernel(k: KernelArgs) -> Call:
    xp = k.xp
    x = k["x"]
    y = k["y"]
    out = k["out"]
    work = k.scratch(x.shape, x.dtype)
    inverse_x, inverse_y = k.scratch(x.shape[:1], x.dtype), k.scratch(x.shape[:1], x.dtype)
    partners = _partners(k)

    def run() -> None:
        _norms(xp, x, work, inverse_x)
        _norms(xp, y, work, inverse_y)
        for column, rows in enumerate(partners):
            other, inverse = (y, inverse_y) if rows is None else (y[rows], inverse_y[rows])
            xp.multiply(x, other, work)
            cosine = work.sum(1)
            cosine *= inverse_x
            cosine *= inverse
            out[:, column] = cosine

    return run


@cos_distance.backward("x", "y")
def cos_distance_grad_kernel(k: KernelArgs) -> Call:
    xp = k.xp
    x = k["x"]
    y = k["y"]
    out = k["out"]
    grad = k["out_grad"]
    work = k.scratch(x.shape, x.dtype)
    inverse_x, inverse_y = k.scratch(x.shape[:1], x.dtype), k.scratch(x.shape[:1], x.dtype)
    x_grad, y_grad = k.get("x_grad"), k.get("y_grad")
    partners = _partners(k)

    def run() -> None:
        _norms(xp, x, work, inverse_x)
        _norms(xp, y, work, inverse_y)
        for target in (x_grad, y_grad):
            if target is not None:
                target.fill(0)
        for column, rows in enumerate(partners):
            other, inverse = (y, inverse_y) if rows is None else (y[rows], inverse_y[rows])
            both = (grad[:, column] * inverse_x * inverse)[:, None]
            turned = grad[:, column] * out[:, column]
            if x_grad is not None:
                xp.add(x_grad, both * other, x_grad)
                xp.subtract(x_grad, (turned * inverse_x * inverse_x)[:, None] * x, x_grad)
            if y_grad is not None:
                part = both * x
                part -= (turned * inverse * inverse)[:, None] * other
                # Each row is the partner of one.
                where = slice(None) if rows is None else rows
                y_grad[where] += part

    return run
