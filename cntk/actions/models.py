"""The actions edit, dumpNode, SVD, convertdbn and exportdbn: models that are read and written.

Source: CNTK's `ActionsLib/TrainActions.cpp`, `OtherActions.cpp`, `SpecialPurposeActions.cpp`, and
PerformSVDecomposition in `ComputationNetworkLib/ComputationNetwork.cpp`.
"""

from __future__ import annotations

import math
import os
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ...framework.base.errors import FormatError
from ...framework.base.files.atomic import make_folder_of
from ...framework.base.untrusted.values import shown
from ..base.text import read_text
from ..base.write import write_text
from ..config.parameters import ConfigParameters
from ..mel.edit import edit_section
from ..models.dbn import dbn_of, network_of, read_dbn, write_dbn
from ..models.dump import dump
from ..models.v1 import write_model
from ..network.editing.rank import put_product
from ..network.initialize import initialize
from ..network.network import Network
from ..network.nodes import rules
from ..network.nodes.node import Node
from ..network.standard.settings import SimpleNetworkSettings
from ..run.build import builder_of
from .common import Run, build, load, precision_of, refuse_overwriting

ALL_NODES = "__AllNodes__"
"""What `nodeName` of dumpNode says for all of them."""


def edit(run: Run, section: ConfigParameters) -> None:
    """Build a network and save it as `outputModelPath`, or run a script of MEL.

    Raises:
        OpscopeError: the network or the script are wrong, or a file cannot be read or written.
    """
    if "BrainScriptNetworkBuilder" not in section:
        session = edit_section(section, run.seeds.ndl)
        for warning in session.warnings:
            run.say(f"WARNING: {warning}\n")
        return
    path = Path(section.string("outputModelPath"))
    if section.bool("makeMode", True) and os.path.exists(path):
        run.say(
            f"'{path}' exists, skipping. Specify makeMode=false to force executing the action.\n"
        )
        return
    assert builder_of(section) is not None
    network = build(run, section)
    initialize(network)
    make_folder_of(path)
    write_model(network, path)
    run.say(f"\nModel with {len(network)} nodes saved as '{path}'.\n")


@dataclass(frozen=True)
class DumpOptions:
    """The settings of dumpNode.

    Attributes:
        name: of the node; "__AllNodes__": all.
        pattern: of names; None: none.
        path: of the file.
        values, metadata: what is written of a node.
    """

    name: str
    pattern: re.Pattern[str] | None
    path: str
    values: bool
    metadata: bool

    @classmethod
    def of(cls, section: ConfigParameters) -> DumpOptions:
        """The settings of a section.

        Raises:
            FormatError: there is nothing to write, or a wrong pattern.
        """
        model = section.string("modelPath")
        text = section.string("nodeNameRegex", "")
        name = section.string("nodeName", ALL_NODES)
        section.only_if(not text, "nodeNameRegex says which nodes", "nodeName")
        values, metadata = section.bool("printValues", True), section.bool("printMetadata", True)
        if not values and not metadata:
            raise section["printValues"].error(
                "printValues and printMetadata: Since both are set to false, there will be nothing"
                " to dump"
            )
        path = section.string("outputFile", f"{model}.{name}.txt")
        pattern = _pattern(section, "nodeNameRegex", text) if text else None
        return cls(name, pattern, path, values, metadata)


def dump_nodes(run: Run, section: ConfigParameters) -> None:
    """Write nodes of a model as text: one, those whose names match a pattern, or all.

    Raises:
        FormatError: there is nothing to write, or a wrong pattern.
    """
    options = DumpOptions.of(section)
    path, name, pattern = options.path, options.name, options.pattern
    refuse_overwriting(section, [path], ("outputfile",))
    network = load(section, section.string("modelPath"))
    nodes: list[Node] | None = None
    if pattern is not None:
        nodes = [node for node in network.sorted_nodes() if pattern.fullmatch(node.name)]
        run.say(f"DumpNodeInfo: {len(nodes)} nodes matching RegEx({pattern.pattern}): \n")
        run.say("".join(f"\t{node.name}\n" for node in nodes))
        how = "with" if options.values else "without"
        run.say(f"DumpNodeInfo: dumping node info ({how} printing values) to {path}\n")
    elif name in network:
        nodes = [network.find(name)]
    else:
        run.say(
            f"Warning: node name '{name}' does not exist in the network. dumping all nodes "
            "instead.\n"
        )
    write_text(path, dump(network, nodes, options.values, options.metadata))


