"""What recognizers take of the pitch: voicing, the normalized logarithm, its change.

Source: Kaldi's `OnlineProcessPitch` in `feat/pitch-functions.cc`.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...framework.base.errors import OpscopeError, check_kind
from ...framework.base.options.option_fields import option
from ...nnet3.language.nodes import warn
from .frames import checked_samples, warn_of_scale
from .options import check_values, read_configs
from .pitch import PitchOptions, PitchTracker
from .transforms import DeltaOptions, deltas

_MOST_CONTEXT = 1_000_000


@dataclass(frozen=True)
class ProcessPitchOptions:
    """How the pitch is processed.

    Attributes are Kaldi's options; `options_of` lists their documentation.

    Raises:
        OpscopeError: a value is out of range, or nothing is made.
    """

    pitch_scale: float = option(2.0, "Factor of the normalized log pitch")
    pov_scale: float = option(2.0, "Factor of the voicing")
    pov_offset: float = option(0.0, "Added to the voicing, in place of a mean that is subtracted")
    delta_pitch_scale: float = option(10.0, "Factor of the change of the log pitch")
    delta_pitch_noise_stddev: float = option(
        0.005, "Standard deviation of noise added to the change, before it is scaled"
    )
    normalization_left_context: int = option(75, "Frames before, whose mean is subtracted")
    normalization_right_context: int = option(75, "Frames after, whose mean is subtracted")
    delta_window: int = option(2, "Frames on each side that the change is computed of")
    delay: int = option(0, "Frames by which all is delayed")
    add_pov_feature: bool = option(True, "A column of the voicing, which is the warped NCCF")
    add_normalized_log_pitch: bool = option(
        True, "A column of the log pitch less its mean, in which voiced frames weigh more"
    )
    add_delta_pitch: bool = option(True, "A column of the change of the log pitch")
    add_raw_log_pitch: bool = option(False, "A column of the log pitch")

    def __post_init__(self) -> None:
        check_values(self)
        least = {
            "delta_pitch_noise_stddev": 0,
            "normalization_left_context": 0,
            "normalization_right_context": 0,
            "delay": 0,
        }
        for name, low in least.items():
            if not low <= getattr(self, name) <= _MOST_CONTEXT:
                raise OpscopeError(
                    f"{name}={getattr(self, name)}: must lie from {low} to {_MOST_CONTEXT}"
                )
        if not self.dim:
            raise OpscopeError(
                "no feature of the pitch is wanted: set one of add_pov_feature,"
                " add_normalized_log_pitch, add_delta_pitch, add_raw_log_pitch"
            )
        DeltaOptions(1, self.delta_window)  # has limits of its own

    @property
    def dim(self) -> int:
        """Columns that are made."""
        return (
            self.add_pov_feature
            + self.add_normalized_log_pitch
            + self.add_delta_pitch
            + self.add_raw_log_pitch
        )


class PitchProcessor:
    """Features of frames of pitch, which may change while more of them come.

    Args:
        options: what is made. seed: of the noise; a frame has the same, whenever it is asked for.

    Raises:
        OpscopeError: the seed is no whole number.
    """

    def __init__(self, options: ProcessPitchOptions, seed: Any = 0) -> None:
        self.options = options
        try:
            self._random = np.random.default_rng(seed)
        except (ValueError, TypeError):
            raise OpscopeError(f"seed={seed!r}: want whole numbers that are not negative") from None
        self._noise = np.empty(0, np.float32)

    def ready(self, count: int, finished: bool) -> int:
        """Frames that can be made of `count` ones of pitch."""
        options = self.options
        if not count:
            return 0
        if finished:
            return count + options.delay
        return max(count - options.normalization_right_context + options.delay, 0)

    def first_needed(self, frame: int) -> int:
        """The first frame of pitch that features of this and later frames are made of."""
        options = self.options
        context = max(options.normalization_left_context, options.delta_window)
        return max(frame - options.delay - context, 0)

    def processed(self, pitch: np.ndarray, first: int, begin: int, end: int) -> np.ndarray:
        """Features of a range of frames: float32, [frames, columns].

        Args:
            pitch: NCCF and pitch of all frames so far, without `first` ones that are not needed,
                [frames, 2].
        """
        options = self.options
        frames = np.maximum(np.arange(begin, end) - options.delay, 0) - first
        nccf = pitch[:, 0]
        logs = np.log(pitch[:, 1])
        columns = []
        if options.add_pov_feature:
            warped = (1.0001 - np.clip(nccf[frames], -1, 1).astype(np.float64)) ** 0.15 - 1.0
            columns.append(options.pov_scale * warped + options.pov_offset)
        if options.add_normalized_log_pitch:
            columns.append(options.pitch_scale * (logs[frames] - self._means(nccf, logs, frames)))
        if options.add_delta_pitch:
            change = deltas(logs[:, None], DeltaOptions(1, options.delta_window))[:, 1]
            noise = self._noise_of(first + len(pitch))[first:]
            columns.append(options.delta_pitch_scale * (change + noise)[frames])
        if options.add_raw_log_pitch:
            columns.append(logs[frames])
        return np.stack(columns, axis=1).astype(np.float32)

    def _means(self, nccf: np.ndarray, logs: np.ndarray, frames: np.ndarray) -> np.ndarray:
        """The mean log pitch around frames, weighted by how likely they are voiced."""
        options = self.options
        voiced = _voicing(nccf)
        sums = np.zeros((2, len(nccf) + 1))
        np.cumsum((voiced, voiced * logs), axis=1, out=sums[:, 1:])
        first = np.maximum(frames - options.normalization_left_context, 0)
        stop = np.minimum(frames + options.normalization_right_context + 1, len(nccf))
        weights, total = sums[:, stop] - sums[:, first]
        return total / weights

    def _noise_of(self, count: int) -> np.ndarray:
        lacking = count - len(self._noise)
        if lacking > 0:
            more = self._random.standard_normal(lacking, np.float32)
            more *= np.float32(self.options.delta_pitch_noise_stddev)
            self._noise = np.concatenate((self._noise, more))
        return self._noise[:count]


def _voicing(nccf: np.ndarray) -> np.ndarray:
    """How likely frames are voiced: float64. The formula was fitted to data, by Kaldi's authors."""
    size = np.minimum(np.abs(nccf.astype(np.float64)), 1.0)
    odds = -5.2 + 5.4 * np.exp(7.5 * (size - 1)) + 4.8 * size
    odds += 4.2 * np.exp(20 * (size - 1)) - 2 * np.exp(-10 * size)
    return 1 / (1 + np.exp(-odds))


