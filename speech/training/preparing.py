"""From checked data to features at several speeds, and to a lang folder with chain topology."""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

import numpy as np

from ...framework.base.atomic import write_atomically
from ...framework.base.workers import shared_out
from ...kaldi.files.compressed import CompressedMatrix
from ...kaldi.files.kaldi_io import Writer
from ...kaldi.tables.tables import TableWriter, read_table
from ...nnet3.programs.base.options import errors_tell
from ...nnet3.programs.base.options import shown as progress
from ..audio.resample import resample
from ..audio.wav import Audio
from ..features.computers import Mfcc
from ..language_model.arpa import read_arpa
from ..lexicon.dictionary import Dictionary, of_entries, read_dictionary
from ..lexicon.entries import RESERVED, Entry
from ..lexicon.lang_files import LangOptions, lang_files
from .checking import FRAME_SHIFT, Recorded
from .data import Recordings, plain_text
from .options import SUBSAMPLING, RecognizerOptions

MFCC = """--use-energy=false
--sample-frequency={rate}
--num-mel-bins=40
--num-ceps=40
--low-freq=20
--high-freq=-{margin}
"""
"""Kaldi's high-resolution cepstra."""
MOMENTS = "moments.mat"
_WINDOW = 0.025
_FINENESS = 1000  # speeds are fractions with this denominator
_VOLUMES = (0.25, 2.0)


def mfcc_config(rate: int) -> str:
    """The text of `mfcc.conf`."""
    return MFCC.format(rate=rate, margin=400 if rate > 8000 else 200)


# Words


def dictionary_of(options: RecognizerOptions, words: Iterable[str]) -> Dictionary:
    """The lexicon of the options, or one in which words are spelled by their characters.

    Args:
        words: those of the recordings; used without a lexicon, with those of the language model.

    Raises:
        FormatError: the lexicon, text or language model cannot be read.
    """
    if options.lexicon:
        return read_dictionary(options.lexicon)
    known = set(words)
    if options.text:
        known |= set(plain_text(options.text).split())
    if options.lm:
        known |= set(read_arpa(options.lm).vocabulary)
    marks = {*RESERVED, "<unk>"}
    entries = [Entry(word, _characters(word), "text") for word in sorted(known - marks)]
    return of_entries(entries, "the characters of the text", silence_phones="<sil> <spn>")


def _characters(word: str) -> tuple[str, ...]:
    """The characters of a word, in one case and without punctuation unless it has nothing else."""
    letters = unicodedata.normalize("NFC", word.casefold())
    return tuple(c for c in letters if unicodedata.category(c)[0] in "LMN") or tuple(letters)


def chain_topology(phones: Iterable[int]) -> str:
    """The text of a `topo` file: one state, whose self-loop has an output of its own."""
    listed = " ".join(map(str, phones))
    return (
        f"<Topology>\n<TopologyEntry>\n<ForPhones>\n{listed}\n</ForPhones>\n"
        "<State> 0 <ForwardPdfClass> 0 <SelfLoopPdfClass> 1"
        " <Transition> 0 0.5 <Transition> 1 0.5 </State>\n"
        "<State> 1 </State>\n</TopologyEntry>\n</Topology>\n"
    )


def chain_lang(dictionary: Dictionary) -> dict[str, bytes]:
    """The files of a lang folder for LF-MMI, by their paths in it."""
    files = lang_files(dictionary, LangOptions())
    phones = (files[f"phones/{kind}.int"].split() for kind in ("nonsilence", "silence"))
    numbers = sorted(int(phone) for each in phones for phone in each)
    return files | {"topo": chain_topology(numbers).encode()}


# Features


def allowed_lengths(frames: Iterable[int], step: float) -> np.ndarray:
    """Lengths in frames, rising by a relative step, that examples are brought to: utterances of
    one length can be merged into minibatches. int64."""
    least, most = min(frames), max(frames)
    count = int(np.ceil(np.log(most / least) / np.log1p(step))) + 2
    exact = least * (1 + step) ** np.arange(-1, count + 1)
    return np.unique((np.round(exact / SUBSAMPLING) * SUBSAMPLING).astype(np.int64))


