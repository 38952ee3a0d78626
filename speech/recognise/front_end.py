"""From samples to log-likelihoods, block by block, in the order that Vosk has.

Source: Vosk's `recognizer.cc`; Kaldi's `online2/online-nnet2-feature-pipeline.cc` and
`nnet3/decodable-online-looped.cc`.
"""

from __future__ import annotations

import numpy as np

from ..ivector.online import OnlineIvector
from ..ivector.silence import SilenceWeights
from .model import Model


class FrontEnd:
    """Features, iVectors and the network's output of a signal that goes on and on.

    For each block: `accept`, then `weigh` if silence is to count less, then `loglikes`, which gives
    the rows of all chunks of the network that are due. At the end `finish` stands for `accept`.

    Args:
        model: what computes. rate: of the samples, in Hz.

    Raises:
        OpscopeError: the sampling rate does not go with the model.
    """

    def __init__(self, model: Model, rate: float) -> None:
        self._model = model
        self._features = model.features.stream(rate)
        self._network = model.network.stream()
        self._ivectors = OnlineIvector(model.ivectors) if model.ivectors else None
        self._held: list[np.ndarray] = []
        self._count = 0
        self._finished = False

    @property
    def frames_ready(self) -> int:
        """Frames of features so far."""
        return self._count

    @property
    def takes_weights(self) -> bool:
        """Whether there are iVectors to weigh, and frames of them."""
        return self._ivectors is not None and self._count > 0

    def accept(self, samples: np.ndarray) -> None:
        """Take the next samples, [count], on the scale of 16-bit integers.

        Raises:
            OpscopeError: one is NaN or infinite.
        """
        self._take(self._features.accept(samples))

    def finish(self) -> None:
        """No more samples come."""
        self._take(self._features.finish())
        if self._ivectors is not None:
            self._ivectors.finish()
        self._finished = True

    def weigh(self, weights: SilenceWeights, first_frame: int) -> None:
        """Change the weights of frames in iVectors.

        Args:
            weights: with the traceback of now. first_frame: of features, at which the utterance
                begins.
        """
        assert self._ivectors is not None
        self._ivectors.weigh(*weights.changes(self._count, first_frame))

    def loglikes(self) -> np.ndarray:
        """The output that can be computed now: float32, [frames, outputs]."""
        network = self._network
        if not self._count:
            return np.empty((0, self._model.network.output_dim), np.float32)
        held = sum(map(len, self._held))
        due = network.lacking <= held
        if not due and not self._finished:
            return np.empty((0, self._model.network.output_dim), np.float32)
        features = np.concatenate(self._held)
        self._held = [features[:0]]
        made = network.accept(features, self._ivector())
        return np.concatenate((made, network.finish())) if self._finished else made

    def _take(self, features: np.ndarray) -> None:
        self._count += len(features)
        self._held.append(features)
        if self._ivectors is not None:
            self._ivectors.accept(features)

    def _ivector(self) -> np.ndarray | None:
        """That of the last frame that is ready; zeros before the first one."""
        if self._ivectors is None:
            return None
        if not self._ivectors.frames_ready:
            return np.zeros(self._ivectors.dim, np.float32)
        return self._ivectors.ivector()
