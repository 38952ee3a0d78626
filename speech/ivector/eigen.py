"""Eigenvectors in one order, with one sign on all processors."""

from __future__ import annotations

import numpy as np


def falling_eigenvectors(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Eigenvalues of a symmetric matrix from the greatest on, and eigenvectors in columns.

    The element of each eigenvector with the greatest absolute value is positive.
    """
    values, vectors = np.linalg.eigh(matrix)
    values, vectors = values[::-1], vectors[:, ::-1]
    greatest = np.abs(vectors).argmax(axis=0)
    return values, vectors * np.sign(vectors[greatest, np.arange(len(values))])
