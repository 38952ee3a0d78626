"""Conversions of Kaldi's networks."""

from __future__ import annotations

import os

import numpy as np

from ...bridges.nnet3_cntk.from_nnet3 import to_cntk
from ...bridges.onnx.export.exporting import to_onnx
from ...cntk.models.v1 import parse_model
from ...cntk.run.runtime import CntkNet
from ...framework.base.errors import FormatError
from ...framework.base.files.atomic import write_atomically
from ...framework.base.untrusted.values import stem_of
from ...framework.ir.messages import from_message, parse_net, serialize_net
from ...kaldi.files.kaldi_io import Reader, Writer
from ...kaldi.files.transition_model import TransitionModel
from ...nnet3.inference.saved import save_nnet
from ...nnet3.network.for_inference import nnet_of
from ...nnet3.network.model import AmNnetSimple
from ...nnet3.network.nnet import Nnet
from ...nnet3.network.vosk_folder import subsampling_of
from . import losses
from .report import Job
from .runs import (
    nnet_dims,
    random_rows,
    run_cntk,
    run_nnet3,
    run_windows,
    same_nnet3,
    windows,
)
from .sources import DRAWN
from .writing import checked_cntk, cntk_facts, nnet3_facts

_VOSK_FACTOR = 3  # what Vosk takes for models without conf/model.conf


def model_of(job: Job) -> Nnet | AmNnetSimple:
    """The source; where its parameters were drawn, the report says so."""
    assert isinstance(job.value, Nnet | AmNnetSimple)
    if job.kind in DRAWN:
        job.report.facts.append("its parameters are drawn: it holds none")
    return job.value


def to_raw(job: Job) -> None:
    """A raw network."""
    model = model_of(job)
    nnet = nnet_of(model)
    job.lose(*losses.of_model(model))
    writer = Writer(not job.options.text)
    nnet.write_to(writer)
    data = writer.getvalue()
    same_nnet3(job, Nnet.read_from(Reader(data, name=job.target)), nnet)
    job.report.facts += nnet3_facts(nnet)
    write_atomically(job.target, data)


def to_mdl(job: Job) -> None:
    """An acoustic model; the transition model comes from the source, or from another file."""
    model = model_of(job)
    binary = not job.options.text
    nnet = nnet_of(model)
    path = job.options.transition_model
    if path is not None:
        transitions = TransitionModel.read_from(Reader(path))
    elif isinstance(model, AmNnetSimple):
        held = Reader(model.transition_model, name=job.report.source, binary=model.binary)
        transitions = TransitionModel.read_from(held)
    else:
        raise FormatError(
            f"{job.target}: {job.report.source} has no transition model; give a file that begins"
            " with one: --transition-model"
        )
    pdfs = int(transitions.tuples[:, 2:].max(initial=-1)) + 1
    width = nnet.output_dim("output")
    if path is not None and pdfs != width:
        raise FormatError(
            f"{job.target}: the transition model has {pdfs} outputs, the network {width}"
        )
    part = Writer(binary, header=False)
    transitions.write_to(part)
    acoustic = AmNnetSimple(nnet, part.getvalue(), binary)
    acoustic.set_context()
    if isinstance(model, AmNnetSimple):
        acoustic.set_priors(model.priors)
        if path is not None:
            job.lose("the transition model of the source")
    writer = Writer(binary)
    acoustic.write_to(writer)
    data = writer.getvalue()
    again = AmNnetSimple.read_from(Reader(data, name=job.target))
    same_nnet3(job, again.nnet, nnet)
    job.compare("the priors", again.priors, acoustic.priors)
    job.report.facts += [*nnet3_facts(nnet), f"priors: {acoustic.priors.size}"]
    write_atomically(job.target, data)


def to_net(job: Job) -> None:
    """A saved net in the dialect nnet3."""
    model = model_of(job)
    nnet = nnet_of(model)
    job.lose(*losses.of_model(model))
    message = parse_net(serialize_net(nnet.to_desc()), job.target)
    same_nnet3(job, Nnet.from_desc(from_message(message), nnet.arrays()), nnet)
    job.report.facts += nnet3_facts(nnet)
    save_nnet(nnet, job.target)


def to_cntk_model(job: Job) -> None:
    """A model of CNTK."""
    model = model_of(job)
    nnet = nnet_of(model)
    priors = model.priors if isinstance(model, AmNnetSimple) else None
    job.lose(*losses.of_model(model, priors=False))
    job.lose(*losses.of_training(nnet), *losses.of_outputs(nnet))
    network, context = to_cntk(nnet, priors)
    network.name = stem_of(job.target)
    data = checked_cntk(job, network)
    again = parse_model(data, job.target)
    again.validate()
    roots = [again.find(node.name) for node in network.groups["output"]]
    logs = None
    if priors is not None and priors.size:
        logs = np.log(np.maximum(priors, 1e-37))
    names = {node.name for node in nnet.inputs()}
    simple = "input" in names and names <= {"input", "ivector"}
    frames = {n: context.get(_cntk_name(n), (0, 0)) for n in names}
    net = CntkNet(again)
    for rows in random_rows(nnet_dims(nnet), ["ivector"]):
        by_output = run_nnet3(nnet, rows) if simple else run_windows(nnet, rows, frames)
        wanted = list(by_output.values())
        wanted = wanted if logs is None else [wanted[0] - logs, *wanted]
        named = {_cntk_name(name): array for name, array in rows.items()}
        fed = {n: windows(array, *context[n]) for n, array in named.items() if n in context}
        outputs = run_cntk(net, roots, fed)
        for node, value, expected in zip(roots, outputs, wanted, strict=True):
            job.compare(node.name, value, expected)
        job.report.cases += 1
    job.report.facts += cntk_facts(network, context)
    write_atomically(job.target, data)


def _cntk_name(name: str) -> str:
    return "features" if name == "input" else name


def to_onnx_model(job: Job) -> None:
    """An ONNX model, which is checked as `to-onnx` checks it."""
    model = model_of(job)
    factor = subsampling(job)
    nnet = nnet_of(model)
    job.lose(*losses.of_model(model), *losses.of_training(nnet), *losses.of_outputs(nnet))
    others = [node.name for node in nnet.outputs() if node.name != "output"]
    job.lose(f"other outputs: {', '.join(others)}" if others else "")
    check = to_onnx(nnet, job.target, bound=job.options.bound, frame_subsampling_factor=factor)
    take_check(job, check)
    if factor > 1:
        job.report.facts.append(f"one row of output for {factor} frames of input")


def take_check(job: Job, check: object) -> None:
    """Report the check of an ONNX export."""
    from ...bridges.onnx.export.checking import Check

    assert isinstance(check, Check)
    job.report.facts.append(f"{check.nodes} nodes")
    if check.runtime:
        job.report.error = check.error
        job.report.cases = check.cases
        job.report.note = f"by {check.runtime}"
    else:
        job.report.note = "neither onnxruntime nor onnx is installed to run it"


def subsampling(job: Job) -> int:
    """Frames for a row of output: as asked for, else as the folder of a Vosk model says."""
    if job.options.frame_subsampling_factor is not None:
        return job.options.frame_subsampling_factor
    if job.kind != "vosk":
        return 1
    if not os.path.isfile(os.path.join(job.report.source, "conf", "model.conf")):
        return _VOSK_FACTOR
    return subsampling_of(job.report.source) or 1
