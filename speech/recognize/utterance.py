"""What was said in an utterance: words with times and confidences, alternatives, phones.

Source: Vosk's `recognizer.cc`.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from ...kaldi.lattices.lattice import CompactLattice, top_sorted
from ...kaldi.lattices.operations import with_one_end, without_epsilons
from ...kaldi.lattices.transition_ids import TransitionIds
from ..fst.words import Words
from ..lattice.bayes_risk import minimum_bayes_risk
from ..lattice.best_paths import n_best
from ..lattice.incremental import IncrementalLattice
from ..lattice.times import single_path, timed_words
from ..lattice.word_align import word_aligned
from ..lattice.word_boundary import WordBoundaries
from ..search.decoder import Decoder
from .rescoring import Rescoring
from .speaker_model import SpeakerVector

_log = logging.getLogger(__name__)
_GRAPH_SCALE = 0.9  # Vosk's

SILENCE = "<eps>"
"""The text of a silence where it is listed among words."""


class UtteranceParts(Protocol):
    """What is known of a model's words and phones; boundaries None: not where words begin."""

    @property
    def frame_shift(self) -> float: ...

    @property
    def starts(self) -> Sequence[int]: ...

    @property
    def words(self) -> Words: ...

    @property
    def transitions(self) -> TransitionIds: ...

    @property
    def boundaries(self) -> WordBoundaries | None: ...

    def phone_name(self, phone: int) -> str:
        """The name of a phone."""
        ...


@dataclass(frozen=True)
class Phone:
    """A phone, its begin and end in seconds from the beginning of the signal."""

    text: str
    start: float
    end: float


@dataclass(frozen=True)
class Word:
    """A word, its begin and end in seconds from the beginning of the signal.

    Attributes:
        confidence: its probability, from minimum Bayes risk decoding; None: of an alternative.
    """

    text: str
    start: float
    end: float
    confidence: float | None = None


@dataclass(frozen=True)
class SpelledWord(Word):
    """A word, or a silence, with the phones that it was spoken with."""

    phones: tuple[Phone, ...] = ()


@dataclass(frozen=True)
class Alternative:
    """One of the best paths.

    Attributes:
        words: their confidences are None.
        log_likelihood: of the path; graph costs count 0.9 (in the mode "kaldi", 1.0).
    """

    words: list[Word]
    log_likelihood: float

    @property
    def text(self) -> str:
        """The words, with spaces between them."""
        return " ".join(word.text for word in self.words)


