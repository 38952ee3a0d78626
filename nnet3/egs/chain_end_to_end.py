"""Chain examples of whole utterances, whose supervision is a training graph (flat start).

Source: `TrainingGraphToSupervisionE2e` in Kaldi's `chain/chain-supervision.cc`,
`chainbin/nnet3-chain-e2e-get-egs.cc`.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ...framework.base.errors import ShapeError
from ...kaldi.files.sparse import GeneralMatrix
from ...kaldi.files.transition_model import Transitions
from ...kaldi.fst.algorithms.epsilons import remove_epsilons
from ...kaldi.fst.fst import Fst
from ..chain.examples import NnetChainExample, NnetChainSupervision
from ..chain.supervisions.supervision import Supervision, breadth_first
from .generate import IvectorSource
from .rows import example_inputs, frame_indexes
from .splitting import ExampleGenerationOptions

_FARTHEST = 5
"""Features are not cut or extended by so many frames to an allowed length."""


def allowed_length(frames: int, options: ExampleGenerationOptions) -> int:
    """The allowed length that is nearest to an utterance's.

    Raises:
        ShapeError: it is too far off.
    """
    nearest = min(options.num_frames, key=lambda length: abs(frames - length), default=frames)
    if abs(nearest - frames) >= _FARTHEST:
        raise ShapeError(f"{frames} frames, and the nearest allowed length is {nearest}")
    return nearest


def graph_supervision(graph: Fst, transitions: Transitions, frames: int) -> Supervision:
    """The supervision of `frames` output frames by a graph whose input labels are transition-ids.

    Raises:
        ShapeError: a label is no transition-id, or every path is longer than the utterance.
    """
    known = least_supervision(graph, transitions)
    least = known.frames_per_sequence
    if least > frames:
        raise ShapeError(f"the graph wants {least} frames at least, and there are {frames}")
    return replace(known, frames_per_sequence=frames)


def least_supervision(graph: Fst, transitions: Transitions) -> Supervision:
    """The supervision of as few output frames as the shortest path of a graph has.

    Raises:
        ShapeError: a label is no transition-id, or no path leads to an end.
    """
    fst = pdf_fst(graph, transitions)
    least = _shortest_path(fst)
    if np.isinf(least):
        raise ShapeError("no path of the graph leads to an end")
    return Supervision(1.0, 1, int(least), transitions.num_pdfs, e2e_fsts=[fst])


def pdf_fst(graph: Fst, transitions: Transitions) -> Fst:
    """The acceptor, without epsilons, of the pdfs, counted from 1, of a graph's transition-ids.

    Raises:
        ShapeError: an input label is no transition-id.
    """
    fst = breadth_first(remove_epsilons(graph.with_columns(olabel=graph.ilabel)))
    if len(fst.arcs) and fst.ilabel.max() >= len(transitions.pdf):
        raise ShapeError(
            f"transition-id {fst.ilabel.max()} of a model with {len(transitions.pdf) - 1}"
        )
    label = (transitions.pdf[fst.ilabel] + 1).astype(np.int32)
    return Fst.of_arcs(fst.source(), label, fst.weight, fst.nextstate, fst.final)


def _shortest_path(fst: Fst) -> float:
    """Arcs of the shortest path to an end; infinity where there is none."""
    begin, following = fst.begin.tolist(), fst.nextstate.tolist()
    layer = {fst.start}
    seen = {fst.start}
    length = 0
    while layer and fst.states:
        if any(not np.isinf(fst.final[state]) for state in layer):
            return length
        layer = {t for s in layer for t in following[begin[s] : begin[s + 1]]} - seen
        seen |= layer
        length += 1
    return np.inf


def whole_example(
    features: GeneralMatrix,
    supervision: Supervision,
    options: ExampleGenerationOptions,
    frames: int,
    ivectors: IvectorSource | None = None,
    compress: bool = True,
) -> NnetChainExample:
    """The example of an utterance of `frames` frames; rows that features lack are repeated."""
    left, right = options.left_context, options.right_context
    if options.left_context_initial >= 0:
        left = options.left_context_initial
    if options.right_context_final >= 0:
        right = options.right_context_final
    count, factor = supervision.frames_per_sequence, options.frame_subsampling_factor
    weights = np.ones(count, np.float32)
    ivector = None if ivectors is None else ivectors.io(-left, frames)
    inputs = example_inputs(features, -left, left + frames + right, left, ivector, compress)
    indexes = frame_indexes(count, step=factor)
    output = NnetChainSupervision("output", indexes, supervision, weights)
    return NnetChainExample(inputs, [output])
