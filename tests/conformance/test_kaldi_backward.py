"""The generic backward pass over the forward part against the compiled backward part.

On all random networks that are acyclic over nodes, and on the recurrent ones as well, since steps
are unrolled when a request is compiled.
"""

import numpy as np
import pytest

from forward_lowering import lower_forward
from kaldi_data import FOLDER, difference, need, read_archive
from opscope.framework.base.scope import Scope
from opscope.framework.ir.desc import PARAMETER
from opscope.framework.passes.verify.verifier import verify
from opscope.framework.runtime.plain_net import PlainNet
from opscope.nnet3.graph.request import ComputationRequest
from opscope.nnet3.inference.pipeline import compile_computation, compile_request
from opscope.nnet3.network.nnet import Nnet
from opscope.nnet3.run.computer import NnetComputer

CASES = sorted(path.parent.name for path in FOLDER.glob("random_nets/*/io.ark")) or ["case_0000"]
TOLERANCE = 1e-5
"""Relative norm of the difference of two float32 results."""


def generic(nnet, request, io):
    """Outputs, input derivatives and the model derivative by the generic backward pass."""
    net = PlainNet(lower_forward(compile_computation(nnet, request)))
    parameters = [var.name for var in net.desc.vars if var.kind == PARAMETER]
    inputs = {spec.name: f"input.{spec.name}" for spec in request.inputs}
    targets = {f"output.{spec.name}": f"output_deriv.{spec.name}" for spec in request.outputs}
    gradients = net.add_backward_ops(targets, wrt=[*inputs.values(), *parameters])
    scope = Scope()
    NnetComputer(net.desc, nnet, shared=scope)
    scope.feed({name: io[name] for name in (*inputs.values(), *targets.values())})
    verify(net.desc)
    net.run(scope)
    found = {name: scope.numpy(name) for name in targets}
    for name, variable in inputs.items():
        zeros = np.zeros_like(io[variable])
        given = gradients.get(variable)
        found[f"input_deriv.{name}"] = zeros if given is None else scope.numpy(given)
    parts = [np.zeros(0, np.float32)]
    for name, component in nnet.components.items():
        fields = [p for p in parameters if p.startswith(f"{name}/")]
        if component.is_updatable and not fields:
            parts.append(np.zeros(component.num_parameters, np.float32))
        for field in fields:
            wanted = gradients.get(field)
            shape = net.vars[field].shape
            parts.append((np.zeros(shape) if wanted is None else scope.numpy(wanted)).ravel())
    found["model_deriv"] = np.concatenate(parts)
    return found


def compiled(nnet, request, io):
    """The same of the compiled backward part."""
    computer = NnetComputer(compile_request(nnet, request), nnet)
    for part, listed in (("input", request.inputs), ("output_deriv", request.outputs)):
        for spec in listed:
            computer.accept_input(spec.name, io[f"{part}.{spec.name}"])
        computer.run()
    found = {f"output.{spec.name}": computer.get_output(spec.name) for spec in request.outputs}
    found |= {f"input_deriv.{spec.name}": computer.get_output(spec.name) for spec in request.inputs}
    return found | {"model_deriv": computer.model_derivative()}


@pytest.mark.parametrize("case", CASES)
def test_generic_backward(case, within):
    folder = need("random_nets", case)
    nnet = Nnet.read(folder / "model.raw")
    request = ComputationRequest.parse((folder / "request.txt").read_text())
    io = read_archive(folder / "io.ark")
    got, wanted = generic(nnet, request, io), compiled(nnet, request, io)
    assert got.keys() == wanted.keys()
    within({name: difference(got[name], array) for name, array in wanted.items()}, TOLERANCE)
