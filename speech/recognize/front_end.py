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
from ..features.computers import MelFeatures
from ..features.pitch_processing import Pitch
from ..ivector.model import IvectorModel
from ..ivector.online import OnlineIvector
from ..ivector.silence import SilenceWeights

_log = logging.getLogger(__name__)


class FrontParts(Protocol):
    """What computes log-likelihoods; ivectors, pitch None: the network takes none."""

    @property
    def features(self) -> MelFeatures: ...

    @property
    def pitch(self) -> Pitch | None: ...

    @property
    def network(self) -> LoopedComputer: ...

    @property
    def ivectors(self) -> IvectorModel | None: ...


class FrontEnd:
    """Features, iVectors and the network's output of a signal that goes on and on.

    For each block: `accept`, then `weigh` if silence is to count less, then `loglikes`, which gives
    the rows of all chunks of the network that are due. At the end `finish` stands for `accept`.

    Features of the pitch stand beside the others for the network, not for iVectors. They change
    as more is heard: the network reads them as they are when a chunk is due.

    Args:
        parts: what computes. rate: of the samples, in Hz.
        ivectors: to continue with, of a speaker that is known; by default from `parts`.
        cmvn: that normalizes the network's features and the pitch, not the features of iVectors;
            None: nothing does.

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
        self._pitch = None if parts.pitch is None else parts.pitch.stream(rate)
        self._network = parts.network.stream()
        if ivectors is None and parts.ivectors is not None:
            ivectors = OnlineIvector(parts.ivectors)
        self._ivectors = ivectors
        self._cmvn = cmvn
        self._waiting: list[np.ndarray] = []  # features, without the pitch
        self._gathered: list[np.ndarray] = []  # the network's features
        self._gathered_count = 0
        self._given = 0  # frames that the network has
        self._count = 0
        self._finished = False

    @property
    def frames_ready(self) -> int:
        """Frames of features so far whose iVector could be asked for."""
        if self._ivectors is None:
            return self._network_frames
        return min(self._network_frames, self._ivectors.frames_ready)

    @property
    def _network_frames(self) -> int:
        """Frames of features so far that have all columns of the network's."""
        return self._count if self._pitch is None else min(self._count, self._pitch.frames_ready)

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
        if self._pitch is not None:
            self._pitch.accept(samples)
        self._take(self._features.accept(samples))

    def finish(self) -> None:
        """No more samples come."""
        if self._scale is not None:
            self._scale.finish()
            self._scale = None
        if self._pitch is not None:
            self._pitch.finish()
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
        rows = [np.empty((0, self._output_dim), np.float32)]
        while (end := self._due()) is not None:
            self.gather(end)
            features = np.concatenate(self._gathered)
            taken = end - self._given
            self._gathered = [features[taken:]]
            self._given = end
            rows.append(self._network.accept(features[:taken], self._ivector()))
            if self._finished:
                rows.append(self._network.finish())
                break
        return np.concatenate(rows)

    def _due(self) -> int | None:
        """The end of the frames that the network is to have now; None: no chunk is due."""
        count = self._network_frames
        if self._finished:
            return count or None
        end = self._given + self._network.lacking
        if not count or end > count:
            return None
        return count if self._pitch is None else end  # the pitch of later frames may change

    def gather(self, end: int | None = None) -> None:
        """Make the network's features of the frames before `end`; None: of all that are ready."""
        begin = self._gathered_count
        end = self._network_frames if end is None else end
        if begin >= end:
            return
        waiting = np.concatenate(self._waiting)
        features, self._waiting = waiting[: end - begin], [waiting[end - begin :]]
        if self._pitch is not None:
            features = np.hstack((features, self._pitch.frames(begin, end)))
        if self._cmvn is not None:
            self._cmvn.accept(features)
            features = self._cmvn.normalized(np.arange(begin, end))
        self._gathered.append(features)
        self._gathered_count = end

    def _take(self, features: np.ndarray) -> None:
        self._count += len(features)
        if self._ivectors is not None:
            self._ivectors.accept(features)
        self._waiting.append(features)

    def _ivector(self) -> np.ndarray | None:
        """The iVector of the last frame that is wholly ready; zeros before the first one."""
        if self._ivectors is None:
            return None
        if not self._ivectors.frames_ready:
            return np.zeros(self._ivectors.dim, np.float32)
        return self._ivectors.ivector(self.frames_ready - 1)


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
