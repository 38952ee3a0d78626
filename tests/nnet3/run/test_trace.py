"""What compiling and computing tell with `--verbose` and `--computation.debug`, as Kaldi does."""

import re

import numpy as np
import pytest

from nnet3_runs import random_net, request_for
from opscope import nnet3
from opscope.nnet3.compiler.verbose import Verbose, telling
from opscope.nnet3.lower.spans import lower_with_spans
from opscope.nnet3.optimize import compile_optimized

_LINE = re.compile(r"c(\d+): (.*)\t\|\t(.*)\t\|\t time: (\S+) secs\Z")
RELU = """\
input-node name=input dim=3
component name=a type=AffineComponent input-dim=6 output-dim=4 learning-rate=0.1
component-node name=a component=a input=Append(Offset(input, -1), input)
component name=r type=RectifiedLinearComponent dim=4
component-node name=r component=r input=a
component name=b type=AffineComponent input-dim=4 output-dim=2
component-node name=b component=b input=Sum(r, IfDefined(Offset(b2, -1)))
component name=b2 type=AffineComponent input-dim=2 output-dim=4
component-node name=b2 component=b2 input=b
output-node name=output input=b
"""

WIDE = """\
input-node name=input dim=3
component name=a type=AffineComponent input-dim=6 output-dim=40
component-node name=a component=a input=Append(Offset(input, -1), input)
component name=r type=RectifiedLinearComponent dim=40
component-node name=r component=r input=a
component name=s type=RectifiedLinearComponent dim=40
component-node name=s component=s input=r
component name=t type=RectifiedLinearComponent dim=40
component-node name=t component=t input=s
output-node name=output input=t
"""


def rms(array):
    return float(np.sqrt(np.mean(np.square(array, dtype=np.float64))))


def given(computer, nnet, request, seed):
    """Give all inputs, or all derivatives at outputs."""
    rng = np.random.default_rng(seed)
    return {
        io.name: rng.standard_normal((len(io.indexes), nnet.topology().dims[io.name]))
        for io in (request.inputs if seed == 0 else request.outputs)
    }


def run(computer, nnet, request):
    """Forward and backward; the outputs, the derivatives at inputs, the model's derivative."""
    results = []
    for seed in (0, 1):
        for name, matrix in given(computer, nnet, request, seed).items():
            computer.accept_input(name, matrix)
        computer.run()
        for io in request.outputs if seed == 0 else request.inputs:
            results.append(computer.get_output(io.name))
    return [*results, computer.model_derivative()]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("optimize", [True, False])
def test_traced_runs_compute_the_same(seed, optimize):
    nnet = random_net(seed)
    request = request_for(nnet)
    compiled = nnet3.compile(nnet, request, optimize=optimize, test_mode=False)
    lines = []
    traced = compiled.computer(lines.append)
    wanted = run(compiled.computer(), nnet, request)
    for _ in range(2):
        lines.clear()
        for got, number in zip(run(traced, nnet, request), wanted, strict=True):
            np.testing.assert_allclose(got, number, rtol=1e-5, atol=1e-6)
        commands = compiled.optimized.commands
        told = [_LINE.match(line) for line in lines[1:]]
        silent = ("AcceptInput", "ProvideOutput")
        middle = [c.type for c in commands].index("NoOperationMarker")
        numbers = [i for i, c in enumerate(commands) if c.type not in silent and i != middle]
        assert [int(match[1]) for match in told] == numbers
        texts = compiled.optimized.to_kaldi().partition("begin forward commands\n")[2].splitlines()
        assert [f"c{match[1]}: {match[2]}" for match in told] == [texts[i] for i in numbers]
        assert lines[0] == compiled.sizes.to_kaldi()


