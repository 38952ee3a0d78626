"""`x[:, i] = v` as Paddle exports it: in loops, beyond the last row, and what only looks so."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

from opscope.bridges.onnx.files.graph import Graph
from opscope.bridges.onnx.files.writing import model_bytes
from opscope.bridges.onnx.importing import engine
from opscope.bridges.onnx.importing.model import model_of_bytes
from opscope.bridges.onnx.importing.row_writes import ROW
from opscope.framework.base.errors import OpscopeError, RunError


def ints(g: Graph, *values: int) -> str:
    return g.constant(np.array(values), dtype=np.int64)


def written(g: Graph, x: str, at: str, value: str, axis: int, rank: int, **wrong: Any) -> str:
    """The nodes of such a write; `at` has no axes, `value` no such axis.

    Args:
        wrong: what is not as the exporter writes it.
    """
    raised = g.node("Add", [g.node("Cast", [at], to=1), g.constant(np.float32(wrong.get("by", 1)))])
    start = g.node("Reshape", [at, ints(g, 1)])
    after = g.node("Reshape", [g.node("Cast", [raised], to=7), ints(g, 1)])
    size = g.node("Gather", [g.node("Shape", [x]), ints(g, axis)])
    end = g.node("Min", [size, after])
    along = wrong.get("along", axis)
    part = g.node("Slice", [x, start, end, ints(g, along), ints(g, 1)])
    sizes = g.node("Shape", [part])
    updates = g.node("Expand", [g.node("Unsqueeze", [value, ints(g, axis)]), sizes])
    numbers = [g.node("Squeeze", [one]) for one in (start, end, ints(g, wrong.get("step", 1)))]
    shape = [-1 if each == axis else 1 for each in range(rank)]
    row = g.node("Reshape", [g.node("Range", numbers), ints(g, *shape)])
    sides = [(0, axis), (axis + 1, rank)]
    parts = [
        g.node("Slice", [sizes, ints(g, a), ints(g, b), ints(g, 0)]) if a < b else ""
        for a, b in sides
    ]
    repeats = g.node("Concat", [one for one in (parts[0], ints(g, 1), parts[1]) if one], axis=0)
    places = g.node("Tile", [row, repeats])
    return g.node("ScatterElements", [x, places, updates], axis=axis)


def looped(axis: int, sizes: tuple[int, ...], dtype: Any, most: int) -> bytes:
    """Rounds write 10 i + what is fed to row i, until that is above a limit that is fed as well."""
    g = Graph("g")
    table = g.input("table", dtype, list(sizes))
    value = g.input("value", dtype, [*sizes[:axis], *sizes[axis + 1 :]])
    limit = g.input("limit", np.int64, [])
    body = g.sub_graph("body")
    body.input("round", np.int64, [])
    body.input("goes", np.bool_, [])
    body.input("i", np.int64, [])
    body.input("x", dtype, list(sizes))
    ten = body.node("Cast", [body.node("Mul", ["i", body.constant(10, dtype=np.int64)])],
                    to=1 if dtype == np.float32 else 6)  # fmt: skip
    out = written(body, "x", "i", body.node("Add", [value, ten]), axis, len(sizes))
    after = body.node("Add", ["i", body.constant(1, dtype=np.int64)])
    # An If of a few numbers, which would cut the round as well.
    yes, no = body.sub_graph("yes"), body.sub_graph("no")
    yes.output(yes.node("Less", [after, limit]), np.bool_)
    no.output(no.node("Less", [after, yes.constant(0, dtype=np.int64)]), np.bool_)
    is_low = body.node("Less", ["i", body.constant(most, dtype=np.int64)])
    goes = body.node("If", [is_low], then_branch=yes, else_branch=no)
    for name, kind in ((goes, np.bool_), (after, np.int64), (out, dtype)):
        body.output(name, kind)
    names = g.node("Loop", ["", g.constant(True), g.constant(0, dtype=np.int64), table],
                   outputs=["last", "z"], body=body)  # fmt: skip
    for name, kind in zip(names, (np.int64, dtype), strict=True):
        g.output(name, kind)
    return model_bytes(g)


@pytest.mark.parametrize("dtype", [np.float32, np.int32])
@pytest.mark.parametrize(
    ("axis", "sizes"), [(1, (2, 5, 3)), (1, (2, 5)), (0, (5,)), (0, (5, 1)), (2, (1, 2, 5))]
)
def test_rows_in_a_loop_that_data_end(
    axis: int, sizes: tuple[int, ...], dtype: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = model_of_bytes(looped(axis, sizes, dtype, 100))
    rng = np.random.default_rng(0)
    table = rng.integers(-9, 9, sizes).astype(dtype)
    value = rng.integers(-9, 9, (*sizes[:axis], *sizes[axis + 1 :])).astype(dtype)
    runs: list[int] = []
    run = engine._Ready.run
    monkeypatch.setattr(engine._Ready, "run", lambda *given: (runs.append(1), run(*given)))
    for limit in (1, 3, 5, 8):  # the last one writes beyond the end, where nothing is
        wanted = table.copy()
        for i in range(min(limit, 5)):
            wanted[(slice(None),) * axis + (i,)] = value + 10 * i
        runs.clear()
        found = model.run({"table": table, "value": value, "limit": np.int64(limit)})
        assert found["z"].dtype == dtype and (found["z"] == wanted).all()
        assert found["last"] == limit
        assert len(runs) <= limit + 2  # one net for each round, and what is around the loop


@pytest.mark.parametrize("dtype", [np.int64, np.int32])
def test_places_count_from_the_end_as_well(dtype: Any) -> None:
    g = Graph("g")
    x = g.input("x", np.float32, [2, 4])
    at, value = g.input("at", dtype, []), g.input("value", np.float32, [2])
    g.output(written(g, x, at, value, 1, 2), np.float32)
    model = model_of_bytes(model_bytes(g))
    assert ROW in [node.op for node in model._model.graph.nodes]
    for place in range(-4, 6):
        feed = {"x": np.zeros((2, 4), np.float32), "at": np.array(place, dtype)}
        (found,) = model.run(feed | {"value": np.ones(2, np.float32)}).values()
        wanted = feed["x"]
        if place < 4:
            wanted[:, place] = 1
        assert (found == wanted).all(), place
    for place in (-5, -6, -100):
        feed = {"x": np.zeros((2, 4), np.float32), "at": np.array(place, dtype)}
        with pytest.raises(RunError, match=rf"scatterelements.* holds {place}, want -4 <= ids < 4"):
            model.run(feed | {"value": np.ones(2, np.float32)})


@pytest.mark.parametrize(
    ("shape", "axis", "value", "places"),
    [
        ((1, 3), 1, (4,), (0, 3, 5)),
        ((1, 3), 1, (0,), (0,)),
        ((2, 3), 1, (1,), (0, 2, 3, 5)),
        ((2, 3), 1, (2,), (-4, -3, 0, 2, 3, 5)),
        ((1, 1, 3), 2, (2, 2), (0, 3)),
        ((3, 2), 0, (2, 2), (0,)),
        ((3, 2), 0, (1,), (0, 2, 3)),
        ((0, 3), 1, (1,), (0, 3)),
        ((0, 3), 1, (0,), (-4, 0, 3)),
        ((3, 0), 1, (3,), (0, 1)),
        ((1, 1), 0, (1,), (-2, -1, 0, 1)),
    ],
)
def test_values_of_other_shapes_and_places_beyond_are_onnxruntimes(
    shape: tuple[int, ...], axis: int, value: tuple[int, ...], places: tuple[int, ...]
) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    g = Graph("g")
    x = g.input("x", np.float32, [None] * len(shape))
    at, fed = g.input("at", np.int64, []), g.input("value", np.float32, [None] * len(value))
    g.output(written(g, x, at, fed, axis, len(shape)), np.float32)
    data = model_bytes(g)
    model = model_of_bytes(data)
    assert ROW in [node.op for node in model._model.graph.nodes]
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(data, options)
    rng = np.random.default_rng(0)
    feed = {
        "x": rng.normal(size=shape).astype(np.float32),
        "value": rng.normal(size=value).astype(np.float32),
    }
    for place in places:
        feed["at"] = np.array(place)
        try:
            (wanted,) = session.run(None, feed)
        except Exception:
            if place == -1:  # the last row: see `row_writes`
                continue
            with pytest.raises(RunError, match=r"scatterelements"):
                model.run(feed)
        else:
            (found,) = model.run(feed).values()
            assert found.shape == wanted.shape and (found == wanted).all(), place


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("op", ["ScatterElements", "ScatterND", "GatherElements", "GatherND"])
def test_places_outside_are_refused(op: str, known: bool) -> None:
    """Also where only a few lines are read or written, and where a reduction is the host's."""
    onnxruntime = pytest.importorskip("onnxruntime")
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    reductions = ["none", "add", "mul"] if op.startswith("Scatter") else [None]
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    # ids, shape of updates, axis
    forms = [([[9], [9]], (2, 1), 1), ([[9]], (1, 1), 1), ([[9, 0, 0]], (1, 3), 0)]
    if op.endswith("ND"):
        forms = [([[0], [9]], (2, 3), None), ([[1, 9]], (1,), None), ([[9, 2]], (1,), None)]
    for how, (ids, shape, axis) in product(reductions, forms):
        size = 2 if axis == 0 or (op.endswith("ND") and ids[0][0] != 1) else 3
        for place in (-size - 1, -size, size - 1, size):
            places = np.array(ids)
            places[places == 9] = place
            g = Graph("g")
            inputs = [g.input("x", np.float32, [2, 3])]
            feed = {"x": x}
            inputs.append(g.constant(places) if known else g.input("ids", np.int64, places.shape))
            if not known:
                feed["ids"] = places
            more = {} if axis is None else {"axis": axis}
            if how is not None:
                inputs.append(g.input("updates", np.float32, shape))
                feed["updates"] = np.full(shape, -7, np.float32)
                more |= {} if how == "none" else {"reduction": how}
            g.output(g.node(op, inputs, "z", **more), np.float32)
            data = model_bytes(g)
            try:
                (wanted,) = onnxruntime.InferenceSession(data, options).run(None, feed)
            except Exception:
                assert place in (-size - 1, size)
                with pytest.raises(OpscopeError, match=rf"{place}\b.*want .*{-size} (to|<=)"):
                    model_of_bytes(data).run(feed)
            else:
                assert (model_of_bytes(data).run(feed)["z"] == wanted).all()


@pytest.mark.parametrize("wrong", [{}, {"by": 2}, {"along": 0}, {"step": 2}])
def test_what_only_looks_so_stays_as_it_is(wrong: dict[str, int]) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    g = Graph("g")
    x = g.input("x", np.float32, [2, 4, 3])
    at, value = g.input("at", np.int64, []), g.input("value", np.float32, [2, 3])
    g.output(g.node("Identity", [written(g, x, at, value, 1, 3, **wrong)], "z"), np.float32)
    data = model_bytes(g)
    model = model_of_bytes(data)
    kinds = [node.op for node in model._model.graph.nodes]
    assert (ROW in kinds, "ScatterElements" in kinds) == (not wrong, bool(wrong))
    feed = {
        "x": np.arange(24, dtype=np.float32).reshape(2, 4, 3),
        "at": np.array(1),
        "value": np.full((2, 3), -1, np.float32),
    }
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(data, options)
    try:
        (wanted,) = session.run(None, feed)
    except Exception:
        with pytest.raises(Exception, match="z|Scatter|Expand"):
            model.run(feed)
    else:
        assert (model.run(feed)["z"] == wanted).all()
