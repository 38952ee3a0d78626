"""Quantization to 8 bits: integers in the place of the matrices and filters of products.

    static   QuantizeLinear and DequantizeLinear around products; the scale and the zero point
             of what they read come from calibration data
    dynamic  scales that follow the numbers of each run: DynamicQuantizeLinear, products of integers
    weights  matrices alone: DequantizeLinear of integers, and the product of floats

Weights get a scale for each result, symmetric. Runtimes join pairs with the product between them to
an integer one.

Source: the QDQ form of ONNX Runtime (onnxruntime/docs, "Quantize ONNX models").
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ....proto import onnx_pb2 as pb
from ...inference.cases import Case, Values
from ...inference.form import ExportError
from ..files.graph import Graph
from ..files.writing import model_bytes
from ..importing.model import model_of_bytes
from .checking import error_of

WAYS = ("static", "dynamic", "weights")
_PRODUCTS = {"MatMul": 1, "Gemm": 1, "Conv": 0}
"""Nodes whose second input is quantized if it is a constant -> the axis of its results."""


@dataclass(frozen=True)
class LayerError:
    """How far a quantized product is from the product of floats.

    Attributes:
        name: of its result. kind: of the node. error: root mean square of the differences divided
            by the root mean square of the values, with all products before it quantized as well.
    """

    name: str
    kind: str
    error: float


@dataclass(frozen=True)
class Int8Report:
    """What quantization costs; `str(report)` is a line for people, `table()` one for each product.

    Attributes:
        products: how many have become integer ones. left: how many of their kinds have not.
        error: the largest one; see `error_of`.
        rms: root mean square of the differences, divided by the root mean square of the values.
        agreement: how often the largest element of a row is the same, from 0 to 1.
        layers: the products, in order.
        form: `int8`, `q8`, `q4`, `bf16`.
    """

    products: int
    left: int
    error: float
    rms: float
    agreement: float
    layers: tuple[LayerError, ...] = ()
    form: str = "int8"

    def __str__(self) -> str:
        return (
            f"{self.form}: {self.products} of {self.products + self.left} products, maximum error"
            f" {self.error:.3g}, relative RMS {self.rms:.3g}, the same largest element in"
            f" {100 * self.agreement:.4g} % of rows"
        )

    def table(self) -> str:
        """A line for each product, after its head."""
        rows = [f"{'relative RMS':>12}  {'kind':6}  product"]
        rows += [f"{one.error:12.3g}  {one.kind:6}  {one.name}" for one in self.layers]
        return "\n".join(rows)


def to_int8(graph: Graph, cases: Sequence[Case], way: str = "static") -> Int8Report:
    """Quantize a graph in place.

    Args:
        cases: inputs that tell the ranges of activations, and the outputs to compare with.
        way: one of `WAYS`.

    Raises:
        ExportError: there is no product of a constant matrix.
    """
    kinds = sum(node.op_type in _PRODUCTS for node in graph.message.node)
    chosen = [node for node in graph.message.node if _weight(graph, node) is not None]
    chosen = [node for node in chosen if way != "dynamic" or _is_plain(node)]
    if not chosen:
        raise ExportError("ONNX: the graph has no product with a constant matrix to quantize")
    before = [_values(graph, inputs) for inputs, _ in cases]
    quantizer = _Quantizer(graph, way, before)
    names = {node.output[0] for node in chosen}
    nodes = list(graph.message.node)
    del graph.message.node[:]
    for node in nodes:
        if node.output[0] not in names or not quantizer.quantize(node):
            graph.message.node.append(node)
    graph.drop_unread()
    after = [_values(graph, inputs) for inputs, _ in cases]
    products = {node.output[0]: node.op_type for node in chosen}
    layers = layer_errors(products, before, after)
    names = [info.name for info in graph.message.output]
    return report_of(names, cases, after, layers, kinds - len(chosen))


def _weight(graph: Graph, node: pb.NodeProto) -> np.ndarray | None:
    """The constant float matrix or kernel of a product."""
    if node.op_type not in _PRODUCTS or len(node.input) < 2:
        return None
    array = graph.arrays.get(node.input[1])
    return array if array is not None and array.ndim >= 2 and array.dtype == np.float32 else None


def _is_plain(node: pb.NodeProto) -> bool:
    """Whether a product is one of its inputs as they are, with no factors but 1."""
    attrs = {one.name: one for one in node.attribute}
    factors = [attrs[name].f for name in ("alpha", "beta") if name in attrs]
    turned = "transA" in attrs and attrs["transA"].i
    return all(factor == 1 for factor in factors) and not turned


def _values(graph: Graph, inputs: Values) -> dict[str, Any]:
    """All values of a graph, computed here."""
    model = model_of_bytes(model_bytes(graph), "quantized.onnx")
    return dict(inputs) | model.values(dict(inputs))


class _Quantizer:
    """Puts quantized products in the place of nodes.

    Args:
        runs: values of the float graph, for each of the inputs.
    """

    def __init__(self, graph: Graph, way: str, runs: Sequence[Values]) -> None:
        self._graph = graph
        self._way = way
        self._runs = runs
        self._read: dict[str, Any] = {}  # what stands for values that are read
        self._weights: dict[tuple[str, int], list[str]] = {}

    def quantize(self, node: pb.NodeProto) -> bool:
        """Quantize what a product reads; whether other nodes have taken its place."""
        turned = any(one.name == "transB" and one.i for one in node.attribute)
        array = self._graph.arrays[node.input[1]]
        axis = _PRODUCTS[node.op_type] ^ int(turned)
        axis = array.ndim - 1 if node.op_type == "MatMul" else axis
        if self._way == "dynamic":
            self._dynamic(node, turned)
            return True
        whole, scales = self._whole(node.input[1], axis)
        zeros = np.zeros(array.shape[axis], np.int8)
        read = [whole, scales, self._graph.constant(zeros, f"{node.input[1]}/zero")]
        if self._way == "static":
            node.input[0] = self._rounded(node.input[0])
            self._bias(node, scales)
        node.input[1] = self._graph.node(
            "DequantizeLinear", read, f"{node.output[0]}/weights", axis=axis
        )
        return False

    def _whole(self, name: str, axis: int, turned: bool = False) -> list[str]:
        """The integers and the scales of weights, a scale for each place of an axis."""
        key = name, axis
        if key not in self._weights:
            array = self._graph.arrays[name]
            others = tuple(other for other in range(array.ndim) if other != axis)
            scales = (abs(array).max(axis=others) / 127).astype(np.float32)
            scales[scales == 0] = 1
            whole = np.rint(array / np.expand_dims(scales, others)).clip(-127, 127).astype(np.int8)
            whole = np.ascontiguousarray(whole.T) if turned else whole
            self._weights[key] = [
                self._graph.constant(whole, f"{name}/int8"),
                self._graph.constant(scales, f"{name}/scale"),
            ]
        return self._weights[key]

    def _bias(self, node: pb.NodeProto, scales: str) -> None:
        """Round a constant bias in the scale of the sums, so that it is added to these."""
        graph = self._graph
        array = graph.arrays.get(node.input[2]) if len(node.input) > 2 else None
        if array is None or array.shape != graph.arrays[scales].shape or not _is_plain(node):
            return
        pair = next(one for one in graph.message.node if one.output[0] == node.input[0])
        scale = (graph.arrays[pair.input[1]] * graph.arrays[scales]).astype(np.float32)
        most = np.iinfo(np.int32).max - 127  # as floats have it
        whole = np.rint(array / scale.astype(np.float64)).clip(-most, most).astype(np.int32)
        read = [graph.constant(one, f"{node.output[0]}/bias") for one in (whole, scale)]
        node.input[2] = graph.node("DequantizeLinear", read, f"{node.output[0]}/bias/again", axis=0)

    def _rounded(self, x: str) -> str:
        """A value between QuantizeLinear and DequantizeLinear."""
        if x not in self._read:
            arrays = [run[x] for run in self._runs if run[x].size]
            low = min((float(one.min()) for one in arrays), default=0.0)
            high = max((float(one.max()) for one in arrays), default=0.0)
            low, high = min(low, 0.0), max(high, 0.0)
            scale = np.float32((high - low) / 255 or 1.0)
            zero = np.uint8(np.clip(np.rint(-low / scale), 0, 255))
            graph = self._graph
            pair = [graph.constant(scale, f"{x}/scale"), graph.constant(zero, f"{x}/zero")]
            rounded = graph.node("QuantizeLinear", [x, *pair], f"{x}/int8")
            self._read[x] = graph.node("DequantizeLinear", [rounded, *pair], f"{x}/again")
        return self._read[x]

    def _dynamic(self, node: pb.NodeProto, turned: bool) -> None:
        """Nodes that multiply integers in scales of the run."""
        graph, (x, w), out = self._graph, node.input[:2], node.output[0]
        if x not in self._read:
            self._read[x] = graph.node("DynamicQuantizeLinear", [x], f"{x}/int8", outputs=3)
        rounded, scale, zero = self._read[x]
        rank = graph.arrays[w].ndim
        of_conv = node.op_type == "Conv"
        axis = 0 if of_conv or turned else rank - 1
        whole, scales = self._whole(w, axis, turned)
        ones = [1] * (rank - 2) if of_conv else []
        if ones:
            scales = graph.constant(graph.arrays[scales].reshape(-1, *ones), f"{w}/scale")
        kind = "ConvInteger" if of_conv else "MatMulInteger"
        sums = graph.node(kind, [rounded, whole, zero], f"{out}/sums")
        if of_conv:
            graph.message.node[-1].attribute.extend(node.attribute)
        reals = graph.node("Cast", [sums], f"{out}/reals", to=pb.TensorProto.FLOAT)
        factor = graph.node("Mul", [scale, scales], f"{out}/scale")
        bias = node.input[2] if len(node.input) > 2 else ""
        made = graph.node("Mul", [reals, factor], f"{out}/product")
        if bias and ones:
            bias = graph.node("Reshape", [bias, graph.ints(-1, *ones)], f"{out}/bias")
        # The node's own name: what reads it goes on doing so.
        last = pb.NodeProto(op_type="Add" if bias else "Identity", name=out, output=[out])
        last.input.extend([made, bias] if bias else [made])
        graph.message.node.append(last)


def layer_errors(
    products: Mapping[str, str], before: Sequence[Values], after: Sequence[Values]
) -> tuple[LayerError, ...]:
    """The error of each product, by the kinds of products; `before` and `after` have the values."""
    return tuple(LayerError(one, products[one], _relative(one, before, after)) for one in products)


def _relative(name: str, before: Sequence[Values], after: Sequence[Values]) -> float:
    """The error of a value over all inputs; see `LayerError`."""
    pairs = [(a[name].astype(np.float64), b[name]) for a, b in zip(before, after, strict=True)]
    total = sum(float((a**2).sum()) for a, _ in pairs)
    gap = sum(float(((b - a) ** 2).sum()) for a, b in pairs)
    return float(np.sqrt(gap / total)) if total else 0.0


def report_of(
    names: Sequence[str],
    cases: Sequence[Case],
    after: Sequence[Values],
    layers: tuple[LayerError, ...],
    left: int,
    form: str = "int8",
) -> Int8Report:
    """What quantization costs.

    Args:
        names: of the outputs. cases: inputs and the outputs of floats. after: the outputs now.
        left: products of floats that are left. form: what the others have become.
    """
    worst = 0.0
    gap = 0.0
    total = 0.0
    same = 0
    rows = 0
    for (_, wanted), found in zip(cases, after, strict=True):
        for name in names:
            value = found[name]
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
        len(layers), left, worst, float(np.sqrt(gap / total)) if total else 0.0,
        same / rows if rows else 1.0, layers, form,
    )  # fmt: skip
