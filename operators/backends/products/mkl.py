"""Intel's MKL through ctypes: products of two matrices, as in `matmul.product`.

MKL generates code for one shape (`mkl_jit_create_sgemm`) and returns a function of four pointers.
Such a call is cheap, and on one thread it is faster than NumPy's OpenBLAS: 2.6 times for 256x512 by
512x10, 1.2 times for 32x64 by 64x32 and for 256x784 by 784x512. For large shapes MKL generates no
code, and the same function calls the ordinary product.
"""

from __future__ import annotations

import ctypes
import functools
import logging
import os
from collections.abc import Callable
from functools import partial
from typing import Any

from ....framework.base.cpu.cores import is_intel
from ....framework.base.cpu.numpy_blas import controllers
from ....framework.base.cpu.threads import most_threads
from ....framework.base.dtypes import NAMES
from ....framework.base.machine import installed
from ....framework.fusion import team
from ....framework.fusion.team import in_order
from ....framework.ir.kernel_args import Call, KernelArgs
from ....framework.ir.registry import Kernel
from . import blas, parts

_log = logging.getLogger(__name__)

_ROW_MAJOR, _NO_TRANSPOSE = 101, 111  # as in cblas.h; one more: column major, transposed
_SEQUENTIAL = 1  # as in mkl_service.h
_JIT_ERROR = 2  # as in mkl_types.h
_SHARED = 1 << 22
"""Multiplications from which threads are worth waking for a product."""
_LARGE = 1 << 25
"""Multiplications for each thread from which a product is left to NumPy's library where the
processor is not Intel's: MKL generates no code for it, and its ordinary product is slower there
(the gradient of a TDNN, on two cores of an EPYC, takes 0.39 s by OpenBLAS and 0.62 s by MKL; on two
of a Xeon OpenBLAS takes 1.1 times as long as MKL)."""
_NARROW, _PIECE = 160, 96
"""Columns up to which a product with a transposed first factor (a gradient of weights) is cut along
its inner dimension, and the length of a piece: MKL takes 5.3 ms for the whole of 1024x1920 by
1920x104, and 2.9 ms for its pieces; from 192 columns on the whole is as fast."""
_PANEL, _RAGGED = 16, 1 << 14
"""Columns of which MKL takes whole multiples well where the processor is not Intel's: of others its
code loses to OpenBLAS, on one core of an EPYC 18 to 9 us for 300x64 by 64x10, 133 to 14 us for the
transposed 256x256 by 256x10, and 1.1 to 1.3 times for 50 and 100 columns. Multiplications from
which it matters."""
_TYPES = {"float32": ("s", ctypes.c_float), "float64": ("d", ctypes.c_double)}


@functools.cache
def library() -> Any:
    """MKL's run-time library, from the PyPI package `mkl`; None where that is not installed.

    Each call computes on one thread: large products are cut into parts for the pool that compiled
    loops use as well (native/pool.h). MKL's own threads would wait for each other, and stand in
    the way of those. Where NumPy computes with the same library it is left to NumPy.
    """
    of_numpy = {os.path.realpath(one.filepath) for one in controllers()}
    for path in installed.files("mkl") or []:
        if not os.path.basename(path).startswith(("libmkl_rt.", "mkl_rt.")):
            continue
        # One copy of the library in a process has one number of threads: NumPy's would be set to 1,
        # too.
        if os.path.realpath(path) in of_numpy:
            continue
        try:
            mkl = ctypes.CDLL(path)
            for needed in ("mkl_cblas_jit_create_sgemm", "MKL_Set_Num_Threads"):
                getattr(mkl, needed)  # an older MKL has none of that name
        except (OSError, AttributeError) as error:
            _log.warning("MKL is installed but not usable: %s", error)
            continue
        if "MKL_THREADING_LAYER" not in os.environ:
            mkl.MKL_Set_Threading_Layer(_SEQUENTIAL)
        mkl.MKL_Set_Num_Threads(1)
        return mkl
    return None


class Gemm:
    """MKL's code for c = alpha op(a) op(b) + beta c of one shape: `function(handle, a, b, c)`.

    Attributes:
        handle: the first argument. function: callable; its code begins at `address`.

    Args:
        transposed: whether a and b are stored transposed. factors: alpha and beta.
        sizes: m, n, k and the distance of the rows of a, b and c.
    """

    def __init__(
        self,
        dtype: str,
        transposed: tuple[int, int],
        factors: tuple[float, float],
        sizes: tuple[int, ...],
    ) -> None:
        letter, scalar = _TYPES[dtype]
        mkl = library()
        handle = ctypes.c_void_p()
        create = getattr(mkl, f"mkl_cblas_jit_create_{letter}gemm")
        (alpha, beta), (m, n, k, lda, ldb, ldc) = factors, sizes
        status = create(
            ctypes.byref(handle),
            _ROW_MAJOR,
            *(_NO_TRANSPOSE + flag for flag in transposed),
            *(ctypes.c_int(size) for size in (m, n, k)),
            scalar(alpha),
            *(ctypes.c_int(step) for step in (lda, ldb)),
            scalar(beta),
            ctypes.c_int(ldc),
        )
        if status == _JIT_ERROR or not handle.value:
            raise MemoryError(f"MKL makes no product of {m}x{k} and {k}x{n}")
        get = getattr(mkl, f"mkl_jit_get_{letter}gemm_ptr")
        get.argtypes = (ctypes.c_void_p,)
        get.restype = ctypes.c_void_p
        prototype = ctypes.CFUNCTYPE(None, *(ctypes.c_void_p,) * 4)
        self.handle = handle.value
        self.address = get(handle)
        self.function = prototype(self.address)
        self._destroy = partial(mkl.mkl_jit_destroy, handle)  # no name of a module, for the end

    def __del__(self) -> None:
        if hasattr(self, "_destroy"):
            self._destroy()


