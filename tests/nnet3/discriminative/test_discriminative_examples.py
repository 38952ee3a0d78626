"""Supervisions and examples of discriminative training: files, merging, chunks."""

from __future__ import annotations

import numpy as np
import pytest

from discriminative_cases import random_lattice, supervision, transition_ids
from opscope.framework.base.errors import FormatError, ShapeError
from opscope.kaldi.files.kaldi_io import Reader, Writer
from opscope.nnet3.discriminative.examples import (
    NnetDiscriminativeExample,
    NnetDiscriminativeSupervision,
)
from opscope.nnet3.discriminative.objective import (
    DiscriminativeOptions,
    discriminative_objective,
    lattice_arrays,
)
from opscope.nnet3.discriminative.splitting import DiscriminativeSplitter, SplitOptions
from opscope.nnet3.discriminative.supervision import DiscriminativeSupervision, merge_supervision
from opscope.nnet3.egs.chain_changes import merge_chain_examples, shifted
from opscope.nnet3.egs.rows import frame_indexes
from opscope.nnet3.files.examples import NnetIo


def example(rng, frames=5) -> NnetDiscriminativeExample:
    features = rng.normal(size=(frames + 2, 2)).astype(np.float32)
    weights = np.linspace(0, 1, frames).astype(np.float32)
    output = NnetDiscriminativeSupervision(
        "output", frame_indexes(frames), supervision(rng, frames), weights
    )
    return NnetDiscriminativeExample(
        [NnetIo("input", frame_indexes(frames + 2), features)], [output]
    )


def written(value, binary=True) -> bytes:
    writer = Writer(binary, header=False)
    value.write(writer)
    return writer.getvalue()


@pytest.mark.parametrize("binary", [True, False])
def test_files(binary):
    first = example(np.random.default_rng(1))
    data = written(first, binary)
    reader = Reader(data, name="eg", binary=binary)
    again = NnetDiscriminativeExample.read(reader)
    assert reader.offset == reader.size and written(again, binary) == data
    output = again.outputs[0]
    assert isinstance(output.supervision, DiscriminativeSupervision)
    np.testing.assert_array_equal(
        output.supervision.alignment, first.outputs[0].supervision.alignment
    )
    np.testing.assert_allclose(output.deriv_weights, first.outputs[0].deriv_weights, atol=1 / 500)
    with pytest.raises(FormatError):
        NnetDiscriminativeExample.read(Reader(data[: len(data) // 2], name="eg", binary=binary))


def objective(part, output, **options):
    chosen = DiscriminativeOptions(**options)
    arrays = lattice_arrays(part, transition_ids(), chosen)
    return discriminative_objective(chosen, arrays, output, np.zeros(0))


@pytest.mark.parametrize("criterion", ["mmi", "mpfe", "smbr"])
def test_merged_examples_count_as_the_single_ones(criterion):
    rng = np.random.default_rng(2)
    examples = [shifted(example(rng), 3) for _ in range(3)]
    merged = merge_chain_examples(examples)
    assert type(merged) is NnetDiscriminativeExample
    output = merged.outputs[0]
    assert output.indexes[:4].tolist() == [[0, 3, 0], [1, 3, 0], [2, 3, 0], [0, 4, 0]]
    assert output.deriv_weights[:6].tolist() == [0.0] * 3 + [0.25] * 3
    logs = rng.normal(size=(15, 3))
    whole = objective(output.supervision, logs, criterion=criterion)
    parts = [
        objective(e.outputs[0].supervision, logs[i::3], criterion=criterion)
        for i, e in enumerate(examples)
    ]
    np.testing.assert_allclose(whole.objective, sum(part.objective for part in parts))
    for i, part in enumerate(parts):
        np.testing.assert_allclose(whole.deriv[i::3], part.deriv, atol=1e-12)


@pytest.mark.parametrize(
    "options", [{}, {"minimize": False}, {"determinize": False, "collapse_transition_ids": False}]
)
def test_chunks_weigh_what_is_before_and_after_them(options):
    """Scores of the first pass kept, a chunk's paths have the posteriors of the whole lattice, and
    sum up to 1; where paths with the same transition-ids are few."""
    rng = np.random.default_rng(5)
    whole = supervision(rng, 9, width=2)
    pdfs = np.array(transition_ids().pdf)
    splitter = DiscriminativeSplitter(SplitOptions(**options), whole, pdfs)
    for first, frames in ((0, 4), (3, 4), (5, 4), (0, 9)):
        part = splitter.part(first, frames, normalize=True)
        assert part.rows == frames
        np.testing.assert_array_equal(part.alignment, whole.alignment[first : first + frames])
        labels = {arc.label for group in part.lattice.arcs for arc in group}
        assert labels <= set(range(1, 9))
        if options.get("determinize", True):
            for group in part.lattice.arcs:
                assert len({arc.label for arc in group}) == len(group)


def test_refuses():
    rng = np.random.default_rng(0)
    lattice = random_lattice(rng, 5)
    for alignment, given, why in (
        (np.ones(4, np.int32), lattice, "a lattice of 5 frames with an alignment of 4"),
        (np.zeros(0, np.int32), lattice, "the alignment is empty"),
        (np.ones(4, np.int32), type(lattice)(), "the lattice is empty"),
    ):
        with pytest.raises(ShapeError, match=why):
            DiscriminativeSupervision.of_utterance(alignment, given)
    parts = [supervision(rng, frames) for frames in (4, 5)]
    with pytest.raises(ShapeError, match="frames_per_sequence 4 and 5 cannot be merged"):
        merge_supervision(parts)
    with pytest.raises(ShapeError, match="only the supervision of one utterance"):
        DiscriminativeSplitter(SplitOptions(), merge_supervision(parts[:1] * 2), np.zeros(9))
    with pytest.raises(ShapeError, match="is no transition-id of the model, which has 1 to 2"):
        DiscriminativeSplitter(SplitOptions(), parts[0], np.zeros(3, np.int64))
