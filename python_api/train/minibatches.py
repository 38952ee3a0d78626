"""Minibatches from whole arrays."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from ...framework.base.errors import ShapeError
from ...framework.base.sequence import Sequences


class Minibatches:
    """Cuts arrays of equal length into minibatches, which `train` takes as `data` and `evaluate`.

    Called with an epoch's number it goes through the rows in the order of that epoch, which
    depends on `seed` and the number only: a resumed training sees the same minibatches. Iterated
    over, it goes through the order of epoch 0.

    Args:
        arrays: name -> array; the first axis counts rows. Or name -> `Sequences`, each of which
            counts as a row.
        size: rows of a minibatch; the last one of an epoch may be smaller.
        shuffle: a new order in each epoch; else the order of the arrays.
        seed: of the orders.
        drop_last: leave out a last minibatch that is smaller.

    Raises:
        ShapeError: no arrays, arrays of different lengths or without rows, or a size below 1.
    """

    def __init__(
        self,
        arrays: Mapping[Any, Any],
        size: int,
        *,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = False,
    ) -> None:
        self.arrays = {
            str(name): array if isinstance(array, Sequences) else np.asarray(array)
            for name, array in arrays.items()
        }
        self.size = size
        self.shuffle = shuffle
        self.seed = seed
        self.drop_last = drop_last
        if not self.arrays or size < 1:
            raise ShapeError(f"minibatches of {size} rows from {len(self.arrays)} arrays: want any")
        scalars = [name for name, array in self.arrays.items() if not array.shape]
        if scalars:
            raise ShapeError(f"array {scalars[0]!r} is a single number and has no rows")
        lengths = {name: len(array) for name, array in self.arrays.items()}
        if len(set(lengths.values())) > 1:
            told = ", ".join(f"{name!r} {length}" for name, length in lengths.items())
            raise ShapeError(f"arrays of different numbers of rows: {told}")
        self.rows = next(iter(lengths.values()))
        if not len(self):
            raise ShapeError(f"{self.rows} rows make no minibatch of {size}")

    def __len__(self) -> int:
        """Minibatches in an epoch."""
        return self.rows // self.size if self.drop_last else -(-self.rows // self.size)

    def __call__(self, epoch: int) -> Iterator[dict[str, np.ndarray | Sequences]]:
        """The minibatches of an epoch."""
        order = np.arange(self.rows)
        if self.shuffle:
            np.random.default_rng((self.seed, epoch)).shuffle(order)
        for start in range(0, len(self) * self.size, self.size):
            rows = (
                order[start : start + self.size]
                if self.shuffle
                else slice(start, start + self.size)
            )
            yield {name: array[rows] for name, array in self.arrays.items()}

    def __iter__(self) -> Iterator[dict[str, np.ndarray | Sequences]]:
        return self(0)
