"""Registers the kernels of this room as the library "direct"."""

from __future__ import annotations

import numpy as np

from ...framework.ir.registry import Kernel, OperatorDef, lookup
from ..conv import adaptive_pool as _adaptive_pool
from ..conv import conv as _conv
from ..conv import conv_transpose as _conv_transpose
from ..conv import interpolate as _interpolate
from ..conv import pool as _pool
from ..math import norm as _norm
from ..math import reduction as _reduction
from ..tensor import shape as _shape
from . import batch_norm as _batch_norm
from . import channel_shuffle as _channel_shuffle
from . import convolution_gradients as _convolution_gradients
from . import convolutions as _convolutions
from . import interpolation as _interpolation
from . import pooling as _pooling
from . import transposed_convolutions as _transposed
from .tail import ACTIVATIONS

_DTYPES = np.float32, np.float64


_IMAGES = ("x",), ("out",), ("out_grad",), ("x_grad",)
_ALIKE = (("x", "out", "out_grad", "x_grad"),)


def _register(
    entry: OperatorDef,
    forward: Kernel,
    backward: Kernel,
    channels_last: tuple[tuple[str, ...], ...] = _IMAGES,
    tails: tuple[str, ...] = (),
    epilogues: bool = False,
) -> None:
    gradient = lookup(f"{entry.type}_grad")
    for one, kernel, after in ((entry, forward, tails), (gradient, backward, ())):
        one.kernel(
            kernel,
            device="cpu",
            dtypes=_DTYPES,
            library="direct",
            channels_last=channels_last,
            tails=after,
            inference_tails=("batch_norm",) if after else (),
            epilogues=epilogues and one is entry,
        )


for _entry, _after in ((_conv.conv1d, _pool.max_pool1d), (_conv.conv2d, _pool.max_pool2d)):
    _following = _norm.batch_norm.type, *ACTIVATIONS, _after.type
    _kernels = _convolutions.conv, _convolution_gradients.conv_grad
    _register(_entry, *_kernels, tails=_following, epilogues=True)
for _entry in (_conv_transpose.conv_transpose1d, _conv_transpose.conv_transpose2d):
    _kernels = _transposed.conv_transpose, _transposed.conv_transpose_grad
    _register(_entry, *_kernels, tails=(_norm.batch_norm.type, *ACTIVATIONS))
for _entry in (_pool.max_pool1d, _pool.max_pool2d):
    _register(_entry, _pooling.max_pool, _pooling.max_pool_grad)
for _entry in (_pool.avg_pool1d, _pool.avg_pool2d):
    _register(_entry, _pooling.avg_pool, _pooling.avg_pool_grad)
_register(_norm.batch_norm, _batch_norm.batch_norm, _batch_norm.batch_norm_grad, _ALIKE)
for _entry, _kernel in (
    (_pool.global_avg_pool, _pooling.global_avg_pool),
    (_adaptive_pool.adaptive_avg_pool1d, _pooling.global_avg_pool),
    (_adaptive_pool.adaptive_avg_pool2d, _pooling.global_avg_pool),
    (_reduction.reduce_mean, _pooling.reduce_mean),
):
    _entry.kernel(
        _kernel,
        device="cpu",
        dtypes=_DTYPES,
        library="direct",
        channels_last=(("x",),),
    )
_interpolate.interpolate.kernel(
    _interpolation.interpolate,
    device="cpu",
    dtypes=_DTYPES,
    library="direct",
    channels_last=(("x", "out"),),
)
_shape.reshape.kernel(
    _channel_shuffle.channel_shuffle,
    device="cpu",
    dtypes=_DTYPES,
    library="direct",
    channels_last=(("x", "out"),),
    spans=_channel_shuffle.spans,
)
