"""compute-mfcc-feats, compute-fbank-feats, compute-plp-feats, compute-spectrogram-feats.

Source: Kaldi's `featbin/compute-mfcc-feats.cc`, `featbin/compute-fbank-feats.cc`,
`featbin/compute-plp-feats.cc`, `featbin/compute-spectrogram-feats.cc`.
"""

from __future__ import annotations

import contextlib
import struct
import zlib
from collections.abc import Callable
from types import SimpleNamespace

import numpy as np

from ....framework.base.errors import FormatError, OpscopeError
from ....kaldi.files.kaldi_io import Reader, Writer
from ....kaldi.tables.kinds import Kind
from ....kaldi.tables.tables import TableWriter, read_table
from ....nnet3.programs.base.options import SRAND, shown
from ....nnet3.programs.base.program import Option, from_values, options_of, program
from ....nnet3.programs.base.saving import fail_unless
from ...audio.wav import WAVE, Audio
from ...features.computers import Fbank, Features, MelFeatures, Mfcc, Plp, Spectrogram
from ...features.options import FbankOptions, MfccOptions, PlpOptions, SpectrogramOptions

_WARPED = (
    Option("vtln-warp", 1.0, "Taken for compatibility; nothing is warped, other values fail"),
    Option("vtln-map", "", "Taken for compatibility; nothing is warped, it fails"),
    Option("utt2spk", "", "Taken for compatibility; only with --vtln-map, which fails"),
)
_SHARED = (
    Option("output-format", "kaldi", "kaldi|htk: format of the output"),
    Option("subtract-mean", False, "Subtract the mean of each matrix of features"),
    Option("channel", -1, "Channel to take (-1: there is one, 0: left, 1: right)"),
    Option("min-duration", 0.0, "Least duration of recordings, in seconds"),
    Option("write-utt2dur", "", "Wspecifier of durations in seconds"),
    SRAND,
)
_PERIOD = 100000  # of frames, in units of 100 ns, as Kaldi writes it of all but spectrograms
_HTK_ENERGY, _HTK_C0 = 0o100, 0o20000


@program(
    "compute-mfcc-feats",
    "Create MFCC feature files.",
    ("<wav-rspecifier>", "<feats-wspecifier>"),
    *options_of(MfccOptions),
    *_WARPED,
    *_SHARED,
)
def compute_mfcc_feats(options: SimpleNamespace, source: str, output: str) -> None:
    features = Mfcc(from_values(MfccOptions, vars(options)))
    _check_mel(options, features)
    _compute(options, features, 0o6 | _htk_energy(options), source, output)


@program(
    "compute-fbank-feats",
    "Create Mel-filter bank (FBANK) feature files.",
    ("<wav-rspecifier>", "<feats-wspecifier>"),
    *options_of(FbankOptions),
    *_WARPED,
    *_SHARED,
)
def compute_fbank_feats(options: SimpleNamespace, source: str, output: str) -> None:
    features = Fbank(from_values(FbankOptions, vars(options)))
    _check_mel(options, features)
    _compute(options, features, 0o7 | _htk_energy(options), source, output)


@program(
    "compute-plp-feats",
    "Create PLP feature files.",
    ("<wav-rspecifier>", "<feats-wspecifier>"),
    *options_of(PlpOptions),
    *_WARPED,
    *_SHARED,
)
def compute_plp_feats(options: SimpleNamespace, source: str, output: str) -> None:
    features = Plp(from_values(PlpOptions, vars(options)))
    _check_mel(options, features)
    # Kaldi writes the code of C0, even where the energy stands for it.
    _compute(options, features, 0o13 | _HTK_C0, source, output)


@program(
    "compute-spectrogram-feats",
    "Create spectrogram feature files.",
    ("<wav-rspecifier>", "<feats-wspecifier>"),
    *options_of(SpectrogramOptions),
    *_SHARED,
)
def compute_spectrogram_feats(options: SimpleNamespace, source: str, output: str) -> None:
    features = Spectrogram(from_values(SpectrogramOptions, vars(options)))
    _compute(options, features, 0o7 | _HTK_C0, source, output, int(options.frame_shift * 10000))


