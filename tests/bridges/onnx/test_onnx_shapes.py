"""A served model in ever new shapes: memory stays where it is."""

from __future__ import annotations

import gc
import random
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import opscope
from opscope.bridges.onnx.files.graph import Graph
from opscope.bridges.onnx.files.writing import model_bytes
from opscope.bridges.onnx.importing import engine
from opscope.bridges.onnx.importing.model import model_of_bytes
from opscope.framework.loops.recurrent import loop
from opscope.framework.runtime.plans import plan
from opscope.operators.control import recurrent

onnx = pytest.importorskip("onnx")
helper, arrays = onnx.helper, onnx.numpy_helper

SHAPES = 250


def convolutions(path: Path) -> opscope.OnnxModel:
    """A model of images of any width: convolutions, and a product for each column."""
    rng = np.random.default_rng(0)
    nodes, weights, value, channels = [], [], "x", 1
    for number in range(2):
        w = rng.normal(size=(8, channels, 3, 3)).astype("f4") / 5
        weights.append(arrays.from_array(w, f"w{number}"))
        nodes.append(helper.make_node("Conv", [value, f"w{number}"], [f"c{number}"], pads=[1] * 4))
        nodes.append(helper.make_node("Relu", [f"c{number}"], [f"r{number}"]))
        value, channels = f"r{number}", 8
    nodes.append(helper.make_node("ReduceMean", [value], ["m"], axes=[2], keepdims=0))
    nodes.append(helper.make_node("Transpose", ["m"], ["t"], perm=[0, 2, 1]))
    weights.append(arrays.from_array(rng.normal(size=(8, 10)).astype("f4"), "last"))
    nodes.append(helper.make_node("MatMul", ["t", "last"], ["y"]))
    x = helper.make_tensor_value_info("x", 1, ["N", 1, 4, "W"])
    y = helper.make_tensor_value_info("y", 1, None)
    graph = helper.make_graph(nodes, "g", [x], [y], weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)]), path)
    return opscope.from_onnx(path)


def test_250_shapes_take_the_memory_of_32(tmp_path: Path) -> None:
    model = convolutions(tmp_path / "m.onnx")
    widths = np.random.default_rng(0).permutation(SHAPES) + 100
    widths[0] = SHAPES + 99  # the blocks of temporaries are those of the largest

    def run(width: int) -> None:
        made = model.run({"x": np.zeros((1, 1, 4, width), np.float32)})["y"]
        assert made.shape == (1, width, 10)

    tracemalloc.start()
    try:
        for width in widths[:32]:
            run(width)
        early, peak_early = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        for number, width in enumerate(widths[32:]):
            run(width)
            if number % 32 == 0:
                gc.collect()  # the heap of a whole run of tests is collected late
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # What rules and kernels remember of at most 1,024 kinds of operators is less than that.
    assert peak < peak_early + 1.5e6, (early, peak_early, peak)


CHANNELS = 4


def weights(g: Graph, *shape: int) -> str:
    return g.constant((np.random.default_rng(len(shape)).normal(size=shape) / 4).astype("f4"))


def conv(g: Graph, x: str, rng: random.Random) -> str:
    pads = [rng.randrange(2), 1] * 2
    w = weights(g, CHANNELS, CHANNELS, 2, 3)
    return g.node("Conv", [x, w], pads=pads, strides=[1, rng.choice((1, 2))])


def pool(g: Graph, x: str, rng: random.Random) -> str:
    ends = rng.choice(({"ceil_mode": 1}, {"pads": [0, 0, 0, 1]}))
    return g.node("MaxPool", [x], kernel_shape=[1, 2], strides=[1, 2], **ends)


def scores(g: Graph, x: str, rng: random.Random) -> str:
    """Softmax of pairs of columns: a product whose result is as wide as the image."""
    turned = g.node("Transpose", [x], perm=[0, 1, 3, 2])
    return g.node("MatMul", [g.node("Softmax", [g.node("MatMul", [x, turned])], axis=-1), x])


