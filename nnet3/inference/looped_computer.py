"""Computing a stream: frames come bit by bit, and every one of them is computed once.

The output equals the output of Kaldi's looped decodables. It also equals the output for whole
utterances where the network reads no further back than there: a TDNN always, an LSTM as its state
continues from chunk to chunk. Source: Kaldi's decodable-simple-looped.cc and
decodable-online-looped.cc.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol

import numpy as np

from ...framework.base.backend import Place
from ...framework.base.errors import OpscopeError, ShapeError
from ...framework.base.options.settings import Options, read_options
from ...framework.base.scope import Scope
from ...framework.passes.precision.to_dtype import ToFloat64
from ...framework.runtime.plain_net import PlainNet
from ..cache.structure import structure
from ..compiler.computation import Computation
from ..compiler.verbose import VERBOSE
from ..graph.request import ComputationRequest
from ..lower.spans import lower_with_spans
from ..optimize import OptimizeOptions
from ..run.input_arrays import float_array, warn_of_nan
from ..run.segment_computer import SegmentComputer
from .chunks import UtteranceComputer
from .looped import (
    compile_looped,
    loop_computation,
    looped_computation,
    looped_passes,
    looped_requests,
    with_ivector_period,
)
from .pieces import LoopedOptions, Utterance

_STEPS = 1024.0
"""In one, of a reproducible output: what float64 rounds is 1e-9 of a step, and hardly ever changes
a value to the next one."""


class LoopedComputer(UtteranceComputer):
    """Computes the output of a simple network for streams.

    Example:
        computer = LoopedComputer("final.mdl", LoopedOptions(frames_per_chunk=20))
        stream = computer.stream()
        for frames in microphone:
            scores.append(stream.accept(frames))  # as many rows as are ready, perhaps none
        scores.append(stream.finish())

    Attributes:
        runners: makes what runs the chunks of a new stream; None: each stream runs its own.

    Args:
        options: how to cut the stream.
        reproducible: compute in float64, and round the output to 1/1024: the same bits then,
            whatever the processor, the libraries and the number of threads are.
        model, priors, place, optimize, test_mode, collapse: as `ChunkComputer` takes them.

    Raises:
        FormatError: as `ChunkComputer`.
        ShapeError: the network is not simple, see `Nnet.is_simple`, or the priors do not fit it.
        OpscopeError: the network cannot be computed chunk by chunk.
    """

    options: LoopedOptions
    options_type = LoopedOptions

    def __init__(self, *args: Any, reproducible: bool = False, **rest: Any) -> None:
        self.reproducible = reproducible
        self.runners: Callable[[], ChunkRunner] | None = None
        super().__init__(*args, **rest)

    def _lay_out(self, place: Place | None, optimize: bool | OptimizeOptions) -> None:
        self.left_context += self.options.extra_left_context_initial
        topology = self.nnet.topology()
        self._ivector_period = 0
        if self.ivector_dim:
            self._ivector_period = self.frames_per_chunk
            topology = with_ivector_period(topology, self._ivector_period)
        self._topology, self._optimize = topology, optimize
        self.requests = self._requests(1)
        self._traced: dict[str, Any] = {}
        listener = VERBOSE.get()
        if listener is not None and listener.tells_commands:
            computation = loop_computation(topology, self.requests, looped_passes(optimize))
            compiled, spans = lower_with_spans(computation)
            self._traced = {"spans": spans, "say": listener.log}
        else:
            compiled = compile_looped(topology, self.requests, optimize, self._structure)
        if self.reproducible:
            compiled = ToFloat64().apply(compiled)
        self._net = PlainNet(compiled, check=False)
        self._shared = Scope(place)
        self._idle: dict[Options, list[SegmentComputer]] = {}  # by the options of their plans

    def _requests(self, sequences: int) -> list[ComputationRequest]:
        return looped_requests(
            self.frames_per_chunk,
            self.left_context,
            self.right_context,
            self.options.frame_subsampling_factor,
            self._ivector_period,
            sequences,
        )

    def looped(self, sequences: int) -> tuple[list[ComputationRequest], Computation]:
        """The computation of so many streams at once, and the requests that it was made of."""
        requests = self._requests(sequences)
        known = self._topology, requests, self._optimize, self._structure
        return requests, looped_computation(*known)

    def _structure(self) -> str:
        return f"{structure(self.nnet)} iVectors by {self._ivector_period}"

    def segments(self, net: PlainNet, **traced: Any) -> SegmentComputer:
        """What runs a net of `looped`, with the network's parameters, which all share."""
        return SegmentComputer(net, self.nnet, shared=self._shared, **traced)

    def scored(self, output: np.ndarray) -> np.ndarray:
        """Log-likelihoods of an output of the network, which is changed."""
        if self.log_priors is not None:
            output -= self.log_priors
        if self.options.acoustic_scale != 1:
            output *= np.float32(self.options.acoustic_scale)
        if self.reproducible:
            output = (np.rint(output * _STEPS) / _STEPS).astype(np.float32)
        return output

    def stream(self) -> Stream:
        """A new stream; all streams of a computer share the network's parameters.

        What a stream computes with is laid out once, and taken over from one that is gone.
        """
        if self.runners is not None:
            return Stream(self, self.runners())
        idle = self._idle.setdefault(read_options(), [])
        try:
            segments = idle.pop()
        except IndexError:
            segments = self.segments(self._net, **self._traced)
        stream = Stream(self, _Alone(self, segments))
        weakref.finalize(stream, idle.append, segments).atexit = False
        return stream

    def compute_all(self, utterances: Iterable[Utterance]) -> Iterator[tuple[str, np.ndarray]]:
        """Key and output of each utterance, one after the other.

        Of online iVectors each chunk takes the latest that there is with its last input frame.

        Raises:
            ShapeError: as `compute`; the utterance is named.
        """
        stream = self.stream()
        for utterance in self.checked(utterances):
            yield utterance.key, stream.whole(utterance)


