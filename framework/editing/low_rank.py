"""Singular value decompositions cut to a rank."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..base.errors import AttributeTypeError, ShapeError
from .operations import LowRank


class Parts(NamedTuple):
    """A decomposition U diag(s) V^T of a matrix, in float64; s falls."""

    u: np.ndarray
    s: np.ndarray
    vt: np.ndarray

    @classmethod
    def of(cls, matrix: np.ndarray) -> Parts:
        """The decomposition of a matrix [rows, columns].

        Raises:
            ShapeError: it holds NaN or an infinity.
        """
        if not np.isfinite(matrix).all():
            raise ShapeError("a matrix with NaN or infinities has no singular values")
        return cls(*np.linalg.svd(np.asarray(matrix, np.float64), full_matrices=False))

    def rank_holding(self, share: float) -> int:
        """The least rank that holds this share of the sum of squared singular values."""
        squares = np.square(self.s)
        return int(np.argmax(np.cumsum(squares) >= share * squares.sum())) + 1

    def factors(self, rank: int) -> tuple[np.ndarray, np.ndarray]:
        """Two matrices [rows, rank] and [rank, columns], whose product is the nearest one of this
        rank; each has the roots of the singular values."""
        # Half of each singular value on either side keeps both factors of like size, which one
        # learning rate suits.
        root = np.sqrt(self.s[:rank])
        return self.u[:, :rank] * root, self.vt[:rank] * root[:, None]

    def nearest(self, rank: int) -> np.ndarray:
        """The nearest matrix of a rank."""
        return (self.u[:, :rank] * self.s[:rank]) @ self.vt[:rank]


def checked(edit: LowRank) -> LowRank:
    """The edit, whose numbers go together.

    Raises:
        AttributeTypeError: neither a rank nor a share below 1, or both.
    """
    if (edit.rank > 0) == (edit.keep > 0):
        raise AttributeTypeError("one of rank= (at least 1) and keep= (between 0 and 1) is wanted")
    if edit.rank < 0 or edit.keep < 0 or edit.keep >= 1:
        raise AttributeTypeError(
            f"rank={edit.rank}, keep={edit.keep:g}: at least 1, or a share between 0 and 1"
        )
    return edit


def is_worthwhile(edit: LowRank, rows: int, columns: int, rank: int) -> bool:
    """Whether the two parts of a matrix are as small as `shrinkage` wants."""
    return rank * (rows + columns) / (rows * columns) <= edit.shrinkage


def cut(edit: LowRank, matrix: np.ndarray) -> tuple[Parts, int] | None:
    """The decomposition of a matrix and the rank it is cut to; None where it stays whole."""
    rows, columns = matrix.shape
    if min(rows, columns) < edit.rank:
        return None
    parts = Parts.of(matrix)
    rank = edit.rank or parts.rank_holding(edit.keep)
    if edit.factors and not is_worthwhile(edit, rows, columns, rank):
        return None
    return parts, rank
