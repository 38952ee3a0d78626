"""Supervision that says which states come one after the other in a chunk, but not when.

Source: `ConvertSupervisionToUnconstrained` in Kaldi's `chain/chain-supervision.cc`, `AddSelfLoops`
in `hmm/hmm-utils.cc`.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ....framework.base.errors import ShapeError
from ....kaldi.files.transition_model import TransitionModel, Transitions
from ....kaldi.fst.algorithms.acceptors import connect, determinize, minimize
from ....kaldi.fst.algorithms.epsilons import remove_epsilons
from ....kaldi.fst.fst import Fst
from .supervision import Supervision


def unconstrained(
    supervision: Supervision, model: TransitionModel, rng: np.random.Generator
) -> Supervision:
    """From supervision whose labels are transition-ids to end-to-end supervision of pdfs.

    A self-loop may be passed any number of times, except where it begins the chunk: there it stays,
    since the chunk may begin within a state. The pdfs of one path, drawn by `rng`, become
    `alignment_pdfs`.

    Raises:
        ShapeError: it is end-to-end already, or its labels are no transitions of the model.
    """
    transitions = model.transitions()
    count = len(transitions.state) - 1
    if supervision.fst is None or supervision.label_dim != count:
        raise ShapeError(
            f"a supervision with labels 1 to {supervision.label_dim} is none of transition-ids of a"
            f" model that has {count}: chain-get-supervision wants --convert-to-pdfs=false"
        )
    fst = remove_epsilons(supervision.fst)
    alignment = transitions.pdf[_draw_path(fst, rng)].astype(np.int32)
    later = fst.source() != fst.start
    label = np.where(transitions.is_loop[fst.ilabel] & later, 0, fst.ilabel).astype(np.int32)
    forward = _smallest(remove_epsilons(fst.with_columns(ilabel=label, olabel=label)))
    looped = _smallest(connect(_with_loops(forward, transitions)))
    return replace(
        supervision,
        label_dim=transitions.num_pdfs,
        fst=None,
        e2e_fsts=[looped],
        alignment_pdfs=alignment,
    )


def _smallest(fst: Fst) -> Fst:
    determinized = determinize(fst)
    assert determinized is not None
    return minimize(connect(determinized))


def _draw_path(fst: Fst, rng: np.random.Generator) -> list[int]:
    """The labels of a path that takes each way on with equal probability."""
    state = fst.start
    labels = []
    while True:
        begin = int(fst.begin[state])
        end = int(fst.begin[state + 1])
        choice = int(rng.integers(end - begin + (not np.isinf(fst.final[state]))))
        if choice == end - begin:
            return labels
        labels.append(int(fst.ilabel[begin + choice]))
        state = int(fst.nextstate[begin + choice])


def _with_loops(fst: Fst, transitions: Transitions) -> Fst:
    """With pdfs counted from 1 as labels, and on each state the loop of the transition that led
    there; states to which several lead are there once for each."""
    loops = np.zeros(int(transitions.state.max()) + 1, np.int64)
    numbers = np.flatnonzero(transitions.is_loop)
    loops[transitions.state[numbers]] = numbers
    led = transitions.state[fst.ilabel]
    pairs, copy = np.unique(np.stack([fst.nextstate, led], 1), axis=0, return_inverse=True)
    copy = copy.ravel() + 1  # state 0 stays the start, to which nothing leads
    original = np.concatenate(([fst.start], pairs[:, 0]))
    through = np.concatenate(([0], loops[pairs[:, 1]]))
    source, label, weight, target = [], [], [], []
    for state, place in enumerate(original.tolist()):
        arcs = slice(int(fst.begin[place]), int(fst.begin[place + 1]))
        source.append(np.full(arcs.stop - arcs.start, state))
        label.append(fst.ilabel[arcs])
        weight.append(fst.weight[arcs])
        target.append(copy[arcs])
    looping = np.flatnonzero(through)
    columns = (
        np.concatenate([*source, looping]),
        transitions.pdf[np.concatenate([*label, through[looping]])] + 1,
        np.concatenate([*weight, np.zeros(len(looping))]),
        np.concatenate([*target, looping]),
    )
    return Fst.of_arcs(*columns, fst.final[original])
