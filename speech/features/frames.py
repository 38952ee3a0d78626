"""Frames of a signal while it comes: cut, dithered, windowed.

Source: Kaldi's `feat/feature-window.cc`, `OnlineGenericBaseFeature` in `feat/online-feature.cc`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...framework.base.errors import OpscopeError, ShapeError
from ...nnet3.language.nodes import warn
from .options import FrameOptions

TINY = float(np.finfo(np.float32).eps)  # what Kaldi floors energies at
_STILL = 1.0
"""Largest distance of samples in a frame without a signal: one step of 16-bit integers."""


def window_function(options: FrameOptions) -> np.ndarray:
    """The window that frames are multiplied with: float32, [window size]."""
    size = options.window_size
    angle = 2 * np.pi / (size - 1) * np.arange(size)
    kind = options.window_type
    constant = float(np.float32(options.blackman_coeff))
    if kind == "hanning":
        window = 0.5 - 0.5 * np.cos(angle)
    elif kind == "sine":
        window = np.sin(0.5 * angle)
    elif kind == "hamming":
        window = 0.54 - 0.46 * np.cos(angle)
    elif kind == "povey":
        window = (0.5 - 0.5 * np.cos(angle)) ** 0.85
    elif kind == "blackman":
        window = constant - 0.5 * np.cos(angle) + (0.5 - constant) * np.cos(2 * angle)
    else:
        window = np.ones(size)
    return window.astype(np.float32)


def checked_samples(samples: Any) -> np.ndarray:
    """Samples of one channel, as float32, [count], on the scale of 16-bit integers.

    Raises:
        ShapeError: there are several channels. OpscopeError: they are no finite numbers.
    """
    array = np.asarray(samples)
    if array.ndim != 1:
        raise ShapeError(
            f"samples {list(array.shape)}: features need one channel, [count]; choose one"
        )
    if array.dtype.kind not in "iuf":
        raise OpscopeError(f"samples of dtype {array.dtype}: want real numbers")
    array = array.astype(np.float32)
    finite = np.isfinite(array)
    if not finite.all():
        raise OpscopeError(
            f"{np.count_nonzero(~finite)} of {len(array)} samples are NaN or infinite, the first"
            f" of them sample {np.flatnonzero(~finite)[0]}"
        )
    return array


def warn_of_scale(samples: Any) -> None:
    """Warn of samples between -1 and 1, which many libraries give: Kaldi's scale is another."""
    array = np.asarray(samples)
    if array.dtype.kind == "f" and array.size and 0 < np.abs(array).max() <= 1.0:
        warn(
            "all samples lie between -1 and 1, but features are computed as of 16-bit integers,"
            " -32768 to 32767: multiply by 32768"
        )


class Framer:
    """Gives the windowed frames of a signal while its samples come.

    Args:
        options: how to cut. seed: of the noise that dithers; all frames depend on it.
        energies: whether log energies are taken before preemphasis and window.
        still: whether only frames without a signal are dithered.
    """

    def __init__(
        self, options: FrameOptions, seed: Any, energies: bool, still: bool = False
    ) -> None:
        self.options = options
        self._energies = energies
        self._still = still
        self._window = window_function(options)
        try:
            sequence = np.random.SeedSequence(seed)
        except (ValueError, TypeError):
            raise OpscopeError(f"seed={seed!r}: want whole numbers that are not negative") from None
        self._random = np.random.Generator(np.random.PCG64(sequence))
        self._kept = np.empty(0, np.float32)
        self._begin = 0  # number of the first kept sample
        self.samples = 0
        self.frames = 0

    def accept(self, samples: np.ndarray) -> None:
        """Take the next samples, which have been checked."""
        self._kept = np.concatenate((self._kept, samples))
        self.samples += len(samples)

    def ready(self, flush: bool) -> int:
        """How many frames can be cut now."""
        return self.options.frame_count(self.samples, flush) - self.frames

    def cut(self, count: int) -> tuple[np.ndarray, np.ndarray | None]:
        """The next `count` frames, windowed and padded: [count, FFT points]; and log energies."""
        options = self.options
        size, shift = options.window_size, options.window_shift
        start = options.first_sample(self.frames) - self._begin
        span = (count - 1) * shift + size
        if start >= 0 and start + span <= len(self._kept):
            part = self._kept[start : start + span]
        else:  # reflected, as often as it takes
            period = 2 * len(self._kept)
            places = np.arange(start, start + span) % period
            part = self._kept[np.minimum(places, period - 1 - places)]
        padded = np.zeros((count, options.padded_size), np.float32)
        frames = padded[:, :size]
        frames[:] = np.lib.stride_tricks.sliding_window_view(part, size)[::shift]
        energies = self._process(frames)
        self.frames += count
        cut = min(max(options.first_sample(self.frames) - self._begin, 0), len(self._kept))
        self._kept = self._kept[cut:]
        self._begin = self._begin + cut
        return padded, energies

    def _process(self, frames: np.ndarray) -> np.ndarray | None:
        options = self.options
        if options.dither:
            noise = self._random.standard_normal(frames.shape, np.float32)
            noise *= np.float32(options.dither)
            if self._still:
                noise[np.ptp(frames, axis=1) > _STILL] = 0
            frames += noise
        if options.remove_dc_offset:
            frames -= row_sums(frames)[:, None] / np.float32(options.window_size)
        energies = log_energies(frames) if self._energies else None
        if options.preemphasis_coefficient:
            factor = np.float32(options.preemphasis_coefficient)
            before = frames * factor
            frames[:, 1:] -= before[:, :-1]
            frames[:, 0] -= before[:, 0]
        frames *= self._window
        return energies


def row_sums(rows: np.ndarray) -> np.ndarray:
    """The sum of each row; of one row it is that which it has among others."""
    return np.add.reduce(np.ascontiguousarray(rows), axis=1)


def log_energies(frames: np.ndarray, least: float = TINY) -> np.ndarray:
    """The log of the sum of squares of each frame, `least` at least: float32, [frames]."""
    return np.log(np.maximum(row_sums(frames * frames), np.float32(least)))
