"""Which frames have speech, by energy. Source: Kaldi's `ivector/voice-activity-detection.cc`."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...framework.base.errors import OpscopeError
from ...framework.base.options.option_fields import option


@dataclass(frozen=True)
class VadOptions:
    """The options of `compute-vad`.

    Raises:
        OpscopeError: a value is out of range.
    """

    energy_threshold: float = option(
        5.0, "Energy above which a frame counts, a constant part", "vad-energy-threshold"
    )
    energy_mean_scale: float = option(
        0.5, "Factor of the mean energy, which is added to the threshold", "vad-energy-mean-scale"
    )
    frames_context: int = option(
        0, "Frames on either side that are looked at", "vad-frames-context"
    )
    proportion_threshold: float = option(
        0.6, "Part of the frames around that must be above it", "vad-proportion-threshold"
    )

    def __post_init__(self) -> None:
        if self.frames_context < 0 or self.energy_mean_scale < 0:
            raise OpscopeError(
                f"vad-frames-context={self.frames_context} and vad-energy-mean-scale="
                f"{self.energy_mean_scale:g} must not be negative"
            )
        if not 0 < self.proportion_threshold < 1:
            raise OpscopeError(
                f"vad-proportion-threshold={self.proportion_threshold:g} must lie between 0 and 1"
            )


def voiced(features: np.ndarray, options: VadOptions | None = None) -> np.ndarray:
    """Which frames have speech: bool, [frames].

    Args:
        features: [frames, dim], of which the first column is the logarithm of the energy.
    """
    options = options or VadOptions()
    energy = np.asarray(features[:, 0], np.float32)
    if not len(energy):
        return np.zeros(0, bool)
    threshold = np.float32(options.energy_threshold)
    mean = np.float32(energy.sum(dtype=np.float64))
    threshold += np.float32(options.energy_mean_scale) * mean / np.float32(len(energy))
    above = np.concatenate(([0], np.cumsum(energy > threshold)))
    frames = np.arange(len(energy))
    begin = np.maximum(frames - options.frames_context, 0)
    end = np.minimum(frames + options.frames_context + 1, len(energy))
    wanted = (end - begin).astype(np.float32) * np.float32(options.proportion_threshold)
    return above[end] - above[begin] >= wanted
