"""Looped computations: requests, the loop, streams in pieces, iVectors, refusals."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opscope.framework.base.errors import FormatError, OpscopeError, ShapeError, VariableError
from opscope.nnet3.inference.chunks import ChunkComputer
from opscope.nnet3.inference.looped import (
    compile_looped,
    following,
    loop_computation,
    looped_requests,
    with_ivector_period,
)
from opscope.nnet3.inference.looped_computer import LoopedComputer
from opscope.nnet3.inference.pieces import ChunkOptions, LoopedOptions, Utterance
from opscope.nnet3.lower import command_dialect
from opscope.nnet3.network.nnet import Nnet
from opscope.nnet3.optimize.checker import check_computation
from opscope.nnet3.run.segment_computer import SegmentComputer
from opscope.nnet3.xconfig import xconfig_to_config

TDNN = """\
input-node name=input dim=3
component name=a type=TdnnComponent time-offsets=-2,0,1 input-dim=3 output-dim=5
component name=b type=NaturalGradientAffineComponent input-dim=10 output-dim=4
component-node name=a component=a input=input
component-node name=b component=b input=Append(Offset(a, -3), Offset(a, 3))
dim-range-node name=part input-node=b dim-offset=1 dim=3
output-node name=output input=Sum(part, Offset(input, 1))
"""
RNN = """\
input-node name=input dim=3
component name=a type=NaturalGradientAffineComponent input-dim=7 output-dim=4
component name=s type=SigmoidComponent dim=4
component-node name=a component=a input=Append(Offset(input, 2), IfDefined(Offset(s, -{delay})))
component-node name=s component=s input=a
output-node name=output input=s
"""
IVECTOR = """\
input-node name=input dim=3
input-node name=ivector dim=2
component name=a type=NaturalGradientAffineComponent input-dim=8 output-dim=4
component-node name=a component=a input=Append(Offset(input, -1), Offset(input, 2), {ivector})
output-node name=output input=a
""".replace("{ivector}", "ReplaceIndex(ivector, t, 0)")
NETS = {"tdnn": TDNN, "rnn": RNN.format(delay=1), "delay7": RNN.format(delay=7)}


def net(text):
    return Nnet.from_config_text(text, 0)


def frames(count, dim=3, seed=0):
    return np.random.default_rng(seed).standard_normal((count, dim)).astype(np.float32)


def offline(nnet, features, **options):
    """The output for the whole utterance as one chunk."""
    factor = options.pop("factor", 1)
    chosen = ChunkOptions(frames_per_chunk=1000, frame_subsampling_factor=factor)
    return ChunkComputer(nnet, chosen).compute(features, **options)


def test_requests_follow_each_other():
    first, second, third = looped_requests(6, 4, 2, subsampling=3, ivector_period=6, sequences=2)
    times = [
        io.indexes[io.indexes[:, 0] == 1, 1].tolist() for io in (*first.inputs, *first.outputs)
    ]
    assert times == [list(range(-4, 8)), [-6, 0, 6], [0, 3]]
    times = [
        io.indexes[io.indexes[:, 0] == 0, 1].tolist() for io in (*second.inputs, *second.outputs)
    ]
    assert times == [list(range(8, 14)), [12], [6, 9]]
    assert following(second, third).outputs[0].indexes[:, 1].tolist() == [18, 21, 18, 21]
    with pytest.raises(OpscopeError, match="differ in their time alone"):
        following(first, second)
    with pytest.raises(OpscopeError, match="a chunk of 7 frames"):
        looped_requests(7, 0, 0, subsampling=3)


_LSTMP = "cell-dim=8 recurrent-projection-dim=4 non-recurrent-projection-dim=4"


@pytest.mark.parametrize(
    "layer",
    [
        f"lstmp-layer name=a {_LSTMP} delay=-2 decay-time=20",
        f"fast-lstmp-layer name=a {_LSTMP} delay=-3",
        "gru-layer name=a cell-dim=8 delay=-1",
        "relu-renorm-layer name=a dim=8 input=Append(-3,0,3)",
    ],
    ids=lambda layer: layer.split("-layer")[0],
)
@pytest.mark.parametrize("optimize", [True, False])
def test_the_verifier_takes_loops(layer, optimize, monkeypatch):
    """State is handed back to the begin of the loop, and a scaled memory changed in two steps:
    both were "written twice"."""
    monkeypatch.setenv("OPSCOPE_VERIFY", "1")
    text = f"input name=input dim=3\n{layer}\noutput-layer name=output dim=4\n"
    nnet = net(xconfig_to_config(text))
    values = np.random.default_rng(0).normal(0, 0.3, nnet.vectorize().shape)
    nnet.unvectorize(values.astype(np.float32))
    computer = LoopedComputer(nnet, LoopedOptions(frames_per_chunk=9), optimize=optimize)
    features = frames(45)
    np.testing.assert_allclose(computer.compute(features), offline(nnet, features), atol=1e-5)


@pytest.mark.parametrize("optimize", [True, False])
@pytest.mark.parametrize("chunk", [1, 4, 9])
@pytest.mark.parametrize("name", NETS)
def test_looped_equals_offline(name, chunk, optimize):
    nnet = net(NETS[name])
    computer = LoopedComputer(nnet, LoopedOptions(frames_per_chunk=chunk), optimize=optimize)
    for count in (1, chunk, 4 * chunk + 3):
        features = frames(count, seed=count)
        got = computer.compute(features)
        np.testing.assert_allclose(got, offline(nnet, features), rtol=0, atol=2e-5)


def test_the_loop_in_kaldis_notation():
    text = loop_computation(net(NETS["rnn"]).topology(), looped_requests(2, 0, 2)).to_kaldi()
    lines = text.split("# begin forward commands\n")[1].splitlines()
    label = next(i for i, line in enumerate(lines) if line.endswith("[label for goto statement]"))
    assert lines[label + 1].endswith("[no-op-permanent]")
    assert lines[-1] == f"c{len(lines) - 1}: goto c{label}"
    assert ".swap(" in lines[-2]
    assert sum("segment separator" in line for line in lines[label:]) == 1


@pytest.mark.parametrize("name", NETS)
def test_the_loop_passes_the_checker_and_is_described(name):
    topology = net(NETS[name]).topology()
    computation = loop_computation(topology, looped_requests(3, 5, 4))
    check_computation(computation, rewrites=True)
    description = command_dialect.to_desc(computation)
    read = command_dialect.from_desc(description, topology)
    assert read.to_kaldi() == computation.to_kaldi()


def test_subsampling_and_more_left_context():
    nnet, features = net(TDNN), frames(29)
    options = LoopedOptions(5, extra_left_context_initial=2, frame_subsampling_factor=3)
    computer = LoopedComputer(nnet, options)
    assert computer.frames_per_chunk == 6
    got = computer.compute(features)
    np.testing.assert_allclose(got, offline(nnet, features, factor=3), rtol=0, atol=2e-5)


@settings(max_examples=15, deadline=None)
@given(st.lists(st.integers(0, 9), max_size=6), st.booleans())
def test_a_stream_in_pieces_of_any_size(sizes, recurrent):
    stream, whole = _streams()[recurrent]
    stream.reset()
    features = frames(sum(sizes))
    cuts = np.cumsum(sizes)[:-1]
    outputs = [stream.accept(part) for part in np.split(features, cuts)]
    outputs.append(stream.finish())
    got = np.concatenate(outputs)
    assert len(got) == len(features)
    if len(features):
        np.testing.assert_allclose(got, whole(features), rtol=0, atol=1e-6)


def _streams(made=[]):  # noqa: B006
    """Streams of two networks, made once, and their computation of whole utterances."""
    if not made:
        for text in (TDNN, NETS["delay7"]):
            computer = LoopedComputer(net(text), LoopedOptions(4))
            made.append((computer.stream(), computer.compute))
    return made


def test_output_comes_as_soon_as_it_can():
    stream = LoopedComputer(net(NETS["rnn"]), LoopedOptions(4)).stream()  # right context 2
    counts = [len(stream.accept(frames(1))) for _ in range(12)]
    assert counts == [0, 0, 0, 0, 0, 4, 0, 0, 0, 4, 0, 0]
    held = stream.finish()
    assert len(held) == 4
    with pytest.raises(OpscopeError, match="finished"):
        stream.accept(frames(1))


def test_a_stream_tells_how_many_frames_the_next_chunk_lacks():
    computer = LoopedComputer(net(NETS["rnn"]), LoopedOptions(4))
    stream, features = computer.stream(), frames(20)
    for begin in range(20):
        lacking = stream.lacking
        assert lacking > 0
        made = stream.accept(features[begin : begin + 1])
        assert (len(made) > 0) == (lacking == 1)


def test_earlier_output_stays_as_it_was():
    stream = LoopedComputer(net(NETS["rnn"]), LoopedOptions(4)).stream()
    first = stream.accept(frames(6))
    before = first.copy()
    stream.accept(frames(8, seed=1))
    np.testing.assert_array_equal(first, before)


def test_two_streams_at_once():
    computer = LoopedComputer(net(NETS["rnn"]), LoopedOptions(3))
    streams = [computer.stream(), computer.stream()]
    features = [frames(17, seed=i) for i in range(2)]
    outputs = [[], []]
    for begin in range(0, 17, 5):
        for stream, x, got in zip(streams, features, outputs, strict=True):
            got.append(stream.accept(x[begin : begin + 5]))
    for stream, x, got in zip(streams, features, outputs, strict=True):
        got.append(stream.finish())
        np.testing.assert_allclose(np.concatenate(got), computer.compute(x), rtol=0, atol=1e-6)


def test_ivectors():
    nnet, features, ivector = net(IVECTOR), frames(23), frames(1, 2)[0]
    computer = LoopedComputer(nnet, LoopedOptions(5))
    wanted = offline(nnet, features, ivector=ivector)
    np.testing.assert_allclose(computer.compute(features, ivector), wanted, rtol=0, atol=2e-5)
    stream = computer.stream()
    got = np.concatenate([stream.accept(features, ivector), stream.finish()])
    np.testing.assert_allclose(got, wanted, rtol=0, atol=2e-5)
    online = frames(3, 2, seed=5)
    got = computer.compute(features, online_ivectors=online, ivector_period=7)
    # The chunks' input ends at frames 7, 12, 17, ...; they take the iVectors of these frames. The
    # first takes those for output frames 0 and 5, the second that for 10, and so on.
    for begin, number in ((0, 1), (5, 1), (10, 1), (15, 2)):
        part = offline(nnet, features, ivector=online[number])[begin : begin + 5]
        np.testing.assert_allclose(got[begin : begin + 5], part, rtol=0, atol=2e-5)
    with pytest.raises(ShapeError, match="wants an iVector of 2 columns, you gave none"):
        computer.stream().accept(features)


def test_ivectors_at_other_times_are_refused():
    text = IVECTOR.replace("ReplaceIndex(ivector, t, 0)", "ReplaceIndex(ivector, t, 1)")
    with pytest.raises(FormatError, match="'ReplaceIndex.ivector, t, 1.' cannot be computed"):
        with_ivector_period(net(text).topology(), 10)


def test_several_sequences():
    nnet = net(NETS["rnn"])
    desc = compile_looped(nnet.topology(), looped_requests(3, 0, 2, sequences=2))
    computer = SegmentComputer(desc, nnet)
    features = [frames(5 + 3 * 7, seed=i) for i in range(2)]
    outputs = []
    for number in range(8):
        begin, end = (0, 5) if not number else (2 + 3 * number, 5 + 3 * number)
        computer.accept_input("input", np.concatenate([x[begin:end] for x in features]))
        computer.run()
        outputs.append(computer.get_output("output").reshape(2, 3, -1))
    assert computer.num_segments is None
    for got, x in zip(np.concatenate(outputs, axis=1), features, strict=True):
        wanted = offline(nnet, np.concatenate((x, x[-1:], x[-1:])))[: len(got)]
        np.testing.assert_allclose(got, wanted, rtol=0, atol=2e-5)


def test_priors_and_scale():
    nnet, features = net(TDNN), frames(9)
    priors = np.array([0.5, 0.25, 0.25], np.float32)
    got = LoopedComputer(nnet, LoopedOptions(acoustic_scale=0.1), priors).compute(features)
    wanted = 0.1 * (offline(nnet, features) - np.log(priors))
    np.testing.assert_allclose(got, wanted, rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    "more", ["IfDefined(Offset(tanh, 3))", "Failover(Offset(tanh, 3), Offset(input, 1))"]
)
def test_networks_that_read_ahead_are_refused(more):
    text = (
        "input-node name=input dim=3\n"
        "component name=affine type=AffineComponent input-dim=6 output-dim=3\n"
        "component name=tanh type=TanhComponent dim=3\n"
        f"component-node name=affine component=affine input=Append(input, {more})\n"
        "component-node name=tanh component=tanh input=affine\n"
        "output-node name=output input=tanh\n"
    )
    with pytest.raises(OpscopeError, match="'affine_input' reads whatever later rows are there"):
        LoopedComputer(Nnet.from_config_text(text, 0), LoopedOptions(6))


def test_wrong_use_is_told():
    nnet = net(TDNN)
    computer = LoopedComputer(nnet)
    with pytest.raises(ShapeError, match="wants 3 columns, you gave 4"):
        list(computer.compute_all([Utterance("u", frames(4, 4))]))
    with pytest.raises(ShapeError, match="matrix"):
        computer.stream().accept(np.zeros(3))
    with pytest.raises(OpscopeError, match="frames_per_chunk is 0"):
        LoopedOptions(0)
    segments = computer.stream()._runner._segments
    with pytest.raises(VariableError, match="not computed yet"):
        segments.get_output("output")
    with pytest.raises(VariableError, match="'input' was not given"):
        segments.run()
    with pytest.raises(VariableError, match="takes no 'other'"):
        segments.accept_input("other", frames(1))
    with pytest.raises(ShapeError, match="wants 33 rows of 3 columns, you gave 1 x 3"):
        segments.accept_input("input", frames(1))


def test_a_stream_takes_over_what_a_gone_one_computed_with():
    computer = LoopedComputer(net(NETS["rnn"]), LoopedOptions(5))
    given = frames(40)

    def whole(stream):
        return np.concatenate([stream.accept(given), stream.finish()])

    stream = computer.stream()
    expected, segments = whole(stream), stream._runner._segments
    other = computer.stream()  # while the first is there
    assert other._runner._segments is not segments
    np.testing.assert_array_equal(whole(other), expected)
    other.reset()
    other.accept(given[:20])  # a stream that ends in the middle leaves nothing behind
    both = {id(segments), id(other._runner._segments)}
    del stream, other
    for _ in range(3):
        again = computer.stream()
        assert id(again._runner._segments) in both
        np.testing.assert_array_equal(whole(again), expected)
