"""What CTC models hear: a recording, which is one utterance, and a signal that comes in blocks."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ...framework.base.errors import OpscopeError
from ...kaldi.lattices.determinize import DeterminiseOptions
from ...kaldi.lattices.phone_determinize import determinized
from ...kaldi.lattices.transition_ids import TransitionIds
from ..ctc.alignments import summed
from ..ctc.graph import CtcSearch
from ..ctc.model import CtcModel
from ..features.frames import checked_samples
from ..fst.words import Words
from ..lattice.word_boundary import WordBoundaries
from ..search.decoder import Decoder
from ..search.raw_lattice import raw_lattice
from .endpoint import EndpointOptions, endpoint_detected
from .speaker_model import SpkModel
from .utterance import Alternative, Utterance, Word

_log = logging.getLogger(__name__)
_BLANK = 1  # the phone of the blank, which is silence
_STEP = 0.5  # seconds of sound from one run of the network to the next, at least
_SHARE = 0.1  # of the utterance so far that is new, at least, when the network runs again
_NOTHING = np.empty(0, np.float32)


@dataclass(frozen=True)
class _Parts:
    """See `UtteranceParts`; frames share a recording's time evenly."""

    model: CtcModel
    searching: CtcSearch
    frame_shift: float

    @property
    def words(self) -> Words:
        return self.searching.lexicon.words

    @property
    def starts(self) -> Sequence[int]:
        return self.searching.lexicon.topology.starts

    @property
    def transitions(self) -> TransitionIds:
        return self.searching.lexicon.topology.transitions

    @property
    def boundaries(self) -> WordBoundaries:
        return self.searching.lexicon.topology.boundaries

    def phone_name(self, phone: int) -> str:
        return self.model.tokens.texts[self.searching.lexicon.topology.token[phone]]


class _Heard:
    """Samples, as a network and a search have heard them.

    Args:
        model: see `CtcModel`. searching: its words. samples: [count], on the scale of 16-bit
            integers. rate: in Hz.

    Attributes:
        decoder: that has followed all frames; None: there are none.
        frame_shift: seconds from one frame to the next.

    Raises:
        ShapeError, OpscopeError: see `Acoustics.log_probabilities`.
    """

    def __init__(
        self, model: CtcModel, searching: CtcSearch, samples: np.ndarray, rate: float
    ) -> None:
        self._model = model
        self._searching = searching
        self._loglikes = model.acoustics.log_probabilities(samples, rate)
        frames = len(self._loglikes)
        self.frame_shift = len(samples) / rate / max(frames, 1)
        self.decoder: Decoder | None = None
        if frames:
            pdfs = np.array(searching.lexicon.topology.transitions.pdf)
            outputs = len(model.tokens.texts)
            self.decoder = Decoder(searching.graph, pdfs, model.search, outputs=outputs)
            self.decoder.accept(self._loglikes)

    def is_over(self, options: EndpointOptions) -> bool:
        """Whether an utterance is over by its rules."""
        if self.decoder is None:
            return False
        phones = np.array(self._searching.lexicon.topology.transitions.phone)
        return endpoint_detected(self.decoder, phones, options, self.frame_shift)

    def text(self) -> str:
        """The words of the best path."""
        if self.decoder is None:
            return ""
        known = self._searching.lexicon
        texts = [known.words[label] for label in self.decoder.traced().words.tolist()]
        if known.entries is None:
            texts = [text for _, _, text in self._model.tokens.joined(texts)]
        return " ".join(texts)

    def utterance(self, start: float) -> Utterance:
        """The utterance that ends with the samples, and begins so many seconds after the signal."""
        model, known = self._model, self._searching.lexicon
        parts = _Parts(model, self._searching, self.frame_shift)
        kind = _JoinedUtterance if known.entries is None else Utterance
        if self.decoder is None:
            return kind(parts, None, [], start)
        self.decoder.finalize()
        ids = self.decoder.best_path().transition_ids.tolist()
        beam, options = model.search.lattice_beam, DeterminiseOptions()
        result = determinized(raw_lattice(self.decoder), beam, parts.starts, options, _log.warning)
        lattice = result.lattice
        if model.options.summed:
            lattice = summed(lattice, self._loglikes, known.topology, model.options.summed)
        return kind(parts, lattice, ids, start, graph_scale=1.0)


