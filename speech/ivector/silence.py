"""Weights that let silence count less in iVectors, by what the decoder takes for silence.

Source: Kaldi's `OnlineSilenceWeighting` in `online2/online-ivector-feature.cc`.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from ...framework.base.errors import OpscopeError
from ...framework.base.sequence import repeated

_BACK = 100  # decoder frames whose weights may still change
_SPOKEN = 500  # decoder frames, of which those with speech are listed


class SilenceWeights:
    """Changes of frames' weights, by tracebacks of a decoder.

    After each block, `traceback` takes the best path so far, and `changes` gives what
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
        self._path = np.empty(0, np.int64)  # the last traceback, and its tokens
        self._tokens = np.empty(0, np.int64)
        self._ids = np.empty(0, np.int64)  # what weights follow from; -1 after the traceback
        self._weights = np.empty(0, np.float32)

    def traceback(self, ids: np.ndarray, tokens: np.ndarray | None = None) -> None:
        """Take the best path so far.

        Kaldi goes back along the path to the first frame whose arc leaves the same token as
        before, and that frame keeps the transition-id that it had, even where another arc leaves
        the token now. So it is here.

        Args:
            ids: its transition-ids, one for each decoded frame, [frames decoded].
            tokens: for each, the token that its arc leaves, as a number that no other token of the
                frame has; None: tokens are equal as long as the transition-ids before are.

        Raises:
            OpscopeError: there is no such transition-id, there are fewer frames than before, or
                tokens for some paths only.
        """
        ids = np.asarray(ids, np.int64)
        if ids.ndim != 1 or (ids.size and not 1 <= ids.min() <= ids.max() < len(self._silent)):
            raise OpscopeError(
                f"a traceback with transition-ids that are not among {len(self._silent) - 1}"
            )
        old, end = self._path, len(ids)
        if end < len(old):
            raise OpscopeError(f"a traceback of {end} frames after {len(old)} frames")
        self._path = ids
        if tokens is None:
            differ = np.flatnonzero(self._path[: len(old)] != old)
            kept = int(differ[0]) + 1 if differ.size else len(old)
        else:
            tokens = np.asarray(tokens, np.int64)
            if tokens.shape != ids.shape or len(self._tokens) != len(old):
                raise OpscopeError(
                    f"{len(tokens)} tokens for {len(ids)} frames, after {len(self._tokens)} tokens"
                    f" for {len(old)}"
                )
            equal = np.flatnonzero(tokens[: len(old)] == self._tokens)
            kept = int(equal[-1]) + 1 if equal.size else 0
            self._tokens = tokens
        self._grow(end)
        self._ids[kept:end] = self._path[kept:]

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
        changed = moved != 0
        changed[-1] = True  # so that the last frame with a weight is known
        rows = begin + np.flatnonzero(changed)
        frames = first_frame + factor * rows[:, None] + np.arange(factor)
        return frames.ravel(), repeated(moved[changed], factor)

    def spoken(self, frames_ready: int, first_frame: int = 0) -> np.ndarray:
        """Frames of the decoder, of the last 500, that the traceback does not take for silence.

        Args:
            frames_ready, first_frame: see `changes`.

        Source: `GetNonsilenceFrames`, which Vosk adds to Kaldi.
        """
        begin = max(len(self._ids) - _SPOKEN, 0)
        self._grow(-(-(frames_ready - first_frame) // self._subsampling))
        ids = self._ids[begin:]
        return begin + np.flatnonzero((ids >= 0) & ~self._silent[np.maximum(ids, 0)])

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
            silent = silent | repeated(lengths >= self._longest, lengths)
        weights = np.ones(len(ids), np.float32)
        weights[:known][silent] = self._weight
        weights[known:] = weights[known - 1]
        return weights
