"""Products of factors rounded to bfloat16, with sums in float32.

An option of a plan: bf16 before the other names in OPSCOPE_LIBRARIES. Processors with AMX compute
such a product 3 to 5 times as fast as one of float32, AMD's with AVX512-BF16 twice as fast; each
factor is off by up to 2^-9 of itself. Values between operators, sums and parameters stay float32,
so that a net trains as before. `opscope compare FILE --runtimes opscope bf16` tells the error,
layer by layer.

Where these instructions are no faster than in float32, as on Intel's processors without AMX,
nothing is rounded: the next library computes all products.

Products of at least `LEAST` rows, columns and summands are rounded. The next library computes
smaller ones, the steps of loops, convolutions and stacks of products.

Numbers are rounded where tiles are packed (see `bf16_gemm`), so there are no rounded copies of
whole matrices, and what follows a product takes its rows from the cache.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from ....framework.base.errors import DeviceError
from ....framework.fusion.compiled import native
from ....framework.ir.kernel_args import Call, KernelArgs
from ....framework.ir.registry import Kernel
from ...linear.matmul import OF_ONE_FACTOR, Product
from ..products import blas, mkl, parts

if TYPE_CHECKING:
    from .bf16_products import Tiles

LEAST = 16
"""Rows, columns and summands from which rounding both factors first is worth it."""


def missing() -> str:
    """What this machine lacks for these products; "" where they are there."""
    from . import bf16_gemm  # a program that computes nothing starts without it

    if bf16_gemm.library(bf16_gemm.ONE) is not None:
        return ""
    # Asked of the processor, as a compiler may lack what that one has.
    there = any(one.name == "avx512bf16" for one in native.kinds())
    return "the native library" if there else "a processor with AVX512-BF16"


def product(
    xp: Any,
    a: Any,
    b: Any,
    out: Any,
    *,
    alpha: float = 1.0,
    bias: Any = None,
    by: Any = None,
    shared: Tiles | None = None,
) -> Call:
    """See `matmul.product`; small and empty sizes and unusual strides are served in float32.

    Args:
        shared: of products that `of_one_factor` has made.
    """
    arrays = a, b, out
    how = None
    if min(*out.shape, a.shape[1]) >= LEAST and (bias is None or by is None):
        how = parts.layouts(arrays)
    if how is None or out.dtype != np.float32:
        other = blas.product if mkl.library() is None else mkl.product
        return other(xp, a, b, out, alpha=alpha, bias=bias, by=by)
    factors = alpha, 0.0 if bias is None and by is None else 1.0
    from . import bf16_gemm, bf16_products

    return bf16_products.by_terms(bf16_gemm.ONE, arrays, how, factors, bias, shared)


def _of_one_factor() -> Product:
    from .bf16_products import Tiles

    return partial(product, shared=Tiles())


OF_ONE_FACTOR[product] = _of_one_factor


def stacked(xp: Any, a: Any, b: Any, out: Any) -> Call:
    """See `calls.stacked`: in float32."""
    return (blas.stacked if mkl.library() is None else mkl.stacked)(xp, a, b, out)


def kernel(bind: Callable[..., Call | None], *products: Callable[..., Call]) -> Kernel:
    """The kernel `bind` with such products; loops prepare their weights, and have others.

    Raises:
        DeviceError: when it is bound, that the machine lacks something for it.
    """

    def with_bf16(k: KernelArgs) -> Call | None:
        if missing():
            raise DeviceError(
                f"OPSCOPE_LIBRARIES names bf16, and this machine lacks {missing()}: leave bf16 out"
            )
        from . import bf16_gemm

        # Steps of loops are left to the kernels that pack their weights before it.
        if k.prepared is not None or not bf16_gemm.is_faster():
            return None
        return bind(k, *products)

    return with_bf16
