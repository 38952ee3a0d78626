"""Operators on rows of matrices."""

import numpy as np

import opscope.nnet3.compute  # noqa: F401  registers the operators
from op_test import Case, OpTest


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
