"""Lists of indexes in which all sequences are alike: their stride, and the same for more sequences.

In such a list the rows that differ in n alone lie at one distance, its stride: blocks of stride
rows with n = 0, as many with n = 1, and so on. Source: Kaldi's FindNStride
(nnet-optimize-utils.cc).
"""

from __future__ import annotations

import numpy as np

from ...framework.base.python.cached import cached_property
from .indexes import IndexList


def n_stride(indexes: np.ndarray) -> int:
    """The distance of rows that differ in n alone; 0 where it is not one for all rows.

    Args:
        indexes: int32 [rows, 3]: n, t, x, with n = 0 .. N - 1 and N the last row's n + 1.
    """
    rows = len(indexes)
    count = int(indexes[-1, 0]) + 1 if rows else 0
    if count < 2 or rows % count or indexes[0, 0]:
        return 0
    size = rows // count
    second = [1, *indexes[0, 1:].tolist()]
    for stride in dict.fromkeys((1, size)):
        if indexes[stride].tolist() == second and _is_stride(indexes, stride, count):
            return stride
    for stride in np.flatnonzero((indexes[: size + 1] == second).all(axis=1)).tolist():
        if _is_stride(indexes, stride, count):
            return stride
    return 0


def _is_stride(indexes: np.ndarray, stride: int, count: int) -> bool:
    if len(indexes) % (stride * count):
        return False
    blocks = indexes.reshape(-1, count, 3 * stride)
    if blocks[:, 0, ::3].any():
        return False
    steps = (blocks[:, 1:] - blocks[:, :-1]).reshape(len(blocks), -1)
    to_next = np.zeros(3 * stride * (count - 1), indexes.dtype)
    to_next[::3] = 1
    return bool((steps == to_next).all())


class ExpandedIndexes:
    """An `IndexList` for two sequences as one for `count` of them, at the same stride."""

    def __init__(
        self,
        few: IndexList,
        stride: int,
        count: int,
        within: tuple[ExpandedIndexes, int] | None = None,
    ) -> None:
        """`within`: a list of which this is a part, and where it begins there."""
        self.few = few
        self.stride = stride
        self.size = few.size // 2 * count
        self.sequences = count if few.sequences else 0
        self._count = count
        self._within = within

    @cached_property
    def indexes(self) -> np.ndarray:
        """See `IndexList`."""
        if self._within is not None:
            whole, begin = self._within
            return whole.indexes[begin : begin + self.size]
        blocks = self.few.indexes.reshape(-1, 2, self.stride, 3)
        result = np.empty((len(blocks), self._count, self.stride, 3), np.int32)
        result[..., 0] = np.arange(self._count, dtype=np.int32)[:, None]
        for column in (1, 2):  # in turn, as loops over three numbers are slow
            result[..., column] = blocks[:, :1, :, column]
        return result.reshape(-1, 3)

    @property
    def times(self) -> np.ndarray:
        """See `IndexList`."""
        return self.few.times

    @cached_property
    def images(self) -> np.ndarray:
        """See `IndexList`."""
        few = self.few.images
        if self._within is not None and self._within[0].few.images is few:
            return self._within[0].images
        x = few[few[:, 0] == 0, 1]
        images = np.empty((self._count, len(x), 2), np.int32)
        images[..., 0] = np.arange(self._count)[:, None]
        images[..., 1] = x
        return images.reshape(-1, 2)
