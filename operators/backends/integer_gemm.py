"""Products of matrices of 8-bit integers by VNNI (library "native").

An instruction adds four products of bytes to each 32-bit number of a vector, four times what a
vector of float32 multiplies; the sums are exact. Weights are packed once for all runs where they
are kept (framework/runtime/plans/kept_factors.py), else for each product.

Source: Intel's manual of instruction set extensions, VPDPBUSD.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...framework.fusion import arguments, native, team
from ...framework.fusion.libraries import Library
from ...framework.ir.kernel_args import Call, KernelArgs
from ..linear.integer_matmul import integer_matmul

_COLUMNS, _GROUP = 32, 4
"""Of a panel, and elements of the inner dimension that lie side by side."""
_SPEED = 4
"""Multiplications in the time of one of float32."""


def is_fast() -> bool:
    """Whether there are such products here."""
    return native.load("integer_gemm") is not None


def _kernel(k: KernelArgs) -> Call | None:
    library = native.load("integer_gemm")
    x, y, out = k["x"], k["y"], k["out"]
    if library is None or y.ndim != 2 or not out.size or not x.size:
        return None
    x_zero, y_zero, scale = (k.get(slot) for slot in ("x_zero", "y_zero", "scale"))
    arrays = (x, y, out, x_zero, y_zero, scale)
    if any(one is not None and not _is_whole(one) for one in arrays):
        return None
    if scale is not None and scale.dtype != np.float32:
        return None
    depth, width = y.shape
    tasks: list[team.ParallelTask] = []
    panels = _kept(library, k.frame, y)
    if panels is None:
        panels, packing = _packed(library, y)
        tasks.append(packing)
    a, target = x.reshape(-1, depth), out.reshape(-1, width)
    block = arguments.bind(
        library,
        "integer_product",
        m=len(a),
        n=width,
        k=depth,
        a=a,
        is_signed=x.dtype == np.int8,
        a_zero=x_zero,
        panels=panels,
        sums=_sums(panels, width),
        is_unsigned=y.dtype == np.uint8,
        b_zero=y_zero,
        b_zeros=0 if y_zero is None else y_zero.size,
        scale=scale,
        scales=0 if scale is None else scale.size,
        out=target.view(np.int32),
    )
    tasks.append(team.block_task(max(target.size * depth // _SPEED, y.size), block))
    return team.run_together(tasks)


def _is_whole(array: Any) -> bool:
    return type(array) is np.ndarray and array.flags.c_contiguous and array.flags.aligned


def _kept(library: Library, frame: Any, y: Any) -> Any:
    """The panels of weights that stay packed; None for others, and where there is no room."""
    kept = getattr(frame, "kept", None)
    if kept is None or not kept.holds(y):
        return None
    return kept.get(y, "integers", _room(*y.shape), lambda: _packed(library, y))


def _room(depth: int, width: int) -> int:
    """Bytes of the panels of a matrix, and of the sums of their columns after them."""
    return -(-width // _COLUMNS) * _COLUMNS * (-(-depth // _GROUP) * _GROUP + 4)


def _sums(panels: Any, width: int) -> Any:
    return panels[-4 * -(-width // _COLUMNS) * _COLUMNS :].view(np.int32)


def _packed(library: Library, y: Any) -> tuple[Any, team.ParallelTask]:
    """New panels of a matrix, and the task that fills them."""
    depth, width = y.shape
    panels = team.aligned(_room(depth, width))
    block = arguments.bind(
        library,
        "pack_integers",
        k=depth,
        n=width,
        b=y,
        is_unsigned=y.dtype == np.uint8,
        panels=panels,
        sums=_sums(panels, width),
    )
    return panels, team.block_task(2 * y.size, block)


integer_matmul.kernel(_kernel, device="cpu", library="native")
