"""Operators that change shapes."""

import numpy as np

from opscope.framework.ir.desc import make_op
from opscope.framework.ir.infer import infer_one
from opscope.framework.ir.operation import Operator
from opscope.testing import Case, OpTest


class TestReshape(OpTest):
    type = "reshape"
    grad = ("x",)

    def cases(self, rng):
        yield Case({"x": rng.normal(size=(3, 4))}, {"shape": [0, 2, 2]})
        yield Case({"x": rng.normal(size=(3, 4))}, {"shape": [-1, 6]})
        yield Case({"x": rng.normal(size=(2, 3, 4))}, {"shape": [0, -1]})
        yield Case({"x": rng.normal(size=(2, 6))}, {"shape": [2, 3, 2, 1]})
        yield Case({"x": rng.normal(size=1)}, {"shape": []})

    def reference(self, inputs, attrs):
        x = inputs["x"]
        shape = [x.shape[i] if dim == 0 else dim for i, dim in enumerate(attrs["shape"])]
        if -1 in shape and x.shape[0] == 0 and 0 in shape:
            shape[shape.index(-1)] = int(np.prod(x.shape[1:]))
        return {"out": x.reshape(shape)}

    def test_takes_integers(self):
        out = self.output(Case({"x": np.array([[1, 2], [3, 4]])}, {"shape": [4]}))["out"]
        np.testing.assert_array_equal(out, [1, 2, 3, 4])

    def test_unknown_batch_stays_unknown(self):
        wanted = {
            (0, -1): (-1, 12),
            (-1, 12): (-1, 12),
            (0, 2, 6): (-1, 2, 6),
            (-1,): (-1,),
        }
        for shape, out in wanted.items():
            op = Operator(make_op("reshape", {"x": "x"}, {"out": "out"}, {"shape": list(shape)}))
            specs = infer_one(op, {"x": ((-1, 3, 4), np.dtype("float32"))}, {})
            assert specs["out"][0] == out

    def test_refuses(self):
        x = np.zeros((3, 4))
        self.refuses("more than one", {"x": x}, {"shape": [-1, -1]})
        self.refuses("do not divide", {"x": x}, {"shape": [5, -1]})
        self.refuses("does not hold the elements", {"x": x}, {"shape": [3, 5]})
        self.refuses("copies dimension 2", {"x": x}, {"shape": [3, 4, 0]})


class TestFlatten(OpTest):
    type = "flatten"
    grad = ("x",)

    def cases(self, rng):
        for axis in (0, 1, 2, -1, 3):
            yield Case({"x": rng.normal(size=(2, 3, 4))}, {"axis": axis})

    def reference(self, inputs, attrs):
        x = inputs["x"]
        axis = attrs["axis"] + (x.ndim if attrs["axis"] < 0 else 0)
        rows, columns = int(np.prod(x.shape[:axis])), int(np.prod(x.shape[axis:]))
        return {"out": x.reshape(rows, columns)}

    def test_refuses(self):
        self.refuses("axis 3 is out of range", {"x": np.zeros((2, 3))}, {"axis": 3})


class TestSqueeze(OpTest):
    type = "squeeze"
    grad = ("x",)

    def cases(self, rng):
        yield Case({"x": rng.normal(size=(3, 1, 4, 1))}, {"axes": [1]})
        yield Case({"x": rng.normal(size=(3, 1, 4, 1))}, {"axes": [-1, 1]})

    def reference(self, inputs, attrs):
        return {"out": np.squeeze(inputs["x"], tuple(attrs["axes"]))}

    def test_refuses(self):
        x = np.zeros((2, 1))
        self.refuses("has size 2", {"x": x}, {"axes": [0]})
        self.refuses("out of range", {"x": x}, {"axes": [2]})
        self.refuses("twice", {"x": x}, {"axes": [1, -1]})