def rows(g: Graph, x: str, rng: random.Random) -> str:
    """[N, C, H, W] as rows and back, by sizes that nodes compute."""
    shape = g.node("Shape", [x])
    n, c, h, w = (g.node("Slice", [shape, g.ints(k), g.ints(k + 1), g.ints(0)]) for k in range(4))
    wide = g.node("Mul", [g.node("Mul", [n, h]), w])
    last = g.node("Transpose", [x], perm=[0, 2, 3, 1])
    flat = g.node("Reshape", [last, g.node("Concat", [wide, c], axis=0)])
    product = g.node("MatMul", [flat, weights(g, CHANNELS, CHANNELS)])
    back = g.node("Reshape", [product, g.node("Concat", [n, h, w, g.ints(-1)], axis=0)])
    return g.node("Transpose", [back], perm=[0, 3, 1, 2])


def enlarged(g: Graph, x: str, rng: random.Random) -> str:
    """Columns twice, by a factor or by a size that nodes compute, and every other one again."""
    if rng.randrange(2):
        big = g.node("Resize", [x, None, g.constant(np.array([1, 1, 1, 2], "f4"))], mode="nearest")
    else:
        shape = g.node("Mul", [g.node("Shape", [x]), g.ints(1, 1, 1, 2)])
        how = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
        big = g.node("Resize", [x, None, None, shape], mode="nearest", **how)
    return g.node("MaxPool", [big], kernel_shape=[1, 2], strides=[1, 2])


def expanded(g: Graph, x: str, rng: random.Random) -> str:
    mean = g.node("GlobalAveragePool", [x])
    return g.node("Sub", [x, g.node("Expand", [mean, g.node("Shape", [x])])])


def cut(g: Graph, x: str, rng: random.Random) -> str:
    """Halves of the columns, the longer one first where they are odd."""
    size = g.node("Gather", [g.node("Shape", [x]), g.constant(np.int64(3))], axis=0)
    half = g.node("Div", [g.node("Add", [size, g.constant(np.int64(1))]), g.constant(np.int64(2))])
    at = g.node("Unsqueeze", [half, g.ints(0)])
    parts = [
        g.node("Slice", [x, *ends, g.ints(3)]) for ends in ((g.ints(0), at), (at, g.ints(1 << 40)))
    ]
    return g.node("Concat", [parts[1], parts[0]], axis=3)


def resized(g: Graph, x: str, rng: random.Random) -> str:
    """As large as half of it, or by a fraction, and as large as it was again."""
    mode = rng.choice(("linear", "nearest", "cubic"))
    how = {"mode": mode, "coordinate_transformation_mode": rng.choice(("half_pixel", "asymmetric"))}
    if rng.randrange(2):
        factors = g.constant(np.array([1, 1, 1, rng.choice((0.5, 1.5))], "f4"))
        other = g.node("Resize", [x, None, factors], **how)
    else:
        half = g.node("Div", [g.node("Shape", [x]), g.ints(1, 1, 1, 2)])
        other = g.node("Resize", [x, None, None, half], **how)
    return g.node("Resize", [other, None, None, g.node("Shape", [x])], **how)


def places(g: Graph, x: str, rng: random.Random) -> str:
    """Adds the numbers of the columns."""
    size = g.node("Gather", [g.node("Shape", [x]), g.constant(np.int64(3))], axis=0)
    line = g.node("Range", [g.constant(np.int64(0)), size, g.constant(np.int64(1))])
    return g.node("Add", [x, g.node("Cast", [line], to=1)])


def drawn_net(seed: int, parts: list[Any], count: int = 4) -> bytes:
    rng = random.Random(seed)
    g = Graph("drawn", 17)
    x = g.input("x", np.float32, ["N", CHANNELS, "H", "W"])
    for _ in range(count):
        x = g.node("Relu", [rng.choice(parts)(g, x, rng)])
    g.output(g.node("Identity", [x], outputs=["y"]), np.float32)
    return model_bytes(g)


