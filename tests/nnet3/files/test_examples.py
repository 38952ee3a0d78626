"""Index vectors, examples and posteriors: round trips, Kaldi's bytes, damage."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from damage import check_damaged
from opscope.framework.base.errors import FormatError
from opscope.kaldi.files.compressed import CompressedMatrix
from opscope.kaldi.files.kaldi_io import Reader, Writer
from opscope.kaldi.files.posterior import Posterior
from opscope.kaldi.files.sparse import SparseMatrix, to_dense
from opscope.nnet3.files.examples import NnetExample, NnetIo
from opscope.nnet3.files.index_io import read_indexes, write_indexes

both = pytest.mark.parametrize("binary", [True, False])
int32 = st.integers(-(1 << 31), (1 << 31) - 1)
index = st.one_of(
    st.tuples(st.just(0), st.integers(-130, 130), st.just(0)),
    st.tuples(st.integers(0, 3), st.integers(-5, 5), st.integers(0, 1)),
    st.tuples(int32, int32, int32),
)
pair = st.tuples(int32, st.floats(width=32))


def bytes_of(binary, write):
    writer = Writer(binary)
    write(writer)
    return writer.getvalue()


def one_by_one(indexes):
    """The binary form, worked out Index by Index."""
    data = b"<I1V> \x04" + np.int32(len(indexes)).tobytes()
    n0, t0, x0 = 0, 0, 0
    for n, t, x in indexes:
        if (n, x) == (n0, x0) and -125 < t - t0 < 125:
            data += bytes([(t - t0) & 255])
        else:
            data += b"\x7f" + b"".join(b"\x04" + np.int32(value).tobytes() for value in (n, t, x))
        n0, t0, x0 = n, t, x
    return data


@both
@given(indexes=st.lists(index, max_size=40))
def test_indexes_come_back(binary, indexes):
    array = np.array(indexes, np.int32).reshape(-1, 3)
    data = bytes_of(binary, lambda w: write_indexes(w, array))
    if binary:
        assert data == b"\0B" + one_by_one(indexes)
    reader = Reader(data)
    np.testing.assert_array_equal(read_indexes(reader), array)
    assert reader.at_end()


def test_indexes_that_were_read_are_changed_alone():
    """Equal bytes are parsed once."""
    array = np.array([[0, t, 0] for t in range(-3, 5)], np.int32)
    data = bytes_of(True, lambda w: write_indexes(w, array))
    first = read_indexes(Reader(data))
    first += 1
    np.testing.assert_array_equal(read_indexes(Reader(data)), array)


def test_many_indexes_in_long_and_short_runs():
    n, t = np.meshgrid(np.arange(40), np.arange(-20, 20), indexing="ij")
    by_n = np.stack([n.ravel(), t.ravel(), 0 * n.ravel()], axis=1).astype(np.int32)
    for array in (by_n, by_n[np.lexsort((by_n[:, 0], by_n[:, 1]))]):
        data = bytes_of(True, lambda w, a=array: write_indexes(w, a))
        np.testing.assert_array_equal(read_indexes(Reader(data)), array)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"<I1V> \x04\x05\0\0\0\1", "a vector of 5 Indexes cannot stand here"),
        (b"<I1V> \x04\xff\xff\xff\xff", "a vector of -1 Indexes cannot stand here"),
        (b"<I1V> \x04\1\0\0\0\x80", "the byte 128 begins no Index (byte 13)"),
        (b"<I1V> \x04\1\0\0\0\x7f\x04\0\0\0\0", "the file ends within an Index"),
        (b"<I1V> \x04\1\0\0\0\x7f" + bytes(15), "an Index of three integers of 4 bytes"),
        (
            b"<I1V> \x04\2\0\0\0\x7f\x04\0\0\0\0\x04\xff\xff\xff\x7f\x04\0\0\0\0\1",
            "the t of an Index leaves 32 bits",
        ),
    ],
)
def test_indexes_that_are_refused(data, message):
    with pytest.raises(FormatError) as caught:
        read_indexes(Reader(b"\0B" + data))
    assert message in str(caught.value)


def test_indexes_in_text_that_are_refused():
    for text in (b"<I1V> 2 <I1> 0 1 0 ", b"<I1V> 1 <I1> 0 1 x ", b"<I1V> 1 <I1> 0 1 0 <I1> 0 1 0 "):
        with pytest.raises(FormatError, match="Indexes were expected|cannot stand here"):
            read_indexes(Reader(text))
    with pytest.raises(FormatError, match="an integer of 4 bytes"):
        read_indexes(Reader(b"<I1V> 1 <I1> 0 3000000000 0 "))


def example():
    rng = np.random.default_rng(0)
    features = rng.normal(size=(12, 3)).astype(np.float32)
    indexes = np.stack([np.zeros(12), np.arange(-4, 8), np.zeros(12)], axis=1)
    labels = np.array([[0, 0.5, 0, 0.25], [1, 0, 0, 0]], np.float32)
    return NnetExample(
        [
            NnetIo("input", indexes, CompressedMatrix.compress(features)),
            NnetIo("ivector", indexes[4:5], features[:1]),
            NnetIo("output", indexes[4:6], SparseMatrix.from_dense(labels)),
        ]
    )


@both
def test_examples_come_back(binary):
    wanted = example()
    data = bytes_of(binary, wanted.write)
    found = NnetExample.read(Reader(data))
    assert bytes_of(binary, found.write) == data
    for io, other in zip(found.io, wanted.io, strict=True):
        assert io.name == other.name
        np.testing.assert_array_equal(io.indexes, other.indexes)
        np.testing.assert_allclose(to_dense(io.features), to_dense(other.features), rtol=1e-6)
        assert binary is False or type(io.features) is type(other.features)


def test_examples_that_are_refused():
    wrong = example()
    wrong.io[0].indexes = wrong.io[0].indexes[1:]
    with pytest.raises(FormatError, match="input has 11 Indexes and 12 rows"):
        NnetExample.read(Reader(bytes_of(True, wrong.write)))
    with pytest.raises(FormatError, match="1000 inputs and outputs cannot stand here"):
        NnetExample.read(Reader(b"<Nnet3Eg> <NumIo> 1000 <NnetIo> "))


@both
@given(frames=st.lists(st.lists(pair, max_size=4), max_size=5))
def test_posteriors_come_back(binary, frames):
    wanted = Posterior.from_frames(frames)
    data = bytes_of(binary, wanted.write)
    found = Posterior.read(Reader(data))
    assert bytes_of(binary, found.write) == data
    np.testing.assert_array_equal(found.starts, wanted.starts)
    np.testing.assert_array_equal(found.ids, wanted.ids)
    if binary:
        assert found.weights.tobytes() == wanted.weights.tobytes()


def test_frames_of_a_posterior():
    posterior = Posterior.from_frames([[(1, 0.5), (2, 0.5)], [], [(7, 1)]])
    assert len(posterior) == 3
    ids, weights = posterior[-3]
    assert ids.tolist() == [1, 2] and weights.tolist() == [0.5, 0.5]
    assert posterior[1][0].size == 0
    with pytest.raises(IndexError, match="frame 3 of 3"):
        posterior[3]
    assert bytes_of(False, posterior.write) == b"[ 1 0.5 2 0.5 ] [ ] [ 7 1 ] \n"


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"1 2 3\n", "a frame, '[ id weight ... ]', was expected here (byte 0, line 1)"),
        (b"[ 1 1 ] [ 2 \n", "a frame, '[ id weight ... ]', was expected here (byte 7, line 1)"),
        (b"[ 1 1 2 ]\n", "an index without a value"),
        (b"[ 1 1 x 2 ]\n", "but this is 'x' (byte 6, line 1)"),
        (b"\0B\x04\xff\xff\xff\x7f", "a posterior of 2147483647 frames cannot stand here"),
        (b"\0B\x04\1\0\0\0\x04\xff\xff\xff\x7f", "are left"),
        (b"\0B\x04\1\0\0\0\x04\1\0\0\0\x05" + bytes(9), "pairs of an integer and a number"),
    ],
)
def test_posteriors_that_are_refused(data, message):
    with pytest.raises(FormatError) as caught:
        Posterior.read(Reader(data))
    assert message in str(caught.value)


@both
def test_damage(binary):
    data = bytes_of(binary, example().write)
    check_damaged(data, lambda data: NnetExample.read(Reader(data, name="egs")))
    frames = [[(1, 0.5), (2, 0.5)], [], [(7, 1)]]
    data = bytes_of(binary, Posterior.from_frames(frames).write)
    check_damaged(data, lambda data: Posterior.read(Reader(data)), whole=binary)
