"""Loops without what no round changes; an If of which nothing reads the rank is one choice."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from opscope.bridges.onnx.files.graph import Graph
from opscope.bridges.onnx.files.writing import model_bytes
from opscope.bridges.onnx.importing import engine
from opscope.bridges.onnx.importing.model import model_of_bytes
from opscope.framework.base.errors import RunError

W, BIAS = np.random.default_rng(1).normal(size=(2, 4, 4)).astype(np.float32)


def same(data: bytes, feed: dict[str, Any]) -> list[np.ndarray]:
    """Our results, which have the values and shapes of ONNX Runtime's."""
    ort = pytest.importorskip("onnxruntime")
    options = ort.SessionOptions()
    options.log_severity_level = 3
    feed = {name: np.asarray(value) for name, value in feed.items()}
    wanted = ort.InferenceSession(data, options).run(None, feed)
    found = list(model_of_bytes(data).run(feed).values())
    for one, two in zip(found, wanted, strict=True):
        assert one.shape == two.shape and one.dtype == two.dtype
        np.testing.assert_allclose(one, two, rtol=1e-5, atol=1e-6)
    return found


def as_paddle_writes_it(*, scans: bool = True, through: bool = False) -> Graph:
    """A loop whose weights are states: y = tanh(x w + b + y).

    Args:
        scans: whether it gives the y of each round as well. through: the state x goes through an
            If of which both branches hand it on, so that it is no invariant to be seen.
    """
    g = Graph("g")
    x, y = (g.input(name, np.float32, ["N", 4]) for name in "xy")
    rounds = g.input("rounds", np.int64, [])
    w, b = g.constant(W, "w"), g.constant(BIAS[0], "b")
    body = g.sub_graph("body")
    body.input("i", np.int64, [])
    body.input("goes", np.bool_, [])
    for name, dims in (("w_", [4, 4]), ("b_", [4]), ("x_", ["N", 4]), ("y_", ["N", 4])):
        body.input(name, np.float32, dims)
    product = body.node("Add", [body.node("MatMul", ["x_", "w_"], "product"), "b_"], "fixed")
    after = body.node("Tanh", [body.node("Add", [product, "y_"])], "after")
    copies = [body.node("Identity", [name]) for name in ("goes", "w_")]
    x_after = "x_"
    if through:
        yes, no = body.sub_graph("yes"), body.sub_graph("no")
        for one in (yes, no):
            one.output(one.node("Identity", ["x_"]), np.float32)
        is_first = body.node("Less", ["i", body.constant(1, dtype=np.int64)])
        x_after = body.node("If", [is_first], then_branch=yes, else_branch=no)
    body.output(copies[0], np.bool_)
    for name in (copies[1], "b_", x_after, after, *[body.node("Identity", [after])] * scans):
        body.output(name, np.float32)
    names = ["w_last", "b_last", "x_last", "y_last", *["all"] * scans]
    for name in g.node("Loop", [rounds, "", w, b, x, y], outputs=names, body=body):
        g.output(name, np.float32)
    return g


@pytest.mark.parametrize("through", [False, True])
@pytest.mark.parametrize("rows", [3, 1, 0])
def test_results_are_those_of_the_loop_as_it_is_written(rows: int, through: bool) -> None:
    rng = np.random.default_rng(0)
    feed = {name: rng.normal(size=(rows, 4)).astype(np.float32) for name in "xy"}
    for rounds in (1, 4):
        same(
            model_bytes(as_paddle_writes_it(through=through)), {**feed, "rounds": np.int64(rounds)}
        )
    data = model_bytes(as_paddle_writes_it(scans=False, through=through))
    w, b, x, y = same(data, {**feed, "rounds": np.int64(0)})
    assert (w == W).all() and (b == BIAS[0]).all()
    assert (x == feed["x"]).all() and (y == feed["y"]).all()


