"""Computing whole utterances in chunks; chunks of many utterances run at once.

A chunk is a number of output frames with the input frames that these need: the context of the
network and, where wanted, more. Frames before the first and after the last of an utterance are
copies of these. Time is counted from the first output frame of the chunk, so that equal chunks are
computed by the same compiled computation. A short last chunk is made as long as the others and the
rest of its output left out, unless the network would take the further frames into account.
Source: Kaldi's `nnet3/nnet-am-decodable-simple.cc`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import ClassVar, TypeVar

import numpy as np

from ...framework.base.backend import Place
from ...framework.base.errors import ShapeError, check_kind
from ...framework.base.python.cached import cached_property, new_lock
from ..cache.computers import ComputerCache
from ..graph.context import reads_further
from ..graph.graph import NotComputableError
from ..graph.request import ComputationRequest, IoSpecification
from ..index.indexes import frame_indexes
from ..network.for_inference import Model, chosen_priors, for_inference, opened
from ..network.model_check import refuse_diverged
from ..optimize import OptimizeOptions
from ..run.input_arrays import float_array
from .chunk_lengths import KALDIS_CHUNK, chunk_lengths, rounded_up
from .pieces import Chunk, ChunkOptions, LoopedOptions, Shape, Utterance
from .priors import log_priors

# Online iVectors may end that many frames before the features do.
_MAX_IVECTOR_MARGIN = 50
# Whole batches of utterances are gathered before any is computed, so that batches get full.
_BATCHES_AHEAD = 4

Entry = TypeVar("Entry")
Numbered = Sequence[Entry] | Mapping[int, Entry]
"""Entries by the number of an utterance."""


class UtteranceComputer(ABC):
    """Computes the output of a simple network for whole utterances, chunk by chunk.

    Args:
        options: how to cut utterances, of `options_type`.
        Others: as of `ChunkComputer`.

    Attributes:
        nnet: the network that is computed: in test mode, with joined components.
        frames_per_chunk: input frames of a chunk, a multiple that suits the network.
    """

    options: ChunkOptions | LoopedOptions
    options_type: ClassVar[type[ChunkOptions | LoopedOptions]]
    left_context: int
    right_context: int

    def __init__(
        self,
        model: Model,
        options: ChunkOptions | LoopedOptions | None = None,
        priors: np.ndarray | bool | None = None,
        place: Place | None = None,
        optimize: bool | OptimizeOptions = True,
        *,
        test_mode: bool = True,
        collapse: bool = True,
    ) -> None:
        check_kind(options, self.options_type | None, "options")
        check_kind(priors, np.ndarray | Sequence | bool | None, "priors")
        self.options = options = options or self.options_type()
        model = opened(model)
        self.nnet = nnet = for_inference(model, test_mode, collapse)
        self.left_context, self.right_context = nnet.context()
        step = math.lcm(options.frame_subsampling_factor, nnet.modulus())
        self.frames_per_chunk = -(-(options.frames_per_chunk or KALDIS_CHUNK) // step) * step
        self.output_dim = nnet.output_dim("output")
        refuse_diverged(nnet)
        self.input_dim = nnet.input_dim("input")
        self.ivector_dim = max(nnet.input_dim("ivector"), 0)
        self.log_priors = log_priors(chosen_priors(priors, model), self.output_dim)
        self._lay_out(place, optimize)

    @abstractmethod
    def _lay_out(self, place: Place | None, optimize: bool | OptimizeOptions) -> None:
        """Make what computes the network."""

    def compute(
        self,
        features: np.ndarray,
        ivector: np.ndarray | None = None,
        online_ivectors: np.ndarray | None = None,
        ivector_period: int = 0,
    ) -> np.ndarray:
        """The output for one utterance, float32; see `Utterance` for the arguments.

        Raises:
            ShapeError: features or iVectors are not as wide as the network wants them, or too few.
        """
        key = "utterance"
        vectors = {"ivector": ivector, "online_ivectors": online_ivectors}
        one, online = (
            None if value is None else float_array(value, f"{key}: {name}")
            for name, value in vectors.items()
        )
        features = float_array(features, f"{key}: features")
        utterance = Utterance(key, features, one, online, ivector_period)
        return next(self.compute_all([utterance]))[1]

    def checked(self, utterances: Iterable[Utterance]) -> Iterator[Utterance]:
        """The utterances, each checked before it comes; of NaN and infinities it is warned."""
        check_kind(utterances, Iterable, "utterances")
        for utterance in utterances:
            check_kind(utterance, Utterance, "each utterance")
            utterance.check(self.input_dim, self.ivector_dim)
            utterance.warn_of_nan()
            yield utterance

    @abstractmethod
    def compute_all(self, utterances: Iterable[Utterance]) -> Iterator[tuple[str, np.ndarray]]:
        """Key and output of each utterance, in their order.

        Raises:
            ShapeError: as `compute`; the utterance is named.
        """


class ChunkComputer(UtteranceComputer):
    """Computes the output of a simple network for utterances of any lengths, as `nnet3-compute`.

    Example:
        computer = ChunkComputer("final.mdl", ChunkOptions(frames_per_chunk=100))
        scores = computer.compute(features)

    Args:
        model: a network, an acoustic model (`AmNnetSimple`), or the path of a file that holds one
            of them, raw or `.mdl`, binary or text. It is not changed; its arrays are used where
            they are, and must not change meanwhile.
        options: how to cut utterances.
        priors: probabilities whose logarithms are subtracted from the output; True: those that the
            acoustic model holds; None: nothing is subtracted.
        place: where to compute; the CPU by default.
        optimize: as `compile_request` takes it.
        test_mode: batch normalization takes its statistics, and dropout does nothing. False: each
            component computes in its current mode, usually the training mode.
        collapse: components are joined where that saves work, as Kaldi's programs do it.

    Raises:
        FormatError: the file cannot be read, or the network was not trained: batch normalization
            has no statistics.
        ShapeError: the network is not simple, see `Nnet.is_simple`, or the priors do not fit it.
    """

    options: ChunkOptions
    options_type = ChunkOptions

    def _lay_out(self, place: Place | None, optimize: bool | OptimizeOptions) -> None:
        self._cache = ComputerCache(self.nnet, place, optimize)
        self._computing = new_lock()  # of a computer, which holds inputs and outputs

    def compute_all(self, utterances: Iterable[Utterance]) -> Iterator[tuple[str, np.ndarray]]:
        """Key and output of each utterance, in their order.

        Chunks of several utterances are computed together; so some utterances are read ahead.

        Raises:
            ShapeError: as `compute`; the utterance is named.
        """
        waiting: list[Utterance] = []
        frames = 0
        for utterance in self.checked(utterances):
            waiting.append(utterance)
            frames += len(utterance.features)
            if frames >= self.frames_ahead:
                yield from self._compute_waiting(waiting)
                waiting = []
                frames = 0
        yield from self._compute_waiting(waiting)

    @property
    def frames_ahead(self) -> int:
        """Utterances are gathered until they have so many frames, and then computed together."""
        if self.options.chunks_per_batch == 1:
            return 1
        return _BATCHES_AHEAD * self.options.chunks_per_batch * self.frames_per_chunk

    # Cutting

    def chunks(self, number: int, utterance: Utterance) -> Iterator[Chunk]:
        """The chunks of an utterance."""
        options = self.options
        factor = options.frame_subsampling_factor
        total = -(-len(utterance.features) // factor)
        size = self.frames_per_chunk // factor
        if total > size and utterance.online_ivectors is None and self._any_length:
            yield from self._long_chunks(number, total, size, factor)
            return
        for first in range(0, total, size):
            count = min(size, total - first)
            left, right = options.extra_left_context, options.extra_right_context
            if first == 0 and options.extra_left_context_initial >= 0:
                left = options.extra_left_context_initial
            frames = count
            if first + count == total:
                if not self._reads_further_ahead:
                    frames = size if first else rounded_up(count, size)
                elif options.extra_right_context_final >= 0:
                    right = options.extra_right_context_final
            left += self.left_context
            input_frames = left + (frames - 1) * factor + 1 + self.right_context + right
            yield Chunk(number, first, count, Shape(left, input_frames, frames))

    def _long_chunks(self, number: int, total: int, size: int, factor: int) -> Iterator[Chunk]:
        """Chunks of lengths at which all together cost least."""
        first = 0
        context = self.left_context + self.right_context
        for length in chunk_lengths(total, size, factor, context):
            input_frames = self.left_context + (length - 1) * factor + 1 + self.right_context
            shape = Shape(self.left_context, input_frames, length)
            yield Chunk(number, first, min(length, total - first), shape)
            first += length

    @cached_property
    def _any_length(self) -> bool:
        """Whether chunks may be as long as suits us: the output is the same."""
        options, nnet = self.options, self.nnet
        extra = (options.extra_left_context, options.extra_right_context)
        ends = (options.extra_left_context_initial, options.extra_right_context_final)
        if options.frames_per_chunk is not None or any(extra) or max(ends) > 0:
            return False
        context = self.left_context, self.right_context
        return not reads_further(nnet.topology(), nnet.modulus(), *context, back=True)

    @cached_property
    def _reads_further_ahead(self) -> bool:
        nnet = self.nnet
        context = self.left_context, self.right_context
        return reads_further(nnet.topology(), nnet.modulus(), *context)

    def _input(self, chunk: Chunk, features: np.ndarray, out: np.ndarray) -> None:
        first = (chunk.first - chunk.skipped) * self.options.frame_subsampling_factor
        begin = first - chunk.shape.left_context
        end = begin + chunk.shape.input_frames
        if begin >= 0 and end <= len(features):
            out[:] = features[begin:end]
        else:
            out[:] = np.take(features, np.arange(begin, end), axis=0, mode="clip")

    def _ivector(self, chunk: Chunk, utterance: Utterance) -> np.ndarray:
        """The one iVector, or the online iVector for the middle of the chunk."""
        online, period = utterance.online_ivectors, utterance.ivector_period
        if online is None:
            assert utterance.ivector is not None
            return utterance.ivector
        frame = self._middle(chunk)
        last = min(frame, len(utterance.features) - 1)
        beyond = last // period - (len(online) - 1)
        if beyond > 0 and beyond * period > _MAX_IVECTOR_MARGIN:
            raise ShapeError(
                f"{utterance.key}: there is no iVector for frame {last}; {len(online)} iVectors,"
                f" one for every {period} frames, are given"
            )
        return online[min(frame // period, len(online) - 1)]

    def _middle(self, chunk: Chunk) -> int:
        """The input frame whose online iVector a chunk takes."""
        factor = self.options.frame_subsampling_factor
        return chunk.first * factor + (chunk.count - 1) * factor // 2

    # Computing

    def _compute_waiting(self, waiting: list[Utterance]) -> Iterator[tuple[str, np.ndarray]]:
        factor = self.options.frame_subsampling_factor
        results = [
            np.empty((-(-len(u.features) // factor), self.output_dim), np.float32) for u in waiting
        ]
        alike: dict[Shape, list[Chunk]] = {}
        for number, utterance in enumerate(waiting):
            for chunk in self.chunks(number, utterance):
                alike.setdefault(chunk.shape, []).append(chunk)
        for shape, chunks in alike.items():
            begin = 0
            while begin < len(chunks):
                size = self._batch_size(len(chunks) - begin, shape)
                self._compute_batch(shape, chunks[begin : begin + size], waiting, results)
                begin += size
        for utterance, result in zip(waiting, results, strict=True):
            yield utterance.key, result

    def _batch_size(self, left: int, shape: Shape) -> int:
        """The size of the next batch: full, or a power of two, so that few sizes are compiled."""
        most = self._most(shape)
        return most if left >= most else 1 << (left.bit_length() - 1)

    def _most(self, shape: Shape) -> int:
        """The size of a full batch; of chunks that are longer than the shortest there are fewer."""
        longer = shape.output_frames * self.options.frame_subsampling_factor / self.frames_per_chunk
        return max(1, int(self.options.chunks_per_batch / max(longer, 1)))

    def _compute_batch(
        self,
        shape: Shape,
        chunks: Sequence[Chunk],
        waiting: Numbered[Utterance],
        results: Numbered[np.ndarray],
        size: int = 0,
    ) -> None:
        """Compute chunks of a shape, and write what is wanted of them.

        Args:
            size: chunks that the computation is for, where it is for more than are given.
        """
        size = max(size, len(chunks))
        request = self.request(shape, size)
        try:
            with self._computing:
                self._cache.computer(request)
        except NotComputableError as error:
            one = waiting[chunks[0].utterance]
            message = f"{one.key}: {len(one.features)} rows: {error}"
            raise NotComputableError(message, error.explanation) from error
        frames = np.empty((size, shape.input_frames, self.input_dim), np.float32)
        frames[len(chunks) :] = 0
        for chunk, rows in zip(chunks, frames, strict=False):
            self._input(chunk, waiting[chunk.utterance].features, rows)
        inputs = {"input": frames.reshape(-1, self.input_dim)}
        if self.ivector_dim:
            inputs["ivector"] = np.zeros((size, self.ivector_dim), np.float32)
            for chunk, row in zip(chunks, inputs["ivector"], strict=False):
                row[:] = self._ivector(chunk, waiting[chunk.utterance])
        with self._computing:
            computer = self._cache.computer(request)  # other threads may have had it dropped
            for name, matrix in inputs.items():
                computer.accept_input(name, matrix, quiet=True)
            computer.run()
            output = computer.get_output("output", copy=False)
            of_chunks = output.reshape(size, -1, self.output_dim)
            for chunk, rows in zip(chunks, of_chunks, strict=False):
                wanted = rows[chunk.skipped : chunk.skipped + chunk.count]
                self._put(wanted, results[chunk.utterance][chunk.first :])

    def _put(self, rows: np.ndarray, out: np.ndarray) -> None:
        """Write output rows, less the priors and scaled, to the first rows of `out`."""
        out = out[: len(rows)]
        if self.log_priors is None:
            out[:] = rows
        else:
            np.subtract(rows, self.log_priors, out=out)
        if self.options.acoustic_scale != 1:
            out *= np.float32(self.options.acoustic_scale)

    def request(self, shape: Shape, count: int) -> ComputationRequest:
        """The request for `count` chunks of a shape; chunk n has the indexes (n, t, 0)."""
        begin = -shape.left_context
        times = np.arange(begin, begin + shape.input_frames)
        inputs = [IoSpecification("input", frame_indexes(count, times))]
        if self.ivector_dim:
            inputs.append(IoSpecification("ivector", frame_indexes(count, np.zeros(1, np.int64))))
        outputs = np.arange(shape.output_frames) * self.options.frame_subsampling_factor
        return ComputationRequest(
            inputs, [IoSpecification("output", frame_indexes(count, outputs))]
        )
