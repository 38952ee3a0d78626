"""Metrics: accuracy, edit distance, area under the ROC curve. None has a gradient."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...framework.base.errors import RunError
from ...framework.base.sizes.shape import ShapeArgs, count
from ...framework.fusion.team import in_order
from ...framework.ir.kernel_args import Call, KernelArgs
from ...framework.ir.registry import AttrSpec, Slot, operator
from ..linear.matmul import as_rows
from .labels import IGNORE_INDEX, INDEX_LABEL, bind_labels, index_rule

accuracy = operator(
    "accuracy",
    doc=(
        "Share of samples whose label is among the k highest scores. x [..., C], label [...]."
        " Of equal scores the lower class counts as the higher one; samples whose score is NaN are"
        " wrong; those whose label is `ignore_index` do not count. Without samples it is 0."
    ),
    inputs=[Slot("x", "scores [..., C]"), INDEX_LABEL],
    outputs=[
        Slot("out", "correct / total, float32 []"),
        Slot("correct", "number of samples that are right, int64 []", optional=True),
        Slot("total", "number of samples that count, int64 []", optional=True),
    ],
    attrs=[AttrSpec("k", "int", "how many scores count as chosen", 1, minimum=1), IGNORE_INDEX],
    source="Paddle: paddle/operators/accuracy_op.cc",
    no_gradient="a metric",
    judges="x",
)


@accuracy.shape_rule
def accuracy_shape(s: ShapeArgs) -> None:
    index_rule(s)
    if s["x"][-1] == 0:
        s.fail("x has no classes")
    s.set("out", ((), np.float32))
    s.set("correct", ((), np.int64))
    s.set("total", ((), np.int64))


@accuracy.kernel
def accuracy_kernel(k: KernelArgs) -> Call:
    xp = k.xp
    out = k["out"]
    best = k.attrs["k"]
    correct, total = k.get("correct"), k.get("total")
    classes = k.shape("x")[-1]
    samples = count(k.shape("x")[:-1])
    x, load = as_rows(k, k["x"], samples, classes)
    labels = bind_labels(k, classes)
    chosen = k.scratch((samples,), xp.intp)
    right = k.scratch((samples,), bool)
    numbers, names = xp.arange(samples), xp.arange(classes)

    def by_argmax(index: Any) -> None:
        x.argmax(1, out=chosen)
        xp.equal(chosen, index, out=right)
        # NumPy's argmax takes NaN for the largest, so a NaN at the label would count as right.
        xp.copyto(right, False, where=xp.isnan(x[numbers, index]))

    def by_rank(index: Any) -> None:
        # Counts the classes that a label beats, itself included, not those that beat it: no
        # comparison with NaN is true, so a label whose score is NaN beats none and is wrong.
        own = x[numbers, index][:, None]
        beaten = (x < own) | ((x == own) & (names >= index[:, None]))
        xp.greater_equal(beaten.sum(1), max(classes - best, 0) + 1, out=right)

    judge = by_argmax if best == 1 else by_rank

    def run() -> None:
        valid = labels.check()
        index = labels.values
        counted = samples
        if valid is not None:
            # Ignored labels may be no class: class 0 stands in, and is not counted.
            index = index * valid
            counted = valid.sum()
        judge(index)
        if valid is not None:
            xp.logical_and(right, valid, out=right)
        hits = right.sum()
        out[...] = hits / xp.maximum(counted, 1)
        if correct is not None:
            correct[...] = hits
        if total is not None:
            total[...] = counted

    return in_order(*labels.load, *load, run)


edit_distance = operator(
    "edit_distance",
    doc=(
        "Levenshtein distance of each row of x from the same row of label: the least number of"
        " insertions, deletions and substitutions. x [N, S] and label [N, T] are integers, padded;"
        " x_length and label_length [N] say how many of a row count (default: all). out [N];"
        " `normalized` divides by the length of the label, or by 1 where that is 0."
    ),
    inputs=[
        Slot("x", "sequences [N, S], integers"),
        Slot("label", "reference sequences [N, T], integers"),
        Slot("x_length", "lengths of the rows of x, integers [N]", optional=True),
        Slot("label_length", "lengths of the rows of label, integers [N]", optional=True),
    ],
    outputs=[Slot("out", "distances, float32 [N]")],
    attrs=[AttrSpec("normalized", "bool", "divide by the label's length", False)],
    source="Paddle: paddle/operators/edit_distance_op.cc",
    no_gradient="a metric",
    judges="x",
)


@edit_distance.shape_rule
def edit_distance_shape(s: ShapeArgs) -> None:
    rows = [s.rank("x", 2)[0], s.rank("label", 2)[0]]
    s.integers("x")
    s.integers("label")
    for slot in ("x_length", "label_length"):
        if s.has(slot):
            rows.append(s.rank(slot, 1)[0])
            s.integers(slot)
    s.set("out", ((s.same("the rows of x, label and the lengths", *rows),), np.float32))


@edit_distance.kernel
def edit_distance_kernel(k: KernelArgs) -> Call:
    """Goes along the anti-diagonals of the table, each of which needs the two before it only.

    Entry [n, i] of diagonal d is the distance between the first i elements of row n of x and the
    first d - i of label.
    """
    xp = k.xp
    x = k["x"]
    label = k["label"]
    out = k["out"]
    rows, width, height = x.shape[0], x.shape[1], label.shape[1]
    x_length, label_length = k.get("x_length"), k.get("label_length")
    numbers = xp.arange(rows)
    diagonals = [k.scratch((rows, width + 1), np.int32) for _ in range(3)]
    differs = k.scratch((rows, width + 1), np.int32)
    distances = k.scratch((rows,), np.int32)
    steps: list[Any] = [
        (d, max(0, d - height), min(d, width), *(diagonals[(d - back) % 3] for back in range(3)))
        for d in range(width + height + 1)
    ]

    def advance(d: int, begin: int, end: int, new: Any, last: Any, former: Any) -> None:
        first, final = max(begin, 1), min(end, d - 1)  # where neither sequence is empty
        if first <= final:
            inner = slice(first, final + 1)
            before = slice(first - 1, final)
            cost = differs[:, inner]
            # Along a diagonal i rises as the place in label falls, so label is read backwards.
            columns = label[:, d - final - 1 : d - first][:, ::-1]
            xp.not_equal(x[:, before], columns, out=cost)
            xp.add(former[:, before], cost, out=cost)
            xp.minimum(last[:, before], last[:, inner], out=new[:, inner])
            xp.add(new[:, inner], 1, out=new[:, inner])
            xp.minimum(new[:, inner], cost, out=new[:, inner])
        # Against an empty sequence the distance is the length of the other.
        if begin == 0:
            new[:, 0] = d
        if end == d:
            new[:, d] = d

    def run() -> None:
        xs = _lengths(k, "x_length", x_length, rows, width)
        labels = _lengths(k, "label_length", label_length, rows, height)
        # A row ends at the entry where both its lengths are reached, on the diagonal of their sum.
        whole = xs + labels
        for step in steps:
            advance(*step)
            d, new = step[0], step[3]
            # Rows end on different diagonals: each is read off when its own passes.
            xp.copyto(distances, new[numbers, xs], where=whole == d)
        if k.attrs["normalized"]:
            out[...] = distances / xp.maximum(labels, 1)
        else:
            out[...] = distances

    return run


def _lengths(k: KernelArgs, slot: str, given: Any, rows: int, most: int) -> Any:
    """The lengths of a slot as int64, checked; `most` for each row where there is none."""
    if given is None:
        return k.xp.full(rows, most)
    # Widened before it is compared and added: the sum of two int8 lengths may overflow.
    lengths = given.astype(np.int64)
    bad = (lengths < 0) | (lengths > most)
    if bad.any():
        at = int(bad.argmax())
        name = k.op.inputs[slot][0]
        why = f"{slot} {name!r} holds {int(lengths[at])} for row {at}, want 0 .. {most}"
        raise RunError(k.describe(why))
    return lengths


auc = operator(
    "auc",
    doc=(
        "Area under the ROC curve: the probability that a sample of label 1 has a higher score"
        " than one of label 0, ties counting half. x [N] or [N, 1]. Without samples of both kinds"
        " it is 0.5."
    ),
    inputs=[
        Slot("x", "scores [N] or [N, 1]"),
        Slot("label", "integers [N] or [N, 1]: 0 = negative, any other number = positive"),
    ],
    outputs=[Slot("out", "area, float32 []")],
    source="Mann and Whitney 1947; Paddle: paddle/operators/auc_op.cc",
    no_gradient="a metric",
    judges="x",
)


@auc.shape_rule
def auc_shape(s: ShapeArgs) -> None:
    s.floats("x")
    s.integers("label")
    rows = []
    for slot in ("x", "label"):
        shape = s.rank(slot, 1, 2)
        if len(shape) == 2:
            s.same(f"the columns of {slot} and 1", shape[1], 1)
        rows.append(shape[0])
    s.same("the samples of x and label", *rows)
    s.set("out", ((), np.float32))


@auc.kernel
def auc_kernel(k: KernelArgs) -> Call:
    xp = k.xp
    x = k["x"]
    label = k["label"]
    out = k["out"]
    scores = x if x.ndim == 1 else x[:, 0]
    flags = label if label.ndim == 1 else label[:, 0]

    def run() -> None:
        """Each sample's rank is the mean of those that its tie takes up."""
        positive = flags != 0
        _, place, sizes = xp.unique(scores, return_inverse=True, return_counts=True)
        # Equal scores share a rank, the mean of the places that they take: so ties count half.
        last = sizes.cumsum()
        ranks = (last - (sizes - 1) / 2)[place]
        ones = positive.sum()
        pairs = ones * (len(positive) - ones)
        # Mann and Whitney: the ranks of the positive samples, less what they are among these alone,
        # add up to the pairs that they win. It takes one sort, and no loop over thresholds.
        wins = ranks[positive].sum() - ones * (ones + 1) / 2
        out[...] = xp.where(pairs > 0, wins / xp.maximum(pairs, 1), 0.5)

    return run
