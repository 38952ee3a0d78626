"""Operators on rows of matrices."""

import numpy as np
import pytest

import opscope.nnet3.components  # noqa: F401  registers the operators
from opscope.framework.base.errors import ShapeError
from opscope.framework.base.scope import Scope
from opscope.framework.ir.desc import INPUT, make_op, make_var
from opscope.framework.ir.op_list import OpList
from opscope.framework.runtime.plain_net import PlainNet
from opscope.testing import Case, OpTest


class TestAddScaled(OpTest):
    type = "nnet3.add_scaled"
    grad = ()

    def cases(self, rng):
        for alpha in (1.0, -0.5):
            yield Case(
                {"y": rng.normal(size=(3, 4)), "x": rng.normal(size=(3, 4))}, {"alpha": alpha}
            )

    def reference(self, inputs, attrs):
        return {"out": inputs["y"] + attrs["alpha"] * inputs["x"]}


class TestAddRows(OpTest):
    type = "nnet3.add_rows"
    grad = ()

    def cases(self, rng):
        y, x = rng.normal(size=(6, 4)), rng.normal(size=(5, 4))
        for rows in ([1, 2, 3, 4, -1, -1], [4, -1, 0, 0, 2, 1], [-1] * 6, [3, 1, 4, 0, 2, 0]):
            for alpha in (1.0, 2.5):
                yield Case({"y": y, "x": x}, {"alpha": alpha, "rows": np.array(rows, np.int32)})

    def reference(self, inputs, attrs):
        out = inputs["y"].copy()
        for i, row in enumerate(attrs["rows"]):
            if row >= 0:
                out[i] += attrs["alpha"] * inputs["x"][row]
        return {"out": out}


class TestAddRowsMulti(OpTest):
    type = "nnet3.add_rows_multi"
    grad = ()

    def cases(self, rng):
        y, xs = rng.normal(size=(4, 3)), [rng.normal(size=(n, 3)) for n in (2, 5)]
        for pairs in ([[0, 1], [1, 4], [-1, -1], [1, 0]], [[1, 0], [1, 1], [1, 2], [1, 3]]):
            attrs = {"alpha": -2.0, "pairs": np.array(pairs, np.int32)}
            yield Case({"y": y, "x": xs}, attrs)

    def reference(self, inputs, attrs):
        out = inputs["y"].copy()
        for i, (number, row) in enumerate(attrs["pairs"]):
            if number >= 0:
                out[i] += attrs["alpha"] * inputs["x"][number][row]
        return {"out": out}


class TestAddRowRanges(OpTest):
    type = "nnet3.add_row_ranges"
    grad = ()

    def cases(self, rng):
        y, x = rng.normal(size=(3, 4)), rng.normal(size=(6, 4))
        for ranges in (
            [[0, 2], [2, 4], [4, 6]],
            [[-1, -1], [3, 6], [0, 1]],
            [[0, 1], [5, 6], [-1, -1]],
            [[-1, -1]] * 3,
            [[-1, -1], [1, 5], [-1, -1]],
        ):
            attrs = {"alpha": 0.5, "ranges": np.array(ranges, np.int32)}
            yield Case({"y": y, "x": x}, attrs)

    def reference(self, inputs, attrs):
        out = inputs["y"].copy()
        for i, (begin, end) in enumerate(attrs["ranges"]):
            if begin >= 0:
                out[i] += attrs["alpha"] * inputs["x"][begin:end].sum(axis=0)
        return {"out": out}


class TestCopyRows(OpTest):
    type = "nnet3.copy_rows"
    grad = ("x",)

    def cases(self, rng):
        x = rng.normal(size=(5, 4))
        for rows in (
            [1, 2, 3, 4, -1, -1],
            [4, -1, 0, 0, 2, 1],
            [-1] * 6,
            [3, 1, 4, 0, 2, 0],
            [3, 1, 4, 0, 2],
        ):
            for alpha in (1.0, 2.5):
                yield Case({"x": x}, {"alpha": alpha, "rows": np.array(rows, np.int32)})

    def reference(self, inputs, attrs):
        out = np.zeros((len(attrs["rows"]), inputs["x"].shape[1]))
        for i, row in enumerate(attrs["rows"]):
            if row >= 0:
                out[i] = attrs["alpha"] * inputs["x"][row]
        return {"out": out}


class TestCopyRowsMulti(OpTest):
    type = "nnet3.copy_rows_multi"
    grad = ()

    def cases(self, rng):
        xs = [rng.normal(size=(n, 3)) for n in (2, 5)]
        for pairs in ([[0, 1], [1, 4], [-1, -1], [1, 0]], [[1, 0], [1, 1], [1, 2], [1, 3]]):
            yield Case({"x": xs}, {"alpha": -2.0, "pairs": np.array(pairs, np.int32)})

    def reference(self, inputs, attrs):
        out = np.zeros((len(attrs["pairs"]), inputs["x"][0].shape[1]))
        for i, (number, row) in enumerate(attrs["pairs"]):
            if number >= 0:
                out[i] = attrs["alpha"] * inputs["x"][number][row]
        return {"out": out}


ROWS = {"rows": np.array([0, 5], np.int32)}
PAIRS = {"pairs": np.array([[0, 0], [2, 0]], np.int32)}
RANGES = {"ranges": np.array([[0, 1], [3, 3]], np.int32)}


@pytest.mark.parametrize(
    ("type", "attrs", "inputs", "message"),
    [
        ("nnet3.add_rows", ROWS, {"y": (2, 3), "x": (4, 3)}, "lies outside of -1 .. 3"),
        ("nnet3.add_rows", ROWS, {"y": (3, 3), "x": (9, 3)}, "has 2 entries for 3 rows"),
        ("nnet3.add_rows", ROWS, {"y": (2, 4), "x": (9, 3)}, "rows of 3 columns to rows of 4"),
        ("nnet3.add_rows", ROWS, {"y": (2, 4, 1), "x": (9, 3)}, "wants matrices"),
        ("nnet3.copy_rows", ROWS, {"x": (4, 3)}, "lies outside of -1 .. 3"),
        ("nnet3.add_rows_multi", PAIRS, {"y": (2, 3), "x": (4, 3)}, "lies outside of -1 .. 0"),
        ("nnet3.copy_rows_multi", PAIRS, {"x": (4, 3)}, "names an x that is not there"),
        ("nnet3.add_row_ranges", RANGES, {"y": (2, 3), "x": (4, 3)}, "a range is empty"),
    ],
)
def test_refusals(type, attrs, inputs, message):
    net = OpList(name="refused")
    for name, shape in inputs.items():
        net.vars.append(make_var(name, shape, "float32", INPUT))
    net.ops.append(make_op(type, {name: name for name in inputs}, {"out": "out"}, attrs))
    scope = Scope()
    for name, shape in inputs.items():
        scope.var(name).set(np.zeros(shape, np.float32))
    with pytest.raises(ShapeError, match=message):
        PlainNet(net).run(scope)