def _pattern(section: ConfigParameters, name: str, text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as error:
        raise section[name].error(f"{text!r} is no regular expression: {error}") from None


# -- models of DBN.exe ---------------------------------------------------------------------------


def converted(section: ConfigParameters) -> Network:
    """The network of the file `dbnModelPath`, validated.

    Raises:
        FormatError: the file or the settings are wrong.
    """
    dbn = read_dbn(section.string("dbnModelPath"))
    settings = SimpleNetworkSettings.from_config(section)
    network = network_of(dbn, settings, section.int("outputLayerSize", -1))
    network.precision = precision_of(section)
    network.validate()
    return network


def convert_dbn(run: Run, section: ConfigParameters) -> None:
    """Make a model of a file of DBN.exe.

    Raises:
        FormatError: the file or the settings are wrong.
    """
    path = section.string("modelPath")
    network = converted(section)
    initialize(network)
    make_folder_of(path)
    write_model(network, path)


def export_dbn(run: Run, section: ConfigParameters) -> None:
    """Make a file of DBN.exe of a model.

    Raises:
        FormatError: the model has what such a file cannot hold.
    """
    path = section.string("dbnModelPath")
    refuse_overwriting(section, [path], ("dbnmodelpath",))
    dbn = dbn_of(load(section, section.string("modelPath")))
    if dbn.prior is None:
        run.say("WARNING: Could not reliably determine the prior node!\n")
    make_folder_of(path)
    write_dbn(path, dbn)


# -- SVD -----------------------------------------------------------------------------------------


def decompose(run: Run, section: ConfigParameters) -> None:
    """Replace matrices of a model by products of two smaller ones that keep a share of the sum of
    their singular values.

    Raises:
        FormatError: the file `SVDConfig` is wrong.
    """
    options = SvdOptions.of(section)
    groups = options.groups()
    aligned = options.aligned
    network = load(section, section.string("modelPath"))
    for number, (pattern, share) in enumerate(groups):
        run.say(f"{'-' * 92}\nParameterSVD: start to process group {number} with ")
        run.say(f"KeepRatio={share:.2f}\n{'-' * 92}\n")
        for node in network.sorted_nodes():
            if node.is_parameter and pattern.fullmatch(node.name) and min(rules.matrix(node)) > 1:
                run.say(_split(network, node, share, aligned))
    network.validate()
    if options.path:
        make_folder_of(options.path)
        write_model(network, options.path)


@dataclass(frozen=True)
class SvdOptions:
    """The settings of SVD.

    Attributes:
        pattern, share: names of parameters, and the share to keep of what they match; None: the
            file `config` says it.
        config: its lines hold patterns and shares.
        aligned: the new dimension is a multiple of it.
        path: of the new model; "" for none.
    """

    pattern: re.Pattern[str] | None
    share: float
    config: str
    aligned: int
    path: str

    @classmethod
    def of(cls, section: ConfigParameters) -> SvdOptions:
        """The settings of a section.

        Raises:
            FormatError: a value is missing or wrong.
        """
        text = section.string("NodeNameRegex", "")
        section.only_if(bool(text), "SVDConfig says it", "KeepRatio")
        section.only_if(not text, "NodeNameRegex says it", "SVDConfig")
        return cls(
            _pattern(section, "NodeNameRegex", text) if text else None,
            section.float("KeepRatio", 0.4) if text else 0.4,
            "" if text else section.string("SVDConfig"),
            max(section.int("AlignedSize", 8), 1),
            section.string("outputmodelPath", ""),
        )

    def groups(self) -> list[tuple[re.Pattern[str], float]]:
        """Patterns of names, and the share to keep of what they match.

        Raises:
            FormatError: the file is wrong.
        """
        if self.pattern is not None:
            return [(self.pattern, self.share)]
        return sorted(_read_groups(self.config), key=lambda group: group[0].pattern)


def _read_groups(path: str) -> Iterator[tuple[re.Pattern[str], float]]:
    for number, line in enumerate(read_text(path).splitlines(), 1):
        words = line.split()
        if not words:
            continue
        try:
            pattern, share = words
            yield re.compile(pattern), float(share)
        except (ValueError, re.error, OverflowError, RecursionError):  # of wild repetitions
            raise FormatError(
                f"{path}:{number}: a line holds a pattern of names and the share to keep, such as"
                f" 'W[1-5] 0.4', not {shown(line)}"
            ) from None


def _split(network: Network, node: Node, share: float, aligned: int) -> str:
    rows, columns = rules.matrix(node)
    assert node.value is not None
    began = time.perf_counter()
    left, sizes, right = np.linalg.svd(
        np.asarray(node.value).reshape((rows, columns), order="F"), full_matrices=False
    )
    seconds = time.perf_counter() - began
    rank = int(np.searchsorted(np.cumsum(sizes), sizes.sum() * share, side="right")) + 1
    rank = min(math.ceil(min(rank, len(sizes)) / aligned) * aligned, len(sizes))
    roots = np.sqrt(sizes[:rank])
    left = left[:, :rank] * roots
    right = roots[:, None] * right[:rank]
    put_product(network, node, left, right)
    reduced = (rows + columns) * rank / (rows * columns)
    return (
        f"Performing SVD for a {rows:5d}-by-{columns:<5d} matrix (node name: {node.name:<20}) ---  "
        f"computation time {seconds:5.2f} secs ;  keep {share * 100:4.1f}% energy ===> keep "
        f"{rank:5d} svd values (reduce to {reduced * 100:4.1f}% parameters) \n"
    )
