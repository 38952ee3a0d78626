"""C functions over the rows of a matrix: softmax, losses, normalization, shared between threads.

NumPy makes a pass over memory for each step of a softmax; here a row stays in the cache for all of
them (native/rows.c).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...framework.fusion import native, team
from ...framework.fusion.libraries import Library
from ...framework.ir.kernel_args import Call

_ROWS, _MOST = 128, 64
"""Rows of a block whose columns are summed, at least, and the most blocks that there are."""
_READ = 20
"""Work of an element of such a block: it is read from memory."""


def library(dtype: np.dtype | type = np.float32) -> Library | None:
    """The functions for a dtype; None where it has none, or there is no native library."""
    return native.typed("rows", dtype)


def suits(dtype: np.dtype, *arrays: Any) -> bool:
    """Whether arrays of NumPy lie in memory as the functions want them; None is not looked at."""
    return all(
        array is None
        or (
            type(array) is np.ndarray
            and array.dtype == dtype
            and array.flags.c_contiguous
            and array.flags.aligned
        )
        for array in arrays
    )


def task(name: str, dtype: np.dtype, arguments: Sequence[Any], work: int) -> team.ParallelTask:
    """A function of the library with its arguments.

    Args:
        arguments: whole numbers, floats (passed as the bits of a double), arrays, and None for 0.
        work: see native/constants.py.
    """
    argument = np.array([word(one) for one in arguments], np.int64)
    item = native.function("rows", dtype, name), argument.ctypes.data
    return team.ParallelTask((item,), work, (argument, list(arguments)))


def moments(
    x: Any, y: Any, results: tuple[Any, Any], factors: tuple[float, float]
) -> list[team.ParallelTask]:
    """Tasks that put factors times the sums of x and of x y over all rows into two vectors.

    Blocks of rows are summed apart, and these sums in double; how many there are follows from the
    sizes alone.

    Args:
        x, y: [N, D], see `suits`. results: [W] both; columns W apart are added up; D is B times W.
    """
    blocks = max(min(len(x) // _ROWS, _MOST), 1)
    sums = np.empty((blocks, 2, x.shape[1]), x.dtype)
    first, second = results
    words = [blocks, first.size, sums, x.shape[1], first, second, *factors]
    return [
        task("moments", x.dtype, [*x.shape, x, y, sums, blocks], _READ * x.size),
        task("added", x.dtype, words, max(4 * sums.size, team.ITEM_WORK)),
    ]


def call(*tasks: team.ParallelTask) -> Call:
    """A call that runs tasks one after the other."""
    return team.run_together(tasks)


def word(argument: Any) -> int:
    """A whole number, the bits of a double, or the address of an array, 0 for None."""
    if argument is None:
        return 0
    if isinstance(argument, float):
        return struct.unpack("q", struct.pack("d", argument))[0]
    return argument if isinstance(argument, int) else argument.ctypes.data
