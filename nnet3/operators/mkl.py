"""Kernels on top of MKL's matrix product, where the package `mkl` is installed."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ...framework.ir.kernel_args import Call
from ...framework.ir.registry import lookup
from ...operators.backends import mkl as _mkl


def register_mkl_kernel(op_type: str, bind: Callable[..., Call | None]) -> None:
    """Register the kernel `bind` of an operator with MKL's product; without MKL it declines.

    Args:
        bind: called with the kernel's arguments and a function that makes products.
    """
    kernel = _mkl.kernel(bind)
    lookup(op_type).kernel(kernel, device="cpu", dtypes=(np.float32, np.float64), library="mkl")