def frames_of(seconds: float) -> int:
    """Frames of so many seconds."""
    return max(int((seconds - _WINDOW) / FRAME_SHIFT) + 1, 1)


def at_length(audio: Audio, frames: int) -> np.ndarray:
    """The samples faster or slower, by at most as much as makes them so many frames."""
    samples = audio.samples[0]
    wanted = (_WINDOW + FRAME_SHIFT * (frames - 0.5)) * audio.rate
    speed = round(_FINENESS * wanted / len(samples))
    return resample(samples, _FINENESS, speed)


def write_features(
    utterances: list[Recorded], rate: int, options: RecognizerOptions, folder: str
) -> None:
    """Write `feats.ark` with copies of utterances, KEY-1, KEY-2 ..., of allowed lengths;
    `mfcc.conf`; and `moments.mat`: means and deviations of the columns, float64, [2, dim].

    Raises:
        FormatError: a recording cannot be read any more. SaveError: a file cannot be written.
    """
    config = os.path.join(folder, "mfcc.conf")
    write_atomically(config, mfcc_config(rate).encode())
    lengths = allowed_lengths([frames_of(each.seconds) for each in utterances], options.speed_step)
    found = shared_out(
        partial(_Copies, config, lengths, options), list(enumerate(utterances)), options.jobs
    )
    count = 0
    sums = np.zeros((2, 1))
    with TableWriter(_table(folder), "compressed_matrix") as writer:
        for _, copies in zip(progress(utterances, "features", "utterances"), found, strict=True):
            for key, matrix, moments in copies:
                count += matrix.shape[0]
                sums = sums + moments
                writer.write(key, matrix)
    mean, square = sums / count
    deviation = np.sqrt(np.maximum(square - mean**2, 1e-6))
    file = Writer(True)
    file.write_matrix(np.stack([mean, deviation]))
    file.save(os.path.join(folder, MOMENTS))


def read_features(folder: str) -> Iterator[tuple[str, Any]]:
    """Key and compressed features of each copy, see `write_features`."""
    return read_table(_table(folder), "general_matrix")


def _table(folder: str) -> str:
    return f"ark:{os.path.join(folder, 'feats.ark')}"


def copy_key(key: str, copy: int) -> str:
    """The key of a copy of an utterance; copies count from 0 on."""
    return f"{key}-{copy + 1}"


class _Copies:
    """Computes the features of the copies of utterances.

    Args:
        config: file of the features' options. lengths: in frames, that copies may have.
    """

    def __init__(self, config: str, lengths: np.ndarray, options: RecognizerOptions) -> None:
        self._features = Mfcc(config=config, allow_downsample=True)
        self._recordings = Recordings()
        self._lengths = lengths
        self._options = options

    def __call__(
        self, numbered: tuple[int, Recorded]
    ) -> list[tuple[str, CompressedMatrix, np.ndarray]]:
        """For each copy its key, features, and the sums of their columns and squares, [2, dim]."""
        number, each = numbered
        options = self._options
        audio = self._recordings.audio(each)
        found = []
        for copy, frames in enumerate(_nearest(self._lengths, frames_of(each.seconds), options)):
            seed = [options.seed, number, copy]
            rng = np.random.default_rng(seed)
            volume = np.exp(rng.uniform(*np.log(_VOLUMES)))
            samples = at_length(audio, frames) * np.float32(volume)
            with errors_tell(each.key):
                matrix = self._features.compute(samples, audio.rate, seed=seed)
            matrix = _exactly(matrix, frames)
            sums = np.stack([matrix.sum(0, np.float64), (matrix.astype(float) ** 2).sum(0)])
            found.append((copy_key(each.key, copy), CompressedMatrix.compress(matrix), sums))
        return found


def _nearest(lengths: np.ndarray, frames: int, options: RecognizerOptions) -> list[int]:
    """The allowed lengths that are nearest to one, in their ratio."""
    away = np.abs(np.log(lengths / frames))
    return sorted(lengths[np.argsort(away, kind="stable")[: options.copies]].tolist())


def _exactly(matrix: np.ndarray, frames: int) -> np.ndarray:
    """The matrix with so many rows: the last one is repeated, or some are cut off."""
    return matrix[np.minimum(np.arange(frames), len(matrix) - 1)]
