"""Order and packing of sequences: CNTK's own orders, layouts, truncation, epochs."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cntk_data import need
from made_sequences import Made
from opscope.cntk.base.mersenne import Mersenne64
from opscope.cntk.config.parameters import ConfigParameters
from opscope.cntk.readers.base.data import Samples, chunks_of
from opscope.cntk.readers.base.layout import packed
from opscope.cntk.readers.base.order import BlockShuffle, FileOrder
from opscope.cntk.readers.base.pack import FramePacker, SequencePacker, TruncatedPacker
from opscope.cntk.readers.catalog import create_reader
from opscope.framework.base.errors import FormatError, ShapeError


def epoch(packer, number, size, epoch_size=None):
    """All minibatches of an epoch."""
    packer.start_epoch(number, size, epoch_size)
    found = []
    while True:
        batch = packer.read()
        if batch:
            found.append(batch)
        if batch.end_of_epoch:
            return found


def test_numbers_of_the_generator():
    # The 10,000th number of the default seed is part of the C++ standard.
    assert Mersenne64(5489).draw(10000)[-1] == 9981545732273789042
    one_by_one = Mersenne64(7)
    assert [int(one_by_one.draw(1)[0]) for _ in range(700)] == Mersenne64(7).draw(700).tolist()


def test_cntk_orders():
    lines = need("35_ctf_randomized", "order.txt").read_text().splitlines()
    packer = SequencePacker(BlockShuffle(Made([1] * 1000)), Made([1]).streams)
    batches = [batch for number in range(3) for batch in epoch(packer, number, 50, 400)]
    expected = [[int(word) for word in line.split(":")[1].split()] for line in lines]
    assert [batch.sequences[:, 1].tolist() for batch in batches] == expected


def test_cntk_truncated_order():
    """Which steps of which sequence every slot holds."""
    text = need("36_ctf_truncated_bptt", "order.txt").read_text()
    lengths = {}
    for sequence, last in re.findall(r"(\d+)\[\d+,(\d+)\]", text):
        lengths[int(sequence)] = max(lengths.get(int(sequence), 0), int(last) + 1)
    source = Made([lengths[number] for number in sorted(lengths)])
    found = []
    for batch in epoch(TruncatedPacker(FileOrder(source), source.streams, 3), 0, 12):
        layout = batch.layouts["a"]
        slots = [[] for _ in range(layout.parallel)]
        spread = layout.spread(batch.streams["a"].values).reshape(3, -1, 3)
        for (_, number), slot, begin, end in zip(
            batch.sequences, layout.slot, layout.begin, layout.end, strict=True
        ):
            first, last = max(0, begin), min(3, end)
            slots[slot].append(f"{number}[{first - begin},{last - begin - 1}]")
            np.testing.assert_array_equal(spread[first:last, slot, 1], number)
            np.testing.assert_array_equal(
                spread[first:last, slot, 2], np.arange(first, last) - begin
            )
        assert layout.columns == batch.columns == 12
        found.append(" | ".join(" + ".join(slot) or "(empty)" for slot in slots))
    lines = text.splitlines()
    expected = [line.split(": ", 1)[1] for line in lines if line.startswith("minibatch")]
    assert found == expected


@given(
    st.lists(st.lists(st.integers(1, 5), min_size=1, max_size=6), min_size=1, max_size=5),
    st.integers(1, 30),
    st.integers(0, 30),
)
def test_shuffling_moves_sequences_within_the_window(chunks, size, window):
    source = Made(*chunks)
    for number in range(2):
        batches = epoch(SequencePacker(BlockShuffle(source, window), source.streams), number, size)
        seen = [tuple(pair) for batch in batches for pair in batch.sequences.tolist()]
        everything = [(c, s) for c, lengths in enumerate(chunks) for s in range(len(lengths))]
        assert sorted(seen) == everything
        for batch in batches:
            assert len(batch.sequences) == 1 or batch.samples <= size
            rows = batch.streams["a"].values[:, :2]
            np.testing.assert_array_equal(rows, batch.sequences[batch.layouts["a"].sequence])


@given(st.lists(st.integers(1, 6), min_size=1, max_size=12))
def test_layouts_hold_every_sample_once(lengths):
    layout = packed(np.array(lengths))
    assert layout.samples == sum(lengths) == len(set(layout.column.tolist()))
    assert layout.steps == max(lengths) and layout.column.max() < layout.columns
    assert np.unique(layout.column).size == layout.samples
    for number in range(len(lengths)):
        columns = layout.column[layout.sequence == number]
        assert np.all(np.diff(columns) == layout.parallel)
    rows = np.arange(layout.samples, dtype=float)
    np.testing.assert_array_equal(layout.spread(rows)[layout.column], rows)


def test_sequences_go_into_the_first_slot_with_room():
    layout = packed(np.array([3, 5, 2, 4, 1]))
    assert layout.slot.tolist() == [0, 1, 0, 2, 2] and layout.begin.tolist() == [0, 0, 3, 0, 4]
    assert layout.samples == layout.columns == 15


def test_epochs_cut_the_data_where_sequences_begin():
    source = Made([3, 3], [3, 3])
    packer = SequencePacker(FileOrder(source), source.streams)
    pairs = [
        [tuple(pair) for batch in epoch(packer, number, 6, 5) for pair in batch.sequences.tolist()]
        for number in range(3)
    ]
    assert pairs == [[(0, 0), (0, 1)], [(1, 0), (1, 1)], [(0, 0)]]


def test_only_needed_chunks_are_read():
    source = Made([2], [2], [2])
    list(epoch(SequencePacker(FileOrder(source), source.streams), 0, 2))
    assert source.read == [0, 1, 2]


def test_frame_mode():
    source = Made([1, 1, 1])
    [batch] = epoch(FramePacker(FileOrder(source), source.streams), 0, 10)
    assert batch.layouts["a"].parallel == 3 and batch.layouts["a"].steps == 1
    source = Made([1, 2])
    with pytest.raises(ShapeError, match="a has one of 2"):
        epoch(FramePacker(FileOrder(source), source.streams), 0, 10)


CONFIG = """
    readerType = "CNTKTextFormatReader" ; file = "{path}" ; randomize = false
    input = [
        x = [ dim = 2 ; format = "dense" ]
        y = [ dim = 3 ; format = "sparse" ; alias = "l" ]
    ]
