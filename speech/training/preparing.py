"""From checked data to features at several speeds, and to a lang folder with chain topology."""

from __future__ import annotations

import contextlib
import os
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, NamedTuple, Protocol

import numpy as np

from ...framework.base.errors import FormatError
from ...framework.base.files.atomic import write_atomically
from ...framework.base.machine.workers import shared_out
from ...framework.base.untrusted.opener import read_text
from ...kaldi.files.compressed import CompressedMatrix
from ...kaldi.files.kaldi_io import Writer
from ...kaldi.tables.tables import TableWriter, read_table
from ...nnet3.programs.base.options import errors_tell
from ...nnet3.programs.base.options import shown as progress
from ...nnet3.training.progress import Log
from ..audio.resample import resample
from ..audio.silence import with_silence
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
_IVECTORS, _PERIOD = "ivectors.ark", "ivector_period"
_WINDOW = 0.025
_FINENESS = 1000  # speeds are fractions with this denominator


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
    one length can be merged into minibatches. The last one is longer than all utterances. int64."""
    least, most = min(frames), max(frames)
    count = int(np.ceil(np.log(most / least) / np.log1p(step))) + 2
    exact = least * (1 + step) ** np.arange(-1, count + 1)
    lengths = np.unique((np.round(exact / SUBSAMPLING) * SUBSAMPLING).astype(np.int64))
    if lengths[-1] <= most:  # a small step is rounded off
        lengths = np.append(lengths, lengths[-1] + SUBSAMPLING)
    return lengths


def frames_of(seconds: float) -> int:
    """Frames of so many seconds."""
    return max(int((seconds - _WINDOW) / FRAME_SHIFT) + 1, 1)


class Target(NamedTuple):
    """What a copy of an utterance is brought to.

    Attributes:
        frames: its length. extended: it gets there by silence at its end, at its own speed.
    """

    frames: int
    extended: bool


def targets(lengths: np.ndarray, frames: int, copies: int) -> list[Target]:
    """What the copies of an utterance are brought to: the allowed lengths that are nearest to its
    own, in their ratio, by another speed; and of three or more copies one to the next longer length
    by silence, so that training also hears the speed at which people speak.

    Source: Kaldi's `utils/data/perturb_speed_to_allowed_lengths.py`.
    """
    away = np.argsort(np.abs(np.log(lengths / frames)), kind="stable")
    extended = copies > 2
    found = [Target(each, False) for each in sorted(lengths[away[: copies - extended]].tolist())]
    if extended:
        found.append(Target(int(lengths[np.searchsorted(lengths, frames, "right")]), True))
    return found


def at_length(audio: Audio, target: Target) -> np.ndarray:
    """The samples of a copy."""
    samples = audio.samples[0]
    wanted = (_WINDOW + FRAME_SHIFT * (target.frames - 0.5)) * audio.rate
    if target.extended:
        return with_silence(samples, audio.rate, int(wanted) - len(samples))
    speed = round(_FINENESS * wanted / len(samples))
    return resample(samples, _FINENESS, speed)


class Computed(NamedTuple):
    """What the network reads of a recording.

    Attributes:
        features: float32 or compressed, [frames, dim].
        ivectors: [count, dim]; None: the network takes none.
        period: frames for one iVector; 0: there are none.
    """

    features: Any
    ivectors: np.ndarray | None = None
    period: int = 0


class FrontEnd(Protocol):
    """Computes what the network reads of samples, [count], of so many frames."""

    def __call__(
        self, samples: np.ndarray, rate: float, seed: list[int], frames: int
    ) -> Computed: ...


class Cepstra:
    """The features of a network that is trained from nothing.

    Args:
        config: file of their options.
    """

    def __init__(self, config: str) -> None:
        self._features = Mfcc(config=config, allow_downsample=True)

    def __call__(self, samples: np.ndarray, rate: float, seed: list[int], frames: int) -> Computed:
        return Computed(exactly(self._features.compute(samples, rate, seed=seed), frames))


def write_cepstra(
    utterances: list[Recorded], rate: int, options: RecognizerOptions, folder: str, log: Log
) -> None:
    """Write `mfcc.conf` and what `write_features` does."""
    config = os.path.join(folder, "mfcc.conf")
    write_atomically(config, mfcc_config(rate).encode())
    write_features(utterances, partial(Cepstra, config), options, folder, log)


def write_features(
    utterances: list[Recorded],
    front_end: Callable[[], FrontEnd],
    options: RecognizerOptions,
    folder: str,
    log: Log,
) -> None:
    """Write `feats.ark` with copies of utterances, KEY-1, KEY-2 ..., of allowed lengths;
    `ivectors.ark` and `period` where there are iVectors; and `moments.mat`: means and deviations of
    the columns, float64, [2, dim].

    Args:
        front_end: makes what computes them; each process calls it.
        log: is told where there are fewer copies than the options want.

    Raises:
        FormatError: a recording cannot be read any more. SaveError: a file cannot be written.
    """
    frames = [frames_of(each.seconds) for each in utterances]
    lengths = allowed_lengths(frames, options.speed_step)
    made = len(targets(lengths, frames[0], options.copies))
    if made < options.copies:
        spans = " to ".join(map(str, sorted({min(frames), max(frames)})))
        log(
            f"  {made} copies of each utterance, not {options.copies}: --speed-step"
            f" {options.speed_step:g} leaves {len(lengths)} lengths for utterances of {spans}"
            " frames"
        )
    found = shared_out(
        partial(_Copies, front_end, lengths, options), list(enumerate(utterances)), options.jobs
    )
    count = 0
    sums = np.zeros((2, 1))
    with contextlib.ExitStack() as stack:
        writer = stack.enter_context(TableWriter(_table(folder), "compressed_matrix"))
        ivectors = None
        for _, copies in zip(progress(utterances, "features", "utterances"), found, strict=True):
            for key, computed, moments in copies:
                count += computed.features.shape[0]
                sums = sums + moments
                writer.write(key, computed.features)
                if computed.ivectors is not None:
                    if ivectors is None:
                        ivectors = stack.enter_context(ivector_writer(folder, computed.period))
                    ivectors.write(key, computed.ivectors)
    mean, square = sums / count
    deviation = np.sqrt(np.maximum(square - mean**2, 1e-6))
    file = Writer(True)
    file.write_matrix(np.stack([mean, deviation]))
    file.save(os.path.join(folder, MOMENTS))


def ivector_writer(folder: str, period: int) -> TableWriter:
    """Writes the iVectors of copies, each of which counts for so many frames."""
    write_atomically(os.path.join(folder, _PERIOD), f"{period}\n".encode())
    return TableWriter(f"ark:{os.path.join(folder, _IVECTORS)}", "matrix")


def read_features(folder: str) -> Iterator[tuple[str, Any]]:
    """Key and compressed features of each copy, see `write_features`."""
    return read_table(_table(folder), "general_matrix")


class Inputs(NamedTuple):
    """What the network reads of a copy; see `Computed`; the features are compressed."""

    key: str
    features: Any
    ivectors: np.ndarray | None
    period: int


def read_inputs(folder: str, vectors: str = "") -> Iterator[Inputs]:
    """The inputs of each copy, see `write_features`.

    Args:
        vectors: the folder of the iVectors, where that is another one.

    Raises:
        FormatError: the tables of features and of iVectors are of other copies.
    """
    period_file = os.path.join(vectors or folder, _PERIOD)
    if not os.path.exists(period_file):
        yield from (Inputs(key, matrix, None, 0) for key, matrix in read_features(folder))
        return
    period = int(read_text(period_file))
    ivectors = read_table(f"ark:{os.path.join(vectors or folder, _IVECTORS)}", "matrix")
    for (key, matrix), (other, rows) in zip(read_features(folder), ivectors, strict=True):
        if key != other:
            raise FormatError(f"{folder}: iVectors of {other} in place of {key}")
        yield Inputs(key, matrix, rows, period)


def _table(folder: str) -> str:
    return f"ark:{os.path.join(folder, 'feats.ark')}"


def copy_key(key: str, copy: int) -> str:
    """The key of a copy of an utterance; copies count from 0 on."""
    return f"{key}-{copy + 1}"


class _Copies:
    """Computes the inputs of the copies of utterances.

    Args:
        front_end: see `write_features`. lengths: in frames, that copies may have.
    """

    def __init__(
        self, front_end: Callable[[], FrontEnd], lengths: np.ndarray, options: RecognizerOptions
    ) -> None:
        self._front_end = front_end()
        self._recordings = Recordings()
        self._lengths = lengths
        self._options = options

    def __call__(self, numbered: tuple[int, Recorded]) -> list[tuple[str, Computed, np.ndarray]]:
        """For each copy its key, what was computed, with compressed features, and the sums of the
        features' columns and squares, [2, dim]."""
        number, each = numbered
        options = self._options
        audio = self._recordings.audio(each)
        found = []
        own = frames_of(each.seconds)
        for copy, target in enumerate(targets(self._lengths, own, options.copies)):
            seed = [options.seed, number, copy]
            rng = np.random.default_rng(seed)
            volume = np.exp(rng.uniform(*np.log(options.volume_range)))
            samples = at_length(audio, target) * np.float32(volume)
            with errors_tell(each.key):
                computed = self._front_end(samples, audio.rate, seed, target.frames)
            matrix = computed.features
            sums = np.stack([matrix.sum(0, np.float64), (matrix.astype(float) ** 2).sum(0)])
            key = copy_key(each.key, copy)
            compressed = computed._replace(features=CompressedMatrix.compress(matrix))
            found.append((key, compressed, sums))
        return found


def exactly(matrix: np.ndarray, frames: int) -> np.ndarray:
    """The matrix with so many rows: the last one is repeated, or some are cut off."""
    return matrix[np.minimum(np.arange(frames), len(matrix) - 1)]
