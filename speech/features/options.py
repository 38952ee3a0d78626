"""The options of features, with Kaldi's names and defaults, and the config files that hold them.

Source: Kaldi's `feat/feature-window.h`, `feat/mel-computations.h`, `feat/feature-mfcc.h`,
`feat/feature-fbank.h`, `feat/feature-plp.h`.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from ...framework.base.errors import FormatError, OpscopeError, nearest
from ...framework.base.options.option_fields import option
from ...framework.base.untrusted.opener import read_file
from ...nnet3.programs.base.program import Option, from_values, options_of

Options = TypeVar("Options")
_MOST_SAMPLES = 1 << 16  # of a window: 4 seconds at 16 kHz
_MOST_BINS = 2048


ConfigLine = tuple[str, str | None, str]
"""Of a config file: name, value or None, place for messages."""


def config_lines(path: str | os.PathLike[str]) -> list[ConfigLine]:
    """The lines `--name=value` of a config file.

    Raises:
        FormatError: it cannot be read, or a line is another one.
    """
    try:
        text = read_file(path).decode("utf-8")
    except UnicodeDecodeError as error:
        raise FormatError(f"{os.fspath(path)}: no text (byte {error.start})") from None
    lines = []
    for number, line in enumerate(text.split("\n"), 1):
        line = line.partition("#")[0].strip()
        place = f"{os.fspath(path)}:{number}"
        if not line:
            continue
        if not line.startswith("--"):
            raise FormatError(f"{place}: {line[:60]!r} is no line like --name=value")
        name, equals, value = line[2:].partition("=")
        lines.append(
            (name.strip().replace("_", "-").lower(), value.strip() if equals else None, place)
        )
    return lines


def read_config(kind: type[Options], path: str | os.PathLike[str]) -> Options:
    """A dataclass of options from a config file; errors as for `read_configs`."""
    return read_configs((kind,), path)[0]


def read_configs(kinds: Sequence[type[Any]], path: str | os.PathLike[str]) -> tuple[Any, ...]:
    """Dataclasses of options from one config file, each of these kinds.

    Raises:
        FormatError: it cannot be read, names an unknown option, or a value is none.
        OpscopeError: values do not go together.
    """
    known = {each.name: each for kind in kinds for each in options_of(kind)}
    values = {each.attribute: each.default for each in known.values()}
    values |= config_values(config_lines(path), known)
    try:
        return tuple(from_values(kind, values) for kind in kinds)
    except OpscopeError as error:
        raise type(error)(f"{os.fspath(path)}: {error}") from None


def config_values(lines: Iterable[ConfigLine], known: Mapping[str, Option]) -> dict[str, Any]:
    """The values that lines of a config file give, by the attributes of their options.

    Args:
        lines: see `config_lines`. known: options by their names.

    Raises:
        FormatError: an option is unknown, or a value is none.
    """
    values: dict[str, Any] = {}
    for name, value, place in lines:
        if name not in known:
            raise FormatError(f"{place}: invalid option --{name}{nearest(name, known)}")
        try:
            values[known[name].attribute] = known[name].parse(value)
        except FormatError as error:
            raise FormatError(f"{place}: {error}") from None
    return values


def check_values(options: Any) -> None:
    """Check that each value of a dataclass of options is one like its default.

    Raises:
        OpscopeError: one is not, or is no finite number.
    """
    for each in dataclasses.fields(options):
        value = getattr(options, each.name)
        if isinstance(each.default, bool):
            fits = isinstance(value, bool)
        elif isinstance(each.default, str):
            fits = isinstance(value, str)
        elif isinstance(each.default, int):
            fits = isinstance(value, int | np.integer) and not isinstance(value, bool)
        else:
            fits = isinstance(value, int | float | np.number) and np.isfinite(value)
        if not fits:
            raise OpscopeError(f"{each.name}={value!r}: want a {type(each.default).__name__}")


@dataclass(frozen=True)
class FrameOptions:
    """How samples are cut into frames: what all kinds of features share.

    Attributes are Kaldi's options; `options_of` lists their documentation.

    Raises:
        OpscopeError: values that go with no signal, or warping, which there is none of.
    """

    sample_frequency: float = option(16000.0, "Sampling rate that features are computed at, in Hz")
    frame_length: float = option(25.0, "Frame length in milliseconds")
    frame_shift: float = option(10.0, "Frame shift in milliseconds")
    dither: float = option(1.0, "Standard deviation of noise that is added; 0.0: none")
    preemphasis_coefficient: float = option(0.97, "Factor of the sample before, subtracted")
    remove_dc_offset: bool = option(True, "Subtract the mean of each frame")
    window_type: str = option(
        "povey", "hamming|hanning|povey|rectangular|sine|blackman: the window"
    )
    blackman_coeff: float = option(0.42, "Constant of the generalized Blackman window")
    round_to_power_of_two: bool = option(True, "Pad windows to a power of two for the FFT")
    snip_edges: bool = option(
        True, "Only frames that lie in the signal; else it is reflected at its ends"
    )
    allow_downsample: bool = option(False, "Take signals of a higher sampling rate")
    allow_upsample: bool = option(False, "Take signals of a lower sampling rate")
    max_feature_vectors: int = option(-1, "Taken for compatibility; without effect")

    def __post_init__(self) -> None:
        check_values(self)
        least = {"sample_frequency": 1.0, "dither": 0.0}
        for name, low in least.items():
            if getattr(self, name) < low:
                raise OpscopeError(f"{name}={getattr(self, name)}: must be at least {low}")
        if not 0 <= self.preemphasis_coefficient <= 1:
            raise OpscopeError(
                f"preemphasis_coefficient={self.preemphasis_coefficient}: must be from 0 to 1"
            )
        if self.window_type not in WINDOWS:
            near = nearest(self.window_type, WINDOWS)
            raise OpscopeError(f"window_type={self.window_type!r} is no window{near}")
        if not 2 <= self.window_size <= _MOST_SAMPLES or self.window_shift < 1:
            raise OpscopeError(
                f"frames of {self.window_size} samples, {self.window_shift} apart"
                f" (frame_length={self.frame_length} ms, frame_shift={self.frame_shift} ms at"
                f" {self.sample_frequency:g} Hz): want 2 to {_MOST_SAMPLES} samples, and 1"
                " apart at least"
            )
        if self.padded_size % 2:
            raise OpscopeError(
                f"round_to_power_of_two=False wants an even number of samples, not"
                f" {self.padded_size}"
            )

    @property
    def window_shift(self) -> int:
        """Samples from frame to frame."""
        return self._samples(self.frame_shift)

    @property
    def window_size(self) -> int:
        """Samples of a frame."""
        return self._samples(self.frame_length)

    def _samples(self, milliseconds: float) -> int:
        count = float(np.float32(self.sample_frequency)) * 0.001 * float(np.float32(milliseconds))
        return int(min(max(count, -1.0), 1e12))

    @property
    def padded_size(self) -> int:
        """Points of the FFT."""
        size = self.window_size
        return 1 << (size - 1).bit_length() if self.round_to_power_of_two else size

    def frame_count(self, samples: int, flush: bool = True) -> int:
        """How many frames so many samples have.

        Args:
            flush: that no more samples come.
        """
        shift, size = self.window_shift, self.window_size
        if self.snip_edges:
            return 0 if samples < size else 1 + (samples - size) // shift
        count = (samples + shift // 2) // shift
        if flush or not count:
            return count
        beyond = self.first_sample(count - 1) + size - samples
        return max(count - max(-(-beyond // shift), 0), 0)

    def first_sample(self, frame: int) -> int:
        """The first sample of a frame; negative where it is reflected."""
        if self.snip_edges:
            return frame * self.window_shift
        return self.window_shift * frame + self.window_shift // 2 - self.window_size // 2


@dataclass(frozen=True)
class MelOptions(FrameOptions):
    """The mel bins of MFCC and filter banks, besides frames; see `FrameOptions`."""

    num_mel_bins: int = option(23, "Number of triangular mel-frequency bins")
    low_freq: float = option(20.0, "Low cutoff frequency of the mel bins")
    high_freq: float = option(0.0, "High cutoff frequency (if <= 0, offset from Nyquist)")
    vtln_low: float = option(100.0, "Taken for compatibility; nothing is warped")
    vtln_high: float = option(-500.0, "Taken for compatibility; nothing is warped")
    debug_mel: bool = option(False, "Log the mel bins")

    def __post_init__(self) -> None:
        super().__post_init__()
        most = min(self.padded_size // 2, _MOST_BINS)
        if not 3 <= self.num_mel_bins <= most:
            raise OpscopeError(
                f"num_mel_bins={self.num_mel_bins}: want 3 at least, and an FFT of"
                f" {self.padded_size} points has at most {most} bins here"
            )


WINDOWS: Sequence[str] = ("hamming", "hanning", "povey", "rectangular", "sine", "blackman")


@dataclass(frozen=True)
class MfccOptions(MelOptions):
    """The options of MFCC, as in a Kaldi `mfcc.conf`; see `MelOptions`."""

    num_ceps: int = option(13, "Number of cepstra, C0 included")
    use_energy: bool = option(True, "Use the log energy in place of C0")
    energy_floor: float = option(0.0, "Floor of the energy; only with --use-energy=true")
    raw_energy: bool = option(True, "Energy of the signal before preemphasis and window")
    cepstral_lifter: float = option(22.0, "Constant that scales the cepstra; 0.0: no scaling")
    htk_compat: bool = option(False, "Energy or C0 last, and sqrt(2) * C0")

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1 <= self.num_ceps <= self.num_mel_bins:
            raise OpscopeError(
                f"num_ceps={self.num_ceps} must lie from 1 to num_mel_bins={self.num_mel_bins}"
            )


@dataclass(frozen=True)
class FbankOptions(MelOptions):
    """The options of filter banks, as in a Kaldi `fbank.conf`; see `MelOptions`."""

    use_energy: bool = option(False, "Add a column with the log energy")
    energy_floor: float = option(0.0, "Floor of the energy; only with --use-energy=true")
    raw_energy: bool = option(True, "Energy of the signal before preemphasis and window")
    htk_compat: bool = option(False, "The energy last")
    use_log_fbank: bool = option(True, "Log of the filter banks")
    use_power: bool = option(True, "Power of the spectrum; else its magnitude")


@dataclass(frozen=True)
class PlpOptions(MelOptions):
    """The options of PLP, as in a Kaldi `plp.conf`; see `MelOptions`."""

    lpc_order: int = option(12, "Order of the linear prediction")
    num_ceps: int = option(13, "Number of cepstra, C0 included")
    use_energy: bool = option(True, "Use the log energy in place of C0")
    energy_floor: float = option(0.0, "Floor of the energy; only with --use-energy=true")
    raw_energy: bool = option(True, "Energy of the signal before preemphasis and window")
    compress_factor: float = option(0.33333, "Power that the filter banks are raised to")
    cepstral_lifter: int = option(22, "Constant that scales the cepstra; 0: no scaling")
    cepstral_scale: float = option(1.0, "Factor of all cepstra")
    htk_compat: bool = option(False, "Energy or C0 last")

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1 <= self.lpc_order <= self.num_mel_bins:
            raise OpscopeError(
                f"lpc_order={self.lpc_order} must lie from 1 to num_mel_bins={self.num_mel_bins}"
            )
        if not 1 <= self.num_ceps <= self.lpc_order + 1:
            raise OpscopeError(
                f"num_ceps={self.num_ceps} must lie from 1 to lpc_order + 1 = {self.lpc_order + 1}"
            )


@dataclass(frozen=True)
class SpectrogramOptions(FrameOptions):
    """The options of spectrograms; see `FrameOptions`."""

    energy_floor: float = option(0.0, "Floor of the energy, which stands in the first column")
    raw_energy: bool = option(True, "Energy of the signal before preemphasis and window")
    return_raw_fft: bool = option(False, "Complex numbers of the FFT, not log powers")
