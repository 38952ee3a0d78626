"""How a stream begins and ends: the first values of caches, the frames that follow the last one."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from ....framework.base.errors import OpscopeError, ShapeError
from .emit import F32


@dataclass(frozen=True)
class Stream:
    """What the metadata of a streaming model say.

    Attributes:
        before: how often the first frame stands before it: left context.
        ahead: how many frames the first chunk is ahead: right context.
        subsampling: frames for one row of output.
        caches: by the name of the input: columns, rows after each chunk, rows at first, and
            whether these are "zeros" or "edges".
    """

    before: int
    ahead: int
    subsampling: int
    caches: dict[str, tuple[int, int, int, str]]

    @classmethod
    def of(cls, metadata: Mapping[str, str]) -> Stream:
        """Read the metadata of a model, `Graph.metadata` or a runtime's custom metadata.

        Raises:
            OpscopeError: they are none of a streaming model.
        """
        if metadata.get("streaming") != "1" or "caches" not in metadata:
            raise OpscopeError("the model was not exported for streams")
        before, ahead = json.loads(metadata["edge_frames"])
        listed = json.loads(metadata["caches"])
        caches = {name: tuple(facts) for name, facts in listed.items()}
        return cls(before, ahead, int(metadata["frame_subsampling_factor"]), caches)

    def initial_caches(self, features: np.ndarray) -> dict[str, np.ndarray]:
        """The caches before the first chunk.

        Args:
            features: [N, frames, dim] or [frames, dim], the first `ahead` frames at least, or all
                there are; a stream's first chunk begins with the frame behind these.

        Returns:
            By name: [N, columns, rows]. Zeros, and for what is kept of the input the first frame
            `before` times and then the first `ahead` frames.
        """
        features = np.asarray(features, F32)
        features = features if features.ndim == 3 else features[None]
        if not features.shape[1]:
            raise ShapeError("a stream wants a first frame")
        times = np.clip(np.arange(-self.before, self.ahead), 0, features.shape[1] - 1)
        edges = np.ascontiguousarray(features[:, times].swapaxes(1, 2))
        found = {}
        for name, (columns, _, first, kind) in self.caches.items():
            zeros = np.zeros((len(features), columns, first), F32)
            found[name] = edges if kind == "edges" else zeros
        return found

    def chunks(self, features: np.ndarray, size: int) -> Iterator[np.ndarray]:
        """The chunks of a whole utterance, behind its first `ahead` frames.

        Args:
            features: [N, frames, dim] or [frames, dim].
            size: frames of a chunk, a multiple of the subsampling; the last one may be shorter.
        """
        if size < 1 or size % self.subsampling:
            raise OpscopeError(
                f"chunks of {size} frames; a multiple of {self.subsampling} is wanted"
            )
        features = np.asarray(features, F32)
        features = features if features.ndim == 3 else features[None]
        frames = features.shape[1]
        total = -(-frames // self.subsampling) * self.subsampling
        for begin in range(0, total, size):
            times = np.arange(begin, min(begin + size, total)) + self.ahead
            yield np.ascontiguousarray(features[:, np.minimum(times, frames - 1)])


def initial_caches(metadata: Mapping[str, str], features: np.ndarray) -> dict[str, np.ndarray]:
    """The caches of a streaming model before its first chunk; see `Stream.initial_caches`."""
    return Stream.of(metadata).initial_caches(features)
