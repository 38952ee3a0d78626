"""Connectionist temporal classification: labels whose places in time are not known."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from ...framework.base.dtypes import wide
from ...framework.base.errors import RunError
from ...framework.base.sequence import lengths_of, offsets_of
from ...framework.base.sizes.shape import ShapeArgs
from ...framework.fusion.team import in_order, nothing
from ...framework.ir.kernel_args import Call, KernelArgs
from ...framework.ir.registry import AttrSpec, Slot, operator
from ..base.indexing import id_check, noted, outside, scatter_adder
from ..linear.matmul import as_rows
from ..sequence.sequences import gather, levels_of, offsets_in, sequence_of_row, sequences_in
from .ctc_paths import Paths, occupation, skips

ctc_loss = operator(
    "ctc_loss",
    doc=(
        "CTC loss of each sequence: out[i] = -log of the probability that the rows of x give the"
        " labels of sequence i in their order, wherever in time, each for one row or several, with"
        " blanks in between; between two equal labels there is one at least. x holds logits (or"
        " log-probabilities: the softmax is taken here), sequences [N, C], or [B, T, C] where all"
        " have T rows. label holds as many sequences, of any lengths, also empty ones. Where the"
        " rows are too few for the labels, out is infinite and the gradient NaN, or with"
        " `zero_infinity` both are 0."
    ),
    inputs=[
        Slot("x", "logits, sequences [N, C] or [B, T, C]", not_in_gradient=True),
        Slot("label", "classes but the blank, integer sequences [M] or [M, 1]"),
    ],
    outputs=[
        Slot("out", "[sequences]", not_in_gradient=True),
        Slot("slope", "derivative of the losses, shape of x", intermediate=True),
    ],
    attrs=[
        AttrSpec("blank", "int", "class that stands for no label", 0, 0),
        AttrSpec("zero_infinity", "bool", "what is impossible costs nothing", False),
        AttrSpec(
            "per_label",
            "bool",
            "divide by the number of labels, as the mean of PyTorch does",
            False,
        ),
    ],
    source="Graves et al. 2006, Connectionist temporal classification; torch.nn.CTCLoss",
    judges="x",
)


@ctc_loss.shape_rule
def ctc_loss_shape(s: ShapeArgs) -> None:
    shape = s.rank("x", 2, 3)
    s.integers("label")
    labels = s.rank("label", 1, 2)
    if len(labels) == 2:
        s.same("the columns of label and 1", labels[1], 1)
    classes = shape[-1]
    if 0 <= classes <= s.attrs["blank"]:
        s.fail(f"the blank {s.attrs['blank']} is none of the {classes} classes")
    labeled = sequences_in(levels_of(s, "label"))
    # A padded batch [B, T, C] has T rows in each: shorter ones come as sequences.
    rows = shape[0] if len(shape) == 3 else sequences_in(levels_of(s, "x"))
    s.set("out", ((s.same("the sequences of x and of label", rows, labeled),), wide(s.floats("x"))))
    # The sum over paths gives the derivative along with the loss. It is kept, so that the gradient
    # does not walk all steps again.
    s.set("slope", (shape, s.dtype("x")))
    s.set_offsets("out", ())


def row_offsets(k: KernelArgs) -> np.ndarray:
    """First rows of the sequences of x, seen as [rows, C]."""
    shape = k.shape("x")
    if len(shape) == 3:
        return np.arange(shape[0] + 1) * shape[1]
    return offsets_in(k, "x")


class _Places:
    """Where rows and labels stand; it follows from the offsets alone.

    Attributes:
        used: numbers of the sequences that have rows; all below are of these.
        rows: row of x of each step, the last one where there are no more, [T, B].
        lengths, states: as in `Paths`, on the device.
        labels: row of the label of each state, [B, S]; its own where `spoken`.
    """

    def __init__(self, k: KernelArgs) -> None:
        xp = k.xp
        offsets = row_offsets(k)
        labels = offsets_in(k, "label")
        self.used = np.flatnonzero(lengths_of(offsets))
        # A sequence without rows has no step to begin in; its loss is settled without a path.
        lengths, counts = lengths_of(offsets)[self.used], lengths_of(labels)[self.used]
        steps = np.arange(lengths.max(initial=0))
        states = np.arange(2 * counts.max(initial=0) + 1)
        first = offsets[:-1][self.used]
        # Behind the end a sequence reads its last row again, which is a valid place; its share
        # there is 0.
        self.rows = xp.asarray(first + np.minimum(steps[:, None], lengths - 1))
        # States alternate: blank, label, blank, ..., blank. Odd ones are labels.
        spoken = (states % 2 == 1) & (states < 2 * counts[:, None])
        place = labels[:-1][self.used][:, None] + states // 2
        # Blanks point at label 0, a valid place, and are put right by `where`.
        self.spoken = xp.asarray(spoken)
        self.labels = xp.asarray(np.where(spoken, place, 0))
        self.lengths = xp.asarray(lengths)
        self.states = xp.asarray(2 * counts + 1)
        self.owner = sequence_of_row(offsets_of(lengths))

    def paths(self, xp: Any, label: Any, blank: int) -> Paths:
        symbols = xp.full(self.spoken.shape, blank)
        # All sequences without labels: there is no label 0 to point at.
        if len(label):
            symbols = xp.where(self.spoken, label[self.labels], blank)
        return Paths(self.lengths, self.states, symbols, skips(xp, symbols, blank))


def label_check(k: KernelArgs, classes: int) -> Call:
    """A callable that refuses labels that are no class, or the blank."""
    label = k["label"]
    blank = k.attrs["blank"]
    in_range = id_check(k, "label", classes)
    other = outside(k, "label", 0, classes)
    name, describe = k.op.inputs["label"][0], k.describe

    def explain(at: int, found: int) -> str:
        if found != blank:
            return other(at, found)
        return describe(
            f"label {name!r} holds {blank}, the blank, which stands between labels only"
        )

    def check() -> None:
        in_range()
        if (label == blank).any():
            raise RunError(explain(0, blank))

    if not label.size:
        return nothing
    return check if k.xp is np else noted(k, "label", explain, 0, classes, blank)


@ctc_loss.kernel
def ctc_loss_kernel(k: KernelArgs) -> Call:
    xp = k.xp
    out = k["out"]
    slope = k.get("slope")
    shape = k.shape("x")
    offsets = row_offsets(k)
    counts = lengths_of(offsets_in(k, "label"))
    rows = int(offsets[-1])
    classes = shape[-1]
    blank = k.attrs["blank"]
    zero = k.attrs["zero_infinity"]
    label = k["label"].reshape(-1)
    check = label_check(k, classes)
    never = 0.0 if zero else np.inf
    # Without rows, no labels are certain (a loss of 0) and any label is impossible.
    start = xp.asarray(np.where(counts > 0, never, 0.0), out.dtype)  # of sequences without rows
    # PyTorch, too, divides by 1 where there are no labels.
    shares = np.maximum(counts, 1) if k.attrs["per_label"] else np.ones(len(counts))
    divisors = xp.asarray(shares)
    if not rows:
        return in_order(check, lambda: xp.copyto(out, start))
    places = _Places(k)
    used = xp.asarray(places.used)
    x, load = as_rows(k, k["x"], rows, classes)
    # float64: a path's logarithm is a sum over all steps, of hundreds of nats.
    logs = k.scratch((rows, classes), np.float64)
    edge = k.scratch((rows, 1), np.float64)
    taken = (*places.rows.shape, places.spoken.shape[1])
    # Several states of a step have one class (all blanks do), so shares are added, not assigned.
    cells, moved = k.scratch(taken, np.int64), k.scratch(taken, np.float64)
    subtract_shares = scatter_adder(k, logs.reshape(-1), cells, moved)
    flat, store = (None, []) if slope is None else as_rows(k, slope, rows, classes, write=True)

    def run() -> None:
        check()
        xp.copyto(logs, x)
        logs.max(1, edge, True)
        xp.subtract(logs, edge, logs)
        xp.exp(logs).sum(1, None, edge, True)
        xp.log(edge, edge)
        xp.subtract(logs, edge, logs)
        paths = places.paths(xp, label, blank)
        # Places in the flat matrix, for the gather here and the sum of shares later.
        cells[...] = (places.rows * classes)[:, :, None] + paths.symbols
        whole, possible, share = occupation(xp, paths, logs.reshape(-1)[cells])
        xp.copyto(out, start)
        out[used] = xp.where(possible, -whole / divisors[used], never)
        if flat is None:
            return
        # The derivative by a logit: its softmax less the share of the paths that pass through its
        # class. The logarithms are not read again, so it is computed in their memory.
        xp.exp(logs, logs)
        xp.negative(share, moved)
        subtract_shares()
        # NaN, not 0: a gradient of an infinite loss must not look like one of a perfect one.
        factors = xp.where(possible, 1 / divisors[used], 0.0 if zero else np.nan)
        flat[...] = logs * factors[owner][:, None]

    owner = xp.asarray(places.owner)
    return in_order(*load, run, *store)


@ctc_loss.backward("x")
def ctc_loss_grad_kernel(k: KernelArgs) -> Call:
    offsets = row_offsets(k)
    classes = k.shape("x")[-1]
    rows = int(offsets[-1])
    if not rows:
        return nothing
    # All that is left is the gradient of each loss, the same for all rows of its sequence.
    slope, load = as_rows(k, k["slope"], rows, classes)
    x_grad, store = as_rows(k, k["x_grad"], rows, classes, write=True)
    spread = k.scratch((rows,), x_grad.dtype)
    take = gather(k, k["out_grad"], sequence_of_row(offsets), spread)

    scale = partial(k.xp.multiply, slope, spread[:, None], x_grad)
    return in_order(*load, take, scale, *store)
