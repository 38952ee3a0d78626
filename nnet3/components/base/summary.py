"""The wording of `nnet3-info`: numbers as C++ streams print them, summaries of vectors.

Format: `PrintParameterStats` and `SummarizeVector` of Kaldi's `nnet3/nnet-parse.cc`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar

import numpy as np

_SINGULAR_VALUES = ContextVar("singular values are summarized", default=False)
_PERCENTILES = (0, 1, 2, 5, 10, 20, 50, 80, 90, 95, 98, 99, 100)
_PERCENTILES_TEXT = "0,1,2,5 10,20,50,80,90 95,98,99,100"
_MANY = 10  # values of which no list is printed
_BEHIND = {3: " ", 8: " ", 12: ""}  # what follows a percentile's value, a comma elsewhere


def number(value: float | np.floating, digits: int = 6) -> str:
    """`value` as a C++ stream prints it with so many significant digits."""
    if np.isnan(value):
        return "-nan" if np.signbit(value) else "nan"
    return f"{float(value):.{digits}g}"


def flag(value: bool) -> str:
    """`true` or `false`."""
    return "true" if value else "false"


@contextlib.contextmanager
def singular_values(wanted: bool = True) -> Iterator[None]:
    """Within the block, `parameter_stats` gives singular values where it gives norms."""
    token = _SINGULAR_VALUES.set(wanted)
    try:
        yield
    finally:
        _SINGULAR_VALUES.reset(token)


def _short(value: float) -> str:
    size = abs(value)
    if 10 <= size < 10000:
        return f"{value:.0f}"
    if size >= 0.995:
        return f"{value:.1f}"
    if size >= 0.01:
        return f"{value:.2f}"
    return number(value, 1)


def _moments(values: np.ndarray) -> tuple[np.float32, np.float32]:
    """Mean and standard deviation, in float32 as Kaldi computes them."""
    values = np.ascontiguousarray(values, np.float32).reshape(-1)
    size = np.float32(values.size)
    with np.errstate(all="ignore"):
        mean = np.dot(values, np.ones_like(values)) / size
        # Kaldi's subtraction is fused with the square, which therefore is not rounded.
        variance = float(np.dot(values, values) / size) - float(mean) ** 2
        return mean, np.sqrt(np.float32(variance))


def summarize_vector(values: np.ndarray) -> str:
    """All values if there are few, otherwise percentiles, mean and standard deviation."""
    values = np.asarray(values).astype(np.float32)
    if values.size < _MANY:
        return "[ " + "".join(f"{_short(float(v))} " for v in values) + "]"
    ordered = np.sort(values)
    chosen = [float(ordered[(values.size - 1) * p // 100]) for p in _PERCENTILES]
    text = "".join(_short(v) + _BEHIND.get(i, ",") for i, v in enumerate(chosen))
    mean, stddev = _moments(values)
    return (
        f"[percentiles({_PERCENTILES_TEXT})=({text}), mean={number(mean, 3)}, "
        f"stddev={number(stddev, 3)}]"
    )


def printed_mean(values: np.ndarray) -> float | None:
    """The mean that `summarize_vector` prints, with its digits; None where it prints all values."""
    return None if values.size < _MANY else float(number(_moments(values)[0], 3))


def parameter_stats(name: str, params: np.ndarray, mean: bool = False, norms: bool = False) -> str:
    """`, NAME-rms=...`, or mean and deviation, and the norms of rows and columns if asked for,
    and then, within `singular_values`, those."""
    if mean:
        average, stddev = _moments(params)
        text = f", {name}-{{mean,stddev}}={number(average, 4)},{number(stddev, 4)}"
    else:
        flat = np.ascontiguousarray(params, np.float32).reshape(-1)
        with np.errstate(all="ignore"):
            rms = np.sqrt(np.dot(flat, flat) / np.float32(flat.size))
        text = f", {name}-rms={number(rms, 4)}"
    if norms:
        for kind, axis in (("row", 1), ("col", 0)):
            lengths = np.sqrt(np.square(params).sum(axis=axis))
            text += f", {name}-{kind}-norms={summarize_vector(lengths)}"
        if _SINGULAR_VALUES.get():
            values = np.linalg.svd(params, compute_uv=False)
            text += f", {name}-singular-values={summarize_vector(values)}"
    return text
