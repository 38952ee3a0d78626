"""Readers put together from deserializers: matching by name, frames, expansion, plugging in."""

from __future__ import annotations

import logging

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from htk_files import corpus, epoch
from opscope.cntk.config.parameters import ConfigParameters
from opscope.cntk.readers.base.bundler import Bundler, SingleSamples
from opscope.cntk.readers.base.data import ChunkInfo, Deserializer, Samples, Stream
from opscope.cntk.readers.catalog import create_reader
from opscope.framework.base.errors import FormatError
from opscope.framework.base.options import plugins


class Named(Deserializer):
    """Sequences of given names and lengths; every sample holds the number of its name."""

    def __init__(self, stream, *chunks):
        self.streams = [Stream(stream, 1)]
        self.chunks = [
            ChunkInfo(np.array([n for _, n in chunk], np.int64), [name for name, _ in chunk])
            for chunk in chunks
        ]

    def read_chunk(self, number):
        chunk = self.chunks[number]
        values = np.repeat(np.array([int(key) for key in chunk.keys], float), chunk.lengths)
        begin = np.concatenate([[0], np.cumsum(chunk.lengths)])
        return [Samples(begin, values[:, None])]


def text(folder, name, lines, dim=1):
    """The section of a deserializer of the text format over a new file."""
    path = folder / f"{name}.ctf"
    path.write_text("".join(line + "\n" for line in lines))
    return f"""[ type = "CNTKTextFormatDeserializer" ; file = "{path}"
        input = [ {name} = [ dim = {dim} ; format = "dense" ] ] ]"""


def composed(*parts, more="randomize = false"):
    return create_reader(ConfigParameters(f"{more}\ndeserializers = ( {' : '.join(parts)} )"))


def htk(folder):
    return (
        f"""[ type = "HTKFeatureDeserializer"
            input = [ features = [ dim = 2 ; scpFile = "{folder}/a.scp" ] ] ]""",
        f"""[ type = "HTKMLFDeserializer"
            input = [ labels = [ labelDim = 3 ; mlfFile = "{folder}/a.mlf"
                labelMappingFile = "{folder}/states" ] ] ]""",
    )


def test_names_that_are_numbers(tmp_path):
    corpus(tmp_path, [2, 3])
    lines = (
        (tmp_path / "a.scp").read_text().replace("u0.fea=", "0007.fea=").replace("u1.fea=", "12x=")
    )
    (tmp_path / "a.scp").write_text(lines)
    counts = text(tmp_path, "n", ["7 |n 7", "12 |n 12"])
    with composed(htk(tmp_path)[0], counts) as reader:
        (batch,) = epoch(reader, 9)
    assert batch.streams["n"].values.tolist() == [[7], [12]]
    assert batch.streams["features"].lengths.tolist() == [2, 3]
    with pytest.raises(FormatError, match="2 of 2 sequences have no match"):
        composed(htk(tmp_path)[0], counts, more="useNumericSequenceKeys = false")
    corpus(tmp_path, [2, 3])
    with pytest.raises(FormatError, match="the name 'u0' of a sequence is no number"):
        composed(htk(tmp_path)[0], counts)


def test_written_outputs_keep_the_order_of_the_files(tmp_path):
    corpus(tmp_path, [2, 3, 2])
    top = f"""readerType = "HTKDeserializers" ; action = "write" ; frameMode = false
        features = [ dim = 2 ; scpFile = "{tmp_path}/a.scp" ]"""
    with create_reader(ConfigParameters(f'{top} ; readMethod = "none"')) as reader:
        (batch,) = epoch(reader, 9)
    assert batch.streams["features"].values[:, 0].tolist() == [0, 0, 1, 1, 1, 2, 2]
    with pytest.raises(FormatError, match="'write' needs readMethod = 'none'"):
        create_reader(ConfigParameters(top))


def test_sequences_are_matched_by_their_numbers(tmp_path):
    first = text(tmp_path, "x", ["1 |x 1", "2 |x 2", "2 |x 2.5", "3 |x 3"])
    second = text(tmp_path, "y", ["3 |y 30", "1 |y 10", "2 |y 20"])
    with composed(first, second) as reader:
        (batch,) = epoch(reader, 10)
    assert batch.streams["x"].values[:, 0].tolist() == [1, 2, 2.5, 3]
    assert batch.streams["y"].values[:, 0].tolist() == [10, 20, 30]
    assert batch.layouts["x"].samples == 4 and batch.layouts["y"].samples == 3


def test_what_has_no_match_is_left_out_and_named(tmp_path, caplog):
    first = text(tmp_path, "x", [f"{n} |x {n}" for n in (1, 2, 3, 4)])
    second = text(tmp_path, "y", [f"{n} |y {n}" for n in (4, 2, 9)])
    with caplog.at_level(logging.WARNING), composed(first, second) as reader:
        (batch,) = epoch(reader, 10)
    assert batch.streams["x"].values[:, 0].tolist() == [2, 4]
    assert batch.streams["y"].values[:, 0].tolist() == [2, 4]
    assert "2 of 4 sequences have no match in all inputs: 1, 3" in caplog.text
    with pytest.raises(FormatError, match="2 of 4 sequences have no match"):
        composed(first, second, more="checkData = false")