class ChunkRunner(Protocol):
    """Runs the chunks of a stream one after the other."""

    def reset(self) -> None:
        """A new stream begins."""
        ...

    def run(self, frames: np.ndarray, ivector: np.ndarray | None) -> np.ndarray:
        """Log-likelihoods of the next chunk.

        Args:
            frames: [frames, dim], with the context on the left in the first chunk, and on the
                right. ivector: [dim].
        """
        ...


class _Alone:
    """Runs the chunks of one stream by itself; see `ChunkRunner`."""

    def __init__(self, computer: LoopedComputer, segments: SegmentComputer) -> None:
        self._computer = computer
        self._segments = segments
        self.reset()

    def reset(self) -> None:
        self._segments.reset()
        self._chunks = 0

    def run(self, frames: np.ndarray, ivector: np.ndarray | None) -> np.ndarray:
        computer, segments = self._computer, self._segments
        segments.accept_input("input", frames, quiet=True)
        if computer.ivector_dim:
            assert ivector is not None
            request = computer.requests[min(self._chunks, 1)]
            rows = len(request.inputs[1].indexes)
            segments.accept_input("ivector", np.tile(ivector, (rows, 1)), quiet=True)
        segments.run()
        self._chunks += 1
        return computer.scored(segments.get_output("output"))


