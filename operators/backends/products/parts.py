"""Products of two matrices in parts that threads of a team compute side by side.

Each part is one call of a library's product on one thread. How a product is cut depends on its
shape and on `most_threads`, not on the number of threads at work, and neither does the result.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol, TypeVar

import numpy as np

from ....framework.base.cpu.threads import most_threads
from ....framework.base.dtypes import NAMES
from ....framework.fusion import team
from ....framework.fusion.compiled import arguments, native
from ....framework.fusion.compiled.arguments import Several, is_traced
from ....framework.ir.kernel_args import Call
from ...linear.matmul import Product

_CUT = 1 << 18
"""Multiplications from which a product is cut into parts, for a team of threads that is awake."""
_NARROWEST, _FEWEST, _LANES = 64, 8, 16
"""Columns and rows that a part has at least; its columns are a multiple of the last."""
_READING = 4
"""Work of reading an element that is used in few multiplications, as with one row by a matrix."""
LARGEST = 2**31 - 1
"""The largest size or step that every library takes."""

Arrays = tuple[Any, Any, Any]
"""Both factors and the result, 2-D."""


class Gemm(Protocol):
    """c = alpha op(a) op(b) + beta c of one shape, by a C function of (handle, a, b, c)."""

    handle: int
    address: int


AnyGemm = TypeVar("AnyGemm", bound=Gemm)
MakeGemm = Callable[[str, tuple[int, int], tuple[float, float], tuple[int, ...]], AnyGemm]
"""(dtype, whether a and b are stored transposed, alpha and beta, sizes) -> Gemm.

The sizes are m, n, k and the distance of the rows (or columns) of a, b and c.
"""

_GEMM_SIZES = "m", "n", "k", "a_step", "b_step", "c_step"


def gemm_fields(
    transposed: tuple[int, int], factors: tuple[float, float], sizes: tuple[int, ...]
) -> dict[str, Any]:
    """What all arguments of products have, by the names of native/declarations.py."""
    fields: dict[str, Any] = dict(zip(_GEMM_SIZES, sizes, strict=True))
    fields |= {"a_turned": transposed[0], "b_turned": transposed[1]}
    return fields | {"alpha": factors[0], "beta": factors[1]}


def side_by_side(array: Any) -> Any:
    """An array whose elements lie side by side: itself, or a copy."""
    return array if array.flags.c_contiguous else np.ascontiguousarray(array)


class NativeGemm:
    """A `Gemm` that a native function computes.

    Args:
        file, name: of the function. fields: of its argument, beside `gemm_fields`.
    """

    def __init__(
        self,
        file: str,
        name: str,
        dtype: str,
        transposed: tuple[int, int],
        factors: tuple[float, float],
        sizes: tuple[int, ...],
        **fields: Any,
    ) -> None:
        fields |= gemm_fields(transposed, factors, sizes)
        self._block = native.bind(file, np.dtype(dtype), name, **fields)
        self.address, self.handle = self._block.item


Layouts = tuple[tuple[int, int], tuple[int, int, int]]
"""Whether a and b are stored transposed, and the steps of a, b and c."""


def layouts(arrays: Arrays) -> Layouts | None:
    """How three matrices lie in memory; None where a library's product does not take them."""
    known = [one for array in arrays if (one := _layout(array)) is not None]
    # The result must lie in rows: libraries write nothing else here.
    if len(known) < 3 or known[2][0] or len({array.dtype for array in arrays}) > 1:
        return None
    steps = known[0][1], known[1][1], known[2][1]
    if max(*arrays[0].shape, *arrays[1].shape, *steps) > LARGEST:
        return None
    return (known[0][0], known[1][0]), steps


