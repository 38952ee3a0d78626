"""Components that are affine, in test mode: a matrix and a vector, or a number for each column."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from ...nnet3.components.batch_norm import batch_norm_transform
from ...nnet3.components.scale_offset import SCALE_EPSILON


def affine_of(c: Any) -> tuple[np.ndarray, np.ndarray | None]:
    """W [out, in (times offsets)] and b [out], or None, of an affine component."""
    if c.type == "LinearComponent":
        return c.params, None
    return c.linear_params, (c.bias_params if c.bias_params.size else None)


AFFINE: Final = (
    "AffineComponent",
    "NaturalGradientAffineComponent",
    "FixedAffineComponent",
    "LinearComponent",
)


def diagonal(component: Any) -> tuple[np.ndarray, np.ndarray] | None:
    """Scale and offset of every column of a component that is no more than these; else None."""
    kind = component.type
    dim = component.output_dim
    one, zero = np.ones(1), np.zeros(1)
    transform: tuple[Any, Any] | None = None
    if kind == "BatchNormComponent" and component.test_mode:
        transform = batch_norm_transform(component)
    elif kind in _SCALES:
        transform = component.scales, zero
    elif kind == "FixedBiasComponent":
        transform = one, component.bias
    elif kind == "PerElementOffsetComponent":
        transform = one, component.offsets
    elif kind == "ScaleAndOffsetComponent":
        transform = _away_from_zero(component.scales), component.offsets
    elif kind == "DropoutComponent" and component.test_mode:
        transform = np.array([1.0 - component.dropout_proportion], np.float32), zero
    elif kind == "BackpropTruncationComponent":
        transform = np.array([component.scale], np.float32), zero
    elif kind in _IDENTITIES or (kind in _RANDOM and component.test_mode):
        transform = one, zero
    if transform is None:
        return None
    scale, offset = (np.asarray(each, np.float64).reshape(-1) for each in transform)
    return np.resize(scale, dim), np.resize(offset, dim)


_SCALES: Final = (
    "PerElementScaleComponent",
    "NaturalGradientPerElementScaleComponent",
    "FixedScaleComponent",
)
_IDENTITIES: Final = ("NoOpComponent", "ClipGradientComponent")
_RANDOM: Final = ("GeneralDropoutComponent", "SpecAugmentTimeMaskComponent")


def _away_from_zero(scales: np.ndarray) -> np.ndarray:
    bound = np.where(scales >= 0, np.float32(SCALE_EPSILON), np.float32(-SCALE_EPSILON))
    return np.where(np.abs(scales) < SCALE_EPSILON, bound, scales)