@given(
    st.lists(st.lists(st.integers(0, 30), max_size=5), min_size=1, max_size=4),
    st.lists(st.lists(st.integers(0, 30), max_size=5), min_size=1, max_size=4),
)
@settings(max_examples=60, deadline=None)
def test_joined_chunks_hold_the_same_sequences(first, second):
    def source(stream, chunks, length):
        seen: set[int] = set()
        fresh = [[n for n in chunk if not (n in seen or seen.add(n))] for chunk in chunks]
        return Named(stream, *([(str(n), length(n)) for n in chunk] for chunk in fresh))

    one = source("a", first, lambda n: 1 + n % 3)
    two = source("b", second, lambda n: 1 + n % 2)
    common = {n for chunk in first for n in chunk} & {n for chunk in second for n in chunk}
    if not common:
        with pytest.raises(FormatError, match="have no match"):
            Bundler([one, two])
        return
    joined = Bundler([one, two])
    found = []
    for number, chunk in enumerate(joined.chunks):
        a, b = joined.read_chunk(number)
        assert a.lengths.tolist() == [1 + int(n) % 3 for n in chunk.keys]
        assert b.lengths.tolist() == [1 + int(n) % 2 for n in chunk.keys]
        assert a.values[a.begin[:-1], 0].tolist() == b.values[b.begin[:-1], 0].tolist()
        assert chunk.lengths.tolist() == np.maximum(a.lengths, b.lengths).tolist()
        found += [int(n) for n in chunk.keys]
    assert sorted(found) == sorted(common)


def test_a_single_sample_stands_for_all(tmp_path):
    one = Named("a", [("1", 3), ("2", 2)])
    two = Named("b", [("2", 1), ("1", 1)])
    _, b = Bundler([one, two], expanded=[1]).read_chunk(0)
    assert b.values[:, 0].tolist() == [1, 1, 1, 2, 2] and b.lengths.tolist() == [3, 2]


def test_single_samples():
    source = SingleSamples(Named("a", [("1", 3), ("2", 2)]))
    (samples,) = source.read_chunk(0)
    assert source.chunks[0].lengths.tolist() == samples.lengths.tolist() == [1] * 5


@pytest.mark.parametrize("frame_mode", ["true", "false"])
def test_features_and_labels(tmp_path, frame_mode):
    corpus(tmp_path, [5, 4, 3], missing=[1])
    with composed(*htk(tmp_path), more=f"frameMode = {frame_mode}") as reader:
        batches = epoch(reader, 4)
    rows = np.concatenate([batch.streams["features"].values for batch in batches])
    states = np.concatenate([batch.streams["labels"].indices for batch in batches])
    np.testing.assert_array_equal(states, rows[:, 1] // 2 % 3)
    assert sorted(rows[:, 0].tolist()) == [0] * 5 + [2] * 3
    sizes = [batch.samples for batch in batches]
    assert sizes == [4, 4] if frame_mode == "true" else sorted(sizes) == [3, 5]


def test_truncated(tmp_path):
    lines = [f"{n} |x {n}" for n in (1, 2, 3) for _ in range(4)]
    more = "randomize = false ; truncated = true ; truncationLength = 3"
    with composed(text(tmp_path, "x", lines), more=more) as reader:
        batches = epoch(reader, 6)
    assert [batch.samples for batch in batches] == [6, 4, 2]
    assert all(batch.columns == 6 for batch in batches)


def test_writing_is_in_order_and_whole(tmp_path):
    config = ConfigParameters(
        f"""action = "write" ; reader = [ truncated = true ; truncationLength = 2
        deserializers = ( {text(tmp_path, "x", [f"{n} |x {n}" for n in range(9)])} ) ]"""
    )
    with create_reader(config.section("reader")) as reader:
        rows = [b.streams["x"].values[:, 0].tolist() for b in epoch(reader, 3)]
    assert rows == [[0, 1, 2], [3, 4, 5], [6, 7, 8]]


@pytest.mark.parametrize(
    ("kind", "more", "why"),
    [
        ("CNTKTextFormDeserializer", "", "did you mean CNTKTextFormatDeserializer"),
        ("HTKMLFDeserializer", "", "labels cannot come first"),
        ("CNTKTextFormatDeserializer", "truncated = true", "needs a truncationLength"),
        ("CNTKTextFormatDeserializer", "truncated = true ; frameMode = true", "frameMode = false"),
    ],
)
def test_wrong_configs(tmp_path, kind, more, why):
    part = text(tmp_path, "x", ["1 |x 1"]).replace("CNTKTextFormatDeserializer", kind)
    with pytest.raises(FormatError, match=why):
        composed(part, more=more)


def test_a_deserializer_from_elsewhere(monkeypatch):
    class Point:
        name, value = "MyDeserializer", "mine:made"

        def load(self):
            return lambda config: Named("mine", [(config.string("first"), 2)])

    monkeypatch.setattr(plugins, "entry_points", lambda group: [Point()])
    with composed('[ type = "MyDeserializer" ; first = 7 ]') as reader:
        (batch,) = epoch(reader, 5)
    assert batch.streams["mine"].values.tolist() == [[7], [7]]


@pytest.mark.parametrize("truncated", ["true", "false"])
def test_htk_deserializers_take_the_section_of_the_older_reader(tmp_path, truncated):
    corpus(tmp_path, [7, 5, 6])
    features, labels = (f"[ {part.split('input = [')[1]}" for part in htk(tmp_path))
    streams = " ".join(part.strip()[1:].strip()[: -len("] ]")] for part in (features, labels))
    config = ConfigParameters(
        f"""readerType = "HTKDeserializers" ; frameMode = false ; truncated = {truncated}
        nbruttsineachrecurrentiter = 2 ; {streams}"""
    )
    with create_reader(config) as reader:
        batches = epoch(reader, 4)
    rows = np.concatenate([batch.streams["features"].values for batch in batches])
    assert len(rows) == 18 and len(np.unique(rows, axis=0)) == 18
    if truncated == "true":
        assert all(b.layouts["features"].parallel == 2 for b in batches)
        assert all(b.layouts["features"].steps == 4 for b in batches)