def test_numbers_of_the_lines():
    """Every number in the lines, by hand, of a small network as compiled."""
    nnet = nnet3.Nnet.from_config_text(RELU, 0)
    compiled = nnet3.compile(nnet, "input=-1:1 output=0:1", optimize=False)
    lines = []
    computer = compiled.computer(lines.append)
    features = np.random.default_rng(3).standard_normal((3, 3)).astype(np.float32)
    computer.accept_input("input", features)
    computer.run()
    by_text = {match[2]: match[3] for match in map(_LINE.match, lines[1:])}
    assert by_text["m2 = undefined(2,6)"] == ""
    assert by_text["m2.set(0) [dim = 2 x 6];"] == "m2: 0->0 "
    spliced = np.concatenate([features[:2], features[1:]], axis=1)
    half = np.concatenate([features[:2], 0 * features[1:]], axis=1)
    first = f"m2: 0->{rms(half):g} m2(0:1, 0:2): 0->{rms(features[:2]):g} "
    assert by_text["m2(0:1, 0:2).AddRows(1, m1[0, 1])"] == first
    second = f"m2: {rms(half):g}->{rms(spliced):g} m2(0:1, 3:5): 0->{rms(features[1:]):g} "
    assert by_text["m2(0:1, 3:5).AddRows(1, m1[1, 2])"] == second
    a = nnet.components["a"]
    affine = spliced @ a.linear_params.T + a.bias_params
    assert by_text["a.Propagate(NULL, m2, &m3)"] == f"m3: 0->{rms(affine):g} "
    relu = np.maximum(affine, 0)
    assert by_text["r.Propagate(NULL, m4, &m5)"] == f"m5: 0->{rms(relu):g} "


def test_parameters_and_swapped_memory():
    nnet = nnet3.Nnet.from_config_text(RELU, 0)
    compiled = nnet3.compile(nnet, "input=-1:3 output=0:3 deriv")
    lines = []
    run(compiled.computer(lines.append), nnet, compiled.request)
    size = rms(nnet.components["a"].vectorize())
    (backprop,) = [line for line in lines if ": a.Backprop(" in line]
    assert f"a: {size:g}->{size:g} " in backprop
    held = {}  # by matrix, what the last line told that it holds
    for match in map(_LINE.match, lines[1:]):
        swap = re.match(r"(m\d+)\.swap\((m\d+)\)", match[2])
        if swap:
            assert match[3] == ""
            held.pop(swap[1], None)
            if swap[2] in held:  # else it was given
                held[swap[1]] = held.pop(swap[2])
            continue
        for matrix, old, new in re.findall(r"(m\d+): (\S+)->(\S+) ", match[3]):
            assert held.get(matrix, old) == old
            held[matrix] = new
        if match[2].endswith("= []"):
            held.pop(match[2].split()[0], None)


def test_composites_are_told_as_one_command():
    config = """\
input-node name=input dim=4
component name=c type=CompositeComponent max-rows-process=3 num-components=2 \
component1='type=AffineComponent input-dim=4 output-dim=4' \
component2='type=TanhComponent dim=4'
component-node name=c component=c input=input
output-node name=output input=c
"""
    nnet = nnet3.Nnet.from_config_text(config, 0)
    compiled = nnet3.compile(nnet, "input=0:7 output=0:7")
    lines = []
    for say in (lines.append, None):
        computer = compiled.computer(say)
        computer.accept_input("input", np.eye(8, 4))
        computer.run()
        lines.append(computer.get_output("output"))
    np.testing.assert_array_equal(lines.pop(), lines.pop())
    (line,) = [line for line in lines if "c.Propagate" in line]
    # All commands but those of input, output and end; before them what Kaldi prints of matrices.
    assert len(lines) == len(compiled.optimized.commands) - 3 + 1
    assert re.search(r"m\d+: 0->0\.\d+ \t", line)


