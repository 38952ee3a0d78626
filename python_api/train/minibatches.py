"""Minibatches from whole arrays."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from ...framework.base.dtypes import is_whole
from ...framework.base.errors import ShapeError
from ...framework.base.sequence import Sequences
from ..builder.calls import checked


class Minibatches:
    """Cuts arrays of equal length into minibatches, which `train` takes as `data` and `evaluate`.

    Called with an epoch's number it goes through the rows in the order of that epoch, which
    depends on `seed` and the number only: a resumed training sees the same minibatches. Iterated
    over, it goes through the order of epoch 0.

    Args:
        arrays: name -> array; the first axis counts rows. Or name -> `Sequences`, or a list of
            arrays, each of which counts as a row.
        size: rows of a minibatch; the last one of an epoch may be smaller.
        shuffle: a new order in each epoch; else the order of the arrays.
        seed: of the orders.
        drop_last: leave out a last minibatch that is smaller.

    Raises:
        ShapeError: no arrays, arrays of different lengths or without rows, or a size that is no
            whole number from 1 on.
    """

    @checked
    def __init__(
        self,
        arrays: Mapping[Any, Any],
        size: int,
        *,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = False,
    ) -> None:
        if not isinstance(arrays, Mapping):
            raise ShapeError(
                "Minibatches wants arrays by the names of the inputs, Minibatches({'x': x, 'label':"
                f" y}}, 32), not a {type(arrays).__name__}"
            )
        if not is_whole(size) or size < 1:
            raise ShapeError(f"Minibatches of {size!r} rows: want a whole number from 1 on")
        self.arrays = {str(name): _rows(str(name), array) for name, array in arrays.items()}
        self.size = size
        self.shuffle = shuffle
        self.seed = seed
        self.drop_last = drop_last
        if not self.arrays:
            raise ShapeError(f"minibatches of {size} rows from 0 arrays: want any")
        lengths = {name: len(array) for name, array in self.arrays.items()}
        if len(set(lengths.values())) > 1:
            counts = ", ".join(f"{name!r} {length}" for name, length in lengths.items())
            raise ShapeError(f"arrays of different numbers of rows: {counts}")
        self.rows = next(iter(lengths.values()))
        if not len(self):
            raise ShapeError(f"{self.rows} rows make no minibatch of {size}")

    def __len__(self) -> int:
        """Minibatches in an epoch."""
        return self.rows // self.size if self.drop_last else -(-self.rows // self.size)

    def __call__(self, epoch: int) -> Iterator[dict[str, Any]]:
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
            yield {name: _picked(array, rows) for name, array in self.arrays.items()}

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return self(0)


def _rows(name: str, given: Any) -> np.ndarray | Sequences:
    """What is given for an input as something whose rows can be picked.

    A list of arrays stays one, since these may be sequences of any lengths: an array of objects.

    Raises:
        ShapeError: it is no array, or has no rows.
    """
    if isinstance(given, Sequences):
        return given
    if isinstance(given, (list, tuple)) and all(hasattr(item, "__len__") for item in given):
        items = np.empty(len(given), object)
        for number, item in enumerate(given):
            items[number] = item
        return items
    try:
        array = np.asarray(given)
    except (ValueError, TypeError, RuntimeError) as error:
        raise ShapeError(f"Minibatches: {name!r} is no array: {error}") from None
    if not array.ndim:
        number = isinstance(given, (int, float, np.number))
        what = "a single number" if number else f"a {type(given).__name__}"
        raise ShapeError(f"Minibatches: {name!r} is {what} and has no rows")
    return array


def _picked(array: np.ndarray | Sequences, rows: Any) -> Any:
    chosen = array[rows]
    return list(chosen) if getattr(chosen, "dtype", None) == object else chosen
