"""Chunked computation: cutting, contexts, iVectors, batches, refusals."""

from __future__ import annotations

import numpy as np
import pytest

from chunk_nets import FRAMES, IVECTOR, RECURRENT
from opscope.framework.base.errors import OpscopeError, ShapeError
from opscope.nnet3.cache.computers import ComputerCache
from opscope.nnet3.graph.context import reads_further
from opscope.nnet3.graph.request import ComputationRequest
from opscope.nnet3.inference.chunk_lengths import chunk_lengths, rounded_up
from opscope.nnet3.inference.chunks import ChunkComputer
from opscope.nnet3.inference.pieces import ChunkOptions, Utterance
from opscope.nnet3.network.nnet import Nnet
from opscope.nnet3.xconfig import xconfig_to_config

RNG = np.random.default_rng(1)
LENGTHS = (1, 9, 4, 23, 10, 9)
FEATURES = [RNG.normal(size=(n, 3)).astype(np.float32) for n in LENGTHS]


def parameters(nnet):
    affine = nnet.components["affine"]
    return affine.linear_params, affine.bias_params


def spliced(nnet, x, factor=1):
    """The output of FRAMES for a whole utterance."""
    weight, bias = parameters(nnet)
    t = np.arange(0, len(x), factor)
    taps = [x[np.clip(t + offset, 0, len(x) - 1)] for offset in (-1, 0, 2)]
    return np.concatenate(taps, axis=1) @ weight.T + bias


def everything(computer, features=FEATURES, **more):
    listed = [Utterance(f"u{i}", x, **more) for i, x in enumerate(features)]
    found = list(computer.compute_all(listed))
    assert [key for key, _ in found] == [u.key for u in listed]
    return [matrix for _, matrix in found]


@pytest.mark.parametrize("size", [1, 4, 50])
@pytest.mark.parametrize("batch", [1, 3, 16])
def test_chunks_and_batches_do_not_change_the_output(size, batch):
    nnet = Nnet.from_config_text(FRAMES, 1)
    computer = ChunkComputer(nnet, ChunkOptions(frames_per_chunk=size, chunks_per_batch=batch))
    for x, got in zip(FEATURES, everything(computer), strict=True):
        assert got.dtype == np.float32
        assert np.allclose(got, spliced(nnet, x), atol=1e-5)
        assert np.allclose(computer.compute(x.tolist()), got, atol=1e-6)


def test_context_is_that_of_the_network():
    computer = ChunkComputer(Nnet.from_config_text(FRAMES, 1), ChunkOptions(frames_per_chunk=4))
    assert (computer.left_context, computer.right_context) == (1, 2)
    cut = list(computer.chunks(0, Utterance("a", FEATURES[4])))
    shapes = [(c.shape.left_context, c.shape.input_frames, c.shape.output_frames) for c in cut]
    assert [(c.first, c.count) for c in cut] == [(0, 4), (4, 4), (8, 2)]
    assert shapes == [(1, 7, 4)] * 3
    (only,) = computer.chunks(0, Utterance("a", FEATURES[1][:3]))
    assert (only.count, only.shape.output_frames) == (3, 3)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (FRAMES, False),
        (RECURRENT, False),
        (RECURRENT.replace("-1)", "1)"), True),
        (FRAMES.replace("Offset(input, 2)", "Failover(Offset(input, 3), Offset(input, 2))"), True),
    ],
)
def test_further_frames_make_a_difference(text, expected):
    nnet = Nnet.from_config_text(text, 1)
    assert reads_further(nnet.topology(), nnet.modulus(), *nnet.context()) == expected
    computer = ChunkComputer(nnet, ChunkOptions(frames_per_chunk=4))
    *_, last = computer.chunks(0, Utterance("a", FEATURES[4]))
    assert (last.count, last.shape.output_frames) == (2, 2 if expected else 4)
    short, long = (computer.compute(FEATURES[4][:n])[8:] for n in (10, 12))
    assert np.allclose(short[:1], long[:1], atol=1e-6) or expected


@pytest.mark.parametrize(("count", "frames"), [(1, 1), (2, 2), (5, 6), (7, 8), (9, 12), (40, 40)])
def test_lengths_of_a_single_chunk(count, frames):
    assert rounded_up(count, 40) == frames


def test_subsampling_priors_and_scale():
    nnet = Nnet.from_config_text(FRAMES, 1)
    options = ChunkOptions(frames_per_chunk=4, frame_subsampling_factor=3, acoustic_scale=0.5)
    priors = np.array([0.1, 0.2, 0.3, 0.4])
    computer = ChunkComputer(nnet, options, priors)
    assert computer.frames_per_chunk == 6  # a multiple of 3
    for x, got in zip(FEATURES, everything(computer), strict=True):
        assert np.allclose(got, 0.5 * (spliced(nnet, x, 3) - np.log(priors)), atol=1e-5)


