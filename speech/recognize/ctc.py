"""Recordings as CTC models recognize them: each is one utterance."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ...kaldi.lattices.determinize import DeterminiseOptions
from ...kaldi.lattices.phone_determinize import determinized
from ...kaldi.lattices.transition_ids import TransitionIds
from ..ctc.alignments import summed
from ..ctc.model import CtcModel
from ..fst.words import Words
from ..lattice.word_boundary import WordBoundaries
from ..search.decoder import Decoder
from ..search.raw_lattice import raw_lattice
from .utterance import Alternative, Utterance, Word

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Parts:
    """See `UtteranceParts`; frames share a recording's time evenly."""

    model: CtcModel
    frame_shift: float
    words: Words
    starts: Sequence[int]
    transitions: TransitionIds
    boundaries: WordBoundaries

    def phone_name(self, phone: int) -> str:
        return self.model.phone_name(phone)


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
    loglikes = model.acoustics.log_probabilities(samples, rate)
    frames = len(loglikes)
    shift = len(samples) / rate / max(frames, 1)
    # Words that another thread adds now only append phones, so an older graph fits them.
    graph = model.graph_of(phrases)
    topology = model.topology
    parts = _Parts(
        model, shift, model.words, topology.starts, topology.transitions, topology.boundaries
    )
    kind = _JoinedUtterance if model.joins_tokens else Utterance
    if not frames:
        return kind(parts, None, [], 0.0)
    decoder = Decoder(graph, model.pdfs, model.search, outputs=len(model.tokens.texts))
    decoder.accept(loglikes)
    decoder.finalize()
    ids = decoder.best_path().transition_ids.tolist()
    beam, options = model.search.lattice_beam, DeterminiseOptions()
    result = determinized(raw_lattice(decoder), beam, parts.starts, options, _log.warning)
    lattice = result.lattice
    if model.options.summed:
        lattice = summed(lattice, loglikes, topology, model.options.summed)
    return kind(parts, lattice, ids, 0.0, graph_scale=1.0)


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
