"""CNTK networks as NetBuilder code: `opscope cntk to-python`.

The code is made from the operators that a network is lowered to, so it computes what
`cntk.runtime` computes. Samples are rows: the result of a node [d1 x ... x dk x *] is
[rows, dk, ..., d1], and column vectors [d x 1] lose the one.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...cntk.lower import Lowered, Sparse, lower
from ...cntk.network.initialize import initial_value, initialize, is_random, spread
from ...cntk.network.network import Network
from ...cntk.network.nodes.initial_values import kind_of_values
from ...cntk.network.nodes.node import Node
from ...framework.base.files.atomic import PathLike, atomic_file
from ...framework.files.tensor_file import write_tensors
from ...framework.ir.desc import OpList, make_op
from ...framework.ir.names import COPY_OP
from ...framework.ir.op_list import VarDecl
from ...framework.passes.prune import prune
from .module_text import module_text
from .net_to_python import Style, Writer
from .trim_columns import trim_columns

_AUTO = re.compile(r"^(.*?)\.?(\w+Args\[\d+\].*|unnamed\d+|AutoName\d+)$")
_TEMPORARY = re.compile(r"@INNER@\d+$")
_LIST = "arrayOfFunctions"  # of `Sequential` in BrainScript: its layers are model_0, model_1, ...
_LITERAL = 8  # numbers that a vector may have to be written into the code


@dataclass(frozen=True)
class PythonCode:
    """Code that builds a network.

    Attributes:
        text: a module with `build()`, and with `load(scope)` where values lie in a file.
        values: what that file is to hold: parameters and statistics by name; else empty.
        outputs: the variable in the net that is built of each result of the network, by node.
    """

    text: str
    values: dict[str, np.ndarray]
    outputs: dict[str, str]


def to_python(network: Network, source: str = "", params: str = "") -> PythonCode:
    """NetBuilder code that builds a network.

    Args:
        network: validated.
        source: where the code says that it comes from.
        params: the name of the file with the parameters' values, which the code then loads.

    Raises:
        UnknownOperatorError: nothing is known of how to run a node.
    """
    roots = [
        node
        for node in network.roots
        if not (node.kind.precompute or node.is_parameter or node.is_input)
        and node.operation != "DynamicAxis"
    ]
    lowered = lower(network, roots)
    desc, outputs = _with_outputs(lowered, roots)
    desc = trim_columns(prune(desc, outputs.values()))
    given = {node.name for node in network.nodes.values() if node.value is not None}
    if params:
        initialize(network)
    style = _style(network, lowered, desc, given, bool(params))
    writer = Writer(desc, outputs.values(), style)
    body = writer.write()
    results = list(outputs.values())
    dtype = "float64" if network.precision == "double" else ""
    text = module_text(network.name, source, params, writer.functions, body, results, dtype)
    return PythonCode(text, _values(network, desc) if params else {}, outputs)


def write_values(code: PythonCode, path: PathLike) -> None:
    """Write the values of a network's parameters as a safetensors file."""
    with atomic_file(path) as file:
        write_tensors(file, code.values, {})


def _with_outputs(lowered: Lowered, roots: list[Node]) -> tuple[OpList, dict[str, str]]:
    """The net with each root as a variable of its name."""
    desc = lowered.op_list.copy()
    outputs = {}
    written = {name for op in desc.ops for name in op.output_names()}
    for node in roots:
        name = lowered.values[node]
        if name not in written:  # an input or a statistic as it is
            desc.ops.append(make_op(COPY_OP, {"x": name}, {"out": node.name}))
            desc.vars.append(VarDecl(node.name))
            name = node.name
        outputs[node.name] = name
    return desc, outputs


# -- names and values ------------------------------------------------------------------------------


def _style(
    network: Network, lowered: Lowered, desc: OpList, given: set[str], in_file: bool
) -> Style:
    multiplied = {op.input_names()[1] for op in _all_ops(desc) if op.type == "matmul"}
    shapes = {var.name: var.shape for var in desc.vars}
    levels, notes = {}, {}
    for node, sparse in lowered.inputs.items():
        if node.axis in lowered.sequences:
            levels[Sparse.of(node.name).counts if sparse else node.name] = 1
        if sparse:
            notes[Sparse.of(node.name).values] = (
                f"{node.name}: the numbers that are not 0, their places, how many each sample has"
            )
    for node in network.nodes.values():
        if path := _unread_file(node):
            notes[node.name] = f"its values are in {os.path.basename(path)}"
    for node in lowered.conditions:
        levels[node.name] = 1
        notes[node.name] = f"positions in their sequences where {node.inputs[0].name} is not 0"

    def stem(name: str) -> tuple[str, bool]:
        own = _TEMPORARY.sub("", name)
        auto = _AUTO.match(own)
        node = network.nodes.get(own)
        if auto is None:
            return own.replace(_LIST, ""), own == name
        holder = auto[1].replace(_LIST, "") or "net"
        if own == name and node is not None and node.is_parameter:
            kind = "W" if name in multiplied else "c" if node.learning_rate == 0 else "b"
            return f"{holder}_{kind}", True
        return holder, False

    def init(name: str) -> dict[str, Any]:
        if name in lowered.states:
            _, dtype, value = lowered.states[name]
            return {"init": value, "dtype": dtype}
        return {"init": _initial(network.nodes[name], shapes[name] or (), name in given, in_file)}

    return Style(stem, init, levels, notes)


def _unread_file(node: Node) -> str:
    """The file that a parameter's values are in, where they have not been read from it."""
    if node.is_parameter and node.value is None and kind_of_values(node) == "fromFile":
        return node.attributes["initFromFilePath"]
    return ""


def _all_ops(desc: OpList) -> Iterator[Any]:
    for op in desc.ops:
        yield op
        if op.type == "recurrent":
            yield from _all_ops(op.attrs["net"].steps[0].net)


def _initial(node: Node, shape: tuple[int, ...], given: bool, in_file: bool) -> Any:
    """A parameter's `init` for NetBuilder; `given`: a model holds its value."""
    if node.is_parameter and not given and is_random(node):
        uniform, width = spread(node, np.dtype(np.float32))
        width = float(f"{width:.7g}")  # it was rounded to single precision: 0.3, not 0.30000001192
        bounds = {"low": -width, "high": width} if uniform else {"std": width}
        return ("uniform" if uniform else "normal"), bounds
    value = node.value
    if value is None and node.is_parameter and not _unread_file(node):
        value = initial_value(node, np.dtype(np.float32))
    if value is None or not value.size:  # a statistic or a file that is not there
        return 0.0
    first = float(value.flat[0])
    if (value == first).all():
        return first
    if value.size <= _LITERAL and len(shape) == 1:
        return np.ascontiguousarray(value.transpose()).reshape(shape)
    return 0.0 if in_file or len(shape) < 2 else "xavier"


def _values(network: Network, desc: OpList) -> dict[str, np.ndarray]:
    """The values of the parameters and statistics of a net, in its shapes."""
    values = {}
    for var in desc.vars:
        node = network.nodes.get(var.name)
        if node is not None and node.value is not None and node.value.size:
            array = np.ascontiguousarray(np.asarray(node.value).transpose())
            values[var.name] = array.reshape(var.shape)
    return values


__all__ = ["PythonCode", "to_python", "write_values"]
