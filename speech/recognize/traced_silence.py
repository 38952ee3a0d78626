"""Weights of silence in iVectors, by the best path of a decoder that continues.

Source: Kaldi's `OnlineSilenceWeighting` in `online2/online-ivector-feature.cc`.
"""

from __future__ import annotations

import numpy as np

from ..ivector.silence import SilenceWeights
from ..search.decoder import Decoder, Traced
from .front_end import FrontEnd


class TracedSilence:
    """Follows the best path of an utterance, and lets silence on it count less.

    Args:
        weights: of the utterance.
    """

    def __init__(self, weights: SilenceWeights) -> None:
        self._weights = weights

    def weigh(self, front: FrontEnd, decoder: Decoder, first_frame: int = 0) -> None:
        """Change the weights of frames by the best path of now.

        Args:
            first_frame: of features, at which the utterance begins.
        """
        self._take(decoder.traced())
        front.weigh(self._weights, first_frame)

    def spoken(self, front: FrontEnd, decoder: Decoder, first_frame: int = 0) -> np.ndarray:
        """Frames of a decoder that is finalized, with speech on its best path; see `weigh`."""
        self._take(decoder.traced(use_final=True))
        return self._weights.spoken(front.frames_ready, first_frame)

    def _take(self, path: Traced) -> None:
        self._weights.traceback(path.ids, path.tokens)
