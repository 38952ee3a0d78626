"""Entries by positions that differ from line to line, and by whole indexes."""

from __future__ import annotations

import numpy as np
import pytest

from opscope.framework.base.errors import AttributeTypeError, RunError, ShapeError
from opscope.framework.ir.desc import make_op
from opscope.framework.ir.infer import infer_specs
from opscope.framework.ir.operation import Operator
from opscope.testing import Case, OpTest


class TestTakeAlongAxis(OpTest):
    type = "take_along_axis"
    grad = ("x",)

    def cases(self, rng):
        x = rng.normal(size=(3, 4))
        yield Case({"x": x, "ids": rng.integers(0, 4, (3, 2))})
        yield Case({"x": x, "ids": np.array([[2, 2, 0, 1], [0, 0, 2, 1]], np.int32)}, {"axis": 0})
        yield Case(
            {"x": rng.normal(size=(2, 5, 3)), "ids": rng.integers(0, 5, (2, 7, 1))}, {"axis": 1}
        )
        yield Case({"x": x, "ids": np.array([[3, 1]], np.uint8)})
        yield Case({"x": rng.normal(size=6), "ids": np.array([5, 0, 5])})

    def reference(self, inputs, attrs):
        ids, axis = inputs["ids"].astype(np.int64), attrs["axis"]
        return {"out": np.take_along_axis(inputs["x"], ids, axis)}

    def test_nothing_is_taken(self):
        setup = self.setup(Case({"x": np.ones((2, 3)), "ids": np.zeros((2, 0), int)}), "float64")
        arrays = self.output(setup.case, "float64")
        assert arrays["out"].shape == (2, 0)
        np.testing.assert_array_equal(setup.gradients(arrays, ("x",))["x"], np.zeros((2, 3)))

    @pytest.mark.parametrize("bad", [-1, 4])
    def test_refuses_ids_out_of_range(self, bad):
        inputs = {"x": np.zeros((1, 4)), "ids": np.array([[0, bad]])}
        with pytest.raises(RunError, match=rf"'ids' holds {bad}, want 0 <= ids < 4"):
            self.output(Case(inputs))

    def test_refuses(self):
        x, ids = np.zeros((2, 3)), np.zeros((2, 1), int)
        self.refuses("integer dtype", {"x": x, "ids": x})
        self.refuses("out of range", {"x": x, "ids": ids}, {"axis": 2})
        self.refuses("the rank of x, 2, and have 1", {"x": x, "ids": ids[0]})
        self.refuses("size 4 along axis 0, where x has 2", {"x": x, "ids": np.zeros((4, 1), int)})


class TestPutAlongAxis(OpTest):
    type = "put_along_axis"
    distinct = True
    grad = ("x", "updates")

    def cases(self, rng):
        def case(x, ids, updates, **attrs):
            draw = rng.normal
            return Case({"x": draw(size=x), "ids": ids, "updates": draw(size=updates)}, attrs)

        ids = np.array([[2, 0], [3, 1], [0, 3]])
        yield case((3, 4), ids, (3, 2))
        yield case((4, 3), ids.T.astype(np.int32), (2, 3), axis=0)
        yield case((3, 4), ids[:1], (3, 2))
        yield case((3, 4), ids, (1, 1))
        yield case((3, 4, 2), ids[:, :, None], (3, 2, 2), axis=1)
        yield case((5,), np.array([4, 1]), (2,))
        repeated = np.array([[2, 2, 0], [3, 3, 3], [0, 1, 0]])
        yield case((3, 4), repeated, (3, 3), mode="add")
        yield case((3, 4), repeated[:1], (1, 3), mode="add")
        yield case((4, 3), repeated, (3, 3), axis=0, mode="add")

    def reference(self, inputs, attrs):
        axis = attrs["axis"] % inputs["x"].ndim
        out, ids = inputs["x"].copy(), inputs["ids"]
        lines = list(np.indices((*out.shape[:axis], ids.shape[axis], *out.shape[axis + 1 :])))
        lines[axis] = np.broadcast_to(ids, lines[0].shape)
        updates = np.broadcast_to(inputs["updates"], lines[0].shape)
        if attrs["mode"] == "add":
            np.add.at(out, tuple(lines), updates)
        else:
            out[tuple(lines)] = updates
        return {"out": out}

    def test_refuses(self):
        x, ids = np.zeros((2, 3)), np.zeros((2, 1), int)
        self.refuses("one dtype", {"x": x, "ids": ids, "updates": ids})
        self.refuses("rank of x, 2, and have 1", {"x": x, "ids": ids, "updates": x[0]})
        self.refuses("size 3 along axis 1, where ids have 1", {"x": x, "ids": ids, "updates": x})
        three = {"x": x, "ids": ids, "updates": np.zeros((3, 1))}
        self.refuses("size 3 along axis 0, where x has 2", three)
        given = {"x": x, "ids": ids, "updates": x[:, :1]}
        self.refuses("'max' is none of", given, {"mode": "max"}, AttributeTypeError)
        with pytest.raises(RunError, match="'ids' holds 3, want 0 <= ids < 3"):
            self.output(Case({**given, "ids": ids + 3}))