class Stream:
    """One stream of frames, see `LoopedComputer`."""

    def __init__(self, computer: LoopedComputer, runner: ChunkRunner) -> None:
        self._computer = computer
        self._runner = runner
        self.reset()

    def reset(self) -> None:
        """Forget all frames: a new stream begins."""
        computer = self._computer
        self._runner.reset()
        self._pending = np.empty((0, computer.input_dim), np.float32)
        self._ivector: np.ndarray | None = None
        self._chunks = 0
        self._frames = 0
        self._finished = False

    @property
    def _wanted(self) -> int:
        """Input frames of the next chunk."""
        computer = self._computer
        if self._chunks:
            return computer.frames_per_chunk
        return computer.left_context + computer.frames_per_chunk + computer.right_context

    @property
    def lacking(self) -> int:
        """How many more input frames the next chunk wants; 0 or less: it can be computed."""
        copies = 0 if self._frames else self._computer.left_context
        return self._wanted - len(self._pending) - copies

    def accept(self, features: np.ndarray, ivector: np.ndarray | None = None) -> np.ndarray:
        """Takes the next frames, and gives the output frames that can be computed now.

        Args:
            features: [frames, dim]: any number of frames.
            ivector: for the chunks from now on; the first call must give one where the network
                wants it.

        Returns:
            float32 [output frames, output dim]: those after the ones that earlier calls gave.

        Raises:
            ShapeError: features or iVector are not as wide as the network wants them.
            OpscopeError: the stream is finished.
        """
        self._check_open()
        computer = self._computer
        features = float_array(features, "stream: features")
        if ivector is not None:
            self._ivector = float_array(ivector, "stream: ivector")
        if len(features):
            Utterance("stream", features, self._ivector).check(
                computer.input_dim, computer.ivector_dim
            )
            warn_of_nan(features, "stream: features", self._frames, "frame")
        elif features.ndim != 2:
            raise ShapeError("stream: features must be a matrix")
        else:
            return self._outputs([])
        if not self._frames:
            self._pending = np.repeat(features[:1], computer.left_context, axis=0)
        self._frames += len(features)
        self._pending = np.concatenate((self._pending, features))
        self._last = features[-1:]
        outputs = []
        begin = 0
        while begin + self._wanted <= len(self._pending):
            end = begin + self._wanted
            outputs.append(self._advance(self._pending[begin:end], self._ivector))
            begin = end
        self._pending = self._pending[begin:]
        return self._outputs(outputs)

    def finish(self) -> np.ndarray:
        """The rest of the output: the right context of the last frame is copies of it.

        Raises:
            OpscopeError: the stream is finished already.
        """
        self._check_open()
        self._finished = True
        computer = self._computer
        outputs = []
        factor = computer.options.frame_subsampling_factor
        size = computer.frames_per_chunk // factor
        left = -(-self._frames // factor) - self._chunks * size
        while left > 0:
            missing = max(self._wanted - len(self._pending), 0)
            padding = np.repeat(self._last, missing, axis=0)
            chunk = np.concatenate((self._pending[: self._wanted], padding))
            self._pending = self._pending[len(chunk) :]
            outputs.append(self._advance(chunk, self._ivector)[:left])
            left -= size
        return self._outputs(outputs)

    def whole(self, utterance: Utterance) -> np.ndarray:
        """The output for a whole utterance, which has been checked; the stream restarts."""
        self.reset()
        computer, features = self._computer, utterance.features
        factor = computer.options.frame_subsampling_factor
        total = -(-len(features) // factor)
        outputs = []
        begin = -computer.left_context
        for _ in range(-(-total * factor // computer.frames_per_chunk)):
            end = begin + self._wanted
            ivector = utterance.ivector
            if utterance.online_ivectors is not None:
                listed = utterance.online_ivectors
                ivector = listed[min(end // utterance.ivector_period, len(listed) - 1)]
            chunk = np.take(features, np.arange(begin, end), axis=0, mode="clip")
            outputs.append(self._advance(chunk, ivector))
            begin = end
        return self._outputs(outputs)[:total]

    def _advance(self, frames: np.ndarray, ivector: np.ndarray | None) -> np.ndarray:
        """The output of the next chunk."""
        output = self._runner.run(frames, ivector)
        self._chunks += 1
        return output

    def _outputs(self, parts: list[np.ndarray]) -> np.ndarray:
        if len(parts) == 1:
            return parts[0]
        return np.concatenate([np.empty((0, self._computer.output_dim), np.float32), *parts])

    def _check_open(self) -> None:
        if self._finished:
            raise OpscopeError("the stream is finished; reset() begins a new one")
