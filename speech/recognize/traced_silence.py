"""Weights of silence in iVectors, by the best path of a decoder that continues.

Source: Kaldi's `OnlineSilenceWeighting` in `online2/online-ivector-feature.cc`.
"""

from __future__ import annotations

import numpy as np

from ..ivector.silence import SilenceWeights
from ..search.decoder import Decoder
from .front_end import FrontEnd


class TracedSilence:
    """Follows the best path of an utterance, and lets silence on it count less.

    Args:
        weights: of the utterance.
    """

    def __init__(self, weights: SilenceWeights) -> None:
        self._weights = weights
        self._known = np.empty(0, np.int64)  # tokens of the last traceback

    def weigh(self, front: FrontEnd, decoder: Decoder, first_frame: int = 0) -> None:
        """Change the weights of frames by the best path of now.

        Args:
            first_frame: of features, at which the utterance begins.
        """
        self._trace_back(decoder)
        front.weigh(self._weights, first_frame)

    def spoken(self, front: FrontEnd, decoder: Decoder, first_frame: int = 0) -> np.ndarray:
        """Frames of a decoder that is finalized, with speech on its best path; see `weigh`."""
        self._trace_back(decoder, use_final=True)
        return self._weights.spoken(front.frames_ready, first_frame)

    def _trace_back(self, decoder: Decoder, use_final: bool = False) -> None:
        """Give the weights the best path, back to the token where it meets the one before."""
        ids: list[int] = []
        tokens: list[int] = []
        begin = 0
        known = self._known
        for frame, number, token in decoder.trace_back(use_final):
            if frame < len(known) and known[frame] == token:
                begin = frame + 1
                break
            ids.append(number)
            tokens.append(token)
        path, fresh = np.array(ids[::-1], np.int64), np.array(tokens[::-1], np.int64)
        self._weights.traceback(path, fresh, begin)
        self._known = np.concatenate((known[:begin], fresh))
