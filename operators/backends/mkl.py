"""Intel's MKL through ctypes: products of two matrices, as in `matmul.product`.

MKL generates code for one shape (`mkl_jit_create_sgemm`) and returns a function of four pointers.
Such a call is cheap, and on one thread it is faster than NumPy's OpenBLAS: 2.6 times for 256x512 by
512x10, 1.2 times for 32x64 by 64x32 and for 256x784 by 784x512. For large shapes MKL generates no
code, and the same function calls the ordinary product.
"""

from __future__ import annotations

import ctypes
import functools
import importlib.metadata
import logging
import os
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from ...framework.fusion import team
from ...framework.fusion.compiler import load_openmp
from ...framework.fusion.team import in_order
from ...framework.ir.kernel_args import Call, KernelArgs
from ...framework.ir.registry import Kernel
from ..base import calls as _calls
from ..linear import matmul

_log = logging.getLogger(__name__)

_ROW_MAJOR, _NO_TRANSPOSE = 101, 111  # as in cblas.h; one more: column major, transposed
_GNU_THREADS = 3  # as in mkl_service.h
_JIT_ERROR = 2  # as in mkl_types.h
_LARGEST = 2**31 - 1
_SHARED = 1 << 22
"""Multiplications from which threads are worth waking for a product."""
_LARGE = 1 << 25
"""Multiplications for each thread from which a product is left to NumPy's library, which then
shares it out better: the gradient of a TDNN, on two cores of an EPYC, takes 0.39 s by OpenBLAS and
0.62 s by MKL's ordinary product; on one they are equal."""
_CUT = 1 << 18
"""Multiplications from which a product is cut into parts, for a team of threads that is awake."""
_NARROWEST, _FEWEST, _LANES = 64, 8, 16
"""Columns and rows that a part has at least; its columns are a multiple of the last."""
_TYPES = {"float32": ("s", ctypes.c_float), "float64": ("d", ctypes.c_double)}


@functools.cache
def library() -> Any:
    """MKL's run-time library, from the PyPI package `mkl`; None where that is not installed.

    It shares GNU's thread pool with compiled loops. MKL itself follows OMP_NUM_THREADS,
    MKL_NUM_THREADS and threadpoolctl.
    """
    try:
        files = importlib.metadata.files("mkl") or []
    except importlib.metadata.PackageNotFoundError:
        return None
    paths = [str(f.locate()) for f in files if f.name.startswith(("libmkl_rt.", "mkl_rt."))]
    for path in paths:
        try:
            found = ctypes.CDLL(path)
            for needed in ("mkl_cblas_jit_create_sgemm", "MKL_Set_Num_Threads"):
                getattr(found, needed)  # an older MKL has none of that name
        except (OSError, AttributeError) as error:
            _log.warning("MKL is installed but not usable: %s", error)
            continue
        if "MKL_THREADING_LAYER" not in os.environ and load_openmp():
            found.MKL_Set_Threading_Layer(_GNU_THREADS)
        if hasattr(os, "register_at_fork"):  # the pool's threads do not survive a fork
            os.register_at_fork(after_in_child=partial(found.MKL_Set_Num_Threads, 1))
        return found
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
        mkl, handle = library(), ctypes.c_void_p()
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
        get.argtypes, get.restype = (ctypes.c_void_p,), ctypes.c_void_p
        prototype = ctypes.CFUNCTYPE(None, *(ctypes.c_void_p,) * 4)
        self.handle = handle.value
        self.address = get(handle)
        self.function = prototype(self.address)
        self._destroy = mkl.mkl_jit_destroy

    def __del__(self) -> None:
        if hasattr(self, "_destroy"):
            self._destroy(ctypes.c_void_p(self.handle))


_gemm = functools.lru_cache(maxsize=512)(Gemm)


def product(
    xp: Any, a: Any, b: Any, out: Any, *, alpha: float = 1.0, bias: Any = None, by: Any = None
) -> Call:
    """See `matmul.product`, which serves elsewhere: large sizes, no elements, unusual strides."""
    beta = 0.0 if bias is None and by is None else 1.0
    call = None
    if a.size and b.size and (bias is None or by is None):
        call = _bind((a, b, out), (alpha, beta), bias)
    return call or matmul.product(xp, a, b, out, alpha=alpha, bias=bias, by=by)


def kernel(bind: Callable[..., Call | None], multiply: Callable[..., Call] = product) -> Kernel:
    """The kernel `bind` with MKL's product; it declines where there is no MKL.

    Args:
        bind: called with the kernel's arguments and a function that makes products.
        multiply: that function.
    """

    def with_mkl(k: KernelArgs) -> Call | None:
        return None if library() is None else bind(k, multiply)

    return with_mkl


def stacked(xp: Any, a: Any, b: Any, out: Any) -> Call:
    """See `_calls.stacked`; products of small matrices are shared between threads one by one."""
    lead = out.shape[:-2]
    a, b = (np.broadcast_to(x, (*lead, *x.shape[-2:])) for x in (a, b))
    arrays = a, b, out
    call = None
    if out.size and a.size and team.library() is not None:
        call = _bind_stacks(arrays, list(np.ndindex(lead)))
    return call or _calls.stacked(xp, *arrays)


