"""MFCC, PLP and filter banks of whole signals and of streams.

Source: Kaldi's `feat/feature-mfcc.cc`, `feat/feature-plp.cc`, `feat/feature-fbank.cc`,
`feat/feature-common-inl.h`, `feat/online-feature.cc`.
"""

from __future__ import annotations

import dataclasses
import os
from abc import ABC, abstractmethod
from typing import Any, ClassVar

import numpy as np

from ...framework.base.errors import OpscopeError, check_kind, nearest
from ...nnet3.language.nodes import warn
from ..audio.resample import Resampler
from .frames import TINY, Framer, checked_samples, log_energies, warn_of_scale
from .mel import (
    MelBin,
    WeightedRows,
    cosine_transform,
    equal_loudness,
    inverse_cosines,
    lifter,
    linear_prediction,
    mel_bins,
    prediction_cepstrum,
)
from .options import (
    FbankOptions,
    FrameOptions,
    MelOptions,
    MfccOptions,
    PlpOptions,
    SpectrogramOptions,
    read_config,
)

_BATCH = 1 << 20  # points of frames that are computed at once


class Features(ABC):
    """What all kinds of features share: from samples to frames of them.

    Args:
        options: of the kind. None: Kaldi's defaults.
        config: a file of Kaldi's options, such as `mfcc.conf`, in place of `options`.
        seed: of the noise that dithers; the same seed gives the same features.
        dither_still: dither only frames without a signal, whose logarithms would be rounding
            errors; all others are not changed. Kaldi dithers all.
        changes: options by name, which override the others.

    Raises:
        OpscopeError: an option is unknown, out of range, or does not go with the others.
        FormatError: the config cannot be read.
    """

    kind: ClassVar[type] = FrameOptions
    least_energy: ClassVar[float] = TINY

    def __init__(
        self,
        options: Any = None,
        *,
        config: str | os.PathLike[str] | None = None,
        seed: Any = 0,
        dither_still: bool = False,
        **changes: Any,
    ) -> None:
        check_kind(options, self.kind | None, "options")
        if options is not None and config is not None:
            raise OpscopeError("options and a config: one of them is wanted")
        if config is not None:
            options = read_config(self.kind, config)
        options = options or self.kind()
        known = [each.name for each in dataclasses.fields(self.kind)]
        for name in changes:
            if name not in known:
                raise OpscopeError(f"there is no option {name!r}{nearest(name, known)}")
        self.options = dataclasses.replace(options, **changes) if changes else options
        self.seed = seed
        self.dither_still = dither_still

    @property
    @abstractmethod
    def dim(self) -> int:
        """Columns of the features."""

    @property
    def raw_energies(self) -> bool:
        """Whether log energies before preemphasis and window are wanted."""
        return self.options.raw_energy

    def compute(self, samples: Any, rate: float | None = None, *, seed: Any = None) -> np.ndarray:
        """The features of a whole signal: float32, [frames, dim].

        Args:
            samples: [count], one channel, on the scale of 16-bit integers.
            rate: their sampling rate; None: from the options. Another one is changed to it
                where the options allow that, as Kaldi's programs for whole files do.
            seed: in place of the object's.

        Raises:
            ShapeError: there are several channels.
            OpscopeError: the rate does not go, or samples are NaN or infinite.
        """
        stream = FeatureStream(self, rate, seed, whole_file=True)
        warn_of_scale(samples)
        parts = [stream.accept(samples), stream.finish()]
        features = np.concatenate(parts)
        if not len(features):
            warn(
                f"{np.size(samples)} samples are too short for a frame of"
                f" {self.options.frame_length:g} ms: there are no features"
            )
        return features

    def stream(self, rate: float | None = None, *, seed: Any = None) -> FeatureStream:
        """Features of a signal that comes block by block; arguments as for `compute`."""
        return FeatureStream(self, rate, seed)

    @abstractmethod
    def of_frames(self, frames: np.ndarray, energies: np.ndarray | None) -> np.ndarray:
        """Features of windowed frames [count, FFT points]."""

    def _energies(self, frames: np.ndarray, raw: np.ndarray | None) -> np.ndarray:
        """The log energies of frames, floored."""
        energies = log_energies(frames, self.least_energy) if raw is None else raw
        floor = self.options.energy_floor
        return np.maximum(energies, np.log(np.float32(floor))) if floor > 0 else energies


