"""Products of factors rounded to bfloat16, with sums in float32.

An option of a plan: bf16 before the other names in OPSCOPE_LIBRARIES. Processors with AMX compute
such a product 3 to 5 times as fast as one of float32; each factor is off by up to 2^-9 of itself.
Values between operators, sums and parameters stay float32, so that a net trains as before.
`opscope compare FILE --runtimes opscope bf16` tells the error, layer by layer.

Products of at least `LEAST` rows, columns and summands are rounded. Smaller ones, the steps of
loops, convolutions and stacks of products are those of the next library.

With AMX they are our own: numbers are rounded where tiles are packed (see `bf16_gemm`), so there are
no rounded copies of whole matrices, and what follows a product takes its rows from the cache.
Processors that have AVX512-BF16 alone, and those where OPSCOPE_AMX is off, have MKL's, of copies.

Source: Intel oneMKL, cblas_gemm_bf16bf16f32; the format is that of the upper half of a float32.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from ...framework.base.errors import DeviceError
from ...framework.fusion import native, team
from ...framework.fusion.libraries import address
from ...framework.ir.kernel_args import Call, KernelArgs
from ...framework.ir.registry import Kernel
from . import blas, mkl, parts

LEAST = 16
"""Rows, columns and summands from which rounding both factors first is worth it."""
_HANDLE = 13  # words, of which the last two are alpha and beta


def missing() -> str:
    """What this machine lacks for these products; "" where they are there."""
    return "" if _by_tiles() else _missing_for_mkls()


def _by_tiles() -> bool:
    """Whether AMX is there."""
    from . import bf16_gemm  # a program that computes nothing starts without it

    return bf16_gemm.library(bf16_gemm.ONE) is not None


@functools.cache
def _missing_for_mkls() -> str:
    if mkl.library() is None or not hasattr(mkl.library(), "cblas_gemm_bf16bf16f32"):
        return "the package mkl"
    if native.load("bf16") is None:
        return "the native library"
    # Asked of the processor, as MKL computes such products on any, by slow ways.
    there = any(one.name == "avx512bf16" for one in native.kinds())
    return "" if there else "a processor with AVX512-BF16"


class Gemm:
    """MKL's product of rounded factors as a function of four addresses; see `parts.Gemm`.

    Attributes:
        room: bytes of memory for both factors, rounded, which it wants before it is called.
    """

    def __init__(
        self,
        dtype: str,
        transposed: tuple[int, int],
        factors: tuple[float, float],
        sizes: tuple[int, ...],
    ) -> None:
        from ...framework.runtime.plans.memory import padded

        assert dtype == "float32", "registered for it alone"
        code = native.load("bf16")
        assert code is not None, "the caller has seen that it is there"
        m, n, k = sizes[:3]
        self._split, self.room = padded(2 * m * k), padded(2 * m * k) + padded(2 * k * n)
        self._memory: Any = None
        self._words = np.zeros(_HANDLE, np.int64)
        function = address(mkl.library()["cblas_gemm_bf16bf16f32"])
        self._words[:-4] = function, *transposed, *sizes
        self._words[-2:].view(np.float64)[:] = factors
        self.handle = self._words.ctypes.data
        self.address = code.address("bf16_product")

    def put_at(self, memory: Any) -> None:
        """Takes memory, for which nobody else has a use while the product runs."""
        self._memory = memory
        self._words[-4] = memory.ctypes.data
        self._words[-3] = memory.ctypes.data + self._split


def product(
    xp: Any, a: Any, b: Any, out: Any, *, alpha: float = 1.0, bias: Any = None, by: Any = None
) -> Call:
    """See `matmul.product`; small and empty sizes and unusual strides are served in float32."""
    arrays = a, b, out
    how = None
    if min(*out.shape, a.shape[1]) >= LEAST and (bias is None or by is None):
        how = parts.layouts(arrays)
    if how is None or out.dtype != np.float32:
        other = blas.product if mkl.library() is None else mkl.product
        return other(xp, a, b, out, alpha=alpha, bias=bias, by=by)
    factors = alpha, 0.0 if bias is None and by is None else 1.0
    if _by_tiles():
        from . import bf16_gemm, bf16_products

        return team.run_together(
            [bf16_products.by_terms(bf16_gemm.ONE, arrays, how, factors, bias)]
        )
    return team.run_together([_by_mkl(arrays, how, factors, bias)])


def _by_mkl(
    arrays: parts.Arrays, how: parts.Layouts, factors: tuple[float, float], bias: Any
) -> team.ParallelTask:
    """The product in parts that run side by side, each with rounded copies of what it reads.

    The copies of all products of a frame share memory, as packed factors do.
    """
    from ...framework.runtime.plans.memory import panel_memory

    gemms, _, task = parts.product(Gemm, arrays, how, factors, bias)
    memory = panel_memory(sum(gemm.room for gemm in gemms))
    for gemm in gemms:
        gemm.put_at(memory[: gemm.room])
        memory = memory[gemm.room :]
    return task


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
        # Steps of loops are left to the kernels that pack their weights before it.
        return None if k.prepared is not None else bind(k, *products)

    return with_bf16
