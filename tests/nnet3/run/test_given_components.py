"""Values of component nodes, computed before and given as inputs: the state of a recurrence."""

import numpy as np
import pytest

from opscope.framework.base.errors import ShapeError
from opscope.nnet3.compiler.compiler import Compiler
from opscope.nnet3.graph.graph import NotComputableError
from opscope.nnet3.graph.request import ComputationRequest, IoSpecification
from opscope.nnet3.inference.pipeline import compile_request
from opscope.nnet3.network.nnet import Nnet
from opscope.nnet3.run.computer import NnetComputer

LSTM = """\
input-node name=input dim=3
component name=a type=NaturalGradientAffineComponent input-dim=7 output-dim=16
component name=c type=ElementwiseProductComponent input-dim=8 output-dim=4
component name=s type=SigmoidComponent dim=4
component-node name=a component=a input=Append(input, IfDefined(Offset(state, -1)))
dim-range-node name=left input-node=a dim-offset=0 dim=8
dim-range-node name=right input-node=a dim-offset=8 dim=8
component-node name=c component=c input=Sum(left, right)
component-node name=state component=s input=Sum(c, IfDefined(Offset(state, -1)))
output-node name=output input=state
"""
RNG = np.random.default_rng(0)


def rows(name, ns, ts, has_deriv=False):
    return IoSpecification(name, np.array([(n, t, 0) for n in ns for t in ts]), has_deriv)


def run(nnet, request, optimize, **given):
    computer = NnetComputer(compile_request(nnet, request, optimize), nnet)
    for name, matrix in given.items():
        computer.accept_input(name, matrix)
    computer.run()
    return computer


@pytest.mark.parametrize("ns", [(0,), (0, 1, 2, 3)])
@pytest.mark.parametrize("optimize", [True, False])
def test_a_recurrence_goes_on_from_a_given_state(optimize, ns):
    nnet, count = Nnet.from_config_text(LSTM, 1), len(ns)
    x = RNG.standard_normal((count, 6, 3)).astype(np.float32)
    whole = ComputationRequest([rows("input", ns, range(6))], [rows("output", ns, range(6))])
    wanted = run(nnet, whole, optimize, input=x.reshape(-1, 3)).get_output("output")
    wanted = wanted.reshape(count, 6, 4)
    later = ComputationRequest(
        [rows("input", ns, range(4, 6)), rows("state", ns, (3,))], [rows("output", ns, range(4, 6))]
    )
    got = run(nnet, later, optimize, input=x[:, 4:].reshape(-1, 3), state=wanted[:, 3])
    np.testing.assert_allclose(
        got.get_output("output").reshape(count, 2, 4), wanted[:, 4:], rtol=0, atol=1e-6
    )


def test_dim_ranges_of_a_given_component():
    nnet = Nnet.from_config_text(LSTM, 1)
    request = ComputationRequest([rows("a", (0,), (0, 1))], [rows("output", (0,), (0, 1))])
    values = RNG.standard_normal((2, 16)).astype(np.float32)
    got = run(nnet, request, True, a=values).get_output("output")
    product = np.prod((values[:, :8] + values[:, 8:]).reshape(2, 2, 4), axis=1)
    first = 1 / (1 + np.exp(-product[0]))
    second = 1 / (1 + np.exp(-product[1] - first))
    np.testing.assert_allclose(got, [first, second], rtol=0, atol=1e-6)


@pytest.mark.parametrize("optimize", [True, False])
def test_the_derivative_at_a_given_state(optimize):
    nnet = Nnet.from_config_text(LSTM, 1)
    request = ComputationRequest(
        [rows("input", (0,), range(3)), rows("state", (0,), (-1,), has_deriv=True)],
        [rows("output", (0,), range(3), has_deriv=True)],
    )
    x, state = RNG.standard_normal((3, 3)), RNG.standard_normal((1, 4))
    deriv, direction = RNG.standard_normal((3, 4)), RNG.standard_normal((1, 4))
    computer = run(nnet, request, optimize, input=x, state=state)
    computer.accept_input("output", deriv)
    computer.run()
    got = float((computer.get_output("state") * direction).sum())
    sides = []
    for step in (1e-2, -1e-2):
        computer = run(nnet, request, optimize, input=x, state=state + step * direction)
        sides.append(float((computer.get_output("output").astype(np.float64) * deriv).sum()))
    assert got == pytest.approx((sides[0] - sides[1]) / 2e-2, rel=1e-2, abs=1e-3)


def test_given_rows_are_not_computed():
    topology = Nnet.from_config_text(LSTM, 1).topology()
    request = ComputationRequest(
        [rows("input", (0,), range(3)), rows("state", (0,), range(-1, 2))],
        [rows("output", (0,), range(3))],
    )
    text = Compiler(topology, request).compile().to_kaldi()
    assert text.count("a.Propagate") == text.count("s.Propagate") == 1
    assert "user input [for node: 'state']" in text


def test_wrong_rows_are_told():
    topology = Nnet.from_config_text(LSTM, 1).topology()
    request = ComputationRequest([rows("state", (0,), (0,))], [rows("output", (0,), range(2))])
    with pytest.raises(NotComputableError, match="rows of 'input' that are not given"):
        Compiler(topology, request)
    request.inputs[0].name = "left"
    with pytest.raises(ShapeError, match="'left', which is neither an input nor a component"):
        Compiler(topology, request)
