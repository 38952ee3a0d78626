"""NumPy's OpenBLAS, called on one thread by each thread of a team.

OpenBLAS's own threads wait for each other awake: beside a busy process, or in a container that may
use fewer cores than the machine has, a product can take tens of times as long as on one thread.
Here large products are cut into parts for the threads that compiled loops use as well, whose number
follows the machine (framework/base/threads.py). Small ones, for which OpenBLAS takes one thread
anyway, are left to NumPy, and so is everything where there is no C compiler.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy as np

from ...framework.base.cpu.numpy_blas import OpenBlas
from ...framework.base.cpu.threads import follow_by_numpy
from ...framework.fusion import team
from ...framework.fusion.compiler import Library
from ...framework.ir.kernel_args import Call
from ..base import calls as _calls
from ..linear import matmul
from . import parts

_ALONE = 1 << 18
"""Multiplications up to which OpenBLAS takes one thread (its interface/gemm.c)."""
_ALONE_VECTOR = 9216
"""The same of a product with a vector (its interface/gemv.c)."""
_SMALL = 1 << 14
"""Multiplications below which no way of our own is looked for."""
_LETTERS = {"float32": "s", "float64": "d"}
_HANDLE = 11  # words, of which the last two are alpha and beta

_SOURCE = """\
typedef int64_t word;
/* function, transposed a and b, m, n, k, lda, ldb, ldc; then alpha and beta as doubles */
#define GEMM(name, T, I)                                                                       \\
  EXPORT void opscope_##name(const word *h, const T *a, const T *b, T *c) {                    \\
    const double *factors = (const double *)(h + 9);                                           \\
    ((void (*)(int, int, int, I, I, I, T, const T *, I, const T *, I, T, T *, I))h[0])(        \\
        101, 111 + h[1], 111 + h[2], h[3], h[4], h[5], factors[0], a, h[6], b, h[7],           \\
        factors[1], c, h[8]);                                                                  \\
  }
GEMM(s64, float, int64_t)
GEMM(d64, double, int64_t)
GEMM(s32, float, int32_t)
GEMM(d32, double, int32_t)
"""


class _Products(NamedTuple):
    """NumPy's OpenBLAS, and the functions that call its product with the addresses of a part."""

    blas: OpenBlas
    code: Library


@functools.cache
def library() -> _Products | None:
    """NumPy's OpenBLAS for the threads of a team; None where NumPy has another BLAS, or there is
    no C compiler. What NumPy computes itself then follows the number of threads."""
    found = _open()
    if found is None:
        follow_by_numpy(always=True)
    return found


def _open() -> _Products | None:
    if team.library() is None:
        return None
    code, found = team.load(_SOURCE), team.hold_blas()
    return None if code is None or found is None else _Products(found, code)


class Gemm:
    """A product of OpenBLAS as a function of four addresses; see `parts.Gemm`."""

    def __init__(
        self,
        dtype: str,
        transposed: tuple[int, int],
        factors: tuple[float, float],
        sizes: tuple[int, ...],
    ) -> None:
        found = library()
        assert found is not None, "the caller has seen that it is there"
        self._words = np.zeros(_HANDLE, np.int64)
        self._words[:-2] = found.blas.gemm[dtype], *transposed, *sizes
        self._words[-2:].view(np.float64)[:] = factors
        self.handle = self._words.ctypes.data
        self.address = found.code.address(f"opscope_{_LETTERS[dtype]}{found.blas.bits}")


_gemm = functools.lru_cache(maxsize=512)(Gemm)


def make_gemm(
    dtype: str, transposed: tuple[int, int], factors: tuple[float, float], sizes: tuple[int, ...]
) -> Gemm:
    """A `Gemm`, or the one that was made before for the same arguments."""
    return _gemm(dtype, transposed, factors, sizes)


def product(
    xp: Any, a: Any, b: Any, out: Any, *, alpha: float = 1.0, bias: Any = None, by: Any = None
) -> Call:
    """See `matmul.product`, which serves elsewhere: small sizes, unusual strides."""
    large = _worth_it(a, b, out)
    ours = large or out.size * a.shape[1] >= _SMALL
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
                return team.run_together([task])
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
