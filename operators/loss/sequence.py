"""Means of costs over sequences and padded batches that leave gaps out, and an error rate."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...framework.base.sizes.shape import ShapeArgs, count
from ...framework.fusion.team import in_order, nothing
from ...framework.ir.desc import make_op
from ...framework.ir.kernel_args import Call, KernelArgs
from ...framework.ir.names import inner_name
from ...framework.ir.op_list import OpNode
from ...framework.ir.operation import Operator
from ...framework.ir.registry import AttrSpec, Slot, operator
from ..linear.matmul import as_rows
from ..sequence.sequences import levels_of, offsets_in, reduce_groups
from .labels import IGNORE_INDEX, INDEX_LABEL, bind_labels, index_rule

masked_mean = operator(
    "masked_mean",
    doc=(
        "Weighted mean of a padded batch: out [] = sum(mask x) / sum(mask), where mask [S, T] is"
        " made by `sequence_mask`, or any weights, and holds for all of x [S, T, ...] there."
        " Where mask is 0 x does not count, even if it is NaN. A mask of zeros gives 0."
    ),
    inputs=[
        Slot("x", "[S, T, ...]", not_in_gradient=True),
        Slot("mask", "leading dimensions of x; booleans, integers or floats, none below 0"),
    ],
    outputs=[Slot("out", "[]", not_in_gradient=True)],
)


@masked_mean.shape_rule
def masked_mean_shape(s: ShapeArgs) -> None:
    x, mask = s["x"], s["mask"]
    if len(mask) > len(x):
        s.fail(f"mask has {len(mask)} dimensions, more than x with {len(x)}")
    s.same_shape("mask and the leading dimensions of x", x[: len(mask)], mask)
    s.set("out", ((), s.floats("x")))


def _weights(k: KernelArgs, dtype: Any) -> tuple[Any, Any, Call]:
    """Weights that broadcast against x, their total over x, and the call that computes both."""
    xp = k.xp
    mask = k["mask"]
    shape = k.shape("x")
    weights = k.scratch(mask.shape, dtype)
    total = k.scratch((), dtype)
    each = dtype.type(count(shape[mask.ndim :]))

    def load() -> None:
        xp.copyto(weights, mask, casting="unsafe")
        weights.sum(None, None, total)
        # The sum of the broadcast mask, without broadcasting it.
        xp.multiply(total, each, out=total)

    return weights.reshape(mask.shape + (1,) * (len(shape) - mask.ndim)), total, load


@masked_mean.kernel
def masked_mean_kernel(k: KernelArgs) -> Call:
    xp = k.xp
    x = k["x"]
    out = k["out"]
    if not x.size:
        return lambda: out.fill(0)
    weights, total, load = _weights(k, x.dtype)
    weighted = k.scratch(x.shape, x.dtype)
    gap = k.scratch(weights.shape, bool)

    def run() -> None:
        load()
        xp.multiply(x, weights, out=weighted)
        xp.equal(weights, 0, out=gap)
        # 0 times NaN is NaN, and what pads a batch may be anything.
        xp.copyto(weighted, 0, where=gap)
        weighted.sum(None, None, out)
        # The sum is 0 then, too, and 0 / 1 says so without NaN.
        xp.copyto(total, 1, where=total == 0)
        xp.divide(out, total, out=out)

    return run


@masked_mean.backward("x")
def masked_mean_grad_kernel(k: KernelArgs) -> Call:
    xp = k.xp
    grad = k["out_grad"]
    x_grad = k["x_grad"]
    if not x_grad.size:
        return nothing
    weights, total, load = _weights(k, x_grad.dtype)

    def run() -> None:
        load()
        xp.copyto(total, 1, where=total == 0)
        # x is not read: the mean is linear, so NaN in the padding do not reach its gradient.
        xp.divide(grad, total, out=total)
        xp.multiply(weights, total, out=x_grad)

    return run


# Weighting -> pool type of each sequence before the mean; None for the mean of all rows.
_POOLS = {"row": None, "sequence": "sum", "balanced": "mean"}

sequence_mean = operator(
    "sequence_mean",
    doc=(
        "Mean of costs x [N] over a batch of S sequences: out []. per=row: of all rows, sum(x) / N;"
        " per=sequence: of the sums of the sequences, sum(x) / S; per=balanced: of the means of the"
        " sequences, so that long and short ones weigh the same. An empty sequence counts as 0 in"
        " the latter two. Stands for `sequence_pool` and `mean`."
    ),
    inputs=[Slot("x", "costs of sequences, [N] or [N, 1]")],
    outputs=[Slot("out", "[]")],
    attrs=[
        AttrSpec(
            "per", "string", "the mean is over rows or sequences", "row", choices=tuple(_POOLS)
        )
    ],
)


@sequence_mean.shape_rule
def sequence_mean_shape(s: ShapeArgs) -> None:
    levels_of(s, "x")
    s.set("out", ((), s.floats("x")))


@sequence_mean.expansion
def sequence_mean_expansion(desc: OpNode) -> list[OpNode]:
    op = Operator(desc)
    (out,) = op.outputs["out"]
    pool = _POOLS[op.attrs["per"]]
    # Rows are averaged as they are: `mean` alone has the same value, and pools nothing.
    if pool is None:
        return [make_op("mean", {"x": op.inputs["x"]}, {"out": out})]
    pooled = inner_name(out, "POOLED")
    return [
        make_op("sequence_pool", {"x": op.inputs["x"]}, {"out": pooled}, {"pool_type": pool}),
        make_op("mean", {"x": pooled}, {"out": out}),
    ]


sequence_error = operator(
    "sequence_error",
    doc=(
        "Share of the sequences in which any row is wrong: the highest score in its row of x is not"
        " at its label. Rows whose label is `ignore_index` are never wrong, nor is an empty"
        " sequence. Without sequences it is 0. (The error of rows is 1 - `accuracy`.)"
    ),
    inputs=[Slot("x", "scores of sequences, [N, C]"), INDEX_LABEL],
    outputs=[
        Slot("out", "wrong / sequences, float32 []"),
        Slot("wrong", "number of sequences that are wrong, int64 []", optional=True),
    ],
    attrs=[IGNORE_INDEX],
    no_gradient="a metric",
    judges="x",
)


@sequence_error.shape_rule
def sequence_error_shape(s: ShapeArgs) -> None:
    levels_of(s, "x")
    s.rank("x", 2)
    index_rule(s)
    if s["x"][1] == 0:
        s.fail("x has no classes")
    s.set("out", ((), np.float32))
    s.set("wrong", ((), np.int64))


@sequence_error.kernel
def sequence_error_kernel(k: KernelArgs) -> Call:
    xp = k.xp
    out = k["out"]
    wrong = k.get("wrong")
    rows, classes = k.shape("x")
    x, load = as_rows(k, k["x"], rows, classes)
    labels = bind_labels(k, classes)
    offsets = offsets_in(k, "x")
    sequences = len(offsets) - 1
    chosen = k.scratch((rows,), xp.intp)
    differs = k.scratch((rows,), bool)
    # A group without rows gets 0, that is False: an empty sequence is not wrong.
    failed = k.scratch((sequences,), bool)
    judge = reduce_groups(k, xp.logical_or, differs, offsets, failed)

    def run() -> None:
        valid = labels.check()
        x.argmax(1, out=chosen)
        xp.not_equal(chosen, labels.values, out=differs)
        # argmax takes NaN for the largest, so at the label it would count as right.
        xp.logical_or(differs, xp.isnan(x).any(1), out=differs)
        if valid is not None:
            xp.logical_and(differs, valid, out=differs)
        judge()
        errors = failed.sum()
        out[...] = errors / max(sequences, 1)
        if wrong is not None:
            wrong[...] = errors

    return in_order(*labels.load, *load, run)
