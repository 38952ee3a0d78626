"""A recognizer of a signal that comes block by block: utterances, their ends, partial results.

Source: Vosk's `recognizer.cc`.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

import numpy as np

from ...framework.base.errors import OpscopeError
from ..fst.grammar import grammar_fst, phrase_labels
from ..fst.graph import Graph, LookaheadGraph
from ..ivector.silence import SilenceWeights
from ..lattice.incremental import IncrementalLattice
from ..search.decoder import Decoder
from .endpoint import EndpointOptions, endpoint_detected
from .front_end import FrontEnd
from .model import Model
from .speaker_model import SpeakerStream, SpeakerVector, SpkModel
from .traced_silence import TracedSilence
from .utterance import Utterance

_log = logging.getLogger(__name__)
_SILENCE_WEIGHT = 1e-3  # Vosk's
_BLOCK = 0.2  # seconds that Vosk takes at once
_MOST_FRAMES = 20000  # of a front end, after which Vosk begins with a new one
MODES = ("vosk", "steady")


class Recognizer:
    """Recognizes a signal; see `KaldiRecognizer` for the interface that Vosk has.

    Args:
        model: shared by any number of recognizers. rate: of the samples, in Hz.
        grammar: phrases that are the only ones to be recognized; None: whatever the model knows.
        mode: "vosk": each call of `accept` is cut into blocks of 0.2 s of its own, and the end of
            an utterance is looked for after it, so that words depend on how the signal is cut.
            "steady": samples are gathered to blocks of 0.2 s, and the end is looked for after
            each: the same signal gives the same words.
        decoder: of another graph, in place of the model's.
        speakers: tells utterances' speakers; None: nothing does.

    Raises:
        OpscopeError: the sampling rate does not go with a model, or the mode is none.
    """

    def __init__(
        self,
        model: Model,
        rate: float,
        grammar: Sequence[str] | None = None,
        *,
        mode: str = "vosk",
        decoder: Decoder | None = None,
        speakers: SpkModel | None = None,
    ) -> None:
        if mode == "kaldi":
            raise OpscopeError(
                "the mode 'kaldi' is for whole recordings, see transcribe; a recognizer has"
                f" {', '.join(MODES)}"
            )
        if mode not in MODES:
            raise OpscopeError(f"mode {mode!r} of a recognizer: want one of {', '.join(MODES)}")
        self.model = model
        self.rate = float(rate)
        self.mode = mode
        self.endpoint: EndpointOptions = self.configured_endpoint
        self._step = max(int(self.rate * _BLOCK), 1)
        self._samples_before = self._samples = 0  # of earlier front ends, of this one
        self.running = False
        self._front: FrontEnd | None = None
        self._speakers = speakers
        self._speaking: SpeakerStream | None = None
        self._take(self._searching(grammar) if decoder is None else decoder)
        self._rescoring = model.rescoring

    @property
    def configured_endpoint(self) -> EndpointOptions:
        """What ends utterances by the model's config."""
        return self.model.config.endpoint

    @property
    def frames_decoded(self) -> int:
        """Frames of the utterance so far."""
        return self._decoder.frames_decoded

    def set_grammar(self, grammar: Sequence[str] | None) -> None:
        """Recognize only these phrases; None: whatever the model knows. A new signal begins.

        Raises:
            OpscopeError: an utterance is under way.
        """
        if self.running:
            raise OpscopeError("a grammar cannot be set while an utterance is under way")
        self._take(self._searching(grammar))
        self._rescoring = self.model.rescoring

    def set_speakers(self, speakers: SpkModel | None) -> None:
        """Tell utterances' speakers by this model; None: not at all. A new signal begins.

        Raises:
            OpscopeError: an utterance is under way, the sampling rate does not go with the model,
                or it has other frames than the recognizer's.
        """
        if self.running:
            raise OpscopeError("a speaker model cannot be set while an utterance is under way")
        self._speaker_stream(speakers)  # what is wrong is refused before anything changes
        self._speakers = speakers
        self._decoder.reset()
        self._take(self._decoder)

    def accept(self, samples: np.ndarray) -> bool:
        """Take samples, [count], on the scale of 16-bit integers.

        Returns:
            Whether the utterance is over: `end_utterance` should be called. In the mode "steady"
            samples after the end are kept for the next utterance.

        Raises:
            ShapeError: there are several channels. OpscopeError: one is NaN or infinite.
        """
        self._begin()
        samples = np.asarray(samples)
        if self.mode == "steady":
            return self._steady(samples)
        for begin in range(0, len(samples), self._step):
            self._block(samples[begin : begin + self._step])
        return self._is_over()

    def end_utterance(self) -> Utterance:
        """The utterance up to now; the next samples belong to the next one."""
        utterance = self._ended()
        self.running = False
        return utterance

    def finish(self) -> Utterance:
        """The utterance up to the end of the signal; the next samples belong to another signal."""
        assert self._front is not None
        if len(self._rest):
            self._block(self._rest)
            self._rest = self._rest[:0]
        self._front.finish()
        self._advance()
        utterance = self._ended()
        self.running = False
        self._front = None
        return utterance

    def so_far(self) -> Utterance:
        """The utterance so far."""
        return self._utterance()

    def partial_text(self) -> str:
        """The words of the best path so far."""
        if not self.frames_decoded:
            return ""
        labels = self._decoder.traced().words.tolist()
        return " ".join(self.model.words[label] for label in labels)

    def reset(self) -> None:
        """Drop the utterance; the next samples belong to a new one."""
        if self.running:
            self._decoder.finalize()
        self._rest = self._rest[:0]
        self.running = False

    # Inside

    def _take(self, decoder: Decoder) -> None:
        """Search with this decoder from now on."""
        self._decoder = decoder
        config = self.model.config
        self._lattice = IncrementalLattice(
            self._decoder, self.model.starts, config.lattice, config.chunks, _log.warning
        )
        self._start_front()
        self._rest = np.empty(0, np.float32)
        self._start_utterance()
        self._fresh = True

    def _searching(self, grammar: Sequence[str] | None) -> Decoder:
        return Decoder(
            graph_of(self.model, grammar),
            self.model.pdfs,
            self.model.config.search,
            outputs=self.model.network.output_dim,
        )

    def _start_front(self) -> None:
        self._samples_before += self._samples
        self._front = FrontEnd(self.model, self.rate, cmvn=self.model.cmvn())
        self._speaking = self._speaker_stream(self._speakers)
        self._samples = 0
        self._offset = 0

    def _start_utterance(self) -> None:
        config = self.model.config
        self._weights = TracedSilence(
            SilenceWeights(
                self.model.phones,
                config.endpoint.silence_phones,
                _SILENCE_WEIGHT,
                subsampling=config.network.frame_subsampling_factor,
            )
        )

    def _begin(self) -> None:
        """Get ready for samples: after an utterance another one begins."""
        if self.running:
            return
        if not self._fresh:
            self._offset += self.frames_decoded
            if self._front is None or self._offset > _MOST_FRAMES:
                self._start_front()
            if self._speaking is not None:
                self._speaking.forget(self._offset * self._factor)
            self._start_utterance()
            self._decoder.reset()
            self._lattice.reset()
        self._fresh = False
        self.running = True

    @property
    def _start_time(self) -> float:
        return self._samples_before / self.rate + self._offset * self.model.frame_shift

    def _steady(self, samples: np.ndarray) -> bool:
        rest = np.concatenate((self._rest, samples))
        over = False
        begin = 0
        while not over and begin + self._step <= len(rest):
            self._block(rest[begin : begin + self._step])
            begin += self._step
            over = self._is_over()
        self._rest = rest[begin:]
        return over

    def _block(self, samples: np.ndarray) -> None:
        assert self._front is not None
        self._front.accept(samples)
        if self._speaking is not None:
            self._speaking.accept(samples)
        self._samples += len(samples)
        self._advance()

    def _advance(self) -> None:
        """Follow the frames that can be computed now."""
        front = self._front
        assert front is not None
        if front.takes_weights and self.model.config.endpoint.silence_phones:
            self._weights.weigh(front, self._decoder, self._offset * self._factor)
        loglikes = front.loglikes()
        if len(loglikes):
            self._decoder.accept(loglikes)
            self._lattice.update()

    def _is_over(self) -> bool:
        return endpoint_detected(
            self._decoder, self.model.phones, self.endpoint, self.model.frame_shift
        )

    def _ended(self) -> Utterance:
        if self.frames_decoded:
            self._decoder.finalize()
        return self._utterance(self._speaker())

    def _utterance(self, speaker: SpeakerVector | None = None) -> Utterance:
        # Not the model's: `add_words` may have removed it since this search began.
        heard = self._decoder, self._lattice, self._rescoring
        return Utterance.of(self.model, *heard, self._start_time, speaker)

    def _speaker(self) -> SpeakerVector | None:
        """The vector of the speaker of an utterance that is over."""
        front = self._front
        known = self.model.config.endpoint.silence_phones
        if self._speaking is None or front is None or not (known and self.frames_decoded):
            return None
        spoken = self._weights.spoken(front, self._decoder, self._offset * self._factor)
        return self._speaking.vector(spoken, self._factor)

    @property
    def _factor(self) -> int:
        return self.model.config.network.frame_subsampling_factor

    def _speaker_stream(self, speakers: SpkModel | None) -> SpeakerStream | None:
        shift = self.model.features.options.frame_shift
        return None if speakers is None else speakers.stream(self.rate, shift)


def graph_of(model: Model, grammar: Sequence[str] | None) -> Graph:
    """The decoding graph of a model, or of phrases that are the only ones to be recognized."""
    graph, words = model.graph, model.words
    if grammar is None:
        return graph
    if not isinstance(graph, LookaheadGraph):
        _log.warning(
            "%s: the graph is HCLG.fst, in which no grammar can be put: it is left out",
            model.path,
        )
        return graph
    return graph.with_grammar(grammar_fst(phrase_labels(grammar, words)))
