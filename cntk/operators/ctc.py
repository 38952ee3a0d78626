"""Connectionist temporal classification: labels without their places in time.

Source: A. Graves et al., Connectionist temporal classification (ICML 2006); CNTK 2.0's
`ForwardBackwardNode` for the form of labels and the constraint on delays (`gammacalculation.h`,
`CPUMatrixImpl.h`). CNTK also bounds the blank before a label, which follows from the bound of the
label, and the last blank, by a number behind the end of its array, which is left out here.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np

from ...framework.base.backend import to_host
from ...framework.base.shape import ShapeArgs
from ...framework.ir.kernel_args import Call, KernelArgs
from ...framework.ir.registry import AttrSpec, Slot, operator
from ...operators.sequence.sequences import levels_of, offsets_in

_BEGINS = 2  # the element of a label in the row where it begins
_NEVER = -1e30

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


@dataclass
class _Paths:
    """Labels with blanks around them, a row for each sequence that has steps.

    Attributes:
        rows: row of x of each step, [sequences, steps]; of the last one where there are no more.
        lengths: steps of each sequence, [sequences]. states: states of each, [sequences].
        symbols: class of each state, [sequences, most states].
        skip: whether a state may follow the one before the last, [sequences, most states].
        last: the last step that a state may have, [sequences, most states].
    """

    rows: np.ndarray
    lengths: np.ndarray
    states: np.ndarray
    symbols: np.ndarray
    skip: np.ndarray
    last: np.ndarray


def _paths(label: np.ndarray, offsets: np.ndarray, blank: int, delay: int) -> _Paths:
    number, marked = label.argmax(1), label.max(1, initial=0) == _BEGINS
    spans = [(a, b) for a, b in zip(offsets[:-1], offsets[1:], strict=True) if a < b]
    found = []
    for begin, end in spans:
        own = number[begin:end]
        starts = marked[begin:end]
        if not starts.any():
            starts = np.append(True, own[1:] != own[:-1])
        at = np.flatnonzero(starts & (own != blank))
        found.append((own[at], np.append(at[1:], end - begin)))
    lengths = np.array([end - begin for begin, end in spans], np.int64)
    steps = np.arange(int(lengths.max(initial=0)))
    first = np.array([begin for begin, _ in spans], np.int64)
    rows = first[:, None] + np.minimum(steps, lengths[:, None] - 1)
    states = np.array([2 * len(labels) + 1 for labels, _ in found], np.int64)
    symbols = np.full((len(spans), int(states.max(initial=1))), blank)
    last = np.full(symbols.shape, len(steps))
    for place, (labels, ends) in enumerate(found):
        symbols[place, 1 : 2 * len(labels) : 2] = labels
        if delay >= 0:
            last[place, 1 : 2 * len(labels) : 2] = ends + delay
    skip = np.zeros(symbols.shape, bool)
    skip[:, 2:] = (symbols[:, 2:] != blank) & (symbols[:, 2:] != symbols[:, :-2])
    return _Paths(rows, lengths, states, symbols, skip, last)


def _shifted(values: np.ndarray, by: int) -> np.ndarray:
    """States `by` further on: the values of those before them."""
    out = np.full_like(values, _NEVER)
    out[:, by:] = values[:, :-by]
    return out


def _sum(first: np.ndarray, second: np.ndarray, third: np.ndarray) -> np.ndarray:
    return np.logaddexp(np.logaddexp(first, second), third)


def _forward(paths: _Paths, scores: np.ndarray) -> np.ndarray:
    """Logarithms of the probability of a state with all before it, [steps, sequences, states]."""
    alpha = np.full(scores.shape, _NEVER)
    alpha[0, :, :2] = scores[0, :, :2]
    for step in range(1, len(scores)):
        before = alpha[step - 1]
        jump = np.where(paths.skip, _shifted(before, 2), _NEVER)
        alpha[step] = np.maximum(_sum(before, _shifted(before, 1), jump) + scores[step], _NEVER)
    return alpha


def _backward(paths: _Paths, scores: np.ndarray) -> np.ndarray:
    """Logarithms of the probability of all that follows a state, likewise."""
    beta = np.full(scores.shape, _NEVER)
    places = np.arange(len(paths.states))
    ends = np.full(scores.shape[1:], _NEVER)
    for back in (1, 2):
        inside = paths.states >= back
        ends[places[inside], paths.states[inside] - back] = 0
    skip = np.zeros_like(paths.skip)
    skip[:, :-2] = paths.skip[:, 2:]
    for step in range(len(scores) - 1, -1, -1):
        here = ends
        if step + 1 < len(scores):
            after = beta[step + 1] + scores[step + 1]
            one, two = (_shifted(after[:, ::-1], by)[:, ::-1] for by in (1, 2))
            further = _sum(after, one, np.where(skip, two, _NEVER))
            here = np.where((paths.lengths == step + 1)[:, None], ends, further)
        beta[step] = np.maximum(here, _NEVER)
    return beta


@ctc.kernel
def ctc_kernel(k: KernelArgs) -> Call:
    label, x, out, slope = k["label"], k["x"], k["out"], k.get("slope")
    offsets = offsets_in(k, "x")
    if not len(x):
        return partial(out.fill, 0)

    def run() -> None:
        paths = _paths(to_host(label), offsets, k.attrs["blank"], k.attrs["delay"])
        logits = to_host(x).astype(np.float64)
        logits -= logits.max(1, keepdims=True)
        logs = logits - np.log(np.exp(logits).sum(1, keepdims=True))
        scores = logs[paths.rows.T[:, :, None], paths.symbols]
        steps = np.arange(len(scores))[:, None, None]
        scores = np.where(steps <= paths.last, scores, _NEVER)
        alpha = _forward(paths, scores)
        places = np.arange(len(paths.states))
        final = alpha[paths.lengths - 1, places]
        whole = final[places, paths.states - 1]
        spoken = paths.states > 1
        other = np.where(spoken, final[places, np.maximum(paths.states - 2, 0)], _NEVER)
        whole = np.logaddexp(whole, other)
        possible = whole > _NEVER / 2
        out[0] = -whole[possible].sum()
        if slope is None:
            return
        shares = np.exp(np.minimum(alpha + _backward(paths, scores) - whole[:, None], 0))
        shares[np.broadcast_to(steps >= paths.lengths[:, None], shares.shape)] = 0
        posterior = np.exp(logs)
        at = np.broadcast_to(paths.rows.T[:, :, None], shares.shape)
        np.subtract.at(posterior, (at, np.broadcast_to(paths.symbols, shares.shape)), shares)
        posterior[paths.rows[~possible]] = 0
        slope[...] = k.xp.asarray(posterior, slope.dtype)

    return run


@ctc.backward("x")
def ctc_grad_kernel(k: KernelArgs) -> Call:
    return partial(k.xp.multiply, k["slope"], k["out_grad"], k["x_grad"])
