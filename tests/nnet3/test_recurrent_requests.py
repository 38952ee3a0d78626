"""Requests of many steps: recurrences as operators, not as a command for each step."""

import cProfile
import pstats

import numpy as np
import pytest

from opscope import nnet3
from opscope.framework.ir.messages import from_message, to_message
from opscope.framework.passes.verify.verifier import verify
from opscope.nnet3.graph.graph import NotComputableError
from opscope.nnet3.graph.request import ComputationRequest, IoSpecification
from opscope.nnet3.lower import requests
from opscope.nnet3.lower.commands import lower_computation
from opscope.nnet3.optimize import OptimizeOptions, compile_optimized
from opscope.testing import Case, OpTest

_PROJECTED = "cell-dim=8 recurrent-projection-dim=4 non-recurrent-projection-dim=4"
_LAYERS = {
    "lstm": "lstm-layer name=a cell-dim=8 delay=-1",
    "backward lstm": "lstm-layer name=a cell-dim=8 delay=1",
    "lstmp": f"lstmp-layer name=a {_PROJECTED} delay=-2 decay-time=20",
    "lstmp with dropout": f"lstmp-layer name=a {_PROJECTED} delay=-1 dropout-proportion=0.3",
    "lstmb": "lstmb-layer name=a cell-dim=8 bottleneck-dim=4 delay=-1",
    "fast lstm": "fast-lstm-layer name=a cell-dim=8 delay=-1",
    "fast lstmp": f"fast-lstmp-layer name=a {_PROJECTED} delay=-3 dropout-proportion=0.3",
    "gru": "gru-layer name=a cell-dim=8 delay=-1",
    "pgru": f"norm-pgru-layer name=a {_PROJECTED} delay=-3 dropout-proportion=0.2",
    "opgru": f"opgru-layer name=a {_PROJECTED} delay=-1",
    "fast opgru": f"fast-norm-opgru-layer name=a {_PROJECTED} delay=-3",
    "two": f"fast-lstmp-layer name=a {_PROJECTED} delay=-3\n"
    f"relu-renorm-layer name=t dim=8 input=Append(-3,0,3)\nlstm-layer name=b cell-dim=8",
    "both directions": f"fast-lstmp-layer name=a {_PROJECTED} delay=-3 input=input\n"
    f"fast-lstmp-layer name=b {_PROJECTED} delay=3 input=input\n"
    "relu-layer name=t dim=8 input=Append(a, b, Offset(input, 1))",
}


def _nnet(layers):
    text = f"input name=input dim=6\n{layers}\noutput-layer name=output dim=5\n"
    return _filled(nnet3.xconfig_to_config(text))


def _filled(config):
    """A network in test mode, all of whose parameters count."""
    nnet = nnet3.Nnet.from_config_text(config, 0)
    values = nnet.vectorize()
    random = np.random.default_rng(0)
    nnet.unvectorize(values + random.normal(0, 0.1, values.shape))
    for component in nnet.components.values():
        if component.type == "BatchNormComponent":
            component.count = 10.0
            component.stats_sum = random.normal(size=component.block_dim)
            component.stats_sumsq = random.uniform(10, 20, component.block_dim)
    nnet3.prepare_for_test(nnet)
    return nnet


def _rows(sequences, times):
    n, t = np.meshgrid(np.arange(sequences), times, indexing="ij")
    return np.stack((n.ravel(), t.ravel(), np.zeros(n.size, int)), axis=1)


def _request(given, wanted, sequences=1):
    inputs = [IoSpecification("input", _rows(sequences, given))]
    return ComputationRequest(inputs, [IoSpecification("output", _rows(sequences, wanted))])


def _output(desc, nnet, request):
    computer = nnet3.NnetComputer(desc, nnet)
    shape = len(request.inputs[0].indexes), nnet.input_dim("input")
    computer.accept_input("input", np.random.default_rng(1).normal(size=shape))
    computer.run()
    return computer.get_output("output").copy()


