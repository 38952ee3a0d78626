"""Mel filter banks, and what makes cepstra of them. Source: Kaldi's `feat/mel-computations.cc`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...framework.base.errors import OpscopeError, ShapeError
from ...framework.fusion.compiled import native
from ...framework.fusion.compiled.arguments import bind
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
    low, high = _edges(options)
    if not 0 <= low < nyquist or not 0 < high <= nyquist or high <= low:
        raise OpscopeError(
            f"low_freq={options.low_freq:g} and high_freq={options.high_freq:g} do not go with a"
            f" Nyquist frequency of {nyquist:g} Hz"
        )
    points = np.arange(options.padded_size // 2, dtype=np.float32)
    mels = mel_scale(rate / single(options.padded_size) * points)
    corners = _corners(options)
    bins = []
    for number in range(options.num_mel_bins):
        left, center, right = corners[number : number + 3]
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


def _edges(options: MelOptions) -> tuple[np.float32, np.float32]:
    """The lowest and the highest frequency of all filters, in Hz."""
    high = np.float32(options.high_freq)
    if high <= 0:
        high = np.float32(0.5) * np.float32(options.sample_frequency) + high
    return np.float32(options.low_freq), high


def _corners(options: MelOptions) -> np.ndarray:
    """Where the filters begin, peak and end, in mel: float32, [bins + 2]."""
    least, most = map(mel_scale, _edges(options))
    step = (most - least) / np.float32(options.num_mel_bins + 1)
    return least + np.arange(options.num_mel_bins + 2, dtype=np.float32) * step


def equal_loudness(options: MelOptions) -> np.ndarray:
    """How loud the ear hears the center of each filter: float32, [bins]."""
    centers = np.float32(700.0) * (np.exp(_corners(options)[1:-1] / np.float32(1127.0)) - 1)
    square = centers.astype(np.float64) ** 2
    below = square / (square + 1.6e5)
    return (below**2 * (square + 1.44e6) / (square + 9.61e6)).astype(np.float32)


class WeightedRows:
    """Sums of neighboring rows of a matrix, each row times a weight.

    Sums run along the rows, one after the other, so that a column's do not depend on how many
    columns there are.

    Args:
        bins: the rows of each sum, and their weights.
    """

    def __init__(self, bins: Sequence[MelBin]) -> None:
        self._bins = bins
        self._ends = max(each.first + len(each.weights) for each in bins)
        self._first = np.array([each.first for each in bins])
        self._begin = np.cumsum([0, *(len(each.weights) for each in bins)])
        self._weights = np.concatenate([each.weights for each in bins]).astype(np.float32)

    def of(self, rows: np.ndarray) -> np.ndarray:
        """The sums: float32, [sums, columns], of a matrix [rows, columns], float32."""
        if len(rows) < self._ends:
            raise ShapeError(f"sums of {self._ends} rows for a matrix {list(rows.shape)}")
        sums = np.empty((len(self._bins), rows.shape[1]), np.float32)
        library = native.load("features")
        if library is None:
            for out, each in zip(sums, self._bins, strict=True):
                products = rows[each.first : each.first + len(each.weights)] * each.weights[:, None]
                np.cumsum(products, axis=0, out=products)
                out[:] = products[-1]
            return sums
        bind(
            library,
            "weighted_rows",
            rows=len(sums),
            points=len(rows),
            columns=rows.shape[1],
            weight_count=len(self._weights),
            first=self._first,
            begin=self._begin,
            weights=self._weights,
            x=np.ascontiguousarray(rows, np.float32),
            out=sums,
        ).run()
        return sums


def cosine_transform(cepstra: int, bins: int) -> np.ndarray:
    """The first rows of the DCT-II matrix, normalized: float32, [cepstra, bins]."""
    rows = np.arange(cepstra)[:, None]
    columns = np.arange(bins)[None]
    matrix = np.sqrt(2.0 / bins) * np.cos(np.pi / bins * (columns + 0.5) * rows)
    matrix[0] = np.sqrt(1.0 / bins)
    return matrix.astype(np.float32)


def inverse_cosines(rows: int, points: int) -> np.ndarray:
    """The first rows of the inverse DFT of a real, even spectrum: float32, [rows, points].

    Points are those from 0 to half the period.
    """
    last = points - 1
    matrix = np.cos(np.pi / last * np.arange(rows)[:, None] * np.arange(points)[None]) / last
    matrix[:, [0, last]] *= 0.5
    return matrix.astype(np.float32)


def linear_prediction(correlations: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The predictor of each frame, by the recursion of Levinson and Durbin.

    Args:
        correlations: autocorrelations of frames, float32, [order + 1, frames].

    Returns:
        The coefficients, [order, frames], negated as the filter 1 - A(z) has them, and the
        power that the predictor leaves, [frames].
    """
    order = len(correlations) - 1
    # Kaldi's features of frames without any sound are NaN: 0 / 0.
    error = np.maximum(correlations[0], np.finfo(np.float32).tiny)
    filters = np.zeros((order, correlations.shape[1]), np.float32)
    for place in range(order):
        known = filters[:place]
        reflection = correlations[place + 1] + np.sum(known * correlations[place:0:-1], axis=0)
        reflection = reflection / error
        error = error * np.maximum(1 - reflection * reflection, np.float32(1e-5))
        filters[:place] = known - reflection * known[::-1]
        filters[place] = -reflection
    return filters, error


def prediction_cepstrum(filters: np.ndarray) -> np.ndarray:
    """The cepstrum of predictors, as `linear_prediction` gives them, without C0: same shape."""
    cepstrum = np.zeros(filters.shape)
    for place in range(len(filters)):
        weights = np.arange(place, 0, -1)[:, None] * filters[:place]
        before = np.sum(weights * cepstrum[:place][::-1], axis=0)
        cepstrum[place] = -filters[place] - before / (place + 1)
    return cepstrum.astype(np.float32)


def lifter(constant: float, cepstra: int) -> np.ndarray:
    """The factors of the cepstra: float32, [cepstra]."""
    numbers = np.arange(cepstra)
    return (1.0 + 0.5 * constant * np.sin(np.pi * numbers / constant)).astype(np.float32)
