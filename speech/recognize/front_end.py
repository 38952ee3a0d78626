"""From samples to log-likelihoods, block by block, in the order that Vosk has.

Source: Vosk's `recognizer.cc`; Kaldi's `online2/online-nnet2-feature-pipeline.cc` and
`nnet3/decodable-online-looped.cc`.
"""

from __future__ import annotations

import logging
from typing import Protocol

import numpy as np

from ...nnet3 import LoopedComputer
from ..features.cmvn import OnlineCmvn
from ..features.computers import Fbank, Mfcc
from ..ivector.model import IvectorModel
from ..ivector.online import OnlineIvector
from ..ivector.silence import SilenceWeights

_log = logging.getLogger(__name__)


class FrontParts(Protocol):
    """What computes log-likelihoods; ivectors None: the network takes none."""

    @property
    def features(self) -> Mfcc | Fbank: ...

    @property
    def network(self) -> LoopedComputer: ...

    @property
    def ivectors(self) -> IvectorModel | None: ...


class FrontEnd:
    """Features, iVectors and the network's output of a signal that goes on and on.

    For each block: `accept`, then `weigh` if silence is to count less, then `loglikes`, which gives
    the rows of all chunks of the network that are due. At the end `finish` stands for `accept`.

    Args:
        parts: what computes. rate: of the samples, in Hz.
        ivectors: to go on with, of a speaker that is known; by default those of `parts`.
        cmvn: that normalizes the network's features, not those of iVectors; None: nothing does.

    Raises:
        OpscopeError: the sampling rate does not go with the model.
    """

    def __init__(
        self,
        parts: FrontParts,
        rate: float,
        ivectors: OnlineIvector | None = None,
        cmvn: OnlineCmvn | None = None,
    ) -> None:
        self._scale: _ScaleCheck | None = _ScaleCheck(rate)
        self._output_dim = parts.network.output_dim
        self._features = parts.features.stream(rate)
        self._network = parts.network.stream()
        if ivectors is None and parts.ivectors is not None:
            ivectors = OnlineIvector(parts.ivectors)
        self._ivectors = ivectors
        self._cmvn = cmvn
        self._held: list[np.ndarray] = []
        self._count = 0
        self._finished = False

    @property
    def frames_ready(self) -> int:
        """Frames of features so far whose iVector could be asked for."""
        if self._ivectors is None:
            return self._count
        return min(self._count, self._ivectors.frames_ready)

    @property
    def takes_weights(self) -> bool:
        """Whether there are iVectors to weigh, and frames of them."""
        return self._ivectors is not None and self.frames_ready > 0

    def accept(self, samples: np.ndarray) -> None:
        """Take the next samples, [count], on the scale of 16-bit integers.

        Raises:
            OpscopeError: one is NaN or infinite.
        """
        if self._scale is not None and self._scale.decided(samples):
            self._scale = None
        self._take(self._features.accept(samples))

    def finish(self) -> None:
        """No more samples come."""
        if self._scale is not None:
            self._scale.finish()
            self._scale = None
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
        self._ivectors.weigh(*weights.changes(self.frames_ready, first_frame))

    def loglikes(self) -> np.ndarray:
        """The output that can be computed now: float32, [frames, outputs]."""
        network = self._network
        if not self._count:
            return np.empty((0, self._output_dim), np.float32)
        held = sum(map(len, self._held))
        due = network.lacking <= held
        if not due and not self._finished:
            return np.empty((0, self._output_dim), np.float32)
        features = np.concatenate(self._held)
        self._held = [features[:0]]
        loglikes = network.accept(features, self._ivector())
        return np.concatenate((loglikes, network.finish())) if self._finished else loglikes

    def _take(self, features: np.ndarray) -> None:
        self._count += len(features)
        if self._ivectors is not None:
            self._ivectors.accept(features)
        if self._cmvn is not None and len(features):
            self._cmvn.accept(features)
            features = self._cmvn.normalized(np.arange(self._count - len(features), self._count))
        self._held.append(features)

    def _ivector(self) -> np.ndarray | None:
        """That of the last frame that is ready; zeros before the first one."""
        if self._ivectors is None:
            return None
        if not self._ivectors.frames_ready:
            return np.zeros(self._ivectors.dim, np.float32)
        return self._ivectors.ivector()


class _ScaleCheck:
    """Warns of a signal whose first second stays within -1 to 1, as many audio libraries give it.

    Whole numbers are on the right scale however small they are: a quiet recording begins with
    zeros and ones.
    """

    def __init__(self, rate: float) -> None:
        self._peak = 0.0
        self._wanted = rate

    def decided(self, samples: np.ndarray) -> bool:
        """Look at further samples; True: no more of them are wanted."""
        if samples.dtype.kind != "f":
            return True
        heard = samples[samples != 0]
        self._peak = max(self._peak, float(np.abs(heard).max(initial=0)))
        if self._peak > 1 or (len(heard) and np.all(heard == np.rint(heard))):
            return True
        self._wanted -= len(heard)
        if self._wanted > 0:
            return False
        self.finish()
        return True

    def finish(self) -> None:
        """No more samples come: warn if all that were heard are below 1."""
        if 0 < self._peak <= 1:
            _log.warning(
                "samples up to %g: they should be on the scale of 16-bit integers (times 32768)",
                self._peak,
            )
