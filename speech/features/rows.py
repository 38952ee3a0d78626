"""An array that grows by rows."""

from __future__ import annotations

import numpy as np

_LEAST = 64


class Rows:
    """Rows of one shape, appended without copying those before each time.

    Args:
        shape: of a row. dtype: of its elements.
    """

    def __init__(self, shape: tuple[int, ...], dtype: type = np.float32) -> None:
        self._data = np.empty((_LEAST, *shape), dtype)
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def append(self, rows: np.ndarray) -> None:
        """Put rows [count, ...] after the others."""
        end = self._count + len(rows)
        if end > len(self._data):
            grown = np.empty((max(end, 2 * len(self._data)), *self._data.shape[1:]), rows.dtype)
            grown[: self._count] = self.all
            self._data = grown.astype(self._data.dtype, copy=False)
        self._data[self._count : end] = rows
        self._count = end

    @property
    def all(self) -> np.ndarray:
        """The rows; a view."""
        return self._data[: self._count]
