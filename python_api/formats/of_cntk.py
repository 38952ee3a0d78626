"""Conversions of CNTK's networks."""

from __future__ import annotations

import os
from collections.abc import Mapping

import numpy as np

from ...bridges.inference.cases import OwnRun
from ...bridges.inference.cntk_nets import CntkRun
from ...bridges.inference.form import ExportError
from ...bridges.nnet3_cntk.from_cntk import to_acoustic_model, to_nnet3
from ...bridges.onnx.export.exporting import to_onnx
from ...cntk.lower.emitter import Sparse
from ...cntk.models.v1 import parse_model
from ...cntk.network.dialect import from_desc, parameter_arrays, to_desc
from ...cntk.network.graph import GROUPS
from ...cntk.network.initialize import initialize
from ...cntk.network.network import Network
from ...cntk.network.nodes.node import Node
from ...cntk.run.runtime import CntkNet
from ...framework.base.errors import FormatError, UnknownOperatorError, VariableError
from ...framework.base.files.atomic import write_atomically
from ...framework.base.scope import Scope
from ...framework.files.saved import put_values, save
from ...framework.ir.messages import from_message, parse_net, serialize_net
from ...kaldi.files.kaldi_io import Reader, Writer
from ...kaldi.files.transition_model import TransitionModel
from ...nnet3.network.model import AmNnetSimple
from ...nnet3.network.nnet import Nnet
from ..to_python.cntk_to_python import to_python
from . import losses
from .of_nets import Values, write_code
from .of_nnet3 import take_check
from .report import VALUES, Job
from .runs import (
    cases_of,
    cntk_inputs,
    own_run,
    plain_net,
    random_rows,
    run_cntk,
    run_nnet3,
    run_windows,
    same_cntk,
    windows,
)
from .sources import DRAWN
from .writing import Frames, checked_cntk, cntk_facts, nnet3_facts

_ROWS = (1, 7)
_SPARSE = "@VALUES"


def _network(job: Job) -> Network:
    assert isinstance(job.value, Network)
    if job.kind in DRAWN:
        job.report.facts.append("its parameters are drawn: it holds none")
        initialize(job.value)
    return job.value


def _need_outputs(job: Job, network: Network) -> None:
    if not (job.options.outputs or network.groups["output"]):
        raise VariableError(f"{job.report.source}: it names no output nodes; name one: --output")


def to_model(job: Job) -> None:
    """A binary model of version 1."""
    network = _network(job)
    data = checked_cntk(job, network)
    again = parse_model(data, job.target, network.precision)
    again.validate()
    same_cntk(job, again, network)
    job.report.facts += cntk_facts(network, {})
    write_atomically(job.target, data)


def to_net(job: Job) -> None:
    """A saved net in the dialect cntk."""
    network = _network(job)
    net = to_desc(network)
    arrays = parameter_arrays(network)
    again = from_desc(from_message(parse_net(serialize_net(net), job.target)), arrays)
    again.validate()
    same_cntk(job, again, network)
    job.report.facts += cntk_facts(network, {})
    scope = Scope()
    put_values(arrays, scope)
    save(net, scope, job.target)


def to_operators(job: Job) -> None:
    """A net of operators that runs."""
    network = _network(job)
    _need_outputs(job, network)
    try:
        run = CntkRun(CntkNet(network), job.options.outputs or None, use=job.target)
    except (ExportError, VariableError) as error:
        raise UnknownOperatorError(str(error)) from None
    job.lose(*losses.of_network(network, dropout=False), *losses.of_precision(network))
    net = plain_net(run.inference)
    own = own_run(net, run.arrays, list(run.inference.outputs))
    for inputs, outputs in cases_of(own):
        wanted = run(inputs)
        for name, value in outputs.items():
            job.compare(name, value, wanted[name])
        job.report.cases += 1
    if run.one_hot:
        job.report.facts.append(f"dense rows, no numbers of words: {', '.join(run.one_hot)}")
    job.report.facts.append(f"outputs: {', '.join(run.inference.outputs)}")
    scope = Scope()
    put_values(own.arrays, scope)
    save(net, scope, job.target)


def to_onnx_model(job: Job) -> None:
    """An ONNX model, which is checked as `to-onnx` checks it."""
    network = _network(job)
    _need_outputs(job, network)
    job.lose(*losses.of_network(network), *losses.of_precision(network))
    outputs = job.options.outputs or None
    take_check(job, to_onnx(network, job.target, outputs=outputs, bound=job.options.bound))


