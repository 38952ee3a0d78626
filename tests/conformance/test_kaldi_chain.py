"""LF-MMI: objective, derivatives and examples as Kaldi computes and writes them."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from kaldi_data import FOLDER, need
from opscope.kaldi.files.kaldi_io import Writer
from opscope.kaldi.fst.algorithms.epsilons import remove_epsilons
from opscope.kaldi.fst.files.fst_io import write_fst
from opscope.kaldi.tables.tables import read_table
from opscope.nnet3.chain.denominator import DenominatorGraph
from opscope.nnet3.chain.examples import NnetChainExample, NnetChainSupervision
from opscope.nnet3.chain.objective import ChainOptions, chain_objective
from opscope.nnet3.chain.supervisions.chunks import SupervisionSplitter, normalized
from opscope.nnet3.chain.supervisions.supervision import breadth_first
from opscope.nnet3.egs.chain_changes import ChainExampleMerger
from opscope.nnet3.egs.merging import MinibatchRule
from opscope.nnet3.egs.rows import take_rows
from opscope.nnet3.files.examples import NnetIo
from opscope.nnet3.network.adjust import set_batchnorm_test_mode
from opscope.nnet3.network.nnet import Nnet
from opscope.nnet3.programs.base.graphs import open_fst
from opscope.nnet3.training import NnetTrainer, NnetTrainerOptions
from opscope.nnet3.training.chain_objectives import ChainObjectives
from opscope.nnet3.training.chain_prob import NnetChainComputeProb

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
        open_fst(str(need("chain", "den.fst"))), supervisions[0].label_dim
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
    write_fst(open_fst(str(path)), writer)
    assert writer.getvalue() == path.read_bytes()


@pytest.fixture(scope="module")
def trained(reference):
    """A network after Kaldi's pass over the examples, and the lines told meanwhile."""
    nnet = Nnet.read(str(need("chain", "0.raw")))
    options = ChainOptions(
        l2_regularize=0.00005,
        out_of_range_regularize=0.0,
        leaky_hmm_coefficient=0.1,
        xent_regularize=0.1,
    )
    lines = []
    trainer = NnetTrainer(
        NnetTrainerOptions(),
        nnet,
        log=lines.append,
        objective=ChainObjectives(reference[2], options),
    )
    for _, example in read_table(f"ark:{need('chain', 'egs.ark')}", "chain_example"):
        trainer.train(example)
    trainer.print_total_stats()
    trainer.store()
    return nnet, options, lines


def averages(lines):
    """The numbers of Kaldi's lines, by output."""
    found = [re.search(r"Overall .* for '(.*?)' is (.*) (?:per frame, )?over", x) for x in lines]
    return {m[1]: [float(n) for n in re.findall(r"-?\d\S*", m[2])] for m in found if m}


def test_a_pass_of_training(trained):
    nnet, _, lines = trained
    kaldi = Nnet.read(str(need("chain", "1.raw")))
    for name, component in nnet.components.items():
        if component.is_updatable:
            ours, theirs = component.vectorize(), kaldi.components[name].vectorize()
            assert np.linalg.norm(ours - theirs) <= 1e-4 * np.linalg.norm(theirs), name
    told = need("chain", "objective_lines.txt").read_text().splitlines()
    expected = averages(line for line in told if "nnet3-chain-train" in line)
    assert set(expected) == {"output", "output-xent"}
    for name, numbers in averages(lines).items():
        assert numbers == pytest.approx(expected[name], rel=1e-5), name


def test_the_objective_after_training(trained, reference):
    nnet, options, _ = trained
    set_batchnorm_test_mode(nnet, True)
    prob = NnetChainComputeProb(nnet, reference[2], options)
    for _, example in read_table(f"ark:{need('chain', 'egs.ark')}", "chain_example"):
        prob.compute(example)
    lines = []
    assert prob.print_total_stats(lines.append)
    told = need("chain", "objective_lines.txt").read_text().splitlines()
    expected = averages(line for line in told if "compute-prob" in line)
    assert list(averages(lines)) == list(expected) == ["output-xent", "output"]
    for name, numbers in averages(lines).items():
        assert numbers == pytest.approx(expected[name], rel=2e-5), name


def test_normalized_supervision_is_kaldis():
    """Without their weights, Kaldi's supervisions get the same ones again, to the byte."""
    graph = open_fst(str(need("chain", "normalization.fst")))
    for _, eg in read_table(f"ark:{need('chain', 'egs.two.ark')}", "chain_example"):
        supervision = eg.outputs[0].supervision
        fst = supervision.fst
        bare = replace(
            fst.with_columns(weight=np.zeros_like(fst.weight)),
            final=np.where(np.isinf(fst.final), np.inf, 0).astype(np.float32),
        )
        found = normalized(replace(supervision, fst=bare), graph)
        written = [Writer(), Writer()]
        for writer, one in zip(written, (found, supervision), strict=True):
            one.write(writer)
        assert written[0].getvalue() == written[1].getvalue()


def test_merged_examples_are_kaldis():
    """Cut into single examples and merged again, Kaldi's minibatches are the same bytes."""
    merger = ChainExampleMerger(MinibatchRule("16"))
    path = need("chain", "egs.ark")
    batches = list(read_table(f"ark:{path}", "chain_example"))
    singles = [single for _, batch in batches for single in _singles(batch)]
    assert len(singles) == 48
    for (key, made), (name, batch) in zip(merger.merge(singles), batches, strict=True):
        assert key == name
        written = [Writer(), Writer()]
        for writer, one in zip(written, (made, batch), strict=True):
            one.write(writer)
        assert written[0].getvalue() == written[1].getvalue()


def _singles(batch):
    output = batch.outputs[0]
    supervision = output.supervision
    count, frames = supervision.num_sequences, supervision.frames_per_sequence
    line = replace(supervision, num_sequences=1, frames_per_sequence=count * frames)
    splitter = SupervisionSplitter(line)
    for number in range(count):
        part = splitter.part(number * frames, frames)
        part = replace(part, fst=breadth_first(remove_epsilons(part.fst)))
        inputs = []
        for io in batch.inputs:
            rows = np.flatnonzero(io.indexes[:, 0] == number)
            inputs.append(NnetIo(io.name, _first(io, rows), take_rows(io.features, rows)))
        rows = np.flatnonzero(output.indexes[:, 0] == number)
        weights = output.deriv_weights[rows] if len(output.deriv_weights) else output.deriv_weights
        made = NnetChainSupervision(output.name, _first(output, rows), part, weights)
        yield NnetChainExample(inputs, [made])


def _first(part, rows):
    indexes = part.indexes[rows].copy()
    indexes[:, 0] = 0
    return indexes
