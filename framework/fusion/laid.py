"""What stands for arrays while a binding is traced: how they lie in memory, in `Dim`s.

A kernel that binds to them computes sizes, steps and addresses as it does with arrays of NumPy;
what it decides by these is noted as conditions (framework/base/dims.py). What needs elements, or a
function of NumPy, fails, and is bound again for each shape.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from .arguments import NotTracedError, Standing


class Laid(Standing):
    """An array of NumPy without its elements.

    Attributes:
        shape, strides: with `Dim`s where they vary; strides in bytes.
        address: where it begins.
    """

    def __init__(
        self,
        dtype: np.dtype,
        shape: Sequence[Any],
        strides: Sequence[Any],
        address: Any,
        writeable: bool = True,
    ) -> None:
        self.dtype = dtype
        self.itemsize = dtype.itemsize
        self.shape = tuple(shape)
        self.strides = tuple(strides)
        self.ndim = len(self.shape)
        self.address = address
        self.writeable = writeable

    @classmethod
    def side_by_side(cls, dtype: np.dtype, shape: Sequence[Any], address: Any) -> Laid:
        """An array whose elements lie side by side."""
        return cls(dtype, shape, _contiguous(shape, dtype.itemsize), address)

    @property
    def size(self) -> Any:
        return math.prod(self.shape)

    @property
    def nbytes(self) -> Any:
        return self.size * self.itemsize

    @property
    def flags(self) -> Laid:
        """Itself, which has those that are asked for."""
        return self

    @property
    def aligned(self) -> bool:
        return True  # others are not traced

    @property
    def c_contiguous(self) -> bool:
        expected = self.itemsize
        for size, step in zip(reversed(self.shape), reversed(self.strides), strict=True):
            if size != 1 and step != expected:
                return not self.size
            expected = expected * size
        return True

    @property
    def ctypes(self) -> Laid:
        """Itself, for its `data`."""
        return self

    @property
    def data(self) -> Any:
        return self.address

    @property
    def end(self) -> Any:
        """See `arguments.end_of`."""
        raise NotTracedError("the largest number of an array")

    @property
    def T(self) -> Laid:
        return self.transpose()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        raise NotTracedError("a function of NumPy")

    def __iter__(self) -> Any:
        raise NotTracedError("a loop over elements")

    def __len__(self) -> int:
        return int(self.shape[0])

    def _as(self, shape: Sequence[Any], strides: Sequence[Any], begin: Any = 0) -> Laid:
        return Laid(self.dtype, shape, strides, self.address + begin, self.writeable)

    def transpose(self, *axes: Any) -> Laid:
        order = axes[0] if len(axes) == 1 and not isinstance(axes[0], int) else axes
        order = order or range(self.ndim)[::-1]
        return self._as([self.shape[n] for n in order], [self.strides[n] for n in order])

    def reshape(self, *shape: Any) -> Laid:
        wanted = list(shape[0] if len(shape) == 1 and isinstance(shape[0], Sequence) else shape)
        if not self.c_contiguous:
            raise NotTracedError("another shape of elements that lie apart")
        for axis, size in enumerate(wanted):
            if isinstance(size, int) and size == -1:
                wanted[axis] = self.size // math.prod(wanted[:axis] + wanted[axis + 1 :])
        if math.prod(wanted) != self.size:
            raise NotTracedError("a shape of another size")
        return self._as(wanted, _contiguous(wanted, self.itemsize))

    def view(self, dtype: Any) -> Laid:
        """Bytes as an array of another dtype."""
        (size,) = self.shape
        dtype = np.dtype(dtype)
        return self.side_by_side(dtype, (size * self.itemsize // dtype.itemsize,), self.address)

    def __getitem__(self, key: Any) -> Laid:
        keys = list(key) if isinstance(key, tuple) else [key]
        if ... in keys:
            at = keys.index(...)
            rest = self.ndim - sum(one is not None for one in keys) + 1
            keys[at : at + 1] = [slice(None)] * rest
        shape, strides = [], []
        begin: Any = 0
        axis = 0
        for one in keys:
            if one is None:
                shape.append(1)
                strides.append(0)
                continue
            size, step = self.shape[axis], self.strides[axis]
            axis += 1
            if isinstance(one, slice):
                if one.step is not None:
                    raise NotTracedError("every other element")
                first, last = _bound(one.start, size, 0), _bound(one.stop, size, size)
                begin = begin + first * step
                shape.append(last - first if last > first else 0)
                strides.append(step)
            else:
                begin = begin + (one + size if one < 0 else one) * step
        return self._as([*shape, *self.shape[axis:]], [*strides, *self.strides[axis:]], begin)


class LaidGrid(Laid):
    """Places of a grid's points, see `arguments.grid`."""

    def __init__(self, counts: Sequence[Any], steps: Sequence[Any], address: Any) -> None:
        super().__init__(np.dtype(np.int64), (math.prod(counts),), (8,), address)
        if any(step < 0 for step in steps) or any(count < 1 for count in counts):
            raise NotTracedError("a grid that goes back, or has no points")
        pairs = zip(counts, steps, strict=True)
        self._end = 1 + sum((count - 1) * step for count, step in pairs)

    @property
    def end(self) -> Any:
        return self._end


def _contiguous(shape: Sequence[Any], itemsize: int) -> list[Any]:
    strides: list[Any] = []
    for size in reversed(shape):
        strides.append(itemsize)
        itemsize = itemsize * size
    return strides[::-1]


def _bound(place: Any, size: Any, default: Any) -> Any:
    """A bound of a slice, within the array."""
    if place is None:
        return default
    if place < 0:
        place = place + size
        return place if place > 0 else 0
    return size if place > size else place
