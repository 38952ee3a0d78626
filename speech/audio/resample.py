"""Other sampling rates, by a windowed sinc. Source: Kaldi's `feat/resample.cc`."""

from __future__ import annotations

import math

import numpy as np

from ...framework.base.errors import OpscopeError
from ...framework.base.untrusted.limits import check_limit

_ZEROS = 6  # of the sinc, on each side of its middle
_MOST_RATE = 10_000_000  # Hz
_MOST_WEIGHTS = 1 << 24
_GROWTH = 16  # times as many samples that are made without a check
_OFFLINE = 0.99  # how near to the Nyquist frequency Kaldi's programs for whole files cut


class Resampler:
    """Gives a signal another sampling rate while it comes; blocks give the bits of a whole.

    Kaldi's programs for whole files cut frequencies at 0.99 of half the lower rate, its online
    recognizer at half that rate: the results differ by a little.

    Args:
        rate, new_rate: in Hz, whole numbers.
        whole_file: cut as the programs for whole files do.
        cutoff: in Hz, half the lower rate at most, in place of either. zeros: of the sinc, on each
            side of its middle: more of them cut more sharply.

    Raises:
        OpscopeError: a rate is no whole number in range, or both have so little in common that the
            filter would be huge.
    """

    def __init__(
        self,
        rate: float,
        new_rate: float,
        *,
        whole_file: bool = False,
        cutoff: float | None = None,
        zeros: int = _ZEROS,
    ) -> None:
        for each in (rate, new_rate):
            if not 1 <= each <= _MOST_RATE or int(each) != each:
                raise OpscopeError(
                    f"sampling rate {each}: want a whole number from 1 to {_MOST_RATE} Hz"
                )
        self.rate = int(rate)
        self.new_rate = int(new_rate)
        common = math.gcd(self.rate, self.new_rate)
        self._step = self.rate // common
        self._phases = self.new_rate // common
        lower = np.float32(min(self.rate, self.new_rate))
        self._zeros = zeros
        if cutoff is not None:
            self._cutoff = np.float32(cutoff)
        elif whole_file:
            self._cutoff = np.float32(_OFFLINE * 0.5 * float(lower))
        else:
            self._cutoff = lower / np.float32(2)
        self._first, self._weights = self._filters()
        self.reset()

    def _filters(self) -> tuple[np.ndarray, np.ndarray]:
        """First sample of each phase of the output, and the weights, [taps, phases]."""
        cutoff = float(self._cutoff)
        width = self._zeros / (2.0 * cutoff)
        times = np.arange(self._phases) / float(self.new_rate)
        first = np.ceil((times - width) * self.rate).astype(np.int64)
        last = np.floor((times + width) * self.rate).astype(np.int64)
        taps = int((last - first).max()) + 1
        if taps * self._phases > _MOST_WEIGHTS:
            raise OpscopeError(
                f"from {self.rate} to {self.new_rate} Hz: the rates have too little in common"
            )
        samples = first[None] + np.arange(taps)[:, None]
        away = (samples / float(self.rate) - times[None]).astype(np.float32).astype(np.float64)
        weights = windowed_sinc(away, cutoff, self._zeros) / np.float32(self.rate)
        return first, np.where(samples <= last[None], weights, np.float32(0))

    def reset(self) -> None:
        """Forget all samples: another signal begins."""
        self._kept = np.empty(0, np.float32)
        self._begin = 0  # number of the first kept sample
        self._emitted = 0

    def output_count(self, samples: int, flush: bool) -> int:
        """How many samples come of the first `samples` ones.

        Args:
            flush: that no more samples follow.
        """
        ticks = math.lcm(self.rate, self.new_rate)
        length = samples * (ticks // self.rate)
        if not flush:
            width = np.float32(self._zeros / (2.0 * float(self._cutoff)))
            length -= int(np.floor(width * np.float32(ticks)))
        return 0 if length <= 0 else -(-length // (ticks // self.new_rate))

    def accept(self, samples: np.ndarray, flush: bool = False) -> np.ndarray:
        """The new samples that can be computed now: float32, [count].

        Args:
            samples: float32, [any number]. flush: that these are the last; the next call begins
                another signal.

        Raises:
            FormatError: they would become very many times as many, beyond the limit `unpack`.
        """
        kept = np.concatenate((self._kept, np.asarray(samples, np.float32)))
        end = self._begin + len(kept)
        count = self.output_count(end, flush)
        if self.new_rate > _GROWTH * self.rate:
            bytes_wanted = 8 * (count - self._emitted)
            check_limit("unpack", bytes_wanted, f"samples from {self.rate} to {self.new_rate} Hz")
        new = self._resampled(kept, self._emitted, max(count, self._emitted))
        if flush:
            self.reset()
            return new
        self._emitted += len(new)
        needed = self._first_sample(self._emitted)
        cut = min(max(needed - self._begin, 0), len(kept))
        self._kept = kept[cut:].copy()
        self._begin = self._begin + cut
        return new

    def _first_sample(self, output: int) -> int:
        """The first sample that an output sample is made of."""
        return int(self._first[output % self._phases]) + output // self._phases * self._step

    def _resampled(self, kept: np.ndarray, begin: int, end: int) -> np.ndarray:
        """Output samples of a range; sums run from tap to tap, whatever the range is."""
        if end <= begin:
            return np.empty(0, np.float32)
        numbers = np.arange(begin, end)
        phases = numbers % self._phases
        first = self._first[phases] + numbers // self._phases * self._step - self._begin
        taps = len(self._weights)
        before = max(-int(first[0]), 0)  # zeros stand before the signal, and after it
        after = max(int(first[-1]) + taps - len(kept), int(first.max()) + taps - len(kept), 0)
        padded = np.concatenate(
            (np.zeros(before, np.float32), kept, np.zeros(after, np.float32))
        ).astype(np.float64)
        first = first + before
        total = np.zeros(len(numbers))
        for tap in range(taps):
            total += padded[first + tap] * self._weights[tap][phases]
        return total.astype(np.float32)


def windowed_sinc(times: np.ndarray, cutoff: float, zeros: int) -> np.ndarray:
    """A low-pass filter at some times, in seconds from its middle: float32, of their shape.

    Args:
        cutoff: in Hz. zeros: of the sinc, on each side, where the window ends.
    """
    window = 0.5 * (1 + np.cos(2 * np.pi * cutoff / zeros * times))
    window = np.where(np.abs(times) < zeros / (2.0 * cutoff), window, 0.0).astype(np.float32)
    with np.errstate(divide="ignore", invalid="ignore"):
        sinc = np.sin(2 * np.pi * cutoff * times) / (np.pi * times)
    return np.where(times == 0, 2 * cutoff, sinc).astype(np.float32) * window


def resample(
    samples: np.ndarray, rate: float, new_rate: float, *, whole_file: bool = True
) -> np.ndarray:
    """A whole signal at another sampling rate: float32, [count].

    Args:
        samples: [any number]. rate, new_rate: in Hz. whole_file: see `Resampler`.

    Raises:
        OpscopeError: a rate is out of range.
    """
    if rate == new_rate:
        return np.asarray(samples, np.float32)
    return Resampler(rate, new_rate, whole_file=whole_file).accept(samples, flush=True)
