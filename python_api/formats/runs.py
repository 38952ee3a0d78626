"""Models run on random inputs, so that what a conversion made can be compared with its source."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from ...bridges.inference.cases import OwnRun, random_cases
from ...bridges.inference.form import Inference, inference_form
from ...cntk.network.dialect import parameter_arrays
from ...cntk.network.network import Network
from ...cntk.network.nodes.analysis import depth_first
from ...cntk.network.nodes.node import Node
from ...cntk.run.runtime import CntkNet
from ...framework.base.backend import to_host
from ...framework.base.errors import OpscopeError
from ...framework.ir.desc import OUTPUT, TEMPORARY, make_var
from ...framework.ir.op_list import OpList
from ...framework.passes.prune import prune
from ...nnet3.graph.request import ComputationRequest, IoSpecification
from ...nnet3.inference.chunks import ChunkComputer
from ...nnet3.inference.pieces import ChunkOptions
from ...nnet3.inference.pipeline import compile_request
from ...nnet3.network.for_inference import for_inference, with_output
from ...nnet3.network.nnet import Nnet
from ...nnet3.run.computer import NnetComputer
from .report import Job

_FRAMES = (1, 14)
_SEED = 0
Rows = dict[str, np.ndarray]


def windows(frames: np.ndarray, left: int, right: int) -> np.ndarray:
    """Each frame with those around it side by side, [frames, (left + 1 + right) dim]; beyond the
    edges copies of these."""
    count = len(frames)
    index = np.clip(np.arange(count)[:, None] + np.arange(-left, right + 1), 0, count - 1)
    return frames[index].reshape(count, -1)


def random_rows(dims: Mapping[str, int], constant: Sequence[str] = ()) -> list[Rows]:
    """Utterances of several lengths for inputs of some widths.

    Args:
        constant: inputs with the same row in all frames.
    """
    rng = np.random.default_rng(_SEED)
    inputs: list[Rows] = []
    for frames in _FRAMES:
        rows = {n: rng.normal(size=(frames, dim)).astype(np.float32) for n, dim in dims.items()}
        for name in rows.keys() & set(constant):
            rows[name] = np.repeat(rows[name][:1], frames, axis=0)
        inputs.append(rows)
    return inputs


def nnet_dims(nnet: Nnet) -> dict[str, int]:
    """The width of each input."""
    return {node.name: nnet.input_dim(node.name) for node in nnet.inputs()}


def run_nnet3(nnet: Nnet, rows: Rows) -> Rows:
    """All outputs for one utterance as one chunk, in test mode; the first row of `ivector` holds
    for all frames."""
    features = rows["input"]
    ivector = rows["ivector"][0] if "ivector" in rows else None
    options = ChunkOptions(frames_per_chunk=len(features))
    return {
        node.name: ChunkComputer(with_output(nnet, node.name), options).compute(features, ivector)
        for node in nnet.outputs()
    }


def run_windows(nnet: Nnet, rows: Rows, frames: Mapping[str, tuple[int, int]]) -> Rows:
    """All outputs for one utterance, of a network with inputs of any names.

    Args:
        frames: for each input the frames before and after that are read beyond the utterance,
            where they are copies of those at its edges.
    """
    nnet = for_inference(nnet)
    count = len(next(iter(rows.values())))
    fed: Rows = {}
    inputs: list[IoSpecification] = []
    for name, array in rows.items():
        times = np.zeros(1, np.int32)
        if name != "ivector":
            left, right = frames[name]
            times = np.arange(-left, count + right)
        fed[name] = array[np.clip(times, 0, count - 1)]
        inputs.append(IoSpecification(name, _indexes(times)))
    outputs = [IoSpecification(node.name, _indexes(np.arange(count))) for node in nnet.outputs()]
    computer = NnetComputer(compile_request(nnet, ComputationRequest(inputs, outputs)), nnet)
    for name, array in fed.items():
        computer.accept_input(name, array)
    computer.run()
    return {io.name: np.asarray(to_host(computer.get_output(io.name))) for io in outputs}


def _indexes(times: np.ndarray) -> np.ndarray:
    indexes = np.zeros((len(times), 3), np.int32)
    indexes[:, 1] = times
    return indexes


def same_nnet3(job: Job, converted: Nnet, source: Nnet) -> None:
    """Compare two networks that should be one: their arrays, and their outputs where they run.

    Raises:
        RunError: they differ.
    """
    mine, others = source.arrays(), converted.arrays()
    if list(mine) != list(others) or source.config_lines() != converted.config_lines():
        lines = set(source.config_lines()) ^ set(converted.config_lines())
        raise OpscopeError(
            f"{job.target}: not written: it would be another network: "
            f"{'; '.join(sorted(lines)[:4]) or 'its arrays have other names'}"
        )
    for name, array in mine.items():
        job.compare(name, others[name], array)
    job.report.error = job.report.error or 0.0
    job.report.note = "all arrays compared"
    others_read = sorted({node.name for node in source.inputs()} - {"input", "ivector"})
    if others_read or not source.has_node("input"):
        job.report.note += f"; no outputs: the inputs are {', '.join(others_read) or 'none'}"
        return
    for rows in random_rows(nnet_dims(source))[1:]:
        try:
            wanted = run_nnet3(source, rows)
        except OpscopeError as error:
            job.report.note += f"; no outputs: {(str(error).splitlines() or [''])[0]}"
            return
        outputs = run_nnet3(converted, rows)
        for name, value in wanted.items():
            job.compare(name, outputs[name], value)
        job.report.cases += 1


# -- CNTK


def cntk_inputs(roots: Sequence[Node]) -> list[Node]:
    """The inputs that some nodes read."""
    return [node for node in depth_first(list(roots)) if node.is_input]


def run_cntk(net: CntkNet, roots: Sequence[Node], rows: Rows) -> list[np.ndarray]:
    """The rows of some nodes for one sequence."""
    outputs = net.eval({name: [array] for name, array in rows.items()}, list(roots))
    values = [outputs[node.name] for node in roots]
    arrays = [np.asarray(v[0] if isinstance(v, list) else v) for v in values]
    length = len(next(iter(rows.values())))
    return [a.reshape(length, -1) if a.shape[:1] == (length,) else a for a in arrays]


def same_cntk(job: Job, converted: Network, source: Network) -> None:
    """Compare the outputs of two networks that should be one.

    Raises:
        RunError: they differ.
    """
    roots = [node for node in source.groups["output"] if node.axis is not None]
    roots = roots or [*source.groups["criterion"], *source.groups["evaluation"]]
    mine, others = parameter_arrays(source), parameter_arrays(converted)
    for name, array in mine.items():
        job.compare(name, others[name], array)
    job.report.error = job.report.error or 0.0
    job.report.note = "all arrays compared"
    if not roots:
        return
    ends = [converted.find(node.name) for node in roots]
    dims = {n.name: int(np.prod(n.shape, dtype=np.int64)) for n in cntk_inputs(roots)}
    first, second = CntkNet(source), CntkNet(converted)
    for rows in random_rows(dims):
        shaped = {
            name: array.reshape(-1, *reversed(source.find(name).shape))
            for name, array in rows.items()
        }
        try:
            wanted = run_cntk(first, roots, shaped)
        except OpscopeError as error:
            if not job.report.cases:
                job.report.note += f"; no outputs: {(str(error).splitlines() or [''])[0]}"
            return
        for node, a, b in zip(roots, run_cntk(second, ends, shaped), wanted, strict=True):
            job.compare(node.name, a, b)
        job.report.cases += 1


# -- operators


def own_run(net: OpList, arrays: Mapping[str, np.ndarray], outputs: Sequence[str]) -> OwnRun:
    """A net of operators in inference form, ready to run, without what only other outputs need."""
    form = inference_form(net, outputs or None)
    return OwnRun(replace(form, whole=plain_net(form)), arrays)


def plain_net(form: Inference) -> OpList:
    """The net of an inference form, with a declaration for each of its variables."""
    net = form.net.copy()
    known = {var.name: var for var in net.vars}
    for name in dict.fromkeys(name for op in net.ops for name in op.output_names()):
        kind = OUTPUT if name in form.outputs else TEMPORARY
        if name in known:
            if known[name].kind == TEMPORARY and kind == OUTPUT:
                net.vars[net.vars.index(known[name])] = known[name].changed(kind=OUTPUT)
            continue
        spec = form.specs.get(name)
        shape, dtype = (None, None) if spec is None else spec
        net.vars.append(make_var(name, shape, dtype, kind))
    return prune(net, form.outputs)


def cases_of(run: OwnRun) -> list[tuple[Mapping[str, np.ndarray], Mapping[str, np.ndarray]]]:
    """Random inputs and what a net gives for them."""
    return list(random_cases(run, _SEED))
