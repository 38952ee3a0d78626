"""The pitch of a signal while it comes, as Kaldi tracks it.

For each frame the signal is correlated with itself at the lags of all pitches; a Viterbi search
finds the path of lags that has high correlations and changes little from frame to frame.

Source: Kaldi's `feat/pitch-functions.cc`; "A pitch extraction algorithm tuned for automatic speech
recognition", Ghahremani et al., ICASSP 2014.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ...framework.base.errors import OpscopeError
from ...framework.base.options.option_fields import option
from ..audio.resample import Resampler, windowed_sinc
from .frames import checked_samples
from .options import check_values
from .rows import Rows

_BATCH = 128  # frames that are correlated at once
_SAME_POWER = 0.01  # relative change of the signal's power that changes no path
_MOST_LAGS = 4096
_MOST_SAMPLES = 1 << 14  # of a frame with the longest lag, after resampling


@dataclass(frozen=True)
class PitchOptions:
    """How pitch is tracked.

    Attributes are Kaldi's options; `options_of` lists their documentation.

    Raises:
        OpscopeError: values that go with no signal, or not with each other.
    """

    sample_frequency: float = option(16000.0, "Sampling rate of the signal, in Hz")
    frame_length: float = option(25.0, "Frame length in milliseconds")
    frame_shift: float = option(10.0, "Frame shift in milliseconds")
    preemphasis_coefficient: float = option(0.0, "Factor of the sample before, subtracted")
    min_f0: float = option(50.0, "Lowest pitch, in Hz")
    max_f0: float = option(400.0, "Highest pitch, in Hz")
    soft_min_f0: float = option(10.0, "Lowest pitch, in Hz, applied softly; not above min-f0")
    penalty_factor: float = option(0.1, "Cost of a change of the pitch")
    lowpass_cutoff: float = option(1000.0, "Cutoff frequency of the low-pass filter, in Hz")
    resample_frequency: float = option(
        4000.0, "Sampling rate that pitch is tracked at; more than twice lowpass-cutoff"
    )
    delta_pitch: float = option(0.005, "Smallest relative change of the pitch that is measured")
    nccf_ballast: float = option(7000.0, "Larger values lower the NCCF of quiet frames")
    nccf_ballast_online: bool = option(
        False, "Quiet beside what was heard up to the frame, not beside all of the block"
    )
    lowpass_filter_width: int = option(1, "Width of the low-pass filter; more cuts more sharply")
    upsample_filter_width: int = option(5, "Width of the filter that upsamples the NCCF")
    frames_per_chunk: int = option(
        0, "Take whole recordings in chunks of so many frames, as if online; 0: at once"
    )
    simulate_first_pass_online: bool = option(
        False, "Give frames as they are when they are first ready; only with --frames-per-chunk"
    )
    recompute_frame: int = option(
        500, "Frame at which the path is searched again, by the power of the signal up to then"
    )
    max_frames_latency: int = option(
        0, "Hold at most so many frames back, until their pitch does not change any more"
    )
    snip_edges: bool = option(True, "Only frames that lie in the signal")

    def __post_init__(self) -> None:
        check_values(self)
        least = {
            "sample_frequency": 1,
            "lowpass_filter_width": 1,
            "upsample_filter_width": 1,
            "frames_per_chunk": 0,
            "recompute_frame": 0,
            "max_frames_latency": 0,
            "nccf_ballast": 0,
            "penalty_factor": 0,
        }
        for name, low in least.items():
            if getattr(self, name) < low:
                raise OpscopeError(f"{name}={getattr(self, name)}: must be at least {low}")
        if not 0 < self.min_f0 < self.max_f0 or not 0 < self.delta_pitch:
            raise OpscopeError(
                f"min_f0={self.min_f0:g}, max_f0={self.max_f0:g}, delta_pitch={self.delta_pitch:g}:"
                " want 0 < min_f0 < max_f0 and 0 < delta_pitch"
            )
        if math.log(self.max_f0 / self.min_f0) / math.log1p(self.delta_pitch) > _MOST_LAGS:
            raise OpscopeError(
                f"delta_pitch={self.delta_pitch:g}: more than {_MOST_LAGS} lags from"
                f" {self.min_f0:g} to {self.max_f0:g} Hz"
            )
        most = min(self.sample_frequency, self.resample_frequency) / 2
        if not 0 < self.lowpass_cutoff <= most:
            raise OpscopeError(
                f"lowpass_cutoff={self.lowpass_cutoff:g} does not go with"
                f" sample_frequency={self.sample_frequency:g} and"
                f" resample_frequency={self.resample_frequency:g}: want at most {most:g}"
            )
        first, last = self.lags
        span = self.window_size + last
        if self.window_size < 2 or self.window_shift < 1 or first < 0 or span > _MOST_SAMPLES:
            raise OpscopeError(
                f"frames of {self.window_size} samples, {self.window_shift} apart, with lags from"
                f" {first} to {last} samples: want 2 samples at least, 1 apart, lags from 0, and"
                f" {_MOST_SAMPLES} samples in all at most"
            )
        if self.simulate_first_pass_online and not self.frames_per_chunk:
            raise OpscopeError("simulate_first_pass_online wants frames_per_chunk")

    @property
    def window_size(self) -> int:
        """Samples of a frame, after resampling."""
        return int(self.resample_frequency * self.frame_length / 1000.0)

    @property
    def window_shift(self) -> int:
        """Samples from frame to frame, after resampling."""
        return int(self.resample_frequency * self.frame_shift / 1000.0)

    @property
    def lags(self) -> tuple[int, int]:
        """The first and the last lag that is measured, in samples after resampling."""
        rate = self.resample_frequency
        beside = self.upsample_filter_width / (2.0 * rate)
        first = math.ceil(rate * (1.0 / self.max_f0 - beside))
        return first, math.floor(rate * (1.0 / self.min_f0 + beside))

    def chunks(self, count: int) -> range:
        """Where the chunks of a whole signal of `count` samples begin; its step is their size."""
        size = int(self.frames_per_chunk * self.sample_frequency * self.frame_shift / 1000.0)
        return range(0, count, size if self.frames_per_chunk else max(count, 1))


@dataclass
class _Measured:
    """The correlations of frames.

    Attributes:
        pitch: NCCF with the ballast, float32, [frames, lags in samples]. pov: without it.
        norms: mean over the lags of the denominator without ballast, float32, [frames].
        powers: of the signal, of which the ballast was made, float64, [frames].
    """

    pitch: np.ndarray
    pov: np.ndarray
    norms: np.ndarray
    powers: np.ndarray


class PitchTracker:
    """Frames of NCCF (normalized cross-correlation) and pitch of a signal that comes in blocks.

    A frame that was given may change as more is heard: the path that ends best may be another one,
    and quiet frames are those that are quiet beside the others.

    Args:
        options: how to track. rate: of the samples; None: from the options. Samples of another
            one are resampled.

    Raises:
        OpscopeError: the rate is no whole number.
    """

    dim = 2

    def __init__(self, options: PitchOptions, rate: float | None = None) -> None:
        self.options = options
        wanted = options.sample_frequency
        self._outer = None if rate in (None, wanted) else Resampler(rate, wanted)
        self._inner = Resampler(
            wanted,
            options.resample_frequency,
            cutoff=options.lowpass_cutoff,
            zeros=options.lowpass_filter_width,
        )
        first, last = options.lags
        self._lags = _log_lags(options)
        self._upsample = _upsampling(options, self._lags)
        single = np.float32
        step = single(math.log1p(single(options.delta_pitch)) ** 2) * single(options.penalty_factor)
        places = np.arange(len(self._lags))
        self._moves = (places[:, None] - places[None]).astype(np.float32) ** 2 * step
        self._kept = np.empty(0, np.float32)
        self._begin = 0  # number of the first kept sample
        self._samples = 0
        self._sum = self._squares = 0.0
        self._costs = Rows((len(self._lags),))
        self._costs.append(np.zeros((1, len(self._lags)), np.float32))  # before the first frame
        self._pov = Rows((last + 1 - first,))
        self._early: list[_Measured] = []  # of the frames before `recompute_frame`
        self._path = Rows((), np.int64)  # the lag of each frame
        self._path_pov = Rows(())
        self._known = 0  # first frames whose path was traced over the costs of now
        self._latency = 0
        self.finished = False

    @property
    def frames_ready(self) -> int:
        """Frames that can be asked for."""
        return len(self._path) - self._latency

    def frames(self, begin: int = 0, end: int | None = None) -> np.ndarray:
        """NCCF and pitch in Hz of a range of the frames that are ready: float32, [frames, 2]."""
        stop = self.frames_ready if end is None else min(end, self.frames_ready)
        pitch = np.float32(1) / self._lags[self._path.all[begin:stop]]
        return np.stack((self._path_pov.all[begin:stop], pitch), axis=1)

    def accept(self, samples: np.ndarray) -> None:
        """Take the next samples, [count], on the scale of 16-bit integers.

        Raises:
            ShapeError: there are several channels.
            OpscopeError: samples are NaN or infinite, or the signal is finished.
        """
        if self.finished:
            raise OpscopeError("the signal is finished")
        checked = checked_samples(samples)
        if self._outer is not None:
            checked = self._outer.accept(checked)
        self._take(self._inner.accept(checked))

    def finish(self) -> None:
        """No more samples come.

        Raises:
            OpscopeError: the signal is finished already.
        """
        if self.finished:
            raise OpscopeError("the signal is finished")
        self.finished = True
        rest = np.empty(0, np.float32)
        if self._outer is not None:
            rest = self._outer.accept(rest, flush=True)
        self._take(self._inner.accept(rest, flush=True))
        if self._early:
            self._search_again()
            self._trace()
        self._latency = 0

    def _take(self, samples: np.ndarray) -> None:
        """Track the frames that further samples, after resampling, complete."""
        options = self.options
        before = self._sum, self._squares, self._samples
        self._kept = np.concatenate((self._kept, samples))
        self._samples += len(samples)
        self._sum += float(samples.sum(dtype=np.float64))
        self._squares += float(np.square(samples, dtype=np.float64).sum())
        frame, end = len(self._pov), self._frame_count()
        if end <= frame:
            return
        while frame < end:
            stop = min(frame + _BATCH, end)
            if frame < options.recompute_frame:
                stop = min(stop, options.recompute_frame)
            measured = self._measure(np.arange(frame, stop), samples, before)
            self._pov.append(measured.pov)
            self._search(measured.pitch)
            if frame < options.recompute_frame and not options.nccf_ballast_online:
                self._early.append(measured)
                if stop == options.recompute_frame:
                    self._search_again()
            frame = stop
        self._trace()
        self._latency = self._unsettled()
        needed = int(self._first_sample(np.array([end]))[0])
        cut = min(max(needed - self._begin, 0), len(self._kept))
        self._kept = self._kept[cut:].copy()
        self._begin += cut

    def _frame_count(self) -> int:
        options = self.options
        size, shift = options.window_size, options.window_shift
        if not self.finished:
            size += options.lags[1]
        if self._samples < size:
            return 0
        if options.snip_edges:
            return (self._samples - size) // shift + 1
        inner = self._samples if self.finished else self._samples - size // 2
        return (2 * inner + shift) // (2 * shift)

    def _first_sample(self, frames: np.ndarray) -> np.ndarray:
        """The first sample of frames; negative where zeros stand before the signal."""
        options = self.options
        shift = options.window_shift
        if options.snip_edges:
            return frames * shift
        middle = ((frames + 0.5) * shift).astype(np.int64)
        return middle - (options.window_size + options.lags[1]) // 2

    def _measure(
        self, frames: np.ndarray, block: np.ndarray, before: tuple[float, float, int]
    ) -> _Measured:
        """Correlate frames.

        Args:
            block: the samples that came last. before: sum, squares and number of those before.
        """
        options = self.options
        size, (first, last) = options.window_size, options.lags
        starts = self._first_sample(frames)
        windows = self._cut(starts, size + last)
        windows -= (windows[:, :size].sum(axis=1) / np.float32(size))[:, None]
        shifted = np.lib.stride_tricks.sliding_window_view(windows, size, axis=1)
        inner = np.matmul(shifted[:, first:], windows[:, :size, None])[..., 0]
        energies = np.einsum("flk,flk->fl", shifted, shifted)
        alone = np.einsum("fk,fk->f", windows[:, :size], windows[:, :size])
        norms = alone[:, None] * energies[:, first:]
        powers = self._powers(starts + size + last, block, before)
        ballast = ((powers * size) ** 2 * options.nccf_ballast).astype(np.float32)
        return _Measured(
            _ratio(inner, norms + ballast[:, None]),
            _ratio(inner, norms),
            norms.mean(axis=1),
            powers,
        )

    def _cut(self, starts: np.ndarray, size: int) -> np.ndarray:
        """Windows of the signal, with zeros beyond its ends: float32, [windows, size]."""
        places = starts[:, None] + np.arange(-1, size) - self._begin
        inside = (places >= 0) & (places < len(self._kept))
        found = np.where(inside, self._kept[np.clip(places, 0, len(self._kept) - 1)], 0)
        windows = found[:, 1:].astype(np.float32)
        factor = np.float32(self.options.preemphasis_coefficient)
        if factor:
            inside[:, 0] = False  # the first sample of a window is the one before itself
            previous = np.where(inside[:, :-1], found[:, :-1], windows)
            windows = np.where(inside[:, 1:], windows - factor * previous, 0)
        return windows

    def _powers(
        self, ends: np.ndarray, block: np.ndarray, before: tuple[float, float, int]
    ) -> np.ndarray:
        """Mean square without the mean of what counts for frames with these ends: [frames]."""
        total, squares, count = self._sum, self._squares, self._samples
        if self.options.nccf_ballast_online:
            heard = np.clip(ends - before[2], 0, len(block))
            wide = np.concatenate(([0.0], block.astype(np.float64)))
            total = before[0] + np.cumsum(wide)[heard]
            squares = before[1] + np.cumsum(wide * wide)[heard]
            count = before[2] + heard
        return np.broadcast_to(squares / count - (total / count) ** 2, ends.shape)

    def _search(self, nccf: np.ndarray) -> None:
        """Take the correlations of the next frames, [frames, lags in samples], into the search."""
        upsampled = nccf @ self._upsample
        local = 1 - upsampled + np.float32(self.options.soft_min_f0) * self._lags * upsampled
        costs = np.empty_like(local)
        last = self._costs.all[-1]
        moved = np.empty_like(self._moves)
        for row, here in zip(costs, local, strict=True):
            np.add(self._moves, last, out=moved)
            np.add(moved.min(axis=1), here, out=row)
            row -= row.min()
            last = row
        self._costs.append(costs)

    def _search_again(self) -> None:
        """Search the first frames again, with the power of all that was heard since."""
        early, self._early = self._early, []
        count = sum(len(each.pitch) for each in early)
        mean = self._sum / self._samples
        power = self._squares / self._samples - mean * mean
        old = np.concatenate([each.powers for each in early])
        if np.all(np.abs(old - power) <= _SAME_POWER * (np.abs(old) + abs(power))):
            return
        assert count == len(self._costs) - 1  # they are searched before any later frame
        size, factor = self.options.window_size, self.options.nccf_ballast
        norms = np.concatenate([each.norms for each in early])
        ratio = (old * size) ** 2 * factor + norms
        scale = np.sqrt(ratio / ((power * size) ** 2 * factor + norms)).astype(np.float32)
        nccf = np.concatenate([each.pitch for each in early]) * scale[:, None]
        self._costs = Rows((len(self._lags),))
        self._costs.append(np.zeros((1, len(self._lags)), np.float32))
        self._search(nccf)
        self._known = 0

    def _trace(self) -> None:
        """Follow the best path from its end to where it joins the one that was known."""
        count = len(self._costs) - 1
        fresh = count - len(self._path)
        self._path.append(np.zeros(fresh, np.int64))
        self._path_pov.append(np.zeros(fresh, np.float32))
        path, voiced = self._path.all, self._path_pov.all
        state = int(self._costs.all[-1].argmin())
        for frame in range(count - 1, -1, -1):
            if frame < self._known and path[frame] == state:
                break
            path[frame] = state
            voiced[frame] = self._pov.all[frame] @ self._upsample[:, state]
            state = self._origin(frame, state)
        self._known = count

    def _origin(self, frame: int, state: int) -> int:
        """The lag before a frame's lag, on the best path to it."""
        return int((self._costs.all[frame] + self._moves[state]).argmin())

    def _unsettled(self) -> int:
        """Last frames of which it is open where the path goes, up to the latency allowed."""
        most, latency = self.options.max_frames_latency, 0
        low, high = 0, len(self._lags) - 1
        frame = len(self._path) - 1
        while latency < most and frame >= 0:
            low, high = self._origin(frame, low), self._origin(frame, high)
            if low == high:
                break
            frame -= 1
            latency += 1
        return latency


def _log_lags(options: PitchOptions) -> np.ndarray:
    """The lags of the pitches that are told apart: float32, in seconds."""
    single = np.float32
    lag, last = single(1.0 / options.max_f0), single(1.0 / options.min_f0)
    factor = 1.0 + float(single(options.delta_pitch))
    lags = []
    while lag <= last:
        lags.append(lag)
        lag = single(float(lag) * factor)  # rounded each time, as Kaldi's are
    return np.array(lags, np.float32)


def _upsampling(options: PitchOptions, lags: np.ndarray) -> np.ndarray:
    """What makes values at `lags` of those at lags in samples: float32, [samples, lags]."""
    rate, zeros = options.resample_frequency, options.upsample_filter_width
    first, last = options.lags
    cutoff = rate * 0.5
    samples = np.arange(last + 1 - first)
    away = (lags - np.float32(first / rate))[None] - samples[:, None] / rate
    return windowed_sinc(away, cutoff, zeros) / np.float32(rate)


def _ratio(inner: np.ndarray, norms: np.ndarray) -> np.ndarray:
    """The inner products over the roots of the norms; 0 where there is no signal."""
    return np.divide(inner, np.sqrt(norms), out=np.zeros_like(inner), where=norms != 0)
