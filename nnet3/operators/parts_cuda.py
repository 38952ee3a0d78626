"""Spliced rows, scaled gradients and the linear objective in CUDA (library "cuda")."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...framework.fusion.cuda.cublas import multiply
from ...framework.fusion.cuda.device_kernels import (
    by_blocks,
    cuda_text,
    elementwise,
    few_blocks,
    pointers,
    takes,
)
from ...framework.fusion.team import in_order
from ...framework.ir.kernel_args import Call, KernelArgs


def splice_rows(k: KernelArgs) -> Call | None:
    x, out, a = k["x"], k["out"], k.attrs
    if not out.size or not x.size or not takes(x, out):
        return None
    first = [*(a["first"] or (0,)), *([-1] if a["ones"] else [])]
    stride = a["stride"] if a["first"] else 1
    numbers = out.size, x.shape[1], out.shape[1], stride
    given = x, out, k.xp.asarray(np.array(first, np.int64)), *map(np.int64, numbers)
    return elementwise(k.xp, cuda_text("parts"), "splice_rows", x.dtype, out.size, given)


def scaled_parts(k: KernelArgs) -> Call | None:
    x, parts = k["x"], [k["w_grad"], k.get("b_grad")]
    return _scaled(k, x, *parts) if x.size and takes(x, *parts) else None


def scaled_product(k: KernelArgs) -> Call | None:
    """One product with all columns of x; the last may belong to the bias."""
    grad, x, w_grad, b_grad = (k.get(slot) for slot in ("grad", "x", "w_grad", "b_grad"))
    if x is None or w_grad is None or not (grad.size and x.size) or not takes(w_grad, b_grad):
        return None
    whole = k.scratch((grad.shape[1], x.shape[1]), w_grad.dtype)
    return in_order(multiply(k.xp, grad.T, x, whole), _scaled(k, whole, w_grad, b_grad))


def _scaled(k: KernelArgs, x: Any, w_grad: Any, b_grad: Any) -> Call:
    scales = k.list("scale")
    numbers = x.size, x.shape[1], len(scales)
    given = x, pointers(k.xp, scales), w_grad, b_grad, *map(np.int64, numbers)
    return elementwise(k.xp, cuda_text("parts"), "scaled_parts", x.dtype, x.size, given)


def linear_objective(k: KernelArgs) -> Call | None:
    output = k["output"]
    arrays = output, k["supervision"], k["deriv"]
    if not output.size or not takes(*arrays):
        return None
    blocks = few_blocks(output.size)
    parts, counter = k.scratch((2 * blocks,), np.float64), k.xp.zeros(1, np.int64)
    given = *arrays, k["totals"], parts, counter, np.int64(output.size)
    return by_blocks(k.xp, cuda_text("parts"), "linear_objective", output.dtype, blocks, given)
