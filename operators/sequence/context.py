"""Rows beside their neighbors in time: splicing, shifting, convolution over time."""

from __future__ import annotations

import numpy as np

from ...framework.base.sizes.shape import Shape, ShapeArgs
from ...framework.fusion.team import in_order, nothing
from ...framework.ir.desc import make_op
from ...framework.ir.kernel_args import Call, KernelArgs
from ...framework.ir.names import inner_name
from ...framework.ir.op_list import OpNode
from ...framework.ir.operation import Operator
from ...framework.ir.registry import AttrSpec, Slot, operator
from .sequences import (
    gather,
    gather_grad,
    levels_of,
    offsets_in,
    packed,
    sequence_of_row,
    unpacked,
)

_CONTEXT = [
    AttrSpec("left", "int", "rows before; negative: the context begins after the row itself", 0),
    AttrSpec("right", "int", "rows after; negative: the context ends before the row itself", 0),
    AttrSpec(
        "padding",
        "string",
        'rows outside the sequence: "zero", or "edge": its first or last row',
        "zero",
        choices=("zero", "edge"),
    ),
]


def _spliced(s: ShapeArgs) -> Shape:
    """Shape of the spliced x."""
    levels_of(s, "x")
    rows, width = s.rank("x", 2)
    left, right = s.attrs["left"], s.attrs["right"]
    # Negative sides may leave the row itself out, so the count is checked and not each side.
    count = left + right + 1
    if count < 1:
        s.fail(f"left {left} and right {right} leave no context")
    return rows, width * count if width >= 0 else -1


def _shifted(k: KernelArgs, by: np.ndarray, edge: bool) -> np.ndarray:
    """Row numbers [N, len(by)]: `by` rows further on in the sequence; -1 or its edge if outside."""
    offsets = offsets_in(k, "x")
    # Empty sequences own no row, so no row asks for the first or last one of a sequence without
    # any.
    number = sequence_of_row(offsets)[:, None]
    first = offsets[:-1][number]
    last = offsets[1:][number] - 1
    rows = np.arange(len(number))[:, None] + by
    if edge:
        return np.clip(rows, first, last)
    return np.where((rows >= first) & (rows <= last), rows, -1)


sequence_context = operator(
    "sequence_context",
    doc=(
        "Splicing: every row beside those around it in its sequence: out[t] = (x[t - left], ...,"
        " x[t + right]), [N, D] -> [N, (left + right + 1) D]. Of several levels the innermost"
        " counts."
    ),
    inputs=[Slot("x", "sequences [N, D]", not_in_gradient=True)],
    outputs=[Slot("out", "sequences [N, (left + right + 1) D]", not_in_gradient=True)],
    attrs=_CONTEXT,
    source="Paddle: paddle/operators/math/context_project.h; Kaldi: SpliceComponent (nnet2)",
)


@sequence_context.shape_rule
def sequence_context_shape(s: ShapeArgs) -> None:
    s.set("out", (_spliced(s), s.dtype("x")))
    s.set_offsets("out", levels_of(s, "x"))


def _context_rows(k: KernelArgs) -> np.ndarray:
    by = np.arange(-k.attrs["left"], k.attrs["right"] + 1)
    return _shifted(k, by, k.attrs["padding"] == "edge").reshape(-1)


@sequence_context.kernel
def sequence_context_kernel(k: KernelArgs) -> Call:
    x, out = k["x"], k["out"]
    if not out.size:
        return nothing
    # A row of out is its context rows one after another, so seen as rows of D columns the whole
    # result is one gather. That view needs contiguous memory.
    memory, store = unpacked(k, out)
    flat = memory.reshape(-1, x.shape[1])
    return in_order(gather(k, x, _context_rows(k), flat), store)


@sequence_context.backward("x")
def sequence_context_grad_kernel(k: KernelArgs) -> Call:
    x_grad = k["x_grad"]
    if not x_grad.size:
        return nothing
    # A row stands in several contexts, and with padding="edge" more than once in one: its gradient
    # is a sum over groups, not a scatter, which would lose all but the last.
    grad, load = packed(k, k["out_grad"])
    flat = grad.reshape(-1, x_grad.shape[1])
    return in_order(load, gather_grad(k, flat, _context_rows(k), x_grad))


sequence_conv = operator(
    "sequence_conv",
    doc=(
        "Convolution over time: out[t] = (x[t - left], ..., x[t + right]) w + b, [N, D] -> [N, M]."
        " Stands for `sequence_context` and `affine`."
    ),
    inputs=[
        Slot("x", "sequences [N, D]"),
        Slot("w", "[(left + right + 1) D, M], the weights of x[t - left] on top"),
        Slot("b", "[M]", optional=True),
    ],
    outputs=[Slot("out", "sequences [N, M]")],
    attrs=_CONTEXT,
    source="Paddle: paddle/operators/sequence_conv_op.cc",
)


