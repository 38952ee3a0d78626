"""Exports are run before they are written; what differs is told and leaves no file."""

from __future__ import annotations

import math
import sys

import numpy as np
import pytest

from opscope.bridges.inference.form import ExportError
from opscope.bridges.onnx.export.checking import (
    UncheckedWarning,
    check_export,
    error_of,
    write_checked,
)
from opscope.bridges.onnx.files.graph import Graph

X = np.array([[1.0, 2.0, -3.0]], np.float32)


def doubled() -> Graph:
    graph = Graph("g")
    x = graph.input("x", np.float32, ["N", 3])
    graph.output(graph.node("Mul", [x, graph.constant(np.float32(2))], "y"), np.float32, ["N", 3])
    return graph


def hide(monkeypatch, *modules):
    for name in modules:
        monkeypatch.setitem(sys.modules, name, None)


def test_equal_graphs_are_written(tmp_path):
    pytest.importorskip("onnxruntime")
    path = tmp_path / "m.onnx"
    check = write_checked(path, doubled(), [({"x": X}, {"y": 2 * X}), ({"x": X[:0]}, {"y": X[:0]})])
    assert path.exists()
    assert check.error == 0 and check.cases == 2 and check.nodes == 1
    assert str(check).startswith("1 node, maximum error 0 on 2 inputs in ONNX Runtime")


def test_the_reference_evaluator_serves(monkeypatch):
    pytest.importorskip("onnx")
    hide(monkeypatch, "onnxruntime")
    assert check_export(doubled(), [({"x": X}, {"y": 2 * X})]) == 0
    with pytest.raises(ExportError, match=r"'y'\[0, 2\] is -6 in onnx's reference"):
        check_export(doubled(), [({"x": X}, {"y": 2 * X + np.float32([0, 0, 1])})])


def test_without_a_runtime_a_warning(monkeypatch, tmp_path):
    hide(monkeypatch, "onnxruntime", "onnx", "onnx.checker")
    with pytest.warns(UncheckedWarning, match="install onnxruntime"):
        check = write_checked(tmp_path / "m.onnx", doubled(), [({"x": X}, {"y": 2 * X})])
    assert math.isnan(check.error) and "not checked" in str(check)


@pytest.mark.parametrize(
    ("expected", "message"),
    [
        ({"y": 2 * X + np.float32([0, 1e-3, 0])}, r"'y'\[0, 1\] is 4 in ONNX Runtime.*here it is"
         r" 4\.00.*error of 0.00025, at most 0.0001.*1 of 3 values.*input 2 of 2"),
        ({"y": np.float32([[2, np.nan, -6]])}, r"'y'\[0, 1\].*error of inf"),
        ({"y": X[:, :2]}, r"float32 \[1, 3\] in ONNX Runtime.*float32 \[1, 2\]"),
        ({"y": (2 * X).astype(np.float64)}, "float32.*float64"),
        ({"z": X}, "no output 'z'"),
    ],
)  # fmt: skip
def test_what_differs_leaves_no_file(tmp_path, expected, message):
    pytest.importorskip("onnxruntime")
    with pytest.raises(ExportError, match=message):
        write_checked(tmp_path / "m", doubled(), [({"x": X}, {"y": 2 * X}), ({"x": X}, expected)])
    assert not list(tmp_path.iterdir())


def test_graphs_that_do_not_run(tmp_path):
    pytest.importorskip("onnxruntime")
    with pytest.raises(ExportError, match=r"fails on input 1 of 1 \(x \[1, 2\]\)"):
        check_export(doubled(), [({"x": X[:, :2]}, {"y": X})])
    graph = doubled()
    graph.node("Concat", ["x"], "c")
    with pytest.raises(ExportError, match="not valid: .*axis"):
        check_export(graph, [])
    graph = doubled()
    inner = graph.sub_graph("then")
    inner.node("Relu", ["x"], "r")
    inner.message.node[0].domain = "com.example"
    graph.node("If", ["x"], then_branch=inner)
    with pytest.raises(ExportError, match=r"other domains than ONNX's own: com\.example\.Relu"):
        write_checked(tmp_path / "m", graph, [])
    assert not list(tmp_path.iterdir())


def test_errors_are_relative_above_one():
    expected = np.array([0.5, 100.0, np.inf, np.nan, 0.0, 3.0])
    found = np.array([0.6, 101.0, np.inf, np.nan, np.inf, np.nan])
    np.testing.assert_allclose(error_of(found, expected), [0.1, 0.01, 0, 0, np.inf, np.inf])
    assert error_of(np.array([True]), np.array([False])) == [1]
