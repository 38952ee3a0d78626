"""Mel filter banks and the cosine transform. Source: Kaldi's `feat/mel-computations.cc`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ...framework.base.errors import OpscopeError
from .options import MelOptions


def mel_scale(frequency: Any) -> Any:
    """Mel of frequencies in Hz, float32, of a number or an array."""
    return np.float32(1127.0) * np.log(np.float32(1.0) + frequency / np.float32(700.0))


@dataclass(frozen=True)
class MelBin:
    """A triangular filter: its first point of the spectrum, and the weights from there on."""

    first: int
    weights: np.ndarray


def mel_bins(options: MelOptions) -> list[MelBin]:
    """The filters of some options.

    Raises:
        OpscopeError: the frequencies do not go with the sampling rate, or a filter is empty.
    """
    single = np.float32
    rate = single(options.sample_frequency)
    nyquist = single(0.5) * rate
    low, high = single(options.low_freq), single(options.high_freq)
    if high <= 0:
        high = nyquist + high
    if not 0 <= low < nyquist or not 0 < high <= nyquist or high <= low:
        raise OpscopeError(
            f"low_freq={options.low_freq:g} and high_freq={options.high_freq:g} do not go with a"
            f" Nyquist frequency of {nyquist:g} Hz"
        )
    points = np.arange(options.padded_size // 2, dtype=np.float32)
    mels = mel_scale(rate / single(options.padded_size) * points)
    least, most = mel_scale(low), mel_scale(high)
    step = (most - least) / single(options.num_mel_bins + 1)
    bins = []
    for number in range(options.num_mel_bins):
        left, center, right = (least + single(number + side) * step for side in range(3))
        first, stop = np.searchsorted(mels, left, "right"), np.searchsorted(mels, right, "left")
        if first >= stop:
            raise OpscopeError(
                f"num_mel_bins={options.num_mel_bins} is too large: bin {number} has no point of"
                " the FFT"
            )
        here = mels[first:stop]
        rising, falling = (here - left) / (center - left), (right - here) / (right - center)
        bins.append(MelBin(int(first), np.where(here <= center, rising, falling)))
    return bins


def apply_bins(bins: list[MelBin], spectrum: np.ndarray) -> np.ndarray:
    """Energies of the filters: [bins, frames], of a spectrum [points, frames], float32.

    Sums run along the spectrum, one point after the other, so that a frame's energies do not depend
    on how many frames there are. Two frames at least are wanted: NumPy sums one alone pairwise.
    """
    energies = np.empty((len(bins), spectrum.shape[1]), np.float32)
    for row, each in zip(energies, bins, strict=True):
        part = spectrum[each.first : each.first + len(each.weights)]
        np.add.reduce(part * each.weights[:, None], axis=0, out=row)
    return energies


def cosine_transform(cepstra: int, bins: int) -> np.ndarray:
    """The first rows of the DCT-II matrix, normalized: float32, [cepstra, bins]."""
    rows = np.arange(cepstra)[:, None]
    columns = np.arange(bins)[None]
    matrix = np.sqrt(2.0 / bins) * np.cos(np.pi / bins * (columns + 0.5) * rows)
    matrix[0] = np.sqrt(1.0 / bins)
    return matrix.astype(np.float32)


def lifter(constant: float, cepstra: int) -> np.ndarray:
    """The factors of the cepstra: float32, [cepstra]."""
    numbers = np.arange(cepstra)
    return (1.0 + 0.5 * constant * np.sin(np.pi * numbers / constant)).astype(np.float32)
