"""Kernels on top of MKL's matrix product, where the package `mkl` is installed."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ...framework.ir.kernel_args import Call, KernelArgs
from ...framework.ir.registry import Kernel, lookup
from ...operators.backends import mkl as _mkl
from .affine import bind_repeated_affine, bind_repeated_affine_grad
from .time_height import bind_convolution, bind_convolution_grad, bind_tdnn, bind_tdnn_grad


def _with_mkl(bind: Callable[..., Call]) -> Kernel:
    """The kernel `bind` with MKL's product; it declines where there is no MKL."""

    def kernel(k: KernelArgs) -> Call | None:
        return None if _mkl.library() is None else bind(k, _mkl.product)

    return kernel


for _op_type, _bind in {
    "nnet3.tdnn": bind_tdnn,
    "nnet3.tdnn_grad": bind_tdnn_grad,
    "nnet3.time_height_convolution": bind_convolution,
    "nnet3.time_height_convolution_grad": bind_convolution_grad,
    "nnet3.repeated_affine": bind_repeated_affine,
    "nnet3.repeated_affine_grad": bind_repeated_affine_grad,
}.items():
    lookup(_op_type).kernel(
        _with_mkl(_bind), device="cpu", dtypes=(np.float32, np.float64), library="mkl"
    )
