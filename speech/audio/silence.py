"""More silence at the end of a recording, made of its own noise.

Source: Kaldi's `featbin/extend-wav-with-silence.cc`.
"""

from __future__ import annotations

import numpy as np

_SEARCHED, _PART = 0.5, 0.05  # seconds


def with_silence(samples: np.ndarray, rate: float, count: int) -> np.ndarray:
    """The samples, [samples], and `count` more: the quietest 0.05 s of the first and the last half
    second again and again, which fade into each other.

    Digital silence is taken only where there is no other.
    """
    half = max(min(int(_PART * rate), len(samples)) // 2, 1)
    if count <= 0 or len(samples) < 2 * half:
        return np.pad(samples, (0, max(count, 0)))
    window = np.hamming(2 * half).astype(np.float32)
    result = np.pad(samples, (0, count))
    first = len(samples) - half  # the first part fades in over the last samples
    result[first : len(samples)] *= window[half:]
    part = window * _quietest(samples, int(_SEARCHED * rate), 2 * half)
    for begin in range(first, len(result), half):
        result[begin : begin + 2 * half] += part[: len(result) - begin]
    return result


def _quietest(samples: np.ndarray, searched: int, width: int) -> np.ndarray:
    """The part of so many samples with the least energy, near the beginning or the end."""
    parts = np.lib.stride_tricks.sliding_window_view(samples, width)
    near = np.arange(len(parts))
    near = near[(near + width <= searched) | (near >= len(samples) - searched)]
    near = near[:: width // 2]
    energies = np.sum(np.square(parts[near], dtype=np.float64), axis=1)
    energies[energies == 0] = np.inf
    return parts[near[np.argmin(energies)]]
