"""Random numbers with CNTK's distributions: uniform, and normal by the ziggurat method.

CNTK draws with `boost::random` over `std::mt19937_64`; the same integers give the same numbers
here. Sources: Marsaglia and Tsang, The Ziggurat Method for Generating Random Variables, 2000;
Boost.Random 1.56 and later, whose division of the plane (128 layers for the normal distribution,
256 for the exponential one of its tail) and use of the bits are kept.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

import numpy as np

from ..base.mersenne import Mersenne64

_NORMAL_EDGE = 3.4426198558966521214  # where the normal distribution's lowest layer ends
_NORMAL_WIDTH = 3.7130862467403632609  # that layer's area over its height
_EXPONENTIAL_EDGE = 7.6971174701310497140
_BLOCK = 1 << 16  # integers drawn at once
_BITS = 8  # of an integer, that choose layer and sign
_SCALE = 2.0**-56
_WHOLE = 2.0**64


def _layers(
    edge: float, width: float, count: int, f: Callable[[float], float], inverse: Callable
) -> tuple[np.ndarray, np.ndarray]:
    """Edges x and heights y of `count` layers of equal area under `f`."""
    area = width * f(edge)
    x, y = [width, edge], [0.0, f(edge)]
    for _ in range(count - 2):
        y.append(y[-1] + area / x[-1])
        x.append(inverse(y[-1]))
    return np.array([*x, 0.0]), np.array([*y, 1.0])


@lru_cache(maxsize=1)
def _normal_layers() -> tuple[np.ndarray, np.ndarray]:
    return _layers(
        _NORMAL_EDGE,
        _NORMAL_WIDTH,
        128,
        lambda x: math.exp(-0.5 * x * x),
        lambda y: math.sqrt(-2 * math.log(y)),
    )


@lru_cache(maxsize=1)
def _exponential_layers() -> tuple[np.ndarray, np.ndarray]:
    edge = _EXPONENTIAL_EDGE
    return _layers(edge, edge + 1, 256, lambda x: math.exp(-x), lambda y: -math.log(y))


class _Stream:
    """Integers in blocks that can be looked at before they are used up."""

    def __init__(self, seed: int):
        self._generator = Mersenne64(seed)
        self.block = np.empty(0, np.uint64)
        self.at = 0

    def fill(self) -> None:
        """Go to the next block if this one is used up."""
        if self.at == len(self.block):
            self.block = self._generator.draw(_BLOCK)
            self.at = 0

    def next(self) -> int:
        self.fill()
        self.at += 1
        return int(self.block[self.at - 1])


def uniform(seed: int, count: int, low: float, high: float, dtype: np.dtype) -> np.ndarray:
    """`count` numbers of [low, high), computed in `dtype`."""
    scalar = np.dtype(dtype).type
    span = scalar(high) - scalar(low)
    generator = Mersenne64(seed)
    result = np.empty(count, dtype)
    done = 0
    while done < count:
        raw = generator.draw(min(count - done, _BLOCK)).astype(dtype)
        values = raw / scalar(_WHOLE) * span + scalar(low)
        values = values[values < scalar(high)]
        result[done : done + len(values)] = values
        done += len(values)
    return result


def normal(seed: int, count: int, mean: float, deviation: float, dtype: np.dtype) -> np.ndarray:
    """`count` normal numbers, computed in `dtype`."""
    scalar = np.dtype(dtype).type
    stream = _Stream(seed)
    result = np.empty(count, dtype)
    done = 0
    while done < count:
        stream.fill()
        done += _normal_block(stream, result[done:])
    result *= scalar(deviation)
    result += scalar(mean)
    return result


def _normal_block(stream: _Stream, result: np.ndarray) -> int:
    """Fill `result` from the rest of the stream's block; returns how many numbers that gave. Most
    integers are a number each; the others begin one that takes more integers."""
    block, start = stream.block, stream.at
    edges = _normal_layers()[0].astype(result.dtype)
    layer, fraction = _split(block, result.dtype)
    values = fraction * edges[layer >> 1]
    slow = np.flatnonzero(values >= edges[(layer >> 1) + 1])
    values = np.where(layer & 1, values, -values)
    done = 0
    for stop in [*slow[np.searchsorted(slow, start) :].tolist(), len(block)]:
        if stop < stream.at:
            continue
        run = min(stop - stream.at, len(result) - done)
        result[done : done + run] = values[stream.at : stream.at + run]
        done += run
        stream.at += run
        if done == len(result) or stop == len(block):
            break
        result[done] = _normal_slow(stream, result.dtype.type)
        done += 1
        if stream.block is not block:
            break
    return done


def _split(raw: np.ndarray, dtype: np.dtype) -> tuple[np.ndarray, np.ndarray]:
    """Layer numbers from the low bits of integers, and fractions of 1 from the others. One bit of
    those that the fraction has no room for is dropped, as Boost does."""
    layer = (raw & np.uint64((1 << _BITS) - 1)).astype(np.int64)
    dropped = 64 - (24 if np.dtype(dtype) == np.float32 else 53)
    rest = raw & np.uint64(~(1 << dropped) & (2**64 - 1))
    return layer, (rest >> np.uint64(_BITS)).astype(dtype) * np.dtype(dtype).type(_SCALE)


def _pair(stream: _Stream, scalar: type) -> tuple[int, np.floating]:
    layer, fraction = _split(np.array([stream.next()], np.uint64), np.dtype(scalar))
    return int(layer[0]), fraction[0]


def _unit(stream: _Stream, scalar: type) -> np.floating:
    """A number of [0, 1)."""
    while True:
        value = scalar(stream.next()) / scalar(_WHOLE)
        if value < 1:
            return value


def _normal_slow(stream: _Stream, scalar: type) -> np.floating:
    """One normal number by all rules of the method."""
    x, y = _normal_layers()
    while True:
        number, fraction = _pair(stream, scalar)
        sign = scalar(1 if number & 1 else -1)
        i = number >> 1
        value = fraction * scalar(x[i])
        if value < scalar(x[i + 1]):
            return value * sign
        if i == 0:
            return _normal_tail(stream, scalar) * sign
        part = _unit(stream, scalar)
        height = scalar(y[i]) + part * scalar(y[i + 1] - y[i])
        chord = scalar(x[i] - x[i + 1]) * part - (scalar(x[i]) - value)
        tangent = height - (scalar(y[i]) + (scalar(x[i]) - value) * scalar(y[i]) * scalar(x[i]))
        upper, lower = (chord, tangent) if x[i] >= 1 else (tangent, chord)
        if upper < 0 and (lower < 0 or height < np.exp(-(value * value) / scalar(2))):
            return value * sign


def _normal_tail(stream: _Stream, scalar: type) -> np.floating:
    start = scalar(_NORMAL_EDGE)
    while True:
        beyond = _exponential(stream, scalar) / start
        if scalar(2) * _exponential(stream, scalar) > beyond * beyond:
            return beyond + start


def _exponential(stream: _Stream, scalar: type) -> np.floating:
    x, y = _exponential_layers()
    shift = scalar(0)
    while True:
        i, fraction = _pair(stream, scalar)
        value = fraction * scalar(x[i])
        if value < scalar(x[i + 1]):
            return shift + value
        if i == 0:
            shift += scalar(x[1])
            continue
        part = _unit(stream, scalar)
        height = scalar(y[i]) + part * scalar(y[i + 1] - y[i])
        upper = scalar(x[i] - x[i + 1]) * part - (scalar(x[i]) - value)
        lower = height - (scalar(y[i + 1]) + (scalar(x[i + 1]) - value) * scalar(y[i + 1]))
        if upper < 0 and (lower < 0 or height < np.exp(-value)):
            return value + shift
