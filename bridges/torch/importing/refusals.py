"""Core operators of ATen that are refused, and why."""

from __future__ import annotations

from typing import Final

_GRADIENT = "a gradient that PyTorch computes: export the model itself, nets here make their own"
_MEMORY = "it asks where a tensor lies in memory, which nets do not say"

REFUSED: Final[dict[str, str]] = {
    "_adaptive_avg_pool2d_backward": _GRADIENT,
    "avg_pool2d_backward": _GRADIENT,
    "convolution_backward": _GRADIENT,
    "embedding_dense_backward": _GRADIENT,
    "max_pool2d_with_indices_backward": _GRADIENT,
    "native_group_norm_backward": _GRADIENT,
    "native_layer_norm_backward": _GRADIENT,
    "resize_": "it gives a tensor another size in place",
    "sym_is_contiguous": _MEMORY,
    "sym_storage_offset": _MEMORY,
    "sym_stride": _MEMORY,
}
"""Operator, without overload -> the reason. All others of PyTorch's core set have a rule."""