def ctc_utterance(
    model: CtcModel, samples: np.ndarray, rate: float, phrases: Sequence[str] | None = None
) -> Utterance:
    """A recording as one utterance.

    Args:
        model: see `CtcModel`. samples: [count], on the scale of 16-bit integers. rate: in Hz.
        phrases: that are the only ones to be recognized.

    Raises:
        ShapeError, OpscopeError: see `Acoustics.log_probabilities`.
    """
    return _Heard(model, model.search_of(phrases), samples, rate).utterance(0.0)


class CtcRecognizer:
    """Recognizes a signal by a CTC model, as `Recognizer` does by a model of Kaldi.

    The network hears an utterance from its begin, again and again: after half a second of sound, or
    a tenth of the utterance if that is longer. Then there is another partial text, and Kaldi's
    rules say by the blanks at the end whether it is over.

    Args:
        model: see `CtcModel`. rate: of the samples, in Hz.
        grammar: phrases that are the only ones to be recognized.

    Attributes:
        endpoint: the rules. running: whether an utterance is under way.
    """

    def __init__(self, model: CtcModel, rate: float, grammar: Sequence[str] | None = None) -> None:
        self.model = model
        self.rate = float(rate)
        self.endpoint = self.configured_endpoint
        self._step = max(int(self.rate * _STEP), 1)
        self._before = 0  # samples of earlier utterances
        self.running = False
        self._searching = model.search_of(grammar)
        self.reset()

    @property
    def configured_endpoint(self) -> EndpointOptions:
        """The rules of the model."""
        return EndpointOptions((_BLANK,))

    def set_grammar(self, grammar: Sequence[str] | None) -> None:
        """See `Recognizer.set_grammar`."""
        if self.running:
            raise OpscopeError("a grammar cannot be set while an utterance is under way")
        self._searching = self.model.search_of(grammar)

    def set_speakers(self, speakers: SpkModel | None) -> None:
        """Raises OpscopeError: a CTC model hears no speakers."""
        if speakers is not None:
            raise OpscopeError(f"{self.model.path}: a CTC model goes with no model of speakers")

    def accept(self, samples: np.ndarray) -> bool:
        """See `Recognizer.accept`; all samples belong to the utterance."""
        samples = checked_samples(samples)
        self.running = True
        self._samples = np.concatenate((self._samples, samples))
        new = len(self._samples) - self._heard_samples
        if new < max(self._step, _SHARE * len(self._samples)):
            return False
        return self._hear().is_over(self.endpoint)

    def end_utterance(self) -> Utterance:
        """See `Recognizer.end_utterance`."""
        utterance = self.so_far()
        self.reset()
        return utterance

    def finish(self) -> Utterance:
        """See `Recognizer.finish`."""
        return self.end_utterance()

    def so_far(self) -> Utterance:
        """The utterance so far."""
        heard = self._heard
        if heard is None or self._heard_samples < len(self._samples):
            heard = self._hear()
        self._heard = None  # its search is over with the utterance
        return heard.utterance(self._before / self.rate)

    def partial_text(self) -> str:
        """The words of the best path, as far as the network has heard them."""
        return "" if self._heard is None else self._heard.text()

    def reset(self) -> None:
        """Drop the utterance; the next samples belong to a new one."""
        if self.running:
            self._before += len(self._samples)
        self.running = False
        self._samples = _NOTHING
        self._heard: _Heard | None = None
        self._heard_samples = 0

    def _hear(self) -> _Heard:
        self._heard = _Heard(self.model, self._searching, self._samples, self.rate)
        self._heard_samples = len(self._samples)
        return self._heard


class _JoinedUtterance(Utterance):
    """An utterance whose labels are tokens, of which its words are joined."""

    def words(self) -> list[Word]:
        return self._joined(super().words())

    def alternatives(self, count: int) -> list[Alternative]:
        return [
            Alternative(self._joined(each.words), each.log_likelihood)
            for each in super().alternatives(count)
        ]

    def _joined(self, tokens: list[Word]) -> list[Word]:
        """Words of tokens; confidences of a word's tokens are multiplied."""
        assert isinstance(self._model, _Parts)
        joined = self._model.model.tokens.joined([each.text for each in tokens])
        return [_word(text, tokens[begin:end]) for begin, end, text in joined]


def _word(text: str, tokens: list[Word]) -> Word:
    confidences = [each.confidence for each in tokens if each.confidence is not None]
    whole = math.prod(confidences) if confidences else None
    return Word(text, tokens[0].start, tokens[-1].end, whole)