class FeatureStream:
    """Features of a signal while it comes: the same bits, whatever the blocks are.

    Example:
        stream = Mfcc(config="mfcc.conf").stream(16000)
        for block in microphone:
            frames = stream.accept(block)  # as many as are ready, perhaps none
        frames = stream.finish()

    Args:
        features: computes them. rate, seed: see `Features.compute`.
        whole_file: change the sampling rate as for whole files, see `Resampler`.

    Raises:
        OpscopeError: the sampling rate does not go with the options.
    """

    def __init__(
        self,
        features: Features,
        rate: float | None = None,
        seed: Any = None,
        *,
        whole_file: bool = False,
    ) -> None:
        check_kind(rate, float | int | np.number | None, "rate")
        options = features.options
        self._features = features
        self._seed = features.seed if seed is None else seed
        self._resampler = None
        wanted = options.sample_frequency
        if rate is not None and rate != wanted:
            way, allowed = (
                ("down", options.allow_downsample)
                if rate > wanted
                else ("up", options.allow_upsample)
            )
            if not allowed:
                raise OpscopeError(
                    f"samples at {rate:g} Hz, but features are computed at {wanted:g} Hz"
                    f" (use --allow-{way}sample=true to allow {way}sampling)"
                )
            self._resampler = Resampler(rate, wanted, whole_file=whole_file)
        self.reset()

    def reset(self) -> None:
        """Forget all samples: another signal begins."""
        features = self._features
        self._framer = Framer(
            features.options, self._seed, features.raw_energies, features.dither_still
        )
        self._finished = False
        if self._resampler is not None:
            self._resampler.reset()

    @property
    def dim(self) -> int:
        """Columns of the features."""
        return self._features.dim

    @property
    def frames_ready(self) -> int:
        """Frames that have been given so far."""
        return self._framer.frames

    @property
    def finished(self) -> bool:
        """Whether `finish` was called."""
        return self._finished

    def accept(self, samples: Any) -> np.ndarray:
        """The frames that the next samples complete: float32, [frames, dim].

        Raises:
            ShapeError: there are several channels.
            OpscopeError: samples are NaN or infinite, or the stream is finished.
        """
        self._check_open()
        checked = checked_samples(samples)
        if self._resampler is not None:
            checked = self._resampler.accept(checked)
        self._framer.accept(checked)
        return self._computed(flush=False)

    def finish(self) -> np.ndarray:
        """The last frames: float32, [frames, dim].

        Raises:
            OpscopeError: the stream is finished already.
        """
        self._check_open()
        self._finished = True
        if self._resampler is not None:
            self._framer.accept(self._resampler.accept(np.empty(0, np.float32), flush=True))
        return self._computed(flush=True)

    def _computed(self, flush: bool) -> np.ndarray:
        parts = [np.empty((0, self._features.dim), np.float32)]
        most = max(_BATCH // self._features.options.padded_size, 2)
        while (count := self._framer.ready(flush)) > 0:
            frames, energies = self._framer.cut(min(count, most))
            parts.append(self._features.of_frames(frames, energies))
        return np.concatenate(parts)

    def _check_open(self) -> None:
        if self._finished:
            raise OpscopeError("the stream is finished; reset() begins a new one")


def _spectrum(frames: np.ndarray) -> Any:
    """The spectrum of windowed frames: complex64, [FFT points // 2 + 1, frames]."""
    return np.fft.rfft(frames).astype(np.complex64, copy=False).T


def _power(spectrum: Any) -> np.ndarray:
    """The power of a spectrum: float32."""
    return np.ascontiguousarray(spectrum.real) ** 2 + np.ascontiguousarray(spectrum.imag) ** 2


class MelFeatures(Features):
    """What `Mfcc` and `Fbank` share; arguments and errors as for `Features`."""

    kind = MelOptions

    def __init__(self, options: Any = None, **rest: Any) -> None:
        super().__init__(options, **rest)
        self.bins = mel_bins(self.options)
        self._filters = WeightedRows(self.bins)

    @property
    def raw_energies(self) -> bool:
        return self.options.use_energy and self.options.raw_energy


class Mfcc(MelFeatures):
    """Mel-frequency cepstral coefficients, as Kaldi computes them.

    Example:
        features = Mfcc(num_ceps=40, num_mel_bins=40, use_energy=False).compute(samples, 16000)

    Arguments and errors as for `Features`; options as for `MfccOptions`.
    """

    kind = MfccOptions

    def __init__(self, options: MfccOptions | None = None, **rest: Any) -> None:
        super().__init__(options, **rest)
        cosines = cosine_transform(self.options.num_ceps, self.options.num_mel_bins)
        self._transform = WeightedRows([MelBin(0, row) for row in cosines])
        constant = self.options.cepstral_lifter
        self._lifter = lifter(constant, self.options.num_ceps)[:, None] if constant else None

    @property
    def dim(self) -> int:
        return self.options.num_ceps

    def of_frames(self, frames: np.ndarray, energies: np.ndarray | None) -> np.ndarray:
        options = self.options
        logs = np.log(np.maximum(self._filters.of(_power(_spectrum(frames)[:-1])), TINY))
        cepstra = self._transform.of(logs)
        if self._lifter is not None:
            cepstra *= self._lifter
        if options.use_energy:
            cepstra[0] = self._energies(frames, energies)
        if options.htk_compat:
            first = cepstra[:1] if options.use_energy else cepstra[:1] * np.float32(np.sqrt(2))
            cepstra = np.concatenate((cepstra[1:], first))
        return np.ascontiguousarray(cepstra.T)


class Fbank(MelFeatures):
    """Mel filter banks, as Kaldi computes them.

    Arguments and errors as for `Features`; options as for `FbankOptions`.
    """

    kind = FbankOptions

    @property
    def dim(self) -> int:
        return self.options.num_mel_bins + self.options.use_energy

    def of_frames(self, frames: np.ndarray, energies: np.ndarray | None) -> np.ndarray:
        options = self.options
        spectrum = _power(_spectrum(frames)[:-1])
        if not options.use_power:
            spectrum = np.sqrt(spectrum)
        banks = self._filters.of(spectrum)
        if options.use_log_fbank:
            banks = np.log(np.maximum(banks, TINY))
        if options.use_energy:
            energy = self._energies(frames, energies)[None]
            banks = np.concatenate((banks, energy) if options.htk_compat else (energy, banks))
        return np.ascontiguousarray(banks.T)


class Plp(MelFeatures):
    """Perceptual linear prediction, as Kaldi computes it.

    Arguments and errors as for `Features`; options as for `PlpOptions`.
    """

    kind = PlpOptions
    least_energy = float(np.finfo(np.float32).tiny)

    def __init__(self, options: PlpOptions | None = None, **rest: Any) -> None:
        super().__init__(options, **rest)
        settings = self.options
        self._loudness = equal_loudness(settings)[:, None]
        inverse = inverse_cosines(settings.lpc_order + 1, settings.num_mel_bins + 2)
        self._inverse = WeightedRows([MelBin(0, row) for row in inverse])
        scales = np.full(settings.num_ceps, settings.cepstral_scale, np.float32)
        if settings.cepstral_lifter:
            scales *= lifter(settings.cepstral_lifter, settings.num_ceps)
        self._scales = scales[:, None]

    @property
    def dim(self) -> int:
        return self.options.num_ceps

    def of_frames(self, frames: np.ndarray, energies: np.ndarray | None) -> np.ndarray:
        options = self.options
        banks = self._filters.of(_power(_spectrum(frames)[:-1])) * self._loudness
        banks **= np.float32(options.compress_factor)
        banks = np.concatenate((banks[:1], banks, banks[-1:]))
        correlations = self._inverse.of(banks)
        filters, left = linear_prediction(correlations)
        # Kaldi floors the logarithm, not the power: a C0 is never negative.
        first = np.maximum(np.log(np.maximum(left, self.least_energy)), 0)
        cepstra = np.concatenate((first[None], prediction_cepstrum(filters)))[: options.num_ceps]
        cepstra *= self._scales
        if options.use_energy:
            cepstra[0] = self._energies(frames, energies)
        if options.htk_compat:
            cepstra = np.roll(cepstra, -1, axis=0)
        return np.ascontiguousarray(cepstra.T)


class Spectrogram(Features):
    """Log powers of the spectrum, as Kaldi computes them; the first column is the log energy.

    Arguments and errors as for `Features`; options as for `SpectrogramOptions`.
    """

    kind = SpectrogramOptions

    @property
    def dim(self) -> int:
        size = self.options.padded_size
        return size if self.options.return_raw_fft else size // 2 + 1

    def of_frames(self, frames: np.ndarray, energies: np.ndarray | None) -> np.ndarray:
        spectrum = _spectrum(frames)
        if self.options.return_raw_fft:  # as Kaldi packs it: the two real numbers come first
            packed = np.empty(frames.shape, np.float32)
            packed[:, 0], packed[:, 1] = spectrum[0].real, spectrum[-1].real
            packed[:, 2::2], packed[:, 3::2] = spectrum[1:-1].real.T, spectrum[1:-1].imag.T
            return packed
        logs = np.log(np.maximum(_power(spectrum), TINY))
        logs[0] = self._energies(frames, energies)
        return np.ascontiguousarray(logs.T)


def mfcc(samples: Any, rate: float, *, seed: Any = 0, **options: Any) -> np.ndarray:
    """The MFCC of a signal: float32, [frames, cepstra]; see `Mfcc`.

        features = opscope.speech.mfcc(samples, 16000, num_ceps=40, num_mel_bins=40)

    Args:
        samples: [count], one channel, on the scale of 16-bit integers.
        rate: their sampling rate; features are computed at it unless `sample_frequency` is given.
        seed: of the noise that dithers. options: as for `MfccOptions`.

    Raises:
        ShapeError, OpscopeError: as `Features` and `Features.compute`.
    """
    options.setdefault("sample_frequency", rate)
    return Mfcc(seed=seed, **options).compute(samples, rate)
