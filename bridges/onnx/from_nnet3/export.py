"""`nnet3_graph`: a network as an ONNX graph."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ....framework.base.errors import OpscopeError, ShapeError, check_kind
from ....nnet3.graph.topology import Topology
from ....nnet3.network.for_inference import Model, chosen_priors, for_inference, opened
from ....nnet3.network.model import AmNnetSimple
from ....nnet3.network.model_check import refuse_diverged
from ....nnet3.network.nnet import Nnet
from ...nnet3_rows.grids import Grid
from ...nnet3_rows.plan import Plan, needed_by
from ...nnet3_rows.reads import NotExportedError
from ..files.graph import OPSET, Graph, plain_name
from .emit import F32, Emitter, Value
from .folding import Folding
from .inputs import Inputs, joined_inputs
from .network import NetworkWriter, exported_kinds, why_not_source
from .recurrent.loops import write_loop
from .rows import Clock, RowReader, Rows
from .rowwise import why_not


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
    Inputs with other names have a row for every frame, too, or one for all where they are read at
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
        priors: subtracted from `output` as logarithms; True: those of the acoustic model.
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
    unit, (left, right) = frame_subsampling_factor, context
    chosen = chosen_priors(priors, given)
    logs = None if chosen is None else np.log(np.asarray(chosen, np.float64))
    if logs is not None and logs.shape != (nnet.output_dim("output"),):
        raise OpscopeError(f"{logs.size} priors for {nnet.output_dim('output')} columns of output")
    names = _outputs(topology, outputs)
    request = _Request(nnet, unit, left, right, names, whole, logs, acoustic_scale, inputs)
    exact = False
    while True:  # again where it turns out that the exact end matters
        graph = Graph(name, opset)
        plan = Plan(topology, request.unit, request.left, request.right, whole, exact_end=exact)
        plan.make([topology.number(each) for each in request.outputs])
        reader = _write(graph, plan, request, streaming)
        if plan.exact_end == exact:
            break
        exact = plan.exact_end
    _describe(graph, request, given, reader, streaming)
    graph.drop_unread()
    return graph


def _context(nnet: Nnet) -> tuple[int, int]:
    try:
        return nnet.context()
    except ShapeError as error:
        told = f"{error}; a network that gives one row for all frames wants whole=True"
        raise NotExportedError(told) from None


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
    told: list[str] = []
    for number in sorted(needed):
        node = topology.nodes[number]
        if node.kind == "component" and node.component.type not in exported_kinds():
            is_source = node.reads.offsets == ()
            reason = why_not_source(node.component) if is_source else why_not(node.component)
            if reason:
                told.append(f"'{node.name}': {reason}")
    if told:
        raise NotExportedError("the network cannot be exported: " + "; ".join(told))


def _write(
    graph: Graph,
    plan: Plan,
    request: _Request,
    streaming: bool,
) -> RowReader:
    topology, logs, acoustic_scale = plan.topology, request.logs, request.acoustic_scale
    e = Emitter(graph)
    source = plain_name(request.inputs.moving[0][0])
    reader = RowReader(e, Clock(e, source, request.unit, plan.exact_end), request.unit, streaming)
    folding = Folding(topology, set(plan.grids))
    writer = NetworkWriter(plan, e, reader, folding, write_loop)
    _write_inputs(writer, request)
    writer.write()
    for each in request.outputs:
        number = topology.number(each)
        value = writer.rows[number].value
        if each == "output" and logs is not None:
            value = value.plus(-logs)
        value = value.times(acoustic_scale) if each == "output" else value
        _write_output(writer, each, value, plan)
    for name, value in reader.new_caches.items():
        cache = reader.caches[name]
        if value != f"new_{name}":
            graph.node("Identity", [value], outputs=[f"new_{name}"])
        graph.output(f"new_{name}", F32, ["N", cache.columns, cache.rows])
    return reader


def _write_inputs(writer: NetworkWriter, request: _Request) -> None:
    topology, plan, e = writer.topology, writer.plan, writer.e
    graph, reader = e.graph, writer.reader
    dim = topology.nodes[topology.number("input")].dim
    features = _given(e, request.inputs.moving, ["N", "T"])
    if "ivector" in topology.index and topology.number("ivector") in plan.grids:
        columns = topology.nodes[topology.number("ivector")].dim
        ivector = _given(e, request.inputs.still, ["N"])
        column = e.op("Unsqueeze", ivector, graph.ints(2), name="ivector_column")
        number = topology.number("ivector")
        writer.rows[number] = Rows(Value(column, columns, True), plan.grids[number], "ivector")
    number = topology.number("input")
    if number not in plan.grids:
        raise NotExportedError("no output depends on 'input'")
    grid = replace(plan.grids[number], step=1)
    turned = e.op("Transpose", features, perm=[0, 2, 1], name="input_columns")
    if reader.streaming:
        grid = Grid(min(grid.first, 0), 1, max(grid.last, 0))
        before = grid.last - grid.first
        reader.edges = (-grid.first, grid.last)
        rows = Rows(Value(turned, dim), grid, "input", "edges", before)
    else:
        rows = Rows(Value(_with_edges(writer, turned), dim), grid, "input")
    writer.rows[number] = rows


def _given(e: Emitter, names: Sequence[tuple[str, int]], dims: Sequence[str]) -> str:
    """Declare inputs; returns them side by side."""
    given = [e.graph.input(plain_name(name), F32, [*dims, columns]) for name, columns in names]
    return given[0] if len(given) == 1 else e.op("Concat", *given, axis=len(dims), name="inputs")


def _with_edges(writer: NetworkWriter, frames: str) -> str:
    """The frames [N, dim, T] with the first and last ones repeated as far as they are read."""
    e, graph, plan = writer.e, writer.e.graph, writer.plan
    grid = plan.grids[writer.topology.number("input")]
    if not grid.moving:  # the last row is a fixed one
        raise NotExportedError("the frames that are read do not follow the length of the input")
    left, right = max(0, -grid.first), max(0, grid.last)
    if left or right:
        pads = graph.ints(0, 0, left, 0, 0, right)
        frames = e.op("Pad", frames, pads, name="with_edges", mode="edge")
    first = max(0, grid.first)
    stop = graph.ints(2**62)
    if plan.exact_end and plan.unit > 1:
        length = graph.ints(grid.last + 1 + left)
        stop = e.op("Add", writer.reader.clock.end(), length, name="behind_last")
    elif grid.last < 0:
        stop = graph.ints(grid.last)
    elif not first:
        return frames
    ends = graph.ints(first), stop, graph.ints(2)
    return e.op("Slice", frames, *ends, name="frames_read")


def _write_output(writer: NetworkWriter, name: str, value: Value, plan: Plan) -> None:
    e, graph = writer.e, writer.e.graph
    plain = plain_name(name)
    rows: int | str = 1 if plan.whole else f"{plain}_rows"
    if value.still and not plan.whole:
        grid = plan.grids[writer.topology.number(name)]
        shape = e.op("Shape", writer.reader.clock.source)
        batch = e.op("Slice", shape, graph.ints(0), graph.ints(1))
        count = writer.reader.clock.count(grid)
        wanted = e.op("Concat", batch, graph.ints(1), count, axis=0)
        value = Value(e.op("Expand", e.name(value), wanted), value.dim)
    last = e.name(value)
    graph.node("Transpose", [last], outputs=[plain], perm=[0, 2, 1])
    graph.output(plain, F32, ["N", rows, value.dim])


def _describe(
    graph: Graph, request: _Request, model: Nnet | AmNnetSimple, reader: RowReader, streaming: bool
) -> None:
    """What decoders ask for, as metadata.

    `model_type` to `feat_dim` have the names and meanings of sherpa-onnx, which reads them of its
    models: features of samples as 16 bit integers have them, and that nothing normalizes.
    """
    told = {
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
        told["inputs"] = json.dumps([request.inputs.moving, request.inputs.still])
    if "output" in request.outputs:
        told["vocab_size"] = request.nnet.output_dim("output")
    if isinstance(model, AmNnetSimple) and model.priors.size:
        told["priors"] = json.dumps([float(value) for value in model.priors.astype(F32)])
    if streaming:
        told["edge_frames"] = json.dumps(list(reader.edges))
        told["caches"] = json.dumps(
            {
                cache.name: [cache.columns, cache.rows, cache.first, cache.kind, cache.begin]
                for cache in reader.caches.values()
            }
        )
    graph.metadata |= {key: str(value) for key, value in told.items()}