OPEN = [conv, pool, scores, rows, enlarged]
FOLLOWING = [expanded, cut, places, resized]
"""What operators say for any sizes, and what needs arrays that follow from sizes."""


def filled(g: Graph, x: str, rng: random.Random) -> str:
    """A mask of ones, which is as wide as the columns."""
    size = g.node("Slice", [g.node("Shape", [x]), g.ints(3), g.ints(4), g.ints(0)])
    return g.node("Mul", [x, g.node("ConstantOfShape", [size], value=np.ones(1, "f4"))])


def before(g: Graph, x: str, rng: random.Random) -> str:
    """New axes in front, whose sizes are those of the image, and rows and columns that are cut at a
    third of them."""
    shape = g.node("Shape", [x])
    front = g.node("Slice", [shape, g.ints(2), g.ints(4), g.ints(0)])
    big = g.node("Expand", [x, g.node("Concat", [front, shape], axis=0)])
    third = g.node("Div", [front, g.ints(3)])
    cut = g.node(
        "Slice", [big, third, g.node("Mul", [third, g.ints(2)]), g.ints(0, 1), g.ints(1, 2)]
    )
    return g.node("ReduceSum", [cut, g.ints(0, 1)], keepdims=0)


def scaled(g: Graph, x: str, rng: random.Random) -> str:
    """Resized by sizes that are computed with floats, and divided by the square of a width."""
    shape = g.node("Shape", [x])
    size = g.node("Cast", [g.node("Slice", [shape, g.ints(2), g.ints(4), g.ints(0)])], to=1)
    factor = g.constant(np.array(rng.choice((0.5, 1.25)), "f4"))
    ends = g.node("Cast", [g.node("Floor", [g.node("Mul", [size, factor])])], to=7)
    front = g.node("Slice", [shape, g.ints(0), g.ints(2), g.ints(0)])
    wanted = g.node("Concat", [front, ends], axis=0)
    wide = g.node("Gather", [size, g.constant(np.int64(1))], axis=0)
    y = g.node("Resize", [x, None, None, wanted], mode="linear")
    return g.node("Div", [y, g.node("Mul", [wide, wide])])


