"""Chunks of several streams of a `LoopedComputer`, computed in one run.

The looped computation is compiled for several sequences. What a chunk reads of earlier ones of its
stream are rows of a few matrices: they are put into these before a run and taken out after it. So
streams begin, pause and end as they like, and any of them that stand at the same segment of the
computation share a run. Nearly always that is the last segment, which repeats for ever.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby

import numpy as np

from ...framework.base.errors import OpscopeError
from ...framework.base.python.cached import new_lock
from ...framework.passes.precision.to_dtype import ToFloat64
from ...framework.runtime.plain_net import PlainNet
from ..compiler.computation import Computation
from ..lower.spans import lower_with_spans
from ..run.segment_computer import SegmentComputer
from .looped_computer import LoopedComputer

_EMPTY = 2  # places of a run, at most
_Key = tuple[int, bytes, int]
"""What rows are of: the node, their times without n, and a number among those that are alike."""


@dataclass
class StreamState:
    """What later chunks of a stream read of earlier ones.

    Attributes:
        segment: of the computation, which comes next. rows: of its matrices, in the order of the
            keys that all sizes of the computation share.
    """

    segment: int = 0
    rows: list[np.ndarray] = field(default_factory=list)


@dataclass
class StreamChunk:
    """A chunk that is to be computed.

    Attributes:
        features: [input frames of the chunk, dim]. ivector: [dim]; None: the network takes none.
        state: of its stream, which the run moves on.
    """

    features: np.ndarray
    ivector: np.ndarray | None
    state: StreamState


class StreamBatch:
    """Computes chunks of several streams at once; threads take turns.

    Args:
        computer: of the streams. most: streams in one run; a power of two.
    """

    def __init__(self, computer: LoopedComputer, most: int = 32) -> None:
        self._computer = computer
        self.most = most
        self._sizes: dict[int, _Sized] = {}
        self._lock = new_lock()

    def prepare(self) -> None:
        """Compile the computations of all sizes, which otherwise happens when they are needed."""
        with self._lock:
            for power in range(self.most.bit_length()):
                self._sized(1 << power)

    def compute(self, chunks: Sequence[StreamChunk]) -> list[np.ndarray]:
        """The output of each chunk, [output frames, outputs]; the states of streams move on.

        Raises:
            OpscopeError: the computations for several streams do not carry the same rows.
        """
        outputs: list[np.ndarray] = [np.empty(0, np.float32)] * len(chunks)
        order = sorted(range(len(chunks)), key=lambda at: chunks[at].state.segment)
        with self._lock:
            for _, group in groupby(order, lambda at: chunks[at].state.segment):
                places = list(group)
                while places:
                    count = min(_together(len(places)), self.most)
                    part, places = places[:count], places[count:]
                    made = self._run([chunks[at] for at in part])
                    for at, output in zip(part, made, strict=True):
                        outputs[at] = self._computer.scored(output)
        return outputs

    def _run(self, chunks: Sequence[StreamChunk]) -> np.ndarray:
        size = 1 << (len(chunks) - 1).bit_length()
        return self._sized(size).segment(chunks[0].state.segment).run(chunks)

    def _sized(self, size: int) -> _Sized:
        sized = self._sizes.get(size)
        if sized is None:
            sized = _Sized(self._computer, size)
            first = self._sizes.setdefault(1, sized if size == 1 else _Sized(self._computer, 1))
            if sized.keys != first.keys:
                raise OpscopeError(
                    f"chunks of {size} streams of this network carry other rows than one does"
                )
            self._sizes[size] = sized
        return sized


def _together(count: int) -> int:
    """How many of so many chunks are computed in one run, whose size is a power of two.

    Places that stay empty cost as much as chunks, a further run as much as two of them.
    """
    size = 1 << (count - 1).bit_length()
    return count if size - count <= _EMPTY else size // 2


class _Sized:
    """The computation for so many streams.

    Attributes:
        names: by segment, the variables with rows of earlier segments. keys: what these rows are.
        rows: of such a variable, the places of the rows of each stream, [size, rows].
    """

    def __init__(self, computer: LoopedComputer, size: int) -> None:
        self.size = size
        self._computer = computer
        self._requests, computation = computer.looped(size)
        net, spans = lower_with_spans(computation)
        if computer.reproducible:
            net = ToFloat64().apply(net)
        self._net = PlainNet(net, check=False)
        places = dict(_places(spans.computation, spans.variables, size))
        self.rows = {name: rows for name, (_, rows) in places.items()}
        carried = self.new_segments().carried()
        self.names = [sorted(names, key=lambda name: places[name][0]) for names in carried]
        self.keys = [[places[name][0] for name in names] for names in self.names]
        self._segments: dict[int, _Segment] = {}

    def new_segments(self) -> SegmentComputer:
        """What runs the computation, with variables of its own."""
        return self._computer.segments(self._net)

    def segment(self, number: int) -> _Segment:
        """What runs a segment."""
        if number not in self._segments:
            self._segments[number] = _Segment(self, number, self._ivector_rows(number))
        return self._segments[number]

    def _ivector_rows(self, number: int) -> int:
        """How many rows of iVectors a stream gives in a segment."""
        inputs = self._requests[min(number, len(self._requests) - 1)].inputs
        return len(inputs[1].indexes) // self.size if len(inputs) > 1 else 0


class _Segment:
    """One segment for so many streams; each has variables of its own, whose arrays stay bound."""

    def __init__(self, sized: _Sized, number: int, ivector_rows: int) -> None:
        self._segments = segments = sized.new_segments()
        self._number = number
        self._size = sized.size
        self._ivector_rows = ivector_rows
        self._next = segments.following(number)
        self._taken = [(name, sized.rows[name]) for name in sized.names[number]]
        self._left = [(name, sized.rows[name]) for name in sized.names[self._next]]

    def run(self, chunks: Sequence[StreamChunk]) -> np.ndarray:
        """The output of chunks, [chunks, output frames, outputs]."""
        segments, count = self._segments, len(chunks)
        segments.go_to(self._number)
        for at, (name, rows) in enumerate(self._taken):
            carried = np.concatenate([chunk.state.rows[at] for chunk in chunks])
            segments.array(name)[rows[:count].reshape(-1)] = carried
        features = [chunk.features for chunk in chunks]
        segments.accept_input("input", self._filled(features), quiet=True)
        if self._ivector_rows:
            ivectors = np.stack([chunk.ivector for chunk in chunks if chunk.ivector is not None])
            repeated = np.repeat(ivectors, self._ivector_rows, axis=0)
            segments.accept_input("ivector", self._filled([repeated], count), quiet=True)
        segments.run()
        for slot, chunk in enumerate(chunks):
            chunk.state.segment = self._next
            chunk.state.rows = [segments.array(name)[rows[slot]] for name, rows in self._left]
        output = segments.get_output("output")
        return output.reshape(self._size, -1, output.shape[1])[:count]

    def _filled(self, parts: Sequence[np.ndarray], streams: int | None = None) -> np.ndarray:
        """The rows of streams, and zeros for those that are missing."""
        rows = np.concatenate(parts)
        each = len(rows) // (streams or len(parts))
        whole = np.zeros((self._size * each, rows.shape[1]), np.float32)
        whole[: len(rows)] = rows
        return whole


def _places(
    computation: Computation, variables: Sequence[str], size: int
) -> Iterator[tuple[str, tuple[_Key, np.ndarray]]]:
    """The variable of each matrix whose rows are known: what it holds, and rows by stream."""
    alike: dict[tuple[int, bytes], int] = {}
    for number, matrix in enumerate(computation.matrices):
        indexes = matrix.indexes
        if indexes is None or not len(indexes):
            continue
        n, t, x = np.asarray(indexes).T
        order = np.lexsort((x, t, n))
        counts = np.unique(n, return_counts=True)[1]
        if len(counts) != size or len(set(counts.tolist())) > 1:
            continue
        rows = order.reshape(size, -1)
        kind = matrix.node, np.stack((t, x), axis=1)[rows[0]].tobytes()
        alike[kind] = alike.get(kind, -1) + 1
        yield variables[number], ((*kind, alike[kind]), rows)
