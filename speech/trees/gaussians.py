"""Statistics of Gaussians as rows of arrays, and the objective that trees are grown by.

A row is the count of frames, their sum and the sum of their squares: float64, [1 + 2 * dim]. Sums
of sets of frames are sums of rows. Source: Kaldi's `tree/clusterable-classes.cc`.
"""

from __future__ import annotations

import numpy as np

_LOG_2_PI = float(np.log(2 * np.pi))


def objectives(rows: np.ndarray, floor: float) -> np.ndarray:
    """The log-likelihood of the frames of each row by a diagonal Gaussian estimated of them.

    Args:
        rows: float64, [..., 1 + 2 * dim].
        floor: least variance.

    Returns:
        float32, [...]: Kaldi compares objectives in single precision, which decides many ties.
    """
    dim = rows.shape[-1] // 2
    count = rows[..., :1]
    seen = count > 0
    divisor = np.where(seen, count, 1.0)
    mean = rows[..., 1 : 1 + dim] / divisor
    variance = rows[..., 1 + dim :] / divisor - mean * mean
    floored = np.maximum(variance, floor)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        frame = -0.5 * (variance / floored).sum(-1)
        frame -= 0.5 * (np.log(floored).sum(-1) + _LOG_2_PI * dim)
        values = np.where(seen[..., 0] & ~np.isnan(frame), frame * count[..., 0], 0.0)
    return values.astype(np.float32)


def distances(
    row: np.ndarray, objective: np.float32, rows: np.ndarray, others: np.ndarray, floor: float
) -> np.ndarray:
    """How much objective is lost where a cluster is merged with each of some others.

    Args:
        row: [1 + 2 * dim]. objective: of it.
        rows: [clusters, 1 + 2 * dim]. others: their objectives, float32, [clusters].
        floor: least variance.

    Returns:
        float32, [clusters], not negative.
    """
    return np.maximum(objective + others - objectives(rows + row, floor), np.float32(0))


def sums_by(values: np.ndarray, rows: np.ndarray, size: int) -> np.ndarray:
    """The sum of the rows that have each value below `size`: [size, 1 + 2 * dim].

    `np.add.at` adds in the order of the rows, as Kaldi does; other sums differ in last digits.
    """
    total = np.zeros((size, rows.shape[1]))
    np.add.at(total, values, rows)
    return total
