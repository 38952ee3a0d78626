"""Compressed matrices: all layouts and methods, against Kaldi's bytes and values."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from damage import check_damaged
from kaldi_data import need
from opscope.framework.base.errors import FormatError
from opscope.kaldi.files.compressed import CompressedMatrix, Compression
from opscope.kaldi.files.kaldi_io import Reader, Writer
from opscope.kaldi.tables.tables import read_table

methods = pytest.mark.parametrize("method", list(Compression))
matrices = hnp.arrays(
    np.float32,
    hnp.array_shapes(min_dims=2, max_dims=2, max_side=12),
    elements=st.floats(-1e6, 1e6, width=32),
)


def bytes_of(matrix):
    writer = Writer(header=False)
    matrix.write(writer)
    return writer.getvalue()


@methods
def test_values_and_bytes_are_those_of_kaldi(method):
    compressed = dict(
        read_table(f"ark:{need('formats', f'feats.cm{method}.ark')}", "general_matrix")
    )
    values = dict(
        read_table(f"ark:{need('formats', f'feats.cm{method}.decompressed.ark')}", "matrix")
    )
    plain = dict(read_table(f"ark:{need('formats', 'feats.float.ark')}", "matrix"))
    assert list(compressed) == list(plain) == list(values)
    for key, matrix in compressed.items():
        np.testing.assert_array_equal(matrix.decompress(), values[key])
        assert bytes_of(CompressedMatrix.compress(plain[key], method)) == bytes_of(matrix)


@methods
@given(matrix=matrices)
def test_reading_gives_back_what_was_written(method, matrix):
    compressed = CompressedMatrix.compress(matrix, method)
    assert compressed.shape == matrix.shape
    data = bytes_of(compressed)
    reader = Reader(data, binary=True)
    found = CompressedMatrix.read(reader)
    assert reader.at_end() and bytes_of(found) == data
    np.testing.assert_array_equal(found.decompress(), compressed.decompress())


@pytest.mark.parametrize(
    ("method", "steps"), [(Compression.TWO_BYTE_AUTO, 65535), (Compression.ONE_BYTE_AUTO, 255)]
)
@given(matrix=matrices)
def test_values_are_within_one_step(method, steps, matrix):
    found = CompressedMatrix.compress(matrix, method).decompress()
    step = (float(matrix.max()) - float(matrix.min()) + 1) / steps
    close = 1e-6 * np.abs(matrix).max()
    assert np.abs(found.astype(np.float64) - matrix).max() <= 0.51 * step + close


@pytest.mark.parametrize("rows", [1, 2, 3, 4, 5, 8, 9, 100])
def test_speech_features_of_any_number_of_rows(rows):
    rng = np.random.default_rng(rows)
    matrix = rng.normal(size=(rows, 7)).astype(np.float32)
    compressed = CompressedMatrix.compress(matrix, Compression.SPEECH_FEATURE)
    spread = np.abs(matrix).max()
    assert np.abs(compressed.decompress() - matrix).max() < 0.03 * spread
    automatic = CompressedMatrix.compress(matrix)
    assert automatic.layout == ("CM" if rows > 8 else "CM2")


def test_fixed_ranges_hold_integers_exactly():
    samples = np.array([[-32768, -1, 0, 1, 32767]], np.float32)
    method = Compression.TWO_BYTE_SIGNED_INTEGER
    np.testing.assert_array_equal(CompressedMatrix.compress(samples, method).decompress(), samples)
    pixels = np.array([[0, 1, 128, 255, 300, -5]], np.float32)
    method = Compression.ONE_BYTE_UNSIGNED_INTEGER
    found = CompressedMatrix.compress(pixels, method).decompress()
    np.testing.assert_array_equal(found, pixels.clip(0, 255))


def test_a_matrix_of_one_value():
    matrix = np.full((20, 3), 5, np.float32)
    for method in Compression:
        found = CompressedMatrix.compress(matrix, method).decompress()
        wanted = 1 if method == Compression.ONE_BYTE_ZERO_ONE else 5
        np.testing.assert_allclose(found, wanted, rtol=1e-3)


def test_values_that_fall_together_in_float32():
    matrix = np.full((20, 2), 1e8, np.float32)
    matrix[3] += 8
    found = CompressedMatrix.compress(matrix, Compression.SPEECH_FEATURE).decompress()
    np.testing.assert_allclose(found, matrix, rtol=1e-6)


def test_steps_beyond_float32_become_infinite_as_in_kaldi():
    matrix = np.array([[1e37, -1e37], [3e37, 0.0]] * 6, np.float32)
    with np.errstate(all="raise"):
        found = CompressedMatrix.compress(matrix, Compression.SPEECH_FEATURE).decompress()
    np.testing.assert_allclose(found[:, 0], matrix[:, 0], rtol=1e-3)
    assert np.isinf(found[:, 1]).any()


def test_an_empty_matrix_has_four_bytes_more_as_in_kaldi():
    data = bytes_of(CompressedMatrix.compress(np.zeros((0, 0), np.float32)))
    assert data == b"CM " + bytes(20)
    reader = Reader(data, binary=True)
    assert reader.read_matrix().shape == (0, 0)
    assert reader.at_end()
    # What Kaldi leaves in the first four bytes is kept.
    data = b"CM \x99\x99\xff\x7f" + bytes(16)
    assert bytes_of(CompressedMatrix.read(Reader(data, binary=True))) == data


def test_some_rows():
    matrix = np.random.default_rng(0).normal(size=(20, 5)).astype(np.float32)
    for method in Compression:
        whole = CompressedMatrix.compress(matrix, method)
        part = CompressedMatrix.read(Reader(bytes_of(whole.rows(3, 9)), binary=True))
        np.testing.assert_array_equal(part.decompress(), whole.decompress()[3:9])


def test_in_text_a_compressed_matrix_is_a_plain_one():
    compressed = CompressedMatrix.compress(np.eye(3, dtype=np.float32))
    writer = Writer(binary=False)
    compressed.write(writer)
    np.testing.assert_array_equal(
        Reader(writer.getvalue()).read_matrix(), compressed.decompress().round(6)
    )


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_has_no_range_is_refused(value):
    matrix = np.array([[0, value]], np.float32)
    with pytest.raises(FormatError, match="cannot be compressed"):
        CompressedMatrix.compress(matrix)


def test_wrong_arguments():
    with pytest.raises(FormatError, match="only a matrix"):
        CompressedMatrix.compress(np.zeros(3, np.float32))
    with pytest.raises(ValueError, match="8 is not a valid Compression"):
        CompressedMatrix.compress(np.ones((2, 2)), 8)


@pytest.mark.parametrize("layout", [b"CM", b"CM2", b"CM3"])
@pytest.mark.parametrize("sizes", [(2**31 - 1, 2**31 - 1), (-1, 5), (0, 4), (1, 2**30)])
def test_sizes_beyond_the_file_are_refused(layout, sizes):
    data = layout + b" " + bytes(8) + np.array(sizes, "<i4").tobytes() + bytes(4)
    with pytest.raises(FormatError, match="no matrix has|are left"):
        CompressedMatrix.read(Reader(data, binary=True))


@methods
def test_damage(method):
    matrix = np.random.default_rng(0).normal(size=(10, 3)).astype(np.float32)
    data = bytes_of(CompressedMatrix.compress(matrix, method))
    check_damaged(data, lambda data: Reader(data, binary=True).read_matrix())
