"""nnet3 networks as checked ONNX files, whole utterances or streams."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ....framework.base.errors import OpscopeError, ShapeError
from ....nnet3.cache.computers import ComputerCache
from ....nnet3.graph.request import ComputationRequest, IoSpecification
from ....nnet3.inference.chunks import ChunkComputer
from ....nnet3.inference.in_dtype import in_float64
from ....nnet3.inference.pieces import ChunkOptions
from ....nnet3.inference.priors import log_priors
from ....nnet3.inference.xvector import xvector
from ....nnet3.network.for_inference import Model, chosen_priors, for_inference, nnet_of, opened
from ....nnet3.network.model import AmNnetSimple
from ....nnet3.network.simple_request import simple_request
from ...inference.cases import Case, Values
from ...inference.form import ExportError
from ..files.graph import Graph, plain_name
from ..from_nnet3.export import nnet3_graph
from ..from_nnet3.inputs import Inputs, joined_inputs
from ..from_nnet3.streams import Stream
from .checking import Run

_FRAMES = (1, 7, 40)
"""Lengths of random utterances."""
_WHOLE = (25, 400)
"""The same where a network wants a window of frames."""
_CHUNK = 9
"""Frames of a chunk of a stream, or the next multiple of the subsampling."""
Compute = Callable[[np.ndarray, np.ndarray | None], np.ndarray]


@dataclass(frozen=True)
class Nnet3Options:
    """What only nnet3 networks have; see `nnet3_graph`. A factor of None is 1."""

    streaming: bool = False
    frame_subsampling_factor: int | None = None
    priors: np.ndarray | bool | None = None
    acoustic_scale: float = 1.0
    whole: bool = False

    def changed(self) -> list[str]:
        """The names of what is not the default."""
        usual = vars(Nnet3Options())
        return [
            name
            for name, value in vars(self).items()
            if value is not usual[name]
            and not (isinstance(value, (int, float)) and value == usual[name])
        ]


def nnet3_export(
    model: Model,
    outputs: Sequence[str] | None,
    opset: int,
    name: str,
    options: Nnet3Options,
    given: Sequence[Values],
) -> tuple[Graph, list[Case], Callable[[], list[Case]]]:
    """The graph of a network, and inputs with the outputs that they have here.

    Args:
        given: real inputs, `input` as [frames, dim] or [1, frames, dim], `ivector` as [dim] or
            [1, dim].

    Returns:
        The graph, the cases, and what gives the same cases as they are computed in float64 (their
        outputs are then rounded), to be asked where rounding matters.

    Raises:
        NotExportedError: parts have no form in ONNX; all are named.
        ExportError: an output other than `output` is asked for, which nothing here computes alone.
        ShapeError: real inputs do not fit.
    """
    if outputs not in (None, ("output",)):
        raise ExportError(
            f"ONNX: of an nnet3 network 'output' is exported, not {', '.join(outputs or ())};"
            " opscope.bridges.onnx.from_nnet3 exports others, unchecked"
        )
    if options.frame_subsampling_factor is None:
        options = replace(options, frame_subsampling_factor=1)
    network = opened(model)
    graph = nnet3_graph(network, opset=opset, name=name or "nnet3", **vars(options))
    nnet, inputs = joined_inputs(nnet_of(network))
    if isinstance(network, AmNnetSimple):
        network = copy.copy(network)
        network.nnet = nnet
    else:
        network = nnet
    read = {info.name for info in graph.message.input}
    utterances = [*(_utterance(each, inputs) for each in given), *_random(inputs, options.whole)]
    compute = _compute(network, options)
    cases: list[Case] = []
    computed: list[tuple[np.ndarray, np.ndarray | None]] = []
    for number, (features, ivector) in enumerate(utterances):
        try:
            wanted = compute(features, ivector)
        except ShapeError:
            if number < len(given):
                raise
            continue  # fewer frames than the network's window
        cases.append((_inputs(features, ivector, inputs, read), {"output": wanted[None]}))
        computed.append((features, ivector))
    if not cases:
        raise ExportError(f"ONNX: the network wants more than {_WHOLE[-1]} frames; give real ones")

    def in_double() -> list[Case]:
        values = [_in_double(network, options, *each)[None] for each in computed]
        return [(case[0], {"output": value}) for case, value in zip(cases, values, strict=True)]

    return graph, cases, in_double


def as_stream(graph: Graph, run: Run) -> Run:
    """A function that runs a streaming graph chunk by chunk, from whole inputs to whole outputs."""
    stream = Stream.of(graph.metadata)
    size = -(-_CHUNK // stream.subsampling) * stream.subsampling
    names = ["output", *(f"new_{cache}" for cache in stream.caches)]

    def whole(_: list[str], inputs: dict[str, np.ndarray]) -> list[np.ndarray]:
        features = np.concatenate([inputs[name] for name in stream.names], axis=2)
        caches = stream.initial_caches(features)
        parts = []
        for chunk in stream.chunks(features, size):
            part, *new = run(names, {**inputs, **caches, **stream.feeds(chunk)})
            caches = dict(zip(stream.caches, new, strict=True))
            parts.append(part)
        return [np.concatenate(parts, axis=1)]

    return whole


def _compute(network: Any, options: Nnet3Options) -> Compute:
    if options.whole:
        cache = ComputerCache(for_inference(network))
        return lambda features, _: _row(xvector(cache, features, min_chunk_size=1))
    step = options.frame_subsampling_factor
    assert step is not None  # filled in

    def compute(features: np.ndarray, ivector: np.ndarray | None) -> np.ndarray:
        frames = -(-len(features) // step) * step
        chunks = ChunkOptions(
            frames_per_chunk=frames,
            frame_subsampling_factor=step,
            acoustic_scale=options.acoustic_scale,
        )
        return ChunkComputer(network, chunks, options.priors).compute(features, ivector)

    return compute


def _in_double(
    network: Any, options: Nnet3Options, features: np.ndarray, ivector: np.ndarray | None
) -> np.ndarray:
    """What `_compute` gives, where each operator is one of float64; the result is rounded."""
    nnet = nnet_of(network)
    step = options.frame_subsampling_factor or 1
    if options.whole:
        times = np.arange(len(features))
        rows = np.stack((np.zeros_like(times), times, np.zeros_like(times)), axis=1)
        output = IoSpecification("output", np.zeros((1, 3), np.int32))
        request = ComputationRequest([IoSpecification("input", rows)], [output])
    else:
        request = simple_request(nnet, -(-len(features) // step), subsampling=step)
    given = {}
    for io in request.inputs:
        if io.name == "input":
            given["input"] = features[np.clip(io.indexes[:, 1], 0, len(features) - 1)]
        elif ivector is not None:
            given[io.name] = ivector[None]
    outputs = in_float64(nnet, request, given)["output"]
    priors = log_priors(chosen_priors(options.priors, network), outputs.shape[1])
    if priors is not None and not options.whole:
        outputs = outputs - priors
    return (outputs * (1.0 if options.whole else options.acoustic_scale)).astype(np.float32)


def _row(vector: np.ndarray | None) -> np.ndarray:
    assert vector is not None  # an utterance of one frame and more is never left out
    return vector[None]


def _random(inputs: Inputs, whole: bool) -> Iterator[tuple[np.ndarray, np.ndarray | None]]:
    rng = np.random.default_rng(0)
    wide, still = (sum(dim for _, dim in names) for names in (inputs.moving, inputs.still))
    for frames in _WHOLE if whole else _FRAMES:
        features = rng.normal(size=(frames, wide)).astype(np.float32)
        yield features, rng.normal(size=still).astype(np.float32) if still else None


def _utterance(values: Values, inputs: Inputs) -> tuple[np.ndarray, np.ndarray | None]:
    """The features [frames, dim] and the iVector [dim] of real inputs."""
    moving, still = [name for name, _ in inputs.moving], [name for name, _ in inputs.still]
    unknown = sorted(values.keys() - {*moving, *still, "ivector"})
    missing = [name for name in moving if name not in values]
    if unknown or missing:
        shown = ", ".join(map(repr, unknown or missing))
        wanted = " and ".join(map(repr, (*moving, *still)))
        problem = f"{shown} is {'none' if unknown else 'missing'}"
        raise OpscopeError(f"inputs of this nnet3 network are {wanted}; {problem}")
    if lacking := [name for name in still if name not in values]:
        what = "an iVector" if lacking == ["ivector"] else "one row for all frames"
        raise ShapeError(f"the network reads {what}; give {lacking[0]!r} with the inputs")
    arrays = {name: _rows(name, values[name]) for name in moving}
    if len({len(array) for array in arrays.values()}) > 1:
        counts = ", ".join(f"{name!r} {len(array)}" for name, array in arrays.items())
        raise ShapeError(f"inputs have different numbers of frames: {counts}")
    arrays |= {name: np.asarray(values[name], np.float32).reshape(-1) for name in still}
    return inputs.joined(arrays)


def _rows(name: str, value: np.ndarray) -> np.ndarray:
    features = np.asarray(value, np.float32)
    if features.ndim == 3 and len(features) == 1:
        features = features[0]
    if features.ndim != 2:
        raise ShapeError(f"{name!r} is {list(features.shape)}; [frames, dim] is wanted")
    return features


def _inputs(features: np.ndarray, ivector: Any, inputs: Inputs, read: set[str]) -> Values:
    """What the graph takes, each input by its name, with an axis of sequences."""
    values: dict[str, np.ndarray] = {}
    for names, array in ((inputs.moving, features), (inputs.still, ivector)):
        begin = 0
        for name, dim in names:
            part = np.ascontiguousarray(array[None, ..., begin : begin + dim])
            values[plain_name(name)] = part
            begin += dim
    return {name: value for name, value in values.items() if name in read}
