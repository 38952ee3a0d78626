"""Operators that join and cut arrays."""

import numpy as np

from opscope.framework.base.errors import AttributeTypeError
from opscope.testing import Case, OpTest


class TestConcat(OpTest):
    type = "concat"
    grad = ("x",)

    def cases(self, rng):
        yield Case({"x": [rng.normal(size=(n, 2)) for n in (3, 1, 2)]})
        yield Case({"x": [rng.normal(size=(2, n)) for n in (3, 4)]}, {"axis": -1})
        yield Case({"x": [rng.normal(size=(2, n, 2)) for n in (1, 2, 3)]}, {"axis": 1})
        yield Case({"x": [rng.normal(size=(2, 3))]})

    def reference(self, inputs, attrs):
        return {"out": np.concatenate(inputs["x"], attrs["axis"])}

    def test_takes_integers(self):
        rows = [np.array([3, 1]), np.array([7])]
        np.testing.assert_array_equal(self.output(Case({"x": rows}))["out"], [3, 1, 7])

    def test_refuses(self):
        x = np.zeros((2, 3))
        self.refuses("one rank", {"x": [x, np.zeros(2)]})
        self.refuses("must agree", {"x": [x, np.zeros((2, 4))]})
        self.refuses("one dtype", {"x": [x, np.zeros((2, 3), int)]})
        self.refuses("out of range", {"x": [x, x]}, {"axis": 2})
        self.refuses("out of range", {"x": [np.array(1.0)]})


class TestStack(OpTest):
    type = "stack"
    grad = ("x",)

    def cases(self, rng):
        for axis in (0, 1, -1):
            yield Case({"x": [rng.normal(size=(3, 2)) for _ in range(3)]}, {"axis": axis})
        yield Case({"x": [rng.normal(size=3)]})
        yield Case({"x": [np.array(1.0), np.array(2.0)]})

    def reference(self, inputs, attrs):
        return {"out": np.stack(inputs["x"], attrs["axis"])}

    def test_refuses(self):
        self.refuses("one shape", {"x": [np.zeros(2), np.zeros(3)]})
        self.refuses("out of range", {"x": [np.zeros(2)]}, {"axis": 2})


class TestSplit(OpTest):
    type = "split"
    grad = ("x",)
    parts = 2

    def cases(self, rng):
        yield Case({"x": rng.normal(size=(4, 3))})
        yield Case({"x": rng.normal(size=(2, 5))}, {"axis": -1, "sections": [1, 4]})
        yield Case({"x": rng.normal(size=(2, 5, 2))}, {"axis": 1, "sections": [-1, 2]})

    def reference(self, inputs, attrs):
        x, sections = inputs["x"], list(attrs["sections"])
        axis = attrs["axis"] % x.ndim
        size = x.shape[axis]
        if -1 in sections:
            sections[sections.index(-1)] = size - sum(s for s in sections if s > 0)
        ends = np.cumsum(sections)[:-1] if sections else self.parts
        return {"out": np.split(x, ends, axis)}

    def test_refuses(self):
        x = np.zeros((5, 4))
        self.refuses("more than one size", {"x": x}, {"sections": [-1, -1]})
        self.refuses("need one output each", {"x": x}, {"sections": [2, 3]})
        self.refuses("sections \\[4\\]", {"x": x}, {"sections": [4]})
        self.refuses("sections \\[6\\]", {"x": x}, {"sections": [6]})
        self.refuses("below", {"x": x}, {"sections": [-2]}, AttributeTypeError)


