"""Products of matrices of 8-bit integers, exact in 32 bits (library "native").

VNNI adds four products of bytes to each 32-bit number of a vector, four times what a vector of
float32 multiplies; AMX does so with tiles of 16 rows; AVX2 multiplies bytes as numbers of 16 bits.
Weights are packed once for all runs where they are kept (framework/runtime/plans/kept_factors.py),
else for each product.

Source: Intel's manual of instruction set extensions, VPDPBUSD and chapter 3 (AMX).
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from ....framework.fusion import team
from ....framework.fusion.compiled import arguments, native
from ....framework.fusion.compiled.arguments import Block
from ....framework.fusion.compiled.libraries import Library
from ....framework.ir.kernel_args import Call, KernelArgs
from ...base.calls import is_whole
from ...linear.integer_matmul import integer_matmul

_COLUMNS, _GROUP = 32, 4
"""Of a panel, and elements of the inner dimension that lie side by side."""
_SPEED = 4
"""Multiplications in the time of one of float32."""


_BY_BYTES = {
    "_avxvnni": "by VNNI, 32 bytes at once",
    "_avx512bf16": "by VNNI, 64 bytes at once",
    "_amx": "by AMX, and few rows by VNNI",
}
"""How bytes are multiplied, by what ends the names of the functions, in words; others multiply
numbers of 16 bits."""


def is_fast() -> bool:
    """Whether such products take less time here than float32 products."""
    library = native.load("integer_gemm")
    return library is not None and library.ending in _BY_BYTES


def described() -> str:
    """How 8-bit integers are multiplied here, in words."""
    library = native.load("integer_gemm")
    if library is None:
        return "as 64-bit floats"
    return _BY_BYTES.get(library.ending, "as 16-bit integers")


def _kernel(k: KernelArgs) -> Call | None:
    library = native.load("integer_gemm")
    x, y, out = k["x"], k["y"], k["out"]
    if library is None or not out.size or not x.size or not suits(k, x, y, out):
        return None
    if y.ndim > 2:
        return _stacked(k, library, x, y, out)
    return team.run_together(_tasks(k, library, x, y, out))


def _stacked(k: KernelArgs, library: Library, x: Any, y: Any, out: Any) -> Call | None:
    """Products of stacks; None where their axes are broadcast."""
    if x.shape[:-2] != y.shape[:-2]:
        return None
    stacks = [one.reshape(-1, *one.shape[-2:]) for one in (x, y, out)]
    tasks = [task for each in zip(*stacks, strict=True) for task in _tasks(k, library, *each)]
    return team.run_together(tasks)


def _tasks(k: KernelArgs, library: Library, x: Any, y: Any, out: Any) -> list[team.ParallelTask]:
    """A product of matrices."""
    depth, width = y.shape
    rows = np.arange(depth) * width
    tasks, columns = columns_of(k, x, y, k.get("y_zero"), rows, 1, 1)
    a, target = x.reshape(-1, depth), out.reshape(-1, width).view(np.uint8)
    block = arguments.bind(
        library,
        "integer_product",
        columns=columns,
        m=len(a),
        a=a,
        out=target,
        size=out.itemsize,
    )
    tasks.append(team.block_task(max(out.size * depth // _SPEED, y.size), block))
    return tasks


def suits(k: KernelArgs, *arrays: Any) -> bool:
    """Whether the functions take these arrays and the arrays of `end`."""
    slots = "x_zero", "y_zero", "w_zero", "scale", "bias", "out_zero"
    given = [one for one in (*arrays, *map(k.get, slots)) if one is not None]
    scale = k.get("scale")
    return all(map(is_whole, given)) and (scale is None or scale.dtype == np.float32)


def columns_of(
    k: KernelArgs,
    x: Any,
    y: Any,
    y_zero: Any,
    rows: np.ndarray,
    right: int,
    groups: int,
) -> tuple[list[team.ParallelTask], Block]:
    """The second factor of a product as C functions take it, and the tasks that pack it.

    Args:
        rows: where its rows begin in y. right: from a column to the next. groups: of columns.
    """
    library = native.load("integer_gemm")
    assert library is not None, "the caller has seen that it is there"
    width = y.size // (groups * max(len(rows), 1))
    tasks: list[team.ParallelTask] = []
    sizes = groups, len(rows), width
    panels = _kept(library, k, y, rows, right, sizes)
    if panels is None:
        panels, packing = _packed(library, y, rows, right, sizes)
        tasks.append(packing)
    scale, bias, out_zero = map(k.get, ("scale", "bias", "out_zero"))
    block = arguments.bind(
        library,
        "integer_columns",
        groups=groups,
        n=width,
        k=len(rows),
        is_signed=x.dtype == np.int8,
        a_zero=k.get("x_zero"),
        panels=panels,
        sums=_sums(panels, groups * _whole(width)),
        is_unsigned=y.dtype == np.uint8,
        b_zero=y_zero,
        b_zeros=0 if y_zero is None else y_zero.size,
        bias=bias,
        scale=scale,
        scales=0 if scale is None else scale.size,
        out_zero=out_zero,
        out_is_signed=out_zero is not None and out_zero.dtype == np.int8,
    )
    return tasks, block


def _kept(
    library: Library,
    k: KernelArgs,
    y: Any,
    rows: np.ndarray,
    right: int,
    sizes: tuple[int, int, int],
) -> Any:
    """The panels of weights that stay packed, for all runs or those of a loop; None for others."""
    kept = getattr(k.frame, "kept", None)
    make = partial(_packed, library, y, rows, right, sizes)
    panels = None
    if kept is not None and kept.holds(y):
        panels = kept.get(y, ("integers", sizes), _room(*sizes), make)
    if panels is None and k.prepared is not None and k.prepared.holds(y):
        panels = k.prepared.get(("integers", y.ctypes.data, y.strides, sizes), make)
    return panels


def _whole(width: int) -> int:
    return -(-width // _COLUMNS) * _COLUMNS


def _room(groups: int, depth: int, width: int) -> int:
    """Bytes of the panels of a matrix, and of the sums of their columns after them."""
    return groups * _whole(width) * (-(-depth // _GROUP) * _GROUP + 4)


def _sums(panels: Any, columns: int) -> Any:
    return panels[-4 * columns :].view(np.int32)


def _packed(
    library: Library, y: Any, rows: np.ndarray, right: int, sizes: tuple[int, int, int]
) -> tuple[Any, team.ParallelTask]:
    """New panels of a matrix, and the task that fills them."""
    groups, depth, width = sizes
    panels = team.aligned(_room(*sizes))
    block = arguments.bind(
        library,
        "pack_integers",
        groups=groups,
        k=depth,
        n=width,
        b=y.reshape(-1),
        rows=np.asarray(rows, np.int64),  # NumPy counts with 32 bits in WebAssembly
        right=right,
        is_unsigned=y.dtype == np.uint8,
        panels=panels,
        sums=_sums(panels, groups * _whole(width)),
    )
    return panels, team.block_task(2 * y.size, block)


integer_matmul.kernel(_kernel, device="cpu", library="native")
