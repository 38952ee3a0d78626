"""CNTK's binary format: there and back, damaged files, the reader."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from damage import check_damaged
from htk_files import epoch
from opscope.cntk.config.parameters import ConfigParameters
from opscope.cntk.readers.base.data import ChunkInfo, Deserializer, Samples, Stream
from opscope.cntk.readers.binary.format import BinaryFile, write_binary
from opscope.cntk.readers.catalog import create_reader
from opscope.framework.base.errors import FormatError, ShapeError


class Made(Deserializer):
    """A dense sample and some sparse ones for each sequence, whose lengths are given by chunk."""

    def __init__(self, *chunks, dtype=np.float32):
        self.streams = [Stream("x", 2, dtype=dtype), Stream("w", 5, True, dtype)]
        self.chunks = [ChunkInfo(np.array(lengths, np.int64)) for lengths in chunks]
        self._dtype = dtype

    def read_chunk(self, number):
        lengths = self.chunks[number].lengths
        rows = np.arange(2.0 * len(lengths)).reshape(-1, 2) + 100 * number
        total = int(lengths.sum())
        counts = 1 + np.arange(total) % 3
        index = np.concatenate([np.arange(count) + place % 3 for place, count in enumerate(counts)])
        sparse = Samples(
            np.concatenate([[0], np.cumsum(lengths)]),
            np.arange(1.0, 1 + counts.sum()).astype(self._dtype),
            index,
            np.concatenate([[0], np.cumsum(counts)]),
        )
        return [Samples(np.arange(len(lengths) + 1), rows.astype(self._dtype)), sparse]


@given(
    st.lists(st.lists(st.integers(1, 4), min_size=1, max_size=5), min_size=1, max_size=4),
    st.sampled_from([np.float32, np.float64]),
)
@settings(max_examples=30, deadline=None)
def test_there_and_back(tmp_path_factory, chunks, dtype):
    path = tmp_path_factory.mktemp("bin") / "a.bin"
    source = Made(*chunks, dtype=dtype)
    write_binary(path, source)
    found = BinaryFile(path)
    assert found.streams == source.streams
    assert [c.lengths.tolist() for c in found.chunks] == chunks
    for number in range(len(chunks)):
        for one, other in zip(source.read_chunk(number), found.read_chunk(number), strict=True):
            assert one.lengths.tolist() == other.lengths.tolist()
            np.testing.assert_array_equal(one.dense(5), other.dense(5))
            assert one.values.dtype == other.values.dtype


def test_the_bytes_of_a_small_file(tmp_path):
    """As CNTK's own converter writes |x 1 2 |w 0:3 4:5 / |x 6 7 |w 1:8, two lines of a sequence."""
    head = struct.pack("<qqi", 1, 1, 2)
    head += struct.pack("<i1s3i", 1, b"x", 0, 0, 2) + struct.pack("<i1s5i", 1, b"w", 1, 0, 0, 1, 5)
    table = struct.pack("<qii", 0, 2, 3)
    body = struct.pack("<4f", 1, 2, 6, 7) + struct.pack("<i3f3i3i", 3, 3, 5, 8, 0, 9, 1, 0, 2, 3)
    path = tmp_path / "a.bin"
    path.write_bytes(head + table + body)
    x, w = BinaryFile(path).read_chunk(0)
    assert x.values.tolist() == [[1, 2], [6, 7]]
    assert w.lengths.tolist() == [2, 1]
    assert w.dense(5).tolist() == [[3, 0, 0, 0, 0], [0, 0, 0, 0, 5], [0, 8, 0, 0, 0]]


def test_damaged_files(tmp_path):
    path = tmp_path / "a.bin"
    write_binary(path, Made([1, 2], [3]))
    data = path.read_bytes()

    def read(damaged):
        path.write_bytes(damaged)
        BinaryFile(path)

    check_damaged(data, read)


def test_dense_sequences_cannot_be_written(tmp_path):
    source = Made([1, 1])
    source.read_chunk = lambda number: [
        Samples(np.array([0, 2]), np.zeros((2, 2), np.float32)),
        Made([2]).read_chunk(0)[1],
    ]
    with pytest.raises(ShapeError, match="x: the binary format has no dense sequences"):
        write_binary(tmp_path / "a.bin", source)
    assert not (tmp_path / "a.bin").exists()


@pytest.mark.parametrize("randomize", ["false", "true", '"none"'])
def test_the_reader(tmp_path, randomize):
    write_binary(tmp_path / "a.bin", Made([1] * 4, [1] * 3))
    config = ConfigParameters(
        f"""readerType = "CNTKBinaryReader" ; file = "{tmp_path}/a.bin" ; randomize = {randomize}
        input = [ features = [ alias = "x" ] ]"""
    )
    with create_reader(config) as reader:
        batches = epoch(reader, 3)
        assert [stream.name for stream in reader.streams] == ["features", "w"]
    rows = np.concatenate([batch.streams["features"].values[:, 0] for batch in batches]).tolist()
    everything = [0, 2, 4, 6, 100, 102, 104]
    assert sorted(rows) == everything and (rows == everything) == (randomize != "true")


def test_what_is_no_binary_file(tmp_path):
    path = tmp_path / "a.bin"
    path.write_bytes(struct.pack("<qqi", 2, 1, 1))
    with pytest.raises(FormatError, match="a.bin: byte 0: version 2; 1 was expected"):
        BinaryFile(path)
    path.write_bytes(b"")
    with pytest.raises(FormatError, match="the file is empty"):
        BinaryFile(path)
