"""Quantization to int8: QuantizeLinear and DequantizeLinear around products, and what that costs.

Weights get a scale for each result, symmetric; activations one scale and zero point, from their
smallest and largest values on the inputs that the graph was checked with. Runtimes join the pairs
with the product between them to an integer one.

Source: the QDQ form of ONNX Runtime (onnxruntime/docs, "Quantize ONNX models").
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ....proto import onnx_pb2 as pb
from ...inference.cases import Case
from ...inference.form import ExportError
from ..files.graph import Graph
from .checking import error_of, runner, runtime_name

_PRODUCTS = {"MatMul": 1, "Gemm": 1, "Conv": 0}
"""Nodes whose second input is quantized if it is a constant -> the axis of its results."""


@dataclass(frozen=True)
class Int8Report:
    """What quantization costs; `str(report)` is a line for people.

    Attributes:
        products: how many have become integer ones. left: how many of their kinds have not.
        error: the largest one; see `error_of`.
        rms: root of the mean square difference over that of the values.
        agreement: how often the largest element of a row is the same, from 0 to 1.
    """

    products: int
    left: int
    error: float
    rms: float
    agreement: float

    def __str__(self) -> str:
        return (
            f"int8: {self.products} of {self.products + self.left} products, maximum error"
            f" {self.error:.3g}, relative RMS {self.rms:.3g}, the same largest element in"
            f" {100 * self.agreement:.4g} % of rows"
        )


def to_int8(graph: Graph, cases: Sequence[Case]) -> Int8Report:
    """Quantize a graph in place.

    Args:
        cases: inputs that tell the ranges of activations, and the outputs to compare with.

    Raises:
        ExportError: there is no product of a constant matrix, or nothing that runs the graph.
    """
    if not runtime_name():
        raise ExportError("ONNX: int8 wants onnxruntime, which tells the ranges of activations")
    chosen = [node for node in graph.message.node if _weight(graph, node) is not None]
    kinds = sum(node.op_type in _PRODUCTS for node in graph.message.node)
    if not chosen:
        raise ExportError("ONNX: the graph has no product with a constant matrix to quantize")
    ranges = _ranges(graph, sorted({node.input[0] for node in chosen}), cases)
    names = {node.output[0] for node in chosen}
    nodes = list(graph.message.node)
    del graph.message.node[:]
    known: dict[str, str] = {}
    for node in nodes:
        if node.output[0] in names:
            _quantize(graph, node, ranges, known)
        graph.message.node.append(node)
    graph.drop_unread()
    return _report(graph, cases, len(chosen), kinds - len(chosen))


def _weight(graph: Graph, node: pb.NodeProto) -> np.ndarray | None:
    """The constant float matrix or kernel of a product."""
    if node.op_type not in _PRODUCTS or len(node.input) < 2:
        return None
    array = graph.arrays.get(node.input[1])
    return array if array is not None and array.ndim >= 2 and array.dtype == np.float32 else None


def _ranges(
    graph: Graph, values: Sequence[str], cases: Sequence[Case]
) -> dict[str, tuple[float, float]]:
    """The smallest and largest number of each value, 0 included."""
    outputs = graph.message.output
    had = [info.name for info in outputs]
    inputs = {info.name for info in graph.message.input}
    inner = [name for name in values if name not in inputs and name not in graph.arrays]
    for name in inner:
        if name not in had:
            graph.output(name, np.float32)
    try:
        run = runner(graph, validate=False)  # ranks of inner values are not declared
    finally:
        del outputs[len(had) :]
    ranges = dict.fromkeys(values, (0.0, 0.0))
    for given, _ in cases:
        arrays = dict(zip(inner, run(inner, dict(given)) if inner else [], strict=True))
        arrays.update({name: given[name] for name in values if name in given})
        arrays.update({name: graph.arrays[name] for name in values if name in graph.arrays})
        for name, array in arrays.items():
            if array.size:
                low, high = ranges[name]
                ranges[name] = min(low, float(array.min())), max(high, float(array.max()))
    return ranges


def _quantize(
    graph: Graph, node: pb.NodeProto, ranges: dict[str, tuple[float, float]], known: dict[str, str]
) -> None:
    """Put the nodes before a product that quantize what it reads."""
    x, w = node.input[0], node.input[1]
    if x not in known:
        low, high = ranges[x]
        scale = np.float32((high - low) / 255 or 1.0)
        zero = np.uint8(np.clip(np.rint(-low / scale), 0, 255))
        pair = [graph.constant(scale, f"{x}/scale"), graph.constant(zero, f"{x}/zero")]
        rounded = graph.node("QuantizeLinear", [x, *pair], f"{x}/int8")
        known[x] = graph.node("DequantizeLinear", [rounded, *pair], f"{x}/again")
    turned = any(one.name == "transB" and one.i for one in node.attribute)
    axis = _PRODUCTS[node.op_type] ^ int(turned)
    array = graph.arrays[w]
    axis = array.ndim - 1 if node.op_type == "MatMul" else axis
    key = f"{w}@{axis}"
    if key not in known:
        others = tuple(other for other in range(array.ndim) if other != axis)
        scales = (abs(array).max(axis=others) / 127).astype(np.float32)
        scales[scales == 0] = 1
        wide = np.expand_dims(scales, others)
        whole = np.clip(np.rint(array / wide), -127, 127).astype(np.int8)
        zeros = np.zeros(len(scales), np.int8)
        read = [graph.constant(whole, f"{w}/int8"), graph.constant(scales, f"{w}/scale")]
        read.append(graph.constant(zeros, f"{w}/zero"))
        known[key] = graph.node("DequantizeLinear", read, f"{w}/again", axis=axis)
    node.input[0], node.input[1] = known[x], known[key]


def _report(graph: Graph, cases: Sequence[Case], products: int, left: int) -> Int8Report:
    run = runner(graph)
    names = [info.name for info in graph.message.output]
    worst = 0.0
    gap = 0.0
    total = 0.0
    same = 0
    rows = 0
    for inputs, wanted in cases:
        outputs: list[Any] = run(names, dict(inputs))
        for name, value in zip(names, outputs, strict=True):
            own = np.asarray(wanted[name])
            if not own.size or own.dtype.kind != "f":
                continue
            worst = max(worst, float(error_of(value, own).max()))
            finite = np.isfinite(own)
            gap += float(((value - own)[finite].astype(np.float64) ** 2).sum())
            total += float((own[finite].astype(np.float64) ** 2).sum())
            if own.ndim and own.shape[-1] > 1:
                equal = value.argmax(-1) == own.argmax(-1)
                same = same + int(equal.sum())
                rows = rows + equal.size
    return Int8Report(
        products, left, worst, float(np.sqrt(gap / total)) if total else 0.0,
        same / rows if rows else 1.0,
    )  # fmt: skip
