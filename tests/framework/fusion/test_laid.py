"""What stands for arrays lies as arrays of NumPy do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from opscope.framework.base.sizes.dims import Dims
from opscope.framework.fusion.compiled.arguments import NotTracedError, fill_grids, grid_of
from opscope.framework.fusion.laid import Laid, LaidGrid
from opscope.framework.fusion.team import library


def drawn(rng: np.random.Generator, array: Any, laid: Any) -> tuple[Any, Any]:
    """A view of both, by the same function."""
    way = int(rng.integers(9))
    if way == 0:
        order = rng.permutation(array.ndim).tolist()
        return array.transpose(order), laid.transpose(order)
    if way == 1 and array.flags.c_contiguous:
        return array.reshape(1, -1), laid.reshape(1, -1)
    if way == 2:
        return array[None], laid[None]
    if way == 3:
        axis = int(rng.integers(array.ndim))
        begin = int(rng.integers(0, array.shape[axis]))
        key = (*[slice(None)] * axis, slice(begin, begin + 2 if rng.integers(2) else None))
        return array[key], laid[key]
    if way == 4:
        axis = int(rng.integers(array.ndim))
        return np.expand_dims(array, axis), np.expand_dims(laid, axis)
    if way == 5:
        return array.swapaxes(0, -1), laid.swapaxes(0, -1)
    if way == 6:
        return tuple(np.broadcast_to(one, (2, *one.shape)) for one in (array, laid))  # type: ignore[return-value]
    if way == 7:  # an axis cut into two
        return tuple(one.reshape(one.shape[0], 1, *one.shape[1:]) for one in (array, laid))  # type: ignore[return-value]
    return np.moveaxis(array, 0, -1), np.moveaxis(laid, 0, -1)


def test_an_axis_of_strided_memory_is_cut() -> None:
    array = np.zeros((6, 5, 8), np.float32).transpose(1, 2, 0)
    dims = Dims(hashes=False)
    sizes = [dims.size(at, size) for at, size in enumerate((6, 5, 8))]
    laid = Laid.side_by_side(array.dtype, sizes, dims.unchecked(3, 4096)).transpose(1, 2, 0)
    wanted = array.reshape(5, 4, 2, 6)
    found = laid.reshape(laid.shape[0], laid.shape[1] // 2, 2, laid.shape[2])
    assert [int(step) for step in found.strides] == list(wanted.strides)
    with pytest.raises(NotTracedError, match="lie apart"):
        laid.reshape(-1)


def test_bounds_that_overlap() -> None:
    memory = np.zeros(100, np.float32)
    dims = Dims(hashes=False)
    begin = dims.unchecked(0, memory.ctypes.data)
    whole = Laid.side_by_side(memory.dtype, (100,), begin)
    for first, second in (((0, 50), (50, 100)), ((0, 51), (50, 100)), ((20, 30), (0, 100))):
        views = [[one[slice(*ends)] for ends in (first, second)] for one in (memory, whole)]
        shared = [np.may_share_memory(*pair) for pair in views]
        assert shared[0] == shared[1]


@pytest.mark.parametrize("seed", range(40))
def test_views_lie_as_those_of_numpy(seed: int) -> None:
    rng = np.random.default_rng(seed)
    array: Any = np.zeros(rng.integers(2, 6, int(rng.integers(1, 5))), np.float32)
    dims = Dims(hashes=False)
    sizes = [dims.size(at, size) for at, size in enumerate(array.shape)]
    base = array.ctypes.data
    laid: Any = Laid.side_by_side(array.dtype, sizes, dims.unchecked(array.ndim, base))
    hint = lambda value: int(repr(value))  # noqa: E731 - the value for these sizes, no condition
    for _ in range(4):
        array, laid = drawn(rng, array, laid)
        assert tuple(map(hint, laid.shape)) == array.shape
        assert hint(laid.size) == array.size and hint(laid.nbytes) == array.nbytes
        if array.size and 1 not in array.shape:
            assert tuple(map(hint, laid.strides)) == array.strides
            assert hint(laid.address) == array.ctypes.data
            assert laid.flags.c_contiguous == array.flags.c_contiguous


def test_elements_are_not_there() -> None:
    laid = Laid.side_by_side(np.dtype(np.float32), (2, 3), 64)
    for read in (np.asarray, list, np.sum, lambda one: one.end, lambda one: one[:, ::2]):
        with pytest.raises(NotTracedError):
            read(laid)
    with pytest.raises(TypeError):
        laid + 1


def test_a_grid_knows_its_end_and_size() -> None:
    for counts, steps in (((3, 4), (10, 2)), ((3, 4), (8, 2)), ((5,), (7,)), ((1, 1), (3, 3))):
        places = grid_of(2, *counts, *steps)
        grid = LaidGrid(counts, steps, 2, 64)
        assert grid.size == places.size and grid.end == places.max() + 1
        wanted = 2 + np.tensordot(steps, np.indices(counts), 1).reshape(-1)
        np.testing.assert_array_equal(places, wanted)
    with pytest.raises(NotTracedError):
        LaidGrid((3,), (-1,), 0, 64)


@pytest.mark.skipif(library() is None, reason="there is no native library")
def test_grids_are_made_together() -> None:
    rng = np.random.default_rng(0)
    for axes in range(1, 5):
        counts, steps = rng.integers(1, 6, (7, axes)), rng.integers(0, 9, (7, axes))
        counts[2, axes // 2] = 0  # an empty one, and others after it
        sizes = np.concatenate([rng.integers(0, 9, (7, 1)), counts, steps], 1)
        wanted = [grid_of(*own) for own in sizes.tolist()]
        places = np.full(sum(map(len, wanted)) + 3, -1)
        fill_grids(library(), sizes, places)
        np.testing.assert_array_equal(places, [*np.concatenate(wanted), -1, -1, -1])
