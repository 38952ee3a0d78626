"""NnetComputer: forward, backward, refusals."""

import numpy as np
import pytest

from opscope import nnet3
from opscope.framework.base.errors import ShapeError, VariableError
from opscope.framework.base.scope import Scope
from opscope.nnet3.graph.request import ComputationRequest
from opscope.nnet3.inference.pipeline import compile_request
from opscope.nnet3.network.nnet import Nnet
from opscope.nnet3.run.computer import NnetComputer

NET = """\
input-node name=input dim=3
component name=affine type=AffineComponent input-dim=6 output-dim=2
component name=relu type=RectifiedLinearComponent dim=2
component-node name=affine component=affine input=Append(Offset(input, -1), Scale(0.5, input))
component-node name=relu component=relu input=affine
output-node name=output input=Sum(relu, Const(1.0, 2))
"""
REQUEST = """\
input input has_deriv=1 0,-1,0 0,0,0 0,1,0 1,-1,0 1,0,0 1,1,0
output output has_deriv=1 0,0,0 0,1,0 1,0,0 1,1,0
need_model_derivative=1
"""


@pytest.fixture
def nnet():
    return Nnet.from_config_text(NET, 1)


@pytest.fixture
def computer(nnet):
    return NnetComputer(compile_request(nnet, ComputationRequest.parse(REQUEST)), nnet)


def forward(nnet, x):
    w, b = nnet.components["affine"].linear_params, nnet.components["affine"].bias_params
    frames = x.reshape(2, 3, 3)
    spliced = np.concatenate((frames[:, :2], 0.5 * frames[:, 1:]), axis=2).reshape(4, 6)
    hidden = spliced @ w.T + b
    return spliced, hidden, np.maximum(hidden, 0) + 1


def test_forward_and_backward(nnet, computer):
    rng = np.random.default_rng(0)
    x, deriv = rng.normal(size=(6, 3)), rng.normal(size=(4, 2))
    computer.accept_input("input", x)
    computer.run()
    spliced, hidden, wanted = forward(nnet, x)
    assert np.allclose(computer.get_output("output"), wanted, atol=1e-5)
    computer.accept_input("output", deriv)
    computer.run()
    through = deriv * (hidden > 0)
    gradient = np.concatenate(((through.T @ spliced).ravel(), through.sum(axis=0)))
    assert np.allclose(computer.model_derivative(), gradient, atol=1e-5)
    spread = through @ nnet.components["affine"].linear_params
    into = np.zeros((2, 3, 3))
    into[:, :2] += spread[:, :3].reshape(2, 2, 3)
    into[:, 1:] += 0.5 * spread[:, 3:].reshape(2, 2, 3)
    assert np.allclose(computer.get_output("input"), into.reshape(6, 3), atol=1e-5)


def test_parameters_are_taken_anew(nnet, computer):
    x = np.ones((6, 3))
    nnet.components["affine"].bias_params = np.full(2, 3, np.float32)
    computer.reload()
    computer.accept_input("input", x)
    computer.run()
    assert np.allclose(computer.get_output("output"), forward(nnet, x)[2], atol=1e-5)


def test_statistics_are_handed_back(nnet):
    request = REQUEST + "store_component_stats=1\n"
    desc = compile_request(nnet, ComputationRequest.parse(request))
    shared = Scope()
    computers = [NnetComputer(desc, nnet, shared=shared) for _ in range(2)]
    x, deriv = np.ones((6, 3)), np.full((4, 2), 2.0)
    for computer in computers:  # both add to the same sums
        computer.accept_input("input", x)
        computer.run()
        computer.accept_input("output", deriv)
        computer.run()
    relu = nnet.components["relu"]
    assert relu.count == 0
    computers[0].store_statistics()
    assert relu.count == 8 and relu.oderiv_count == 8
    hidden = np.maximum(forward(nnet, x)[1], 0)
    assert np.allclose(relu.value_sum, 2 * hidden.sum(axis=0), atol=1e-5)
    assert np.allclose(relu.deriv_sum, 2 * (hidden > 0).sum(axis=0))
    assert np.allclose(relu.oderiv_sumsq, 2 * 4 * 4)


def test_refusals(computer):
    with pytest.raises(ShapeError, match="'input' wants 6 rows of 3 columns, you gave 6 x 2"):
        computer.accept_input("input", np.zeros((6, 2)))
    with pytest.raises(ShapeError, match="'input': no array of real numbers"):
        computer.accept_input("input", [[1, 2, 3], [4, 5]])
    with pytest.raises(VariableError, match="takes no 'ivector'; it takes 'input', 'output'"):
        computer.accept_input("ivector", np.zeros((6, 2)))
    with pytest.raises(VariableError, match="'input' was not given"):
        computer.run()
    with pytest.raises(VariableError, match="not computed yet"):
        computer.get_output("output")
    with pytest.raises(VariableError, match="run the forward part"):
        computer.accept_input("output", np.zeros((4, 2)))
    computer.accept_input("input", np.zeros((6, 3)))
    computer.run()
    with pytest.raises(VariableError, match="derivative at 'input' is not computed"):
        computer.get_output("input")
    with pytest.raises(VariableError, match="model's derivative was not computed"):
        computer.model_derivative()
    with pytest.raises(VariableError, match="gives no 'hidden'; it gives"):
        computer.get_output("hidden")
    with pytest.raises(VariableError, match="'output' was not given"):
        computer.run()
    computer.accept_input("output", np.zeros((4, 2)))
    computer.run()
    with pytest.raises(VariableError, match="nothing left to run"):
        computer.run()


def test_another_structure(nnet):
    desc = compile_request(nnet, ComputationRequest.parse(REQUEST))
    other = Nnet.from_config_text(NET.replace("=affine", "=linear"), 1)
    with pytest.raises(VariableError, match="no component 'affine'"):
        NnetComputer(desc, other)
    wide = Nnet.from_config_text(
        NET.replace("dim=3", "dim=4").replace("input-dim=6", "input-dim=8"), 1
    )
    with pytest.raises(ShapeError, match=r"affine/linear_params is \[2, 8\], and was \[2, 6\]"):
        NnetComputer(desc, wide)


def test_names_of_the_package():
    assert nnet3.compile_request is compile_request
    assert set(nnet3.__all__) <= set(dir(nnet3))
    for name in nnet3.__all__:
        assert getattr(nnet3, name).__name__ == name
    with pytest.raises(AttributeError, match="no attribute 'Network'"):
        nnet3.Network  # noqa: B018


def test_parameters_are_read_where_they_are():
    nnet = nnet3.Nnet.from_config_text(
        "input-node name=input dim=3\n"
        "component name=a type=AffineComponent input-dim=3 output-dim=2\n"
        "component-node name=a component=a input=input\noutput-node name=output input=a\n",
        0,
    )
    computer = nnet3.NnetComputer(
        nnet3.compile_request(nnet, nnet3.simple_request(nnet, frames=4)), nnet
    )
    x, affine = np.ones((4, 3), np.float32), nnet.components["a"]

    def scores():
        computer.accept_input("input", x)
        computer.run()
        return computer.get_output("output").copy()

    before, weights = scores(), affine.linear_params.copy()
    np.testing.assert_array_equal(affine.linear_params, weights)  # nothing is written to it
    affine.linear_params = 2 * affine.linear_params
    np.testing.assert_array_equal(scores(), before)  # an array in its place is not seen yet
    computer.reload()
    wanted = 2 * (before - affine.bias_params) + affine.bias_params
    np.testing.assert_allclose(scores(), wanted, rtol=1e-5, atol=1e-6)