def _commands(nnet, request):
    """The operators of Kaldi's commands, step by step."""
    return lower_computation(compile_optimized(nnet.topology(), request, OptimizeOptions()))


def _loops(desc):
    return [op.type for op in desc.ops].count("recurrent")


def _assert_equal(nnet, request, loops):
    desc, commands = nnet3.compile_request(nnet, request), _commands(nnet, request)
    assert _loops(desc) == loops
    verify(desc)
    got, wanted = (_output(each, nnet, request) for each in (desc, commands))
    assert np.linalg.norm(got - wanted) <= 2e-7 * np.linalg.norm(wanted)


@pytest.mark.parametrize("layers", _LAYERS.values(), ids=_LAYERS)
@pytest.mark.parametrize("sequences", [1, 2])
def test_the_loop_gives_what_the_commands_give(layers, sequences, monkeypatch):
    monkeypatch.setattr(requests, "LONG", 8)
    nnet = _nnet(layers)
    loops = 2 if "name=b" in layers else 1
    every = 3 if sequences == 1 else 1
    _assert_equal(nnet, _request(range(-9, 45), range(1, 30, every), sequences), loops)


def test_an_ivector_and_times_that_begin_late():
    nnet = _filled(
        nnet3.xconfig_to_config(
            "input name=ivector dim=3\ninput name=input dim=6\n"
            "relu-layer name=t dim=8 input=Append(-1, 0, 1, ReplaceIndex(ivector, t, 0))\n"
            "lstm-layer name=a cell-dim=8 delay=-1\noutput-layer name=output dim=5\n"
        )
    )
    request = _request(range(999, 1102), range(1000, 1100))
    request.inputs.insert(0, IoSpecification("ivector", _rows(1, [0])))
    desc, commands = nnet3.compile_request(nnet, request), _commands(nnet, request)
    found = []
    for each in (desc, commands):
        computer = nnet3.NnetComputer(each, nnet)
        computer.accept_input("ivector", np.ones((1, 3)))
        computer.accept_input("input", np.random.default_rng(1).normal(size=(103, 6)))
        computer.run()
        found.append(computer.get_output("output").copy())
    assert _loops(desc) == 1
    assert np.linalg.norm(found[0] - found[1]) <= 2e-7 * np.linalg.norm(found[1])


_NODES = """input-node name=input dim=3
component name=a type=AffineComponent input-dim={} output-dim=3
component-node name=a component=a input={}
component name=b type=TanhComponent dim=3
component-node name=b component=b input=a
output-node name=output input=b
"""


@pytest.mark.parametrize(
    ("columns", "descriptor"),
    [
        (6, "Append(input, IfDefined(Offset(b, -1)))"),
        (6, "Append(Sum(input, IfDefined(Offset(Scale(0.5, b), -1))), IfDefined(Offset(a, -1)))"),
        (3, "Sum(Offset(input, -2), IfDefined(Offset(input, 4)), IfDefined(Offset(b, 2)))"),
        (3, "Sum(Const(0.25, 3), input, IfDefined(Offset(Scale(-0.5, b), -3)))"),
    ],
)
def test_descriptors_in_a_loop(columns, descriptor, monkeypatch):
    monkeypatch.setattr(requests, "LONG", 8)
    nnet = _filled(_NODES.format(columns, descriptor))
    _assert_equal(nnet, _request(range(-2, 33), range(0, 30), 2), 1)


@pytest.mark.parametrize(
    ("columns", "descriptor", "given"),
    [
        # At several offsets; in place of another row; a sum that is there or not as a whole.
        (6, "Append(IfDefined(Offset(b, -1)), Sum(input, IfDefined(Offset(b, -2))))", range(200)),
        (6, "Append(input, Failover(Offset(b, -1), input))", range(200)),
        (6, "Append(input, IfDefined(Sum(input, Offset(b, -1))))", range(200)),
        # Frames are missing, and the loop begins a second time.
        (6, "Append(input, IfDefined(Offset(b, -1)))", [*range(90), *range(100, 200)]),
    ],
)
def test_other_loops_are_commands(columns, descriptor, given):
    nnet = _filled(_NODES.format(columns, descriptor))
    request = _request(given, given)
    assert _loops(nnet3.compile_request(nnet, request)) == 0