"""


def section(tmp_path, text=CONFIG, data=None):
    path = tmp_path / "a.ctf"
    path.write_text(data or "".join(f"|x {n} 1 |l {n % 3}:1\n" for n in range(10)))
    return ConfigParameters(text.replace("{path}", str(path)))


@pytest.mark.parametrize("prefetch", ["true", "false"])
def test_a_reader_from_a_config(tmp_path, prefetch):
    with create_reader(section(tmp_path, f"{CONFIG}; prefetch = {prefetch}")) as reader:
        for number in range(2):
            reader.start_minibatch_loop(4, number)
            batches = list(iter(reader.get_minibatch, None))
            assert [batch.samples for batch in batches] == [4, 4, 2]
            assert reader.data_end() and reader.get_minibatch() is None
        assert batches[2].streams["x"].values.tolist() == [[8, 1], [9, 1]]
        assert batches[2].streams["y"].dense(3).tolist() == [[0, 0, 1], [1, 0, 0]]


def test_an_error_while_reading_ahead_reaches_the_caller(tmp_path):
    with create_reader(section(tmp_path, data="|x 1 1 |l 0:1\n|x 1 1 |l 7:1\n")) as reader:
        reader.start_minibatch_loop(1, 0)
        with pytest.raises(FormatError, match="a.ctf:2:11"):
            reader.get_minibatch()


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("CNTKTextFormatReader", "CNTKTextFormReader", "did you mean CNTKTextFormatReader"),
        ('"dense"', '"full"', "'dense' or 'sparse', not 'full'"),
        ("dim = 2 ;", "", "parameter missing: .*x:dim"),
        ("dim = 2", "dim = 0", "cannot have 0 values"),
        ('"l"', '"x"', "'x' already belongs to x"),
        ("a.ctf", "b.ctf", "No such file"),
        ("randomize = false", "randomize = maybe", "boolean"),
    ],
)
def test_wrong_configs(tmp_path, old, new, why):
    with pytest.raises(FormatError, match=why):
        create_reader(
            section(tmp_path, CONFIG.replace("{path}", f"{tmp_path}/a.ctf").replace(old, new))
        )


@pytest.mark.parametrize("elements", [None, 1, 2])
@pytest.mark.parametrize("count", [0, 1, 7])
def test_single_samples_are_taken_as_longer_sequences_are(elements, count):
    rng = np.random.default_rng(3)
    values = rng.standard_normal((9, 5) if elements is None else 9 * elements).astype("f")
    indices = None if elements is None else rng.integers(0, 5, 9 * elements)
    first = None if elements is None else np.arange(10) * elements
    frames = Samples(np.arange(10), values, indices, first)
    whole = Samples(np.array([0, 4, 9]), values, indices, first)  # not single samples
    assert frames.of_singles is (elements in (None, 1))
    assert not whole.of_singles
    chosen = rng.integers(0, 9, count)
    taken = frames.take(chosen)
    expected = whole.take(np.array([0, 1])).dense(5)[chosen]
    np.testing.assert_array_equal(taken.dense(5), expected)
    np.testing.assert_array_equal(taken.lengths, np.ones(count))
    np.testing.assert_array_equal(whole.take(np.array([1])).lengths, [5])


def test_chunks_of_sequences_are_listed_once_in_order():
    assert chunks_of(np.zeros((0, 2), np.int64)) == []
    assert chunks_of(np.array([[4, 0], [4, 2]])) == [4]
    assert chunks_of(np.array([[4, 0], [1, 2], [4, 1]])) == [1, 4]
