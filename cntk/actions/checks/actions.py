"""The check of each action: what the action reads before its first minibatch, in the same order."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path

from ...config.files import load_resolved
from ...config.parameters import ConfigParameters
from ...config.value import ConfigValue
from ...mel.edit import edit_section
from ...network.network import Network
from ...network.nodes.node import Node
from ...readers.catalog import writer_opening
from ...run.build import BUILDERS
from ...run.tracing import TRACED
from ...sgd.criteria import criteria_of
from ...sgd.evaluate import evaluation_nodes
from ...sgd.files import ModelFiles, models_of_epochs
from ...sgd.options import SgdOptions
from ...sgd.updates import learning_parameters
from .. import models, outputs, plot, statistics, words
from ..common import refuse_overwriting
from ..evaluate import EvalOptions, models_to_compare
from ..train import sgd_section
from .checker import Checker, NotMadeError
from .report import WARNING
from .scripts import check_commands

Check = Callable[[Checker, ConfigParameters, str], None]


def train(
    checker: Checker, section: ConfigParameters, name: str, network: Network | None = None
) -> None:
    """Check a training.

    Args:
        checker: of the config.
        section: of the command.
        name: of the command.
        network: in the place of the section's builder.
    """
    checker.common(section)
    checker.read(section, lambda: section.bool("makeMode", True))
    options, path = _sgd(checker, section)
    if network is None and path:
        network = checker.models.started(path)
        section.only_if(network is None, "training resumes with the model that is there", *BUILDERS)
    if network is None:
        network = checker.built(section, name)
    _training(checker, section, network, options, path)


def adapt(checker: Checker, section: ConfigParameters, name: str) -> None:
    """Check the adaptation of a model."""
    checker.common(section)
    checker.read(section, lambda: section.bool("makeMode", True))
    options, path = _sgd(checker, section)
    network = checker.model(section, "origModelFileName")
    reference = checker.read(section, lambda: section.string("refNodeName", ""))
    if reference and network is not None and options is not None and options.adaptation > 0:
        checker.node(network, section["refNodeName"])
    _training(checker, section, network, options, path)


def _sgd(checker: Checker, section: ConfigParameters) -> tuple[SgdOptions | None, str]:
    """The settings of a training, and the path of its model; "" if there is none."""
    with checker.report.collected():
        part = sgd_section(section)
        options = checker.read(part, lambda: SgdOptions.of(part))
        return options, checker.read(part, lambda: part.string("modelPath")) or ""
    return None, section.string("modelPath", "")


def _training(
    checker: Checker,
    section: ConfigParameters,
    network: Network | None,
    options: SgdOptions | None,
    path: str,
) -> None:
    nodes: list[Node] = []
    if network is not None and options is not None:
        with checker.at(sgd_section(section)):
            criteria, evaluations = criteria_of(network, options)
            nodes = [criteria[0], *evaluations]
            if not learning_parameters(network, criteria[0]):
                raise criteria[0].error("no parameter that learns is below the training criterion")
        _traced(checker, sgd_section(section), network)
    for name in ("reader", "cvReader"):
        if name == "reader" or (name in section and section.string(name, "")):
            checker.reader(section, network, nodes, name, precompute=True)
            if options is not None and path and name in section:
                files = ModelFiles(Path(path), options.epochs)
                with checker.report.collected():
                    refuse_overwriting(section.section(name), files.there().values())
    _written(checker, path, network)


def _written(checker: Checker, path: str | Path, network: Network | None) -> None:
    """Keep the model that a command would write, for those after it."""
    if path and network is not None:
        checker.models.store(path, network)
    elif path:
        checker.models.expect(path)


def _traced(checker: Checker, section: ConfigParameters, network: Network) -> None:
    for parameter in TRACED:
        for name in section.array(parameter, ""):
            checker.node(network, name)


def _names(checker: Checker, section: ConfigParameters, name: str) -> list[ConfigValue]:
    return checker.read(section, lambda: list(section.array(name, ""))) or []


def evaluate(checker: Checker, section: ConfigParameters, name: str) -> None:
    """Check an evaluation."""
    checker.common(section)
    checker.read(section, lambda: EvalOptions.of(section))
    names = _names(checker, section, "evalNodeNames")
    network = checker.network(section, names)
    _evaluation(checker, section, network, names, "default")


def _evaluation(
    checker: Checker,
    section: ConfigParameters,
    network: Network | None,
    names: Sequence[ConfigValue],
    in_order: str = "",
) -> None:
    nodes: list[Node] = []
    if network is not None:
        with checker.at(section):
            nodes = evaluation_nodes(network, [str(n) for n in names if str(n) in network])
        _traced(checker, section, network)
    checker.reader(section, network, nodes, in_order=in_order)


def cross_validate(checker: Checker, section: ConfigParameters, name: str) -> None:
    """Check the evaluation of the models of several epochs."""
    checker.common(section)
    checker.read(section, lambda: EvalOptions.of(section))
    compared = checker.read(section, lambda: models_to_compare(section))
    names = _names(checker, section, "evalNodeNames")
    network = None
    if compared is not None:
        path, numbers, _ = compared
        there = any(number in numbers for number in models_of_epochs(path))
        network = None if there else checker.model(section, "modelPath")
    _evaluation(checker, section, network, names)


def statistics_of(checker: Checker, section: ConfigParameters, name: str) -> None:
    """Check the statistics of batch normalization."""
    checker.common(section)
    options = checker.read(section, lambda: statistics.StatisticsOptions.of(section))
    network = checker.network(section)
    _evaluation(checker, section, network, _names(checker, section, "evalNodeNames"))
    if options is not None:
        _written(checker, options.path, network)


def write(checker: Checker, section: ConfigParameters, name: str) -> None:
    """Check an output of values."""
    checker.common(section)
    options = checker.read(section, lambda: outputs.WriteOptions.of(section))
    network = checker.network(section, _names(checker, section, "outputNodeNames"))
    nodes: list[Node] = []
    if network is not None and options is not None:
        with checker.at(section):
            nodes = outputs.written_nodes(network, options)
        _traced(checker, section, network)
    checker.reader(section, network, nodes, in_order="always")
    if options is not None and options.writer is not None:
        _writer(checker, options.writer, nodes or None)


def _writer(checker: Checker, part: ConfigParameters, nodes: list[Node] | None) -> None:
    opening = checker.read(part, lambda: writer_opening(part))
    if opening is None or opening.foreign:
        part.record.leave(part.path)
        return
    for value in opening.files:
        checker.file(value)
    for name, (value, dim) in opening.nodes.items():
        with checker.report.collected():
            if nodes is not None:
                size = math.prod(outputs.check_written(value, name, nodes).shape or ())
                if dim is not None and size != dim:
                    raise value.error(f"the node {name!r} has {size} numbers, and dim is {dim}")


def edit(checker: Checker, section: ConfigParameters, name: str) -> None:
    """Check the editing of a model, in memory."""
    if "BrainScriptNetworkBuilder" in section:
        checker.common(section)
        path = checker.read(section, lambda: section.string("outputModelPath"))
        checker.read(section, lambda: section.bool("makeMode", True))
        network = checker.built(section, name)
        _written(checker, path or "", network)
        return
    section.find("ndlMacros")
    if not checker.read(section, lambda: section.string("editPath")) or not checker.build:
        section.record.leave(section.path)
        return

    def edited() -> bool:
        try:
            session = edit_section(
                section,
                checker.seeds.ndl,
                checker.open,
                lambda network, path: checker.models.store(path, network),
                lambda path, text: None,
            )
        except NotMadeError:
            return True
        for warning in session.warnings:
            checker.report.add(WARNING, warning)
        return True

    if checker.read(section, edited) is None:
        with checker.report.collected():
            path = section.string("editPath")
            check_commands(load_resolved(path, section), Path(path).name, checker.report)


def dump_nodes(checker: Checker, section: ConfigParameters, name: str) -> None:
    """Check the output of nodes."""
    options = checker.read(section, lambda: models.DumpOptions.of(section))
    network = checker.model(section, "modelPath")
    if network is None or options is None or options.pattern is not None:
        return
    if options.name != models.ALL_NODES and options.name not in network:
        checker.node(network, section["nodeName"])


def decompose(checker: Checker, section: ConfigParameters, name: str) -> None:
    """Check the singular value decomposition of a model."""
    options = checker.read(section, lambda: models.SvdOptions.of(section))
    if options is None:
        return
    if all(checker.file(value) for value in section.files("SVDConfig") if not options.pattern):
        checker.read(section, options.groups)
    network = checker.model(section, "modelPath")
    _written(checker, options.path, network)


def convert_dbn(checker: Checker, section: ConfigParameters, name: str) -> None:
    """Check the conversion of a file of DBN.exe."""
    path = checker.read(section, lambda: section.string("modelPath"))
    checker.read(section, lambda: section.string("dbnModelPath"))
    network = None
    if all(checker.file(value) for value in section.files("dbnModelPath")):
        network = checker.read(section, lambda: models.converted(section))
    _written(checker, path or "", network)


def export_dbn(checker: Checker, section: ConfigParameters, name: str) -> None:
    """Check the conversion to a file of DBN.exe."""
    checker.read(section, lambda: section.string("dbnModelPath"))
    checker.model(section, "modelPath")


def drawing(checker: Checker, section: ConfigParameters, name: str) -> None:
    """Check the drawing of a network."""
    checker.read(section, lambda: plot.files_and_command(section))
    with checker.report.collected():
        plot.refuse_command(section)
    checker.model(section, "modelPath")


def word_classes(checker: Checker, section: ConfigParameters, name: str) -> None:
    """Check the making of a vocabulary."""
    options = checker.read(section, lambda: words.WordOptions.of(section))
    if options is not None:
        for value in section.files("inputFile"):
            checker.file(value)


def label_map(checker: Checker, section: ConfigParameters, name: str) -> None:
    """Check the making of a list of labels."""
    checker.read(section, lambda: section.int("traceLevel", 0))
    files = checker.read(section, lambda: words.label_files(section))
    if files is not None:
        part = files[0]
        part.insert("allowMapCreation", "true")
        checker.read(part, lambda: part.string("readerType", ""))
        checker.reader(section.section(section.string("section")), None)


CHECKS: dict[str, Check] = {
    "train": train,
    "trainRNN": train,
    "adapt": adapt,
    "test": evaluate,
    "eval": evaluate,
    "cv": cross_validate,
    "write": write,
    "edit": edit,
    "dumpNodes": dump_nodes,
    "dumpNode": dump_nodes,
    "dumpnode": dump_nodes,
    "SVD": decompose,
    "convertdbn": convert_dbn,
    "exportdbn": export_dbn,
    "plot": drawing,
    "topo": drawing,
    "bnstat": statistics_of,
    "createLabelMap": label_map,
    "writeWordAndClass": word_classes,
}
"""The check of each action of this package."""