class Pitch:
    """Features of the pitch, as Kaldi computes them: voicing, normalized log pitch, its change.

    Example:
        features = Pitch(PitchOptions(sample_frequency=8000.0)).compute(samples)

    Args:
        tracking: options of the pitch. processing: options of the processing.
        config: a file of both kinds of Kaldi's options, such as `online_pitch.conf`, instead.
        seed: of the noise that is added to the change.

    Attributes:
        tracking, processing: the options.

    Raises:
        OpscopeError: an option is out of range, or there are options and a config.
        FormatError: the config cannot be read, or has an unknown option.
    """

    def __init__(
        self,
        tracking: PitchOptions | None = None,
        processing: ProcessPitchOptions | None = None,
        *,
        config: str | os.PathLike[str] | None = None,
        seed: Any = 0,
    ) -> None:
        check_kind(tracking, PitchOptions | None, "tracking")
        check_kind(processing, ProcessPitchOptions | None, "processing")
        if config is not None:
            if tracking is not None or processing is not None:
                raise OpscopeError("options and a config: one of them is wanted")
            tracking, processing = read_configs((PitchOptions, ProcessPitchOptions), config)
        self.tracking = tracking or PitchOptions()
        self.processing = processing or ProcessPitchOptions()
        self.seed = seed

    @property
    def dim(self) -> int:
        """Columns of the features."""
        return self.processing.dim

    def compute(self, samples: Any, rate: float | None = None, *, seed: Any = None) -> np.ndarray:
        """The features of a whole signal: float32, [frames, dim].

        Args:
            samples: [count], one channel, on the scale of 16-bit integers.
            rate: of the samples; None: from the options. seed: in place of the object's.

        Raises:
            ShapeError: there are several channels.
            OpscopeError: the rate is no whole number, or samples are NaN or infinite.
        """
        warn_of_scale(samples)
        return whole_pitch(self.stream(rate, seed=seed), self.tracking, samples)

    def stream(self, rate: float | None = None, *, seed: Any = None) -> PitchStream:
        """Features of a signal that comes block by block; arguments as for `compute`."""
        tracker = PitchTracker(self.tracking, rate)
        processor = PitchProcessor(self.processing, self.seed if seed is None else seed)
        return PitchStream(tracker, processor)


class PitchStream:
    """Features of the pitch of a signal while it comes.

    What is known of a frame changes as more is heard. So frames are asked for when they are
    needed, by `frames`, those before `frames_ready`.

    Example:
        stream = Pitch(config="online_pitch.conf").stream(16000)
        for block in microphone:
            stream.accept(block)
        stream.finish()
        features = stream.frames()

    Args:
        tracker: of the pitch. processor: makes features of it.
    """

    def __init__(self, tracker: PitchTracker, processor: PitchProcessor) -> None:
        self._tracker = tracker
        self._processor = processor

    @property
    def dim(self) -> int:
        """Columns of the features."""
        return self._processor.options.dim

    @property
    def frames_ready(self) -> int:
        """Frames that can be asked for."""
        return self._processor.ready(self._tracker.frames_ready, self._tracker.finished)

    def frames(self, begin: int = 0, end: int | None = None) -> np.ndarray:
        """A range of the frames that are ready: float32, [frames, dim]."""
        ready = self.frames_ready
        end = ready if end is None else min(end, ready)
        if begin >= end:
            return np.empty((0, self.dim), np.float32)
        first = self._processor.first_needed(begin)
        return self._processor.processed(self._tracker.frames(first), first, begin, end)

    def accept(self, samples: np.ndarray) -> None:
        """Take the next samples; see `PitchTracker.accept`."""
        self._tracker.accept(samples)

    def finish(self) -> None:
        """No more samples come; see `PitchTracker.finish`."""
        self._tracker.finish()


def whole_pitch(
    stream: PitchTracker | PitchStream, options: PitchOptions, samples: np.ndarray
) -> np.ndarray:
    """The frames of a whole signal, in chunks and as they are first ready if options say so.

    Args:
        stream: that nothing was taken into. options: of the pitch. samples: [count].

    Raises:
        ShapeError, OpscopeError: as `PitchTracker.accept`.
    """
    checked = checked_samples(samples)
    given: list[np.ndarray] = []
    count = 0
    chunks = options.chunks(len(checked))
    for start in chunks:
        stream.accept(checked[start : start + chunks.step])
        if options.simulate_first_pass_online and chunks[-1] != start:
            given.append(stream.frames(count))
            count += len(given[-1])
    stream.finish()
    features = np.concatenate((*given, stream.frames(count)))
    if not len(features):
        warn(
            f"{len(checked)} samples are too short for a frame of {options.frame_length:g} ms:"
            " there are no features"
        )
    return features