@pytest.mark.parametrize("recurrent", [False, True])
def test_streams(recurrent):
    text = RELU.replace("Sum(r, IfDefined(Offset(b2, -1)))", "r") if not recurrent else RELU
    nnet = nnet3.Nnet.from_config_text(text, 0)
    features = np.random.default_rng(0).standard_normal((23, 3))
    options = nnet3.LoopedOptions(frames_per_chunk=3)
    wanted = nnet3.LoopedComputer(nnet, options).compute(features)
    lines = []
    with telling(Verbose(0, lines.append, debug=True)):
        computer = nnet3.LoopedComputer(nnet, options)
        assert lines == []
        np.testing.assert_allclose(computer.compute(features), wanted, rtol=1e-5, atol=1e-6)
    assert lines[0].startswith("matrix m1(") and all(map(_LINE.match, lines[1:]))
    gone_back = [line for line in lines if ": goto c" in line]
    assert len(gone_back) >= 2 and lines[1].startswith("c1: [no-op-permanent]")


def levels(nnet, line, level, **options):
    """What is told of a request that is compiled, LOG and VLOG lines in order."""
    told = []
    listener = Verbose(level, told.append, lambda at, text: told.append(f"V{at} {text}"))
    with telling(listener):
        request = nnet3.parse_request(nnet, line)
        compile_optimized(nnet.topology(), request, nnet3.OptimizeOptions(**options), False)
    return told


def test_levels_of_compiling():
    nnet = nnet3.Nnet.from_config_text(WIDE, 0)
    line = "n=0:1 input=-1:3 output=0:3 deriv"
    compiled = nnet3.compile(nnet, line, shortcut=False)
    assert levels(nnet, line, 1) == []
    (compressed,) = levels(nnet, line, 2)
    assert re.match(
        r"V2 Memory compression reduced  memory use from \d+ to \d+ bytes\.", compressed
    )
    third = levels(nnet, line, 3)
    before, after = compiled.memory.to_kaldi().splitlines()
    assert third == [before, compressed, after]
    fourth = levels(nnet, line, 4)
    assert fourth == [
        f"Computation request is  {compiled.request.to_kaldi()}",
        f"Generated computation is: {compiled.plain.to_kaldi()}",
        *third,
        f"Optimized computation is: {compiled.optimized.to_kaldi()}",
    ]
    fifth = levels(nnet, line, 5)
    assert fifth[1:] == fourth and fifth[0] == f"V5 deriv_needed = {'t' * len(compiled.steps)}\n"
    sixth = levels(nnet, line, 6)
    assert sixth[5:] == fifth
    assert re.match(r"V6 current_distance = \d+\Z", sixth[0])
    graph = "; ".join(f"{node} -> ({node + 1})" for node in range(9))
    assert sixth[1] == f"V6 graph is: {graph}; 9 -> ()"
    graph = "; ".join(f"{part} -> ({part - 1})" for part in range(1, 10))
    assert sixth[2] == f"V6 scc graph is: 0 -> (); {graph}"
    assert sixth[3] == "V6 scc_node_to_epoch is: 9, 8, 7, 6, 5, 4, 3, 2, 1, 0, "
    assert sixth[4] == f"V6 {compiled.epochs.to_kaldi()}".rstrip("\n")


def test_derivatives_that_are_not_needed():
    nnet = nnet3.Nnet.from_config_text(RELU, 0)
    flags = levels(nnet, "input=-1:0 output=0", 5)[0]
    assert set(flags.removeprefix("V5 deriv_needed = ").strip()) == {"f"}
    some = levels(nnet, "input=-1:0 output=0/deriv need_model_derivative", 5)[0]
    assert some.startswith("V5 deriv_needed = fft")  # not of the input and what reads it alone


def test_nobody_is_told_outside():
    nnet = nnet3.Nnet.from_config_text(RELU, 0)
    told = []
    with telling(Verbose(6, told.append)):
        pass
    assert nnet3.compile(nnet, "input=-1:0 output=0").optimized.commands and told == []


def test_spans_cover_all_operators():
    nnet = random_net(3)
    net, spans = lower_with_spans(nnet3.compile(nnet, request_for(nnet)).optimized)
    assert len(spans.ranges) == len(spans.computation.commands)
    ends = [0, *(end for _, end in spans.ranges)]
    assert ends == sorted(ends) and ends[-1] == len(net.ops)
    assert [begin for begin, _ in spans.ranges] == ends[:-1]
