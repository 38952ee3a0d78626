"""compute-mfcc-feats, compute-fbank-feats.

Source: Kaldi's `featbin/compute-mfcc-feats.cc`, `featbin/compute-fbank-feats.cc`.
"""

from __future__ import annotations

import contextlib
import struct
import zlib
from types import SimpleNamespace

import click
import numpy as np

from ...framework.base.errors import FormatError, OpscopeError
from ...nnet3.files.kaldi_io import Reader, Writer
from ...nnet3.programs.base.options import SRAND, shown
from ...nnet3.programs.base.program import Option, program
from ...nnet3.tables.kinds import Kind
from ...nnet3.tables.tables import TableWriter, read_table
from ..audio.wav import WAVE, Audio
from ..features.computers import Fbank, Features, Mfcc
from ..features.options import FbankOptions, MfccOptions, from_values, options_of

_SHARED = (
    Option("output-format", "kaldi", "kaldi|htk: format of the output"),
    Option("subtract-mean", False, "Subtract the mean of each matrix of features"),
    Option("vtln-warp", 1.0, "Taken for compatibility; nothing is warped, other values fail"),
    Option("vtln-map", "", "Taken for compatibility; nothing is warped, it fails"),
    Option("utt2spk", "", "Taken for compatibility; only with --vtln-map, which fails"),
    Option("channel", -1, "Channel to take (-1: there is one, 0: left, 1: right)"),
    Option("min-duration", 0.0, "Least duration of recordings, in seconds"),
    Option("write-utt2dur", "", "Wspecifier of durations in seconds"),
    SRAND,
)
_PERIOD = 100000  # of frames, in units of 100 ns, as Kaldi writes it
_HTK_ENERGY, _HTK_C0 = 0o100, 0o20000


@program(
    "compute-mfcc-feats",
    "Create MFCC feature files.",
    ("<wav-rspecifier>", "<feats-wspecifier>"),
    *options_of(MfccOptions),
    *_SHARED,
)
def compute_mfcc_feats(options: SimpleNamespace, source: str, output: str) -> None:
    _compute(options, Mfcc(from_values(MfccOptions, vars(options))), 0o6, source, output)


@program(
    "compute-fbank-feats",
    "Create Mel-filter bank (FBANK) feature files.",
    ("<wav-rspecifier>", "<feats-wspecifier>"),
    *options_of(FbankOptions),
    *_SHARED,
)
def compute_fbank_feats(options: SimpleNamespace, source: str, output: str) -> None:
    _compute(options, Fbank(from_values(FbankOptions, vars(options))), 0o7, source, output)


def _compute(
    options: SimpleNamespace, features: Features, code: int, source: str, output: str
) -> None:
    log, warn = options.program.log, options.program.warn
    if options.vtln_warp != 1.0 or options.vtln_map:
        raise FormatError("frequencies are not warped here: --vtln-warp=1 and no --vtln-map")
    if options.utt2spk:
        raise FormatError("--utt2spk is only needed with --vtln-map")
    kinds = {"kaldi": "matrix", "htk": _htk_kind(code, options.use_energy)}
    if options.output_format not in kinds:
        raise FormatError(f"--output-format={options.output_format} is none of kaldi, htk")
    if options.debug_mel:
        for number, each in enumerate(features.bins):
            weights = " ".join(f"{weight:g}" for weight in each.weights)
            log(f"bin {number}, offset = {each.first}, vec =  [ {weights} ]")
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
                matrix = features.compute(
                    samples, audio.rate, seed=(options.srand & 0xFFFFFFFF, _number(key))
                )
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
    if not done:
        raise click.exceptions.Exit(1)


def _number(key: str) -> int:
    """A seed of an utterance: its noise does not hang on those before it."""
    return zlib.crc32(key.encode("utf-8", "surrogateescape"))


def _samples(options: SimpleNamespace, key: str, audio: Audio) -> np.ndarray | None:
    """The samples of the channel that is wanted; None, with a warning: there are none."""
    warn = options.program.warn
    if audio.duration < options.min_duration:
        warn(f"File: {key} is too short ({audio.duration:g} sec): producing no output.")
        return None
    if options.channel < 0:
        if audio.channels != 1:
            warn(
                f"Channel not specified but you have data with {audio.channels} channels;"
                " defaulting to zero"
            )
        return audio.samples[0]
    if options.channel >= audio.channels:
        warn(
            f"File with id {key} has {audio.channels} channels but you specified channel"
            f" {options.channel}, producing no output."
        )
        return None
    return audio.samples[options.channel]


def _htk_kind(code: int, energy: bool) -> Kind:
    """The kind of tables of HTK's feature files.

    Args:
        code: HTK's of the features. energy: whether they have the energy; else they have C0.
    """

    def write(writer: Writer, matrix: np.ndarray) -> None:
        if not writer.binary:
            raise FormatError("HTK's files are binary: write them without the option t")
        frames, dim = matrix.shape
        kind = code | (_HTK_ENERGY if energy else _HTK_C0)
        writer.write_raw(struct.pack(">iihH", frames, _PERIOD, 4 * dim, kind))
        writer.write_raw(np.asarray(matrix, ">f4").tobytes())

    def read(reader: Reader) -> np.ndarray:
        raise reader.error("HTK's files are written here, not read")

    return Kind("htk", read, write, header=False, own_header=True)