class TestSlice(OpTest):
    type = "slice"
    grad = ("x",)

    def cases(self, rng):
        x = rng.normal(size=(5, 6))
        yield Case({"x": x}, {"axes": [1], "starts": [2], "ends": [4]})
        yield Case({"x": x}, {"axes": [1, 0], "starts": [-2, 1], "ends": [100, -1]})
        yield Case({"x": x}, {"axes": [0], "starts": [1], "steps": [2]})
        yield Case({"x": x}, {"axes": [-1], "starts": [-1], "steps": [-1]})
        yield Case({"x": x}, {"axes": [1], "starts": [4], "ends": [0], "steps": [-2]})
        yield Case({"x": x}, {"axes": [1], "starts": [4], "ends": [2]})
        yield Case({"x": x}, {"axes": [], "starts": []})
        yield Case({"x": np.array(2.0)}, {"axes": [], "starts": []})

    def reference(self, inputs, attrs):
        x = inputs["x"]
        spans = [slice(None)] * x.ndim
        count = len(attrs["axes"])
        ends, steps = attrs["ends"] or (None,) * count, attrs["steps"] or (1,) * count
        for axis, *span in zip(attrs["axes"], attrs["starts"], ends, steps, strict=True):
            spans[axis] = slice(*span)
        return {"out": x[(*spans, ...)]}

    def test_refuses(self):
        x = np.zeros((2, 3))
        self.refuses("out of range", {"x": x}, {"axes": [2], "starts": [0]})
        self.refuses("twice", {"x": x}, {"axes": [1, -1], "starts": [0, 0]})
        self.refuses("starts \\[\\] need", {"x": x}, {"axes": [1], "starts": []})
        self.refuses("ends \\[1, 2\\] need", {"x": x}, {"axes": [1], "starts": [0], "ends": [1, 2]})
        self.refuses("step of 0", {"x": x}, {"axes": [1], "starts": [0], "steps": [0]})


class TestPad(OpTest):
    type = "pad"
    grad = ("x",)

    def cases(self, rng):
        yield Case({"x": rng.normal(size=(2, 3))}, {"paddings": [0, 1, 2, 0]})
        yield Case({"x": rng.normal(size=(2, 3))}, {"paddings": [1, 1, 0, 0], "value": 2.5})
        yield Case({"x": rng.normal(size=4)}, {"paddings": [0, 0]})
        yield Case({"x": np.array(1.0)}, {"paddings": []})
        for mode in ("reflect", "edge", "wrap"):
            x = rng.normal(size=(4, 3))
            yield Case({"x": x}, {"paddings": [3, 1, 2, 2], "mode": mode})
            yield Case({"x": x}, {"paddings": [0, 3, 1, 0], "mode": mode})
            x = rng.normal(size=(2, 1, 4))
            yield Case({"x": x}, {"paddings": [0, 0, 0, 0, 3, 2], "mode": mode})
        yield Case({"x": rng.normal(size=(1, 2))}, {"paddings": [2, 0, 4, 5], "mode": "edge"})

    def reference(self, inputs, attrs):
        widths = np.reshape(attrs["paddings"], (-1, 2)).astype(int)
        x, mode = inputs["x"], attrs["mode"]
        if not x.ndim:
            return {"out": x}
        more = {"constant_values": attrs["value"]} if mode == "constant" else {}
        return {"out": np.pad(x, widths, mode, **more)}

    def test_integers(self):
        case = Case({"x": np.arange(3)}, {"paddings": [2, 2], "mode": "reflect"})
        assert self.output(case)["out"].tolist() == [2, 1, 0, 1, 2, 1, 0]

    def test_refuses_borders(self):
        for mode, paddings in (("reflect", [0, 3]), ("wrap", [4, 0])):
            attrs = {"paddings": paddings, "mode": mode}
            width = max(paddings)
            self.refuses(f"size 3 has no {width} entries", {"x": np.zeros(3)}, attrs)
        self.refuses("size 0", {"x": np.zeros(0)}, {"paddings": [1, 0], "mode": "edge"})
        attrs = {"paddings": [1, 0], "mode": "edge", "value": 2.0}
        self.refuses("value 2.0 is for mode 'constant'", {"x": np.zeros(3)}, attrs)

    def test_refuses(self):
        self.refuses("a begin and an end", {"x": np.zeros((2, 3))}, {"paddings": [1, 1]})
        paddings = {"paddings": [-1, 1]}
        self.refuses("below", {"x": np.zeros(3)}, paddings, AttributeTypeError)
        paddings = {"paddings": [1, 1], "value": 0.5}
        self.refuses("value 0.5 is no int64", {"x": np.zeros(3, int)}, paddings)
