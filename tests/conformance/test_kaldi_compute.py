"""Random networks against Kaldi's numbers: outputs, input derivatives, model derivatives."""

import pytest

from kaldi_data import FOLDER, difference, need, read_archive, run_recorded
from opscope.framework.passes.verify.verifier import verify
from opscope.nnet3.graph.request import ComputationRequest
from opscope.nnet3.inference.pipeline import compile_request
from opscope.nnet3.network.nnet import Nnet
from opscope.nnet3.run.computer import NnetComputer

CASES = sorted(path.parent.name for path in FOLDER.glob("random_nets/*/io.ark")) or ["case_0000"]
TOLERANCE = 1e-4
"""Relative norm of the difference from Kaldi's float32 results."""


@pytest.mark.parametrize("optimize", [False, True], ids=["plain", "optimized"])
@pytest.mark.parametrize("case", CASES)
def test_numbers(case, optimize, within):
    folder = need("random_nets", case)
    nnet = Nnet.read(folder / "model.raw")
    request = ComputationRequest.parse((folder / "request.txt").read_text())
    io, grad = read_archive(folder / "io.ark"), read_archive(folder / "grad.ark")
    desc = compile_request(nnet, request, optimize)
    verify(desc)
    computer = NnetComputer(desc, nnet)
    assert difference(nnet.vectorize(), grad["model_params"]) < 1e-6
    run_recorded(computer, io)
    errors = {"model": difference(computer.model_derivative(), grad["model_deriv"])}
    for name, matrix in io.items():
        kind, _, node = name.partition(".")
        if kind in ("output", "input_deriv"):
            errors[name] = difference(computer.get_output(node), matrix)
    within(errors, TOLERANCE)
