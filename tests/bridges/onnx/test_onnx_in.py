"""ONNX in: models that run, train and are saved; graphs inside nodes; bad files in one error."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import opscope
from campaign.readers.onnx_targets import graphs, layers
from opscope import NetBuilder
from opscope.bridges.onnx.files.graph import Graph
from opscope.bridges.onnx.files.writing import model_bytes, write_model
from opscope.bridges.onnx.importing import engine
from opscope.bridges.onnx.importing.calls import KINDS, Kind
from opscope.bridges.onnx.importing.engine import Engine
from opscope.bridges.onnx.importing.graph import Node
from opscope.bridges.onnx.importing.model import model_of_bytes
from opscope.framework.base.errors import (
    FormatError,
    RunError,
    ShapeError,
    VariableError,
)
from opscope.framework.runtime.plain_net import PlainNet
from opscope.operators.backends.integer import integer_gemm
from opscope.proto import onnx_pb2 as pb


def imported(graph: Graph) -> Any:
    return model_of_bytes(model_bytes(graph), "m.onnx")


def x_of(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).normal(size=shape).astype(np.float32)


def with_ort(data: bytes, feed: dict[str, np.ndarray]) -> list[np.ndarray]:
    ort = pytest.importorskip("onnxruntime")
    return ort.InferenceSession(data).run(None, feed)


@pytest.mark.parametrize("rows", [1, 5])
def test_layers_run_as_elsewhere(rows: int) -> None:
    data, feed = model_bytes(layers()), {"x": x_of(rows, 2, 6, 6)}
    model = model_of_bytes(data)
    assert model.is_one_net(feed)
    np.testing.assert_allclose(model.run(feed)["y"], with_ort(data, feed)[0], atol=1e-5)


@pytest.mark.parametrize("dtype", [np.float32, np.int64])
def test_a_sum_with_zero_between_shapes_is_nothing(dtype: Any) -> None:
    """As Paddle's exporter writes an assignment."""
    graph = Graph("assigned", 17)
    x = graph.input("x", np.dtype(dtype), ["N", 3])
    zero, axis = graph.constant(np.zeros(1, dtype)), graph.constant([0], dtype=np.int64)
    apart = graph.node("Add", [graph.node("Unsqueeze", [x, axis]), zero])
    graph.output(graph.node("Neg", [graph.node("Squeeze", [apart, axis])], "y"), np.dtype(dtype))
    wide = graph.constant(np.zeros((1, 1, 1), dtype))
    graph.output(graph.node("Add", [wide, x], "wide"), np.dtype(dtype))
    ones = graph.constant(np.ones(1, dtype))
    graph.output(graph.node("Add", [ones, x], "more"), np.dtype(dtype))
    data = model_bytes(graph)
    model = model_of_bytes(data)
    types = [op.type for op in model.op_list({"x": (-1, 3)}).ops]
    assert types.count("add") == 2 and "reshape" not in types
    for rows in (2, 1, 0):
        feed = {"x": np.arange(-3, 3 * rows - 3).reshape(rows, 3).astype(dtype)}
        if rows and dtype == np.float32:
            feed["x"][0] = [np.nan, np.inf, -1]
        for found, wanted in zip(model.run(feed).values(), with_ort(data, feed), strict=True):
            np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize(
    "attributes",
    [
        {},
        {"pads": [1, 0, 0, 2], "output_padding": [1, 0]},
        {"output_shape": [6, 8]},  # an odd number of places is cut, the greater part first
        {"output_shape": [6, 8], "auto_pad": "SAME_UPPER"},
        {"output_shape": [8, 11]},  # one more place than windows reach
        {"auto_pad": "SAME_LOWER"},
        {"auto_pad": "VALID", "dilations": [2, 1]},
    ],
)
def test_transposed_convolutions_as_elsewhere(attributes: dict[str, Any], biased: bool) -> None:
    graph = Graph("transposed", 17)
    given = [graph.input("x", np.dtype("f4"), (2, 4, 3, 5)), graph.constant(x_of(4, 3, 3, 2))]
    given += [graph.constant(x_of(6))] if biased else []
    y = graph.node("ConvTranspose", given, "y", group=2, strides=[2, 2], **attributes)
    graph.output(y, np.dtype("f4"))
    data, feed = model_bytes(graph), {"x": x_of(2, 4, 3, 5)}
    found, wanted = model_of_bytes(data).run(feed)[y], with_ort(data, feed)[0]
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", ["MatMul", "Gemm"])
@pytest.mark.parametrize("shape", [(7, 4), (2, 7, 4)])
def test_products_read_what_was_transposed(shape: tuple[int, ...], kind: str) -> None:
    if kind == "Gemm" and len(shape) > 2:
        pytest.skip("Gemm takes matrices")
    graph = Graph("tied", 17)
    x = graph.input("x", np.dtype("f4"), (*shape[:-2], 3, 4))
    w = graph.input("w", np.dtype("f4"), shape)
    axes = list(range(len(shape)))
    turned = graph.node("Transpose", [w], "t", perm=[*axes[:-2], axes[-1], axes[-2]])
    graph.output(graph.node(kind, [x, turned], "y"), np.dtype("f4"))
    data, feed = model_bytes(graph), {"x": x_of(*shape[:-2], 3, 4), "w": x_of(*shape)}
    model = model_of_bytes(data)
    np.testing.assert_allclose(model.run(feed)["y"], with_ort(data, feed)[0], rtol=1e-5, atol=1e-5)
    product = next(op for op in model.op_list().ops if op.type == "matmul")
    assert product.inputs["y"] == ("w",) and product.attrs["transpose_y"]


