"""What stands for arrays while a binding is traced: how they lie in memory, in `Dim`s.

A kernel that binds to them computes sizes, steps and addresses as it does with arrays of NumPy;
what it decides by these is noted as conditions (framework/base/sizes/dims.py). What needs elements,
or a function of NumPy, fails, and is bound again for each shape.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from .compiled.arguments import NotTracedError, Standing

_FAR = 1 << 20
"""Products of distances between addresses in this unit fit into 64 bits."""


class _Pointer:
    """Where an array begins, as NumPy and CuPy have it."""

    def __init__(self, address: Any) -> None:
        self.data = self.ptr = address


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
    def ctypes(self) -> _Pointer:
        return _Pointer(self.address)

    data = ctypes

    @property
    def end(self) -> Any:
        """See `arguments.end_of`."""
        raise NotTracedError("the largest number of an array")

    @property
    def T(self) -> Laid:
        return self.transpose()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        raise NotTracedError("a function of NumPy")

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        """Functions of NumPy that give views, or look at how arrays lie."""
        if function is np.broadcast_to:
            return _broadcast(*args, **kwargs)
        if function is np.may_share_memory:
            return _overlap(*args)
        if function is np.expand_dims:
            array, axis = args
            return array[(*[slice(None)] * axis, None, ...)]
        if function in (np.moveaxis, np.swapaxes):
            return function.__wrapped__(*args, **kwargs)
        raise NotTracedError("a function of NumPy")

    def __iter__(self) -> Any:
        raise NotTracedError("a loop over elements")

    def __len__(self) -> int:
        return int(self.shape[0])

    def _as(self, shape: Sequence[Any], strides: Sequence[Any], begin: Any = 0) -> Laid:
        return Laid(self.dtype, shape, strides, self.address + begin, self.writeable)

    def moved(self, offset: Any) -> Laid:
        """The same so many bytes after it."""
        return self._as(self.shape, self.strides, offset)

    def transpose(self, *axes: Any) -> Laid:
        order = axes[0] if len(axes) == 1 and not isinstance(axes[0], int) else axes
        order = order or range(self.ndim)[::-1]
        return self._as([self.shape[n] for n in order], [self.strides[n] for n in order])

    def swapaxes(self, first: int, second: int) -> Laid:
        order = list(range(self.ndim))
        order[first], order[second] = order[second], order[first]
        return self.transpose(order)

    def reshape(self, *shape: Any) -> Laid:
        wanted = list(shape[0] if len(shape) == 1 and isinstance(shape[0], Sequence) else shape)
        for axis, size in enumerate(wanted):
            if isinstance(size, int) and size == -1:
                wanted[axis] = self.size // math.prod(wanted[:axis] + wanted[axis + 1 :])
        if math.prod(wanted) != self.size:
            raise NotTracedError("a shape of another size")
        if self.c_contiguous:
            return self._as(wanted, _contiguous(wanted, self.itemsize))
        return self._as(wanted, _cut(self.shape, self.strides, wanted))

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
                if one.step not in (None, 1):
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

    def __init__(
        self, counts: Sequence[Any], steps: Sequence[Any], first: Any, address: Any
    ) -> None:
        super().__init__(np.dtype(np.int64), (math.prod(counts),), (8,), address)
        if any(step < 0 for step in steps) or any(count < 1 for count in counts):
            raise NotTracedError("a grid that goes back, or has no points")
        pairs = zip(counts, steps, strict=True)
        self._end = 1 + first + sum((count - 1) * step for count, step in pairs)

    @property
    def end(self) -> Any:
        return self._end


def _cut(shape: Sequence[Any], strides: Sequence[Any], wanted: Sequence[Any]) -> list[Any]:
    """The strides of a shape whose axes are parts of those of another one."""
    steps: list[Any] = []
    rest = list(wanted)
    for size, step in zip(shape, strides, strict=True):
        parts: list[Any] = []
        while rest and (not parts or math.prod(parts) != size):
            parts.append(rest.pop(0))
        if math.prod(parts) != size:
            raise NotTracedError("another shape of elements that lie apart")
        steps += [step * math.prod(parts[n:]) for n in range(1, len(parts) + 1)]
    if any(size != 1 for size in rest):
        raise NotTracedError("another shape of elements that lie apart")
    return [*steps, *[0] * len(rest)]


def _broadcast(array: Any, shape: Sequence[Any]) -> Laid:
    """See `np.broadcast_to`."""
    new = len(shape) - array.ndim
    steps: list[Any] = [0] * new
    for size, own, step in zip(shape[new:], array.shape, array.strides, strict=True):
        if own != size and own != 1:
            raise NotTracedError("shapes that do not broadcast")
        steps.append(step if own == size and size != 1 else 0)
    return array._as(shape, steps)


def _overlap(first: Any, second: Any) -> bool:
    """Whether the bounds of two arrays overlap; see `np.may_share_memory`."""
    if not first.size or not second.size:
        return False
    bounds = []
    for array in (first, second):
        begin = array.ctypes.data
        if any(step < 0 for step in array.strides):
            raise NotTracedError("an array that goes back")
        pairs = zip(array.shape, array.strides, strict=True)
        bounds.append((begin, begin + sum((n - 1) * step for n, step in pairs) + array.itemsize))
    (begin, end), (other_begin, other_end) = bounds
    # Not which of them comes first, which differs from shape to shape: one condition holds for
    # both. Of memory apart one distance is below 0 and the other one is not.
    distances = (begin - other_end) // _FAR, (other_begin - end) // _FAR
    return bool(distances[0] * distances[1] > 0)


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