@pytest.mark.parametrize("part", [*FOLLOWING, filled, before, scaled])
@pytest.mark.parametrize("seed", range(2))
def test_arrays_follow_from_sizes(part: Any, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """What sizes decide is made for those of each run; the net is lowered once for all of them."""
    data = drawn_net(seed, [part], count=1)
    rng = np.random.default_rng(seed)
    feeds = [{"x": rng.normal(size=(2, CHANNELS, high, wide)).astype("f4")}
             for high, wide in ((9, 24), (9, 40), (6, 17), (9, 24), (12, 33))]  # fmt: skip
    wanted = [model_of_bytes(data).run(feed)["y"] for feed in feeds]
    lowered: list[int] = []
    lower = engine.lower_part
    monkeypatch.setattr(engine, "lower_part", lambda *a, **o: lowered.append(0) or lower(*a, **o))
    model = model_of_bytes(data)
    for feed, y in zip(feeds, wanted, strict=True):
        np.testing.assert_array_equal(model.run(feed)["y"], y)
    # The first one, and as widths and heights were seen to vary.
    assert len(lowered) <= 3


@pytest.mark.parametrize("seed", range(12))
def test_one_lowering_serves_as_those_of_each_shape(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Random nets in many shapes are equal to models of their own for each, bit by bit."""
    parts = OPEN if seed % 3 else [*OPEN, *FOLLOWING]
    data = drawn_net(seed, parts)
    rng = np.random.default_rng(seed)
    shapes = [(2, 12, 24), (2, 12, 40), *((2, 12, int(w)) for w in rng.integers(16, 60, 5))]
    feeds = [{"x": rng.normal(size=(n, CHANNELS, high, wide)).astype("f4")}
             for n, high, wide in (*shapes, (5, 12, 33), (1, 12, 30), (3, 13, 31))]  # fmt: skip
    wanted = [model_of_bytes(data).run(feed)["y"] for feed in feeds]
    model, lowered = model_of_bytes(data), []
    lower = engine.lower_part
    monkeypatch.setattr(engine, "lower_part", lambda *a, **o: lowered.append(0) or lower(*a, **o))
    for number, (feed, y) in enumerate(zip(feeds, wanted, strict=True), 1):
        np.testing.assert_array_equal(model.run(feed)["y"], y)
        if number == len(shapes):
            assert len(lowered) == 2  # the first one, before it was seen what varies


def test_steps_of_a_loop_are_bound_once_for_all_lengths(monkeypatch: pytest.MonkeyPatch) -> None:
    g, rng = Graph("recurrent", 17), np.random.default_rng(0)
    x = g.input("x", np.float32, ["T", 1, 30])
    w, r = (g.constant(rng.normal(size=(2, 16, k)).astype("f4")) for k in (30, 4))
    y = g.node("LSTM", [x, w, r], outputs=["y"], hidden_size=4, direction="bidirectional")
    g.output(y, np.float32)
    data = model_bytes(g)
    feeds = [{"x": rng.normal(size=(n, 1, 30)).astype("f4")} for n in (9, 30, 14, 22)]
    wanted = [model_of_bytes(data).run(feed)["y"] for feed in feeds]
    model, bound = model_of_bytes(data), []
    bind = loop._StepBinder.bind
    monkeypatch.setattr(loop._StepBinder, "bind", lambda *a: bound.append(a) or bind(*a))
    counts = []
    for feed, y in zip(feeds, wanted, strict=True):
        np.testing.assert_array_equal(model.run(feed)["y"], y)
        counts.append(len(bound))
    # Those of the first length, and of what serves the others, where a trace may serve all of it.
    assert counts[0] == 2 * 9 <= counts[1] <= 2 * (9 + 30)
    assert counts[1:] == counts[1:2] * 3


@pytest.mark.parametrize("kind", ["RNN", "GRU", "LSTM"])
def test_loops_in_new_shapes_compute_what_plans_of_their_own_do(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, rng = recurrent_model(kind), np.random.default_rng(1)
    sizes = [(9, 1), (40, 1), (33, 1), (34, 1), (90, 1), (35, 1), (20, 2), (50, 2), (51, 3), (1, 3)]
    feeds = [{"x": rng.normal(size=(*size, 30)).astype("f4")} for size in sizes]
    wanted = [model_of_bytes(data).run(feed)["y"] for feed in feeds]
    model = model_of_bytes(data)
    for verify in "0", "1":
        monkeypatch.setenv("OPSCOPE_VERIFY", verify)
        for feed, y in zip(feeds, wanted, strict=True):
            np.testing.assert_array_equal(model.run(feed)["y"], y)


def test_lengths_of_a_loop_are_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPSCOPE_VERIFY", "0")
    model, inferred = model_of_bytes(recurrent_model("LSTM")), list[int]()
    infer = plan.infer_specs
    monkeypatch.setattr(plan, "infer_specs", lambda *a, **o: inferred.append(0) or infer(*a, **o))
    rng = np.random.default_rng(1)
    for steps in (9, 30, 14, 22, 11):
        model.run({"x": rng.normal(size=(steps, 1, 30)).astype("f4")})
    for steps in (10, 31, 1000):
        inferred.clear()
        model.run({"x": rng.normal(size=(steps, 1, 30)).astype("f4")})
        assert not inferred


@pytest.mark.parametrize("kind", ["RNN", "GRU", "LSTM"])
@pytest.mark.parametrize("exposed", [False, True])
def test_weights_of_loops_follow_their_parameters(kind: str, exposed: bool) -> None:
    data, rng = recurrent_model(kind), np.random.default_rng(2)
    feed = {"x": rng.normal(size=(7, 1, 30)).astype("f4")}
    model = model_of_bytes(data)
    before = model.run(feed)["y"]
    for name in "wrb":
        variable = model.scope.get(name)
        if exposed:
            model.run(feed)
            variable.array[...] *= 0.5
        else:
            variable.set(variable.numpy() * np.float32(0.5))
        after = model.run(feed)["y"]
        assert np.abs(after - before).max() > 1e-3
        other = model_of_bytes(data)
        for each in "wrb":
            other.scope.get(each).set(model.scope.get(each).numpy())
        np.testing.assert_array_equal(other.run(feed)["y"], after)
        before = after


@pytest.mark.parametrize("form", ["Concat", "Identity", "Mul"])
@pytest.mark.parametrize("kind", ["RNN", "GRU", "LSTM"])
def test_weights_of_loops_follow_what_they_are_computed_of(kind: str, form: str) -> None:
    data, rng = recurrent_model(kind, form), np.random.default_rng(2)
    feed = {"x": rng.normal(size=(7, 1, 30)).astype("f4")}
    model = model_of_bytes(data)
    names = ["w", "r", *(["b_ih", "b_hh"] if form == "Concat" else ["b"])]
    before = model.run(feed)["y"]
    for name in names:
        variable = model.scope.get(name)
        variable.set(variable.numpy() * np.float32(0.5))
        after = model.run(feed)["y"]
        assert np.abs(after - before).max() > 1e-3
        other = model_of_bytes(data)
        for each in names:
            other.scope.get(each).set(model.scope.get(each).numpy())
        np.testing.assert_array_equal(other.run(feed)["y"], after)
        before = after


@pytest.mark.parametrize("kind", ["RNN", "GRU", "LSTM"])
def test_weights_of_loops_leave_shared_arrays_alone(kind: str) -> None:
    """Of one direction, what is cut of a parameter is a view of it."""
    data, rng = recurrent_model(kind, directions=1), np.random.default_rng(2)
    feed = {"x": rng.normal(size=(7, 1, 30)).astype("f4")}
    model = model_of_bytes(data)
    given = {name: model.scope.get(name).numpy().copy() for name in "wrb"}
    for name, array in given.items():
        array.flags.writeable = False
        model.scope.get(name).share(array)
    before, kept = model.run(feed)["y"], {name: array.copy() for name, array in given.items()}
    for name, array in given.items():
        model.scope.get(name).set(array * np.float32(0.5))
        after = model.run(feed)["y"]
        assert np.abs(after - before).max() > 1e-3
        np.testing.assert_array_equal(array, kept[name])
        before = after


def test_weights_of_loops_follow_a_training() -> None:
    data, rng = recurrent_model("LSTM"), np.random.default_rng(2)
    feed = {"x": rng.normal(size=(5, 2, 30)).astype("f4")}
    model = model_of_bytes(data)
    before = model.run(feed)["y"]
    b = opscope.NetBuilder.from_desc(model.op_list({"x": (5, 2, 30)}))
    b.backward_from(b.mean(b.mul(b.var("y"), b.var("y")), name="loss"))
    b.add_optimization(0.5, "sgd")
    for _ in range(3):
        b.run(model.scope, feed=feed, fetch=["loss"])
        after = model.run(feed)["y"]
        assert np.abs(after - before).max() > 1e-4
        other = model_of_bytes(data)
        for each in "wrb":
            other.scope.get(each).set(model.scope.get(each).numpy())
        np.testing.assert_array_equal(other.run(feed)["y"], after)
        before = after


def recurrent_model(kind: str, form: str = "", directions: int = 2) -> bytes:
    """A layer of one or both directions over x [T, N, 30], with the parameters w, r and b, or with
    what a node makes of parameters: small biases of their parts, or all of themselves."""
    g, rng = Graph("recurrent", 17), np.random.default_rng(0)
    x, count = g.input("x", np.float32, ["T", "N", 30]), {"RNN": 1, "GRU": 3, "LSTM": 4}[kind]
    shapes = {"w": (4 * count, 30), "r": (4 * count, 4), "b": (8 * count,)}
    for name, shape in shapes.items():
        g.constant(rng.normal(size=(directions, *shape)).astype("f4"), name)
    given = ["w", "r", "b"]
    if form == "Concat":
        halves = rng.normal(size=(2, 2, 4 * count)).astype("f4")
        parts = [
            g.constant(half, name) for half, name in zip(halves, ("b_ih", "b_hh"), strict=True)
        ]
        given[2] = g.node("Concat", parts, axis=1)
    elif form:
        more = [g.constant(np.float32(1.5))] * (form == "Mul")
        given = [g.node(form, [name, *more]) for name in given]
    both = "bidirectional" if directions == 2 else "forward"
    y = g.node(kind, [x, *given], outputs=["y"], hidden_size=4, direction=both)
    g.output(y, np.float32)
    return model_bytes(g)


def test_inputs_of_new_shapes_lie_in_memory_that_only_grows(tmp_path: Path) -> None:
    model, rng = convolutions(tmp_path / "model.onnx"), np.random.default_rng(3)
    widths = [3000, 9000, 6000, 9000, 9001, 3000, 40, 6000, 6001, 40]
    feeds = [{"x": rng.normal(size=(1, 1, 4, width)).astype("f4")} for width in widths]
    for feed in feeds:
        alone = opscope.from_onnx(tmp_path / "model.onnx").run(feed)["y"]
        np.testing.assert_array_equal(model.run(feed)["y"], alone)
    rooms = [room for ready in model._body._first.ready.values() for room in ready._rooms.values()]
    largest = max(feed["x"].nbytes for feed in feeds)
    assert max(room.nbytes for room in rooms) == largest
    assert len(rooms) <= 2  # the first stage is of one width alone


def test_a_new_length_of_a_loop_goes_through_no_stage(monkeypatch: pytest.MonkeyPatch) -> None:
    model, rng = model_of_bytes(recurrent_model("LSTM")), np.random.default_rng(1)
    made, make_program = list[int](), recurrent.make_program
    monkeypatch.setattr(
        recurrent, "make_program", lambda binding: made.append(0) or make_program(binding)
    )
    for steps, count in ((20, 2), (70, 2), (33, 0), (7, 0), (69, 0), (71, 2), (33, 0)):
        made.clear()
        model.run({"x": rng.normal(size=(steps, 1, 30)).astype("f4")})
        assert len(made) == count  # both directions, where it is longer than any before


@pytest.mark.parametrize("mode", ["linear", "cubic"])
def test_an_enlarged_image_is_one_operator_for_all_sizes(mode: str) -> None:
    g = Graph("g", 17)
    x = g.input("x", np.float32, ["N", 3, "H", "W"])
    scales = g.constant(np.array([1, 1, 2, 1.5], "f4"))
    g.output(g.node("Resize", [x, None, scales], outputs=["y"], mode=mode), np.float32)
    model = model_of_bytes(model_bytes(g))
    net = model.op_list()
    assert [op.type for op in net.ops if op.type != "assign"] == ["interpolate"]
    rng = np.random.default_rng(0)
    for shape in ((1, 3, 6, 8), (2, 3, 5, 4)):
        feed = rng.normal(size=shape).astype("f4")
        scope = opscope.Scope(parent=model.scope)
        scope.feed({"x": feed})
        opscope.Net.create(net).run(scope)
        np.testing.assert_array_equal(scope.numpy("y"), model.run({"x": feed})["y"])
