"""Values that one rank sends to one other: what stages of a pipeline hand on to each other."""

from __future__ import annotations

from ...framework.base.sizes.shape import ShapeArgs
from ...framework.ir.kernel_args import Call, KernelArgs
from ...framework.ir.registry import AttrSpec, Slot, operator
from ..base.ranks import ranks_of
from .ranks import EVERYWHERE

_SOURCE = "MPI_Isend, MPI_Recv; Narayanan et al. 2019, PipeDream"
_NO_GRADIENT = "the pass that cuts a net into stages places it after gradients were built"

send = operator(
    "send",
    doc="""Sends variables to one other rank, which takes them by `receive`, in the order in which
they were sent. It does not wait for that rank, and x may change as soon as it has run.""",
    inputs=[Slot("x", "any shapes", duplicable=True)],
    outputs=[Slot("ticket", "[], int64: it holds nothing")],
    attrs=[AttrSpec("rank", "int", "who gets them", minimum=0)],
    source=_SOURCE,
    no_gradient=_NO_GRADIENT,
    world=True,
    takes_halves=EVERYWHERE,
)


@send.shape_rule
def send_shape(s: ShapeArgs) -> None:
    s.set("ticket", ((), "int64"))
    s.set_offsets("ticket", ())


@send.kernel
def send_kernel(k: KernelArgs) -> Call:
    ranks = ranks_of(k)
    arrays, to = k.list("x"), k.attrs["rank"]

    def run() -> None:
        others = ranks()
        for array in arrays:
            others.send(array, to)

    return run


receive = operator(
    "receive",
    doc="""Variables that one other rank has sent by `send`: out, with the shapes, dtypes and
sequences of `like`. It waits until they are there.""",
    inputs=[Slot("like", "any shapes; values are not read", duplicable=True, shape_only=True)],
    outputs=[Slot("out", "shapes of like", duplicable=True)],
    attrs=[AttrSpec("rank", "int", "who has sent them", minimum=0)],
    source=_SOURCE,
    no_gradient=_NO_GRADIENT,
    world=True,
    takes_halves=EVERYWHERE,
)


@receive.shape_rule
def receive_shape(s: ShapeArgs) -> None:
    s.set("out", *s.specs("like"))
    s.copy_offsets("out", "like")


@receive.kernel
def receive_kernel(k: KernelArgs) -> Call:
    ranks = ranks_of(k)
    source = k.attrs["rank"]
    # What nothing reads is on its way as well.
    outs = [
        k.scratch(like.shape, like.dtype) if out is None else out
        for out, like in zip(k.list("out"), k.list("like"), strict=True)
    ]

    def run() -> None:
        others = ranks()
        for out in outs:
            others.receive(out, source)

    return run
