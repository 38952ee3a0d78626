"""The text of CNTK's `dumpnode`: nodes with their inputs and values.

Every token has a space before it, as CNTK's text files are written; line ends are also tokens.
Matrices go row by row with 9 digits (17 for double); tensors as first dimension x the others.
Source: the DumpNodeInfo functions of the nodes, File.cpp.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from ..network.network import Network
from ..network.nodes import geometry, rules
from ..network.nodes.node import Node

_RULER = "#" * 68
_POOLS = {"max": 1, "average": 2}


def dump(
    network: Network,
    nodes: Iterable[Node] | None = None,
    values: bool = True,
    metadata: bool = True,
) -> str:
    """The nodes of a validated network as CNTK's text.

    Args:
        nodes: all, sorted by name, where there are none.
        values: whether parameters are shown with their values.
        metadata: whether operation, inputs, shapes and attributes are shown.
    """
    tokens: list[str] = []
    for node in network.sorted_nodes() if nodes is None else nodes:
        tokens += _tokens(node, values, metadata)
    return "".join(" " + token for token in tokens)


def _tokens(node: Node, values: bool, metadata: bool) -> Iterator[str]:
    if metadata:
        yield from _head(node)
    if node.is_parameter or node.kind.precompute:
        if metadata:
            yield from _matrix_head(node)
        if values:
            yield from _value(node, metadata)
    elif node.is_input and metadata:
        yield from ("[", rules.text(node.shape), "]")
    elif node.operation in ("Convolution", "Pooling", "MaxUnpooling"):
        yield from _kernel(node)
    elif node.operation in ("MaxPooling", "AveragePooling") and metadata:
        yield from _window(node)


def _head(node: Node) -> Iterator[str]:
    yield f"\n{node.name}={node.operation}"
    if node.inputs:
        yield "("
        for number, child in enumerate(node.inputs):
            if number:
                yield ","
            yield child.name if child is not None else "NULL"
        yield ")"


def _matrix_head(node: Node) -> Iterator[str]:
    if node.is_parameter:
        rows, columns = rules.matrix(node)
        yield f"[{rows},{columns}]  "
        gradient = "true" if node.learning_rate > 0 else "false"
        yield f"learningRateMultiplier={node.learning_rate:f}  NeedsGradient={gradient}"
    else:
        yield f"[{rules.text(node.shape)}]  "
        yield f"HasComputed={'true' if node.attributes['hasComputed'] else 'false'}"


def _value(node: Node, metadata: bool) -> Iterator[str]:
    if metadata:
        yield "\n"
    if node.value is not None:
        value = np.asarray(node.value)
        digits = "%.17g" if value.dtype == np.float64 else "%.9g"
        rows = value.shape[0] if value.ndim else 1
        columns = value.size // rows if rows else 0
        for row in value.reshape((rows, columns), order="F"):
            line = " ".join(digits % number for number in row.tolist())
            yield f"{line} \n" if line else "\n"
    if metadata:
        yield _RULER


def _flags(flags: Iterable[bool]) -> str:
    return f"({', '.join('1' if flag else '0' for flag in flags)})"


def _kernel(node: Node) -> Iterator[str]:
    values = node.attributes
    data = node.inputs[0 if node.operation == "Pooling" else 1]
    shape, result = data.shape or (), node.shape or ()
    if node.operation == "MaxUnpooling":
        result = node.inputs[0].shape or ()
    if node.operation == "Convolution" and values["transpose"]:
        shape, result = result, shape
    if values.get("convolution2D"):
        shape, result = geometry.to_chw(shape, node), geometry.to_chw(result, node)
    rank = len(values["kernelShape"])
    yield "Geometry: "
    yield (
        f"Input: {rules.text(shape)}, Output: {rules.text(result)}"
        f", Kernel: {rules.text(values['kernelShape'])}"
        f", Map: {rules.text(values.get('mapCount', (1,)))}"
        f", Stride: {rules.text(values['strideShape'])}"
        f", Sharing: {_flags(values.get('dimSharing', (True,) * rank))}"
        f", AutoPad: {_flags(values['dimPadding'])}"
        f", LowerPad: {rules.text(values['dimPadLower'])}"
        f", UpperPad: {rules.text(values['dimPadUpper'])}"
    )
    yield from ("\n", "PoolKind: ")
    pool = values.get("pool", "max" if node.operation == "MaxUnpooling" else "none")
    yield str(_POOLS.get(pool, 0))
    yield "\n"


def _window(node: Node) -> Iterator[str]:
    values = node.attributes
    data = node.inputs[0]
    for name, shown in (("Input", data), ("Output", node)):
        channels, width, height = shown.shape or (0, 0, 0)
        yield f"{name}[Width:{width}, Height:{height}, Channels:{channels}]  \n"
        if shown is data:
            yield (
                f"PoolingWindow[Width:{values['windowWidth']}, Height:{values['windowHeight']}]"
                f"  SubSampling[Horizontal:{values['horizontalSubsample']},"
                f" Vertical:{values['verticalSubsample']}]\n"
            )
    sizes = f"Input:{rules.size(data.shape)}, Output:{rules.size(node.shape)}"
    yield f"TotalSizePerSample[{sizes}]  \n"
