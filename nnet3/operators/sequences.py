"""Rows of a matrix as sequences, over which a `recurrent` operator runs, and back."""

from __future__ import annotations

from ...framework.base.sequence import offsets_of
from ...framework.base.sizes.shape import ShapeArgs
from ...framework.fusion.team import in_order
from ...framework.ir.kernel_args import Call, KernelArgs
from ...framework.ir.registry import AttrSpec, Slot, operator
from ...operators.base.calls import copying

as_sequences = operator(
    "nnet3.as_sequences",
    doc="The rows of x as sequences of certain lengths, one after the other: out = x. Without"
    " lengths the other way round: rows that belong to no sequence.",
    inputs=[Slot("x", "[N, D]")],
    outputs=[Slot("out", "[N, D]", inplace="x")],
    attrs=[AttrSpec("lengths", "ints", "of the sequences; none: plain rows", (), minimum=0)],
    source="Paddle: paddle/fluid/operators/lod_reset_op.cc",
    no_gradient="compiled computations hold it, whose backward part is also compiled",
)


@as_sequences.shape_rule
def as_sequences_shape(s: ShapeArgs) -> None:
    lengths = s.attrs["lengths"]
    if lengths:
        s.same("rows of x and the sum of lengths", s.rank("x", 2)[0], sum(lengths))
    s.set("out", (s["x"], s.dtype("x")))
    s.set_offsets("out", (offsets_of(lengths),) if lengths else ())


@as_sequences.kernel
def as_sequences_kernel(k: KernelArgs) -> Call:
    return in_order(copying(k.xp, k["x"], k["out"]))