def test_weights_are_parameters_again_and_products_stand_before_the_loop() -> None:
    model = model_of_bytes(model_bytes(as_paddle_writes_it()))
    begins, choice, loop, *copies = model._model.graph.nodes
    assert begins.inputs == ("rounds", "") and choice.inputs == begins.outputs
    before, add = choice.graphs()[0].nodes
    assert (before.op, add.op) == ("MatMul", "Add") and "w" in before.inputs
    assert loop.inputs == ("rounds", "", "y") and loop.outputs == ("y_last", "all")
    assert [node.op for node in copies] == ["Identity"] * 3
    (body,) = loop.graphs()
    assert [node.op for node in body.nodes if node.op != "Identity"] == ["Add", "Tanh"]
    assert set(body.captures) == {"fixed"} == set(loop.captures)
    # A new weight is read by the next run.
    x = np.ones((1, 4), np.float32)
    feed = {"x": x, "y": x, "rounds": np.int64(1)}
    model.run(feed)
    model.scope.get("w").set(2 * W)
    np.testing.assert_allclose(
        model.run(feed)["y_last"], np.tanh(x @ (2 * W) + BIAS[0] + x), rtol=1e-5
    )


def test_what_fails_for_some_values_stays_in_the_loop() -> None:
    g = Graph("g")
    place, x = g.input("place", np.int64, []), g.input("x", np.float32, [3])
    rounds = g.input("rounds", np.int64, [])
    body = g.sub_graph("body")
    body.input("i", np.int64, [])
    body.input("goes", np.bool_, [])
    body.input("y_", np.float32, [])
    chosen = body.node("Gather", [x, place])
    body.output(body.node("Identity", ["goes"]), np.bool_)
    body.output(body.node("Add", [chosen, "y_"]), np.float32)
    zero = g.constant(np.float32(0))
    (y,) = g.node("Loop", [rounds, "", zero], outputs=["y"], body=body)
    g.output(y, np.float32)
    feed = {"x": np.float32([1, 2, 3]), "place": np.int64(2)}
    assert same(model_bytes(g), {**feed, "rounds": np.int64(2)})[0] == 6
    assert same(model_bytes(g), {**feed, "place": np.int64(7), "rounds": np.int64(0)})[0] == 0


def adding(outside: Graph, name: str, inputs: list[str], **attrs: Any) -> Graph:
    """The body of a loop whose state y grows by the sum of what a node gives."""
    body = outside.sub_graph("body")
    body.input("i", np.int64, [])
    body.input("goes", np.bool_, [])
    body.input("y_", np.float32, [])
    fixed = body.node("ReduceSum", [body.node(name, inputs, "moved", **attrs)], keepdims=0)
    body.output(body.node("Identity", ["goes"]), np.bool_)
    body.output(body.node("Add", [fixed, "y_"]), np.float32)
    return body


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("stops", ["rounds", "goes_on", "size"])
@pytest.mark.parametrize("op", ["MatMul", "Add", "Unsqueeze"])
def test_what_does_not_fit_fails_no_loop_without_rounds(op: str, stops: str, known: bool) -> None:
    def data(rounds: int, goes_on: bool) -> bytes:
        g = Graph("g")
        x, z = g.input("x", np.float32, ["N", 3]), g.input("z", np.float32, ["P", "Q"])
        axes, none = g.input("axes", np.int64, [1]), g.input("none", np.float32, ["R"])
        if known:
            limits = [g.constant(np.int64(rounds)), g.constant(goes_on)]
        else:
            limits = [g.input("rounds", np.int64, []), g.input("goes_on", np.bool_, [])]
        if stops == "size":
            limits[0] = g.node("Size", [none])
        body = adding(g, op, [x, axes if op == "Unsqueeze" else z])
        (y,) = g.node("Loop", [*limits, g.constant(np.float32(5))], outputs=["y"], body=body)
        g.output(y, np.float32)
        return model_bytes(g)

    def feed(rows: int, axis: int, rounds: int, goes_on: bool) -> dict[str, Any]:
        z = np.ones((rows, rows), np.float32)
        none = np.ones(rounds, np.float32)
        given = {"x": np.ones((1, 3), np.float32), "z": z, "axes": np.int64([axis]), "none": none}
        return {**given, **({} if known else {"rounds": rounds, "goes_on": np.bool_(goes_on)})}

    rounds, goes_on = (2, False) if stops == "goes_on" else (0, True)
    assert same(data(rounds, goes_on), feed(2, 9, rounds, goes_on))[0] == 5
    assert same(data(2, True), feed(3, 0, 2, True))[0] > 5
    with pytest.raises(RunError, match="node 'moved'"):
        model_of_bytes(data(1, True)).run(
            {name: np.asarray(one) for name, one in feed(2, 9, 1, True).items()}
        )


