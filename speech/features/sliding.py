"""CMVN by a sliding window. Source: `SlidingWindowCmn` in Kaldi's `feat/feature-functions.cc`."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...framework.base.errors import OpscopeError
from ...framework.base.options.option_fields import option
from ...nnet3.language.nodes import warn

_LEAST_VARIANCE = 1e-10


@dataclass(frozen=True)
class SlidingCmvnOptions:
    """The options of `apply-cmvn-sliding`.

    Raises:
        OpscopeError: the windows are out of range.
    """

    cmn_window: int = option(600, "Frames of the window")
    min_window: int = option(
        100, "Least frames of the window at the beginning; without --center", "min-cmn-window"
    )
    max_warnings: int = option(5, "Most warnings of an utterance; -1: all")
    normalize_variance: bool = option(False, "Normalize variances", "norm-vars")
    center: bool = option(False, "The window lies around a frame; else it ends there")

    def __post_init__(self) -> None:
        if self.cmn_window < 1 or (self.center and not 1 <= self.min_window <= self.cmn_window):
            raise OpscopeError(
                f"cmn-window={self.cmn_window} and min-cmn-window={self.min_window} must be"
                " positive, and grow in the other order"
            )

    def windows(self, count: int) -> tuple[np.ndarray, np.ndarray]:
        """The first frame of the window of each of `count` frames, and the one after its last."""
        frames = np.arange(count)
        if self.center:
            start = frames - self.cmn_window // 2
            end = start + self.cmn_window
        else:
            start = frames - self.cmn_window
            end = frames + 1
        end = end - np.minimum(start, 0)
        start = np.maximum(start, 0)
        if not self.center:
            end = np.where(end > frames, np.maximum(frames + 1, self.min_window), end)
        start = np.maximum(start - np.maximum(end - count, 0), 0)
        return start, np.minimum(end, count)


def sliding_cmvn(features: np.ndarray, options: SlidingCmvnOptions | None = None) -> np.ndarray:
    """Features normalized by the window at each frame: float32, [frames, dim].

    Args:
        features: [frames, dim].
    """
    options = options or SlidingCmvnOptions()
    values = np.asarray(features, np.float64)
    start, end = options.windows(len(values))
    counts = (end - start)[:, None].astype(np.float64)

    def sums(each: np.ndarray) -> np.ndarray:
        total = np.concatenate((np.zeros((1, each.shape[1])), np.cumsum(each, axis=0)))
        return total[end] - total[start]

    mean = sums(values) / counts
    normalized = values - mean
    if options.normalize_variance:
        variance = sums(values * values) / counts - mean * mean
        floored = np.count_nonzero(variance < _LEAST_VARIANCE, axis=1) * (counts[:, 0] > 1)
        _warn_of_floors(floored, counts[:, 0], options.max_warnings)
        normalized /= np.sqrt(np.maximum(variance, _LEAST_VARIANCE))
        normalized[counts[:, 0] == 1] = 0.0
    return normalized.astype(np.float32)


def _warn_of_floors(floored: np.ndarray, counts: np.ndarray, most: int) -> None:
    frames = np.flatnonzero(floored)
    for frame in frames if most < 0 else frames[:most]:
        warn(
            f"Flooring when normalizing variance, floored {floored[frame]} elements; num-frames was"
            f" {counts[frame]:.0f}"
        )
    if 0 <= most < len(frames):
        warn(
            "Suppressing the remaining variance flooring warnings. Run program with"
            " --max-warnings=-1 to see all warnings."
        )