def _bind_stacks(arrays: tuple[Any, Any, Any], places: list[tuple[int, ...]]) -> Call | None:
    first = tuple(array[places[0]] for array in arrays)
    layouts = [found for array in first if (found := _layout(array)) is not None]
    if len(layouts) < 3 or layouts[2][0] or len({array.dtype for array in arrays}) > 1:
        return None
    (transpose_a, lda), (transpose_b, ldb), (_, ldc) = layouts
    (m, k), n = first[0].shape, first[1].shape[1]
    if m * n * k >= _LARGE or max(m, n, k, lda, ldb, ldc) > _LARGEST:
        return None
    gemm = _gemm(
        arrays[2].dtype.name, (transpose_a, transpose_b), (1.0, 0.0), (m, n, k, lda, ldb, ldc)
    )
    parts = [
        team.Part(gemm.address, (gemm.handle, *(_address_at(array, place) for array in arrays)))
        for place in places
    ]
    task = team.parts_task(parts, len(places) * m * n * k, (gemm, arrays))
    assert task is not None, "the caller has seen that there is a C compiler"
    return team.run_together([task])


def _address_at(stack: Any, place: tuple[int, ...]) -> int:
    steps = zip(place, stack.strides, strict=False)
    return stack.ctypes.data + sum(index * stride for index, stride in steps)


def _bind(arrays: tuple[Any, Any, Any], factors: tuple[float, float], bias: Any) -> Call | None:
    a, b, out = arrays
    layouts = [found for array in arrays if (found := _layout(array)) is not None]
    if len(layouts) < 3 or layouts[2][0] or max(*a.shape, *b.shape) > _LARGEST:
        return None
    (transpose_a, lda), (transpose_b, ldb), (_, ldc) = layouts
    if max(lda, ldb, ldc) > _LARGEST:
        return None
    transposed, steps = (transpose_a, transpose_b), (lda, ldb, ldc)
    work, threads = out.size * a.shape[1], library().MKL_Get_Max_Threads()
    teams = team.library() is not None
    if threads > 1 and work >= (threads * _LARGE if teams else _SHARED):
        return None
    if teams:
        return _bind_parts(arrays, transposed, factors, steps, bias)
    call = _part(arrays, transposed, factors, steps)[1]
    return call if bias is None else in_order(partial(np.copyto, out, bias), call)


def _part(
    arrays: tuple[Any, Any, Any],
    transposed: tuple[int, int],
    factors: tuple[float, float],
    steps: tuple[int, int, int],
) -> tuple[tuple[int, ...], _GemmCall]:
    """A product by code made for its shape: the four addresses, and a call."""
    a, _, out = arrays
    gemm = _gemm(out.dtype.name, transposed, factors, (*out.shape, a.shape[1], *steps))
    addresses = (gemm.handle, *(array.ctypes.data for array in arrays))
    call = _GemmCall(gemm.function, *addresses)
    call.memory = (gemm, *arrays)
    call.address = gemm.address
    return addresses, call


class _GemmCall(partial[Any]):
    """A call of generated code, which begins at `address`.

    `memory` lives as long as the addresses are in use.
    """

    memory: Any
    address: int


def _bind_parts(
    arrays: tuple[Any, Any, Any],
    transposed: tuple[int, int],
    factors: tuple[float, float],
    steps: tuple[int, int, int],
    bias: Any,
) -> Call:
    """A product in as many parts as there are threads, where these gain by it."""
    a, b, out = arrays
    parts, calls = [], []
    (height, width), depth = out.shape, a.shape[1]
    for rows, cols in _cut(height, width, depth):
        block = out[rows, cols]
        addresses, call = _part((a[rows], b[:, cols], block), transposed, factors, steps)
        start = None if bias is None else np.ascontiguousarray(bias[cols])
        parts.append(team.Part(call.address, addresses, block, start))
        calls.append(call)
    work = out.size * a.shape[1]
    task = team.parts_task(parts, work, [*arrays, *(call.memory for call in calls)])
    assert task is not None, "the caller has seen that there is a C compiler"
    if len(calls) == 1 and bias is None:
        return team.with_task(calls[0], task)
    return team.run_together([task])


def _cut(m: int, n: int, k: int) -> list[tuple[slice, slice]]:
    """The parts of a product [m, n] over k: rows and columns of each.

    Columns if there are enough of them, so that each thread has a part of the second factor
    (weights, say) in its own cache.
    """
    threads, whole = library().MKL_Get_Max_Threads(), slice(None)
    if threads > 1 and m * n * k >= _CUT:
        if n >= 2 * _NARROWEST * threads or (n > m and n >= _NARROWEST * threads):
            return [(whole, span) for span in _spans(n, threads, _LANES)]
        if m >= threads * _FEWEST:
            return [(span, whole) for span in _spans(m, threads, 1)]
    return [(whole, whole)]


def _spans(size: int, count: int, unit: int) -> list[slice]:
    step = -(-size // (count * unit)) * unit
    return [slice(begin, min(begin + step, size)) for begin in range(0, size, step)]


def _layout(array: Any) -> tuple[int, int] | None:
    """Whether a matrix is stored transposed, and the distance between its rows (or columns)."""
    if not array.flags.aligned:
        return None
    for transposed, matrix in enumerate((array, array.T)):
        rows, cols = matrix.shape
        steps = [stride // array.itemsize for stride in matrix.strides]
        row_step = max(cols, 1) if rows == 1 else steps[0]
        if (cols == 1 or steps[1] == 1) and row_step >= cols:
            return transposed, row_step
    return None
