"""`nnet3_graph`: a network as an ONNX graph."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from ....framework.base.errors import OpscopeError, ShapeError, check_kind
from ....framework.ir.desc import make_op
from ....nnet3.graph.topology import Topology
from ....nnet3.network.for_inference import Model, chosen_priors, for_inference, opened
from ....nnet3.network.model import AmNnetSimple
from ....nnet3.network.model_check import refuse_diverged
from ....nnet3.network.nnet import Nnet
from ...nnet3_rows.net import F32, RowsNet
from ...nnet3_rows.plan import Plan, needed_by
from ...nnet3_rows.reading import RowReader
from ...nnet3_rows.reads import NotExportedError
from ..export.emission import Values
from ..export.net import folded
from ..export.operators import emit_operators
from ..files.graph import OPSET, Graph, plain_name
from .folded import why_not
from .inputs import Inputs, joined_inputs
from .recurrent import OnnxWalk


@dataclass(frozen=True)
class _Request:
    """What of a network is exported."""

    nnet: Nnet
    unit: int
    left: int
    right: int
    outputs: tuple[str, ...]
    whole: bool
    logs: np.ndarray | None
    acoustic_scale: float
    inputs: Inputs


def nnet3_graph(
    model: Model,
    streaming: bool = False,
    opset: int = OPSET,
    *,
    outputs: Sequence[str] | None = None,
    frame_subsampling_factor: int = 1,
    priors: np.ndarray | bool | None = None,
    acoustic_scale: float = 1.0,
    whole: bool = False,
    name: str = "nnet3",
) -> Graph:
    """A network as an ONNX graph of standard operators, in test mode.

    The graph takes `input` [N, T, dim] for any N and T from 1 on and, where the network has one,
    `ivector` [N, dim]. It gives each output as [N, ceil(T / frame_subsampling_factor), columns]:
    what `nnet3-compute` gives for each of N utterances as one chunk, whose first and last frames
    are repeated as far as the network's context reaches. Metadata says what decoders ask for.
    Inputs with other names also have a row for every frame, or one for all where they are read at
    time 0 alone.

    Args:
        model: a network, an acoustic model, or the path of a file that holds one.
        streaming: the graph takes a chunk of frames and `cache_...` inputs, and gives as many rows
            as the chunk has, divided by the subsampling, and a `new_cache_...` for each cache. See
            `initial_caches` for how a stream begins and ends. Chunks are multiples of the
            subsampling.
        opset: version of ONNX's operators.
        outputs: names of output nodes; None: `output` alone, or all where there is none.
        frame_subsampling_factor: frames for one row of output, 3 for chain models.
        priors: subtracted from `output` as logarithms; True: the acoustic model's.
        acoustic_scale: factor for `output`.
        whole: the outputs are one row each for all frames, as `nnet3-xvector-compute` gives it;
            nothing is repeated at the ends, so that T is at least the network's window.
        name: of the graph.

    Raises:
        NotExportedError: parts of the network have no form in ONNX; all are named.
        FormatError: the file cannot be read, or the network was not trained.
        OpscopeError: an option is out of range, or there is no such output.
    """
    check_kind(frame_subsampling_factor, int, "frame_subsampling_factor")
    if frame_subsampling_factor < 1:
        raise OpscopeError(f"frame_subsampling_factor is {frame_subsampling_factor}, not positive")
    if whole and (streaming or frame_subsampling_factor != 1):
        raise OpscopeError("one row for all frames goes with neither streaming nor subsampling")
    if opset < 13:
        raise OpscopeError(f"opset {opset}: at least 13 is wanted")
    given = opened(model)
    nnet, inputs = joined_inputs(for_inference(given))
    refuse_diverged(nnet)
    topology = nnet.topology()
    _refuse_all(topology, _outputs(topology, outputs))
    context = (0, 0) if whole else _context(nnet)
    unit = frame_subsampling_factor
    left, right = context
    chosen = chosen_priors(priors, given)
    logs = None if chosen is None else np.log(np.asarray(chosen, np.float64))
    if logs is not None and logs.shape != (nnet.output_dim("output"),):
        raise OpscopeError(f"{logs.size} priors for {nnet.output_dim('output')} columns of output")
    names = _outputs(topology, outputs)
    request = _Request(nnet, unit, left, right, names, whole, logs, acoustic_scale, inputs)
    exact = False
    while True:  # again where it turns out that the exact end matters
        plan = Plan(topology, request.unit, request.left, request.right, whole, exact_end=exact)
        plan.make([topology.number(each) for each in request.outputs])
        walk, variables = _lowered(plan, request, streaming)
        if plan.exact_end == exact:
            break
        exact = plan.exact_end
    graph = Graph(name, opset)
    _written(graph, request, walk, variables)
    _describe(graph, request, given, walk.reader, streaming)
    graph.drop_unread()
    return graph


def _context(nnet: Nnet) -> tuple[int, int]:
    try:
        return nnet.context()
    except ShapeError as error:
        message = f"{error}; a network that gives one row for all frames wants whole=True"
        raise NotExportedError(message) from None


def _outputs(topology: Topology, outputs: Iterable[str] | None) -> tuple[str, ...]:
    there = [topology.nodes[number].name for number in topology.outputs()]
    if outputs is None:
        return ("output",) if "output" in there else tuple(there)
    if isinstance(outputs, str):
        raise OpscopeError("outputs is a list of names")
    listed = tuple(outputs)
    for each in listed:
        if each not in there:
            raise OpscopeError(f"there is no output '{each}'; there are {', '.join(there)}")
    if not listed or len(set(listed)) != len(listed):
        raise OpscopeError("outputs wants at least one name, each once")
    return listed


def _refuse_all(topology: Topology, outputs: Sequence[str]) -> None:
    """Name everything that has no form in ONNX at once."""
    needed = needed_by(topology, [topology.number(each) for each in outputs])
    reasons: list[str] = []
    for number in sorted(needed):
        node = topology.nodes[number]
        if node.kind == "component":
            reason = why_not(node.component, node.reads.offsets == ())
            if reason:
                reasons.append(f"'{node.name}': {reason}")
    if reasons:
        raise NotExportedError("the network cannot be exported: " + "; ".join(reasons))


def _lowered(plan: Plan, request: _Request, streaming: bool) -> tuple[OnnxWalk, dict[str, str]]:
    """The operators of a network, and the variables of its outputs."""
    topology = plan.topology
    net = RowsNet(plain_name)
    variables = {each: net.variable(each) for each in request.outputs}
    features = _given(net, request.inputs.moving, [-1, -1])
    ivector = "ivector" in topology.index and topology.number("ivector") in plan.grids
    ivectors = _given(net, request.inputs.still, [-1]) if ivector else ""
    walk = OnnxWalk(plan, net, features, streaming)
    walk.write(ivectors)
    for each, variable in variables.items():
        value = walk.output(each)
        if each == "output":
            value = value if request.logs is None else value.plus(-request.logs)
            value = value.times(request.acoustic_scale)
        net.put(
            make_op("transpose", {"x": net.name(value)}, {"out": variable}, {"perm": [0, 2, 1]})
        )
    return walk, variables


def _given(net: RowsNet, names: Sequence[tuple[str, int]], dims: Sequence[int]) -> str:
    """Inputs side by side."""
    given = [net.given(name, *dims, columns) for name, columns in names]
    return given[0] if len(given) == 1 else net("concat", given, axis=len(dims), name="inputs")


def _written(graph: Graph, request: _Request, walk: OnnxWalk, outputs: dict[str, str]) -> None:
    """Write the operators into a graph."""
    net, reader = walk.net, walk.reader
    values = Values(graph, net.specs, arrays=net.arrays, side_by_side=True, cells=walk.cells)
    for dims, names in ((["N", "T"], request.inputs.moving), (["N"], request.inputs.still)):
        for name, columns in names:
            plain = plain_name(name)
            if plain in net.specs:
                values.names[plain] = graph.input(plain, F32, [*dims, columns])
    for name, cache in reader.caches.items():
        rows = cache.rows if cache.rows == cache.first else f"{name}_rows"
        values.names[name] = graph.input(name, F32, ["N", cache.columns, rows])
    emit_operators(values, folded(values, net.ops))
    if values.refused:
        raise NotExportedError("; ".join(values.refused))
    for name, variable in outputs.items():
        plain = plain_name(name)
        shape, _ = net.specs[variable]
        rows = 1 if walk.plan.whole else f"{plain}_rows"
        graph.output(values.name_of(variable), F32, ["N", rows, shape[2]])
    for name, variable in reader.new_caches.items():
        cache = reader.caches[name]
        value = values.name_of(variable)
        if value != f"new_{name}":
            graph.node("Identity", [value], outputs=[f"new_{name}"])
        graph.output(f"new_{name}", F32, ["N", cache.columns, cache.rows])


def _describe(
    graph: Graph, request: _Request, model: Nnet | AmNnetSimple, reader: RowReader, streaming: bool
) -> None:
    """What decoders ask for, as metadata.

    `model_type` to `feat_dim` have the names and meanings of sherpa-onnx, which reads them of its
    models: features of samples as 16 bit integers have them, and that nothing normalizes.
    """
    metadata = {
        "model_type": "nnet3",
        "comment": "Kaldi nnet3 network",
        "version": "1",
        "model_author": "",
        "subsampling_factor": request.unit,
        "normalize_samples": 0,
        "normalize_type": "NA",
        "feat_dim": request.nnet.input_dim("input"),
        "left_context": request.left,
        "right_context": request.right,
        "frame_subsampling_factor": request.unit,
        "feature_dim": request.nnet.input_dim("input"),
        "ivector_dim": max(request.nnet.input_dim("ivector"), 0),
        "streaming": int(streaming),
        "acoustic_scale": request.acoustic_scale,
        "priors_subtracted": int(request.logs is not None),
    }
    if not request.inputs.are_usual:
        metadata["inputs"] = json.dumps([request.inputs.moving, request.inputs.still])
    if "output" in request.outputs:
        metadata["vocab_size"] = request.nnet.output_dim("output")
    if isinstance(model, AmNnetSimple) and model.priors.size:
        metadata["priors"] = json.dumps([float(value) for value in model.priors.astype(F32)])
    if streaming:
        metadata["edge_frames"] = json.dumps(list(reader.edges))
        metadata["caches"] = json.dumps(
            {
                cache.name: [cache.columns, cache.rows, cache.first, cache.kind, cache.begin]
                for cache in reader.caches.values()
            }
        )
    graph.metadata |= {key: str(value) for key, value in metadata.items()}
