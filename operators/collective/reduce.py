"""Sums over ranks: at once, or begun and waited for, so that other operators run meanwhile."""

from __future__ import annotations

from typing import Any

from ...framework.base.backend import address
from ...framework.base.communicator import Communicator
from ...framework.base.sizes.shape import ShapeArgs
from ...framework.ir.kernel_args import Call, KernelArgs
from ...framework.ir.registry import Slot, operator
from ..base.ranks import ranks_of
from .ranks import (
    EVERYWHERE,
    MODE,
    TOTAL,
    WEIGHT,
    Bucket,
    check_weight,
    exchanging,
    one_dtype,
    refuse_two_means,
    scale,
    unpacking,
    weighing,
)

_BUCKET = "any shapes, equal on all ranks, one dtype: a bucket, which is one message"
_SOURCE = "MPI_Allreduce; Li et al. 2020, PyTorch Distributed, for buckets and overlap"

all_reduce = operator(
    "all_reduce",
    doc="""Sum over all ranks, the same bits on each: out = x0 + x1 + ..., added in the order of
ranks. mode=mean divides by the number of ranks. With `weight`, the mean weighted by it:
out = sum(weight x) / sum(weight).

Its gradient takes the loss to be the sum of the losses of all ranks.""",
    inputs=[
        Slot("x", _BUCKET, duplicable=True, not_in_gradient=True),
        WEIGHT,
        TOTAL,
    ],
    outputs=[
        Slot(
            "out",
            "the sums; may be the variables of x",
            duplicable=True,
            inplace="x",
            not_in_gradient=True,
        )
    ],
    attrs=[MODE],
    source=_SOURCE,
    world=True,
    joins="x",
    takes_halves=EVERYWHERE,
)


@all_reduce.shape_rule
def all_reduce_shape(s: ShapeArgs) -> None:
    one_dtype(s, "x", floats=s.has("weight") or s.attrs["mode"] == "mean")
    check_weight(s)
    refuse_two_means(s)
    s.set("out", *s.specs("x"))


@all_reduce.kernel
def all_reduce_kernel(k: KernelArgs) -> Call:
    weigh = weighing(k)
    mean = k.attrs["mode"] == "mean"

    def exchange(flat: Any, ranks: Communicator) -> None:
        weigh(flat, ranks)  # each rank has a weight of its own, so it counts before the sum
        ranks.all_reduce(flat)
        if mean:
            scale(flat, 1 / ranks.size)

    return exchanging(k, "x", "out", exchange)


@all_reduce.backward("x")
def all_reduce_grad_kernel(k: KernelArgs) -> Call:
    weigh = weighing(k)
    mean = k.attrs["mode"] == "mean"

    def exchange(flat: Any, ranks: Communicator) -> None:
        # Transposed: the gradients of all ranks are summed, and then the own share is the factor.
        ranks.all_reduce(flat)
        weigh(flat, ranks)
        if mean:
            scale(flat, 1 / ranks.size)

    return exchanging(k, "out_grad", "x_grad", exchange)


all_reduce_start = operator(
    "all_reduce_start",
    doc="""Begins what `all_reduce` does and `all_reduce_wait` ends. In between other operators run,
which leave the variables of `lent` alone.""",
    inputs=[Slot("x", _BUCKET, duplicable=True), WEIGHT, TOTAL],
    outputs=[
        Slot(
            "lent",
            "shapes of x: values on their way, to be read by the wait alone; may be the variables"
            " of x",
            duplicable=True,
            inplace="x",
        ),
        Slot("ticket", "[], int64: by its name the wait takes the sum back; it holds nothing"),
    ],
    source=_SOURCE,
    no_gradient="differentiate `all_reduce`, and divide it afterwards",
    world=True,
    joins="x",
    takes_halves=EVERYWHERE,
)


@all_reduce_start.shape_rule
def all_reduce_start_shape(s: ShapeArgs) -> None:
    one_dtype(s, "x", floats=s.has("weight"))
    check_weight(s)
    s.set("lent", *s.specs("x"))
    s.set("ticket", ((), "int64"))


@all_reduce_start.kernel
def all_reduce_start_kernel(k: KernelArgs) -> Call:
    ranks = ranks_of(k)
    weigh = weighing(k)
    bucket = Bucket(k, "x", "lent")
    (ticket,) = k.op.outputs["ticket"]

    def run() -> None:
        bucket.pack()
        others = ranks()
        weigh(bucket.flat, others)
        # A variable holds numbers only, which a GPU would have to be asked for: the communicator
        # keeps the request and its array, and the ticket's name stands for them.
        others.keep(ticket, others.start_all_reduce(bucket.flat), bucket.flat)

    return run


all_reduce_wait = operator(
    "all_reduce_wait",
    doc="Ends what `all_reduce_start` has begun: out are the sums, or with mode=mean the means.",
    inputs=[
        Slot("x", "the variables lent to the start", duplicable=True),
        Slot("ticket", "the ticket of the start, []"),
    ],
    outputs=[Slot("out", "the sums; may be the variables of x", duplicable=True, inplace="x")],
    attrs=[MODE],
    source=_SOURCE,
    no_gradient="differentiate `all_reduce`, and divide it afterwards",
    world=True,
    joins="x",
    takes_halves=EVERYWHERE,
)


@all_reduce_wait.shape_rule
def all_reduce_wait_shape(s: ShapeArgs) -> None:
    one_dtype(s, "x", floats=s.attrs["mode"] == "mean")
    s.integers("ticket")
    s.rank("ticket", 0)
    s.set("out", *s.specs("x"))


@all_reduce_wait.kernel
def all_reduce_wait_kernel(k: KernelArgs) -> Call:
    ranks = ranks_of(k)
    (ticket,) = k.op.inputs["ticket"]
    outs = k.list("out")
    mean = k.attrs["mode"] == "mean"
    # The plan may have laid the outputs into the memory that is summed; then they are there
    # already.
    own = [address(out) for out in outs if out is not None and out.size][:1]

    def run() -> None:
        others = ranks()
        sums = others.redeem(ticket)
        if mean:
            scale(sums, 1 / others.size)
        if own != [address(sums)]:  # otherwise it is the memory of the outputs
            unpacking(k.xp, sums, outs, k.list("x"))()

    return run
