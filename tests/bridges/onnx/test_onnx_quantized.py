"""ONNX models whose numbers are 8-bit integers: QLinear*, pairs, dynamic; beside ONNX Runtime."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import opscope
from opscope.bridges.onnx.files.graph import Graph
from opscope.bridges.onnx.files.writing import model_bytes
from opscope.bridges.onnx.importing.calls import KINDS
from opscope.bridges.onnx.importing.model import model_of_bytes
from opscope.operators.backends.integer import integer_gemm
from opscope.proto import onnx_pb2 as pb

RNG = np.random.default_rng(3)
STANDARD = ("QLinearConv", "QLinearMatMul")


class Bytes:
    """A graph over images or rows of bytes."""

    def __init__(self, *shape: int) -> None:
        self.graph = Graph("bytes", 17)
        self.shape = shape
        x = self.graph.input("x", np.dtype("f4"), ("N", *shape))
        self.first = self.quantized(x, 0.03, 110)

    def numbers(self, scale: Any, zero: Any, dtype: str = "u1") -> list[str]:
        arrays = np.asarray(scale, "f4"), np.asarray(zero, dtype)
        return [self.graph.constant(array) for array in arrays]

    def quantized(self, x: str, scale: float, zero: int) -> str:
        return self.graph.node("QuantizeLinear", [x, *self.numbers(scale, zero)], f"{x}/q")

    def real(self, x: str, scale: float, zero: int) -> str:
        return self.graph.node("DequantizeLinear", [x, *self.numbers(scale, zero)], f"{x}/real")

    def again(self, x: str, scale: float, zero: int) -> str:
        return self.real(self.quantized(x, scale, zero), scale, zero)

    def file(self) -> bytes:
        """The model, whose operators are those of ONNX Runtime where ONNX has none."""
        model = pb.ModelProto.FromString(model_bytes(self.graph))
        for node in model.graph.node:
            if node.op_type.startswith("QLinear") and node.op_type not in STANDARD:
                node.domain = "com.microsoft"
        model.opset_import.add(domain="com.microsoft", version=1)
        return model.SerializeToString()

    def weights(self, *shape: int) -> list[str]:
        outs = shape[0] if len(shape) > 2 else shape[1]
        whole = RNG.integers(-127, 128, shape, np.int8)
        scales = RNG.uniform(0.5, 2, outs) / np.prod(shape) * outs / 20
        return [self.graph.constant(whole), *self.numbers(scales, np.zeros(outs), "i1")]


def qlinear() -> Bytes:
    """Every operator of this form."""
    g = Bytes(16, 9, 10)
    given, at = [g.first, *g.numbers(0.03, 110)], g.numbers(0.05, 120)
    bias = g.graph.constant(RNG.integers(-900, 900, 24, np.int32))
    wide = [*given, *g.weights(24, 16, 3, 3), *at, bias]
    made = g.graph.node("QLinearConv", wide, "conv", pads=[1] * 4, strides=[2, 1])
    deep = [made, *at, *g.weights(24, 1, 3, 3), *at]
    alone = g.graph.node("QLinearConv", deep, "deep", pads=[1] * 4, group=24)
    both = [made, *at, alone, *at, *g.numbers(0.08, 100)]
    added = g.graph.node("QLinearAdd", both, "added")
    seen = g.graph.constant(RNG.integers(0, 2, (24, 1, 1)).astype(bool))
    both = [seen, *both[:6], *g.numbers(0.08, 100)]
    both = [g.graph.node("QLinearWhere", both, "where"), *g.numbers(0.08, 100), *both[4:]]
    times = g.graph.node("QLinearMul", both, "times")
    bent = [added, *g.numbers(0.08, 100), *g.numbers(0.06, 30)]
    bent_once = g.graph.node("QLinearLeakyRelu", bent, "bent", alpha=0.1)
    most = g.graph.node("MaxPool", [bent_once], "most", kernel_shape=[3, 3], strides=[2, 2])
    parts = [*g.numbers(0.09, 60)]
    parts += [most, *g.numbers(0.06, 30), most, *g.numbers(0.07, 40)]
    joined = g.graph.node("QLinearConcat", parts, "joined", axis=1)
    mean = [joined, *g.numbers(0.09, 60), *g.numbers(0.05, 70)]
    means = g.graph.node("QLinearGlobalAveragePool", mean, "means")
    flat = g.graph.node("Flatten", [means], "flat")
    last = [flat, *g.numbers(0.05, 70), *g.weights(48, 40), *g.numbers(0.04, 128)]
    g.graph.output(g.graph.node("QLinearMatMul", last, "product"), np.dtype("u1"))
    g.graph.output(times, np.dtype("u1"))
    return g


def pairs() -> Bytes:
    """The same between DequantizeLinear and QuantizeLinear."""
    g = Bytes(16, 9, 10)
    x = g.real(g.first, 0.03, 110)
    w = g.graph.node("DequantizeLinear", g.weights(24, 16, 3, 3), "w", axis=0)
    made = g.graph.node("Conv", [x, w], "conv", pads=[1] * 4)
    made = g.graph.node("Relu", [made], "relu")
    conv = g.quantized(made, 0.05, 0)
    again = g.real(conv, 0.05, 0)
    added = g.quantized(g.graph.node("Add", [again, again], "added"), 0.1, 3)
    bent = g.quantized(g.graph.node("Sigmoid", [g.real(added, 0.1, 3)], "bent"), 1 / 256, 0)
    most = g.graph.node("MaxPool", [g.real(bent, 1 / 256, 0)], "most", kernel_shape=[2, 2])
    mean = g.graph.node("GlobalAveragePool", [g.again(most, 1 / 256, 0)], "mean")
    flat = g.graph.node("Flatten", [g.again(mean, 1 / 300, 0)], "flat")
    flat = g.again(flat, 1 / 300, 0)
    v = g.graph.node("DequantizeLinear", g.weights(24, 40), "v", axis=1)
    g.graph.output(g.quantized(g.graph.node("Gemm", [flat, v], "gemm"), 0.01, 128), np.dtype("u1"))
    return g


def dynamic() -> Bytes:
    """Scales that follow the numbers."""
    g = Bytes(16, 6, 7)
    x, scale, zero = g.graph.node("DynamicQuantizeLinear", ["x"], "dynamic", outputs=3)
    w = g.graph.constant(RNG.integers(-127, 128, (8, 16, 3, 3), np.int8))
    sums = g.graph.node("ConvInteger", [x, w, zero], "conv", pads=[1] * 4)
    factor = g.graph.node("Mul", [scale, g.graph.constant(np.float32(0.01))], "factor")
    reals = g.graph.node("Mul", [g.graph.node("Cast", [sums], "cast", to=1), factor], "reals")
    g.graph.output(reals, np.dtype("f4"))
    return g


FORMS: dict[Callable[[], Bytes], tuple[str, ...]] = {
    qlinear: ("integer_conv", "quantized_add", "byte_table", "integer_matmul", "quantized_mul"),
    pairs: ("integer_conv", "quantized_add", "byte_table", "integer_matmul", "max_pool2d"),
    dynamic: ("dynamic_quantize_linear", "integer_conv"),
}


@pytest.mark.parametrize("bits, block", [(4, 32), (4, 16), (8, 64)])
@pytest.mark.parametrize("with_zeros", [False, True])
def test_matrices_in_blocks(bits: int, block: int, with_zeros: bool) -> None:
    ort = pytest.importorskip("onnxruntime")
    depth, columns = 100, 24
    count = -(-depth // block)
    g = Graph("blocks")
    g.input("x", np.dtype("f4"), ["N", 3, depth])
    w = RNG.integers(0, 256, (columns, count, block * bits // 8), np.uint8)
    scale = RNG.normal(size=columns * count).astype("f4")
    zeros = RNG.integers(0, 256, (columns, (count * bits + 7) // 8), np.uint8)
    bias = RNG.normal(size=columns).astype("f4")
    more = [zeros] if with_zeros else [None]
    given = [None if one is None else g.constant(one) for one in (w, scale, *more, None, bias)]
    sizes = {"K": depth, "N": columns, "bits": bits, "block_size": block}
    g.output(
        g.node("MatMulNBits", ["x", *given], domain="com.microsoft", accuracy_level=1, **sizes),
        np.dtype("f4"),
    )
    data = model_bytes(g)
    model = model_of_bytes(data)
    feed = {"x": RNG.normal(size=(2, 3, depth)).astype("f4")}
    (wanted,) = ort.InferenceSession(data).run(None, feed)
    (found,) = model.run(feed).values()
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-5 * abs(wanted).max())
    assert {op.type for op in model.op_list().ops} == {"matmul_nbits", "reshape"}


@pytest.mark.parametrize(
    "dtype, low, high, bits",
    [("u1", 0, 256, 8), ("i1", -128, 128, 8), ("u1", 0, 16, 4), ("i1", -8, 8, 4)],
)
@pytest.mark.parametrize("with_zeros", [False, True])
def test_a_product_with_a_matrix_dequantized_in_blocks(
    dtype: str, low: int, high: int, bits: int, with_zeros: bool
) -> None:
    ort = pytest.importorskip("onnxruntime")
    g = Graph("blocks", 21)
    g.input("x", np.dtype("f4"), ["N", 80])
    given = [RNG.integers(low, high, (80, 12), dtype), RNG.normal(size=(3, 12)).astype("f4")]
    given += [RNG.integers(low, high, (3, 12), dtype)] * with_zeros
    names = [g.constant(one) for one in given]
    matrix = g.node("DequantizeLinear", names, axis=0, block_size=32)
    g.output(g.node("MatMul", ["x", matrix]), np.dtype("f4"))
    data = model_bytes(g)
    model = model_of_bytes(data)
    feed = {"x": RNG.normal(size=(5, 80)).astype("f4")}
    options = ort.SessionOptions()  # else it rounds x to 8 bits
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    (wanted,) = ort.InferenceSession(data, options).run(None, feed)
    (found,) = model.run(feed).values()
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-5 * abs(wanted).max())
    (product,) = (op for op in model.op_list().ops if op.type == "matmul_nbits")
    assert product.attrs["bits"] == bits


def attention(is_whole: bool, masked: str) -> Graph:
    """What ONNX Runtime has as one node: attention with heads, causal, after keys of before."""
    g = Graph("attention")
    x = g.input("x", np.dtype("f4"), ["N", 5, 16])
    past = g.input("past", np.dtype("f4"), [2, "N", 2, 3, 8])
    shape = {"ends": ["N"], "keys": ["N", 8], "both": ["N", 5, 8]}[masked]
    mask = g.input("mask", np.dtype("i4"), shape)
    bias = g.constant(RNG.normal(size=48).astype("f4"))
    how: dict[str, Any] = {"num_heads": 2, "unidirectional": 1, "domain": "com.microsoft"}
    if is_whole:
        w = g.constant(RNG.integers(-127, 128, (16, 48), np.int8))
        scales = [g.constant(np.float32(one)) for one in (0.02, 0.01)]
        zeros = [g.constant(np.array(one)) for one in (np.uint8(120), np.int8(0))]
        x = g.node("QuantizeLinear", [x, scales[0], zeros[0]])
        given = [x, w, bias, *scales, mask, *zeros, past]
        made = g.node("QAttention", given, outputs=2, **how)
    else:
        w = g.constant(RNG.normal(size=(16, 48)).astype("f4"))
        made = g.node("Attention", [x, w, bias, mask, past], outputs=2, **how)
    for one in made:
        g.output(one, np.dtype("f4"))
    return g


def embedding(is_whole: bool) -> Graph:
    """Rows of tables that are added up and normalized, of floats or of integers."""
    g = Graph("embedding")
    ids, kinds, mask = (g.input(one, np.dtype("i4"), ["N", 5]) for one in ("ids", "kinds", "mask"))
    arrays = [RNG.normal(size=shape) for shape in ((9, 8), (5, 8), (2, 8), (8,), (8,))]
    if is_whole:
        tables = [g.constant((30 * one + 128).astype("u1")) for one in arrays]
        scales = [g.constant(np.float32(1 / 30))] * 5
        given = [ids, kinds, *tables, mask, *scales, *[g.constant(np.uint8(128))] * 5]
    else:
        given = [ids, kinds, *(g.constant(one.astype("f4")) for one in arrays), mask]
    op = "QEmbedLayerNormalization" if is_whole else "EmbedLayerNormalization"
    made, ends = g.node(op, given, outputs=2, domain="com.microsoft", epsilon=1e-5)
    g.output(g.node("Gelu", [made], domain="com.microsoft"), np.dtype("f4"))
    g.output(ends, np.dtype("i4"))
    return g


FUSED = {
    f"{kind} {masked}": partial(attention, kind == "QAttention", masked)
    for kind in ("Attention", "QAttention")
    for masked in ("ends", "keys", "both")
}
FUSED |= {"Embed": partial(embedding, False), "QEmbed": partial(embedding, True)}


@pytest.mark.parametrize("name", FUSED)
def test_layers_that_are_one_node(name: str) -> None:
    ort = pytest.importorskip("onnxruntime")
    data = model_bytes(FUSED[name]())
    session = ort.InferenceSession(data)
    feed = {}
    for info in session.get_inputs():
        shape = [2 if isinstance(one, str) else one for one in info.shape]
        drawn = RNG.normal(size=shape) if "float" in info.type else RNG.integers(0, 2, shape)
        feed[info.name] = drawn.astype("f4" if "float" in info.type else "i4")
        if info.name == "mask" and len(shape) == 1:
            feed[info.name][:] = [8, 5]
    model = model_of_bytes(data)
    wanted, found = session.run(None, feed), model.run(feed)
    for own, other in zip(found.values(), wanted, strict=True):
        np.testing.assert_allclose(own, other, rtol=1e-4, atol=1e-5)
    assert model.is_one_net(feed)


REFUSED = {"MatMulBnb4", "GatherBlockQuantized"}
"""What its quantizer makes and is refused by name: floats of 4 bits, rows of blocks."""


def test_all_that_a_quantizer_of_onnx_runtime_makes_is_known() -> None:
    pytest.importorskip("onnx")
    registry = pytest.importorskip("onnxruntime.quantization.registry")
    sources = [path.read_text() for path in Path(registry.__file__).parent.rglob("*.py")]
    made = {op for text in sources for op in re.findall(r'make_node\(\s*"(\w+)"', text)}
    operators = registry.QLinearOpsRegistry.items()
    named = [op for op, kind in operators if '"QLinear" + ' in inspect.getsource(kind)]
    # Of these it makes limits of the numbers before, not nodes.
    made |= {f"QLinear{op}" for op in named if op not in ("Relu", "Clip")}
    assert "QLinear" in made and len(named) > 5
    assert made - {op for _, op in KINDS} - {"QLinear"} == REFUSED
    for op in REFUSED:
        g = Graph("g")
        g.output(g.node(op, [g.input("x", np.dtype("f4"), [2])], domain="com.microsoft"), "f4")
        with pytest.raises(opscope.FormatError, match=f"com.microsoft.{op}"):
            model_of_bytes(model_bytes(g))


@pytest.mark.parametrize("form", FORMS)
def test_numbers_are_those_of_onnx_runtime(form: Callable[[], Bytes], tmp_path: Any) -> None:
    ort = pytest.importorskip("onnxruntime")
    g = form()
    data = g.file()
    model = model_of_bytes(data)
    feed = {"x": RNG.normal(size=(2, *g.shape)).astype("f4")}
    wanted = ort.InferenceSession(data).run(None, feed)
    found = model.run(feed)
    for own, other in zip(found.values(), wanted, strict=True):
        np.testing.assert_allclose(own.astype("f8"), other.astype("f8"), rtol=1e-5, atol=1e-6)
    kinds = {op.type for op in model.op_list().ops}
    if integer_gemm.is_fast():
        assert kinds >= {*FORMS[form]} and not kinds & {"conv2d", "matmul", "cast"}
    model.save(tmp_path / "net")
    again = opscope.load(tmp_path / "net").predict(feed)
    for name, value in found.items():
        np.testing.assert_array_equal(again[name], value, strict=True)
