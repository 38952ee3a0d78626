"""Weights in blocks: of 4 or 8 bits, with a scale and perhaps a zero point each, or in bfloat16.

A matrix of K rows and N columns is kept column by column, [N, blocks, bytes], uint8: each column is
cut into blocks of one size. Of 4 bits an even element has the lower half of a byte, the odd one
after it the upper half. Element q of a block stands for scale * (q - zero). ONNX Runtime's
MatMulNBits has the same layout. Elements of 16 bits are numbers in bfloat16, the upper halves of
float32 numbers; they have no scales.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...framework.base.dtypes import to_dtype

BITS = (4, 8)
"""Of integers."""
BFLOAT16 = 16
"""Bits of an element in bfloat16."""


def middle(bits: int) -> int:
    """The zero point where none is given."""
    return 1 << (bits - 1)


def elements(size: int, bits: int) -> int:
    """How many numbers so many bytes hold."""
    return 8 * size // bits


def unpacked(xp: Any, packed: Any, bits: int) -> Any:
    """Numbers of a byte each, of bytes [..., B] that hold one or two."""
    if bits == 8:
        return packed
    both = xp.stack((packed & 15, packed >> 4), -1)
    return both.reshape(*packed.shape[:-1], 2 * packed.shape[-1])


def packed(whole: np.ndarray, bits: int) -> np.ndarray:
    """Bytes of numbers [..., E], uint8, of 8 bits, or of 4; the last byte is filled with 0."""
    if bits == 8:
        return whole
    if whole.shape[-1] % 2:
        whole = np.concatenate((whole, np.zeros_like(whole[..., :1])), -1)
    return whole[..., ::2] | whole[..., 1::2] << 4


def from_blocks(xp: Any, w: Any, scale: Any, zero: Any, bits: int, rows: int) -> Any:
    """The floats [N, rows] that blocks stand for, in the dtype of `scale`; float32 without one.

    Args:
        w: [N, blocks, bytes]. scale: [N, blocks]; None with 16 bits. zero: [N, bytes] as `packed`,
            or None.
    """
    count, blocks, size = w.shape
    if bits == BFLOAT16:
        upper = xp.ascontiguousarray(w).view(np.uint16).astype(np.uint32)
        upper <<= 16
        return upper.view(np.float32).reshape(count, blocks * (size // 2))[:, :rows]
    whole = unpacked(xp, w, bits).astype(scale.dtype)
    if zero is None:
        whole -= scale.dtype.type(middle(bits))
    else:
        whole -= unpacked(xp, zero, bits)[:, :blocks, None].astype(scale.dtype)
    whole *= scale[..., None]
    return whole.reshape(count, blocks * whole.shape[2])[:, :rows]


def to_blocks(matrix: np.ndarray, bits: int, block: int) -> tuple[np.ndarray, np.ndarray | None]:
    """The blocks w [N, blocks, bytes] and scales [N, blocks] of a matrix [K, N] of floats.

    Of 8 bits the scale of a block is its largest size over 127, and no element is off by more than
    half of it. Of 4 bits it is the element of largest size over -8, which so is exact: others are
    off by up to half of a scale, those opposite to it, beyond 7 of 8 parts, by up to a whole one.
    Of 16 bits elements are the nearest numbers in bfloat16, without scales (None).

    Raises:
        ShapeError: 16 bits, and the package ml_dtypes is not installed.
    """
    depth, columns = matrix.shape
    blocks = -(-depth // block)
    cut = np.zeros((columns, blocks * block), matrix.dtype)
    cut[:, :depth] = matrix.T
    cut = cut.reshape(columns, blocks, block)
    if bits == BFLOAT16:
        return cut.astype(to_dtype("bfloat16")).view(np.uint8), None
    if bits == 8:
        scale = abs(cut).max(-1) / matrix.dtype.type(127)
    else:
        at = abs(cut).argmax(-1)[..., None]
        scale = np.take_along_axis(cut, at, -1)[..., 0] / matrix.dtype.type(-8)
    tiny = abs(scale) < np.finfo(np.float32).tiny  # its inverse would be infinite
    scale[tiny] = 0
    inverse = 1 / np.where(tiny, matrix.dtype.type(1), scale)
    inverse[tiny] = 0
    most = (1 << bits) - 1
    whole = np.rint(cut * inverse[..., None]) + matrix.dtype.type(middle(bits))
    return packed(whole.clip(0, most).astype(np.uint8), bits), scale


def rounded(xp: Any, x: Any, block: int) -> Any:
    """Rows [M, K] whose blocks are rounded to whole multiples of a scale, their largest size over
    127; rows of what is not finite become NaN."""
    count, depth = x.shape
    blocks = -(-depth // block)
    cut = xp.zeros((count, blocks * block), x.dtype)
    cut[:, :depth] = x
    cut = cut.reshape(count, blocks, block)
    most = abs(cut).max(-1, keepdims=True)
    scale = most / x.dtype.type(127)
    small = scale < x.dtype.type(np.finfo(np.float32).tiny)
    scale = xp.where(xp.isfinite(most), xp.where(small, x.dtype.type(0), scale), most * 0)
    lost = xp.isnan(scale)
    kept = small | lost
    inverse = xp.where(kept, x.dtype.type(0), 1 / xp.where(kept, x.dtype.type(1), scale))
    whole = xp.rint(xp.where(lost, x.dtype.type(0), cut) * inverse) * scale
    return whole.reshape(count, blocks * block)[:, :depth]
