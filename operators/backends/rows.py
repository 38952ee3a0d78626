"""C functions over the rows of a matrix: softmax, losses, normalization, shared between threads.

NumPy makes a pass over memory for each step of a softmax; here a row stays in the cache for all of
them (native/rows.c).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...framework.fusion import team
from ...framework.fusion.compiled import native
from ...framework.fusion.compiled.libraries import Library
from ...framework.ir.kernel_args import Call, KernelArgs
from ...framework.ir.registry import Kernel
from ..base.calls import is_whole

_ROWS, _MOST = 128, 64
"""Rows of a block whose columns are summed, at least, and the most blocks that there are."""
_READ = 20
"""Work of an element of such a block: it is read from memory."""
EXP = 60
"""Work of an element of a softmax, in the units of codegen.py."""
TOP = 10
"""Work of an element of rows whose largest is looked for."""


def library(dtype: np.dtype | type = np.float32) -> Library | None:
    """The functions for a dtype; None where it has none, or there is no native library."""
    return native.typed("rows", dtype)


def suits(dtype: np.dtype, *arrays: Any) -> bool:
    """Whether arrays of NumPy lie in memory as the functions want them; None is not looked at."""
    return all(array is None or (is_whole(array) and array.dtype == dtype) for array in arrays)


def task(name: str, dtype: np.dtype, work: int, /, **fields: Any) -> team.ParallelTask:
    """A function of the library with its argument.

    Args:
        work: see native/constants.py. fields: of the argument.
    """
    return team.block_task(work, native.bind("rows", dtype, name, **fields))


def mean_task(x: Any, out: Any, divisor: int) -> team.ParallelTask:
    """The task out = sum(x) / divisor, for one thread; out has one element."""
    return task("mean", x.dtype, x.size, size=x.size, x=x, out=out, divisor=divisor)


def moments(
    x: Any, y: Any, results: tuple[Any, Any], factors: tuple[float, float]
) -> list[team.ParallelTask]:
    """Tasks that put factors times the sums of x and of x y over all rows into two vectors.

    Blocks of rows are summed apart, and these sums in double; how many there are follows from the
    sizes alone.

    Args:
        x, y: [N, D], see `lies_in_rows`. results: [W] both, see `suits`; columns W apart are added
            up; D is B times W.
    """
    blocks = max(min(len(x) // _ROWS, _MOST), 1)
    sums = np.empty((blocks, 2, x.shape[1]), x.dtype)
    same = {"columns": x.shape[1], "blocks": blocks, "sums": sums}
    pass_over = task("moments", x.dtype, _READ * x.size, rows=len(x), x=x, y=y, **same)
    return [pass_over, added(sums, results, factors)]


def added(
    sums: Any, results: tuple[Any, Any], factors: tuple[float, float] = (1.0, 1.0)
) -> team.ParallelTask:
    """The task that adds up the sums of all blocks of rows, as of `moments`.

    Args:
        sums: [blocks, 2, D]. results: see `moments`; None for one that is not wanted.
    """
    blocks, _, columns = sums.shape
    first, second = results
    fields = {"blocks": blocks, "columns": columns, "sums": sums, "first": first, "second": second}
    fields |= {"width": (second if first is None else first).size}
    fields |= {"first_factor": factors[0], "second_factor": factors[1]}
    return task("added", sums.dtype, max(4 * sums.size, team.ITEM_WORK), **fields)


def where_compiled(bind: Callable[[KernelArgs], Call | None]) -> Kernel:
    """A kernel that is None where there is no native library."""
    return lambda k: None if library() is None else bind(k)


def call(*tasks: team.ParallelTask) -> Call:
    """A call that runs tasks one after the other."""
    return team.run_together(tasks)