_gemm = functools.lru_cache(maxsize=512)(Gemm)


def make_gemm(
    dtype: str, transposed: tuple[int, int], factors: tuple[float, float], sizes: tuple[int, ...]
) -> Gemm:
    """A `Gemm`, or the one that was made before for the same arguments."""
    return _gemm(dtype, transposed, factors, sizes)


def product(
    xp: Any, a: Any, b: Any, out: Any, *, alpha: float = 1.0, bias: Any = None, by: Any = None
) -> Call:
    """See `matmul.product`; `blas.product` serves large sizes, no elements, unusual strides."""
    beta = 0.0 if bias is None and by is None else 1.0
    call = None
    if a.size and b.size and (bias is None or by is None):
        call = _bind((a, b, out), (alpha, beta), bias)
    return call or blas.product(xp, a, b, out, alpha=alpha, bias=bias, by=by)


def kernel(bind: Callable[..., Call | None], *products: Callable[..., Call]) -> Kernel:
    """The kernel `bind` with MKL's products; it declines where there is no MKL.

    Args:
        bind: called with the kernel's arguments and functions that make products.
        products: those functions.
    """

    def with_mkl(k: KernelArgs) -> Call | None:
        return None if library() is None else bind(k, *products)

    return with_mkl


def stacked(xp: Any, a: Any, b: Any, out: Any) -> Call:
    """See `calls.stacked`; products of small matrices are shared between threads one by one."""
    call = None
    if NAMES[out.dtype] in _TYPES:
        call = parts.stacked(_gemm, _LARGE, a, b, out)
    return call or blas.stacked(xp, a, b, out)


def _bind(arrays: parts.Arrays, factors: tuple[float, float], bias: Any) -> Call | None:
    a, _, out = arrays
    how = parts.layouts(arrays)
    if how is None or NAMES[out.dtype] not in _TYPES:
        return None
    from . import row_products  # loaded by what computes

    task = row_products.first_way(arrays, how, factors, bias, library())
    if task is not None:
        return task
    work = out.size * a.shape[1]
    threads = most_threads()
    teams = team.library() is not None
    if threads > 1 and work >= (_largest(threads) if teams else _SHARED):
        return None
    if teams and work >= _RAGGED and _is_ragged(out):
        return parts.product(blas.make_gemm, arrays, how, factors, bias)[-1]
    narrow = how[0] == (1, 0) and out.shape[1] <= _NARROW and a.shape[1] >= 2 * _PIECE
    if teams and narrow:
        return _in_pieces(arrays, how, factors, bias)
    if not teams:
        gemm, addresses = parts.one(_gemm, arrays, how, factors)
        return in_order(*parts.copying_bias(out, bias, _GemmCall(gemm, addresses, arrays)))
    gemms, addresses, task = parts.product(_gemm, arrays, how, factors, bias)
    if len(gemms) == 1 and bias is None and isinstance(gemms[0], Gemm):
        return team.with_task(_GemmCall(gemms[0], addresses[0], arrays), task)
    return task


def _is_ragged(out: Any) -> bool:
    """Whether a result has columns for which OpenBLAS is the faster one."""
    columns = out.shape[1]
    return not is_intel() and columns > 1 and columns % _PANEL > 0 and blas.library() is not None


def _largest(threads: int) -> float:
    """Multiplications from which NumPy's library is the faster one."""
    return float("inf") if is_intel() else threads * _LARGE


def _in_pieces(
    arrays: parts.Arrays, how: parts.Layouts, factors: tuple[float, float], bias: Any
) -> team.ParallelTask:
    """The product over pieces of the inner dimension, each added to those before it."""
    a, b, out = arrays
    tasks: list[team.ParallelTask] = []
    for at in range(0, len(b), _PIECE):
        piece = a[:, at : at + _PIECE], b[at : at + _PIECE], out
        tasks.append(parts.product(_gemm, piece, how, factors, bias)[-1])
        # The first piece begins with the bias or what is there, the others add to it.
        factors = (factors[0], 1.0)
        bias = None
    return parts.in_turn(tasks)


class _GemmCall(partial[Any]):
    """A call of generated code; `memory` lives as long as its addresses are in use."""

    memory: Any

    def __new__(cls, gemm: Any, addresses: tuple[int, ...], arrays: parts.Arrays) -> _GemmCall:
        new = super().__new__(cls, gemm.function, *addresses)
        new.memory = gemm, arrays
        return new
