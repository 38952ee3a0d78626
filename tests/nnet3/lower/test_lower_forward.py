"""The forward part without views: the same numbers, and gradients by the generic backward pass."""

from dataclasses import replace

import numpy as np
import pytest

from forward_lowering import lower_forward
from opscope import nnet3
from opscope.framework.base.errors import OpscopeError
from opscope.framework.base.scope import Scope
from opscope.framework.passes.verify.verifier import verify
from opscope.framework.runtime.plain_net import PlainNet
from opscope.nnet3.compiler.command import Command
from opscope.nnet3.compiler.computation import SubMatrix

NET = """\
input-node name=input dim=3
component name=affine type=AffineComponent input-dim=6 output-dim=4
component name=tanh type=TanhComponent dim=3
component-node name=affine component=affine input=Append(Offset(input, -1), Scale(0.5, input))
dim-range-node name=middle input-node=affine dim-offset=1 dim=3
dim-range-node name=left input-node=affine dim-offset=0 dim=3
component-node name=tanh component=tanh input=Sum(middle, Const(0.5, 3), Scale(-2.0, left))
output-node name=output input=Append(tanh, Sum(middle, IfDefined(Offset(tanh, 1))), Const(2.0, 1))
"""
REQUEST = """\
input input has_deriv=1 0,-1,0 0,0,0 0,1,0 1,-1,0 1,0,0 1,1,0
output output has_deriv=1 0,0,0 0,1,0 1,0,0 1,1,0
need_model_derivative=1
"""


@pytest.fixture
def nnet():
    return nnet3.Nnet.from_config_text(NET, 5)


def test_values_and_gradients(nnet):
    request = nnet3.ComputationRequest.parse(REQUEST)
    rng = np.random.default_rng(0)
    x, deriv = rng.normal(size=(6, 3)), rng.normal(size=(4, 7))
    computer = nnet3.NnetComputer(nnet3.compile_request(nnet, request), nnet)
    for name, matrix in (("input", x), ("output", deriv)):
        computer.accept_input(name, matrix)
        computer.run()
    net = PlainNet(lower_forward(nnet3.compile_computation(nnet, request)))
    assert not any(var.view is not None for var in net.vars.values())
    names = ["input.input", "affine/linear_params", "affine/bias_params"]
    gradients = net.add_backward_ops({"output.output": "output_deriv.output"}, wrt=names)
    verify(net.desc)
    scope = Scope()
    nnet3.NnetComputer(net.desc, nnet, shared=scope)
    scope.feed({"input.input": x.astype(np.float32), "output_deriv.output": deriv.astype("f")})
    net.run(scope)
    got = [scope.numpy(gradients[name]) for name in names]
    np.testing.assert_allclose(scope.numpy("output.output"), computer.get_output("output"), 1e-5)
    np.testing.assert_allclose(got[0], computer.get_output("input"), 1e-4, 1e-6)
    both = np.concatenate([got[1].ravel(), got[2]])
    np.testing.assert_allclose(both, computer.model_derivative(), 1e-4, 1e-6)


def test_rows_of_several_matrices(nnet):
    computation = nnet3.compile_computation(nnet, nnet3.ComputationRequest.parse(REQUEST))
    types = [command.type for command in computation.commands]
    source = computation.commands[types.index("Propagate")].target
    target = computation.new_matrix(3, 4)
    node = next(c.node for c in computation.commands if c.type == "ProvideOutput")
    pairs = np.array([[source, 2], [-1, -1], [source, 0]], np.int32)
    end = types.index("ProvideOutput")
    first = Command("CopyRowsMulti", target=target, alpha=2.0, rows=pairs)
    computation.commands[end : end + 1] = [
        first,
        replace(first, type="AddRowsMulti", alpha=1.0),
        Command.provide_output(target, node),
    ]
    net, scope = PlainNet(lower_forward(computation)), Scope()
    nnet3.NnetComputer(net.desc, nnet, shared=scope)
    x = np.random.default_rng(0).normal(size=(6, 3)).astype(np.float32)
    scope.feed({"input.input": x})
    net.run(scope)
    frames = x.reshape(2, 3, 3)
    spliced = np.concatenate((frames[:, :2], 0.5 * frames[:, 1:]), axis=2).reshape(4, 6)
    affine = nnet.components["affine"]
    values = spliced @ affine.linear_params.T + affine.bias_params
    wanted = 3 * np.stack((values[1], np.zeros(4), values[0]))  # steps go by t, then n
    np.testing.assert_allclose(scope.numpy("output.output"), wanted, 1e-5, 1e-6)


def test_parts_of_rows_are_refused(nnet):
    computation = nnet3.compile_computation(nnet, nnet3.ComputationRequest.parse(REQUEST))
    computation.submatrices.append(SubMatrix(1, 0, 2, 0, 3))
    some_rows = Command.set_const(len(computation.submatrices) - 1, 1.0)
    computation.commands.insert(0, some_rows)
    with pytest.raises(OpscopeError, match="an optimized computation"):
        lower_forward(computation)
