"""Training examples: cut, selected, shuffled and merged."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kaldi_data import need
from opscope.framework.base.errors import AttributeTypeError, FormatError, ShapeError
from opscope.kaldi.files.compressed import CompressedMatrix
from opscope.kaldi.files.posterior import Posterior
from opscope.kaldi.files.sparse import SparseMatrix, to_dense
from opscope.kaldi.tables.tables import read_table
from opscope.nnet3.egs import generate, selecting
from opscope.nnet3.egs.merging import ExampleMerger, MinibatchRule, merge_examples
from opscope.nnet3.egs.rows import example_io, is_finite, stack_rows, take_range
from opscope.nnet3.egs.splitting import ExampleGenerationOptions, UtteranceSplitter
from opscope.nnet3.files.examples import NnetExample


def example(frames=4, left=2, right=1, dim=3, classes=5):
    features = np.arange((left + frames + right) * dim, dtype=np.float32).reshape(-1, dim)
    labels = SparseMatrix.from_dense(np.eye(classes)[np.arange(frames) % classes])
    return NnetExample([example_io("input", features, -left), example_io("output", labels)])


# Chunks


@settings(max_examples=60, deadline=None)
@given(
    length=st.integers(1, 400),
    frames=st.lists(st.integers(2, 40), min_size=1, max_size=3, unique=True),
    factor=st.sampled_from([1, 3]),
    seed=st.integers(0, 5),
)
def test_chunks_lie_in_the_utterance(length, frames, factor, seed):
    options = ExampleGenerationOptions(tuple(frames), 5, 4, 0, 1, 0, factor)
    chunks = UtteranceSplitter(options, seed).split(length)
    shortest = min(options.num_frames)
    assert bool(chunks) == (length >= shortest)
    covered = np.zeros(length + factor)
    for number, chunk in enumerate(chunks):
        assert chunk.frames in options.num_frames
        assert chunk.first >= 0 and chunk.first % factor == 0
        assert chunk.first + chunk.frames < length + factor
        assert chunk.left == (0 if number == 0 else 5)
        assert chunk.right == (1 if number == len(chunks) - 1 else 4)
        covered[chunk.first : chunk.first + chunk.frames] += np.repeat(chunk.weights, factor)
    inside = covered[covered > 0]
    np.testing.assert_allclose(inside, 1, atol=1e-5)
    if length >= 2 * max(options.num_frames):  # little is lost
        assert len(inside) >= length - options.num_frames[0]


def test_whole_utterances():
    (chunk,) = UtteranceSplitter(ExampleGenerationOptions(())).split(37)
    assert (chunk.first, chunk.frames, len(chunk.weights)) == (0, 37, 37)


def test_report():
    lines = []
    splitter = UtteranceSplitter(ExampleGenerationOptions((10, 4)))
    for length in (24, 4):
        splitter.split(length)
    splitter.report(lines.append)
    assert lines[0].startswith("Split 2 utts, with total length 28 frames (7.77778e-05 hours")
    assert "into 4 chunks." in lines[0]
    assert "Output frames are distributed among chunk-sizes as follows: 4 = 2" in lines[2]


@pytest.mark.parametrize("options", [{"num_frames": (0,)}, {"num_frames_overlap": 1}])
def test_options_are_checked(options):
    with pytest.raises(AttributeTypeError):
        ExampleGenerationOptions(**options)
    with pytest.raises(AttributeTypeError, match="no list"):
        ExampleGenerationOptions.parse_frames("8,x")


# Examples from features


def test_examples_from_posteriors():
    features = np.random.default_rng(0).normal(size=(12, 4)).astype(np.float32)
    post = Posterior.from_frames([[(t % 3, 1.0)] for t in range(12)])
    splitter = UtteranceSplitter(ExampleGenerationOptions((5,), 2, 1))
    targets = generate.posterior_targets(post, 3, 1)
    for key, made in generate.examples("utt", features, targets, splitter, compress=False):
        first = int(key.removeprefix("utt-"))
        input_io, output = made.io
        rows = np.arange(first - 2, first + 6).clip(0, 11)
        np.testing.assert_array_equal(input_io.features, features[rows])
        assert input_io.indexes[:, 1].tolist() == list(range(-2, 6))
        classes = to_dense(output.features).argmax(axis=1)
        assert classes.tolist() == [(first + t) % 3 for t in range(5)]
    with pytest.raises(ShapeError, match="class 2, but there are 2"):
        generate.posterior_targets(post, 2, 1)


def test_features_stay_compressed():
    matrix = CompressedMatrix.compress(np.random.default_rng(0).normal(size=(30, 3)))
    part = take_range(matrix, -2, 12)
    assert isinstance(part, CompressedMatrix) and part.layout == "CM"
    rows = np.arange(-2, 10).clip(0)
    np.testing.assert_array_equal(part.decompress(), matrix.decompress()[rows])
    assert take_range(matrix, 0, 7).layout == "CM2"  # column headers would take more


def test_dense_targets_with_subsampling():
    matrix = np.arange(8, dtype=np.float32).reshape(4, 2)
    splitter = UtteranceSplitter(ExampleGenerationOptions((12,), frame_subsampling_factor=3))
    targets = generate.dense_targets(matrix, 3)
    ((_, made),) = generate.examples("u", np.zeros((12, 1), np.float32), targets, splitter)
    output = made.io[1]
    assert output.indexes[:, 1].tolist() == [0, 3, 6, 9]
    np.testing.assert_allclose(to_dense(output.features), matrix, atol=1e-3)


def test_xvector_examples():
    chunks = generate.read_ranges("utt 1 9 5 4 2\n", "ranges")["utt"]
    features = np.arange(24, dtype=np.float32).reshape(8, 3)
    made = generate.xvector_example(chunks[0], features, 3, compress=False)
    np.testing.assert_array_equal(made.io[0].features, features[4:8])  # moved into the utterance
    assert chunks[0].key == "utt-5-4-2" and chunks[0].archive == 1
    assert to_dense(made.io[1].features).tolist() == [[0, 0, 1]]
    with pytest.raises(ShapeError, match="9 frames"):
        generate.xvector_example(generate.XvectorChunk("utt", 0, 0, 9, 0), features, 3)
    with pytest.raises(FormatError, match="ranges:1"):
        generate.read_ranges("utt 1 9 5 x 2\n", "ranges")


# Changes


def test_selection():
    made = selecting.selected(example(), frame=2, left_context=1, right_context=0)
    assert made.io[0].indexes[:, 1].tolist() == [1, 2]
    assert made.io[0].features.tolist() == [[9, 10, 11], [12, 13, 14]]
    assert to_dense(made.io[1].features).tolist() == [[0, 0, 1, 0, 0]]
    assert selecting.selected(example(), frame=4) is None
    with pytest.raises(FormatError, match="merged"):
        selecting.selected(merge_examples([example(), example()]))


def test_shift_rename_scale():
    made = example()
    made.io.append(example_io("ivector", np.ones((1, 2), np.float32)))
    moved = selecting.shifted(made, 3)
    assert [io.indexes[0, 1] for io in moved.io] == [1, 3, 0]
    assert [io.name for io in selecting.renamed_output(made, "output-1").io][1] == "output-1"
    assert to_dense(selecting.scaled_output(made, 0.5).io[1].features)[0, 0] == 0.5
    with pytest.raises(FormatError, match="no 'output'"):
        selecting.renamed_output(NnetExample(made.io[:1]), "output-1")


@pytest.mark.parametrize("buffer", [0, 7, 1000])
def test_shuffle_keeps_all(buffer):
    rng = np.random.default_rng(0)
    made = list(selecting.shuffle(range(100), rng, buffer))
    assert sorted(made) == list(range(100)) and made != list(range(100))


def test_subset():
    made, seen = selecting.subset(range(50), 10, np.random.default_rng(0))
    assert len(set(made)) == 10 and seen == 50 and max(made) > 9
    assert selecting.subset(range(3), 10, np.random.default_rng(0), False) == ([0, 1, 2], 3)


# Minibatches


@pytest.mark.parametrize(
    ("rule", "size", "available", "ended", "wanted"),
    [
        ("64", 10, 63, False, 0),
        ("64", 10, 64, False, 64),
        ("32,64:128", 10, 100, False, 0),
        ("32,64:128", 10, 100, True, 100),
        ("32,64:128", 10, 50, True, 32),
        ("32", 10, 31, True, 0),
        ("100=8/300=4:6,2", 250, 6, False, 6),
        ("100=8/300=4:6,2", 120, 8, True, 8),
        ("100=8/300=4:6,2", 250, 3, True, 2),
    ],
)
def test_minibatch_sizes(rule, size, available, ended, wanted):
    assert MinibatchRule(rule).size(size, available, ended) == wanted


@pytest.mark.parametrize("text", ["", "x", "0", "5:3", "1=2/3", "1=2/1=4", "8=", "4:"])
def test_wrong_minibatch_sizes(text):
    with pytest.raises(AttributeTypeError, match="--minibatch-size"):
        MinibatchRule(text)


def test_merging_sorts_by_structure():
    merger = ExampleMerger(MinibatchRule("1:2"))
    made = [example(4), example(3), example(4), example(4), example(3), example(3)]
    merged = dict(merger.merge(made))
    assert list(merged) == ["merged-0-2", "merged-1-2", "merged-2-1", "merged-3-1"]
    assert merged["merged-0-2"].io[0].indexes[-1].tolist() == [1, 4, 0]
    lines = []
    merger.report(lines.append)
    assert lines[1] == "6={2->1,1->1,d=0},7={2->1,1->1,d=0}"


def test_what_is_no_number_is_found():
    plain = np.ones((3, 2), np.float32)
    broken = np.array([[1.0, np.nan]], np.float32)
    assert is_finite(plain) and not is_finite(broken)
    assert is_finite(CompressedMatrix.compress(plain))
    assert not is_finite(SparseMatrix.from_dense(broken))


def test_merging_refuses():
    other = NnetExample(example().io[:1])
    with pytest.raises(ShapeError, match="1 of 2 merged examples have 'output'"):
        merge_examples([example(), other])
    with pytest.raises(ShapeError, match="2 and 3 columns"):
        stack_rows([np.zeros((1, 2)), np.zeros((1, 3))])


def test_kaldi_merges_the_same():
    folder = need("formats")
    singles = [e for _, e in read_table(f"ark:{folder / 'egs.ark'}", "example")]
    wanted = list(read_table(f"ark:{folder / 'egs.merged.ark'}", "example"))
    largest = max(int(key.split("-")[2]) for key, _ in wanted)
    merged = list(ExampleMerger(MinibatchRule(f"1:{largest}")).merge(singles))
    assert {key for key, _ in merged} == {key for key, _ in wanted}
    for (_, ours), (_, theirs) in zip(merged, wanted, strict=True):
        assert [io.name for io in ours.io] == [io.name for io in theirs.io]
        for one, other in zip(ours.io, theirs.io, strict=True):
            np.testing.assert_array_equal(one.indexes, other.indexes)
            np.testing.assert_allclose(to_dense(one.features), to_dense(other.features), atol=0.02)


def test_kaldi_takes_the_same_rows():
    """Its examples hold the frames of features that were compressed only there."""
    features = need("formats").parent.parent / "speech" / "train.ark"
    if not features.exists():
        pytest.skip(f"{features} is missing")
    wanted = dict(read_table(f"ark:{need('formats', 'egs.ark')}", "example"))
    names = {key.rpartition("-")[0] for key in wanted}
    held = {k: m for k, m in read_table(f"ark:{features}", "general_matrix") if k in names}
    for key, theirs in wanted.items():
        name, _, first = key.rpartition("-")
        made = to_dense(take_range(held[name], int(first) - 4, 16))
        frames = to_dense(theirs.io[0].features)
        np.testing.assert_allclose(made, frames, atol=1.5)  # they reach from -90 to 120