@sequence_conv.shape_rule
def sequence_conv_shape(s: ShapeArgs) -> None:
    dtype = s.floats("x", "w", "b") if s.has("b") else s.floats("x", "w")
    (rows, width), (depth, cols) = _spliced(s), s.rank("w", 2)
    s.same("the columns of the spliced x and the rows of w", width, depth)
    if s.has("b"):
        cols = s.same("the columns of w and the length of b", cols, s.rank("b", 1)[0])
    s.set("out", ((rows, cols), dtype))
    s.set_offsets("out", levels_of(s, "x"))


@sequence_conv.expansion
def sequence_conv_expansion(desc: OpNode) -> list[OpNode]:
    op = Operator(desc)
    (out,) = op.outputs["out"]
    # An expansion and no kernel: the gradient follows from the two operators' gradients.
    spliced = inner_name(out, "CONTEXT")
    reads = {slot: op.inputs.get(slot, ()) for slot in ("w", "b")}
    attrs = {name: op.attrs[name] for name in ("left", "right", "padding")}
    return [
        make_op("sequence_context", {"x": op.inputs["x"]}, {"out": spliced}, attrs),
        make_op("affine", {"x": spliced, **reads}, {"out": out}),
    ]


sequence_shift = operator(
    "sequence_shift",
    doc=(
        "Rows moved in time: out[t] = x[t - by] within each sequence, x and out [N, ...]. by > 0"
        " delays (CNTK's PastValue), by < 0 advances (FutureValue). Rows whose source lies outside"
        " their sequence are `fill`, or rows of `boundary`: [1, ...] for all, or [S, ...], one for"
        " each sequence."
    ),
    inputs=[
        Slot("x", "sequences [N, ...]", not_in_gradient=True),
        Slot("boundary", "[1, ...] or [S, ...]", optional=True, not_in_gradient=True),
    ],
    outputs=[Slot("out", "sequences [N, ...]", not_in_gradient=True)],
    attrs=[
        AttrSpec("by", "int", "rows to move by", 1),
        AttrSpec("fill", "float", "value of rows from outside, where there is no boundary", 0.0),
    ],
    source="CNTK: Source/ComputationNetworkLib/RecurrentNodes.h",
)


@sequence_shift.shape_rule
def sequence_shift_shape(s: ShapeArgs) -> None:
    levels = levels_of(s, "x")
    if s.has("boundary"):
        boundary = s["boundary"]
        if not boundary:
            s.fail("boundary wants at least 1 dimension")
        s.same_shape("rows of x and of boundary", s["x"][1:], boundary[1:])
        if s.dtype("boundary") != s.dtype("x"):
            s.fail("x and boundary want one dtype")
        # Numbers of sequences are known in a run only; a net that is being built passes here.
        if levels is not None and boundary[0] != 1:
            count = len(levels[-1]) - 1
            s.same("rows of boundary and sequences of x", boundary[0], count)
    s.set("out", (s["x"], s.dtype("x")))
    s.set_offsets("out", levels)


def _shifted_rows(k: KernelArgs) -> np.ndarray:
    # The sign turns: out[t] is x[t - by], so row t looks back by `by`.
    return _shifted(k, np.array([-k.attrs["by"]]), False)[:, 0]


def _boundary_rows(k: KernelArgs, index: np.ndarray) -> np.ndarray:
    """For each row that comes from outside (index -1) the row of boundary that it takes."""
    number = sequence_of_row(offsets_in(k, "x"))
    return number[index < 0] if k.shape("boundary")[0] != 1 else np.zeros((index < 0).sum(), int)


@sequence_shift.kernel
def sequence_shift_kernel(k: KernelArgs) -> Call:
    x, out = k["x"], k["out"]
    index = _shifted_rows(k)
    boundary = k.get("boundary")
    # Which rows come from outside follows from the offsets, so it is settled when the kernel is
    # bound: a batch of sequences without one runs a plain gather.
    outside = np.flatnonzero(index < 0)
    if boundary is None or not len(outside):
        return gather(k, x, index, out, k.attrs["fill"])
    # `take` fills whole arrays only, and these rows are scattered in out: they are collected first
    # and then written over the zeros that `move` leaves there.
    edge = k.scratch((len(outside), *x.shape[1:]), x.dtype)
    take_edge = gather(k, boundary, _boundary_rows(k, index), edge)
    move = gather(k, x, index, out)
    outside = k.xp.asarray(outside)

    def run() -> None:
        move()
        take_edge()
        out[outside] = edge

    return run


@sequence_shift.backward("x", "boundary")
def sequence_shift_grad_kernel(k: KernelArgs) -> Call:
    grad = k["out_grad"]
    x_grad = k.get("x_grad")
    boundary_grad = k.get("boundary_grad")
    index = _shifted_rows(k)
    calls = []
    if x_grad is not None:
        calls.append(gather_grad(k, grad, index, x_grad))
    if boundary_grad is not None:
        # Rows from inside stay -1, which gives nothing. A boundary of one row for all collects the
        # sum of its gradients, as several rows then name it.
        rows = np.full(len(index), -1)
        rows[index < 0] = _boundary_rows(k, index)
        calls.append(gather_grad(k, grad, rows, boundary_grad))
    return in_order(*calls)
