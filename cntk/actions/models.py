"""The actions edit, dumpNode and SVD: models that are read, changed and written.

Source: CNTK's `ActionsLib/TrainActions.cpp`, `OtherActions.cpp`, and PerformSVDecomposition in
`ComputationNetworkLib/ComputationNetwork.cpp`.
"""

from __future__ import annotations

import math
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from ...framework.base.atomic import make_folder_of
from ...framework.base.errors import FormatError
from ..base.text import reason
from ..config.parameters import ConfigParameters
from ..mel.edit import edit_section
from ..models.dump import dump
from ..models.v1 import write_model
from ..network.initialize import initialize
from ..network.network import Network
from ..network.nodes import rules
from ..network.nodes.node import Node
from ..run.build import builder_of
from .common import Run, build, load, refuse_overwriting, write_text

_ALL = "__AllNodes__"


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


def dump_nodes(run: Run, section: ConfigParameters) -> None:
    """Write nodes of a model as text: one, those whose names match a pattern, or all.

    Raises:
        FormatError: there is nothing to write, or a wrong pattern.
    """
    model = section.string("modelPath")
    name = section.string("nodeName", _ALL)
    pattern = section.string("nodeNameRegex", "")
    path = section.string("outputFile", f"{model}.{name}.txt")
    values, metadata = section.bool("printValues", True), section.bool("printMetadata", True)
    if not values and not metadata:
        raise section["printValues"].error(
            "printValues and printMetadata: Since both are set to false, there will be nothing to "
            "dump"
        )
    refuse_overwriting(section, [path], ("outputfile",))
    network = load(section, model)
    nodes: list[Node] | None = None
    if pattern:
        matches = _pattern(section, "nodeNameRegex", pattern)
        nodes = [node for node in network.sorted_nodes() if matches.fullmatch(node.name)]
        run.say(f"DumpNodeInfo: {len(nodes)} nodes matching RegEx({pattern}): \n")
        run.say("".join(f"\t{node.name}\n" for node in nodes))
        how = "with" if values else "without"
        run.say(f"DumpNodeInfo: dumping node info ({how} printing values) to {path}\n")
    elif name in network:
        nodes = [network.find(name)]
    else:
        run.say(
            f"Warning: node name '{name}' does not exist in the network. dumping all nodes "
            "instead.\n"
        )
    write_text(path, dump(network, nodes, values, metadata))


def _pattern(section: ConfigParameters, name: str, text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as error:
        raise section[name].error(f"{text!r} is no regular expression: {error}") from None


# -- SVD -----------------------------------------------------------------------------------------


def decompose(run: Run, section: ConfigParameters) -> None:
    """Replace matrices of a model by products of two smaller ones that keep a share of the sum of
    their singular values.

    Raises:
        FormatError: the file `SVDConfig` is wrong.
    """
    groups = _groups(section)
    network = load(section, section.string("modelPath"))
    aligned = max(section.int("AlignedSize", 8), 1)
    for number, (pattern, share) in enumerate(groups):
        run.say(f"{'-' * 92}\nParameterSVD: start to process group {number} with ")
        run.say(f"KeepRatio={share:.2f}\n{'-' * 92}\n")
        for node in network.sorted_nodes():
            if node.is_parameter and pattern.fullmatch(node.name) and min(rules.matrix(node)) > 1:
                run.say(_split(network, node, share, aligned))
    network.validate()
    path = section.string("outputmodelPath", "")
    if path:
        make_folder_of(path)
        write_model(network, path)


def _groups(section: ConfigParameters) -> list[tuple[re.Pattern[str], float]]:
    """Patterns of names, and the share to keep of what they match."""
    text = section.string("NodeNameRegex", "")
    if text:
        share = section.float("KeepRatio", 0.4)
        return [(_pattern(section, "NodeNameRegex", text), share)]
    path = section.string("SVDConfig")
    return sorted(_read_groups(path), key=lambda group: group[0].pattern)


def _read_groups(path: str) -> Iterator[tuple[re.Pattern[str], float]]:
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError) as error:  # ValueError: no UTF-8, or a NUL character in the path
        raise FormatError(f"{path}: cannot be read: {reason(error)}") from None
    for number, line in enumerate(lines, 1):
        words = line.split()
        if not words:
            continue
        try:
            pattern, share = words
            yield re.compile(pattern), float(share)
        except (ValueError, re.error):
            raise FormatError(
                f"{path}:{number}: a line holds a pattern of names and the share to keep, such as"
                f" 'W[1-5] 0.4', not {line!r}"
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
    left, right = left[:, :rank] * roots, roots[:, None] * right[:rank]
    name, dtype = node.name, node.value.dtype
    parts = [
        _parameter(network, f"{name}_U", left.astype(dtype), node.learning_rate),
        _parameter(network, f"{name}_V", right.astype(dtype), node.learning_rate),
    ]
    parents = [parent for parent in network.nodes.values() if node in parent.inputs]
    if len(parents) == 1 and parents[0].operation == "Times" and parents[0].inputs[0] is node:
        _reorder(network, node, parents[0], parts)  # U * (V * x)
    else:
        product = network.add("Times", f"{name}_SVD", parts)
        network.replace_inputs(node, product)
    network.delete(node)
    reduced = (rows + columns) * rank / (rows * columns)
    return (
        f"Performing SVD for a {rows:5d}-by-{columns:<5d} matrix (node name: {name:<20}) ---  "
        f"computation time {seconds:5.2f} secs ;  keep {share * 100:4.1f}% energy ===> keep "
        f"{rank:5d} svd values (reduce to {reduced * 100:4.1f}% parameters) \n"
    )


def _reorder(network: Network, node: Node, times: Node, parts: list[Node]) -> None:
    """Make W * x to U * (V * x); the outer product keeps the name."""
    inner = network.add("Times", f"{node.name}_SVD", [parts[1], times.inputs[1]])
    times.inputs = [parts[0], inner]


def _parameter(network: Network, name: str, value: np.ndarray, rate: float) -> Node:
    attributes = {"shape": value.shape, "init": "fixedValue", "value": 0.0}
    node = network.add("LearnableParameter", name, attributes=attributes)
    node.learning_rate = node.attributes["learningRateMultiplier"] = rate
    node.value = np.asfortranarray(value)
    return node
