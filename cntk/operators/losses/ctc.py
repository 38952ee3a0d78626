"""Connectionist temporal classification: labels without their places in time.

Source: A. Graves et al., Connectionist temporal classification (ICML 2006); CNTK 2.0's
`ForwardBackwardNode` for the form of labels and the constraint on delays (`gammacalculation.h`,
`CPUMatrixImpl.h`). CNTK also bounds the blank before a label, which follows from the bound of the
label, and the last blank, by a number after the end of its array, which is left out here.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from ....framework.base.backend import to_host
from ....framework.base.sizes.shape import ShapeArgs
from ....framework.ir.kernel_args import Call, KernelArgs
from ....framework.ir.registry import AttrSpec, Slot, operator
from ....operators.loss.ctc_paths import NEVER, Paths, occupation, skips
from ....operators.sequence.sequences import levels_of, offsets_in

_BEGINS = 2  # the element of a label in the row where it begins

ctc = operator(
    "cntk.ctc",
    doc=(
        "CTC criterion, summed over sequences: -log of the probability that the rows of x give the"
        " labels in their order, with blanks in between, wherever in time. The labels of a sequence"
        " are the largest elements of the rows of `label` that hold a 2, which marks where a label"
        " begins; where no row does, of the rows that differ from the one before. With `delay` >= 0"
        " a label is given at most so many rows after the next one begins. A sequence whose rows"
        " cannot give its labels adds nothing, and has no gradient."
    ),
    inputs=[
        Slot("label", "one-hot rows with marks, sequences [N, C]"),
        Slot("x", "logits, sequences of the same lengths [N, C]", not_in_gradient=True),
    ],
    outputs=[
        Slot("out", "[1]", not_in_gradient=True),
        Slot("slope", "softmax(x) less the posteriors of the labels, [N, C]", intermediate=True),
    ],
    attrs=[
        AttrSpec("blank", "int", "number of the blank label", minimum=0),
        AttrSpec("delay", "int", "rows that a label may be late; -1: any", -1, -1),
    ],
    source="CNTK 2.0: ForwardBackwardNode, Source/ComputationNetworkLib/TrainingNodes.h",
)


@ctc.shape_rule
def ctc_shape(s: ShapeArgs) -> None:
    levels_of(s, "x")
    rows, classes = s.same_shape("label and x", s.rank("label", 2), s.rank("x", 2))
    if 0 <= classes <= s.attrs["blank"]:
        s.fail(f"the blank {s.attrs['blank']} is none of the {classes} classes")
    s.set("out", ((1,), s.floats("label", "x")))
    s.set("slope", ((rows, classes), s.dtype("x")))


def _paths(
    label: np.ndarray, offsets: np.ndarray, blank: int, delay: int
) -> tuple[Paths, np.ndarray, np.ndarray]:
    """The paths of all sequences that have steps.

    Returns:
        Besides, the row of x of each step, the last one where there are no more, [sequences,
        steps], and the last step that a state may have, [sequences, most states].
    """
    number = label.argmax(1)
    marked = label.max(1, initial=0) == _BEGINS
    spans = [(a, b) for a, b in zip(offsets[:-1], offsets[1:], strict=True) if a < b]
    sequences = []
    for begin, end in spans:
        own = number[begin:end]
        starts = marked[begin:end]
        if not starts.any():
            starts = np.append(True, own[1:] != own[:-1])
        at = np.flatnonzero(starts & (own != blank))
        sequences.append((own[at], np.append(at[1:], end - begin)))
    lengths = np.array([end - begin for begin, end in spans], np.int64)
    steps = np.arange(int(lengths.max(initial=0)))
    first = np.array([begin for begin, _ in spans], np.int64)
    rows = first[:, None] + np.minimum(steps, lengths[:, None] - 1)
    states = np.array([2 * len(labels) + 1 for labels, _ in sequences], np.int64)
    symbols = np.full((len(spans), int(states.max(initial=1))), blank)
    last = np.full(symbols.shape, len(steps))
    for place, (labels, ends) in enumerate(sequences):
        symbols[place, 1 : 2 * len(labels) : 2] = labels
        if delay >= 0:
            last[place, 1 : 2 * len(labels) : 2] = ends + delay
    return Paths(lengths, states, symbols, skips(np, symbols, blank)), rows, last


@ctc.kernel
def ctc_kernel(k: KernelArgs) -> Call:
    label = k["label"]
    x = k["x"]
    out = k["out"]
    slope = k.get("slope")
    offsets = offsets_in(k, "x")
    if not len(x):
        return partial(out.fill, 0)

    def run() -> None:
        paths, rows, last = _paths(to_host(label), offsets, k.attrs["blank"], k.attrs["delay"])
        logits = to_host(x).astype(np.float64)
        logits -= logits.max(1, keepdims=True)
        logs = logits - np.log(np.exp(logits).sum(1, keepdims=True))
        scores = logs[rows.T[:, :, None], paths.symbols]
        steps = np.arange(len(scores))[:, None, None]
        scores = np.where(steps <= last, scores, NEVER)
        whole, possible, shares = occupation(np, paths, scores)
        out[0] = -whole[possible].sum()
        if slope is None:
            return
        posterior = np.exp(logs)
        at = np.broadcast_to(rows.T[:, :, None], shares.shape)
        np.subtract.at(posterior, (at, np.broadcast_to(paths.symbols, shares.shape)), shares)
        posterior[rows[~possible]] = 0
        slope[...] = k.xp.asarray(posterior, slope.dtype)

    return run


@ctc.backward("x")
def ctc_grad_kernel(k: KernelArgs) -> Call:
    return partial(k.xp.multiply, k["slope"], k["out_grad"], k["x_grad"])
