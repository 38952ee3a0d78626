"""Sums of a matrix over its rows (gradients of biases) that the threads of a team share.

Beside the product with a vector of ones that serves for large matrices, such a sum can stand in one
list with the products of a gradient.
"""

from __future__ import annotations

from typing import Any

from ...framework.fusion import team
from ...framework.fusion.compiled import native
from ...framework.ir.kernel_args import Call, KernelArgs
from ..base.calls import lies_in_rows
from ..linear import matmul

_SMALL = 1 << 14
"""Elements up to which a library's product takes longer to be called than it saves."""


def small_sum(k: KernelArgs, grad: Any, target: Any, *, multiply: matmul.Product) -> Call:
    """A call for target = grad summed over its rows: of a small matrix by `sum_of_rows`."""
    if grad.size <= _SMALL and target.size:
        return sum_of_rows(k, grad, target)
    return matmul.sum_of_rows(k, grad, target, multiply)


def sum_of_rows(k: KernelArgs, grad: Any, target: Any) -> Call:
    """A call for target = grad summed over its rows, which a team can run; see `matmul`."""
    suited = lies_in_rows(grad) and grad.dtype == target.dtype and target.flags.c_contiguous
    if not suited or native.typed("column_sums", grad.dtype) is None:
        return matmul.sum_of_rows(k, grad, target)
    rows, columns = grad.shape
    block = native.bind(
        "column_sums", grad.dtype, "sums", rows=rows, columns=columns, x=grad, out=target
    )
    return team.block_task(2 * grad.size, block)
