"""Requests for some frames of each of several sequences of a simple network."""

from __future__ import annotations

import numpy as np

from ...framework.base.errors import ShapeError, check_kind
from ...framework.base.untrusted.values import check_fill
from ..graph.request import ComputationRequest, IoSpecification
from ..index.indexes import frame_indexes
from .for_inference import Model, nnet_of

_BYTES_OF_ROW = 512  # that compiling takes, about


def simple_request(
    nnet: Model,
    frames: int,
    sequences: int = 1,
    *,
    subsampling: int = 1,
    left_context: int = 0,
    right_context: int = 0,
    derivatives: bool = False,
) -> ComputationRequest:
    """A request for `frames` output frames, from t = 0 on, of each of several sequences.

    Rows are ordered by n, then t. An iVector is given at t = 0.

    Args:
        nnet: a simple network, see `Nnet.is_simple`; or an acoustic model, or the path of a file.
        frames: output frames of a sequence, counted after subsampling.
        sequences: how many sequences; n counts them.
        subsampling: steps of t from one output frame to the next.
        left_context, right_context: input frames besides those that the network needs.
        derivatives: whether there is a backward part, with the derivatives of model and inputs.

    Raises:
        ShapeError: the network is not simple, or a number is out of range.
    """
    for name, value, least in (
        ("frames", frames, 1),
        ("sequences", sequences, 1),
        ("subsampling", subsampling, 1),
        ("left_context", left_context, 0),
        ("right_context", right_context, 0),
    ):
        check_kind(value, int, name)
        if value < least:
            raise ShapeError(f"{name} is {value}; it must be at least {least}")
    nnet = nnet_of(nnet)
    left, right = nnet.context()
    last = (frames - 1) * subsampling
    steps = left + left_context + last + right + right_context + 1
    check_fill((sequences, steps), _BYTES_OF_ROW, f"a request for {sequences} x {steps} frames")
    times = np.arange(-left - left_context, last + right + right_context + 1)
    inputs = [IoSpecification("input", frame_indexes(sequences, times), derivatives)]
    if nnet.input_dim("ivector") > 0:
        inputs.append(
            IoSpecification("ivector", frame_indexes(sequences, np.zeros(1, int)), derivatives)
        )
    outputs = frame_indexes(sequences, np.arange(frames) * subsampling)
    return ComputationRequest(
        inputs,
        [IoSpecification("output", outputs, derivatives)],
        need_model_derivative=derivatives,
    )