def test_chunks_start_at_multiples_of_the_modulus():
    text = FRAMES.replace("input=affine\n", "input=Round(affine, 4)\n")
    computer = ChunkComputer(Nnet.from_config_text(text, 1), ChunkOptions(frames_per_chunk=5))
    assert computer.frames_per_chunk == 8


@pytest.mark.parametrize("initial, extra", [(-1, 3), (0, 3), (2, 1)])
def test_extra_context_of_recurrent_networks(initial, extra):
    nnet = Nnet.from_config_text(RECURRENT, 1)
    weight, bias = parameters(nnet)
    options = ChunkOptions(
        frames_per_chunk=4,
        extra_left_context=extra,
        extra_left_context_initial=initial,
        extra_right_context=2,
        extra_right_context_final=0,
        chunks_per_batch=2,
    )
    for x, got in zip(FEATURES, everything(ChunkComputer(nnet, options)), strict=True):
        for begin in range(0, len(x), 4):
            left = initial if begin == 0 and initial >= 0 else extra
            state = np.zeros(2)
            for t in range(begin - left, min(begin + 4, len(x))):
                row = np.concatenate((x[max(t, 0)], state))
                state = np.tanh(row @ weight.T + bias)
                if t >= begin:
                    assert np.allclose(got[t], state, atol=1e-5)


def test_ivectors():
    nnet = Nnet.from_config_text(IVECTOR, 1)
    weight, bias = parameters(nnet)
    computer = ChunkComputer(nnet, ChunkOptions(frames_per_chunk=4, chunks_per_batch=4))
    ivector = np.array([1.0, -2.0])
    for x, got in zip(FEATURES, everything(computer, ivector=ivector), strict=True):
        rows = np.concatenate((x, np.tile(ivector, (len(x), 1))), axis=1)
        assert np.allclose(got, rows @ weight.T + bias, atol=1e-5)


