"""How a stream begins and ends: the first values of caches, the frames that follow the last one."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from ....framework.base.errors import OpscopeError, ShapeError
from ...nnet3_rows.net import F32
from ..files.graph import plain_name


@dataclass(frozen=True)
class Stream:
    """What the metadata of a streaming model say.

    Attributes:
        before: how often the first frame stands before it: left context.
        ahead: how many frames the first chunk is ahead: right context.
        subsampling: frames for one row of output.
        inputs: names and columns of the inputs whose frames come in chunks.
        caches: by the name of the input: columns, rows after each chunk, rows at first, and
            whether these are "zeros" or "edges"; of the latter the first column among the input's.
    """

    before: int
    ahead: int
    subsampling: int
    caches: dict[str, tuple[int, int, int, str, int]]
    inputs: tuple[tuple[str, int], ...] = ()

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
        inputs = json.loads(metadata["inputs"])[0] if "inputs" in metadata else []
        named = tuple((str(name), int(columns)) for name, columns in inputs)
        return cls(before, ahead, int(metadata["frame_subsampling_factor"]), caches, named)

    @property
    def names(self) -> list[str]:
        """The graph's inputs whose frames come in chunks."""
        return [plain_name(name) for name, _ in self.inputs] or ["input"]

    def feeds(self, chunk: np.ndarray) -> dict[str, np.ndarray]:
        """A chunk [N, frames, dim], of all inputs side by side, by the names of the inputs."""
        if not self.inputs:
            return {"input": chunk}
        ends = np.cumsum([columns for _, columns in self.inputs])
        if chunk.shape[2] != ends[-1]:
            raise ShapeError(f"a chunk has {chunk.shape[2]} columns; {ends[-1]} are wanted")
        parts = np.split(chunk, ends[:-1], axis=2)
        arrays = map(np.ascontiguousarray, parts)
        return dict(zip(self.names, arrays, strict=True))

    def initial_caches(self, features: np.ndarray) -> dict[str, np.ndarray]:
        """The caches before the first chunk.

        Args:
            features: [N, frames, dim] or [frames, dim], the first `ahead` frames at least, or all
                there are; a stream's first chunk begins with the frame after these.

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
        caches = {}
        for name, (columns, _, first, kind, begin) in self.caches.items():
            zeros = np.zeros((len(features), columns, first), F32)
            caches[name] = edges[:, begin : begin + columns] if kind == "edges" else zeros
        return caches

    def chunks(self, features: np.ndarray, size: int) -> Iterator[np.ndarray]:
        """The chunks of a whole utterance, after its first `ahead` frames.

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
