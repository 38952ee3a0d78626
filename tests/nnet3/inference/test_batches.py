"""Chunks in full minibatches: cutting, contexts, sizes, iVectors, refusals."""

from __future__ import annotations

from itertools import count

import numpy as np
import pytest

from chunk_nets import FRAMES, IVECTOR, RECURRENT
from opscope.framework.base.errors import OpscopeError, ShapeError
from opscope.nnet3 import (
    BatchComputer,
    BatchOptions,
    Nnet,
    NnetComputer,
    Utterance,
    compile_request,
)
from opscope.nnet3.graph.request import ComputationRequest, IoSpecification
from opscope.nnet3.inference.chunks import ChunkComputer
from opscope.nnet3.inference.pieces import ChunkOptions

BACKWARDS = RECURRENT.replace("-1)", "1)")
RNG = np.random.default_rng(1)
LENGTHS = 1, 9, 4, 23, 10, 9, 40, 8
FEATURES = [RNG.normal(size=(n, 3)).astype(np.float32) for n in LENGTHS]


def everything(computer: BatchComputer, features=FEATURES, **more) -> list[np.ndarray]:
    listed = [Utterance(f"u{i}", x, **more) for i, x in enumerate(features)]
    found = list(computer.compute_all(listed))
    assert [key for key, _ in found] == [one.key for one in listed]
    return [matrix for _, matrix in found]


def one_chunk(nnet: Nnet, rows: np.ndarray, begin: int, wanted: np.ndarray) -> np.ndarray:
    """The output at some times for input rows from time `begin` on, computed by themselves."""

    def io(name: str, times: np.ndarray) -> IoSpecification:
        zeros = np.zeros_like(times)
        return IoSpecification(name, np.stack([zeros, times, zeros], axis=1))

    given = np.arange(begin, begin + len(rows))
    request = ComputationRequest([io("input", given)], [io("output", wanted)])
    computer = NnetComputer(compile_request(nnet, request), nnet)
    computer.accept_input("input", rows)
    computer.run()
    return computer.get_output("output")


