"""LF-MMI: objective, derivatives and examples as Kaldi computes and writes them."""

from __future__ import annotations

import re

import numpy as np
import pytest

from kaldi_data import FOLDER, need
from opscope.nnet3.chain.denominator import DenominatorGraph
from opscope.nnet3.chain.fst import read_fst
from opscope.nnet3.chain.objective import ChainOptions, chain_objective
from opscope.nnet3.kaldi_io import Writer
from opscope.nnet3.tables import read_table

LINES = (
    (FOLDER / "chain" / "objective.txt").read_text().splitlines()
    if (FOLDER / "chain" / "objective.txt").exists()
    else []
)


@pytest.fixture(scope="module")
def reference():
    """Supervisions of the minibatches, Kaldi's arrays and the denominator graph."""
    egs = read_table(f"ark:{need('chain', 'egs.ark')}", "chain_example")
    supervisions = [eg.outputs[0].supervision for _, eg in egs]
    arrays = dict(read_table(f"ark:{need('chain', 'objective.ark')}", "matrix"))
    graph = DenominatorGraph.of_fst(
        read_fst(str(need("chain", "den.fst"))), supervisions[0].label_dim
    )
    return supervisions, arrays, graph


def test_there_is_something_to_compare():
    need("chain", "objective.txt")
    assert LINES


@pytest.mark.parametrize("line", LINES, ids=lambda line: line.split()[0])
def test_objective_and_derivatives(line, reference):
    supervisions, arrays, graph = reference
    name, *words = line.split()
    value = {key: float(number) for key, number in (word.split("=") for word in words)}
    options = ChainOptions(
        l2_regularize=value["l2-regularize"], leaky_hmm_coefficient=value["leaky-hmm-coefficient"]
    )
    number = int(re.match(r"minibatch(\d+)", name)[1])
    output = arrays[f"{name}.nnet_output"]
    found = chain_objective(options, graph, supervisions[number], output, xent=True)
    assert found.objective == pytest.approx(value["objf"], rel=2e-6)
    assert found.l2_term == pytest.approx(value["l2_term"], rel=2e-6)
    assert found.weight == value["weight"]
    for kind in ("deriv", "xent_deriv"):
        ours, theirs = getattr(found, kind), arrays[f"{name}.{kind}"]
        assert np.linalg.norm(ours - theirs) <= 1e-6 * np.linalg.norm(theirs)


@pytest.mark.parametrize("name", ["den.fst", "normalization.fst", "phone_lm.fst"])
def test_fsts_are_written_back(name):
    path = need("chain", name)
    writer = Writer(header=False)
    read_fst(str(path)).write(writer)
    assert writer.getvalue() == path.read_bytes()