class TestUnsqueeze(OpTest):
    type = "unsqueeze"
    grad = ("x",)

    def cases(self, rng):
        yield Case({"x": rng.normal(size=(3, 4))}, {"axes": [0]})
        yield Case({"x": rng.normal(size=(3, 4))}, {"axes": [3, 1]})
        yield Case({"x": rng.normal(size=4)}, {"axes": [-1]})

    def reference(self, inputs, attrs):
        return {"out": np.expand_dims(inputs["x"], tuple(attrs["axes"]))}

    def test_refuses(self):
        self.refuses("out of range", {"x": np.zeros(2)}, {"axes": [2]})
        self.refuses("twice", {"x": np.zeros(2)}, {"axes": [0, 0]})


class TestTranspose(OpTest):
    type = "transpose"
    grad = ("x",)

    def cases(self, rng):
        yield Case({"x": rng.normal(size=(3, 4))})
        yield Case({"x": rng.normal(size=(2, 3, 4))}, {"perm": [1, 2, 0]})
        yield Case({"x": rng.normal(size=(2, 3, 4))}, {"perm": [0, -1, 1]})

    def reference(self, inputs, attrs):
        return {"out": inputs["x"].transpose(*attrs["perm"])}

    def test_refuses(self):
        x = np.zeros((2, 3))
        self.refuses("each of the 2 axes once", {"x": x}, {"perm": [0]})
        self.refuses("each of the 2 axes once", {"x": x}, {"perm": [0, 0]})
        self.refuses("out of range", {"x": x}, {"perm": [0, 2]})


class TestExpand(OpTest):
    type = "expand"
    grad = ("x",)

    def cases(self, rng):
        yield Case({"x": rng.normal(size=(3, 1))}, {"shape": [-1, 4]})
        yield Case({"x": rng.normal(size=(3, 4))}, {"shape": [2, 3, 4]})
        yield Case({"x": rng.normal(size=(1, 4))}, {"shape": [2, 3, -1]})
        yield Case({"x": rng.normal(size=(3, 4))}, {"shape": [-1, 4]})
        yield Case({"x": np.array(3.0)}, {"shape": [2]})

    def reference(self, inputs, attrs):
        x, shape = inputs["x"], attrs["shape"]
        held = (1,) * (len(shape) - x.ndim) + x.shape
        full = [h if dim == -1 else dim for h, dim in zip(held, shape, strict=True)]
        return {"out": np.broadcast_to(x, full)}

    def test_refuses(self):
        self.refuses("fewer dimensions", {"x": np.zeros((2, 3))}, {"shape": [3]})
        self.refuses("cannot become 4", {"x": np.zeros((2, 3))}, {"shape": [2, 4]})
        self.refuses("axis 0 is new", {"x": np.zeros(3)}, {"shape": [-1, 3]})


class TestTile(OpTest):
    type = "tile"
    grad = ("x",)

    def cases(self, rng):
        yield Case({"x": rng.normal(size=(2, 3))}, {"repeats": [2, 1]})
        yield Case({"x": rng.normal(size=(2, 3))}, {"repeats": [3, 2]})
        yield Case({"x": np.array(3.0)}, {"repeats": []})

    def reference(self, inputs, attrs):
        return {"out": np.tile(inputs["x"], attrs["repeats"])}

    def test_refuses(self):
        self.refuses("one number for each axis", {"x": np.zeros((2, 3))}, {"repeats": [2]})


class TestMeshgrid(OpTest):
    type = "meshgrid"
    grad = ("x",)

    def cases(self, rng):
        def vectors(*sizes):
            return {"x": [rng.normal(size=size) for size in sizes]}

        for indexing in ("ij", "xy"):
            yield Case(vectors(2, 3), {"indexing": indexing})
            yield Case(vectors(2, 3, 4), {"indexing": indexing})
            yield Case(vectors(3), {"indexing": indexing})

    def reference(self, inputs, attrs):
        return {"out": list(np.meshgrid(*inputs["x"], indexing=attrs["indexing"]))}

    def test_refuses(self):
        self.refuses("2 dimensions", {"x": [np.zeros((2, 2))]})
        self.refuses("one result for each of 2", {"x": [np.zeros(2), np.zeros(2)]})
