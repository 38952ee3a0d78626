"""Chunks of several streams in one run: the numbers of each stream alone, however they overlap."""

from __future__ import annotations

import numpy as np
import pytest

from chunk_nets import FRAMES, IVECTOR, RECURRENT
from opscope.nnet3.inference.looped_computer import LoopedComputer
from opscope.nnet3.inference.pieces import LoopedOptions
from opscope.nnet3.inference.stream_batch import (
    StreamBatch,
    StreamChunk,
    StreamState,
    _together,
)
from opscope.nnet3.network.nnet import Nnet
from opscope.nnet3.xconfig import xconfig_to_config

DEEP = """\
input-node name=input dim=3
component name=a type=TdnnComponent time-offsets=-2,0,1 input-dim=3 output-dim=5
component name=b type=NaturalGradientAffineComponent input-dim=10 output-dim=4
component-node name=a component=a input=input
component-node name=b component=b input=Append(Offset(a, -3), Offset(a, 3))
output-node name=output input=Sum(b, Offset(b, 3))
"""
LSTM = xconfig_to_config(
    "input name=input dim=3\n"
    "fast-lstmp-layer name=a cell-dim=8 recurrent-projection-dim=4 non-recurrent-projection-dim=4"
    " delay=-3\noutput-layer name=output dim=4\n"
)
BEGINS = (0, 0, 1, 3, 4, 4, 9)
"""The round in which each stream begins; it has a chunk in each round, but for some."""


@pytest.mark.parametrize("reproducible", [False, True])
@pytest.mark.parametrize(
    ("text", "chunk", "factor"),
    [(FRAMES, 4, 1), (IVECTOR, 4, 1), (RECURRENT, 1, 1), (DEEP, 6, 3), (LSTM, 5, 1)],
    ids=["frames", "ivector", "recurrent", "deep", "lstm"],
)
def test_streams_that_share_runs(text: str, chunk: int, factor: int, reproducible: bool) -> None:
    nnet = Nnet.from_config_text(text, 0)
    values = np.random.default_rng(1).normal(0, 0.4, nnet.vectorize().shape)
    nnet.unvectorize(values.astype(np.float32))
    options = LoopedOptions(frames_per_chunk=chunk, frame_subsampling_factor=factor)
    computer = LoopedComputer(nnet, options, priors=None, reproducible=reproducible)
    rng = np.random.default_rng(0)
    first = computer.left_context + computer.frames_per_chunk + computer.right_context
    rounds = 14
    count = first + rounds * computer.frames_per_chunk
    sounds = rng.standard_normal((len(BEGINS), count, 3)).astype(np.float32)
    vectors = rng.standard_normal((len(BEGINS), computer.ivector_dim)).astype(np.float32)
    sounds[:, : computer.left_context] = sounds[:, computer.left_context, None]
    batch = StreamBatch(computer, most=4)
    states = [StreamState() for _ in BEGINS]
    used = [0] * len(BEGINS)
    outputs: list[list[np.ndarray]] = [[] for _ in BEGINS]
    for number in range(rounds):
        here = [n for n, begin in enumerate(BEGINS) if number >= begin and (number + n) % 4]
        chunks = []
        for n in here:
            end = used[n] + (computer.frames_per_chunk if used[n] else first)
            vector = vectors[n] if computer.ivector_dim else None
            chunks.append(StreamChunk(sounds[n, used[n] : end], vector, states[n]))
            used[n] = end
        for n, output in zip(here, batch.compute(chunks), strict=True):
            outputs[n].append(output)
    for n, parts in enumerate(outputs):
        alone = computer.stream()
        features = sounds[n, computer.left_context : used[n]]
        wanted = alone.accept(features, vectors[n] if computer.ivector_dim else None)
        assert len(parts) > 2
        tolerance = 1e-9 if reproducible else 2e-5
        np.testing.assert_allclose(np.concatenate(parts), wanted, rtol=0, atol=tolerance)


@pytest.mark.parametrize(
    ("count", "together"),
    [(1, 1), (3, 3), (5, 4), (6, 6), (9, 8), (13, 8), (14, 14), (17, 16), (30, 30), (40, 32)],
)
def test_few_places_of_a_run_are_empty(count: int, together: int) -> None:
    assert _together(count) == together
