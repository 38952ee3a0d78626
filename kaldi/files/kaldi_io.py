"""The reader and the writer of Kaldi's files: tokens, numbers, and the arrays of `matrix_io`."""

from __future__ import annotations

import numpy as np

from . import matrix_io
from .tokens import TokenReader, TokenWriter


class Reader(TokenReader):
    """A `TokenReader` that reads arrays as well."""

    def read_vector(self, dtype: type | None = None) -> np.ndarray:
        """A vector; see `matrix_io.read_vector`."""
        return matrix_io.read_vector(self, dtype)

    def read_matrix(self, dtype: type | None = None) -> np.ndarray:
        """A matrix, also a compressed one; see `matrix_io.read_matrix`."""
        return matrix_io.read_matrix(self, dtype)

    def read_int_vector(self, size: int = 4) -> np.ndarray:
        """A vector of integers; see `matrix_io.read_int_vector`."""
        return matrix_io.read_int_vector(self, size)

    def read_int_pairs(self, size: int = 4) -> np.ndarray:
        """A vector of pairs of integers, [n, 2]; see `matrix_io.read_int_pairs`."""
        return matrix_io.read_int_pairs(self, size)


class Writer(TokenWriter):
    """A `TokenWriter` that writes arrays as well."""

    def write_vector(self, vector: np.ndarray) -> None:
        """A vector, with a line end in text; see `matrix_io.write_vector`."""
        matrix_io.write_vector(self, vector)

    def write_matrix(self, matrix: np.ndarray) -> None:
        """A matrix, with a line end in text; see `matrix_io.write_matrix`."""
        matrix_io.write_matrix(self, matrix)

    def write_int_vector(self, vector: np.ndarray, size: int = 4) -> None:
        """A vector of integers, with a line end in text; see `matrix_io.write_int_vector`."""
        matrix_io.write_int_vector(self, vector, size)

    def write_int_pairs(self, pairs: np.ndarray, size: int = 4) -> None:
        """Pairs of integers, with a line end in text; see `matrix_io.write_int_pairs`."""
        matrix_io.write_int_pairs(self, pairs, size)
