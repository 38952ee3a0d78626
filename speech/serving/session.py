"""A stream of Vosk's WebSocket protocol: messages come, each is answered; no network is in here.

Source: `websocket/asr_server.py` of vosk-server.
"""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass, replace
from typing import Any

from ...framework.base.errors import OpscopeError
from ..recognize.kaldi_recognizer import KaldiRecognizer
from ..recognize.transcript import AnyModel
from .options import MOST_ALTERNATIVES, SessionOptions

_log = logging.getLogger(__name__)
_RATES = 1000.0, 1e6
"""In Hz: of a lower rate, a few bytes are hours of sound."""
_SHOWN = 60  # characters of a message that an error quotes


@dataclass(frozen=True)
class Reply:
    """The answer to a message.

    Attributes:
        text: JSON; None: nothing is answered. is_last: the stream is over. reason: why, where its
            client did not end it. is_error: the text says what is wrong with the message.
        seconds: of sound that the message had.
    """

    text: str | None
    is_last: bool = False
    reason: str = ""
    is_error: bool = False
    seconds: float = 0.0


class Session:
    """One stream, whose messages come one after the other.

    Args:
        model: that recognizes. options: see `SessionOptions`.
        partial_results: whether samples are answered that end no utterance.
    """

    held = 0.0  # see `TASKS`

    def __init__(
        self, model: AnyModel, options: SessionOptions, *, partial_results: bool = True
    ) -> None:
        self._model = model
        self._partial_results = partial_results
        self._limit = options.seconds
        self._speakers = options.speakers
        self._rate = options.rate
        self._words = options.words
        self._alternatives = options.alternatives
        self._phrases: list[str] = []
        self._recognizer: KaldiRecognizer | None = None
        self._rest = b""  # half a sample
        self._seconds = 0.0

    def take(self, message: str | bytes) -> Reply:
        """The answer to a message: JSON text, or 16-bit samples.

        What is wrong with a message is answered as `{"error": "..."}`, and changes nothing else.
        """
        before = self._seconds
        try:
            if isinstance(message, str):
                reply = self._take_text(message)
            else:
                reply = self._take_samples(message)
        except OpscopeError as error:
            reply = Reply(_error(str(error)), is_error=True)
        return replace(reply, seconds=self._seconds - before)

    def end(self) -> Reply:
        """The final result."""
        return Reply(self._heard().FinalResult(), is_last=True)

    # Inside

    def _take_text(self, text: str) -> Reply:
        said = _said(text)
        if "config" in said:
            self._configure(said["config"])
            return Reply(None)
        if "eof" in said:
            return self.end()
        raise OpscopeError(
            'a text message is {"config": {...}} or {"eof": 1}, and samples are binary messages;'
            f" this is {_quoted(text)}"
        )

    def _configure(self, config: Any) -> None:
        """Take a config; where one of its values is wrong, none of them."""
        if not isinstance(config, dict):
            raise OpscopeError(f"config: want an object, not {_quoted(config)}")
        rate, phrases = config.get("sample_rate", self._rate), config.get("phrase_list")
        alternatives = config.get("max_alternatives", self._alternatives)
        try:
            rate, alternatives = float(rate), int(alternatives)
        except (TypeError, ValueError, OverflowError):
            raise OpscopeError(
                f"config: sample_rate {_quoted(rate)} and max_alternatives"
                f" {_quoted(alternatives)} must be numbers"
            ) from None
        check_rate(rate)
        if not 0 <= alternatives <= MOST_ALTERNATIVES:
            raise OpscopeError(
                f"config: max_alternatives {alternatives}: want 0 to {MOST_ALTERNATIVES}"
            )
        if phrases is not None and not (
            isinstance(phrases, list) and all(isinstance(each, str) for each in phrases)
        ):
            raise OpscopeError(f"config: phrase_list: want a list of texts, not {_quoted(phrases)}")
        if self._recognizer is not None:
            _log.warning("a config that comes after samples has no effect, as in vosk-server")
            return
        self._rate, self._alternatives = rate, alternatives
        self._words = bool(config.get("words", self._words))
        self._phrases = self._phrases if phrases is None else phrases

    def _take_samples(self, data: bytes) -> Reply:
        recognizer = self._heard()
        data = self._rest + data
        whole = len(data) // 2 * 2
        self._rest = data[whole:]
        before = self._seconds
        self._seconds += whole / 2 / self._rate
        is_long = self._seconds > self._limit
        if is_long:
            whole = 2 * int((self._limit - before) * self._rate)
        try:
            over = recognizer.AcceptWaveform(data[:whole])
            if is_long:
                reason = f"more than {self._limit:g} seconds of sound"
                return Reply(recognizer.FinalResult(), is_last=True, reason=reason)
            if not over and not self._partial_results:
                return Reply(None)
            return Reply(recognizer.Result() if over else recognizer.PartialResult())
        except OpscopeError:
            recognizer.Reset()  # where it stands is not known
            raise

    def _heard(self) -> KaldiRecognizer:
        """The recognizer, made when it is wanted first."""
        if self._recognizer is None:
            grammar = json.dumps(self._phrases, ensure_ascii=False) if self._phrases else None
            recognizer = KaldiRecognizer(self._model, self._rate, grammar)
            recognizer.SetWords(self._words)
            recognizer.SetMaxAlternatives(self._alternatives)
            if self._speakers is not None:
                recognizer.SetSpkModel(self._speakers)
            self._recognizer = recognizer
        return self._recognizer


def is_end(text: str) -> bool:
    """Whether a text message ends its stream."""
    said = _said(text) if '"eof"' in text else {}  # configs may be long
    return "eof" in said and "config" not in said


def _said(text: str) -> dict[str, Any]:
    """What a text message has; nothing, where it is no JSON object."""
    try:
        said = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return said if isinstance(said, dict) else {}


def check_rate(rate: float) -> None:
    """Refuse a sampling rate of a client. Raises OpscopeError: nothing speaks at this rate."""
    least, most = _RATES
    if not least <= rate <= most:
        raise OpscopeError(f"a sampling rate of {rate:g}: want {least:g} to {most:g} Hz")


def _quoted(value: Any) -> str:
    shown = repr(value)
    return shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]}..."


def _error(message: str) -> str:
    return json.dumps({"error": message}, ensure_ascii=False)
