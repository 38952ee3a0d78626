"""Kernels on top of the matrix products of other libraries than NumPy."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from ....framework.ir.kernel_args import Call, KernelArgs
from ....framework.ir.registry import lookup
from ..bfloat16 import bf16 as _bf16
from . import blas as _blas
from . import mkl as _mkl


def register_product_kernels(op_type: str, bind: Callable[..., Call | None], **more: Any) -> None:
    """Register the kernel `bind` of an operator with products of MKL, of NumPy's OpenBLAS and, on
    a GPU, of cuBLASLt.

    Args:
        bind: called with the kernel's arguments and a function that makes products.
        more: further arguments of `bind` for MKL and OpenBLAS.
    """

    def on_gpu(k: KernelArgs) -> Call | None:
        from ..cuda.cuda_products import product  # without a GPU it is not needed

        return bind(k, product)

    exact = partial(bind, **more)
    kernels = {"mkl": _mkl.kernel(exact, _mkl.product), "blas": lambda k: exact(k, _blas.product)}
    for library, kernel in kernels.items():
        lookup(op_type).kernel(
            kernel, device="cpu", dtypes=(np.float32, np.float64), library=library
        )
    rounded = _bf16.kernel(bind, _bf16.product)
    lookup(op_type).kernel(rounded, device="cpu", dtypes=(np.float32,), library="bf16")
    lookup(op_type).kernel(on_gpu, device="gpu", dtypes=(np.float32, np.float64), library="cuda")
