"""The best path of a recording through the graph of its text, with a narrow beam, then a wider one.

Source: `AlignUtteranceWrapper` in Kaldi's `decoder/decoder-wrappers.cc`.
"""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...framework.base.errors import OpscopeError
from ..fst.graph import Graph
from ..recognize.model import Model
from ..recognize.recognizer import Recognizer
from ..search.alignment import ALIGNED_ACTIVE
from ..search.decoder import BestPath, Decoder
from ..search.options import MOST_ACTIVE

_log = logging.getLogger(__name__)
_LEAST = np.float32(-30)  # logarithm of a score that counts


@dataclass(frozen=True)
class AlignOptions:
    """How an alignment is searched for, with Kaldi's names.

    Attributes:
        beam: costs above the best path's up to which paths are followed.
        retry_beam: the beam of a second try, where the first one reaches no end; 0: there is none.
    """

    beam: float = 10.0
    retry_beam: float = 40.0

    def __post_init__(self) -> None:
        beams = (self.beam, self.retry_beam)
        if not all(map(math.isfinite, beams)) or self.beam <= 0:
            raise OpscopeError(f"beam={self.beam}, retry_beam={self.retry_beam} make no sense")
        if self.retry_beam and self.retry_beam <= self.beam:
            raise OpscopeError(
                f"retry_beam={self.retry_beam} is not above beam={self.beam}; 0: no second try"
            )


class PhoneScores:
    """How probable the network finds each phone beside the most probable one, frame by frame.

    A phone counts by its most probable output. Phones that share all outputs, as the forms of a
    phone by its place in words do, are as probable as each other.

    Args:
        phones, pdfs: of each transition-id; number 0 is not used.
    """

    def __init__(self, phones: np.ndarray, pdfs: np.ndarray) -> None:
        pairs = np.unique(phones[1:].astype(np.int64) << 32 | pdfs[1:].astype(np.int64))
        self._pdfs = pairs & 0xFFFFFFFF
        known, self._begin = np.unique(pairs >> 32, return_index=True)
        self._row = np.full(int(known.max(initial=0)) + 1, -1)
        self._row[known] = np.arange(len(known))
        self._parts: list[np.ndarray] = []

    def accept(self, loglikes: np.ndarray) -> None:
        """Take the output of the network for more frames, [frames, pdfs]."""
        best = np.maximum.reduceat(loglikes[:, self._pdfs], self._begin, axis=1)
        highest = best.max(axis=1, keepdims=True)
        self._parts.append(np.maximum(best - highest, _LEAST))

    def of(self, phones: np.ndarray) -> np.ndarray:
        """The logarithm of the score of one phone in each frame, 0 at most, [frames]."""
        every = np.concatenate(self._parts)
        return every[np.arange(len(phones)), self._row[phones]].astype(np.float64)


class _Listening(Decoder):
    """A decoder that keeps scores of phones."""

    scores: PhoneScores | None = None

    def accept(self, loglikes: np.ndarray) -> None:
        super().accept(loglikes)
        if self.scores is not None:
            self.scores.accept(np.asarray(loglikes, np.float32))


@dataclass(frozen=True)
class AlignedPath:
    """The path of an alignment.

    Attributes:
        best: through the graph. scores: of the path's phone in each frame, see
            `PhoneScores`.
        log_likelihood: for each frame. beam: with which it was found.
    """

    best: BestPath
    scores: np.ndarray
    log_likelihood: float
    beam: float


class NoPathError(OpscopeError):
    """No path of the text's graph fits the recording within the beam.

    Attributes:
        frames: that were searched. words: through which the best path got.
    """

    def __init__(self, frames: int, words: int) -> None:
        super().__init__(f"no path to a final state: {words} words in {frames} frames")
        self.frames = frames
        self.words = words


def aligned_path(
    samples: np.ndarray,
    rate: float,
    model: Model,
    graph: Graph,
    options: AlignOptions,
    name: str = "audio",
) -> AlignedPath:
    """The best path that says the whole text.

    Args:
        samples: of one channel, [count], on the scale of 16-bit integers. rate: in Hz.
        graph: of the text.

    Raises:
        NoPathError: it is not found with either beam.
        OpscopeError: samples are NaN, or the sampling rate does not go with the model.
    """
    try:
        return _searched(samples, rate, model, graph, options.beam)
    except NoPathError:
        if not options.retry_beam:
            raise
    _log.info("%s: retrying with beam %g", name, options.retry_beam)
    return _searched(samples, rate, model, graph, options.retry_beam)


def _searched(
    samples: np.ndarray, rate: float, model: Model, graph: Graph, beam: float
) -> AlignedPath:
    known: dict[str, Any] = {"beam": beam, "min_active": ALIGNED_ACTIVE, "max_active": MOST_ACTIVE}
    options = replace(model.config.search, **known)
    decoder = _Listening(graph, model.pdfs, options, outputs=model.network.output_dim)
    decoder.scores = scores = PhoneScores(model.phones, model.pdfs)
    recognizer = Recognizer(model, rate, decoder=decoder)
    recognizer.endpoint = replace(recognizer.endpoint, rules=())  # all is one utterance
    recognizer.accept(samples)
    recognizer.finish()
    frames = decoder.frames_decoded
    if not frames:
        raise NoPathError(0, 0)
    best = decoder.best_path()
    if not best.final:
        raise NoPathError(frames, len(best.words))
    scale = options.acoustic_scale
    likelihood = -(best.graph_cost + best.acoustic_cost) / scale / frames
    phones = model.phones[best.transition_ids]
    return AlignedPath(best, scores.of(phones), likelihood, beam)
