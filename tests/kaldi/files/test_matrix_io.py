"""Vectors, matrices and sparse matrices: round trips, Kaldi's own bytes, damage."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from damage import check_damaged
from opscope.framework.base.errors import FormatError
from opscope.kaldi.files.kaldi_io import Reader, Writer
from opscope.kaldi.files.sparse import (
    SparseMatrix,
    read_general_matrix,
    to_dense,
    write_general_matrix,
)

both = pytest.mark.parametrize("binary", [True, False])
dtypes = st.sampled_from([np.float32, np.float64])
floats = st.floats(width=32)


def bytes_of(binary, write, header=True):
    writer = Writer(binary, header=header)
    write(writer)
    return writer.getvalue()


def arrays(rank):
    shapes = hnp.array_shapes(min_dims=rank, max_dims=rank, min_side=1, max_side=6)
    return dtypes.flatmap(lambda dtype: hnp.arrays(dtype, shapes, elements=floats))


@given(matrix=arrays(2))
def test_matrices_come_back(matrix):
    data = bytes_of(True, lambda w: w.write_matrix(matrix))
    reader = Reader(data)
    found = reader.read_matrix()
    assert found.dtype == matrix.dtype and found.shape == matrix.shape
    assert found.tobytes() == matrix.tobytes()
    assert reader.at_end()


@given(matrix=arrays(2))
def test_matrices_in_text_come_back_to_the_same_text(matrix):
    data = bytes_of(False, lambda w: w.write_matrix(matrix))
    found = Reader(data).read_matrix(matrix.dtype.type)
    assert found.shape == matrix.shape
    assert bytes_of(False, lambda w: w.write_matrix(found)) == data


@given(vector=arrays(1))
def test_vectors_come_back(vector):
    found = Reader(bytes_of(True, lambda w: w.write_vector(vector))).read_vector()
    assert found.dtype == vector.dtype and found.tobytes() == vector.tobytes()
    data = bytes_of(False, lambda w: w.write_vector(vector))
    found = Reader(data).read_vector(vector.dtype.type)
    assert bytes_of(False, lambda w: w.write_vector(found)) == data


@both
@pytest.mark.parametrize("size", [1, 2, 4, 8])
@given(data=st.data())
def test_integers_come_back(binary, size, data):
    low = -(1 << 8 * size - 1)
    numbers = data.draw(st.lists(st.integers(low, -low - 1), max_size=8))
    vector = np.array(numbers, np.int64)
    found = Reader(bytes_of(binary, lambda w: w.write_int_vector(vector, size)), binary=None)
    assert found.read_int_vector(size).tolist() == numbers
    pairs = np.stack([vector, vector[::-1]], axis=1)
    found = Reader(bytes_of(binary, lambda w: w.write_int_pairs(pairs, size)))
    assert found.read_int_pairs(size).tolist() == pairs.tolist()


def test_bytes_are_those_of_kaldi():
    matrix = np.array([[1, 2.5], [-3, 1e-6]], np.float32)
    assert bytes_of(False, lambda w: w.write_matrix(matrix)) == b" [\n  1 2.5 \n  -3 1e-06 ]\n"
    assert bytes_of(False, lambda w: w.write_matrix(matrix[:0])) == b" [ ]\n"
    assert bytes_of(False, lambda w: w.write_vector(matrix[0])) == b" [ 1 2.5 ]\n"
    binary = bytes_of(True, lambda w: w.write_matrix(matrix.astype(np.float64)))
    assert binary == b"\0BDM \x04\2\0\0\0\x04\2\0\0\0" + matrix.astype("<f8").tobytes()
    assert bytes_of(True, lambda w: w.write_vector(matrix[0]))[:10] == b"\0BFV \x04\2\0\0\0"
    empty = bytes_of(True, lambda w: w.write_matrix(np.zeros((0, 5), np.float32)))
    assert empty == b"\0BFM \x04\0\0\0\0\x04\0\0\0\0"
    integers = np.array([1, -2])
    assert bytes_of(False, lambda w: w.write_int_vector(integers)) == b"[ 1 -2 ]\n"
    assert bytes_of(False, lambda w: w.write_int_pairs([integers])) == b"[ 1,-2 ]\n"
    assert bytes_of(True, lambda w: w.write_int_vector(integers, 1)) == b"\0B\1\2\0\0\0\1\xfe"


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        (b"[ 1 2 ; 3 4 ]", [[1, 2], [3, 4]]),
        (b" [\n 1 2\n\n 3 4\n]\r\n", [[1, 2], [3, 4]]),
        (b"[]", []),
        (b" [ ]\n", []),
        (b"[ 1 inf\n nan -2 ]", [[1, np.inf], [np.nan, -2]]),
    ],
)
def test_variants_of_text_are_read(text, rows):
    reader = Reader(text, binary=False)
    np.testing.assert_array_equal(
        reader.read_matrix(), np.array(rows, np.float32).reshape(len(rows), -1 if rows else 0)
    )
    assert reader.remaining() == 0


def test_views_are_written_as_their_values():
    matrix = np.arange(12, dtype=np.float32).reshape(3, 4)
    for view in (matrix.T, matrix[:, 1:3], matrix[::-1]):
        found = Reader(bytes_of(True, lambda w, v=view: w.write_matrix(v))).read_matrix()
        np.testing.assert_array_equal(found, view)


def test_what_is_read_can_be_changed():
    data = bytes_of(True, lambda w: w.write_matrix(np.ones((2, 2), np.float32)))
    Reader(data).read_matrix()[:] = 0


@pytest.mark.parametrize(
    ("text", "read", "message"),
    [
        (
            b"[ 1 2\n 3 ]",
            "read_matrix",
            "row 1 has 1 columns, the first one has 2 (byte 6, line 2)",
        ),
        (b"[ 1 2", "read_matrix", "the ']' of this '[' is missing"),
        (b"\n[ 1\n 2x ]", "read_matrix", "a number was expected here, but this is '2x' (byte 6, l"),
        (b"[ 1_0 ]", "read_vector", "but this is '1_0'"),
        (b"1 2", "read_matrix", "'[' was expected here, but this is '1'"),
        (b"[ 1\n2 ]", "read_vector", "perhaps this is a matrix"),
        (b"[ 1 2.5 ]", "read_int_vector", "an integer of 4 bytes was expected here, but this is"),
        (b"[ 1 3000000000 ]", "read_int_vector", "but this is '3000000000' (byte 4, line 1)"),
        (b"[ 1,2 3 ]", "read_int_pairs", "a pair 'a,b' was expected here (byte 6"),
        (
            b"\0BFV \x04\1\0\0\0\0\0\0\0",
            "read_matrix",
            "FM or DM was expected here, but this is 'FV",
        ),
        (b"\0BFM \x04\xff\xff\xff\xff\x04\1\0\0\0", "read_matrix", "no matrix has -1 rows"),
        (b"\0BFM \x04\0\0\0\0\x04\1\0\0\0", "read_matrix", "no matrix has 0 rows and 1 columns"),
        (b"\0BFM \x04\xff\xff\xff\x7f\x04\xff\xff\xff\x7f", "read_matrix", "but 0 are left"),
        (b"\0BFV \x04\xff\xff\xff\xff", "read_vector", "a negative size"),
        (b"\0B\4\xff\xff\xff\x7f", "read_int_vector", "but 0 are left"),
        (b"\0B\1\0\0\0\0", "read_int_vector", "integers of 4 bytes were expected, but the mark is"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(text, read, message):
    with pytest.raises(FormatError) as caught:
        getattr(Reader(text), read)()
    assert message in str(caught.value)


def test_only_arrays_of_floats_are_written():
    for array in (
        np.zeros((2, 2), np.int32),
        np.zeros(3, np.float32),
        np.zeros((2, 2), np.float16),
    ):
        with pytest.raises(FormatError, match="a matrix of float32 or float64 is wanted"):
            Writer().write_matrix(array)
    with pytest.raises(FormatError, match="integers are wanted, but these are float64"):
        Writer().write_int_vector(np.ones(3))
    with pytest.raises(FormatError, match="does not fit in 1 bytes"):
        Writer().write_int_vector([200], 1)


@both
@settings(max_examples=50)
@given(
    matrix=hnp.arrays(
        np.float32,
        hnp.array_shapes(min_dims=2, max_dims=2, max_side=6),
        elements=st.sampled_from([0, 0, 0, 0.5, -2]),
    )
)
def test_sparse_matrices_come_back(binary, matrix):
    sparse = SparseMatrix.from_dense(matrix)
    data = bytes_of(binary, lambda w: write_general_matrix(w, sparse))
    found = read_general_matrix(Reader(data))
    assert isinstance(found, SparseMatrix) and found.shape == matrix.shape
    np.testing.assert_array_equal(to_dense(found), matrix)
    assert bytes_of(binary, lambda w: write_general_matrix(w, found)) == data


def test_bytes_of_sparse_matrices_are_those_of_kaldi():
    sparse = SparseMatrix.from_dense(np.array([[0, 0.5], [0, 0]], np.float32))
    text = bytes_of(False, sparse.write)
    assert text == b"rows=2 dim=2 [ 1 0.5 ] dim=2 [ ] \n"
    row = b"SV \x04\2\0\0\0\x04"
    assert bytes_of(True, sparse.write, header=False) == (
        b"SM \x04\2\0\0\0" + row + b"\1\0\0\0\x04\1\0\0\0\x04\0\0\0?" + row + b"\0\0\0\0"
    )


def test_double_values_of_a_sparse_matrix_are_read():
    data = b"SM \x04\1\0\0\0SV \x04\3\0\0\0\x04\1\0\0\0\x04\2\0\0\0\x08" + np.float64(0.1).tobytes()
    found = SparseMatrix.read(Reader(data, binary=True))
    np.testing.assert_array_equal(found.dense(), np.array([[0, 0, 0.1]], np.float32))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"rows=1 dim=2 [ 2 0.5 ] \n", "a sparse row of 2 columns has others than these"),
        (b"rows=1 dim=2 [ 1 ] \n", "an index without a value"),
        (b"rows=1 dim=2 [ 1 x ] \n", "a number was expected here, but this is 'x'"),
        (b"rows=1 dim=2 [ a 1 ] \n", "an integer of 4 bytes was expected here, but this is 'a'"),
        (b"rows=1 cols=2 [ 1 1 ] \n", "'dim=' and an integer were expected"),
        (b"rows=99 dim=2 [ 1 1 ] \n", "a sparse matrix of 99 rows cannot stand here"),
    ],
)
def test_wrong_sparse_text(text, message):
    with pytest.raises(FormatError) as caught:
        read_general_matrix(Reader(text))
    assert message in str(caught.value)


def test_a_sparse_matrix_that_would_not_fit_the_memory_is_not_filled_in():
    sparse = read_general_matrix(Reader(b"rows=1 dim=2147483647 [ 5 1 ] \n"))
    with pytest.raises(FormatError, match="1 x 2147483647 is too large"):
        sparse.dense()
    uneven = read_general_matrix(Reader(b"rows=2 dim=3 [ ] dim=4 [ ] \n"))
    with pytest.raises(FormatError, match="differ in their number of columns"):
        uneven.dense()


@both
@pytest.mark.parametrize("kind", ["matrix", "vector", "int_vector", "int_pairs", "sparse"])
def test_damage(binary, kind):
    rng = np.random.default_rng(1)
    matrix = rng.normal(size=(3, 4)).astype(np.float32)

    def write(w):
        if kind == "sparse":
            SparseMatrix.from_dense(np.where(matrix > 0, matrix, 0)).write(w)
        elif kind == "matrix":
            w.write_matrix(matrix)
        elif kind == "vector":
            w.write_vector(matrix[0])
        elif kind == "int_vector":
            w.write_int_vector(np.arange(9))
        else:
            w.write_int_pairs(np.arange(10))

    def read(data):
        reader = Reader(data, binary=binary)
        if kind == "sparse":
            return read_general_matrix(reader)
        return getattr(reader, f"read_{kind}")()

    check_damaged(bytes_of(binary, write, header=False).rstrip(b" \n" * (not binary)), read)