class ByIndexes(OpTest):
    """Shapes are inferred with the last dimension of ids known: without it the rank is open."""

    def test_shapes(self):
        for setup in self._setups():
            setup.check_specs(self)
        shapes = {"x": (-1, -1, 4), "ids": (-1, 2), "updates": (-1, 4)}
        assert self.inferred(shapes) == ((-1, -1, 4) if self.type == "scatter_nd" else (-1, 4))

    def inferred(self, shapes):
        dtypes = {"ids": "int64"}
        specs = {n: (s, np.dtype(dtypes.get(n, "float32"))) for n, s in shapes.items()}
        slots = {slot.name: slot.name for slot in self.entry.inputs}
        operator = Operator(make_op(self.type, slots, {"out": "out"}))
        return infer_specs([operator], {n: specs[n] for n in slots}, {}, None)["out"][0]

    def test_refuses_an_open_index(self):
        with pytest.raises(ShapeError, match="last dimension of ids must be known"):
            self.inferred({"x": (2, 3, 4), "ids": (5, -1), "updates": (5, 4)})


class TestGatherNd(ByIndexes):
    type = "gather_nd"
    grad = ("x",)

    def cases(self, rng):
        x = rng.normal(size=(3, 4, 5))
        yield Case({"x": x, "ids": np.array([[0, 1], [2, 3], [0, 1], [-1, -4]])})
        yield Case({"x": x, "ids": np.array([[[1]], [[1]], [[2]]], np.int32)})
        yield Case({"x": x, "ids": np.array([2, 3, 4])})
        yield Case(
            {"x": x, "ids": np.array([[[0], [3]], [[1], [1]], [[2], [0]]])}, {"batch_dims": 1}
        )
        ids = rng.integers(0, 5, (3, 4, 2, 1))
        yield Case({"x": x, "ids": ids.astype(np.uint8)}, {"batch_dims": 2})
        yield Case({"x": x, "ids": np.zeros((2, 0), int)})

    def reference(self, inputs, attrs):
        x, ids, batch = inputs["x"], inputs["ids"].astype(np.int64), attrs["batch_dims"]
        rest = x.shape[batch + ids.shape[-1] :]
        out = np.empty((*ids.shape[:-1], *rest))
        for place in np.ndindex(*ids.shape[:-1]):
            out[place] = x[place[:batch] + tuple(ids[place])]
        return {"out": out}

    @pytest.mark.parametrize("bad", [[0, 4], [3, 0], [-4, 0]])
    def test_refuses_indexes_out_of_range(self, bad):
        inputs = {"x": np.zeros((3, 4)), "ids": np.array([[0, 0], bad])}
        with pytest.raises(RunError, match=rf"index \[{bad[0]}, {bad[1]}\], want -3 to 2, -4 to 3"):
            self.output(Case(inputs))

    def test_refuses(self):
        x = np.zeros((2, 3))
        self.refuses("integer dtype", {"x": x, "ids": x})
        self.refuses("more axes", {"x": x, "ids": np.zeros((1, 3), int)})
        self.refuses("more axes", {"x": x, "ids": np.zeros((2, 2), int)}, {"batch_dims": 1})
        self.refuses("at least 1", {"x": x, "ids": np.array(1)})
        self.refuses("must agree", {"x": x, "ids": np.zeros((3, 1), int)}, {"batch_dims": 1})


class TestScatterNd(ByIndexes):
    type = "scatter_nd"
    distinct = True
    grad = ("x", "updates")

    def cases(self, rng):
        def case(x, ids, **attrs):
            updates = rng.normal(size=(*ids.shape[:-1], *x[ids.shape[-1] :]))
            return Case({"x": rng.normal(size=x), "ids": ids, "updates": updates}, attrs)

        yield case((3, 4, 2), np.array([[0, 1], [2, 3], [1, 1], [-1, 0]]))
        yield case((5, 2), np.array([[3], [-5]], np.int32))
        yield case((5,), np.array([[[3], [1]], [[4], [0]]]))
        yield case((3, 4), np.array([2, 1]))
        repeated = np.array([[0, 1], [2, 3], [0, 1], [0, -3]])
        yield case((3, 4, 2), repeated, mode="add")
        yield case((3, 4), repeated.astype(np.int8), mode="add")

    def reference(self, inputs, attrs):
        out, ids = inputs["x"].copy(), inputs["ids"].astype(np.int64)
        for place in np.ndindex(*ids.shape[:-1]):
            at, update = tuple(ids[place]), inputs["updates"][place]
            out[at] = out[at] + update if attrs["mode"] == "add" else update
        return {"out": out}

    def test_refuses(self):
        x, ids, updates = np.zeros((2, 3)), np.zeros((1, 1), int), np.zeros((1, 3))
        self.refuses("one dtype", {"x": x, "ids": ids, "updates": np.zeros((1, 3), int)})
        self.refuses("one shape", {"x": x, "ids": ids, "updates": np.zeros((1, 2))})
        self.refuses("more axes", {"x": x, "ids": np.zeros((1, 3), int), "updates": updates})
        with pytest.raises(RunError, match=r"index \[2\], want -2 to 1"):
            self.output(Case({"x": x, "ids": ids + 2, "updates": updates}))