def _layout(array: Any) -> tuple[int, int] | None:
    """Whether a matrix is stored transposed, and the distance between its rows (or columns)."""
    flags = array.flags
    if flags.c_contiguous and flags.aligned:
        return 0, max(array.shape[1], 1)
    if not flags.aligned:
        return None
    for transposed, matrix in enumerate((array, array.T)):
        rows, cols = matrix.shape
        steps = [stride // array.itemsize for stride in matrix.strides]
        # NumPy gives the stride of an axis of length 1 any value.
        row_step = max(cols, 1) if rows == 1 else steps[0]
        # A step below the width would be overlapping rows, as a broadcast axis has them.
        if (cols == 1 or steps[1] == 1) and row_step >= cols:
            return transposed, row_step
    return None


def one(
    make: MakeGemm[AnyGemm], arrays: Arrays, how: Layouts, factors: tuple[float, float]
) -> tuple[AnyGemm, tuple[int, ...]]:
    """The code of a product of `layouts` how, and the four addresses that it is called with."""
    transposed, steps = how
    sizes = (*arrays[2].shape, arrays[0].shape[1], *steps)
    names = "handle", "address"
    gemm = arguments.made(make, names, NAMES[arrays[2].dtype], transposed, factors, sizes)
    return gemm, (gemm.handle, *(array.ctypes.data for array in arrays))


def product(
    make: MakeGemm[AnyGemm],
    arrays: Arrays,
    how: Layouts,
    factors: tuple[float, float],
    bias: Any,
) -> tuple[list[AnyGemm], list[tuple[int, ...]], team.ParallelTask]:
    """A product in as many parts as there may be threads, where these gain by it: their code, the
    addresses that it is called with, and the task of all."""
    a, b, out = arrays
    products, memory, places = [], [], []
    (height, width), depth = out.shape, a.shape[1]
    for rows, cols in _cut(height, width, depth):
        block = out[rows, cols]
        gemm, addresses = one(make, (a[rows], b[:, cols], block), how, factors)
        start = None if bias is None else side_by_side(bias[cols])
        fields = {"function": gemm.address, "handle": gemm.handle, "a": a[rows], "b": b[:, cols]}
        fields |= {"c": block, "bias": start, "rows": 0, "bytes": 0, "step": 0}
        if start is not None:
            fields |= {"rows": block.shape[0], "bytes": start.nbytes, "step": block.strides[0]}
        products.append(arguments.bind(team.library(), "gemm_part", **fields))
        memory.append(gemm)
        places.append(addresses)
    work = max(out.size * depth, _READING * (a.size + b.size))
    return memory, places, team.parts_task(Several.of(products), work, memory)


def stacked(make: MakeGemm[Gemm], most: int | None, a: Any, b: Any, out: Any) -> Call | None:
    """A call for the products of two stacks of matrices, shared between threads one by one.

    Args:
        make: of a product on one thread.
        most: multiplications of one product from which it is better shared itself; None: never.
        a, b: stacks whose leading axes are broadcast to the leading axes of `out`.

    Returns:
        None where the matrices do not suit.
    """
    lead = out.shape[:-2]
    if team.library() is None or not (out.size and a.size):
        return None
    # A broadcast axis has the stride 0, so heads that share a factor read the same memory.
    arrays = (*(np.broadcast_to(x, (*lead, *x.shape[-2:])) for x in (a, b)), out)
    places = list(np.ndindex(lead))
    first = arrays[0][places[0]], arrays[1][places[0]], out[places[0]]
    how = layouts(first)
    (m, k), n = first[0].shape, first[1].shape[1]
    if how is None or (most is not None and m * n * k >= most):
        return None
    gemm, _ = one(make, first, how, (1.0, 0.0))
    at = [arguments.Places(array, offsets_in(array, places)) for array in arrays]
    fields: dict[str, Any] = dict(zip(("a", "b", "c"), at, strict=True))
    fields |= {"function": gemm.address, "handle": gemm.handle, "rows": 0, "bytes": 0, "step": 0}
    products = arguments.several(team.library(), "gemm_part", len(places), **fields)
    return team.parts_task(products, len(places) * m * n * k, gemm)


def offsets_in(stack: Any, places: list[tuple[int, ...]]) -> Any:
    """Bytes from the begin of a stack to the arrays at some places of it."""
    steps = stack.strides[: len(places[0])]
    if not is_traced(stack):
        return np.array(places, np.int64) @ np.array(steps, np.int64)
    return [sum(map(operator.mul, place, steps)) for place in places]


def _cut(m: int, n: int, k: int) -> list[tuple[slice, slice]]:
    """The parts of a product [m, n] over k: rows and columns of each.

    The longer side is cut: so the parts read the least in all. Rows, if they are many, then stay
    with the thread that runs its share of the next operator.
    """
    threads = most_threads()
    whole = slice(None)
    if threads > 1 and m * n * k >= _CUT:
        if n >= _NARROWEST * threads and (n >= m or m < threads * _FEWEST):
            return [(whole, span) for span in _spans(n, threads, _LANES)]
        if m >= threads * _FEWEST:
            return [(span, whole) for span in _spans(m, threads, 1)]
    return [(whole, whole)]


def _spans(size: int, count: int, unit: int) -> list[slice]:
    # Whole vectors to each part: the edge of a part would be computed number by number.
    step = -(-size // (count * unit)) * unit
    begins = itertools.takewhile(lambda begin: begin < size, (n * step for n in range(count)))
    return [slice(begin, min(begin + step, size)) for begin in begins]


Find = Callable[[Any, Any, Any, float, Any, Any], team.ParallelTask | None]
"""(a, b, out, alpha, bias, by), as of `matmul.product` -> the product as a task, or None."""


def by_task(find: Find, other: Product) -> Product:
    """A `matmul.product` of the tasks that `find` makes; `other` serves where it makes none."""

    def product(
        xp: Any, a: Any, b: Any, out: Any, *, alpha: float = 1.0, bias: Any = None, by: Any = None
    ) -> Call:
        task = find(a, b, out, alpha, bias, by)
        return task or other(xp, a, b, out, alpha=alpha, bias=bias, by=by)

    return product


def in_turn(tasks: Sequence[team.ParallelTask]) -> team.ParallelTask:
    """The tasks as one that does them one after another."""
    return team.ParallelTask(
        tuple(item for task in tasks for item in task.items),
        sum(task.work for task in tasks),
        [task.memory for task in tasks],
    )


def copying_bias(out: Any, bias: Any, call: Call) -> list[Call]:
    """The calls that put `bias` into each row, and then add a product."""
    return [call] if bias is None else [partial(np.copyto, out, bias), call]
