"""Other products of two matrices, for the operators that are made of them.

    mkl     Intel's MKL, where the package `mkl` is installed
    blas    NumPy's OpenBLAS, large products in parts for the threads of compiled loops
    bf16    of factors rounded to bfloat16, by AMX or AVX512-BF16; only where it is
            asked for
    packed  in the loop of a recurrent net, where there is a C compiler: packed before the loop.
            Elsewhere of factors that several products of a net share, by AMX or on AMD's
            processors; and of few rows with weights that stay packed from run to run

Registered beside the reference kernels "xp"; OPSCOPE_LIBRARIES chooses. They are loaded when the
first of their kernels is bound.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from ....framework.ir.kernel_args import Call, KernelArgs
from ....framework.ir.registry import Kernel, lookup
from ....framework.runtime.binding import frame_of
from ...conv.conv import bind_conv, bind_conv_grad
from ...conv.conv_transpose import bind_conv_transpose, bind_conv_transpose_grad
from ...linear.matmul import bind_affine, bind_affine_grad, bind_matmul, bind_matmul_grad, product
from .. import column_sums as _column_sums
from ..bfloat16 import bf16 as _bf16
from ..bfloat16 import bf16_gemm as _bf16_gemm
from . import blas as _blas
from . import mkl as _mkl
from . import packed_gemm as _packed_gemm
from .parts import by_task


def _with_blas(bind: Callable[..., Call], *products: Callable[..., Call]) -> Kernel:
    """The kernel `bind` with products of NumPy's OpenBLAS."""
    return lambda k: bind(k, *products)


def _with_packing(bind: Callable[..., Call], weights: str) -> Kernel:
    """The kernel `bind` with products of packed factors.

    It declines where nothing is prepared, and outside of loops where another product is as good.
    """

    def kernel(k: KernelArgs) -> Call | None:
        prepared = k.prepared
        if prepared is None:
            return None
        if not prepared.in_loop and _bf16_gemm.library() is None:
            weight = k[weights]
            if weight.ndim != 2 or not _packed_gemm.shared_pays(prepared, weight):
                return None
        libraries = frame_of(k).plan.options.libraries
        if "mkl" in libraries and _mkl.library() is not None:
            other = _mkl.product
        else:
            other = _blas.product if "blas" in libraries else product
        kept = getattr(k.frame, "kept", None)
        return bind(k, by_task(partial(_packed_gemm.task, prepared, kept=kept), other))

    return kernel


_ROWS = range(2, 257)
"""Rows for which factors are kept packed: one row reads weights as they lie just as fast; for more
than these, packing is little work beside the product."""


def _with_kept(bind: Callable[..., Call], weights: str, *more: Callable[..., Call]) -> Kernel:
    """The kernel `bind` with products of factors that stay packed from run to run.

    Args:
        more: other products that `bind` takes, of MKL's and of NumPy's library.
    """

    def kernel(k: KernelArgs) -> Call | None:
        kept = getattr(k.frame, "kept", None)
        if kept is None or k.prepared is not None or not kept.holds(k[weights]):
            return None
        columns = len(k[weights]) if k.attrs.get("transpose_y") else k[weights].shape[1]
        fits = _ROWS.start <= k["out"].size // columns < _ROWS.stop
        if not fits or _packed_gemm.library() is None:
            return None
        by_mkl = _mkl.library() is not None
        other = _mkl.product if by_mkl else _blas.product
        stacked = more[:1] if by_mkl else more[1:]
        return bind(k, by_task(partial(_packed_gemm.kept_task, kept), other), *stacked)

    return kernel


_MATRICES = {
    "affine": bind_affine,
    "affine_grad": bind_affine_grad,
    "matmul": bind_matmul,
    "matmul_grad": bind_matmul_grad,
}
_STACKS = {
    f"{_family}{_rank}d{_ending}": _bind
    for _family, _binds in {
        "conv": (bind_conv, bind_conv_grad),
        "conv_transpose": (bind_conv_transpose, bind_conv_transpose_grad),
    }.items()
    for _rank in (1, 2, 3)
    for _ending, _bind in zip(("", "_grad"), _binds, strict=True)
}


def _register(op_type: str, library: str, kernel: Kernel, in_loops: bool = False) -> None:
    lookup(op_type).kernel(
        kernel,
        device="cpu",
        dtypes=(np.float32,) if library == "bf16" else (np.float32, np.float64),
        library=library,
        in_loops=in_loops,
    )


def _with_sums(bind: Callable[..., Call], library: str) -> Callable[..., Call]:
    """`bind_affine_grad` with sums over rows that can stand in one list with its products."""
    if bind is not bind_affine_grad:
        return bind
    if library == "packed":
        return partial(bind, sums=_column_sums.sum_of_rows)
    multiply = _mkl.product if library == "mkl" else _blas.product
    return partial(bind, sums=partial(_column_sums.small_sum, multiply=multiply))


for _op_type, _bind in _MATRICES.items():
    _both = _op_type.startswith("matmul")  # has products of stacks, too
    _weights = "y" if _both else "w"
    _by_mkl, _by_blas, _by_packing = (
        _with_sums(_bind, _library) for _library in ("mkl", "blas", "packed")
    )
    _products = _mkl.product, *([_mkl.stacked] if _both else [])
    _register(_op_type, "mkl", _mkl.kernel(_by_mkl, *_products))
    _products = _blas.product, *([_blas.stacked] if _both else [])
    _register(_op_type, "blas", _with_blas(_by_blas, *_products))
    _register(_op_type, "packed", _with_packing(_by_packing, _weights), in_loops=True)
    _register(
        _op_type, "bf16", _bf16.kernel(_bind, _bf16.product, *([_bf16.stacked] if _both else []))
    )

_register("affine", "packed", _with_kept(bind_affine, "w"))
_register("matmul", "packed", _with_kept(bind_matmul, "y", _mkl.stacked, _blas.stacked))

for _op_type, _bind in _STACKS.items():
    _register(_op_type, "mkl", _mkl.kernel(_bind, _mkl.stacked))
    _register(_op_type, "blas", _with_blas(_bind, _blas.stacked))