def test_what_is_no_plain_output_of_many_steps_is_commands():
    nnet = _nnet(_LAYERS["lstm"])
    long = requests.LONG
    request = _request(range(long), range(long))
    assert _loops(nnet3.compile_request(nnet, request)) == 1
    assert _loops(nnet3.compile_request(nnet, request, optimize=False)) == 0
    assert _loops(nnet3.compile_request(nnet, request, OptimizeOptions.none())) == 0
    request.store_component_stats = True
    assert _loops(nnet3.compile_request(nnet, request)) == 0
    assert _loops(nnet3.compile_request(nnet, _request(range(long - 1), range(long - 1)))) == 0
    derivatives = nnet3.simple_request(nnet, frames=long, derivatives=True)
    assert _loops(nnet3.compile_request(nnet, derivatives)) == 0


def test_what_cannot_be_computed_is_told_in_the_words_of_the_request():
    nnet = _nnet(_LAYERS["lstm"])
    with pytest.raises(NotComputableError, match="of 'input' that are not given") as failed:
        nnet3.compile_request(nnet, _request(range(100), range(101)))
    assert "loop" not in str(failed.value)


def test_the_op_list_with_a_loop_goes_through_a_message():
    nnet = _nnet(_LAYERS["fast lstmp"])
    request = _request(range(210), range(210))
    desc = nnet3.compile_request(nnet, request)
    copied = from_message(to_message(desc))
    assert np.array_equal(*(_output(each, nnet, request) for each in (desc, copied)))


def _calls(nnet, frames):
    """How many operators a first run plans, and how many functions it calls."""
    request = _request(range(frames), range(frames))
    profile = cProfile.Profile()
    profile.enable()
    desc = nnet3.compile_request(nnet, request)
    _output(desc, nnet, request)
    profile.disable()
    return len(desc.ops), pstats.Stats(profile).total_calls


@pytest.mark.parametrize("layers", ["lstm", "fast lstmp"])
def test_the_first_run_grows_little_with_the_frames(layers):
    """A first run of one command a step called 48,000,000 functions for 4,000 frames."""
    nnet = _nnet(_LAYERS[layers])
    _calls(nnet, 600)  # compiled loops and other things made once
    short, long = _calls(nnet, 2000), _calls(nnet, 4000)
    assert short[0] == long[0] <= 12
    assert long[1] < 2_000_000
    assert long[1] <= 2.2 * short[1]


def test_compiling_does_not_grow_with_the_frames():
    """Neither with a dropout mask, which is said to read itself, nor beyond 65,536 times."""
    nnet = _nnet(_LAYERS["fast lstmp"])
    counts = []
    for frames in (600, 600, 70000):
        profile = cProfile.Profile()
        request = _request(range(frames), range(frames))
        profile.enable()
        nnet3.compile_request(nnet, request)
        profile.disable()
        counts.append(pstats.Stats(profile).total_calls)
    assert counts[2] < 1.2 * counts[1]


class TestAsSequences(OpTest):
    type = "nnet3.as_sequences"

    def cases(self, rng):
        yield Case({"x": rng.normal(size=(5, 2))}, {"lengths": [2, 0, 3]})
        yield Case({"x": rng.normal(size=(5, 2))}, {})

    def reference(self, inputs, attrs):
        return {"out": inputs["x"]}

    def test_refuses(self):
        lengths = {"lengths": [2, 2]}
        self.refuses("the sum of lengths", {"x": np.zeros((5, 2))}, lengths)
