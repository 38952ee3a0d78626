"""Words of whole recordings: the plain interface."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...framework.base.errors import OpscopeError, ShapeError
from ..audio.read import read_audio
from ..audio.wav import Audio
from ..ctc.model import CtcModel, is_ctc
from .ctc import ctc_utterance
from .model import Model
from .recognizer import Recognizer
from .speaker_model import SpeakerVector, SpkModel
from .utterance import Alternative, Phone, Utterance, Word
from .whole import whole_utterance

_log = logging.getLogger(__name__)
_BLOCK = 1 << 16  # samples that are handed on at once; the words do not depend on it
_VOSK_BLOCK = 4000  # where they do: what Vosk's examples read at once
MODES = ("steady", "vosk", "kaldi")
_NOTHING = np.empty(0, np.float32)

AnyModel = Model | CtcModel
Source = str | os.PathLike[str] | Audio | np.ndarray


@dataclass(frozen=True)
class Spoken:
    """An utterance of a recording; times are in seconds from the recording's beginning.

    Attributes:
        words: with confidences. phones, alternatives: where they were asked for. speaker: what
            the vector of the speaker, where a model of speakers was given and enough was said.
    """

    start: float
    end: float
    words: list[Word]
    phones: list[Phone] = field(default_factory=list)
    alternatives: list[Alternative] = field(default_factory=list)
    speaker: SpeakerVector | None = None

    @property
    def text(self) -> str:
        """The words, with spaces between them."""
        return " ".join(word.text for word in self.words)


@dataclass(frozen=True)
class Transcript:
    """What is said in a recording.

    Attributes:
        name: of the recording. duration: in seconds. utterances: those with words, in order.
    """

    name: str
    duration: float
    utterances: list[Spoken]

    @property
    def words(self) -> list[Word]:
        """All words."""
        return [word for each in self.utterances for word in each.words]

    @property
    def phones(self) -> list[Phone]:
        """All phones, where they were asked for."""
        return [phone for each in self.utterances for phone in each.phones]

    @property
    def text(self) -> str:
        """All words, a line for each utterance."""
        return "\n".join(each.text for each in self.utterances)


def transcribe(
    source: Source,
    model: AnyModel | str | os.PathLike[str],
    *,
    rate: float | None = None,
    channel: int = -1,
    grammar: Sequence[str] | None = None,
    alternatives: int = 0,
    phones: bool = False,
    mode: str = "steady",
    speakers: SpkModel | str | os.PathLike[str] | None = None,
) -> Transcript:
    """The words of a recording, with times and confidences.

    The same recording gives the same words each time.

    Example:
        for word in transcribe("speech.wav", "vosk-model-small-en-us-0.15").words:
            print(word.start, word.text, word.confidence)

    Args:
        source: path of a recording, an `Audio`, or samples of one channel, [count], on the scale
            of 16-bit integers.
        model: a model, or the path of its folder, see `opened_model`.
        rate: of samples in an array, in Hz; by default the model's.
        channel: of a recording with several, from 0 on; -1: the first, with a warning.
        grammar: phrases that are the only ones to be recognized.
        alternatives: how many of them to list for each utterance.
        phones: also list phones.
        mode: "steady": utterances end at silences, iVectors go along with the recording; see
            `Recognizer`. "vosk": as Vosk's examples have it, which read 4000 samples at once.
            "kaldi": the recording is one utterance with one iVector for all of it, as in Kaldi's
            offline programs. To a `CtcModel` each recording is one utterance.
        speakers: a model of speakers, or the path of its folder, for their vectors.

    Raises:
        FormatError: the recording or a model cannot be read.
        OpscopeError: samples are NaN or infinite, or the sampling rate does not go with a model.
    """
    if speakers is not None and not isinstance(speakers, SpkModel):
        speakers = SpkModel(speakers)
    model = model if isinstance(model, AnyModel) else opened_model(model)
    name, samples, rate = samples_of(source, model, rate, channel)
    step = _VOSK_BLOCK if mode == "vosk" else _BLOCK
    blocks = (samples[at : at + step] for at in range(0, len(samples), step))
    wanted = {"grammar": grammar, "alternatives": alternatives, "phones": phones}
    utterances = list(recognized(blocks, model, rate, mode=mode, speakers=speakers, **wanted))
    duration = len(samples) / rate
    if not utterances:
        _log.warning("%s: no words in %.2f seconds", name, duration)
    return Transcript(name, duration, utterances)


def opened_model(
    path: str | os.PathLike[str], *, dither: float | None = None, reproducible: bool = False
) -> AnyModel:
    """The model of a path: an ONNX file or a folder with one and its tokens is a `CtcModel`, else
    it is the folder of a `Model`.

    Raises:
        FormatError: as these two. OpscopeError: dither and `reproducible` are of `Model` alone.
    """
    if not is_ctc(path):
        return Model(path, dither=dither, reproducible=reproducible)
    if dither is not None or reproducible:
        raise OpscopeError(f"{os.fspath(path)}: a CTC model has neither dither nor reproducible")
    return CtcModel(path)


def recognized(
    blocks: Iterable[np.ndarray],
    model: AnyModel,
    rate: float,
    *,
    grammar: Sequence[str] | None = None,
    alternatives: int = 0,
    phones: bool = False,
    mode: str = "steady",
    speakers: SpkModel | None = None,
) -> Iterator[Spoken]:
    """The utterances of a signal that have words, each as soon as it is over.

    How the signal is cut into blocks does not matter but in the mode "vosk"; in the mode "kaldi"
    (and of a `CtcModel`) there is one utterance, which is over when the signal is. Arguments and
    errors as for `transcribe`.
    """
    if mode not in MODES:
        raise OpscopeError(f"mode {mode!r}: want one of {', '.join(MODES)}")
    how = {"grammar": grammar, "alternatives": alternatives, "phones": phones, "mode": mode}
    listener = listener_of(model, rate, speakers=speakers, **how)
    for block in blocks:
        yield from listener.accept(block)
    yield from listener.finish()


def listener_of(
    model: AnyModel, rate: float, *, mode: str = "steady", **asked: Any
) -> Listener | WholeListener:
    """What listens to a signal that comes block by block; arguments as for `recognized`."""
    if mode == "kaldi" or isinstance(model, CtcModel):
        if isinstance(model, CtcModel) and (mode == "vosk" or asked.get("speakers") is not None):
            raise OpscopeError(f"{model.path}: a CTC model has no mode 'vosk' and no speakers")
        return WholeListener(model, rate, **asked)
    return Listener(model, rate, mode=mode, **asked)


class WholeListener:
    """A signal as one utterance, which is over when the signal is; arguments as for `recognized`,
    whose mode "kaldi" it is.

    Attributes:
        held: seconds of sound that were taken and not heard yet.
    """

    def __init__(
        self,
        model: AnyModel,
        rate: float,
        *,
        grammar: Sequence[str] | None = None,
        alternatives: int = 0,
        phones: bool = False,
        speakers: SpkModel | None = None,
    ) -> None:
        self._model = model
        self._rate = rate
        self._grammar = grammar
        self._speakers = speakers
        self._asked = alternatives, phones
        self._blocks = [_NOTHING]
        self.held = 0.0

    def accept(self, block: np.ndarray) -> Iterator[Spoken]:
        """Take samples, [count]; nothing is over yet."""
        self._blocks.append(np.asarray(block))
        self.held += len(block) / self._rate
        return iter(())

    def finish(self) -> Iterator[Spoken]:
        """The signal is over; gives its utterance, where that has words."""
        whole = np.concatenate(self._blocks)
        if isinstance(self._model, Model):
            heard = whole_utterance(self._model, whole, self._rate, self._grammar, self._speakers)
        else:
            heard = ctc_utterance(self._model, whole, self._rate, self._grammar)
        return _spoken(heard, *self._asked)


class Listener:
    """The utterances of a signal that comes block by block; arguments as for `recognized`, whose
    mode "kaldi" it lacks.

    Attributes:
        held: see `WholeListener`; none, since samples are heard as they come.
    """

    held = 0.0

    def __init__(
        self,
        model: Model,
        rate: float,
        *,
        grammar: Sequence[str] | None = None,
        alternatives: int = 0,
        phones: bool = False,
        mode: str = "steady",
        speakers: SpkModel | None = None,
    ) -> None:
        self._recognizer = Recognizer(model, rate, grammar, mode=mode, speakers=speakers)
        self._asked = alternatives, phones

    def accept(self, block: np.ndarray) -> Iterator[Spoken]:
        """Take samples, [count]; gives the utterances with words that are over, one by one."""
        recognizer = self._recognizer
        over = recognizer.accept(block)
        while over:
            yield from _spoken(recognizer.end_utterance(), *self._asked)
            over = recognizer.accept(_NOTHING)

    def finish(self) -> Iterator[Spoken]:
        """The signal is over; gives its last utterance, where that has words."""
        if self._recognizer.running:
            yield from _spoken(self._recognizer.finish(), *self._asked)


def _spoken(utterance: Utterance, alternatives: int, phones: bool) -> Iterator[Spoken]:
    """An utterance as transcripts have it; nothing, where it has no words."""
    words = utterance.words()
    if words:
        yield Spoken(
            utterance.start,
            utterance.end,
            words,
            utterance.phones() if phones else [],
            utterance.alternatives(alternatives) if alternatives else [],
            utterance.speaker,
        )


def samples_of(
    source: Source, model: AnyModel, rate: float | None, channel: int, name: str = ""
) -> tuple[str, np.ndarray, float]:
    """Name, samples, [count], and rate of a source; see `transcribe`; `name` is for messages."""
    if isinstance(source, np.ndarray):
        if source.ndim != 1:
            raise ShapeError(f"samples of shape {source.shape}: samples of one channel are needed")
        return "samples", source, float(rate or _rate_of(model))
    if rate is not None:
        raise OpscopeError("a rate goes with an array of samples; recordings have their own")
    name = name or ("audio" if isinstance(source, Audio) else os.fspath(source))
    audio = source if isinstance(source, Audio) else read_audio(source)
    return name, audio.channel(channel, name), audio.rate


def _rate_of(model: AnyModel) -> float:
    """The sampling rate of what a model hears, in Hz."""
    return model.rate if isinstance(model, CtcModel) else model.features.options.sample_frequency