def test_online_ivectors_are_those_of_the_middle_of_a_chunk():
    nnet = Nnet.from_config_text(IVECTOR, 1)
    weight, bias = parameters(nnet)
    computer = ChunkComputer(nnet, ChunkOptions(frames_per_chunk=4, chunks_per_batch=4))
    online = RNG.normal(size=(2, 2))
    x = FEATURES[3]
    got = computer.compute(x, online_ivectors=online, ivector_period=7)
    for t, row in enumerate(x):
        begin = t // 4 * 4
        middle = begin + (min(begin + 4, len(x)) - 1 - begin) // 2
        wanted = np.concatenate((row, online[min(middle // 7, 1)])) @ weight.T + bias
        assert np.allclose(got[t], wanted, atol=1e-5)
    with pytest.raises(ShapeError, match="no iVector for frame"):
        computer.compute(np.zeros((80, 3)), online_ivectors=online, ivector_period=10)


def test_refused_utterances():
    plain = ChunkComputer(Nnet.from_config_text(FRAMES, 1))
    with pytest.raises(ShapeError, match="u7: the input wants 3 columns, you gave 4"):
        list(plain.compute_all([Utterance("u7", np.zeros((5, 4)))]))
    with pytest.raises(ShapeError, match="at least one row"):
        plain.compute(np.zeros((0, 3)))
    with pytest.raises(ShapeError, match="at least one row"):
        plain.compute(np.zeros(3))
    with pytest.raises(ShapeError, match="no array of real numbers"):
        plain.compute([[1, 2, 3], [4]])
    with pytest.raises(ShapeError, match="wants no iVector, you gave one of 2 columns"):
        plain.compute(np.zeros((5, 3)), np.zeros(2))
    computer = ChunkComputer(Nnet.from_config_text(IVECTOR, 1))
    x, online = np.zeros((5, 3)), np.zeros((1, 2))
    with pytest.raises(ShapeError, match="wants an iVector of 2 columns, you gave none"):
        computer.compute(x)
    with pytest.raises(ShapeError, match="wants an iVector of 2 columns, you gave one of 3"):
        computer.compute(x, np.zeros(3))
    with pytest.raises(ShapeError, match="must be a vector"):
        computer.compute(x, online)
    with pytest.raises(ShapeError, match="must be a matrix"):
        computer.compute(x, online_ivectors=np.zeros((0, 2)))
    with pytest.raises(ShapeError, match="both"):
        computer.compute(x, np.zeros(2), online, 10)
    with pytest.raises(ShapeError, match="period"):
        computer.compute(x, online_ivectors=online)


def test_refused_options_and_networks():
    nnet = Nnet.from_config_text(FRAMES, 1)
    with pytest.raises(OpscopeError, match="frames_per_chunk is 0; it must be at least 1"):
        ChunkOptions(frames_per_chunk=0)
    with pytest.raises(OpscopeError, match="extra_left_context is -1"):
        ChunkOptions(extra_left_context=-1)
    with pytest.raises(ShapeError, match="3 priors for an output of 4 columns"):
        ChunkComputer(nnet, priors=np.ones(3))
    with pytest.raises(ShapeError, match="'input'"):
        ChunkComputer(
            Nnet.from_config_text(
                FRAMES.replace("input-node name=input", "input-node name=x")
                .replace("input)", "x)")
                .replace("(input", "(x")
                .replace(" input,", " x,"),
                1,
            )
        )


def test_cache_compiles_a_request_once_and_keeps_so_many():
    nnet = Nnet.from_config_text(RECURRENT, 1)
    cache = ComputerCache(nnet, capacity=2)
    requests = [
        ComputationRequest.parse(f"input input 0,{t},0\noutput output 0,{t},0\n") for t in range(3)
    ]
    first, second, third = (cache.computer(request) for request in requests)
    assert cache.computer(requests[1]) is second
    assert cache.computer(requests[0]) is not first
    assert len(cache) == 2
    assert cache.computer(requests[2]) is not third
    x = np.ones((1, 3))
    for request in requests:
        computer = cache.computer(request)
        computer.accept_input("input", x)
        computer.run()
        weight, bias = parameters(nnet)
        wanted = np.tanh(weight[:, :3].sum(axis=1) + bias)
        assert np.allclose(computer.get_output("output"), wanted, atol=1e-6)
    with pytest.raises(OpscopeError, match="a cache of 0"):
        ComputerCache(nnet, capacity=0)


# -- lengths of chunks


@pytest.mark.parametrize("total", [1, 17, 18, 100, 333, 1000, 20000])
@pytest.mark.parametrize(("factor", "context"), [(1, 4), (3, 84)])
def test_lengths_of_chunks_cover_the_utterance(total, factor, context):
    lengths = chunk_lengths(total, 17, factor, context)
    assert sum(lengths) >= total > sum(lengths[:-1])
    assert all(length % 17 == 0 and length <= 17 * 32 for length in lengths)
    assert sorted(lengths, reverse=True) == list(lengths)
    # No dearer than chunks of one length, whichever it is.
    cost = sum(length * factor + context + 30 for length in lengths)
    for one in (1, 2, 4, 8, 16, 32):
        count = -(-total // (17 * one))
        assert cost <= count * (17 * one * factor + context + 30)


@pytest.mark.parametrize(
    ("layer", "any_length"),
    [
        ("relu-batchnorm-layer name=a dim=8 input=Append(-3,0,3)", True),
        ("lstm-layer name=a cell-dim=8", False),
        ("relu-layer name=a dim=8 input=Append(-1,0,IfDefined(Offset(input, 9)))", False),
        ("stats-layer name=a config=mean(-99:3:9:99)", False),
    ],
)
def test_chunks_are_as_long_as_suits_only_where_the_output_is_the_same(layer, any_length):
    text = f"input name=input dim=5\n{layer}\noutput-layer name=output dim=4\n"
    nnet = Nnet.from_config_text(xconfig_to_config(text), 0)
    features = np.random.default_rng(0).standard_normal((400, 5)).astype(np.float32)
    chosen = ChunkComputer(nnet, test_mode=False)
    lengths = {chunk.shape.output_frames for chunk in chosen.chunks(0, Utterance("u", features))}
    assert (max(lengths) > 60) == any_length
    kaldis = ChunkComputer(nnet, ChunkOptions(frames_per_chunk=50), test_mode=False)
    found = chosen.compute(features)
    assert abs(found - kaldis.compute(features)).max() < 2e-5


def test_online_ivectors_keep_the_chunks_of_kaldi():
    text = "input name=ivector dim=3\ninput name=input dim=5\nrelu-layer name=a dim=8 "
    text += "input=Append(-1,0,1,ReplaceIndex(ivector, t, 0))\noutput-layer name=output dim=4\n"
    nnet = Nnet.from_config_text(xconfig_to_config(text), 0)
    features = np.zeros((400, 5), np.float32)
    online = Utterance("u", features, None, np.zeros((40, 3), np.float32), 10)
    one = Utterance("u", features, np.zeros(3, np.float32))
    computer = ChunkComputer(nnet)
    assert {chunk.count for chunk in computer.chunks(0, online)} == {50}
    assert max(chunk.count for chunk in computer.chunks(0, one)) > 50


def test_an_ivector_that_is_read_where_it_is_given_only():
    """It stands at the first frame of each chunk, so chunks are as long as Kaldi's."""
    text = IVECTOR.replace("ReplaceIndex(ivector, t, 0)", "IfDefined(ivector)")
    computer = ChunkComputer(Nnet.from_config_text(text, 1))
    features = np.zeros((101, 3), np.float32)
    given = computer.compute(features, np.ones(2)) - computer.compute(features, np.zeros(2))
    assert np.flatnonzero(abs(given).max(axis=1) > 1e-6).tolist() == [0, 50, 100]
