"""What workers do for clients: recordings over HTTP, and the sound of home assistants.

A task is an object of a worker. Its methods take texts, numbers and bytes, and return values that
JSON has: a worker may be another process than the server. Streams are `Session`.
"""

from __future__ import annotations

import numpy as np

from ..audio.read import audio_of
from ..recognize.formats import FORMATS
from ..recognize.transcript import AnyModel, Spoken, Transcript, listener_of
from .options import SessionOptions

_PIECE = 0.5  # seconds of a recording that one piece of work takes
_NAME = "recording"


class Recording:
    """A recording, recognized piece by piece, so that streams get their turns between.

    Args:
        model: that recognizes. options: see `SessionOptions`.
        grammar, alternatives, phones: see `transcribe`.
    """

    def __init__(
        self,
        model: AnyModel,
        options: SessionOptions,
        *,
        grammar: list[str] | None = None,
        alternatives: int = 0,
        phones: bool = False,
    ) -> None:
        self._model = model
        self._speakers = options.speakers
        self._asked = {"grammar": grammar, "alternatives": alternatives, "phones": phones}
        self._samples = np.empty(0, np.float32)
        self._utterances: list[Spoken] = []
        self.held = 0.0  # see `TASKS`

    def decode(self, data: bytes) -> float:
        """The seconds of a recording, from the bytes of its file.

        Raises:
            FormatError: see `audio_of`.
        """
        audio = audio_of(data, _NAME)
        self._rate, self._duration = audio.rate, audio.duration
        self._samples = audio.channel(-1, _NAME)
        return audio.duration

    def begin(self) -> None:
        """Get ready to listen.

        Raises:
            OpscopeError: see `listener_of`.
        """
        self._listener = listener_of(
            self._model, self._rate, speakers=self._speakers, **self._asked
        )

    def advance(self) -> bool:
        """Recognize the next piece; False: it was the last one."""
        step = max(int(_PIECE * self._rate), 1)
        piece, self._samples = self._samples[:step], self._samples[step:]
        self._utterances += self._listener.accept(piece)
        self.held = self._listener.held
        if len(self._samples):
            return True
        self._utterances += self._listener.finish()
        return False

    def written(self, form: str) -> str:
        """The transcript in a format of `FORMATS`."""
        return FORMATS[form](Transcript(_NAME, self._duration, self._utterances))


class Sound:
    """The sound of a home assistant, whose words come at its end.

    Args:
        model: that recognizes. options: see `SessionOptions`.
        rate: of the samples, in Hz. channels: of which the first one counts.
    """

    def __init__(
        self, model: AnyModel, options: SessionOptions, *, rate: int, channels: int
    ) -> None:
        self._model, self._rate, self._channels = model, float(rate), channels
        self._texts: list[str] = []
        self._rest = b""
        self.held = 0.0  # see `TASKS`

    def begin(self) -> None:
        """Get ready to listen.

        Raises:
            OpscopeError: see `listener_of`.
        """
        self._listener = listener_of(self._model, self._rate)

    def take(self, data: bytes) -> None:
        """Take samples of 16 bits."""
        data = self._rest + data
        size = 2 * self._channels
        whole = len(data) // size * size
        self._rest = data[whole:]
        samples = np.frombuffer(data[:whole], "<i2").reshape(-1, self._channels)[:, 0]
        self._texts += [each.text for each in self._listener.accept(samples)]
        self.held = self._listener.held

    def finish(self) -> str:
        """All words."""
        self._texts += [each.text for each in self._listener.finish()]
        return " ".join(self._texts)
