"""Weights that let silence count less in iVectors, by what the decoder takes for silence.

Source: Kaldi's `OnlineSilenceWeighting` in `online2/online-ivector-feature.cc`.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from ...framework.base.errors import OpscopeError

_BACK = 100  # decoder frames whose weights may still change


class SilenceWeights:
    """Changes of frames' weights, by tracebacks of a decoder.

    After each block, `traceback` takes the best path so far, and `changes` tells what
    `OnlineIvector.weigh` wants.

    Args:
        phones: of each transition-id, [transition-ids + 1]; number 0 is none.
        silence_phones: their numbers.
        silence_weight: of frames of silence; other frames have 1.0.
        max_state_duration: frames of one transition-id, from which on a run of it counts as
            silence; -1: never.
        subsampling: frames of features for each frame of the decoder.

    Raises:
        OpscopeError: a value is out of range.
    """

    def __init__(
        self,
        phones: np.ndarray,
        silence_phones: Iterable[int],
        silence_weight: float = 1.0,
        max_state_duration: float = -1,
        subsampling: int = 1,
    ) -> None:
        if subsampling < 1 or not np.isfinite(silence_weight):
            raise OpscopeError(
                f"subsampling={subsampling} and silence_weight={silence_weight} give no weights"
            )
        self._silent = np.isin(np.asarray(phones), np.array(list(silence_phones), np.int64))
        self._weight = np.float32(silence_weight)
        self._longest = int(max_state_duration)
        self._subsampling = subsampling
        self._ids = np.empty(0, np.int64)  # -1 where no traceback reaches
        self._weights = np.empty(0, np.float32)

    def traceback(self, ids: np.ndarray, begin: int = 0) -> None:
        """Take the best path's transition-ids, one for each decoded frame.

        Args:
            ids: [frames decoded - begin].
            begin: the first frame that may differ from the path before.

        Raises:
            OpscopeError: there is no such transition-id, or there are fewer frames than before.
        """
        ids = np.asarray(ids, np.int64)
        if ids.ndim != 1 or (ids.size and not 1 <= ids.min() <= ids.max() < len(self._silent)):
            raise OpscopeError(
                f"a traceback with transition-ids that are not among {len(self._silent) - 1}"
            )
        end = begin + len(ids)
        decoded = int(np.count_nonzero(self._ids >= 0))
        if not 0 <= begin <= decoded or end < decoded:
            raise OpscopeError(f"a traceback of frames {begin} to {end} after {decoded} frames")
        self._grow(end)
        self._ids[begin:end] = ids

    def changes(self, frames_ready: int, first_frame: int = 0) -> tuple[np.ndarray, np.ndarray]:
        """How the weights of frames of features change now.

        Args:
            frames_ready: frames of features that there are.
            first_frame: of features, that the decoder's first frame is.

        Returns:
            The frames, int64, [count], and what is added to their weights, float32, [count].
        """
        factor = self._subsampling
        before = len(self._ids)
        self._grow(-(-(frames_ready - first_frame) // factor))
        begin = max(before - _BACK, 0)
        if begin == len(self._ids):
            return np.empty(0, np.int64), np.empty(0, np.float32)
        weights = self._wanted(begin)
        moved = weights - self._weights[begin:]
        self._weights[begin:] = weights
        told = moved != 0
        told[-1] = True  # so that the last frame with a weight is known
        frames = first_frame + factor * (begin + np.flatnonzero(told))[:, None] + np.arange(factor)
        return frames.ravel(), np.repeat(moved[told], factor)

    def _grow(self, count: int) -> None:
        new = max(count - len(self._ids), 0)
        self._ids = np.concatenate((self._ids, np.full(new, -1)))
        self._weights = np.concatenate((self._weights, np.zeros(new, np.float32)))

    def _wanted(self, begin: int) -> np.ndarray:
        """The weights of the frames from `begin` on."""
        ids = self._ids[begin:]
        if ids[0] < 0:  # no traceback at all
            weight = self._weights[begin - 1] if begin else self._weight
            return np.full(len(ids), weight, np.float32)
        known = int(np.count_nonzero(ids >= 0))
        path = ids[:known]
        silent = self._silent[path]
        if self._longest > 0:
            ends = np.append(np.flatnonzero(path[1:] != path[:-1]), known - 1)
            lengths = np.diff(ends, prepend=-1)
            silent = silent | np.repeat(lengths >= self._longest, lengths)
        weights = np.ones(len(ids), np.float32)
        weights[:known][silent] = self._weight
        weights[known:] = weights[known - 1]
        return weights
