"""NumPy's OpenBLAS, called on one thread by each thread of a team.

OpenBLAS's own threads wait for each other awake: beside a busy process, or in a container that may
use fewer cores than the machine has, a product can take tens of times as long as on one thread.
Here large products are cut into parts for the threads that compiled loops use as well, whose number
follows the machine (framework/base/cpu/threads.py). Small ones, for which OpenBLAS takes one thread
anyway, are left to NumPy, and so is everything where there is no native library. Where NumPy has
no BLAS at all, as in WebAssembly, packed_gemm.py computes products.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from ....framework.base.cpu import numpy_blas
from ....framework.base.cpu.numpy_blas import OpenBlas
from ....framework.base.cpu.threads import follow_by_numpy
from ....framework.fusion import team
from ....framework.fusion.compiled import native
from ....framework.ir.kernel_args import Call
from ...base import calls as _calls
from ...linear import matmul
from . import parts

_ALONE = 1 << 18
"""Multiplications up to which OpenBLAS takes one thread (its interface/gemm.c)."""
_ALONE_VECTOR = 9216
"""The same of a product with a vector (its interface/gemv.c)."""
_SMALL = 1 << 14
"""Multiplications below which no way of our own is looked for."""
_LETTERS = {"float32": "s", "float64": "d"}


@functools.cache
def library() -> OpenBlas | None:
    """NumPy's OpenBLAS for the threads of a team; None where NumPy has another BLAS, or there is
    no native library. What NumPy computes itself then follows the number of threads."""
    blas = None if native.typed("blas", np.float32) is None else team.hold_blas()
    if blas is None:
        # Products are left to NumPy then, and its threads should follow the load as ours do.
        follow_by_numpy(always=True)
    return blas


@functools.lru_cache(maxsize=512)
def _gemm(
    dtype: str, transposed: tuple[int, int], factors: tuple[float, float], sizes: tuple[int, ...]
) -> parts.NativeGemm:
    """A product of OpenBLAS as a function of four addresses; see `parts.Gemm`."""
    blas = library()
    assert blas is not None, "the caller has seen that it is there"
    name = f"blas_product{blas.bits}"
    function = blas.gemm[dtype]
    return parts.NativeGemm("blas", name, dtype, transposed, factors, sizes, function=function)


def make_gemm(
    dtype: str, transposed: tuple[int, int], factors: tuple[float, float], sizes: tuple[int, ...]
) -> parts.NativeGemm:
    """A product of OpenBLAS, or the one that was made before for the same arguments."""
    return _gemm(dtype, transposed, factors, sizes)


def product(
    xp: Any, a: Any, b: Any, out: Any, *, alpha: float = 1.0, bias: Any = None, by: Any = None
) -> Call:
    """See `matmul.product`, which serves elsewhere: small sizes, unusual strides."""
    large = _worth_it(a, b, out)
    ours = large or out.size * a.shape[1] >= _SMALL
    # A bias beside a matrix that is added wants two passes: the reference has them.
    if (bias is None or by is None) and ours and library() is not None:
        arrays = a, b, out
        how = parts.layouts(arrays)
        if how is not None and out.dtype.name in _LETTERS:
            factors = alpha, 0.0 if bias is None and by is None else 1.0
            from . import row_products, vector_products  # loaded by what computes

            if large:
                task = row_products.first_way(arrays, how, factors, bias, None)
                task = task or parts.product(_gemm, arrays, how, factors, bias)[-1]
            else:
                task = vector_products.few_rows(arrays, how, factors, bias)
            if task is not None:
                return task
    if ours and not numpy_blas.is_there():
        from . import packed_gemm  # most machines have a BLAS, and programs start faster without it

        task = packed_gemm.packed_each_time(a, b, out, alpha, bias, by)
        if task is not None:
            return task
    return matmul.product(xp, a, b, out, alpha=alpha, bias=bias, by=by)


def stacked(xp: Any, a: Any, b: Any, out: Any) -> Call:
    """See `_calls.stacked`; products of small matrices are shared between threads one by one."""
    call = None
    if out.dtype.name in _LETTERS and out.size * a.shape[-1] > _ALONE and library() is not None:
        call = parts.stacked(_gemm, None, a, b, out)
    return call or _calls.stacked(xp, a, b, out)


def _worth_it(a: Any, b: Any, out: Any) -> bool:
    """Whether NumPy would use threads of OpenBLAS, if there were any."""
    most = _ALONE_VECTOR if min(out.shape) == 1 else _ALONE
    return out.size * a.shape[1] > most
