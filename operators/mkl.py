"""The kernel library "mkl": matrix products by Intel's MKL, where the package `mkl` is installed.

Registered beside the reference kernels; `OPSCOPE_LIBRARIES=xp` leaves them out. MKL itself is
loaded when the first of them is bound.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..framework.registry import Kernel, lookup
from . import _mkl
from .matmul import bind_affine, bind_affine_grad, bind_matmul, bind_matmul_grad


def _with_mkl(bind: Callable[..., Callable[[], Any]]) -> Kernel:
    """The kernel `bind` with MKL's product; it declines where there is no MKL."""

    def kernel(k: Any) -> Callable[[], Any] | None:
        return None if _mkl.library() is None else bind(k, _mkl.product)

    return kernel


for _op_type, _bind in {
    "affine": bind_affine,
    "affine_grad": bind_affine_grad,
    "matmul": bind_matmul,
    "matmul_grad": bind_matmul_grad,
}.items():
    lookup(_op_type).kernel(
        _with_mkl(_bind), device="cpu", dtypes=(np.float32, np.float64), library="mkl"
    )
