"""The recognizer that Vosk's Python package has: names, arguments and results are its own.

Source: Vosk's `python/vosk/__init__.py` and `src/recognizer.cc`.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from dataclasses import replace
from enum import Enum
from typing import Any, BinaryIO
from xml.sax.saxutils import escape

import numpy as np

from ...framework.base.errors import OpscopeError
from ..ctc.model import CtcModel
from .ctc import CtcRecognizer
from .model import Model
from .recognizer import Recognizer
from .speaker_model import SpkModel
from .utterance import SILENCE, Alternative, SpelledWord, Utterance, Word

_log = logging.getLogger(__name__)
_SCALES = {1: 0.75, 2: 1.5, 3: 4.0}  # of rule2 to rule4, by mode
_DIGITS = 6
_OPTIONS = ("words", "phones")
_READ = 4000  # bytes of a stream at once, as Vosk reads it
_NO_INPUT = """<?xml version="1.0"?>
<result grammar="default">
<interpretation confidence="1.0">
<instance/>
<input><noinput/></input>
</interpretation>
</result>
"""


class EndpointerMode(Enum):
    """How long a silence must be to end an utterance."""

    DEFAULT = 0
    SHORT = 1
    LONG = 2
    VERY_LONG = 3


class KaldiRecognizer:
    """Recognizes speech as `vosk.KaldiRecognizer` does.

    Example:
        recognizer = KaldiRecognizer(Model("vosk-model-small-en-us-0.15"), 16000)
        recognizer.SetWords(True)
        while data := stream.read(4000):
            if recognizer.AcceptWaveform(data):
                print(recognizer.Result())
        print(recognizer.FinalResult())

    Args:
        model: see `Model`, or `CtcModel`, see `CtcRecognizer`. rate: of the samples, in Hz.
        grammar: JSON list of phrases, e.g. '["one two", "[unk]"]'; None: whatever the model knows.
            Or, as in Vosk, a model of speakers, see `SetSpkModel`.
        mode: "vosk": results depend on how the signal is cut into calls, as in Vosk; "steady": they
            do not, see `Recognizer`.

    Raises:
        OpscopeError: the sampling rate does not go with the model, or the grammar is no list of
            phrases.
    """

    def __init__(
        self,
        model: Model | CtcModel,
        rate: float,
        grammar: str | SpkModel | None = None,
        *,
        mode: str = "vosk",
    ) -> None:
        speakers: SpkModel | None = None
        if isinstance(grammar, SpkModel):
            speakers = grammar
            grammar = None
        phrases = None if grammar is None else _phrases(grammar)
        self._recognizer: Recognizer | CtcRecognizer
        if isinstance(model, Model):
            self._recognizer = Recognizer(model, rate, phrases, mode=mode, speakers=speakers)
        else:
            self._recognizer = CtcRecognizer(model, rate, phrases)
            self._recognizer.set_speakers(speakers)
        self._words = self._partial_words = self._nlsml = self._phones = False
        self._alternatives = 0

    def SetWords(self, enable_words: bool) -> None:
        """Whether results list words with times and confidences."""
        self._words = bool(enable_words)

    def SetResultOptions(self, options: str) -> None:
        """What results list: "words", as `SetWords(True)`, or "phones", the words of the best path
        with their phones and times ("phone_label", "phone_start", "phone_end"), silences as
        words "<eps>".

        Raises:
            OpscopeError: it is neither.

        Source: `vosk_recognizer_set_result_options` of Vosk's interface in C.
        """
        if options not in _OPTIONS:
            raise OpscopeError(
                f"result options {options!r}: want {' or '.join(map(repr, _OPTIONS))}"
            )
        self._words = True
        self._phones = options == "phones"

    def SetPartialWords(self, enable_partial_words: bool) -> None:
        """Whether partial results list words."""
        self._partial_words = bool(enable_partial_words)

    def SetMaxAlternatives(self, max_alternatives: int) -> None:
        """How many alternatives results list; 0: only the words, with confidences.

        Raises:
            OpscopeError: it is below 0.
        """
        if max_alternatives < 0:
            raise OpscopeError(f"{max_alternatives} alternatives: want 0 at least")
        self._alternatives = int(max_alternatives)

    def SetNLSML(self, enable_nlsml: bool) -> None:
        """Whether results with alternatives are NLSML, an XML, in place of JSON."""
        self._nlsml = bool(enable_nlsml)

    def SetSpkModel(self, spk_model: SpkModel) -> None:
        """Let results give the speaker: "spk", a vector, and "spk_frames", the frames of speech
        that it was made of; nothing where these are fewer than 50.

        Raises:
            OpscopeError: an utterance is under way, the sampling rate does not go with the model,
                or it has other frames than the recognizer's.
        """
        if not isinstance(spk_model, SpkModel):
            raise TypeError(f"a speaker model is an SpkModel, not {spk_model!r}")
        self._recognizer.set_speakers(spk_model)

    def SetGrammar(self, grammar: str) -> None:
        """Recognize only these phrases; "[]": whatever the model knows.

        Raises:
            OpscopeError: it is no list of phrases, or an utterance is under way.
        """
        empty = grammar.strip() == "[]"
        self._recognizer.set_grammar(None if empty else _phrases(grammar))

    def SetEndpointerMode(self, mode: EndpointerMode) -> None:
        """How long a silence must be to end an utterance."""
        scale = _SCALES.get(EndpointerMode(mode).value, 1.0)
        known = self._recognizer.configured_endpoint
        rules = [
            replace(rule, min_trailing_silence=rule.min_trailing_silence * scale)
            if 1 <= place <= 3
            else rule
            for place, rule in enumerate(known.rules)
        ]
        self._recognizer.endpoint = replace(known, rules=tuple(rules))

    def SetEndpointerDelays(self, t_start_max: float, t_end: float, t_max: float) -> None:
        """The silence in seconds that ends an utterance in which nothing was said, and one in which
        something was, and how long an utterance may be."""
        configured = self._recognizer.configured_endpoint
        silences = (t_start_max, t_end, t_end + 0.5, t_end + 1.0)
        rules = list(configured.rules)
        for place, silence in enumerate(silences):
            rules[place] = replace(rules[place], min_trailing_silence=silence)
        rules[4] = replace(rules[4], min_utterance_length=t_max)
        self._recognizer.endpoint = replace(configured, rules=tuple(rules))

    def AcceptWaveform(self, data: bytes | np.ndarray) -> int:
        """Take samples: bytes of 16-bit integers, or an array on their scale.

        Returns:
            1 where the utterance is over and `Result` should be asked for, else 0.

        Raises:
            OpscopeError: samples are NaN or infinite, or of several channels.
        """
        if not isinstance(data, np.ndarray):
            data = bytes(data)
            if len(data) % 2:
                _log.warning("%d bytes of 16-bit samples: the last byte is left out", len(data))
            data = np.frombuffer(data, "<i2", len(data) // 2)
        return int(self._recognizer.accept(data))

    def Result(self) -> str:
        """JSON of the utterance, which is over then."""
        if not self._recognizer.running:
            return self._empty()
        return self._result(self._recognizer.end_utterance())

    def FinalResult(self) -> str:
        """JSON of the utterance up to the end of the signal."""
        if not self._recognizer.running:
            return self._empty()
        return self._result(self._recognizer.finish())

    def PartialResult(self) -> str:
        """JSON of what there is of the utterance."""
        recognizer = self._recognizer
        if not recognizer.running:
            return self._empty()
        if not self._partial_words:
            return _json({"partial": recognizer.partial_text()})
        words = recognizer.so_far().words()
        result: dict[str, Any] = {"partial": _text(words)}
        if words:
            result["partial_result"] = [_word(word) for word in words]
        return _json(result)

    def SrtResult(self, stream: BinaryIO, words_per_line: int = 7) -> str:
        """Subtitles of all that a stream of 16-bit samples holds; wants `SetWords(True)`.

        Raises:
            OpscopeError: `words_per_line` is below 1, or words are not listed.
        """
        if words_per_line < 1:
            raise OpscopeError(f"words_per_line={words_per_line}: want 1 at least")
        if not self._words or self._alternatives:
            raise OpscopeError("SrtResult wants SetWords(True), without alternatives")
        results: list[str] = []
        while data := stream.read(_READ):
            if self.AcceptWaveform(data):
                results.append(self.Result())
        results.append(self.FinalResult())
        lines: list[str] = []
        for result in results:
            words = json.loads(result).get("result", [])
            for at in range(0, len(words), words_per_line):
                line = words[at : at + words_per_line]
                text = " ".join(word["word"] for word in line)
                period = f"{_clock(line[0]['start'])} --> {_clock(line[-1]['end'])}"
                lines.append(f"{len(lines) + 1}\n{period}\n{text}\n\n")
        return "".join(lines)

    def Reset(self) -> None:
        """Drop the utterance."""
        self._recognizer.reset()

    def _empty(self) -> str:
        if self._alternatives and self._nlsml:
            return _NO_INPUT
        if self._alternatives:
            return _json({"alternatives": [{"text": "", "confidence": 1.0}]})
        return _json({"text": ""})

    def _result(self, utterance: Utterance) -> str:
        if not utterance.frames:
            return self._empty()
        if not self._alternatives:
            words: Sequence[Word] = (
                utterance.words_with_phones() if self._phones else utterance.words()
            )
            return _json(self._entry(words) | {"text": _text(words)} | _speaker(utterance))
        if self._nlsml:
            return _nlsml(utterance.alternatives(self._alternatives))
        return _json(
            {
                "alternatives": [
                    {
                        "confidence": round(each.log_likelihood, _DIGITS),
                        **self._entry(each.words),
                        "text": each.text,
                    }
                    for each in utterance.alternatives(self._alternatives)
                ],
                **_speaker(utterance),
            }
        )

    def _entry(self, words: Sequence[Word]) -> dict[str, Any]:
        return {"result": [_word(word) for word in words]} if self._words and words else {}


def _speaker(utterance: Utterance) -> dict[str, Any]:
    speaker = utterance.speaker
    if speaker is None:
        return {}
    values = [round(value, _DIGITS) for value in speaker.values.tolist()]
    return {"spk": values, "spk_frames": speaker.frames}


def _nlsml(alternatives: list[Alternative]) -> str:
    """Alternatives as XML; signs of XML in words are escaped, which Vosk leaves."""
    lines = ['<?xml version="1.0"?>', '<result grammar="default">']
    for each in alternatives:
        text = escape(each.text)
        lines += [
            f'<interpretation grammar="default" confidence="{each.log_likelihood:.6g}">',
            f'<input mode="speech">{text}</input>',
            f"<instance>{text}</instance>",
            "</interpretation>",
        ]
    return "\n".join([*lines, "</result>"]) + "\n"


def _clock(seconds: float) -> str:
    """A time in subtitles, thousandths cut off as Vosk does it."""
    whole = round(seconds * 1_000_000) // 1000
    minutes, rest = divmod(whole, 60_000)
    return f"{minutes // 60:02}:{minutes % 60:02}:{rest // 1000:02},{rest % 1000:03}"


def _word(word: Word) -> dict[str, Any]:
    known = {} if word.confidence is None else {"conf": round(word.confidence, _DIGITS)}
    start, end = round(word.start, _DIGITS), round(word.end, _DIGITS)
    result = {**known, "end": end, "start": start, "word": word.text}
    if isinstance(word, SpelledWord):
        result["phone_label"] = [phone.text for phone in word.phones]
        result["phone_start"] = [round(phone.start, _DIGITS) for phone in word.phones]
        result["phone_end"] = [round(phone.end, _DIGITS) for phone in word.phones]
    return result


def _text(words: Sequence[Word]) -> str:
    return " ".join(word.text for word in words if word.text != SILENCE)


def _json(value: dict[str, Any]) -> str:
    return json.dumps(value, ensure_ascii=False, indent=2)


def _phrases(grammar: str) -> list[str]:
    """The phrases in a JSON list.

    Raises:
        OpscopeError: it is something else.
    """
    if not isinstance(grammar, str):
        raise TypeError(f"a grammar is a text, a JSON list of phrases, not {grammar!r}")
    try:
        phrases = json.loads(grammar)
    except (ValueError, RecursionError) as error:
        raise OpscopeError(f"the grammar is no JSON list of phrases: {error}") from None
    if (
        not isinstance(phrases, list)
        or not all(isinstance(each, str) for each in phrases)
        or not phrases
    ):
        raise OpscopeError(f"the grammar is no JSON list of phrases: {grammar[:60]!r}")
    return phrases
