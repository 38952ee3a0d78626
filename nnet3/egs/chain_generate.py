"""Chain examples from features and the supervision of whole utterances.

Source: Kaldi's `chainbin/nnet3-chain-get-egs.cc`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from ...kaldi.files.sparse import GeneralMatrix
from ..chain.chunks import SupervisionSplitter
from ..chain.examples import NnetChainExample, NnetChainSupervision
from ..chain.supervision import Supervision
from .generate import IvectorSource
from .rows import example_inputs, frame_indexes
from .splitting import Chunk, UtteranceSplitter

Finish = Callable[[Supervision, Chunk], Supervision]
"""A change of the supervision of a chunk before it is written, e.g. normalization."""


def chain_examples(
    name: str,
    features: GeneralMatrix,
    supervision: Supervision,
    splitter: UtteranceSplitter,
    finish: Finish,
    deriv_weights: np.ndarray | None = None,
    ivectors: IvectorSource | None = None,
    *,
    compress: bool = True,
    long_key: bool = False,
) -> Iterator[tuple[str, NnetChainExample]]:
    """The examples of an utterance, with their keys NAME-FIRSTFRAME.

    Args:
        deriv_weights: of each output frame; missing ones at the end count as 0.
        long_key: keys describe the chunk, NAME-FIRST-LEFT-FRAMES-RIGHT-v1.

    Raises:
        ShapeError: the supervision cannot be cut.
    """
    factor = splitter.options.frame_subsampling_factor
    # Features may be a little longer than the supervision, which must not be left.
    frames = min(features.shape[0], supervision.frames_per_sequence * factor)
    parts = SupervisionSplitter(supervision)
    for chunk in splitter.split(frames):
        first, count = chunk.first // factor, chunk.frames // factor
        weights = chunk.weights
        if deriv_weights is not None:
            mine = np.zeros(count, np.float32)
            known = deriv_weights[first : first + count]
            mine[: len(known)] = known
            weights = weights * mine
        indexes = frame_indexes(count, step=factor)
        target = finish(parts.part(first, count), chunk)
        output = NnetChainSupervision("output", indexes, target, weights)
        begin = chunk.first - chunk.left
        total = chunk.left + chunk.frames + chunk.right
        ivector = None if ivectors is None else ivectors.io(begin, frames)
        inputs = example_inputs(features, begin, total, chunk.left, ivector, compress)
        key = f"{name}-{chunk.first}"
        if long_key:
            key = f"{key}-{chunk.left}-{chunk.frames}-{chunk.right}-v1"
        yield key, NnetChainExample(inputs, [output])
