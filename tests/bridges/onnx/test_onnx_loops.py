"""ONNX models whose loops or constants would run for ever or fill all memory end in one error."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import pytest

from opscope.bridges.onnx.files.graph import Graph
from opscope.bridges.onnx.files.writing import model_bytes
from opscope.bridges.onnx.importing.imported import ImportedModel
from opscope.bridges.onnx.importing.model import model_of_bytes
from opscope.framework.base.errors import OpscopeError, RunError

FOREVER = 1 << 60
ONES = np.ones(2, np.float32)


def relu(body: Graph, h: str) -> str:
    return body.node("Relu", [h])


def double(body: Graph, h: str) -> str:
    return body.node("Concat", [h, h], axis=0)


def loop_body(
    outer: Graph,
    name: str,
    step: Callable[[Graph, str], str],
    ends: bool = False,
    scans: bool = False,
) -> Graph:
    """The body of a loop; `ends`: as soon as its state is negative, which it never is."""
    body = outer.sub_graph(name)
    i, go, h = f"{name}_i", f"{name}_go", f"{name}_h"
    body.input(i, np.int64, [])
    body.input(go, np.bool_, [])
    body.input(h, np.float32, [None])
    if ends:
        zero = body.constant(np.float32(0))
        go = body.node("GreaterOrEqual", [body.node("ReduceMin", [h], keepdims=0), zero])
    body.output(body.node("Identity", [go], f"{name}_on"), np.bool_)
    body.output(step(body, h), np.float32)
    if scans:
        body.output(body.node("Identity", [h], f"{name}_row"), np.float32)
    return body


def model_of(
    trips: int | None,
    step: Callable[[Graph, str], str] = relu,
    *,
    ends: bool = False,
    scans: bool = False,
) -> ImportedModel:
    g = Graph("g")
    x = g.input("x", np.float32, ["N"])
    body = loop_body(g, "body", step, ends, scans)
    count = "" if trips is None else g.constant(trips, dtype=np.int64)
    names = ["z", "rows"] if scans else ["z"]
    outs = g.node("Loop", [count, g.constant(True), x], outputs=names, body=body)
    for out in outs:
        g.output(out, np.float32)
    return model_of_bytes(model_bytes(g))


@pytest.mark.parametrize("trips", [FOREVER, None])
def test_a_loop_that_never_ends_is_refused_before_it_begins(trips: int | None) -> None:
    begin = time.process_time()
    with pytest.raises(RunError, match=r"node 'z' \(Loop.* rounds, beyond .*rounds=NUMBER"):
        model_of(trips).run({"x": ONES})
    assert time.process_time() - begin < 2


def test_a_loop_whose_condition_stays_true(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPSCOPE_LIMITS", "rounds=50")
    with pytest.raises(RunError, match=r"'z' \(Loop.*besides 2 for what is fed: 51 rounds, beyond"):
        model_of(FOREVER, ends=True).run({"x": ONES})
    model = model_of(FOREVER, ends=True)
    assert model.run({"x": -ONES})["z"].tolist() == [0, 0]  # one round


def test_rounds_of_a_run_are_counted_together(monkeypatch: pytest.MonkeyPatch) -> None:
    def nested(body: Graph, h: str) -> str:
        inner = loop_body(body, "inner", relu, ends=True)
        ten = body.constant(10, dtype=np.int64)
        return body.node("Loop", [ten, body.constant(True), h], "inner", body=inner)

    monkeypatch.setenv("OPSCOPE_LIMITS", "rounds=30")
    model = model_of(2, nested)
    for _ in range(3):  # each run begins anew
        model.run({"x": ONES})
    with pytest.raises(RunError, match=r"'inner' \(Loop.*: 31 rounds, beyond the limit of 30"):
        model_of(3, nested).run({"x": ONES})
    model_of(3, nested).run({"x": np.ones(3, np.float32)})  # 33, of which 3 are paid for


def test_a_loop_that_doubles_its_value(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPSCOPE_LIMITS", "carried=4M")
    assert model_of(16, double).run({"x": ONES})["z"].size == 2 << 16
    told = r"'z' \(Loop.*about to make: \d+ bytes, beyond the limit of 4194304.*carried=NUMBER"
    with pytest.raises(RunError, match=told):
        model_of(60, double).run({"x": ONES})


def test_what_a_loop_collects(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPSCOPE_LIMITS", "carried=1K")
    rows = model_of(50, scans=True).run({"x": ONES})["rows"]
    assert rows.shape == (50, 2)
    with pytest.raises(RunError, match=r"'z' \(Loop.*1\d\d\d bytes, beyond .*carried=NUMBER"):
        model_of(200, scans=True).run({"x": ONES})
    large = np.ones(4096, np.float32)  # what is fed may be carried
    assert model_of(50).run({"x": large})["z"].size == 4096


@pytest.mark.parametrize("ends", [False, True])
def test_rows_of_ever_other_lengths_are_not_stacked(ends: bool) -> None:
    with pytest.raises(RunError, match=r"'z' \(Loop, opset \d+\): .*same shape"):
        model_of(3, double, ends=ends, scans=True).run({"x": ONES})


def test_a_scan_is_paid_for_by_what_it_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    def scan(times: int) -> ImportedModel:
        g = Graph("g")
        x = g.input("x", np.float32, [None, 2])
        body = g.sub_graph("body")
        body.input("s", np.float32, [2])
        body.input("row", np.float32, [2])
        body.output(body.node("Add", ["s", "row"], "sum"), np.float32)
        zero = g.constant(np.zeros(2, np.float32))
        rows = g.node("Tile", [x, g.ints(times, 1)])
        g.output(g.node("Scan", [zero, rows], "z", num_scan_inputs=1, body=body), np.float32)
        return model_of_bytes(model_bytes(g))

    monkeypatch.setenv("OPSCOPE_LIMITS", "rounds=10")
    feed = {"x": np.ones((40, 2), np.float32)}
    assert scan(2).run(feed)["z"].tolist() == [80, 80]
    with pytest.raises(RunError, match=r"'z' \(Scan.*besides 80 for what is fed: 11 rounds"):
        scan(3).run(feed)


def test_constants_of_a_model_together(monkeypatch: pytest.MonkeyPatch) -> None:
    g = Graph("g")
    total = g.input("x", np.float32, [2000])
    for number in range(3):
        made = g.node("ConstantOfShape", [g.ints(2000)], f"c{number}")
        total = g.node("Add", [total, made])
    g.output(total, np.float32)
    feed = {"x": np.ones(2000, np.float32)}
    monkeypatch.setenv("OPSCOPE_LIMITS", "fill=30K")
    assert model_of_bytes(model_bytes(g)).run(feed)
    monkeypatch.setenv("OPSCOPE_LIMITS", "fill=20K")
    with pytest.raises(OpscopeError, match=r"'c2'.*16000 bytes before it: 24000 bytes.*fill="):
        model_of_bytes(model_bytes(g)).run(feed)


def reader(rounds: int, by_state: bool, step: int = 1) -> Graph:
    """A loop that adds up rows times weights, which are a state that never changes.

    Args:
        rounds: of 5 rows. by_state: whether a state chooses the row and ends the loop, which takes
            so long a step; else the number of the round, and the number of rounds.
    """
    g = Graph("g")
    x = g.input("x", np.float32, [5, "N", 3])
    h = g.input("h", np.float32, ["N", 3])
    w = g.constant(np.array([0.5, -1, 2], np.float32))
    body = g.sub_graph("body")
    i = body.input("i", np.int64, [])
    go = body.input("go", np.bool_, [])
    at = body.input("at", np.int64, [])
    last = body.input("last", np.float32, [None, 3])
    by = body.input("by", np.float32, [3])
    after = body.node("Add", [at, body.constant(step, dtype=np.int64)], "after")
    row = body.node("Gather", [x, at if by_state else i], axis=0)
    made = body.node("Tanh", [body.node("Add", [body.node("Mul", [row, by]), last])], "made")
    if by_state:
        go = body.node(
            "Less", [body.node("Cast", [after], to=1), body.constant(np.float32(rounds))]
        )
    body.output(body.node("Identity", [go], "on"), np.bool_)
    body.output(after, np.int64)
    for out in (made, body.node("Identity", [by], "same")):
        body.output(out, np.float32)
    body.output(body.node("Identity", [made], "row"), np.float32)
    trips = "" if by_state else g.constant(rounds, dtype=np.int64)
    given = [trips, g.constant(True), g.constant(0, dtype=np.int64), h, w]
    for out in g.node("Loop", given, outputs=["count", "z", "w", "rows"], body=body):
        g.output(out, np.int64 if out == "count" else np.float32)
    return g


@pytest.mark.parametrize(
    "rounds, by_state, step, is_scan",
    [(5, True, 1, True), (5, False, 1, True), (4, True, 1, False), (3, False, 1, False),
     (5, True, 2, False)],
)  # fmt: skip
def test_a_loop_over_all_rows_runs_inside_of_the_net(
    rounds: int, by_state: bool, step: int, is_scan: bool
) -> None:
    ort = pytest.importorskip("onnxruntime")
    data = model_bytes(reader(rounds, by_state, step))
    rng = np.random.default_rng(0)
    shapes = {"x": (5, 2, 3), "h": (2, 3)}
    feed = {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    model = model_of_bytes(data)
    found, wanted = model.run(feed), ort.InferenceSession(data).run(None, feed)
    for one, other in zip(found.values(), wanted, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6)
    assert model.is_one_net(feed) == is_scan
    if is_scan:  # and is written out where gradients are to flow
        assert sum(op.type == "tanh" for op in model.op_list(shapes).ops) == rounds
