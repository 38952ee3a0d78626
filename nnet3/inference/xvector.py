"""One vector for an utterance of any length: x-vectors.

Source: Kaldi's `nnet3bin/nnet3-xvector-compute.cc`.
"""

from __future__ import annotations

import numpy as np

from ...framework.base.errors import OpscopeError, ShapeError
from ..cache.computers import ComputerCache
from ..graph.request import ComputationRequest, IoSpecification
from ..index.indexes import frame_indexes
from ..network.model_check import refuse_diverged


def xvector(
    cache: ComputerCache,
    features: np.ndarray,
    chunk_size: int = -1,
    min_chunk_size: int = 100,
    pad_input: bool = True,
) -> np.ndarray | None:
    """The output at t = 0 for all frames of `features` [frames, dim], float32.

    Args:
        cache: of the network that is used.
        chunk_size: frames of the pieces that are computed one by one; the result is their mean,
            weighted by their frames. -1: all frames at once.
        min_chunk_size: frames that a piece must have at least.
        pad_input: whether the first and last frames of shorter pieces are repeated; else such
            pieces are left out.

    Returns:
        The vector, or None where all pieces were left out.

    Raises:
        FormatError: parameters of the network are NaN or infinite.
        ShapeError: the features do not fit the network.
        OpscopeError: `chunk_size` is neither -1 nor positive.
    """
    if chunk_size < 1 and chunk_size != -1:
        raise OpscopeError(f"chunk_size is {chunk_size}; it must be positive, or -1 for all frames")
    wanted = cache.nnet.input_dim("input")
    if features.ndim != 2 or not len(features):
        raise ShapeError("features must be a matrix of at least one row")
    if features.shape[1] != wanted:
        raise ShapeError(f"the input wants {wanted} columns, you gave {features.shape[1]}")
    size = len(features) if chunk_size == -1 else min(chunk_size, len(features))
    total = np.zeros(cache.nnet.output_dim("output"), np.float32)
    weight = 0
    for begin in range(0, len(features), size):
        piece = features[begin : begin + size]
        frames = len(piece)
        missing = min_chunk_size - frames
        if missing > 0 and not pad_input:
            continue
        if missing > 0:
            left = missing // 2
            piece = np.pad(piece, ((left, missing - left), (0, 0)), mode="edge")
        total += np.float32(frames) * _output(cache, piece)
        weight += frames
    if not np.isfinite(total).all():
        refuse_diverged(cache.nnet)
    return total / np.float32(weight) if weight else None


def _output(cache: ComputerCache, piece: np.ndarray) -> np.ndarray:
    indexes = frame_indexes(1, np.arange(len(piece)))
    output = IoSpecification("output", np.zeros((1, 3), np.int32))
    computer = cache.computer(ComputationRequest([IoSpecification("input", indexes)], [output]))
    computer.accept_input("input", piece, quiet=True)
    computer.run()
    return computer.get_output("output")[0]
