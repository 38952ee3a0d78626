"""Signals: Fourier transforms, windows, mel filters."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .....framework.base.untrusted.values import check_fill
from ...files.tensors import dtype_of
from ..calls import Attributes, Call, NotHere, Value, evaluates, lowers

_LONGEST = 4096
"""Elements of a transform whose matrix a net holds; beyond, NumPy's fast transform serves."""


def _dft_axis(n: Attributes, rank: int, axis: Any) -> int:
    if n.version < 20:
        return n.axis(n.attr("axis", 1), rank)
    return n.axis(-2 if axis is None else int(np.asarray(axis).reshape(-1)[0]), rank)


def _complex(x: np.ndarray) -> np.ndarray:
    return x[..., 0] + 1j * x[..., 1] if x.shape[-1] == 2 else x[..., 0].astype(np.complex128)


def _pairs(x: np.ndarray, dtype: np.dtype) -> np.ndarray:
    return np.stack([np.real(x), np.imag(x)], -1).astype(dtype)


@evaluates("DFT")
def _dft(n: Attributes, x: np.ndarray, length: Any = None, axis: Any = None) -> np.ndarray:
    at = _dft_axis(n, x.ndim, axis)
    size = x.shape[at] if length is None else int(np.asarray(length).reshape(-1)[0])
    back, half = n.attr("inverse", 0), n.attr("onesided", 0)
    wide = x.astype(np.float64)
    if back and half:
        size = 2 * (x.shape[at] - 1) if length is None else size
        return np.fft.irfft(_complex(wide), size, axis=at)[..., None].astype(x.dtype)
    spectrum = (np.fft.ifft if back else np.fft.fft)(_complex(wide), size, axis=at)
    if half:
        spectrum = np.take(spectrum, np.arange(size // 2 + 1), at)
    return _pairs(spectrum, x.dtype)


@lowers("DFT")
def _dft_here(n: Call) -> Value:
    """A product with the matrix of the transform, which has a gradient; a long one is no net's."""
    x = n[0]
    at = _dft_axis(n, x.ndim, n.known(2))
    length = n.known_ints(1)
    back, half = bool(n.attr("inverse", 0)), bool(n.attr("onesided", 0))
    size = length[0] if length else 2 * (x.shape[at] - 1) if back and half else x.shape[at]
    if not 0 < size <= _LONGEST:
        raise NotHere
    rows = min(x.shape[at], size // 2 + 1 if back and half else size)
    if rows < x.shape[at]:
        x = n.op("slice", x, axes=[at], starts=[0], ends=[rows])
    if back and half:
        matrix = _real_inverse(size, rows, x.shape[-1])
    else:
        matrix = _fourier(size, size // 2 + 1 if half else size, x.shape[-1], back)
        matrix = matrix[: rows * x.shape[-1]]  # rows that are not there are zeros
    perm = [i for i in range(x.ndim - 1) if i != at] + [at, x.ndim - 1]
    moved = n.op("transpose", x, perm=perm) if perm != list(range(x.ndim)) else x
    flat = n.reshape(moved, [math.prod(moved.shape[:-2]), len(matrix)])
    spectrum = n.op("matmul", flat, n.const(matrix, x.dtype))
    parts = 1 if back and half else 2
    spectrum = n.reshape(spectrum, [*moved.shape[:-2], matrix.shape[1] // parts, parts])
    order = list(range(x.ndim - 2))
    order.insert(at, x.ndim - 2)
    return n.op("transpose", spectrum, perm=[*order, x.ndim - 1])


def _fourier(size: int, bins: int, parts: int, back: bool = False) -> np.ndarray:
    """The matrix [size * parts, bins * 2] of a transform: real and imaginary parts side by side.

    Args:
        parts: 2 where a row of imaginary parts follows each of real ones. back: the inverse.
    """
    angles = 2 * np.pi * np.outer(np.arange(size), np.arange(bins)) / size
    turns = np.exp(1j * angles) / size if back else np.exp(-1j * angles)
    if parts == 2:
        turns = np.stack([turns, 1j * turns], 1).reshape(size * 2, bins)
    return np.stack([np.real(turns), np.imag(turns)], -1).reshape(size * parts, bins * 2)


def _real_inverse(size: int, bins: int, parts: int) -> np.ndarray:
    """The matrix [bins * parts, size] from the first half of a spectrum to its real signal."""
    places = np.arange(bins)
    twice = np.where((places == 0) | (2 * places == size), 1, 2) / size  # the other half is equal
    turns = twice[:, None] * np.exp(2j * np.pi * np.outer(places, np.arange(size)) / size)
    both = np.stack([np.real(turns), -np.imag(turns)], 1)[:, :parts]
    return both.reshape(bins * parts, size)


@lowers("STFT")
def _stft_here(n: Call) -> Value:
    """Frames by their window, times the matrix of the transform."""
    x = n[0]
    window = n.get(2)
    by = (n.known_ints(1) or [1])[0]
    size = (n.known_ints(3) or [0])[0] or (window.shape[0] if window else 0)
    if not 0 < size <= x.shape[1] or by < 1:
        n.fail(f"frames of {size}, {by} apart, of {x.shape[1]} samples")
    bins = size // 2 + 1 if n.attr("onesided", 1) else size
    parts = x.shape[2] if x.ndim == 3 else 1
    count = (x.shape[1] - size) // by + 1
    check_fill([parts * size, 2 * bins], x.dtype.itemsize, n.node.title())
    matrix = _fourier(size, bins, parts)
    places = np.arange(count)[:, None] * by + np.arange(size)
    frames = n.op("gather", n.reshape(x, [*x.shape[:2], parts]), places, axis=1)
    if window is not None:
        frames = n.op("mul", frames, n.reshape(n.cast(window, x.dtype), [size, 1]))
    rows = n.reshape(frames, [-1, size * parts])
    spectrum = n.op("matmul", rows, n.const(matrix, x.dtype))
    return n.reshape(spectrum, [x.shape[0], count, bins, 2])


@evaluates("HannWindow", "HammingWindow", "BlackmanWindow")
def _window(n: Attributes, size: np.ndarray) -> np.ndarray:
    count = int(size.reshape(-1)[0])
    base = count if n.attr("periodic", 1) else count - 1
    angle = 2 * np.pi * np.arange(count) / max(base, 1)
    if n.node.op == "HannWindow":
        window = 0.5 - 0.5 * np.cos(angle)
    elif n.node.op == "HammingWindow":
        window = 25 / 46 - 21 / 46 * np.cos(angle)
    else:
        window = 0.42 - 0.5 * np.cos(angle) + 0.08 * np.cos(2 * angle)
    return window.astype(dtype_of(n.attr("output_datatype", 1), n.node.title()))


@evaluates("MelWeightMatrix")
def _mel(
    n: Attributes,
    bins: np.ndarray,
    size: np.ndarray,
    rate: np.ndarray,
    low: np.ndarray,
    high: np.ndarray,
) -> np.ndarray:
    count, length, per_second = (int(v.reshape(-1)[0]) for v in (bins, size, rate))
    edges = np.array([float(low.reshape(-1)[0]), float(high.reshape(-1)[0])])
    first, last = 2595 * np.log10(1 + edges / 700)
    mels = np.linspace(first, last, count + 2)
    if count + 2 > 1:
        mels = first + np.arange(count + 2) * (last - first) / (count + 2)
    places = ((700 * (10 ** (mels / 2595) - 1)) * (length + 1) // per_second).astype(int)
    matrix = np.zeros((length // 2 + 1, count))
    for band in range(count):
        left, center, right = places[band : band + 3]
        if center == left:
            matrix[center, band] = 1
        else:
            rise = np.arange(left, center + 1)
            matrix[rise, band] = (rise - left) / (center - left)
        if right > center:
            fall = np.arange(center, right)
            matrix[fall, band] = (right - fall) / (right - center)
    return matrix.astype(dtype_of(n.attr("output_datatype", 1), n.node.title()))
