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
    x = [width, edge]
    y = [0.0, f(edge)]
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
    if generator.fill_uniform(result, float(low), float(span), float(high)):
        return result
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
    """Fill `result` from the rest of the stream's block; returns how many numbers that gave.

    Most integers are a number each. The others take a second one, which decides between a number
    and none; few of them begin one of the tail, which takes any number of integers.
    """
    block = stream.block
    edges = _normal_layers()[0].astype(result.dtype)
    layer, fraction = _split(block, result.dtype)
    values = fraction * edges[layer >> 1]
    pairs = np.flatnonzero(values >= edges[(layer >> 1) + 1])
    taken, single = _decided(block, layer[pairs] >> 1, values[pairs], pairs)
    values = np.where(layer & 1, values, -values)
    done = 0
    while done < len(result) and stream.at < len(block) and stream.block is block:
        first = np.searchsorted(pairs, stream.at)
        begins = first + np.flatnonzero(_alternate(pairs[first:]))
        tails = begins[single[begins]]
        stop = int(pairs[tails[0]]) if len(tails) else len(block)
        begins = begins[pairs[begins] < stop]
        is_number = np.ones(stop - stream.at, bool)
        is_number[pairs[begins] + 1 - stream.at] = False
        is_number[pairs[begins] - stream.at] = taken[begins]
        numbers = values[stream.at : stop][is_number][: len(result) - done]
        result[done : done + len(numbers)] = numbers
        done += len(numbers)
        stream.at = stop
        if done < len(result) and stop < len(block):
            result[done] = _normal_slow(stream, result.dtype.type)
            done += 1
    return done


def _alternate(places: np.ndarray) -> np.ndarray:
    """Which of sorted places come to their turn where each takes the next place, too: of those in a
    row every second one."""
    number = np.arange(len(places))
    starts = np.diff(places, prepend=-2) != 1
    return (number - np.maximum.accumulate(np.where(starts, number, 0))) % 2 == 0


def _decided(
    block: np.ndarray, layers: np.ndarray, values: np.ndarray, places: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Which of the integers at `places` are a number by the integer after them, as
    `_normal_slow` finds it, and for which that integer alone does not decide."""
    scalar = values.dtype.type
    following = np.minimum(places + 1, len(block) - 1)
    part = block[following].astype(values.dtype) / scalar(_WHOLE)
    taken = _is_below(layers, values, part)
    return taken, (layers == 0) | (places + 1 == len(block)) | (part >= 1)


def _is_below(layers: np.ndarray, values: np.ndarray, part: np.ndarray) -> np.ndarray:
    """Whether points of layers that stick out of the next one lie below the normal curve: `values`
    to the right, `part` of the layer's height up."""
    x, y = _normal_layers()
    dtype = values.dtype
    heights = y[layers].astype(dtype)
    edges = x[layers].astype(dtype)
    height = heights + part * (y[layers + 1] - y[layers]).astype(dtype)
    away = edges - values
    chord = (x[layers] - x[layers + 1]).astype(dtype) * part - away
    tangent = height - (heights + away * heights * edges)
    is_convex = x[layers] >= 1  # to the right of the curve's turning point
    upper, lower = np.where(is_convex, chord, tangent), np.where(is_convex, tangent, chord)
    below = height < np.exp(-(values * values) / dtype.type(2))
    return (upper < 0) & ((lower < 0) | below)


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
    x, _ = _normal_layers()
    while True:
        number, fraction = _pair(stream, scalar)
        sign = scalar(1 if number & 1 else -1)
        i = number >> 1
        value = fraction * scalar(x[i])
        if value < scalar(x[i + 1]):
            return value * sign
        if i == 0:
            return _normal_tail(stream, scalar) * sign
        part = np.array([_unit(stream, scalar)])
        if _is_below(np.array([i]), np.array([value]), part)[0]:
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
