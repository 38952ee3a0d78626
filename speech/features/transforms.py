"""Frames beside their neighbors, and their linear transforms.

Source: Kaldi's `SpliceFrames` in `feat/feature-functions.cc`, `OnlineSpliceFrames` and
`OnlineTransform` in `feat/online-feature.cc`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...framework.base.errors import OpscopeError, ShapeError
from ...framework.base.options.option_fields import option
from ...framework.base.untrusted.limits import check_limit

_MOST = 1000


@dataclass(frozen=True)
class SpliceOptions:
    """How many neighbors stand beside a frame, as in a `splice.conf`.

    Raises:
        OpscopeError: a number is negative. FormatError: there would be too many.
    """

    left_context: int = option(4, "Number of frames of left context")
    right_context: int = option(4, "Number of frames of right context")

    def __post_init__(self) -> None:
        if min(self.left_context, self.right_context) < 0:
            raise OpscopeError(
                f"left-context={self.left_context} and right-context={self.right_context} must not"
                " be negative"
            )
        check_limit("window", self.width, "splicing")

    @property
    def width(self) -> int:
        """Frames side by side."""
        return self.left_context + 1 + self.right_context

    def neighbors(self, frames: np.ndarray, count: int) -> np.ndarray:
        """Numbers of the frames that stand beside some of `count` ones: [frames, width]."""
        around = np.arange(-self.left_context, self.right_context + 1)
        return np.clip(np.asarray(frames)[:, None] + around, 0, count - 1)


def splice(features: np.ndarray, left_context: int = 4, right_context: int = 4) -> np.ndarray:
    """Frames with their neighbors: [frames, dim * width]; at the ends the last frame is repeated.

    Args:
        features: [frames, dim].

    Raises:
        OpscopeError: a number is negative.
    """
    options = SpliceOptions(left_context, right_context)
    features = np.asarray(features)
    around = options.neighbors(np.arange(len(features)), len(features))
    return features[around].reshape(len(features), options.width * features.shape[1])


@dataclass(frozen=True)
class DeltaOptions:
    """How changes over time stand beside features. Source: Kaldi's `DeltaFeaturesOptions`.

    Raises:
        OpscopeError: a number is out of range.
    """

    order: int = option(2, "Order of delta computation", "delta-order")
    window: int = option(2, "Frames on either side that a delta reads", "delta-window")

    def __post_init__(self) -> None:
        if not (0 <= self.order < _MOST and 0 < self.window < _MOST):
            raise OpscopeError(
                f"delta-order={self.order}, delta-window={self.window}: numbers below {_MOST} are"
                " wanted, the second one above 0"
            )


def deltas(features: np.ndarray, options: DeltaOptions | None = None) -> np.ndarray:
    """Frames with their deltas, the deltas of the deltas, and so on: float32, [frames, dim * (order
    + 1)].

    At both ends the last frame is repeated.

    Args:
        features: [frames, dim], of at least one frame.
    """
    options = options or DeltaOptions()
    features = np.asarray(features, np.float32)
    steps = np.arange(-options.window, options.window + 1, dtype=np.float32)
    slope = steps / np.float32((steps * steps).sum())
    scales = np.ones(1, np.float32)
    parts = [features]
    for _ in range(options.order):
        scales = np.convolve(scales, slope)
        reach = len(scales) // 2
        padded = np.pad(features, ((reach, reach), (0, 0)), mode="edge")
        parts.append(
            np.sum([s * padded[i : i + len(features)] for i, s in enumerate(scales)], axis=0)
        )
    return np.concatenate(parts, axis=1)


def transform(features: np.ndarray, matrix: np.ndarray) -> np.ndarray:
    """Features times a matrix: float32, [frames, rows of the matrix].

    Args:
        features: [frames, dim]. matrix: [rows, dim], or with a column of offsets [rows, dim + 1].

    Raises:
        ShapeError: they do not go together.
    """
    features = np.asarray(features, np.float32)
    dim, columns = features.shape[1], matrix.shape[1]
    if columns not in (dim, dim + 1):
        raise ShapeError(f"a transform {list(matrix.shape)} for features of {dim} columns")
    # In float64: the same float32 then, whatever BLAS adds up first.
    wide = np.asarray(matrix, np.float64)
    product = features.astype(np.float64) @ wide[:, :dim].T
    return (product + wide[:, dim] if columns > dim else product).astype(np.float32)