class Utterance:
    """An utterance that is over, or what there is of one so far.

    Args:
        model: of the recognizer. lattice: determinized, with costs as the search had them; None:
            there was no frame.
        ids: transition-ids of the best path. start: seconds before the first frame.
        unfinished: the utterance continues, so its last word may be a part of one.
        graph_scale: factor of graph costs, in what counts for words and alternatives.
        speaker: the vector of its speaker.

    Attributes:
        start, end: in seconds. speaker: None where it was not asked for, or too little was said.
    """

    def __init__(
        self,
        model: UtteranceParts,
        lattice: CompactLattice | None,
        ids: Sequence[int],
        start: float,
        *,
        unfinished: bool = False,
        graph_scale: float = _GRAPH_SCALE,
        speaker: SpeakerVector | None = None,
    ) -> None:
        self._model = model
        self._lattice = lattice
        self._ids = ids
        self._unfinished = unfinished
        self._graph_scale = graph_scale
        self.speaker = speaker
        self.start = start
        self.end = start + len(ids) * model.frame_shift

    @classmethod
    def of(
        cls,
        model: UtteranceParts,
        decoder: Decoder,
        lattice: IncrementalLattice,
        rescoring: Rescoring | None,
        start: float,
        speaker: SpeakerVector | None = None,
    ) -> Utterance:
        """What a decoder has heard; once it is finalized, costs of ending count, and the result is
        rescored."""
        if not decoder.frames_decoded:
            return cls(model, None, [], start)
        final = decoder.finalized
        ids = decoder.best_path(use_final=final).transition_ids.tolist()
        heard = lattice.finished() if final else lattice.partial()
        if final and heard is not None and rescoring is not None:
            heard = rescoring.rescored(heard)
            if heard is None:
                _log.warning("the language models to rescore with know nothing of what was heard")
        return cls(model, heard, ids, start, unfinished=not final, speaker=speaker)

    @property
    def frames(self) -> int:
        """Frames of the decoder."""
        return len(self._ids)

    def lattice(self) -> CompactLattice | None:
        """The determinized lattice, with costs of the search, or of the models that it was rescored
        with; None: there was no frame, or these models know none of its paths."""
        return self._lattice

    def words(self) -> list[Word]:
        """The words with the least expected number of errors."""
        lattice = self.lattice()
        if lattice is None:
            return []
        if not self._unfinished:  # Vosk leaves the costs of partial results as they are
            lattice = lattice.scaled(self._graph_scale)
        risk = minimum_bayes_risk(self._aligned(lattice))
        return [
            Word(self._text(each.label), *self._times(each.begin, each.end), each.confidence)
            for each in risk.words
        ]

    def words_with_phones(self) -> list[SpelledWord]:
        """The words of the best path with their phones, and its silences, whose text is `SILENCE`.

        The confidence of a silence is the probability that no word stands there.
        """
        lattice = self.lattice()
        if lattice is None:
            return []
        lattice = lattice.scaled(self._graph_scale)
        arcs = single_path(self._aligned(n_best(lattice, 1)[0]))
        # Its words stand at the odd places, what is between them at the even ones.
        risk = minimum_bayes_risk(
            self._aligned(lattice),
            decode=False,
            keep_silence=True,
            words=[arc.label for arc in arcs],
        )
        phones = self._phones([number for arc in arcs for number in arc.weight.ids])
        spelled: list[SpelledWord] = []
        place = time = taken = 0
        for label, weight, _ in arcs:
            end = time + len(weight.ids)
            until = taken
            while until < len(phones) and phones[until][1] < end:
                until += 1
            if label or end > time:
                place += bool(label)
                confidence = risk.words[2 * place - 1 if label else 2 * place].confidence
                named = tuple(self._phone(*each) for each in phones[taken:until])
                text = self._text(label) if label else SILENCE
                spelled.append(SpelledWord(text, *self._times(time, end), confidence, named))
            time, taken = end, until
        return spelled

    def alternatives(self, count: int) -> list[Alternative]:
        """The best paths, each with other words, the best one first."""
        lattice = self.lattice()
        if lattice is None:
            return []
        return [
            self._alternative(path) for path in n_best(lattice.scaled(self._graph_scale), count)
        ]

    def phones(self) -> list[Phone]:
        """The phones of the best path, silence included."""
        return [self._phone(*each) for each in self._phones(self._ids)]

    def _phones(self, ids: Sequence[int]) -> list[tuple[int, int, int]]:
        """The phones that transition-ids go through, each with its first frame and its end."""
        starts = self._model.starts
        begins = [(starts[number], frame) for frame, number in enumerate(ids) if starts[number]]
        ends = [frame for _, frame in begins[1:]] + [len(ids)]
        return [(phone, begin, end) for (phone, begin), end in zip(begins, ends, strict=True)]

    def _phone(self, phone: int, begin: int, end: int) -> Phone:
        return Phone(self._model.phone_name(phone), *self._times(begin, end))

    def _alternative(self, path: CompactLattice) -> Alternative:
        words, cost = timed_words(self._aligned(path))
        return Alternative(
            [Word(self._text(each.label), *self._times(each.begin, each.end)) for each in words],
            -float(np.float32(cost)),
        )

    def _aligned(self, lattice: CompactLattice) -> CompactLattice:
        model = self._model
        if model.boundaries is None:
            return top_sorted(with_one_end(without_epsilons(lattice)))
        known = model.transitions, model.boundaries
        return word_aligned(lattice, *known, _log.info, unfinished=self._unfinished)[0]

    def _text(self, label: int) -> str:
        return self._model.words[label]

    def _times(self, begin: float, end: float) -> tuple[float, float]:
        shift = self._model.frame_shift
        return self.start + begin * shift, self.start + end * shift
