"""Passes over compiled computations: exact commands, and equal numbers with every switch."""

import itertools

import numpy as np
import pytest

from opscope.framework.verify import verify
from opscope.nnet3.computer import NnetComputer
from opscope.nnet3.nnet import Nnet
from opscope.nnet3.optimize import PASSES, OptimizeOptions, optimize
from opscope.nnet3.pipeline import compile_computation, compile_request
from opscope.nnet3.request import ComputationRequest

TDNN = """\
input-node name=input dim=3
component name=affine type=AffineComponent input-dim=6 output-dim=4
component name=tanh type=TanhComponent dim=2
component-node name=affine component=affine input=Append(Offset(input, -1), input)
dim-range-node name=half input-node=affine dim-offset=2 dim=2
component-node name=tanh component=tanh input=Sum(half, Const(0.5, 2))
output-node name=output input=Append(tanh, Sum(Scale(2.0, half), IfDefined(Offset(tanh, 1))))
"""
RNN = """\
input-node name=input dim=3
component name=affine type=AffineComponent input-dim=7 output-dim=4
component name=sigmoid type=SigmoidComponent dim=4
component-node name=affine component=affine input=Append(input, IfDefined(Offset(sigmoid, -1)))
component-node name=sigmoid component=sigmoid input=affine
output-node name=output input=sigmoid
"""
REQUEST = """\
input input has_deriv=1 0,-1,0 0,0,0 0,1,0 1,-1,0 1,0,0 1,1,0
output output has_deriv=1 0,0,0 0,1,0 1,0,0 1,1,0
need_model_derivative=1
"""
SWITCHES = [name for name, _ in PASSES]


def results(nnet, options):
    request = ComputationRequest.parse(REQUEST)
    desc = compile_request(nnet, request, options)
    verify(desc)
    computer = NnetComputer(desc, nnet)
    rng = np.random.default_rng(3)
    computer.accept_input("input", rng.normal(size=(6, 3)))
    computer.run()
    computer.accept_input("output", rng.normal(size=(4, 4)))
    computer.run()
    outputs = [computer.get_output(name) for name in ("output", "input")]
    return [*outputs, computer.model_derivative()]


@pytest.mark.parametrize("text", [TDNN, RNN], ids=["tdnn", "rnn"])
@pytest.mark.parametrize("chosen", list(itertools.product([False, True], repeat=len(SWITCHES))))
def test_every_switch_gives_the_same_numbers(text, chosen):
    nnet = Nnet.from_config_text(text, 5)
    options = OptimizeOptions(**dict(zip(SWITCHES, chosen, strict=True)))
    for got, wanted in zip(results(nnet, options), results(nnet, False), strict=True):
        assert np.allclose(got, wanted, atol=1e-6)


def test_commands():
    nnet = Nnet.from_config_text(TDNN, 5)
    plain = compile_computation(nnet, ComputationRequest.parse(REQUEST))
    assert optimize(plain, OptimizeOptions.none()).commands == plain.commands
    better = optimize(plain)
    assert len(better.commands) < len(plain.commands)
    lines = [line.partition(": ")[2] for line in better.to_kaldi().splitlines()]
    assert "m3(0:3, 0:2).CopyRows(1, m1[0, 3, 1, 4])" in lines
    assert "m3.set(0) [dim = 4 x 6];" not in lines
    assert any(line.startswith("m7.set(0.5)") for line in lines)


def test_passes_leave_the_given_computation():
    nnet = Nnet.from_config_text(RNN, 5)
    plain = compile_computation(nnet, ComputationRequest.parse(REQUEST))
    before = plain.to_kaldi()
    optimize(plain)
    assert plain.to_kaldi() == before


def test_copies_are_joined():
    nnet = Nnet.from_config_text(RNN, 5)
    request = ComputationRequest.parse(REQUEST)
    better = optimize(compile_computation(nnet, request))
    kept = optimize(compile_computation(nnet, request), OptimizeOptions(remove_assignments=False))
    assert len(better.matrices) < len(kept.matrices)
    names = [nnet.nodes[m.node].name for m in better.matrices[1:] if not m.is_deriv]
    assert "sigmoid_input" not in names  # it is the output of "affine"
    assert len(better.commands) < len(kept.commands)


def test_memory_goes_from_matrix_to_matrix():
    nnet = Nnet.from_config_text(TDNN, 5)
    plain = compile_computation(nnet, ComputationRequest.parse(REQUEST))
    better = optimize(plain)
    held: set[int] = set()
    for command in better.commands:
        matrices = better.touched(command)
        target = better.submatrices[command.target].matrix
        if command.type in ("AllocMatrix", "AcceptInput"):
            assert target not in held
            held.add(target)
        elif command.type == "SwapMatrix":
            source = better.submatrices[command.source].matrix
            assert source in held and target not in held
            held = held - {source} | {target}
        elif command.type == "DeallocMatrix":
            held.remove(target)
        else:
            assert matrices <= held
    assert any(command.type == "SwapMatrix" for command in better.commands)
