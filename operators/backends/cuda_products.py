"""Products by cuBLASLt (library "cuda"), with a bias or its gradient in the same kernel."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from ...framework.base.sizes.shape import count
from ...framework.fusion import cublas
from ...framework.fusion.device_lists import standing_for, work_of
from ...framework.fusion.team import in_order
from ...framework.ir.kernel_args import Call, KernelArgs
from ...framework.ir.registry import lookup
from ..linear.matmul import (
    as_rows,
    bind_affine,
    bind_affine_grad,
    bind_matmul,
    bind_matmul_grad,
)
from ..linear.matmul import product as _cupy_product


def product(
    xp: Any, a: Any, b: Any, out: Any, *, alpha: float = 1.0, bias: Any = None, by: Any = None
) -> Call:
    """See `matmul.product`, which serves what cuBLASLt does not take."""
    plain = _cupy_product(xp, a, b, out, alpha=alpha, bias=bias, by=by)
    factors: dict[str, Any] = {"alpha": alpha, "adds": by is not None}
    call = cublas.product(xp, a, b, out, bias=bias, **factors)
    if call is None and bias is not None:  # float64 has no epilogues
        bare = cublas.product(xp, a, b, out, **factors)
        call = bare and in_order(bare, partial(xp.add, out, bias, out))
    work = work_of(plain)
    if call is None:
        return plain
    return call if work is None else standing_for(call, work)


def affine_grad(k: KernelArgs) -> Call | None:
    """One product makes the gradients of weight and bias."""
    w_grad, b_grad = k.get("w_grad"), k.get("b_grad")
    if w_grad is None or b_grad is None:
        return bind_affine_grad(k, product)
    inner, columns = k["w"].shape
    rows = count(k.shape("out_grad")[:-1])
    grad, load_grad = as_rows(k, k["out_grad"], rows, columns)
    x, load_x = as_rows(k, k["x"], rows, inner)
    both = cublas.product(k.xp, x.T, grad, w_grad, sums=b_grad)
    if both is None:
        return bind_affine_grad(k, product)
    calls: list[Call] = [*load_grad, *load_x, both]
    if k.get("x_grad") is not None:
        x_grad, store = as_rows(k, k["x_grad"], rows, inner, write=True)
        calls += [product(k.xp, grad, k["w"].T, x_grad), *store]
    return in_order(*calls)


for _type, _bind in {
    "matmul": partial(bind_matmul, product=product, stacked=cublas.multiply),
    "matmul_grad": partial(bind_matmul_grad, product=product, stacked=cublas.multiply),
    "affine": partial(bind_affine, product=product),
    "affine_grad": affine_grad,
}.items():
    lookup(_type).kernel(_bind, device="gpu", dtypes=(np.float32, np.float64), library="cuda")
