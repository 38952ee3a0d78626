"""Arithmetic of PTX on arrays of lanes, as the translated text calls it.

Results are rounded as PTX says. What it calls approximate (`ex2.approx` and its like) is rounded
from double: a GPU is within 2 units in the last place of float32 of that. `rcp.approx.ftz.f64` and
`rsqrt.approx.ftz.f64` give 20 bits on a GPU and all of them here; the text refines them by Newton's
steps.
"""

from __future__ import annotations

from typing import Any

import numpy as np

Array = Any  # of lanes, or one number for all of them

_SPLIT = float(2**27 + 1)


def _two_sum(a: Array, b: Array) -> tuple[Array, Array]:
    """The sum, and what rounding took from it (Knuth)."""
    total = a + b
    of_b = total - a
    return total, (a - (total - of_b)) + (b - of_b)


def _two_product(a: Array, b: Array) -> tuple[Array, Array]:
    """The product, and what rounding took from it (Dekker)."""
    product = a * b
    parts = []
    for factor in (a, b):
        scaled = factor * _SPLIT
        high = scaled - (scaled - factor)
        parts.append((high, factor - high))
    (a1, a2), (b1, b2) = parts
    return product, a2 * b2 - (((product - a1 * b1) - a2 * b1) - a1 * b2)


def _odd_sum(a: Array, b: Array) -> Array:
    """a + b in double, rounded to the neighbor with an odd last bit unless it is exact: a second
    rounding, to fewer bits, is then right (Boldo and Melquiond)."""
    total, error = _two_sum(a, b)
    total = np.atleast_1d(total)
    if not np.any(error):
        return total
    bits = total.view(np.int64)
    moves = np.isfinite(total) & (error != 0) & (bits & 1 == 0)
    up = (error > 0) == (total > 0)
    return (bits + np.where(moves, np.where(up, 1, -1), 0)).view(np.float64)


def fma(a: Array, b: Array, c: Array, rounding: str, dtype: Any) -> Array:
    """a b + c, rounded once. In double this is exact unless it comes near overflow or underflow."""
    if dtype is np.float32:
        exact = _odd_sum(np.float64(a) * np.float64(b), np.float64(c))
        return rounded(exact, rounding)
    high, low = _two_product(a, b)
    total, rest = _two_sum(c, low)
    upper, middle = _two_sum(high, total)
    found = upper + _odd_sum(middle, rest)
    return np.where(np.isfinite(found), found, a * b + c)


def add(a: Array, b: Array, rounding: str) -> Array:
    """A sum of float32 with its rounding."""
    return rounded(_odd_sum(np.float64(a), np.float64(b)), rounding)


def multiply(a: Array, b: Array, rounding: str) -> Array:
    return rounded(np.atleast_1d(np.float64(a) * np.float64(b)), rounding)


def rounded(exact: Array, rounding: str) -> Array:
    """Doubles as float32: to nearest, down, up, or towards 0."""
    nearest = exact.astype(np.float32)
    if rounding == "rn":
        return nearest
    error = nearest.astype(np.float64) - exact
    down = np.float32(-np.inf)
    if rounding == "rm":
        return np.where(error > 0, np.nextafter(nearest, down), nearest)
    if rounding == "rp":
        return np.where(error < 0, np.nextafter(nearest, -down), nearest)
    beyond = np.abs(nearest).astype(np.float64) > np.abs(exact)
    return np.where(beyond, np.nextafter(nearest, np.float32(0)), nearest)


def flushed(value: Array) -> Array:
    """Numbers of float32 below the normal ones become 0, as .ftz says."""
    return np.where(np.abs(value) < np.finfo(np.float32).tiny, np.copysign(0, value), value).astype(
        np.float32
    )


def approximate(function: Any, value: Array) -> Array:
    """A function of float32 that PTX calls approximate, rounded from double."""
    return np.asarray(function(np.asarray(value, np.float64)), np.float32)


def lower_half(bits: Array) -> Array:
    """bfloat16 from float32, to nearest even."""
    bits = np.asarray(bits).view(np.uint32)
    whole = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
    return np.where(bits & np.uint32(0x7FFFFFFF) > 0x7F800000, 0x7FFF, whole).astype(np.uint16)


def to_integer(value: Array, dtype: Any) -> Array:
    """Whole floats as integers: what is too large becomes the largest, and NaN 0."""
    limits = np.iinfo(dtype)
    value = np.asarray(value, np.float64)
    inside = (value > float(limits.min)) & (value < float(limits.max))
    found = np.where(inside, value, 0).astype(dtype)
    found = np.where(value >= float(limits.max), dtype(limits.max), found)
    return np.where(value <= float(limits.min), dtype(limits.min), found).astype(dtype)


