"""Chain examples: made, changed and merged."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from chain_graphs import random_hmm, random_supervision
from opscope.framework.base.errors import FormatError, ShapeError
from opscope.kaldi.files.compressed import CompressedMatrix
from opscope.kaldi.files.kaldi_io import Reader, Writer
from opscope.kaldi.files.sparse import to_dense
from opscope.nnet3.chain.arrays import supervision_arrays
from opscope.nnet3.chain.denominator import DenominatorGraph
from opscope.nnet3.chain.examples import NnetChainExample, NnetChainSupervision
from opscope.nnet3.chain.numerator import numerator
from opscope.nnet3.chain.objective import ChainOptions, chain_objective
from opscope.nnet3.chain.supervisions.chunks import SupervisionSplitter
from opscope.nnet3.chain.supervisions.supervision import Supervision
from opscope.nnet3.egs import chain_changes as egs
from opscope.nnet3.egs.chain_generate import chain_examples
from opscope.nnet3.egs.generate import IvectorSource
from opscope.nnet3.egs.merging import MinibatchRule
from opscope.nnet3.egs.splitting import ExampleGenerationOptions, UtteranceSplitter
from opscope.nnet3.files.examples import NnetIo
from opscope.nnet3.training.chain_request import POSTERIORS, posteriors_of


def example(frames=4, factor=3, context=2, seed=0, weight=1.0):
    rng = np.random.default_rng(seed)
    times = np.arange(-context, frames * factor + context)
    inputs = np.zeros((len(times), 3), np.int32)
    inputs[:, 1] = times
    outputs = np.zeros((frames, 3), np.int32)
    outputs[:, 1] = factor * np.arange(frames)
    supervision = random_supervision(rng, frames, weight=weight)
    return NnetChainExample(
        [
            NnetIo("input", inputs, rng.normal(size=(len(times), 2)).astype(np.float32)),
            NnetIo("ivector", np.zeros((1, 3), np.int32), np.ones((1, 5), np.float32)),
        ],
        [NnetChainSupervision("output", outputs, supervision, np.ones(frames, np.float32))],
    )


def times(part):
    return part.indexes[:, 1].min(), part.indexes[:, 1].max()


@pytest.mark.parametrize("frames, later", [(0, 0), (1, 0), (2, 3), (-1, 0), (-2, -3), (4, 3)])
def test_shifted_times(frames, later):
    before = example()
    after = egs.shifted(before, frames)
    assert times(after.inputs[0]) == (-2 + frames, 13 + frames)
    assert times(after.inputs[1]) == (0, 0)
    assert times(after.outputs[0]) == (later, 9 + later)
    with pytest.raises(FormatError, match="subsampling"):
        egs.shifted(example(frames=1), 1)


def test_context_is_cut():
    cut = egs.selected(example(), 1, 3)
    assert times(cut.inputs[0]) == (-1, 12) and len(cut.inputs[0].features) == 14
    assert times(cut.outputs[0]) == (0, 9)
    assert times(egs.selected(example(), right_context=0).inputs[0]) == (-2, 9)
    merged = egs.merge_chain_examples([example(), example(seed=1)])
    with pytest.raises(FormatError, match="merged"):
        egs.selected(merged, 1)


def test_weight_and_name_of_the_output():
    assert egs.scaled_output(example(), 0.25).outputs[0].supervision.weight == 0.25
    named = egs.renamed_output(example(), "output-1")
    assert named.outputs[0].name == "output-1"
    for change in (lambda e: egs.scaled_output(e, 2.0), lambda e: egs.renamed_output(e, "x")):
        with pytest.raises(FormatError, match="no 'output'"):
            change(named)


def test_merging_by_structure():
    merger = egs.ChainExampleMerger(MinibatchRule("2"))
    made = [example(seed=n) for n in range(3)] + [example(5, seed=n) for n in range(2)]
    merged = dict(merger.merge(made))
    assert list(merged) == ["merged-0-2", "merged-1-2"]
    for batch, frames in zip(merged.values(), (4, 5), strict=True):
        assert batch.outputs[0].supervision.num_sequences == 2
        assert batch.outputs[0].supervision.frames_per_sequence == frames
        assert batch.inputs[0].indexes[:, 0].max() == 1
    lines = []
    merger.report(lines.append)
    assert "16={2->1,d=1},19={2->1,d=0}" in lines[1]


def test_multilingual_merging():
    merger = egs.ChainExampleMerger(MinibatchRule("2"), multilingual=True)
    keys = ["a?lang=fr", "b?x=1&lang=de", "c?lang=fr", "d?lang=de"]
    named = [merger.accepted(key, example(seed=n)) for n, key in enumerate(keys)]
    merged = dict(merger.merge(named))
    assert list(merged) == ["merged-0-2?lang=fr", "merged-1-2?lang=de"]
    assert [e.outputs[0].name for e in merged.values()] == ["output-fr", "output-de"]


@pytest.mark.parametrize("compress", [True, False])
def test_examples_of_an_utterance(compress):
    rng = np.random.default_rng(0)
    supervision = random_supervision(rng, frames=20)
    features = np.arange(61, dtype=np.float32)[:, None] * np.ones(2, np.float32)
    splitter = UtteranceSplitter(
        ExampleGenerationOptions((12, 9), 2, 1, frame_subsampling_factor=3), 0
    )
    weights = np.linspace(0, 1, 18).astype(np.float32)  # those of the last two frames are missing
    ivectors = IvectorSource(np.ones((7, 4), np.float32), 10, rng)
    finished = []
    parts = SupervisionSplitter(supervision)
    made = dict(
        chain_examples(
            *("u", features, 60, splitter),
            lambda chunk: (
                finished.append(chunk.first) or parts.part(chunk.first // 3, chunk.frames // 3)
            ),
            *(weights, ivectors),
            compress=compress,
            long_key=True,
        )
    )
    assert len(made) == len(finished) >= 5
    for key, e in made.items():
        first, left, frames, right = map(int, key.removesuffix("-v1").split("-")[1:])
        assert times(e.inputs[0]) == (-left, frames + right - 1)
        assert isinstance(e.inputs[0].features, CompressedMatrix) == compress
        rows = np.arange(first - left, first + frames + right).clip(0, 60)
        np.testing.assert_allclose(to_dense(e.inputs[0].features)[:, 0], rows, atol=0.2)
        output = e.outputs[0]
        assert output.supervision.frames_per_sequence == frames // 3 == len(output.indexes)
        assert times(output) == (0, frames - 3)
        mine = np.append(weights, [0, 0])[first // 3 : (first + frames) // 3]
        assert np.all(output.deriv_weights <= mine + 1e-6)
        writer = Writer()
        e.write(writer)
        reader = Reader(writer.getvalue(), name="eg")
        assert NnetChainExample.read(reader).outputs[0].name == "output"


def test_weights_of_one_byte_are_read():
    e = example()
    writer = Writer()
    e.write(writer)
    old = writer.getvalue()
    place = old.index(b"<DW2> ")
    data = bytes([0, 51, 255, 102])
    size = len(b"<DW2> FV ") + 5 + 4 * 4
    new = old[:place] + b"<DW> \x01\x04\x00\x00\x00" + data + old[place + size :]
    read = NnetChainExample.read(Reader(new, name="eg"))
    np.testing.assert_allclose(read.outputs[0].deriv_weights, [0, 0.2, 1, 0.4], rtol=1e-6)


def test_supervision_that_was_not_normalized_is_refused():
    source = random_supervision(np.random.default_rng(0))
    fst = source.fst
    label = np.where(np.arange(len(fst.arcs)) == 0, 0, fst.ilabel).astype(np.int32)
    bare = replace(source, fst=fst.with_columns(ilabel=label, olabel=label))
    with pytest.raises(ShapeError, match="nnet3-chain-normalize-egs"):
        supervision_arrays(bare)


def test_learning_without_forgetting():
    rng = np.random.default_rng(1)
    parts = [random_supervision(rng, 3) for _ in range(2)]
    graph = DenominatorGraph.of_fst(random_hmm(rng), 3)
    output = rng.normal(size=(3, 3))
    posteriors = rng.dirichlet(np.ones(3), 3)
    usual = chain_objective(ChainOptions(), graph, parts[0], output)
    options = ChainOptions(lwf_scale=0.5, lwf_den_scale=0.25)
    found = chain_objective(options, graph, parts[0], output, posteriors=posteriors)
    assert found.objective == usual.objective

    def forgetting(x):  # what is maximized besides
        every = chain_objective(ChainOptions(), graph, parts[0], x, deriv=False)
        den = numerator(parts[0], x)[0] - every.objective
        return 0.75 * float((posteriors * x).sum()) - 0.25 * den

    step = 1e-6 * rng.normal(size=output.shape)
    change = (forgetting(output + step) - forgetting(output - step)) / 2
    expected = float(((found.deriv - usual.deriv) * step).sum())
    assert change == pytest.approx(expected, rel=1e-4)


def test_posteriors_of_merged_examples():
    e = example(frames=2)
    e.outputs[0].supervision = Supervision(1.0, 3, 2, 4)
    held = np.arange(24, dtype=np.float32).reshape(6, 4)  # sequence by sequence
    e.inputs.append(NnetIo(POSTERIORS, np.zeros((6, 3), np.int32), held))
    found = posteriors_of(e, e.outputs[0].supervision)
    np.testing.assert_array_equal(found, held[[0, 2, 4, 1, 3, 5]])
    with pytest.raises(ShapeError, match="LWF"):
        posteriors_of(e, Supervision(1.0, 3, 2, 5))
    e.inputs.pop()
    assert not posteriors_of(e, e.outputs[0].supervision).any()
