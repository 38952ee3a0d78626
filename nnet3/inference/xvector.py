"""One vector for an utterance of any length: x-vectors.

Source: Kaldi's `nnet3bin/nnet3-xvector-compute.cc`, `nnet3-xvector-compute-batched.cc`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from ...framework.base.errors import OpscopeError, ShapeError
from ...framework.base.sequence import repeated
from ...framework.base.untrusted.limits import check_limit
from ..cache.computers import ComputerCache
from ..graph.request import ComputationRequest, IoSpecification
from ..index.indexes import frame_indexes
from ..network.model_check import refuse_diverged


def xvector(
    cache: ComputerCache,
    features: np.ndarray,
    chunk_size: int = -1,
    min_chunk_size: int = 100,
    pad_input: bool = True,
) -> np.ndarray | None:
    """The output at t = 0 for all frames of `features` [frames, dim], float32.

    Args:
        cache: of the network that is used.
        chunk_size: frames of the pieces that are computed one by one; the result is their mean,
            weighted by their frames. -1: all frames at once.
        min_chunk_size: frames that a piece must have at least.
        pad_input: whether the first and last frames of shorter pieces are repeated; else such
            pieces are left out.

    Returns:
        The vector, or None where all pieces were left out.

    Raises:
        FormatError: parameters of the network are NaN or infinite.
        ShapeError: the features do not fit the network.
        OpscopeError: `chunk_size` is neither -1 nor positive.
    """
    if chunk_size < 1 and chunk_size != -1:
        raise OpscopeError(f"chunk_size is {chunk_size}; it must be positive, or -1 for all frames")
    wanted = cache.nnet.input_dim("input")
    if features.ndim != 2 or not len(features):
        raise ShapeError("features must be a matrix of at least one row")
    if features.shape[1] != wanted:
        raise ShapeError(f"the input wants {wanted} columns, you gave {features.shape[1]}")
    size = len(features) if chunk_size == -1 else min(chunk_size, len(features))
    total = np.zeros(cache.nnet.output_dim("output"), np.float32)
    weight = 0
    for begin in range(0, len(features), size):
        piece = features[begin : begin + size]
        frames = len(piece)
        missing = min_chunk_size - frames
        if missing > 0 and not pad_input:
            continue
        if missing > 0:
            left = missing // 2
            piece = np.pad(piece, ((left, missing - left), (0, 0)), mode="edge")
        total += np.float32(frames) * _output(cache, piece)
        weight += frames
    if not np.isfinite(total).all():
        refuse_diverged(cache.nnet)
    return total / np.float32(weight) if weight else None


def _output(cache: ComputerCache, piece: np.ndarray) -> np.ndarray:
    indexes = frame_indexes(1, np.arange(len(piece)))
    output = IoSpecification("output", np.zeros((1, 3), np.int32))
    computer = cache.computer(ComputationRequest([IoSpecification("input", indexes)], [output]))
    computer.accept_input("input", piece, quiet=True)
    computer.run()
    return computer.get_output("output")[0]


@dataclass
class _Task:
    """An utterance of which some chunks are not computed yet; the mean of their vectors so far."""

    key: str
    chunks: int
    mean: np.ndarray
    done: int = 0


class XvectorBatches:
    """Vectors of many utterances: means of the vectors of chunks that are computed at once.

    Args:
        cache: of the network that is used, whose context lies within each chunk.
        chunk_size: input frames of each chunk. batch_size: chunks of a minibatch.
        pad_input: whether the last frame of utterances shorter than a chunk is repeated; else they
            have no vector.

    Raises:
        OpscopeError: a size is too small, or a minibatch beyond the limit `chunk`.
    """

    def __init__(
        self,
        cache: ComputerCache,
        chunk_size: int = 150,
        batch_size: int = 32,
        pad_input: bool = True,
    ) -> None:
        self._cache = cache
        self.context = cache.nnet.context()
        least = sum(self.context) + 1
        if chunk_size < least or batch_size < 1:
            raise OpscopeError(
                f"chunks of {chunk_size} frames, {batch_size} at once: the network wants {least}"
                " frames or more, at least one chunk"
            )
        check_limit("chunk", chunk_size * batch_size, "chunk_size times batch_size")
        self._chunk_size = chunk_size
        self._batch_size = batch_size
        self._pad_input = pad_input
        times = repeated(np.arange(chunk_size), batch_size)
        chunks = np.tile(np.arange(batch_size), chunk_size)
        indexes = np.stack((chunks, times, times * 0), axis=1)
        outputs = frame_indexes(batch_size, np.zeros(1, np.int64))
        self._request = ComputationRequest(
            [IoSpecification("input", indexes)], [IoSpecification("output", outputs)]
        )

    def compute_all(
        self, utterances: Iterable[tuple[str, np.ndarray]]
    ) -> Iterator[tuple[str, np.ndarray | None]]:
        """Key and vector, float32, of each utterance, in their order; None: it is too short.

        Args:
            utterances: keys and features, [frames, dim], of at least one frame.

        Raises:
            FormatError: parameters of the network are NaN or infinite.
            ShapeError: features do not fit the network; the utterance is named.
        """
        nnet = self._cache.nnet
        wanted, dim = nnet.input_dim("input"), nnet.output_dim("output")
        context = sum(self.context)
        waiting: deque[_Task] = deque()
        batch: list[tuple[_Task, np.ndarray]] = []
        for key, features in utterances:
            if features.shape[1] != wanted:
                raise ShapeError(
                    f"{key}: the input wants {wanted} columns, you gave {features.shape[1]}"
                )
            starts = chunk_starts(len(features), self._chunk_size, context, self._pad_input)
            task = _Task(key, len(starts), np.zeros(dim, np.float32))
            waiting.append(task)
            for start in starts:
                rows = np.arange(start, start + self._chunk_size)
                batch.append((task, np.take(features, rows, axis=0, mode="clip")))
                if len(batch) == self._batch_size:
                    self._compute(batch)
                    batch = []
            yield from _finished(waiting)
        if batch:
            self._compute(batch)
        yield from _finished(waiting)

    def _compute(self, batch: list[tuple[_Task, np.ndarray]]) -> None:
        """Compute a minibatch, which the end of the input may leave partly empty."""
        nnet = self._cache.nnet
        dim = nnet.input_dim("input")
        rows = np.zeros((self._chunk_size, self._batch_size, dim), np.float32)
        for number, (_, piece) in enumerate(batch):
            rows[:, number] = piece
        computer = self._cache.computer(self._request)
        computer.accept_input("input", rows.reshape(-1, dim), quiet=True)
        computer.run()
        vectors = computer.get_output("output")[: len(batch)]
        if not np.isfinite(vectors).all():
            refuse_diverged(nnet)
        for (task, _), vector in zip(batch, vectors, strict=True):
            task.mean += np.float32(1 / task.chunks) * vector
            task.done += 1


def _finished(waiting: deque[_Task]) -> Iterator[tuple[str, np.ndarray | None]]:
    """The utterances that are done and before which none waits; they are gone then."""
    while waiting and waiting[0].done == waiting[0].chunks:
        task = waiting.popleft()
        yield task.key, task.mean if task.chunks else None


def chunk_starts(frames: int, size: int, context: int, pad: bool = True) -> list[int]:
    """The first frames of the chunks of an utterance.

    Chunks that overlap by the context put each frame into one mean. Where that does not come out
    even, chunks have gaps between them and at both ends, or overlap by more: whichever gives a mean
    of less variance, were frames independent.

    Args:
        frames: of the utterance. size: of each chunk. context: of the network, below `size`.
        pad: whether an utterance shorter than a chunk has one.
    """
    if frames <= size:
        return [0] if pad or frames == size else []
    step, inner = size - context, frames - context
    fewer = inner // step
    more = fewer + 1
    missing = more * step - inner  # frames that are in two means
    spread = (inner - missing + 4.0 * missing) / (inner + missing) ** 2
    if np.float32(1 / (fewer * step)) <= np.float32(spread):
        gaps = np.cumsum(_pieces(inner - fewer * step, fewer + 1))
        return (np.arange(fewer) * step + gaps[:-1]).tolist()
    overlaps = np.cumsum([0, *_pieces(missing, more - 1)])
    return (np.arange(more) * step - overlaps).tolist()


def _pieces(total: int, count: int) -> list[int]:
    """A number as the sum of `count` numbers that differ by 1 at most, smaller ones first."""
    each, rest = divmod(total, count)
    return [each] * (count - rest) + [each + 1] * rest