def saturated(value: Array, dtype: Any) -> Array:
    """Integers that are too large or too small become the largest or the smallest."""
    limits = np.iinfo(dtype)
    return np.clip(value, limits.min, limits.max).astype(dtype)


def quotient(a: Array, b: Array) -> Array:
    """A quotient of integers, towards 0."""
    found = np.floor_divide(a, b)
    return found + ((np.fmod(a, b) != 0) & ((a < 0) != (b < 0))).astype(found.dtype)


def high_product(a: Array, b: Array) -> Array:
    """The upper half of a product of integers."""
    dtype = a.dtype if isinstance(a, np.ndarray) else b.dtype
    if dtype.itemsize == 4:
        wide = np.int64 if dtype.kind == "i" else np.uint64
        return ((np.asarray(a, wide) * np.asarray(b, wide)) >> wide(32)).astype(dtype)
    x, y = np.atleast_1d(a).view(np.uint64), np.atleast_1d(b).view(np.uint64)
    low, half = np.uint64(0xFFFFFFFF), np.uint64(32)
    x0, x1, y0, y1 = x & low, x >> half, y & low, y >> half
    middle = x1 * y0 + ((x0 * y0) >> half)
    found = x1 * y1 + (middle >> half) + ((x0 * y1 + (middle & low)) >> half)
    if dtype.kind == "i":  # two's complement: what a sign stood for as a large number
        zero = np.uint64(0)
        found = found - np.where(a < 0, y, zero) - np.where(b < 0, x, zero)
        return found.view(np.int64)
    return found


def leading_zeros(value: Array) -> Array:
    value = np.atleast_1d(value)
    found = np.full(value.shape, 8 * value.dtype.itemsize, np.uint32)
    rest = value.copy()
    while rest.any():
        found -= (rest != 0).astype(np.uint32)
        rest = rest >> rest.dtype.type(1)
    return found


def ones(value: Array) -> Array:
    return np.bitwise_count(value).astype(np.uint32)


def field(value: Array, start: Array, length: Array) -> Array:
    """bfe: bits of an integer, with the sign of the highest one where it is signed."""
    size = 8 * value.dtype.itemsize
    wide = np.int64 if value.dtype.kind == "i" else np.uint64
    start, length = (np.asarray(part, np.int64) & 255 for part in (start, length))
    held = np.asarray(value, wide)
    up = np.maximum(64 - np.minimum(start + length, size), 0).astype(wide)
    down = (up + np.minimum(start, 64).astype(wide)).astype(wide)
    found = (held << up) >> down
    return np.where(length == 0, 0, found).astype(value.dtype)


def inserted(low: Array, into: Array, start: Array, length: Array) -> Array:
    """bfi: the low bits of one integer within another."""
    kind = into.dtype.type if hasattr(into, "dtype") else low.dtype.type
    size = 8 * np.dtype(kind).itemsize
    start, length = (np.asarray(part).astype(kind) & kind(255) for part in (start, length))
    full = np.where(length >= size, ~kind(0), (kind(1) << length) - kind(1)).astype(kind)
    mask = (full << start).astype(kind)
    return (into & ~mask) | ((low << start) & mask)


def permuted(a: Array, b: Array, choice: Array) -> Array:
    """prmt: bytes of two words, each by four bits; the highest of them repeats a byte's sign."""
    both = np.asarray(a, np.uint64) | (np.asarray(b, np.uint64) << np.uint64(32))
    found = np.zeros(np.broadcast(both, choice).shape, np.uint32)
    for place in range(4):
        code = np.asarray(choice, np.uint64) >> np.uint64(4 * place)
        byte = (both >> ((code & np.uint64(7)) * np.uint64(8))) & np.uint64(255)
        sign = np.where(byte & np.uint64(128), np.uint64(255), np.uint64(0))
        byte = np.where(code & np.uint64(8), sign, byte)
        found |= (byte << np.uint64(8 * place)).astype(np.uint32)
    return found


def no_numbers(a: Array, b: Array) -> Array:
    """Whether one of both is no number."""
    return np.isnan(a) | np.isnan(b)


def unit(value: Array) -> Array:
    """Clipped to [0, 1], as .sat says; what is no number becomes 0."""
    clipped = np.clip(value, 0, 1)
    return np.where(np.isnan(clipped), 0, clipped).astype(clipped.dtype)
