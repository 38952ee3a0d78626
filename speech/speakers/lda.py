"""LDA and PCA of vectors of speakers.

Source: Kaldi's `ivectorbin/ivector-compute-lda.cc`, `ivectorbin/ivector-plda-scoring-dense.cc`.
"""

from __future__ import annotations

import numpy as np

from ...framework.base.errors import FormatError
from ...framework.base.sequence import bincount
from ...nnet3.language.nodes import warn
from ..ivector.eigen import falling_eigenvectors


def speaker_lda(
    vectors: np.ndarray,
    speakers: np.ndarray,
    dim: int,
    total_covariance_factor: float = 0.0,
    covariance_floor: float = 1e-6,
) -> tuple[np.ndarray, np.ndarray]:
    """The directions that tell speakers apart, and by how much.

    Args:
        vectors: [some, columns]. speakers: of each, integers from 0 on, [some].
        dim: of projected vectors, at most `columns`.
        total_covariance_factor: 0.0: the covariance within speakers becomes 1; 1.0: the one
            of all vectors; or a mixture of both.
        covariance_floor: least eigenvalue of it, in terms of the greatest.

    Returns:
        float32, [dim, columns + 1], whose last column moves the mean to 0; and the variances
        between speakers, falling, [columns].

    Raises:
        FormatError: there are too few vectors or columns, or no speaker has two.
    """
    count, columns = vectors.shape
    if not 0 < dim <= columns:
        raise FormatError(f"--dim={dim} must be positive and at most {columns}")
    if count < columns:
        raise FormatError(f"{count} vectors of {columns} elements: as many are wanted")
    mean = vectors.mean(axis=0, dtype=np.float64).astype(np.float32)
    wide = (vectors - mean).astype(np.float64)
    sums = np.zeros((int(speakers.max()) + 1, columns))
    np.add.at(sums, speakers, wide)
    sizes = bincount(speakers)
    known = sizes > 0
    if count == np.count_nonzero(known):
        raise FormatError("no speaker has two vectors")
    total = wide.T @ wide / count
    between = (sums[known] / sizes[known, None]).T @ sums[known] / count
    factor = total_covariance_factor
    values, axes = falling_eigenvectors(total - (1.0 - factor) * between)
    least = covariance_floor * values[0]
    if values[-1] < least:
        warn(f"Floored {np.count_nonzero(values < least)} eigenvalues of covariance to {least:g}")
    white = axes.T / np.sqrt(np.maximum(values, least))[:, None]
    ratios, turn = falling_eigenvectors(white @ between @ white.T)
    linear = (turn.T @ white)[:dim].astype(np.float32)
    offset = -(linear.astype(np.float64) @ mean)
    return np.column_stack((linear, offset.astype(np.float32))), ratios


def principal_axes(vectors: np.ndarray, part: float) -> np.ndarray:
    """The first directions in which vectors vary, that hold more than a part of their variance.

    Args:
        vectors: [some, columns]. part: of the variance, below 1.

    Returns:
        float64, [directions, columns].
    """
    wide = vectors.astype(np.float64)
    away = wide - wide.mean(axis=0)
    values, axes = falling_eigenvectors(away.T @ away / len(wide))
    held = np.cumsum(values) <= part * values.sum()
    return axes.T[: int(np.count_nonzero(held)) + 2]