@pytest.mark.parametrize("dtype", ["float32", "int64"])
@pytest.mark.parametrize("power", [0, 1, 2, 3, 4, 5, 0.5, -0.5, -1, -2, 2.5])
def test_powers_by_numbers_as_elsewhere(power: float, dtype: str) -> None:
    if dtype == "int64" and not float(power).is_integer():
        pytest.skip("integers have whole powers")
    graph = Graph("powers", 17)
    given = [graph.input("x", np.dtype(dtype), (2, 3)), graph.constant(np.float32(power))]
    graph.output(graph.node("Pow", given, "y"), np.dtype(dtype))
    data, x = model_bytes(graph), np.array([[1, 2, 3], [7, 12, 2500]], dtype)
    found, wanted = model_of_bytes(data).run({"x": x})["y"], with_ort(data, {"x": x})[0]
    assert found.dtype == wanted.dtype
    np.testing.assert_allclose(found, wanted, rtol=0 if dtype == "int64" else 1e-6)


def test_products_of_dequantized_integers_are_products_of_integers() -> None:
    """MatMul and Gemm, with scales of columns; where the processor multiplies bytes."""
    rng = np.random.default_rng(1)
    pair = {"s": np.float32(0.02), "z": np.uint8(120)}
    weights = {"w": rng.integers(-127, 128, (30, 30), np.int8), "ws": np.full(30, 0.01, "f4")}
    graph = Graph("quantized", 17)
    x = graph.input("x", np.dtype("f4"), ("N", 30))
    s, z, w, ws = (graph.constant(one) for one in (*pair.values(), *weights.values()))
    made = x
    for kind in ("MatMul", "Gemm"):
        rounded = graph.node("QuantizeLinear", [made, s, z], f"{kind}/q")
        back = graph.node("DequantizeLinear", [rounded, s, z], f"{kind}/x")
        matrix = graph.node("DequantizeLinear", [w, ws], f"{kind}/w", axis=1)
        made = graph.node(kind, [back, matrix], f"{kind}/y")
    graph.output(made, np.dtype("f4"))
    data, feed = model_bytes(graph), {"x": x_of(9, 30)}
    model = model_of_bytes(data)
    kinds = [op.type for op in model.op_list().ops]
    assert kinds.count("integer_matmul") == (2 if integer_gemm.is_fast() else 0)
    np.testing.assert_allclose(model.run(feed)[made], with_ort(data, feed)[0], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("condition", [True, False])
def test_branches_and_loops(condition: bool) -> None:
    data, feed = model_bytes(graphs()), {"x": x_of(2, 3), "c": np.array(condition)}
    model = model_of_bytes(data)
    np.testing.assert_allclose(model.run(feed)["z"], with_ort(data, feed)[0], rtol=1e-5)


def test_a_file_is_read_by_its_path(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    write_model(path, layers(), external=True)
    model = opscope.from_onnx(path)
    assert [(i.name, i.dtype, i.shape) for i in model.inputs] == [
        ("x", np.dtype("float32"), ("N", 2, 6, 6))
    ]
    assert set(model.parameters) == {"w", "v"}
    assert model.run({"x": x_of(1, 2, 6, 6)}, ["y"])["y"].shape == (1, 16)
    next(tmp_path.glob("*.data")).unlink()
    with pytest.raises(FormatError, match=r"m.onnx: tensor '\w': external data: .*No such file"):
        opscope.from_onnx(path)


def test_it_trains_and_is_saved(tmp_path: Path) -> None:
    model = imported(layers())
    b = NetBuilder.from_desc(model.op_list())
    label = b.input("label", [-1], "int64")
    loss = b.mean(b.cross_entropy(b.var("y"), label), name="loss")
    b.backward_from(loss)
    b.add_optimization(0.02, "adam")
    feed = {"x": x_of(8, 2, 6, 6), "label": np.arange(8) % 4}
    before = model.run({"x": feed["x"]})["y"]
    history = opscope.train(b, [feed], epochs=20, scope=model.scope, progress=False)
    losses = [row["loss"] for row in history.rows]
    assert losses[-1] < 0.5 * losses[0]
    after = model.run({"x": feed["x"]})["y"]
    assert np.abs(after - before).max() > 0.1
    model.save(tmp_path / "saved")
    loaded = opscope.load(tmp_path / "saved")
    np.testing.assert_allclose(loaded.predict({"x": feed["x"]})["y"], after, atol=1e-6)


def test_the_gradient_of_a_loop_and_a_scan() -> None:
    """z = x (1 + w)^3 by a loop, its running sums by a scan; both have the gradient of w."""
    g = Graph("g")
    x, w = g.input("x", np.float32, [2, 3]), g.constant([[0.5, 1.0, 2.0]], "w", np.float32)
    body = g.sub_graph("body")
    body.input("i", np.int64, [])
    body.input("go", np.bool_, [])
    body.input("h", np.float32, [2, 3])
    body.output(body.node("Identity", ["go"], "go_on"), np.bool_)
    grown = body.node("Add", ["h", body.node("Mul", ["h", w])], "grown")
    body.output(grown, np.float32)
    z = g.node("Loop", [g.constant(3, dtype=np.int64), g.constant(True), x], "z", body=body)
    step = g.sub_graph("step")
    step.input("s", np.float32, [3])
    step.input("row", np.float32, [3])
    total = step.node("Add", ["s", "row"], "total")
    step.output(total, np.float32)
    step.output(step.node("Identity", [total], "copy"), np.float32)
    zero = g.constant(np.zeros(3), "zero", np.float32)
    outs = g.node("Scan", [zero, z], outputs=["last", "sums"], num_scan_inputs=1, body=step)
    g.output(outs[1], np.float32)
    data, feed = model_bytes(g), {"x": x_of(2, 3)}
    model = model_of_bytes(data)
    np.testing.assert_allclose(model.run(feed)["sums"], with_ort(data, feed)[0], rtol=1e-5)
    b = NetBuilder.from_desc(model.op_list())
    b.backward_from(b.mean(b.var("sums")))
    fetched = b.run(model.scope, feed=feed, fetch=["sums", b.gradient("w")])
    np.testing.assert_allclose(fetched["sums"], model.run(feed)["sums"], rtol=1e-5)
    wanted = 3 * (1 + np.array([0.5, 1, 2])) ** 2 * (2 * feed["x"][0] + feed["x"][1]) / 6
    np.testing.assert_allclose(fetched[b.gradient("w")][0], wanted, rtol=1e-4)


def test_what_hangs_on_data() -> None:
    """Rows that are not zero, then a product: two nets and a node on the host."""
    g = Graph("g")
    x, w = g.input("x", np.float32, ["N"]), g.constant(x_of(1, 4), "w")
    at = g.node("NonZero", [g.node("Relu", [x])])
    kept = g.node("Gather", [x, g.node("Squeeze", [at, g.ints(0)])], axis=0)
    rows = g.node("Unsqueeze", [kept, g.ints(1)])
    g.output(g.node("MatMul", [rows, w], "y"), np.float32)
    data = model_bytes(g)
    model = model_of_bytes(data)
    for size in (5, 9):
        feed = {"x": x_of(size)}
        np.testing.assert_allclose(model.run(feed)["y"], with_ort(data, feed)[0], atol=1e-6)
        assert not model.is_one_net(feed)
    with pytest.raises(ShapeError, match=r"depends on data.*NonZero"):
        model.op_list({"x": (5,)})


def resized(body: Graph, i: str, x: str) -> str:
    size = body.node("Unsqueeze", [body.node("Add", [i, body.constant(np.int64(1))]), body.ints(0)])
    image = body.node("Reshape", [x, body.ints(1, 1, -1)])
    sizes = body.node("Concat", [body.ints(1, 1), size], axis=0)
    big = body.node("Resize", [image, None, None, sizes], mode="linear")
    return body.node("ReduceSum", [big], keepdims=0)


def part(body: Graph, i: str, x: str) -> str:
    at = body.node("Unsqueeze", [i, body.ints(0)])
    end = body.node("Add", [at, body.ints(2)])
    return body.node("ReduceSum", [body.node("Slice", [x, at, end, body.ints(0)])], keepdims=0)


@pytest.mark.parametrize("step", [part, resized])
def test_rounds_of_ever_new_values(
    step: Callable[[Graph, str, str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A round makes no net for its value, nor for a shape that comes for the first time."""
    g = Graph("g")
    n, x = g.input("n", np.int64, []), g.input("x", np.float32, [9])
    body = g.sub_graph("body")
    i, go = body.input("i", np.int64, []), body.input("go", np.bool_, [])
    h = body.input("h", np.float32, [])
    body.output(body.node("Identity", [go], "on"), np.bool_)
    body.output(body.node("Add", [h, step(body, i, x)], "next"), np.float32)
    body.output(body.node("Identity", [h], "row"), np.float32)
    zero = g.constant(np.float32(0))
    for out in g.node("Loop", [n, g.constant(True), zero], outputs=["z", "rows"], body=body):
        g.output(out, np.float32)
    data, feed = model_bytes(g), {"n": np.array(7), "x": x_of(9)}
    model = model_of_bytes(data)
    found, nets = model.run(feed), []
    for one, wanted in zip(found.values(), with_ort(data, feed), strict=True):
        np.testing.assert_allclose(one, wanted, rtol=1e-5)
    monkeypatch.setattr(engine, "PlainNet", lambda *a, **o: nets.append(a) or PlainNet(*a, **o))
    model.run(feed | {"n": np.array(8)})
    assert not nets


def test_types_that_nets_cannot_hold() -> None:
    g = Graph("g")
    x = g.input("x", np.uint32, [3])
    y = g.node("Add", [x, g.constant([1, 2, 3], dtype=np.uint32)])
    g.output(g.node("Sqrt", [g.node("Cast", [y], to=1)], "y"), np.float32)
    found = imported(g).run({"x": np.array([3, 7, 13], np.uint32)})["y"]
    np.testing.assert_allclose(found, [2, 3, 4])


_BIG = (1 << 62) + 1
_TEXTS = np.array(["b", "", "a"], object)
_FOLDED: dict[str, tuple[str, list[Any], dict[str, Any], Any]] = {
    "int64": ("Add", [np.array([_BIG, -3]), np.array(2)], {}, np.array([_BIG + 2, -1])),
    "wraps": ("Mul", [np.array(200, np.uint8), np.array(2, np.uint8)], {}, np.array(144, np.uint8)),
    "uint32": ("Sub", [np.array([1], np.uint32), np.array([2], np.uint32)], {},
               np.array([2**32 - 1], np.uint32)),
    "ids of uint16": ("ArgMax", [np.array([3, 9], np.uint16)], {"keepdims": 0}, np.array(1)),
    "towards zero": ("Div", [np.array([-7, 7]), np.array([2, -2])], {}, np.array([-3, -3])),
    "by zero": ("Div", [np.array([-7]), np.array([0])], {}, np.array([0])),
    "border": ("Pad", [np.array([5]), np.array([1, 0]), np.array(_BIG)], {}, np.array([_BIG, 5])),
    "texts": ("Gather", [_TEXTS, np.array([2, 0])], {"axis": 0}, np.array(["a", "b"], object)),
    "same texts": ("Equal", [_TEXTS, _TEXTS[::-1]], {}, np.array([False, True, False])),
    "a scalar": ("Neg", [np.array(3.5)], {}, np.array(-3.5)),
    "nothing": ("Reshape", [np.zeros((0, 3), np.float32), np.array([3, 0])], {"allowzero": 1},
                np.zeros((3, 0), np.float32)),
    "sum of nothing": ("ReduceSum", [np.zeros((0, 2), np.int32), np.array([0])], {"keepdims": 0},
                       np.zeros(2, np.int32)),
    "most of nothing": ("ReduceMax", [np.zeros((0, 2), np.int8), np.array([0])], {"keepdims": 0},
                        np.array([-128, -128], np.int8)),
    "bool": ("Not", [np.array([True, False])], {}, np.array([False, True])),
}  # fmt: skip


@pytest.mark.parametrize("what", _FOLDED)
def test_what_is_computed_beforehand(what: str) -> None:
    """Constants, by the rule that nets have: exact, in ONNX's types, of any rank, empty too."""
    op, args, attrs, wanted = _FOLDED[what]
    env = {f"i{k}": arg for k, arg in enumerate(args)}
    node = Node(op, "", 18, "n", tuple(env), ("y",), attrs)
    engine = Engine("m", {})
    for _ in range(2):  # the second time by the net of the first
        (made,) = engine.evaluate(node, env)
        assert (made.dtype, made.shape) == (wanted.dtype, wanted.shape)
        np.testing.assert_array_equal(made, wanted)


def test_unsigned_numbers_that_no_net_holds() -> None:
    huge = {"x": np.array([1 << 63], np.uint64)}
    engine = Engine("m", {})
    (made,) = engine.evaluate(Node("Add", "", 18, "n", ("x", "x"), ("y",), {}), huge)
    assert made.dtype == np.uint64 and made[0] == 0
    with pytest.raises(RunError, match="node 'n'.*not supported for inputs of uint64"):
        engine.evaluate(Node("ReduceMax", "", 18, "n", ("x",), ("y",), {}), huge)


def test_a_small_input_becomes_part_of_the_signature() -> None:
    g = Graph("g")
    x, size = g.input("x", np.float32, [6]), g.input("size", np.int64, [2])
    g.output(g.node("Reshape", [x, size], "y"), np.float32)
    model = imported(g)
    for shape in ((2, 3), (3, 2), (6, 1)):
        assert model.run({"x": x_of(6), "size": np.array(shape)})["y"].shape == shape
    with pytest.raises(ShapeError, match="shapes depend on the value of size: give an array"):
        model.op_list({"x": (6,)})
    assert model.op_list({"x": (6,), "size": np.array([2, 3])}).ops


@pytest.mark.parametrize("fed", [False, True])
@pytest.mark.parametrize("op", ["Add", "MatMul", "Concat", "Where"])
def test_inputs_of_two_types(op: str, fed: bool) -> None:
    """What ONNX wants in one type is not mixed as NumPy mixes it, in nets and on the host."""
    g = Graph("mixed")
    x = g.input("x", np.float32, [2, 2]) if fed else g.constant(x_of(2, 2), "x", np.float32)
    whole = g.constant(np.ones((2, 2)), "i", np.int64)
    first = [g.constant(np.ones((2, 2)), "c", np.bool_)] if op == "Where" else []
    axis = {"axis": 0} if op == "Concat" else {}
    g.output(g.node(op, [*first, x, whole], "y", **axis), np.float32)
    told = rf"node 'y' \({op}, opset 17\): inputs of one type are wanted.*float32 and int64"
    with pytest.raises((FormatError, RunError), match=told):
        imported(g).run({"x": x_of(2, 2)} if fed else {})


def test_wrong_feeds() -> None:
    model = imported(layers())
    with pytest.raises(VariableError, match="no input 'z'.*it has x"):
        model.run({"z": 1})
    with pytest.raises(VariableError, match="no value of the inputs x"):
        model.run({})
    with pytest.raises(VariableError, match="no output 'z'"):
        model.run({"x": x_of(1, 2, 6, 6)}, ["z"])
    with pytest.raises(ShapeError, match=r"'x' is \[N, 2, 6, 6\]; fed was \[1, 2, 6\]"):
        model.run({"x": x_of(1, 2, 6)})
    with pytest.raises(ShapeError, match="wants float32, not int64"):
        model.run({"x": np.zeros((1, 2, 6, 6), np.int64)})


def test_a_node_that_fails_is_named() -> None:
    g = Graph("g")
    x, at = g.input("x", np.float32, [3]), g.input("at", np.int64, [1])
    g.output(g.node("Gather", [x, at], "y", axis=0), np.float32)
    with pytest.raises(RunError, match="y"):
        imported(g).run({"x": x_of(3), "at": np.array([7])})


def _mistaken(n: Any, *args: Any) -> None:
    raise {"key": KeyError, "type": TypeError, "value": ValueError}[n.attr("mistake", "")]("q")


@pytest.mark.parametrize("mistake", ["key", "type", "value"])
@pytest.mark.parametrize("way", ["lower", "evaluate", "expand", "fold"])
def test_a_mistake_in_a_rule_is_named(
    way: str, mistake: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No mistake of a rule sends its node to the host: it is an error of its own."""
    rule = Kind(lower=_mistaken, evaluate=lambda n, x: x)
    if way in ("evaluate", "expand"):
        rule = Kind(**{way: _mistaken})
    monkeypatch.setitem(KINDS, ("", "Softsign"), rule)
    g = Graph("g")
    x = g.constant(x_of(3), "c") if way == "fold" else g.input("x", np.float32, [3])
    g.output(g.node("Softsign", [x], "y", mistake=mistake), np.float32)
    kind = {"key": "KeyError", "type": "TypeError", "value": "ValueError"}[mistake]
    told = rf"node 'y' \(Softsign, opset 17\): its rule .*test_onnx_in._mistaken failed: {kind}: "
    with pytest.raises(RunError, match=told):
        imported(g).run({} if way == "fold" else {"x": x_of(3)})


def test_all_that_is_not_here_is_named_at_once() -> None:
    g = Graph("g")
    x = g.input("x", np.float32, [3])
    y = g.node("NoSuchThing", [g.node("Frob", [x], "first")], "second")
    branch = g.sub_graph("b")
    branch.output(branch.node("Wobble", [y], "third"), np.float32)
    g.output(g.node("If", [g.constant(True)], then_branch=branch, else_branch=branch), np.float32)
    with pytest.raises(FormatError) as caught:
        imported(g)
    for text in ("'first' (Frob, opset 17)", "'second' (NoSuchThing", "'third' (Wobble"):
        assert text in str(caught.value)


def _deep(model: pb.ModelProto) -> None:
    graph = model.graph
    for _ in range(150):
        inner = pb.GraphProto()
        inner.CopyFrom(graph)
        del graph.node[:]
        node = graph.node.add(op_type="If", input=["x"], output=["y"], name="n")
        node.attribute.add(name="then_branch", type=5).g.CopyFrom(inner)


def _calls_itself(model: pb.ModelProto) -> None:
    function = model.functions.add(name="F", domain="own", input=["a"], output=["b"])
    function.node.add(op_type="F", domain="own", input=["a"], output=["b"])
    function.opset_import.add(domain="own", version=1)
    model.opset_import.add(domain="own", version=1)
    model.graph.node.add(op_type="F", domain="own", input=["x"], output=["z"])


def _many_calls(model: pb.ModelProto) -> None:
    """Functions that call one another twice: 2^40 nodes."""
    for number in range(40):
        function = model.functions.add(name=f"F{number}", domain="own", input=["a"], output=["c"])
        op, domain = (f"F{number + 1}", "own") if number < 39 else ("Neg", "")
        function.node.add(op_type=op, domain=domain, input=["a"], output=["b"])
        function.node.add(op_type=op, domain=domain, input=["b"], output=["c"])
        function.opset_import.add(domain="own", version=1)
        function.opset_import.add(version=17)
    model.opset_import.add(domain="own", version=1)
    model.graph.node.add(op_type="F0", domain="own", input=["x"], output=["z"])


def _huge(model: pb.ModelProto) -> None:
    model.graph.initializer[0].dims[0] = 1 << 40


BAD = {
    "no such input": (
        lambda m: m.graph.node[0].input.__setitem__(0, "w0"),
        r"node 'h' \(Conv\): nothing makes the input 'w0'.*did you mean",
    ),
    "a cycle": (
        lambda m: m.graph.node[0].input.__setitem__(0, "y"),
        "input 'y' is made by a later node or by itself",
    ),
    "a name twice": (
        lambda m: m.graph.node[1].output.__setitem__(0, "h"),
        r"value 'h' is defined twice",
    ),
    "no such output": (
        lambda m: setattr(m.graph.output[0], "name", "q"),
        "no node makes the output 'q'",
    ),
    "too deep": (_deep, "nest|not an ONNX file"),
    "a function that calls itself": (_calls_itself, "nest"),
    "too many nodes": (_many_calls, "nodes of functions and inner graphs.*20000"),
    "beyond the file": (_huge, r"tensor 'w' has \d+ bytes; \d+ are wanted"),
    "a newer opset": (
        lambda m: setattr(m.opset_import[0], "version", 99),
        "operator set 99 is newer than 28",
    ),
    "an unknown domain": (
        lambda m: setattr(m.graph.node[0], "domain", "com.acme"),
        "its domain 'com.acme' is none of the model's operator sets",
    ),
    "an attribute twice": (
        lambda m: m.graph.node[0].attribute.add().CopyFrom(m.graph.node[0].attribute[0]),
        "attribute 'kernel_shape' is given twice",
    ),
    "4 bits": (
        lambda m: setattr(m.graph.input[0].type.tensor_type, "elem_type", 22),
        "type INT4 are not supported",
    ),
}


@pytest.mark.parametrize("what", BAD)
def test_bad_files(what: str) -> None:
    change, message = BAD[what]
    model = pb.ModelProto.FromString(model_bytes(layers()))
    change(model)
    begin = time.process_time()
    with pytest.raises(FormatError, match=message):
        model_of_bytes(model.SerializeToString(), "m.onnx")
    assert time.process_time() - begin < 5  # 2 s where nothing else runs


def test_a_wrong_attribute_is_told_when_it_runs() -> None:
    model = pb.ModelProto.FromString(model_bytes(layers()))
    model.graph.node[0].attribute[0].type = pb.AttributeProto.FLOAT
    loaded = model_of_bytes(model.SerializeToString(), "m.onnx")
    with pytest.raises(FormatError, match=r"node 'h' \(Conv, opset 17\): attribute"):
        loaded.run({"x": x_of(1, 2, 6, 6)})


def test_the_table_of_the_docs() -> None:
    """docs/onnx_in.md lists every operator in the column where it belongs."""
    page = Path(__file__).parents[3] / "docs" / "onnx_in.md"
    rows = [line.split("|")[2:4] for line in page.read_text().splitlines() if line[:1] == "|"]
    here, host = (
        {name.strip() for row in rows[2:-1] for name in row[i].split(",")} for i in (0, 1)
    )
    names = {f"{domain}.{name}".lstrip("."): kind for (domain, name), kind in KINDS.items()}
    assert here - {""} == {name for name, kind in names.items() if kind.lower or kind.expand}
    assert host - {""} == {name for name, kind in names.items() if kind.evaluate and not kind.lower}
    assert len(names) >= 130


def test_a_recurrent_layer_of_any_length_is_one_loop() -> None:
    g = Graph("g")
    x = g.input("x", np.float32, ["T", 1, 3])
    w, r = g.constant(0.3 * x_of(1, 16, 3), "w"), g.constant(0.3 * x_of(1, 16, 4), "r")
    g.output(g.node("LSTM", [x, w, r], outputs=["y"], hidden_size=4), np.float32)
    data = model_bytes(g)
    model = model_of_bytes(data)
    for length in (1, 20, 1500):
        feed = {"x": x_of(length, 1, 3)}
        np.testing.assert_allclose(model.run(feed)["y"], with_ort(data, feed)[0], atol=1e-5)
        assert model.is_one_net(feed)


def test_an_operator_of_another_domain() -> None:
    """What docs/onnx_in.md says of operators of one's own."""
    from opscope.bridges.onnx.importing.calls import evaluates, lowers

    model = pb.ModelProto.FromString(model_bytes(layers()))
    node = next(node for node in model.graph.node if node.op_type == "Relu")
    node.op_type, node.domain = "Bounded", "com.acme"
    node.attribute.add(name="bound", type=pb.AttributeProto.FLOAT, f=0.25)
    model.opset_import.add(domain="com.acme", version=1)
    data, feed = model.SerializeToString(), {"x": x_of(1, 2, 6, 6)}
    with pytest.raises(FormatError, match=r"\(com.acme.Bounded, opset 1\)"):
        model_of_bytes(data)
    key = "com.acme", "Bounded"
    try:
        evaluates("Bounded", domain="com.acme")(
            lambda n, x: np.clip(x, -n.attr("bound", 1.0), n.attr("bound", 1.0))
        )
        host = model_of_bytes(data)
        assert not host.is_one_net(feed)
        lowers("Bounded", domain="com.acme")(
            lambda n: n.op(
                "clip", n[0], minimum=-n.attr("bound", 1.0), maximum=n.attr("bound", 1.0)
            )
        )
        net = model_of_bytes(data)
        assert net.is_one_net(feed)
        np.testing.assert_allclose(net.run(feed)["y"], host.run(feed)["y"], atol=1e-6)
    finally:
        KINDS.pop(key, None)


def test_sizes_that_vary_in_one_net(tmp_path) -> None:
    g = Graph("g")
    x = g.input("x", np.float32, ["N", 2, "H", "W"])
    w = g.constant(x_of(3, 2, 3, 3), "w")
    made = g.node("Conv", [x, w], pads=[1, 1, 1, 1], strides=[2, 2])
    g.output(g.node("GlobalAveragePool", [made], outputs=["y"]), np.float32)
    data = model_bytes(g)
    model = model_of_bytes(data)
    model.save(tmp_path / "net", {"x": ("N", 2, "N", "N")})
    net = opscope.load(tmp_path / "net")
    for shape in ((1, 2, 9, 31), (3, 2, 20, 4)):
        feed = {"x": x_of(*shape)}
        np.testing.assert_allclose(net.predict(feed)["y"], with_ort(data, feed)[0], atol=1e-5)


def test_a_layer_of_quantized_weights() -> None:
    """What meets weights is rounded as in ONNX Runtime: all steps together, and each state."""
    rng = np.random.default_rng(0)
    g = Graph("g")
    x = g.input("x", np.float32, ["T", "N", 6])
    names = []
    for name, rows in (("w", 6), ("r", 4)):
        given = rng.integers(0, 255, (2, rows, 16)).astype(np.uint8)
        scale, zero = np.array([0.01, 0.02], np.float32), np.array([120, 130], np.uint8)
        constants = (given, name), (scale, f"{name}_scale"), (zero, f"{name}_zero")
        names.append([g.constant(*one) for one in constants])
    (w, *w_more), (r, *r_more) = names
    inputs = [x, w, r, "", "", "", "", "", *w_more, *r_more]
    options = {"hidden_size": 4, "direction": "bidirectional"}
    g.output(g.node("DynamicQuantizeLSTM", inputs, outputs=["y"], **options), np.float32)
    model = pb.ModelProto.FromString(model_bytes(g))
    model.graph.node[0].domain = "com.microsoft"
    model.opset_import.add(domain="com.microsoft", version=1)
    data = model.SerializeToString()
    feed = {"x": x_of(5, 2, 6)}
    found = model_of_bytes(data).run(feed)["y"]
    ort = pytest.importorskip("onnxruntime")
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1  # several cut a batch, and round the states of each part
    (wanted,) = ort.InferenceSession(data, options).run(None, feed)
    np.testing.assert_allclose(found, wanted, atol=1e-6)


def test_attention_to_a_cache_is_lowered_once_for_all_lengths() -> None:
    g = Graph("g", 24)
    q = g.input("q", np.float32, [2, 3, 1, 4])
    k, v = (g.input(name, np.float32, [2, 3, 9, 4]) for name in "kv")
    ends = g.input("ends", np.int64, [2])
    given = [q, k, v, "", "", "", ends]
    g.output(g.node("Attention", given, outputs=["y"], is_causal=1), np.float32)
    model = model_of_bytes(model_bytes(g))
    stages: list[Any] = []
    for pair in ([3, 5], [4, 6], [9, 1]):
        feed: dict[str, Any] = {"q": x_of(2, 3, 1, 4), "k": x_of(2, 3, 9, 4), "v": x_of(2, 3, 9, 4)}
        (found,) = model._ran(model._body, feed | {"ends": np.array(pair)}, stages.append)
        for row, end in enumerate(pair):
            keys, values = (feed[name][row, :, :end] for name in "kv")
            powers = np.exp(feed["q"][row] @ keys.transpose(0, 2, 1) / 2)
            wanted = powers / powers.sum(-1, keepdims=True) @ values
            np.testing.assert_allclose(found[row], wanted, atol=1e-5)
    assert all(stage is stages[0] for stage in stages)
