"""Rows of matrices of any kind: taken, filtered, stacked, compressed; and examples made of them.

Source: Kaldi's `matrix/sparse-matrix.cc`, `matrix/compressed-matrix.cc`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...framework.base.errors import ShapeError
from ...framework.base.sequence import repeated
from ...kaldi.files.compressed import CompressedMatrix, Compression, decompress_stacked
from ...kaldi.files.posterior import Posterior
from ...kaldi.files.sparse import GeneralMatrix, SparseMatrix, to_dense
from ..files.examples import NnetIo

_FEWEST_BYTE_ROWS = 8
"""With fewer rows than this, one byte an element with a header for each column does not pay."""


def take_rows(matrix: GeneralMatrix, rows: np.ndarray) -> GeneralMatrix:
    """The rows of these numbers in the same form: compressed rows stay compressed."""
    if isinstance(matrix, SparseMatrix):
        return _take_sparse(matrix, rows)
    if not isinstance(matrix, CompressedMatrix):
        return matrix[rows]
    taken = CompressedMatrix(
        matrix.layout, matrix.least, matrix.range, matrix.elements[rows], matrix.quartiles
    )
    if taken.layout == "CM" and len(rows) < _FEWEST_BYTE_ROWS:
        return CompressedMatrix.compress(taken.decompress(), Compression.TWO_BYTE_AUTO)
    return taken


def _take_sparse(matrix: SparseMatrix, rows: np.ndarray) -> SparseMatrix:
    starts = matrix.starts[:-1][rows]
    counts = np.diff(matrix.starts)[rows]
    begins = np.concatenate(([0], np.cumsum(counts)))
    places = np.arange(begins[-1]) + repeated(starts - begins[:-1], counts)
    return SparseMatrix(matrix.dims[rows], begins, matrix.columns[places], matrix.values[places])


def take_range(matrix: GeneralMatrix, first: int, count: int) -> GeneralMatrix:
    """`count` rows from `first` on; beyond either end the row there is repeated."""
    rows = np.arange(first, first + count).clip(0, matrix.shape[0] - 1)
    return take_rows(matrix, rows)


def keep_rows(matrix: GeneralMatrix, keep: np.ndarray) -> GeneralMatrix:
    """The rows where `keep`, [rows] bool, holds; of a compressed matrix, decompressed."""
    if keep.all():
        return matrix
    rows = np.flatnonzero(keep)
    if isinstance(matrix, CompressedMatrix):
        return matrix.decompress()[rows]
    return take_rows(matrix, rows)


def stack_rows(matrices: Sequence[GeneralMatrix]) -> GeneralMatrix:
    """All rows one below the other: sparse where all are, else plain.

    Raises:
        ShapeError: they differ in their number of columns.
    """
    widths = {matrix.shape[1] for matrix in matrices if matrix.shape[0]}
    if len(widths) > 1:
        raise ShapeError(f"matrices of {' and '.join(map(str, sorted(widths)))} columns")
    sparse = [matrix for matrix in matrices if isinstance(matrix, SparseMatrix)]
    compressed = [matrix for matrix in matrices if isinstance(matrix, CompressedMatrix)]
    if len(compressed) == len(matrices):
        return decompress_stacked(compressed)
    if len(sparse) < len(matrices):
        return np.concatenate([to_dense(matrix) for matrix in matrices])
    counts = np.concatenate([np.diff(matrix.starts) for matrix in sparse])
    return SparseMatrix(
        np.concatenate([matrix.dims for matrix in sparse]),
        np.concatenate(([0], np.cumsum(counts))),
        np.concatenate([matrix.columns for matrix in sparse]),
        np.concatenate([matrix.values for matrix in sparse]),
    )


def scale_rows(matrix: GeneralMatrix, factor: float) -> GeneralMatrix:
    """All elements times a factor; a compressed matrix stays compressed."""
    if isinstance(matrix, SparseMatrix):
        values = matrix.values * np.float32(factor)
        return SparseMatrix(matrix.dims, matrix.starts, matrix.columns, values)
    if isinstance(matrix, CompressedMatrix):
        least, span = np.float32(matrix.least * factor), np.float32(matrix.range * factor)
        return CompressedMatrix(matrix.layout, least, span, matrix.elements, matrix.quartiles)
    return matrix * np.float32(factor)


def is_finite(matrix: GeneralMatrix) -> bool:
    """Whether there is no NaN and no infinity in it."""
    if isinstance(matrix, CompressedMatrix):
        return bool(np.isfinite(matrix.least) and np.isfinite(matrix.range))
    values = matrix.values if isinstance(matrix, SparseMatrix) else matrix
    return bool(np.isfinite(values).all())


def compressed(matrix: GeneralMatrix) -> GeneralMatrix:
    """A plain matrix compressed as features are; any other as it is."""
    return CompressedMatrix.compress(matrix) if isinstance(matrix, np.ndarray) else matrix


def frame_indexes(count: int, first: int = 0, step: int = 1) -> np.ndarray:
    """The indexes, [count, 3], of the times first, first + step, ... of one sequence."""
    indexes = np.zeros((count, 3), np.int32)
    indexes[:, 1] = first + step * np.arange(count)
    return indexes


def example_io(name: str, features: GeneralMatrix, first: int = 0, step: int = 1) -> NnetIo:
    """An input or output whose rows are the times first, first + step, ... of one sequence."""
    return NnetIo(name, frame_indexes(features.shape[0], first, step), features)


def example_inputs(
    features: GeneralMatrix,
    first: int,
    frames: int,
    left: int,
    ivector: NnetIo | None = None,
    compress: bool = True,
) -> list[NnetIo]:
    """The inputs of an example: `frames` rows of features from `first` on, and an iVector.

    Args:
        left: how many of the rows are before time 0.
        compress: compress features that are not compressed yet.
    """
    inputs = [example_io("input", take_range(features, first, frames), -left)]
    if ivector is not None:
        inputs.append(ivector)
    if compress:
        inputs = [NnetIo(io.name, io.indexes, compressed(io.features)) for io in inputs]
    return inputs


def posterior_matrix(post: Posterior, dim: int) -> SparseMatrix:
    """Posteriors as a sparse matrix with `dim` columns.

    Raises:
        ShapeError: an id is not below `dim`.
    """
    if len(post.ids) and not 0 <= int(post.ids.min()) <= int(post.ids.max()) < dim:
        raise ShapeError(f"a posterior of class {int(post.ids.max())}, but there are {dim} classes")
    dims = np.full(len(post), dim, np.int32)
    return SparseMatrix(dims, np.asarray(post.starts), post.ids, post.weights)