def test_what_an_inner_loop_has_before_it_stands_before_the_outer_one() -> None:
    g = Graph("g")
    x, z = g.input("x", np.float32, ["N", 3]), g.input("z", np.float32, ["P", "Q"])
    outer, inner = (g.input(name, np.int64, []) for name in ("outer", "inner"))
    body = g.sub_graph("outer_body")
    body.input("j", np.int64, [])
    body.input("goes_", np.bool_, [])
    body.input("s_", np.float32, [])
    within = adding(body, "MatMul", [x, z])
    (s,) = body.node("Loop", [inner, "", "s_"], outputs=["s"], body=within)
    body.output(body.node("Identity", ["goes_"]), np.bool_)
    body.output(s, np.float32)
    (y,) = g.node("Loop", [outer, "", g.constant(np.float32(0))], outputs=["y"], body=body)
    g.output(y, np.float32)
    data = model_bytes(g)
    x, z = np.ones((2, 3), np.float32), np.ones((3, 1), np.float32)
    for rounds in ((2, 3), (1, 1), (0, 2), (2, 0)):
        feed = {"x": x, "z": z, "outer": rounds[0], "inner": rounds[1]}
        assert same(data, feed)[0] == 6 * rounds[0] * rounds[1]
        if not all(rounds):
            same(data, {**feed, "z": x})
    *_, loop = model_of_bytes(data)._model.graph.nodes
    assert "If" not in [node.op for node in loop.graphs()[0].nodes]


def test_a_loop_of_which_all_that_is_read_stays_is_none() -> None:
    g = Graph("g")
    x, rounds = g.input("x", np.float32, ["N", 3]), g.input("rounds", np.int64, [])
    body = g.sub_graph("body")
    body.input("i", np.int64, [])
    body.input("goes", np.bool_, [])
    for name in ("a_", "b_"):
        body.input(name, np.float32, ["N", 3])
    body.output(body.node("Identity", ["goes"]), np.bool_)
    body.output("a_", np.float32)
    body.output(body.node("Identity", ["b_"]), np.float32)
    for name in g.node("Loop", [rounds, "", x, x], outputs=["a", "b"], body=body):
        g.output(name, np.float32)
    data = model_bytes(g)
    for count in (0, 1, 3):
        same(data, {"x": np.ones((1, 3), np.float32), "rounds": count})
    assert [node.op for node in model_of_bytes(data)._model.graph.nodes] == ["Identity"] * 2


@pytest.mark.parametrize("read", ["number", "rank"])
def test_branches_of_other_ranks(read: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A loop ends where an If says so: [] in a branch and [1] in the other."""
    g = Graph("g")
    x, limit = g.input("x", np.float32, [1]), g.input("limit", np.float32, [1])
    body = g.sub_graph("body")
    body.input("i", np.int64, [])
    body.input("goes", np.bool_, [])
    body.input("x_", np.float32, [1])
    after = body.node("Add", ["x_", body.constant(np.float32([1]))])
    is_high = body.node("Less", [limit, after])
    yes, no = body.sub_graph("yes"), body.sub_graph("no")
    yes.output(yes.node("Identity", [yes.constant(np.bool_(False))]), np.bool_)
    no.output(no.node("And", [is_high, is_high]), np.bool_)
    unlike = body.node("If", [is_high], then_branch=yes, else_branch=no)
    low = body.node("Not", [body.node("Or", [is_high, unlike])])
    body.output(low, np.bool_)
    body.output(after, np.float32)
    if read == "rank":
        body.output(body.node("Size", [body.node("Shape", [unlike])]), np.int64)
    outputs = ["y", "ranks"] if read == "rank" else ["y"]
    names = g.node("Loop", ["", g.constant(True), x], outputs=outputs, body=body)
    for name in names:
        g.output(name, np.int64 if name == "ranks" else np.float32)
    data = model_bytes(g)
    feed = {"x": np.float32([0]), "limit": np.float32([3.5])}
    found = same(data, feed)
    assert found[0] == 4
    if read == "rank":
        assert found[1].tolist() == [1, 1, 1, 0]
        return
    runs: list[int] = []
    run = engine._Ready.run
    monkeypatch.setattr(engine._Ready, "run", lambda *given: (runs.append(1), run(*given)))
    model_of_bytes(data).run(feed)
    assert len(runs) == 4 + 1  # a net for each round, and one before the loop