def to_code(job: Job) -> None:
    """NetBuilder code, with the parameters beside it."""
    network = _network(job)
    params = os.path.splitext(job.target)[0] + VALUES
    name = os.path.basename(job.report.source)
    code = to_python(network, name, os.path.basename(params))
    groups = [group for group in GROUPS if network.groups[group]]
    job.lose(f"groups of nodes: {', '.join(groups)}" if groups else "")
    roots = [node for node in network.groups["output"] if node.axis is not None]
    outputs = {node.name: code.outputs[node.name] for node in roots if node.name in code.outputs}
    net = CntkNet(network)

    def run(inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        computed = net.eval({n: [array] for n, array in inputs.items()}, list(outputs))
        return {
            variable: np.asarray(v[0] if isinstance(v := computed[node], list) else v)
            for node, variable in outputs.items()
        }

    def cases(own: OwnRun) -> list[tuple[Values, Values]]:
        if not any(_SPARSE in var.name for var in own.inference.inputs):
            return [(inputs, inputs) for inputs, _ in cases_of(own)]
        return [_with_words(network, own, rows) for rows in _ROWS]

    write_code(job, code.text, params, code.values, list(outputs.values()), run, cases)


def _with_words(network: Network, run: OwnRun, rows: int) -> tuple[Values, Values]:
    """Inputs of a net with sparse rows, one number in each, and the same as dense ones."""
    rng = np.random.default_rng(rows)
    sparse: dict[str, np.ndarray] = {}
    dense: dict[str, np.ndarray] = {}
    for var in run.inference.inputs:
        name, at, _ = var.name.rpartition("@")
        own = name if at else var.name
        shape = tuple(reversed(network.find(own).shape))
        width = int(np.prod(shape, dtype=np.int64))
        if not at:
            dense[own] = sparse[own] = rng.normal(size=(rows, *shape)).astype(np.float32)
        elif own not in dense:
            places = rng.integers(0, width, rows)
            held = np.zeros((rows, width), np.float32)
            held[np.arange(rows), places] = 1
            dense[own] = held.reshape(rows, *shape)
            names = Sparse.of(own)
            sparse[names.values] = np.ones(rows, np.float32)
            sparse[names.indices], sparse[names.counts] = places, np.ones(rows, np.int64)
    return sparse, dense


# -- nnet3


def _windows(network: Network, given: Mapping[str, Frames]) -> dict[str, Frames]:
    """The windows of inputs by name; an empty name is the main input."""
    return {_main_input(network, name): frames for name, frames in given.items()}


def _main_input(network: Network, name: str) -> str:
    if name:
        return name
    features = network.groups["feature"]
    if len(features) == 1:
        return features[0].name
    if "features" in network:
        return "features"
    known = ", ".join(node.name for node in features) or "none"
    raise VariableError(f"whose frames are they? The network has the features {known}")


def to_raw(job: Job) -> None:
    """A raw network of Kaldi's."""
    network = _network(job)
    _need_outputs(job, network)
    context = _windows(network, job.options.context)
    job.lose(*losses.of_network(network, rates=False), *losses.of_precision(network))
    nnet = to_nnet3(network, job.options.outputs, context)
    writer = Writer(not job.options.text)
    nnet.write_to(writer)
    data = writer.getvalue()
    again = Nnet.read_from(Reader(data, name=job.target))
    roots = [network.find(name) for name in job.options.outputs] or network.groups["output"]
    _compare(job, network, list(dict.fromkeys(roots)), again, context, None)
    job.report.facts += nnet3_facts(nnet)
    write_atomically(job.target, data)


def to_mdl(job: Job) -> None:
    """An acoustic model of Kaldi's."""
    network = _network(job)
    path = job.options.transition_model
    if path is None:
        raise FormatError(
            f"{job.target}: an acoustic model begins with a transition model; give a file that"
            " begins with one: --transition-model"
        )
    if len(job.options.outputs) > 1:
        raise FormatError(f"{job.target}: an acoustic model has one output")
    _need_outputs(job, network)
    context = _windows(network, job.options.context)
    job.lose(*losses.of_network(network, rates=False), *losses.of_precision(network))
    transitions = TransitionModel.read_from(Reader(path))
    binary = not job.options.text
    model = to_acoustic_model(
        network, transitions, *job.options.outputs, context=context, binary=binary
    )
    writer = Writer(binary)
    model.write_to(writer)
    data = writer.getvalue()
    again = AmNnetSimple.read_from(Reader(data, name=job.target))
    root = next(iter(map(network.find, job.options.outputs)), network.groups["output"][0])
    _compare(job, network, [root], again.nnet, context, again.priors)
    if len(network.groups["output"]) > 1 and not job.options.outputs:
        others = ", ".join(node.name for node in network.groups["output"][1:])
        job.lose(f"other outputs: {others}")
    job.report.facts += [*nnet3_facts(model.nnet), f"priors: {model.priors.size}"]
    write_atomically(job.target, data)


def _compare(
    job: Job,
    network: Network,
    roots: list[Node],
    nnet: Nnet,
    context: Mapping[str, Frames],
    priors: np.ndarray | None,
) -> None:
    """Run both on utterances: the network of CNTK's on windows of the frames."""
    names = {node.name for node in nnet.inputs()}
    main = next((node.name for node in cntk_inputs(roots) if node.name not in names), "input")
    simple = "input" in names and names <= {"input", "ivector"}
    frames = {n: context.get(main if n == "input" else n, (0, 0)) for n in names}
    net = CntkNet(network)
    dims = {name: nnet.input_dim(name) for name in names}
    for rows in random_rows(dims, ["ivector"]):
        fed: dict[str, np.ndarray] = {}
        for name, array in rows.items():
            own = main if name == "input" else name
            wide = windows(array, *context.get(own, (0, 0)))
            fed[own] = wide.reshape(len(wide), *reversed(network.find(own).shape))
        wanted = run_cntk(net, roots, fed)
        outputs = run_nnet3(nnet, rows) if simple else run_windows(nnet, rows, frames)
        actual = list(outputs.values())
        if priors is not None and priors.size:
            actual[0] = actual[0] - np.log(np.maximum(priors, 1e-37))
        for node, value, expected in zip(roots, actual, wanted, strict=True):
            job.compare(node.name, value, expected)
        job.report.cases += 1