def _check_mel(options: SimpleNamespace, features: MelFeatures) -> None:
    """Refuse warping; log the bins if that is wanted."""
    if options.vtln_warp != 1.0 or options.vtln_map:
        raise FormatError("frequencies are not warped here: --vtln-warp=1 and no --vtln-map")
    if options.utt2spk:
        raise FormatError("--utt2spk is only needed with --vtln-map")
    if options.debug_mel:
        for number, each in enumerate(features.bins):
            weights = " ".join(f"{weight:g}" for weight in each.weights)
            options.program.log(f"bin {number}, offset = {each.first}, vec =  [ {weights} ]")


def _htk_energy(options: SimpleNamespace) -> int:
    """HTK's code of what stands for the energy."""
    return _HTK_ENERGY if options.use_energy else _HTK_C0


def _compute(
    options: SimpleNamespace,
    features: Features,
    code: int,
    source: str,
    output: str,
    period: int = _PERIOD,
) -> None:
    log, warn = options.program.log, options.program.warn
    kinds = {"kaldi": "matrix", "htk": _htk_kind(code, period)}
    if options.output_format not in kinds:
        raise FormatError(f"--output-format={options.output_format} is none of kaldi, htk")
    total = 0
    with contextlib.ExitStack() as stack:
        durations = None
        writer = stack.enter_context(TableWriter(output, kinds[options.output_format]))
        if options.write_utt2dur:
            durations = stack.enter_context(TableWriter(options.write_utt2dur, "double"))
        for key, audio in shown(read_table(source, WAVE), "features", "utterances"):
            total += 1
            samples = _samples(options, key, audio)
            if samples is None:
                continue
            try:
                matrix = features.compute(samples, audio.rate, seed=key_seed(options.srand, key))
            except OpscopeError as error:
                warn(f"Failed to compute features for utterance {key}: {error}")
                continue
            if options.subtract_mean and len(matrix):
                matrix = matrix - matrix.mean(axis=0)
            writer.write(key, matrix)
            if durations is not None:
                durations.write(key, audio.duration)
            if total % 10 == 0:
                log(f"Processed {total} utterances")
            options.program.vlog(2, f"Processed features for key {key}")
        done = writer.count
    log(f" Done {done} out of {total} utterances.")
    fail_unless(done)


def key_seed(srand: int, key: str) -> tuple[int, int]:
    """The seed of an utterance: its noise does not depend on those before it."""
    return srand & 0xFFFFFFFF, zlib.crc32(key.encode("utf-8", "surrogateescape"))


def first_channel(warn: Callable[[str], None], audio: Audio) -> np.ndarray:
    """The samples of a recording's first channel, with a warning if there are others."""
    if audio.channels != 1:
        warn(
            f"Channel not specified but you have data with {audio.channels} channels;"
            " defaulting to zero"
        )
    return audio.samples[0]


def _samples(options: SimpleNamespace, key: str, audio: Audio) -> np.ndarray | None:
    """The samples of the channel that is wanted; None, with a warning: there are none."""
    warn = options.program.warn
    if audio.duration < options.min_duration:
        warn(f"File: {key} is too short ({audio.duration:g} sec): producing no output.")
        return None
    if options.channel < 0:
        return first_channel(warn, audio)
    if options.channel >= audio.channels:
        warn(
            f"File with id {key} has {audio.channels} channels but you specified channel"
            f" {options.channel}, producing no output."
        )
        return None
    return audio.samples[options.channel]


def _htk_kind(code: int, period: int) -> Kind:
    """The kind of tables of HTK's feature files.

    Args:
        code: HTK's of the features. period: of frames, in units of 100 ns.
    """

    def write(writer: Writer, matrix: np.ndarray) -> None:
        if not writer.binary:
            raise FormatError("HTK's files are binary: write them without the option t")
        frames, dim = matrix.shape
        if 4 * dim >= 1 << 15:
            raise FormatError(f"HTK's files have no room for {dim} columns")
        writer.write_raw(struct.pack(">iihH", frames, period, 4 * dim, code))
        writer.write_raw(np.asarray(matrix, ">f4").tobytes())

    def read(reader: Reader) -> np.ndarray:
        raise reader.error("HTK's files are written here, not read")

    return Kind("htk", read, write, header=False, own_header=True)
