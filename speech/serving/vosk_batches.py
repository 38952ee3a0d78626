"""Vosk's interface for many streams that are computed together: the same names, on the CPU.

Source: Vosk's `python/vosk/__init__.py`, `src/batch_recognizer.cc`.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections import deque

from ...framework.base.cpu.cores import usable_cores
from ...framework.base.python.cached import new_lock
from ..recognize.kaldi_recognizer import KaldiRecognizer
from ..recognize.model import Model
from .lanes import Lanes


class BatchModel:
    """A model whose recognizers work together: their networks are computed in one run.

    Example:
        model = BatchModel("vosk-model-small-en-us-0.15")
        recognizers = [BatchRecognizer(model, 16000) for _ in files]
        for recognizer, samples in zip(recognizers, files):
            recognizer.AcceptWaveform(samples)
            recognizer.FinishStream()
        model.Wait()
        texts = [recognizer.Result() for recognizer in recognizers]

    Args:
        model_path: see `Model`.

    Raises:
        FormatError, OpscopeError: as `Model`.
    """

    def __init__(self, model_path: str | os.PathLike[str]) -> None:
        self.model = Model(model_path)
        self.lanes = Lanes(self.model.network, cores=usable_cores())
        self._changed = threading.Condition(new_lock())
        self._busy = 0  # recognizers with work
        weakref.finalize(self, self.lanes.close)

    def Wait(self) -> None:
        """Wait until all that recognizers were given is recognized."""
        with self._changed:
            self._changed.wait_for(lambda: not self._busy)

    def count_busy(self, change: int) -> None:
        """Recognizers begin or end to have work."""
        with self._changed:
            self._busy += change
            self._changed.notify_all()


class BatchRecognizer:
    """Recognizes one stream of a `BatchModel`, while its caller does other things.

    Args:
        batch_model: see `BatchModel`. sample_rate: of the samples, in Hz.

    Raises:
        OpscopeError: the sampling rate does not go with the model.
    """

    def __init__(self, batch_model: BatchModel, sample_rate: float) -> None:
        self._model = batch_model
        self._recognizer = KaldiRecognizer(batch_model.model, sample_rate, mode="steady")
        self._recognizer.SetWords(True)
        self._lock = new_lock()
        self._pieces: deque[bytes | None] = deque()  # None: the end of the stream
        self._results: deque[str] = deque()
        self._error: BaseException | None = None

    def AcceptWaveform(self, data: bytes) -> None:
        """Take samples, bytes of 16-bit integers, to be recognized later."""
        self._put(bytes(data))

    def FinishStream(self) -> None:
        """No more samples come: what was heard to the end becomes a result."""
        self._put(None)

    def Result(self) -> str:
        """JSON of the next utterance that is over; "" where there is none yet.

        Raises:
            OpscopeError: samples could not be recognized.
        """
        with self._lock:
            if self._error is not None:
                error, self._error = self._error, None
                raise error
            return self._results.popleft() if self._results else ""

    def GetPendingChunks(self) -> int:
        """How many pieces of samples are not recognized yet."""
        return len(self._pieces)

    # Inside

    def _put(self, piece: bytes | None) -> None:
        with self._lock:
            self._pieces.append(piece)
            if len(self._pieces) > 1:
                return  # the work that is under way takes it
        self._model.count_busy(1)
        self._model.lanes.submit(self._work)

    def _work(self) -> None:
        """Recognize all pieces that there are."""
        more = True
        while more:
            try:
                self._recognize(self._pieces[0])
            except Exception as error:
                self._error = error
            with self._lock:
                self._pieces.popleft()
                more = bool(self._pieces)
        self._model.count_busy(-1)

    def _recognize(self, piece: bytes | None) -> None:
        recognizer = self._recognizer
        over = recognizer.AcceptWaveform(piece or b"")
        while over:
            self._results.append(recognizer.Result())
            over = recognizer.AcceptWaveform(b"")
        if piece is None:
            self._results.append(recognizer.FinalResult())
