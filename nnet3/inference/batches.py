"""Chunks of many utterances in full minibatches, as `nnet3-compute-batch` cuts and gathers them.

The last chunk of an utterance ends with it; what the chunk before has computed is left out. The
last frame of an utterance that is shorter than a chunk is repeated. Chunks wait until a minibatch
of one shape is full; those that are left in the end are computed in smaller ones.
Source: Kaldi's `nnet3/nnet-batch-compute.cc`.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np

from ...framework.base.backend import Place
from ...framework.base.errors import OpscopeError, check_kind
from ...framework.base.options.option_fields import option
from ...framework.base.python.cached import cached_property
from ..optimize import OptimizeOptions
from .chunks import ChunkComputer
from .pieces import Chunk, ChunkOptions, Shape, Utterance, check_options


@dataclass(frozen=True)
class BatchOptions(ChunkOptions):
    """The chunks that utterances are cut into, and how many make a minibatch.

    Attributes:
        ensure_exact_final_context: makes a difference for networks that go backwards in time.
        partial_batch_factor: from 0 to below 1; of the numbers of chunks, the least is taken that
            the minibatch fits into.

    Raises:
        OpscopeError: a value is out of range.
    """

    chunks_per_batch: int = option(128, "Chunks that are computed at once", "minibatch-size")
    edge_chunks_per_batch: int = option(
        32,
        "The same for the first and last chunks of utterances, where these have another context",
        "edge-minibatch-size",
    )
    ensure_exact_final_context: bool = option(
        False,
        "Compute utterances shorter than --frames-per-chunk as they are, each by itself, rather"
        " than with their last frame repeated",
    )
    partial_batch_factor: float = option(
        0.5,
        "Minibatches that do not get full are computed for int(factor^n * minibatch-size) chunks,"
        " n = 0, 1, 2 ...; 0: for full ones only",
        "partial-minibatch-factor",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        check_options(self, {"edge_chunks_per_batch": 1})
        check_kind(self.ensure_exact_final_context, bool, "ensure_exact_final_context")
        check_kind(self.partial_batch_factor, float, "partial_batch_factor")
        if not 0 <= self.partial_batch_factor < 1:
            raise OpscopeError(
                f"partial_batch_factor is {self.partial_batch_factor}; it must be at least 0 and"
                " below 1"
            )


@dataclass
class BatchCount:
    """What was computed of minibatches of one shape and size.

    Attributes:
        done: minibatches. chunks: in all of them. seconds: that they took.
    """

    done: int = 0
    chunks: int = 0
    seconds: float = 0.0


@dataclass
class _Waiting:
    """Utterances that are not computed yet, by number: themselves, outputs, chunks to compute."""

    utterances: dict[int, Utterance] = field(default_factory=dict)
    results: dict[int, np.ndarray] = field(default_factory=dict)
    chunks: dict[int, int] = field(default_factory=dict)

    def done(self) -> Iterator[tuple[str, np.ndarray]]:
        """Those that are ready and before which none waits; they are gone then."""
        for number in list(self.utterances):
            if self.chunks[number]:
                return
            del self.chunks[number]
            yield self.utterances.pop(number).key, self.results.pop(number)


class BatchComputer(ChunkComputer):
    """Computes the output of a simple network for many utterances, as `nnet3-compute-batch`.

    Args:
        options: how to cut utterances, and how many chunks to compute at once.
        Others, and errors: as of `ChunkComputer`.

    Attributes:
        counts: what was computed: (shape of chunks, size of minibatches) -> counts.
    """

    options: BatchOptions
    options_type = BatchOptions

    def _lay_out(self, place: Place | None, optimize: bool | OptimizeOptions) -> None:
        super()._lay_out(place, optimize)
        self.counts: dict[tuple[Shape, int], BatchCount] = {}

    def compute_all(self, utterances: Iterable[Utterance]) -> Iterator[tuple[str, np.ndarray]]:
        """Key and output of each utterance, in their order.

        Utterances are read ahead until all chunks of the first one were in a full minibatch.

        Raises:
            ShapeError: as `compute`; the utterance is named.
        """
        waiting = _Waiting()
        alike: dict[tuple[Shape, int], list[Chunk]] = {}
        factor = self.options.frame_subsampling_factor
        for number, utterance in enumerate(self.checked(utterances)):
            total = -(-len(utterance.features) // factor)
            chunks = list(self.chunks(number, utterance))
            waiting.utterances[number] = utterance
            waiting.results[number] = np.empty((total, self.output_dim), np.float32)
            waiting.chunks[number] = len(chunks)
            for chunk in chunks:
                group = chunk.shape, self._full(chunk.shape, self._free(utterance))
                batch = alike.setdefault(group, [])
                batch.append(chunk)
                if len(batch) == group[1]:
                    self._compute_together(*group, alike.pop(group), waiting)
            yield from waiting.done()
        while alike:  # those first that utterances in front wait for
            group = min(alike, key=lambda group: alike[group][0].utterance)
            self._compute_together(*group, alike.pop(group), waiting)
            yield from waiting.done()

    # Cutting

    def chunks(self, number: int, utterance: Utterance) -> Iterator[Chunk]:
        """The chunks of an utterance."""
        if self._free(utterance):
            yield from super().chunks(number, utterance)
            return
        factor = self.options.frame_subsampling_factor
        total = -(-len(utterance.features) // factor)
        size = self.frames_per_chunk // factor
        exact = total < size and self.options.ensure_exact_final_context
        frames = total if exact else size
        for first in range(0, total, size):
            count = min(size, total - first)
            skipped = size - count if first else 0
            shape = self._shape(first == 0, first - skipped + frames >= total, frames)
            yield Chunk(number, first, count, shape, skipped)

    def _free(self, utterance: Utterance) -> bool:
        """Whether its chunks may be of any length."""
        return utterance.online_ivectors is None and self._any_length

    @cached_property
    def _any_length(self) -> bool:
        # Kaldi's last chunk ends with the utterance: it begins at any multiple of the factor.
        options = self.options
        modulus = self.nnet.modulus()
        return options.frame_subsampling_factor % modulus == 0 and super()._any_length

    def _shape(self, begins: bool, ends: bool, frames: int) -> Shape:
        """Of chunks of so many output frames, which are at the ends of an utterance or are not."""
        options = self.options
        left, right = options.extra_left_context, options.extra_right_context
        if begins and options.extra_left_context_initial >= 0:
            left = options.extra_left_context_initial
        if ends and options.extra_right_context_final >= 0:
            right = options.extra_right_context_final
        left += self.left_context
        input_frames = left + frames * options.frame_subsampling_factor + self.right_context + right
        return Shape(left, input_frames, frames)

    @cached_property
    def _inner(self) -> Shape:
        """The shape of chunks that are not at an end."""
        return self._shape(
            False, False, self.frames_per_chunk // self.options.frame_subsampling_factor
        )

    def _middle(self, chunk: Chunk) -> int:
        half = chunk.shape.output_frames // 2
        return (chunk.first - chunk.skipped + half) * self.options.frame_subsampling_factor

    # Computing

    def _full(self, shape: Shape, free: bool) -> int:
        """How many chunks of a shape make a full minibatch."""
        if free:
            return self._most(shape)
        if shape.output_frames < self._inner.output_frames:
            return 1  # one of its own, of an utterance that is computed as it is
        options = self.options
        return options.chunks_per_batch if shape == self._inner else options.edge_chunks_per_batch

    def _compute_together(
        self, shape: Shape, size: int, chunks: list[Chunk], waiting: _Waiting
    ) -> None:
        """Compute chunks of one shape in a minibatch, which may not be full."""
        begin = time.perf_counter()
        factor = np.float32(self.options.partial_batch_factor)
        while len(chunks) < (smaller := int(factor * np.float32(size))):  # rounded as by Kaldi
            size = smaller
        self._compute_batch(shape, chunks, waiting.utterances, waiting.results, size)
        for chunk in chunks:
            waiting.chunks[chunk.utterance] -= 1
        count = self.counts.setdefault((shape, size), BatchCount())
        count.done += 1
        count.chunks += len(chunks)
        count.seconds += time.perf_counter() - begin
