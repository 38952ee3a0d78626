"""Statistics of parameters and a small histogram."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...framework.base.sequence import bincount

BINS = 24
_SAMPLE = 1 << 16
"""Numbers that a histogram counts at most; of a larger array evenly spaced ones."""

_CHUNK = 1 << 22


def statistics(array: np.ndarray) -> dict[str, Any]:
    """What a page shows of an array, as JSON.

    Returns:
        `shape`, `dtype`, `count` of numbers, `wrong` (NaN and infinite ones), and of the others
        `mean`, `std`, `min`, `max`, `zeros` and `bins`: counts between `min` and `max`; `sample`,
        how many numbers are counted there.
    """
    facts: dict[str, Any] = {
        "shape": list(array.shape),
        "dtype": str(array.dtype),
        "count": int(array.size),
    }
    if not array.size or array.dtype.kind not in "fiub":
        return facts
    flat = array.reshape(-1)
    wrong, numbers, zeros = 0, 0, 0
    shift = total = squares = 0.0  # sums are taken around the first mean, so that they are exact
    low = np.inf
    high = -np.inf
    for begin in range(0, flat.size, _CHUNK):
        chunk = flat[begin : begin + _CHUNK].astype(np.float64)
        finite = np.isfinite(chunk)
        if not finite.all():
            wrong += int(chunk.size - np.count_nonzero(finite))
            chunk = chunk[finite]
        if not chunk.size:
            continue
        zeros += int(chunk.size - np.count_nonzero(chunk))
        low, high = min(low, float(chunk.min())), max(high, float(chunk.max()))
        with np.errstate(over="ignore", invalid="ignore"):
            if not numbers:
                shift = float(chunk.mean())
            chunk -= shift
            total += float(chunk.sum())
            squares += float(np.dot(chunk, chunk))
        numbers += chunk.size
    facts["wrong"] = wrong
    if not numbers:
        return facts
    away = total / numbers
    variance = max(squares / numbers - away * away, 0.0) if np.isfinite(squares) else np.inf
    facts |= {
        "mean": _short(shift + away),
        "std": _short(variance**0.5),
        "min": _short(low),
        "max": _short(high),
        "zeros": zeros,
    }
    if not np.isfinite(high - low):
        return facts
    if high > low:
        sample = flat[:: -(-flat.size // _SAMPLE)].astype(np.float64)
        sample = sample[np.isfinite(sample)]
        places = ((sample - low) * (BINS / (high - low))).astype(np.int64)
        counts = bincount(np.minimum(places, BINS - 1), minlength=BINS)
        facts |= {"bins": counts.tolist(), "sample": int(sample.size)}
    return facts


def _short(number: float) -> float | None:
    """Seven digits; JSON has no infinities."""
    return float(f"{number:.7g}") if np.isfinite(number) else None
