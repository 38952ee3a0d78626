"""Building blocks of kernels: copies, and sums over broadcast axes."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from ...framework.base.backend import same_memory
from ...framework.fusion.compiled.arguments import is_host_array
from ...framework.ir.kernel_args import Call, KernelArgs


def stacked(xp: Any, a: Any, b: Any, out: Any) -> Call:
    """A call for the products of two stacks of matrices, whose leading axes broadcast."""
    return partial(xp.matmul, a, b, out=out)


def is_whole(array: Any) -> bool:
    """Whether C functions take an array as it lies: of NumPy, aligned, in one piece."""
    return is_host_array(array) and array.flags.c_contiguous and array.flags.aligned


def lies_in_rows(array: Any) -> bool:
    """Whether C functions take a matrix by the distance of its rows: of NumPy, aligned, the
    elements of a row side by side."""
    if not is_host_array(array) or not array.flags.aligned:
        return False
    size = array.itemsize
    return (array.shape[1] == 1 or array.strides[1] == size) and array.strides[0] % size == 0


def copying(xp: Any, source: Any, target: Any) -> Call | None:
    """A call that copies, broadcasts and casts; None where both are the same memory."""
    if same_memory(source, target):
        return None
    return partial(xp.copyto, target, source, casting="unsafe")


def reducing(xp: Any, source: Any, target: Any) -> Call | None:
    """A call that sums a gradient back to the shape of an operand that was broadcast.

    `source` is summed over the axes along which `target` was broadcast to its shape.

    None where both are the same memory. Sums over leading axes alone (a bias) are a product with a
    vector of ones, which BLAS does several times faster than a reduction.
    """
    if source.shape == target.shape:
        return copying(xp, source, target)
    extra = source.ndim - target.ndim
    axes = tuple(
        axis
        for axis in range(source.ndim)
        if axis < extra or (target.shape[axis - extra] == 1 and source.shape[axis] != 1)
    )
    # Without the summed axes, so that one `sum` serves operands of size 1 there and those without.
    index = (0 if axis + extra in axes else slice(None) for axis in range(target.ndim))
    reduced = target[(*index, ...)]  # the ellipsis makes it a view even where no axis is left
    leading = axes == tuple(range(len(axes)))
    packed = source.flags.c_contiguous and reduced.flags.c_contiguous
    if leading and packed and source.size and reduced.ndim:
        return row_sums(xp, source.reshape(-1, reduced.size), reduced.reshape(-1))
    if xp is np:
        return partial(np.add.reduce, source, axis=axes, out=reduced)
    return partial(source.sum, axis=axes, out=reduced)


def row_sums(xp: Any, rows: Any, target: Any, shares: Any = None) -> Call:
    """A call for target [D] = the sums of rows [N, D], as a product with a vector of ones.

    Args:
        shares: [N], in place of ones.
    """
    # Made while binding, so that a call is the product alone.
    factors = xp.ones(len(rows), rows.dtype) if shares is None else shares
    if xp is np:
        return partial(np.dot, factors, rows, out=target)
    from ...framework.fusion.cuda.cublas import multiply  # without a GPU it is not needed

    return multiply(xp, factors[None], rows, target[None])


def is_read(k: KernelArgs, slot: str) -> bool:
    """Whether anybody reads an output after the kernel ran."""
    plan = getattr(k.frame, "plan", None)
    (name,) = k.op.outputs[slot]
    return plan is None or name in plan.live_out or name in plan.steps.read
