"""Random networks against Kaldi's numbers: outputs, input derivatives, model derivatives."""

import numpy as np
import pytest

from kaldi_data import FOLDER, need
from opscope.framework.verify import verify
from opscope.nnet3.computer import NnetComputer
from opscope.nnet3.kaldi_io import Reader
from opscope.nnet3.nnet import Nnet
from opscope.nnet3.pipeline import compile_request
from opscope.nnet3.request import ComputationRequest

CASES = sorted(path.parent.name for path in FOLDER.glob("random_nets/*/io.ark")) or ["case_0000"]
TOLERANCE = 1e-4
"""Relative norm of the difference from Kaldi's float32 results."""


def read_archive(path):
    data, entries = path.read_bytes(), {}
    while data:
        key, _, data = data.partition(b" ")
        reader = Reader(data)
        entries[key.decode()] = reader.read_matrix() if data[3:4] == b"M" else reader.read_vector()
        data = data[reader.offset :]
    return entries


def difference(got, wanted):
    return np.linalg.norm(np.asarray(got, np.float64) - wanted) / (np.linalg.norm(wanted) or 1.0)


@pytest.mark.parametrize("optimize", [False, True], ids=["plain", "optimized"])
@pytest.mark.parametrize("case", CASES)
def test_numbers(case, optimize):
    folder = need("random_nets", case)
    nnet = Nnet.read(folder / "model.raw")
    request = ComputationRequest.parse((folder / "request.txt").read_text())
    io, grad = read_archive(folder / "io.ark"), read_archive(folder / "grad.ark")
    desc = compile_request(nnet, request, optimize)
    verify(desc)
    computer = NnetComputer(desc, nnet)
    assert difference(nnet.vectorize(), grad["model_params"]) < 1e-6
    for part in ("input", "output_deriv"):
        for name, matrix in io.items():
            kind, _, node = name.partition(".")
            if kind == part:
                computer.accept_input(node, matrix)
        computer.run()
    errors = {"model": difference(computer.model_derivative(), grad["model_deriv"])}
    for name, matrix in io.items():
        kind, _, node = name.partition(".")
        if kind in ("output", "input_deriv"):
            errors[name] = difference(computer.get_output(node), matrix)
    assert all(error < TOLERANCE for error in errors.values()), errors