def by_hand(nnet: Nnet, x: np.ndarray, options: BatchOptions) -> np.ndarray:
    """The output for an utterance: each chunk cut as Kaldi's class describes it."""
    factor, size = options.frame_subsampling_factor, options.frames_per_chunk or 0
    left, right = nnet.context()
    total, frames = -(-len(x) // factor), size // factor
    if total < frames and options.ensure_exact_final_context:
        frames = total
    out: list[np.ndarray] = []
    while len(out) < total:
        first = min(len(out), max(total - frames, 0))
        before = options.extra_left_context
        after = options.extra_right_context
        if first == 0 and options.extra_left_context_initial >= 0:
            before = options.extra_left_context_initial
        if first + frames >= total and options.extra_right_context_final >= 0:
            after = options.extra_right_context_final
        times = np.arange(first * factor - left - before, (first + frames) * factor + right + after)
        rows = x[times.clip(0, len(x) - 1)]
        scores = one_chunk(nnet, rows, times[0], (first + np.arange(frames)) * factor)
        out.extend(scores[len(out) - first :])
    return np.array(out[:total])


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("factor", [1, 3])
@pytest.mark.parametrize("extra", [(0, 0, -1, -1), (4, 2, -1, -1), (5, 3, 0, 0), (0, 6, 2, 1)])
@pytest.mark.parametrize("text", [FRAMES, RECURRENT, BACKWARDS])
def test_cut_as_kaldi_cuts(text: str, extra: tuple[int, ...], factor: int, exact: bool) -> None:
    nnet = Nnet.from_config_text(text, 1)
    options = BatchOptions(9, *extra, factor, ensure_exact_final_context=exact, chunks_per_batch=3)
    found = everything(BatchComputer(nnet, options))
    for x, got in zip(FEATURES, found, strict=True):
        assert got.dtype == np.float32
        np.testing.assert_allclose(got, by_hand(nnet, x, options), atol=1e-6)


@pytest.mark.parametrize("full", [1, 3, 128])
def test_minibatches_do_not_change_the_output(full: int) -> None:
    nnet = Nnet.from_config_text(BACKWARDS, 1)
    one = BatchOptions(9, 2, 3, 0, 0, chunks_per_batch=full, edge_chunks_per_batch=full)
    alone = [BatchComputer(nnet, one).compute(x) for x in FEATURES]
    for got, wanted in zip(everything(BatchComputer(nnet, one)), alone, strict=True):
        np.testing.assert_allclose(got, wanted, atol=1e-6)


def test_without_options_it_computes_what_chunks_do() -> None:
    nnet = Nnet.from_config_text(FRAMES, 1)
    features = [np.random.default_rng(2).normal(size=(n, 3)) for n in (700, 30, 2)]
    features = [x.astype(np.float32) for x in features]
    for x, got in zip(features, everything(BatchComputer(nnet), features), strict=True):
        np.testing.assert_allclose(got, ChunkComputer(nnet).compute(x), atol=1e-6)


def sizes(computer: BatchComputer) -> dict[tuple[int, int, int], tuple[int, int]]:
    return {
        (shape.input_frames, shape.output_frames, size): (one.done, one.chunks)
        for (shape, size), one in computer.counts.items()
    }


def test_sizes_of_minibatches() -> None:
    nnet = Nnet.from_config_text(RECURRENT, 1)
    features = [np.ones((n, 3), np.float32) for n in (12,) * 10]
    computer = BatchComputer(
        nnet, BatchOptions(4, 2, 0, 0, 0, chunks_per_batch=16, edge_chunks_per_batch=4)
    )
    everything(computer, features)
    assert sizes(computer) == {
        (4, 4, 4): (3, 10),  # first chunks: two full minibatches, and one that two are in
        (6, 4, 16): (1, 16),  # the others
        (6, 4, 8): (1, 4),  # int(0.5 * 16): the last ones
    }
    assert all(count.seconds > 0 for count in computer.counts.values())
    computer = BatchComputer(
        nnet,
        BatchOptions(4, 2, 0, 0, 0, chunks_per_batch=16, partial_batch_factor=0.0),
    )
    everything(computer, features)
    assert sizes(computer) == {(4, 4, 32): (1, 10), (6, 4, 16): (2, 20)}


def test_one_that_is_computed_as_it_is_waits_for_no_other() -> None:
    nnet = Nnet.from_config_text(BACKWARDS, 1)
    options = BatchOptions(9, ensure_exact_final_context=True)
    computer = BatchComputer(nnet, options)
    drawn = count()
    listed = (Utterance(f"u{next(drawn)}", x) for x in FEATURES[:1] * 5)
    assert next(computer.compute_all(listed))[0] == "u0" and next(drawn) == 1
    assert sizes(computer) == {(1, 1, 1): (1, 1)}


def test_utterances_come_as_soon_as_they_are_done() -> None:
    nnet = Nnet.from_config_text(BACKWARDS, 1)
    computer = BatchComputer(nnet, BatchOptions(4, chunks_per_batch=4))
    drawn = count()
    listed = (Utterance(f"u{next(drawn)}", x) for x in FEATURES[1:2] * 20)  # three chunks each
    assert next(computer.compute_all(listed))[0] == "u0" and next(drawn) == 2


def test_online_ivectors_wait_for_no_minibatch_of_others() -> None:
    nnet = Nnet.from_config_text(IVECTOR, 1)
    options = BatchOptions(ensure_exact_final_context=True, partial_batch_factor=0.0)
    computer = BatchComputer(nnet, options)
    computer.compute(FEATURES[4], online_ivectors=np.ones((2, 2)), ivector_period=10)
    assert sizes(computer) == {(10, 10, 1): (1, 1)}


def test_ivectors() -> None:
    nnet = Nnet.from_config_text(IVECTOR, 1)
    affine = nnet.components["affine"]
    weight, bias = affine.linear_params, affine.bias_params
    given = np.array([1, 2], np.float32)
    for x, got in zip(FEATURES, everything(BatchComputer(nnet), ivector=given), strict=True):
        rows = np.hstack([x, np.tile(given, (len(x), 1))])
        np.testing.assert_allclose(got, rows @ weight.T + bias, atol=1e-5)


@pytest.mark.parametrize("factor", [1, 2])
def test_online_ivectors_are_those_of_the_middle(factor: int) -> None:
    nnet = Nnet.from_config_text(IVECTOR, 1)
    affine = nnet.components["affine"]
    x = FEATURES[3]  # 23 frames
    online = np.random.default_rng(3).normal(size=(6, 2)).astype(np.float32)
    options = BatchOptions(8, frame_subsampling_factor=factor)
    got = BatchComputer(nnet, options).compute(x, online_ivectors=online, ivector_period=4)
    # chunks from frames 0, 8 and 15 (16 where every other frame is computed), the last one cut
    starts, owner = ([0, 8, 15], [0] * 8 + [1] * 8 + [2] * 7)
    if factor == 2:
        starts, owner = ([0, 8, 16], [0] * 4 + [1] * 4 + [2] * 4)
    taken = online[[min((start + 4) // 4, 5) for start in starts]][owner]
    rows = np.hstack([x[::factor], taken])
    wanted = rows @ affine.linear_params.T + affine.bias_params
    np.testing.assert_allclose(got, wanted, atol=1e-5)


def test_short_utterances_take_the_last_ivector_and_far_ones_are_refused() -> None:
    nnet = Nnet.from_config_text(IVECTOR, 1)
    online = np.ones((1, 2), np.float32)
    computer = BatchComputer(nnet, BatchOptions(200))
    assert len(computer.compute(FEATURES[1], online_ivectors=online, ivector_period=10)) == 9
    with pytest.raises(ShapeError, match="there is no iVector for frame 100"):
        computer.compute(np.ones((200, 3)), online_ivectors=online, ivector_period=10)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"chunks_per_batch": 0}, "chunks_per_batch is 0; it must be at least 1"),
        ({"edge_chunks_per_batch": 0}, "edge_chunks_per_batch is 0; it must be at least 1"),
        ({"partial_batch_factor": 1.0}, "partial_batch_factor is 1.0; it must be at least 0 and"),
        ({"partial_batch_factor": float("nan")}, "partial_batch_factor is nan"),
        ({"ensure_exact_final_context": 1}, "ensure_exact_final_context"),
    ],
)
def test_options_out_of_range(options: dict, told: str) -> None:
    with pytest.raises(OpscopeError, match=told):
        BatchOptions(**options)


def test_options_of_another_class() -> None:
    with pytest.raises(OpscopeError, match="options"):
        BatchComputer(Nnet.from_config_text(FRAMES, 1), ChunkOptions())  # type: ignore[arg-type]
