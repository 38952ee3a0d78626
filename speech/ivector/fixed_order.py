"""Products whose sums have one order on all processors, so that results have the same bits.

BLAS adds up in an order that depends on its kernel, and conjugate gradients that stop early make
1e-3 of the last bit: an iVector, and words, would depend on the processor. NumPy multiplies and
adds elements without fusing the two, and sums contiguous rows in one order.
"""

from __future__ import annotations

import math

import numpy as np


def dot(a: np.ndarray, b: np.ndarray) -> float:
    """The sum of products of two vectors, rounded once."""
    return math.fsum((a * b).tolist())


def applied(matrix: np.ndarray, vector: np.ndarray) -> np.ndarray:
    """A matrix times a vector."""
    return (matrix * vector).sum(axis=1)


def product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """A matrix times a matrix, [rows, columns]."""
    total = np.zeros((a.shape[0], b.shape[1]))
    for column, row in zip(a.T, b, strict=True):
        total += column[:, None] * row
    return total


def products(rows: np.ndarray, matrices: np.ndarray) -> np.ndarray:
    """Each row times a matrix of its own, with the bits that `product` gives: [count, columns].

    Args:
        rows: [count, size]. matrices: [size, count, columns].
    """
    total = np.zeros(matrices.shape[1:])
    for column, part in zip(rows.T, matrices, strict=True):
        total += column[:, None] * part
    return total
