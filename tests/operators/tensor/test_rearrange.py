"""flip, roll, repeat_interleave."""

from __future__ import annotations

import numpy as np

from opscope.framework.base.errors import AttributeTypeError
from opscope.testing import Case, OpTest


class TestFlip(OpTest):
    type = "flip"
    grad = ("x",)

    def cases(self, rng):
        for axes in ([], [0], [-1], [2, 0]):
            yield Case({"x": rng.normal(size=(2, 3, 4))}, {"axes": axes})
        yield Case({"x": np.array(1.5)})

    def reference(self, inputs, attrs):
        return {"out": np.flip(inputs["x"], attrs["axes"] or None)}

    def test_refuses(self):
        self.refuses("out of range", {"x": np.zeros((2, 3))}, {"axes": [2]})
        self.refuses("twice", {"x": np.zeros((2, 3))}, {"axes": [1, -1]})


class TestRoll(OpTest):
    type = "roll"
    grad = ("x",)

    def cases(self, rng):
        x = rng.normal(size=(3, 4))
        for shift in (1, -1, 0, 3, 7, -10):
            yield Case({"x": x}, {"shifts": [shift], "axes": [0]})
            yield Case({"x": x}, {"shifts": [shift]})
        yield Case({"x": x}, {"shifts": [1, -2], "axes": [-1, 0]})
        yield Case({"x": rng.normal(size=(2, 3, 2))}, {"shifts": [1, 1, 1], "axes": [0, 1, 2]})
        yield Case({"x": np.array(2.0)}, {"shifts": [3]})

    def reference(self, inputs, attrs):
        axes, shifts = attrs["axes"] or None, attrs["shifts"]
        return {"out": np.roll(inputs["x"], shifts if axes else shifts[0], axes)}

    def test_refuses(self):
        x = np.zeros((2, 3))
        self.refuses("out of range", {"x": x}, {"shifts": [1], "axes": [2]})
        self.refuses("twice", {"x": x}, {"shifts": [1, 1], "axes": [1, -1]})
        self.refuses("one number for each", {"x": x}, {"shifts": [1, 2]})
        self.refuses("one number for each", {"x": x}, {"shifts": [1], "axes": [0, 1]})


class TestRepeatInterleave(OpTest):
    type = "repeat_interleave"
    grad = ("x",)

    def cases(self, rng):
        x = rng.normal(size=(2, 3, 2))
        yield Case({"x": x}, {"repeats": 3})
        yield Case({"x": x}, {"repeats": 2, "axis": 1})
        yield Case({"x": x}, {"repeats": 1, "axis": -1})
        yield Case({"x": x}, {"repeats": 0, "axis": -1})

    def reference(self, inputs, attrs):
        return {"out": np.repeat(inputs["x"], attrs["repeats"], attrs["axis"])}

    def test_refuses(self):
        self.refuses("out of range", {"x": np.zeros(2)}, {"repeats": 2, "axis": 1})
        self.refuses("below 0", {"x": np.zeros(2)}, {"repeats": -1}, AttributeTypeError)
