"""Chain and discriminative examples from features and the supervision of whole utterances.

Source: Kaldi's `chainbin/nnet3-chain-get-egs.cc`, `nnet3bin/nnet3-discriminative-get-egs.cc`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ...kaldi.files.sparse import GeneralMatrix
from ..chain.examples import NnetChainExample
from .generate import IvectorSource
from .rows import example_inputs, frame_indexes
from .splitting import Chunk, UtteranceSplitter

Part = Callable[[Chunk], Any]
"""Makes the supervision of a chunk."""


def chain_examples(
    name: str,
    features: GeneralMatrix,
    frames: int,
    splitter: UtteranceSplitter,
    part: Part,
    deriv_weights: np.ndarray | None = None,
    ivectors: IvectorSource | None = None,
    *,
    compress: bool = True,
    long_key: bool = False,
    kind: type[NnetChainExample] = NnetChainExample,
) -> Iterator[tuple[str, NnetChainExample]]:
    """The examples of an utterance, with their keys NAME-FIRSTFRAME.

    Args:
        frames: how many input frames are cut into chunks.
        deriv_weights: of each output frame; missing ones at the end count as 0.
        long_key: keys describe the chunk, NAME-FIRST-LEFT-FRAMES-RIGHT-v1.
        kind: of the examples.

    Raises:
        ShapeError: the supervision cannot be cut.
    """
    factor = splitter.options.frame_subsampling_factor
    for chunk in splitter.split(frames):
        first, count = chunk.first // factor, chunk.frames // factor
        weights = chunk.weights
        if deriv_weights is not None:
            mine = np.zeros(count, np.float32)
            known = deriv_weights[first : first + count]
            mine[: len(known)] = known
            weights = weights * mine
        indexes = frame_indexes(count, step=factor)
        output = kind.output_type("output", indexes, part(chunk), weights)
        begin = chunk.first - chunk.left
        total = chunk.left + chunk.frames + chunk.right
        ivector = None if ivectors is None else ivectors.io(begin, frames)
        inputs = example_inputs(features, begin, total, chunk.left, ivector, compress)
        key = f"{name}-{chunk.first}"
        if long_key:
            key = f"{key}-{chunk.left}-{chunk.frames}-{chunk.right}-v1"
        yield key, kind(inputs, [output])
