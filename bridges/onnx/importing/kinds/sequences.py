"""Sequences, optionals, and numbers drawn at random."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..calls import Attributes, Call, NotHere, Value, evaluates, lowers
from .constants import dtype_attr


@evaluates("SequenceConstruct")
def _construct(n: Attributes, *args: np.ndarray) -> list[np.ndarray]:
    return list(args)


@evaluates("SequenceEmpty")
def _empty(n: Attributes) -> list[np.ndarray]:
    return []


def _place(position: Any, size: int, most: int) -> int:
    at = int(np.asarray(position).reshape(-1)[0])
    if not -size <= at <= most:
        raise IndexError(f"position {at} of {size} arrays")
    return at + size if at < 0 else at


@evaluates("SequenceAt")
def _at(n: Attributes, values: list[Any], position: np.ndarray) -> np.ndarray:
    return values[_place(position, len(values), len(values) - 1)]


@evaluates("SequenceInsert")
def _insert(n: Attributes, values: list[Any], value: np.ndarray, position: Any = None) -> list[Any]:
    at = len(values) if position is None else _place(position, len(values), len(values))
    return [*values[:at], value, *values[at:]]


@evaluates("SequenceErase")
def _erase(n: Attributes, values: list[Any], position: Any = None) -> list[Any]:
    at = len(values) - 1 if position is None else _place(position, len(values), len(values) - 1)
    return [*values[:at], *values[at + 1 :]]


@evaluates("SequenceLength")
def _length(n: Attributes, values: list[Any]) -> np.ndarray:
    return np.array(len(values), np.int64)


@evaluates("ConcatFromSequence")
def _join(n: Attributes, values: list[Any]) -> np.ndarray:
    axis = n.attr("axis", 0)
    return np.stack(values, axis) if n.attr("new_axis", 0) else np.concatenate(values, axis)


@evaluates("SplitToSequence")
def _cut(n: Attributes, x: np.ndarray, split: Any = None) -> list[np.ndarray]:
    axis = n.axis(n.attr("axis", 0), x.ndim)
    size = x.shape[axis]
    if split is not None and split.ndim:
        ends = np.cumsum(split)[:-1]
    else:
        part = 1 if split is None else int(split)
        ends = np.arange(part, size, part)
    parts = np.split(x, ends, axis)
    if split is None and not n.attr("keepdims", 1):
        parts = [np.squeeze(part, axis) for part in parts]
    return parts


@evaluates("Optional")
def _optional(n: Attributes, value: Any = None) -> Any:
    return (value,)


@evaluates("OptionalHasElement")
def _has_element(n: Attributes, value: Any = None) -> np.ndarray:
    return np.array(value is not None)


@evaluates("OptionalGetElement")
def _get_element(n: Attributes, value: Any) -> Any:
    if value is None:
        raise ValueError("the optional value is empty")
    return (value,)


# -- at random -------------------------------------------------------------------------------------


def _generator(n: Attributes, generator: np.random.Generator) -> Any:
    """What draws: with a seed the generator that ONNX's reference has, the same every time."""
    seed = n.attr("seed")
    if seed is None:
        return generator
    if not isinstance(seed, (int, float)) or not 0 <= int(seed) < 1 << 32:
        n.fail(f"seed {seed!r}")
    return np.random.RandomState(int(seed))


@evaluates("RandomNormal", "RandomUniform", is_random=True)
def _draw(n: Attributes, generator: np.random.Generator) -> np.ndarray:
    return _drawn(n, generator, n.ints("shape") or [], np.dtype("float32"))


@evaluates("RandomNormalLike", "RandomUniformLike", is_random=True)
def _draw_like(n: Attributes, generator: np.random.Generator, x: np.ndarray) -> np.ndarray:
    return _drawn(n, generator, x.shape, x.dtype)


def _drawn(
    n: Attributes, generator: np.random.Generator, shape: Any, default: np.dtype
) -> np.ndarray:
    draw, dtype = _generator(n, generator), dtype_attr(n, default)
    if "Normal" in n.node.op:
        return draw.normal(n.attr("mean", 0.0), n.attr("scale", 1.0), shape).astype(dtype)
    return draw.uniform(n.attr("low", 0.0), n.attr("high", 1.0), shape).astype(dtype)


@evaluates("Bernoulli", is_random=True)
def _bernoulli(n: Attributes, generator: np.random.Generator, p: np.ndarray) -> np.ndarray:
    drawn = _generator(n, generator).binomial(1, p)
    return drawn.astype(dtype_attr(n, p.dtype))


@evaluates("Multinomial", is_random=True)
def _multinomial(n: Attributes, generator: np.random.Generator, x: np.ndarray) -> np.ndarray:
    draw = _generator(n, generator)
    noise = draw.gumbel(size=(len(x), n.attr("sample_size", 1), x.shape[1]))
    return np.argmax(x[:, None] + noise, -1).astype(dtype_attr(n, np.int32))


@evaluates("Dropout", is_random=True)
def _dropout_on_host(
    n: Attributes,
    generator: np.random.Generator,
    x: np.ndarray,
    ratio: Any = None,
    training: Any = None,
) -> tuple[np.ndarray, ...]:
    p = n.attr("ratio", 0.5) if ratio is None else float(ratio)
    if n.version < 12 or training is None or not bool(training) or p == 0:
        return x, np.ones(x.shape, bool)
    kept = _generator(n, generator).uniform(size=x.shape) >= p
    return (x * kept / (1 - p)).astype(x.dtype), kept


@lowers("Dropout")
def _dropout(n: Call) -> list[Value]:
    training = n.known(2) if n.version >= 12 else None
    if training is not None and bool(training):
        raise NotHere
    if not n.wants(1):
        return [n[0]]
    mask = np.ones(n[0].shape, bool if n.version >= 10 else n[0].dtype)
    return [n[0], n.const(mask)]
