"""Random networks against Kaldi: epochs, counts of rows, steps and commands, as exact text."""

import pytest

from kaldi_data import FOLDER, need
from opscope.nnet3.compiler.compiler import Compiler
from opscope.nnet3.compiler.steps import NnetSteps
from opscope.nnet3.graph.graph import Graph
from opscope.nnet3.graph.request import ComputationRequest
from opscope.nnet3.network.nnet import Nnet
from opscope.nnet3.optimize import optimize

CASES = sorted(path.parent.name for path in FOLDER.glob("random_nets/*/steps.txt")) or ["case_0000"]


def load(case):
    folder = need("random_nets", case)
    nnet = Nnet.read(folder / "model.raw")
    request = ComputationRequest.parse((folder / "request.txt").read_text())
    return folder, nnet.topology(), request


def lines_of(path):
    return [line.rstrip() for line in path.read_text().splitlines()]


@pytest.mark.parametrize("case", CASES)
def test_steps(case):
    folder, topology, request = load(case)
    graph = Graph(topology, request)
    steps = NnetSteps(graph)
    assert steps.to_text().splitlines() == lines_of(folder / "steps.txt")


@pytest.mark.parametrize("case", CASES)
def test_commands(case):
    folder, topology, request = load(case)
    computation = Compiler(topology, request).compile()
    assert computation.to_kaldi() == (folder / "computation.txt").read_text()


@pytest.mark.parametrize("case", CASES)
def test_optimized_commands(case):
    folder, topology, request = load(case)
    better = optimize(Compiler(topology, request).compile(), check=True)
    assert better.to_kaldi() == (folder / "computation.opt.txt").read_text()


@pytest.mark.parametrize("case", CASES)
def test_request_is_written_back(case):
    text = need("random_nets", case, "request.txt").read_text()
    assert ComputationRequest.parse(text).to_text() == text
