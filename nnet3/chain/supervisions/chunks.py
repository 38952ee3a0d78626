"""Supervisions of chunks: cut out of an utterance's, and weighted by the normalization FST.

Source: `SupervisionSplitter` and `AddWeightToSupervisionFst` in Kaldi's
`chain/chain-supervision.cc`.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ....framework.base.errors import ShapeError
from ....kaldi.fst.algorithms.acceptors import Matcher, compose, connect, determinize, minimize
from ....kaldi.fst.algorithms.epsilons import remove_epsilons
from ....kaldi.fst.fst import Fst
from .supervision import Supervision, breadth_first, state_times

_MOST_STATES = 200000
"""An FST that grows beyond this in determinization is given up."""


class SupervisionSplitter:
    """Cuts chunks out of the supervision of one utterance.

    Raises:
        ShapeError: the FST's paths have different lengths, or it is end-to-end supervision.
    """

    def __init__(self, supervision: Supervision) -> None:
        if supervision.fst is None or supervision.num_sequences != 1:
            raise ShapeError("only the supervision of one utterance, with one FST, can be cut")
        self._supervision = supervision
        self._fst = supervision.fst
        self._times = state_times(supervision.fst)
        if self._times[-1] != supervision.frames_per_sequence:
            raise ShapeError(
                f"a supervision of {supervision.frames_per_sequence} frames has an FST of"
                f" {self._times[-1]}"
            )

    def part(self, first: int, frames: int) -> Supervision:
        """The supervision of some frames. Arcs of label 0 lead from the start of its FST to each
        state in which a path may be before the first frame.

        Raises:
            ShapeError: there are no such frames.
        """
        last = first + frames
        if not 0 <= first < last <= self._supervision.frames_per_sequence:
            raise ShapeError(
                f"frames {first} to {last - 1} of {self._supervision.frames_per_sequence}"
            )
        fst, times = self._fst, self._times
        begin, end, inner = np.searchsorted(times, (first, last, first + 1)).tolist()
        arcs = slice(int(fst.begin[begin]), int(fst.begin[end]))
        starts = inner - begin
        nothing = np.zeros(starts, np.int32)
        stop = end - begin + 1
        final = np.full(stop + 1, np.inf)
        final[stop] = 0.0
        part = Fst.of_arcs(
            np.concatenate((nothing, fst.source()[arcs] - begin + 1)),
            np.concatenate((nothing, fst.ilabel[arcs])),
            np.concatenate((nothing, fst.weight[arcs])),
            np.concatenate(
                (np.arange(1, starts + 1), np.minimum(fst.nextstate[arcs] - begin + 1, stop))
            ),
            final,
        )
        no_pdfs = np.zeros(0, np.int32)
        return replace(
            self._supervision, frames_per_sequence=frames, fst=part, alignment_pdfs=no_pdfs
        )


def normalized(supervision: Supervision, normalization: Matcher | Fst) -> Supervision | None:
    """With the weights of the normalization FST, an acceptor of sequences of pdfs counted from 1.

    Returns:
        None where the two have no path in common, or determinization leads too far.

    Raises:
        ShapeError: of the supervision of more than one sequence, or an FST has a loop that it
            should not have.
    """
    if supervision.num_sequences != 1:
        raise ShapeError("merged chain examples cannot be normalized any more")
    fst = connect(remove_epsilons(supervision.fsts[0]))
    if supervision.e2e_fsts:
        weighted = compose(fst, normalization)
        return replace(supervision, e2e_fsts=[weighted]) if weighted.states else None
    plain = determinize(fst, _MOST_STATES)
    if plain is None or not plain.states:
        return None
    weighted = compose(minimize(plain), normalization)
    if not weighted.states:
        return None
    determinized = determinize(weighted, _MOST_STATES)
    if determinized is None:
        return None
    return replace(supervision, fst=breadth_first(minimize(determinized)))


def scaled(fst: Fst, factor: float) -> Fst:
    """With all weights times a factor: probabilities are raised to its power."""
    weight = fst.weight * np.float32(factor)
    final = fst.final.copy()
    ends = ~np.isinf(final)
    final[ends] *= np.float32(factor)
    return replace(fst.with_columns(weight=weight), final=final)
