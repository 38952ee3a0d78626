"""The actions train, trainRNN and adapt.

Source: CNTK's `ActionsLib/TrainActions.cpp`.
"""

from __future__ import annotations

import math
from contextlib import ExitStack
from pathlib import Path

import numpy as np

from ...framework.base.context import OpContext
from ...framework.base.errors import VariableError
from ..config.parameters import ConfigParameters
from ..network.network import Network
from ..network.nodes import rules
from ..network.nodes.node import Node
from ..parallel.ranks import Ranks
from ..readers.base.data import Samples
from ..readers.base.pack import Minibatch
from ..run.runtime import CntkNet
from ..sgd.files import ModelFiles
from ..sgd.options import SgdOptions
from ..sgd.trainer import Trainer
from .common import Run, build, load, net_of, reader_of, refuse_overwriting


def train(run: Run, section: ConfigParameters, network: Network | None = None) -> CntkNet | None:
    """Train a network; None where all epochs are done already.

    `network` takes the place of the section's builder.

    Raises:
        OpscopeError: the config or the data are wrong, or a file cannot be read or written.
    """
    options, files = _sgd(run, section)
    start = _start(run, section, files)
    if start == options.epochs:
        run.say(f"Final model exists: {files.path}\nNo further training is necessary.\n")
        return None
    if start >= 0:
        run.say(f"\nStarting from checkpoint. Loading network from '{files.model(start)}'.\n")
        network = load(section, files.model(start))
    else:
        if section.int("traceLevel", 0) > 0:
            run.say("\nCreating virgin network.\n")
        network = network if network is not None else build(run, section)
    return _train(run, section, network, options, files, start)


def _sgd(run: Run, section: ConfigParameters) -> tuple[SgdOptions, ModelFiles]:
    part = sgd_section(section)
    options = SgdOptions.of(part)
    return options, ModelFiles(Path(part.string("modelPath")), options.epochs, run.is_main)


def _start(run: Run, section: ConfigParameters, files: ModelFiles) -> int:
    """Where the training begins, see `ModelFiles.start`; the main rank decides for all."""
    start = files.start(section.bool("makeMode", True))
    if run.communicator is None:
        return start
    agreed = np.array([start])
    run.communicator.operator = "the start of a training"
    run.communicator.broadcast(agreed)
    return int(agreed[0])


def sgd_section(section: ConfigParameters) -> ConfigParameters:
    """The section that says how to train."""
    return section.section("optimizer" if "optimizer" in section else "SGD")


def _train(
    run: Run,
    section: ConfigParameters,
    network: Network,
    options: SgdOptions,
    files: ModelFiles,
    start: int,
    reference: _Reference | None = None,
) -> CntkNet:
    for name in ("reader", "cvReader"):
        if name in section and section.string(name, ""):
            refuse_overwriting(section.section(name), files.there().values())
    ranks = None
    if run.communicator is not None:
        ranks = Ranks(run.communicator, options.parallel, options.epochs)
    elif options.parallel.method != "none":
        run.say("parallelTrain option is not enabled. ParallelTrain config will be ignored.\n")
    with ExitStack() as stack:
        net = net_of(section, network, run)
        run.say(f"\nModel has {len(network)} nodes. Using {_device(net)}.\n")
        reader = stack.enter_context(reader_of(section))
        validation = None
        if "cvReader" in section and section.string("cvReader", ""):
            validation = stack.enter_context(reader_of(section, "cvReader"))
        trainer = Trainer(
            net,
            options,
            reader,
            validation,
            files,
            start=start,
            prepare=reference,
            say=run.say,
            progress=run.progress,
            ranks=ranks,
        )
        trainer.train()
    return net


def _device(net: CntkNet) -> str:
    place = net.scope.place
    return "CPU" if place.kind == "cpu" else f"GPU {place.index}"


# -- adaptation ----------------------------------------------------------------------------------


class _Reference:
    """Mixes the labels of a minibatch with the outputs of a reference model: a penalty on the
    Kullback-Leibler divergence from it.

    Source: Yu, Yao, Su, Li and Seide, "KL-divergence regularized deep neural network adaptation",
    ICASSP 2013.
    """

    def __init__(self, net: CntkNet, node: Node, label: str, weight: float) -> None:
        self.net = net
        self.node = node
        self.label = label
        self.weight = weight

    def __call__(self, minibatch: Minibatch) -> None:
        bound = self.net.bound_net([self.node])
        bound.run(minibatch, OpContext(train=False))
        output = bound.value(self.node).data
        rows = output.reshape(len(output), -1)
        labels = minibatch.streams[self.label]
        mixed = self.weight * rows + (1 - self.weight) * labels.dense(rows.shape[1])
        streams = dict(minibatch.streams)
        streams[self.label] = Samples(labels.begin, mixed.astype(rows.dtype))
        minibatch.streams = streams


def adapt(run: Run, section: ConfigParameters) -> CntkNet | None:
    """Train a model on, held near to where it began if `adaptationRegType` is KL.

    Raises:
        VariableError: `refNodeName` is missing, or there are no labels.
        OpscopeError: as for `train`.
    """
    options, files = _sgd(run, section)
    original = section.string("origModelFileName", "")
    start = _start(run, section, files)
    if start == options.epochs:
        run.say("No further training is necessary.\n")
        return None
    if start >= 0:
        path: Path | str = files.model(start)
        run.say(f"Starting from checkpoint. Loading network from '{path}'.\n")
    else:
        path = original
        run.say(f"Load Network From the original model file {path}.\n")
    network = load(section, path)
    reference = None
    if options.adaptation > 0:
        reference = _reference(run, section, original, options.adaptation)
    return _train(run, section, network, options, files, start, reference)


def _reference(run: Run, section: ConfigParameters, path: str, weight: float) -> _Reference:
    run.say(f"Load reference Network From the original model file {path}.\n")
    name = section.string("refNodeName", "")
    if not name:
        raise VariableError(
            "refNodeName does not exist and is needed when adaptationRegType is KL."
        )
    network = load(section, path)
    labels = network.groups["label"]
    if not labels:
        raise VariableError(f"{path}: the network has no label node")
    node = network.find(name)
    label = labels[0]
    if node.axis is None or math.prod(node.shape) != math.prod(label.shape):
        raise section["refNodeName"].error(
            f"the outputs of {name} [{rules.text(node.shape)}] are not like the labels {label.name}"
            f" [{rules.text(label.shape)}]"
        )
    return _Reference(net_of(section, network, run), node, label.name, weight)
