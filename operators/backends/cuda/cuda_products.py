"""Products by cuBLASLt (library "cuda"), with a bias or its gradient in the same kernel."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from ....framework.base.dtypes import HALVES
from ....framework.base.sizes.shape import count
from ....framework.fusion.cuda import cublas
from ....framework.fusion.cuda.device_kernels import takes
from ....framework.fusion.cuda.device_lists import standing_for, work_of
from ....framework.fusion.team import in_order
from ....framework.ir.kernel_args import Call, KernelArgs
from ....framework.ir.registry import lookup
from ...attention.dot_product import bind_attention, bind_attention_grad
from ...base.calls import copying
from ...linear.matmul import (
    as_rows,
    bind_affine,
    bind_affine_grad,
    bind_matmul,
    bind_matmul_grad,
)
from ...linear.matmul import product as _cupy_product
from .cuda_rows import masked_softmax, through_softmax


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


def stacked(k: KernelArgs) -> Callable[[Any, Any, Any, Any], Call]:
    """`cublas.multiply`, with copies of matrices that lie as cuBLASLt does not take them: heads
    that lie side by side in a row."""

    def multiply(xp: Any, a: Any, b: Any, out: Any) -> Call:
        lead = out.shape[:-2]
        lying = [
            one if cublas.takes(one, lead) else k.scratch(one.shape, one.dtype)
            for one in (a, b, out)
        ]
        call = cublas.product(xp, *lying)
        if call is None:
            return partial(xp.matmul, a, b, out=out)
        pairs = zip(lying[:2], (a, b), strict=True)
        loads = [copying(xp, one, held) for held, one in pairs if held is not one]
        return in_order(*loads, call, None if lying[2] is out else copying(xp, lying[2], out))

    return multiply


def attention(k: KernelArgs) -> Call | None:
    plain = takes(k.get("weights"))
    return bind_attention(k, stacked(k), masked_softmax) if plain else None


def attention_grad(k: KernelArgs) -> Call | None:
    plain = takes(k["weights"])
    return bind_attention_grad(k, stacked(k), through_softmax) if plain else None


_FLOATS = (np.float32, np.float64)
for _type, _bind in {
    "matmul": partial(bind_matmul, product=product, stacked=cublas.multiply),
    "matmul_grad": partial(bind_matmul_grad, product=product, stacked=cublas.multiply),
    "affine": partial(bind_affine, product=product),
    "affine_grad": affine_grad,
    "scaled_dot_product_attention": attention,
    "scaled_dot_product_attention_grad": attention_grad,
}.items():
    _halves = () if "attention" in _type else HALVES
    lookup(_type).kernel(_bind, device="gpu", dtypes=(*_FLOATS, *_halves), library="cuda")
