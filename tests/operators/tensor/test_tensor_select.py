"""Operators that select by position or rank."""

import numpy as np
import pytest

import opscope
from opscope.framework.base.errors import AttributeTypeError, RunError
from opscope.framework.fusion import chains
from opscope.testing import Case, OpTest


class TestGather(OpTest):
    type = "gather"
    grad = ("x",)

    def cases(self, rng):
        x = rng.normal(size=(5, 3, 4))
        ids = np.array([4, 0, 4, 1])
        yield Case({"x": rng.normal(size=(5, 3)), "ids": ids})
        yield Case({"x": rng.normal(size=7), "ids": ids})
        yield Case({"x": x, "ids": np.array([[1, 1, 2], [0, 4, 0]], np.int32)})
        yield Case({"x": x, "ids": np.array([[2], [0]])}, {"axis": 1})
        yield Case({"x": x, "ids": np.array([3, 3], np.uint8)}, {"axis": -1})
        yield Case({"x": x, "ids": np.array(2)})
        for kind in ("int64", "int8", "uint8"):
            ids = np.array([[2, 0, 1], [1, 1, 2]], kind)
            if kind != "uint8":
                ids -= 2
            yield Case({"x": x, "ids": ids}, {"axis": 1, "from_end": True})
        wide = {"x": rng.normal(size=300), "ids": np.array([-1, 127, -128], np.int8)}
        yield Case(wide, {"from_end": True})

    def reference(self, inputs, attrs):
        return {"out": np.take(inputs["x"], inputs["ids"], attrs["axis"])}

    def test_many_rows(self, rng=np.random.default_rng(3)):  # noqa: B008  more than one chunk
        ids = rng.integers(0, 50, 3000)
        setup = self.setup(Case({"x": rng.normal(size=(50, 30)), "ids": ids}), "float64")
        gradient = setup.gradients(self.output(setup.case, "float64"), ("x",))["x"]
        wanted = np.zeros((50, 30))
        np.add.at(wanted, ids, setup.seed("out"))
        np.testing.assert_allclose(gradient, wanted)

    @pytest.mark.parametrize("bad", [-1, 5, 1 << 40])
    def test_refuses_ids_out_of_range(self, bad):
        inputs = {"x": np.zeros((5, 2)), "ids": np.array([[0, 4], [bad, 7]])}
        with pytest.raises(RunError, match=rf"op .*gather.*'ids' holds {bad}, want 0 <= ids < 5"):
            self.output(Case(inputs))

    @pytest.mark.parametrize("bad", [-6, 5, -(1 << 40)])
    def test_refuses_ids_out_of_range_from_the_end(self, bad):
        inputs = {"x": np.zeros((5, 2)), "ids": np.array([[-5, 4], [bad, 7]])}
        with pytest.raises(RunError, match=rf"op .*gather.*'ids' holds {bad}, want -5 <= ids < 5"):
            self.output(Case(inputs, {"from_end": True}))

    def test_refuses_negative_small_integers(self):
        ids = np.array([0, -1], np.int8)
        with pytest.raises(RunError, match="holds -1"):
            self.output(Case({"x": np.zeros((300, 1)), "ids": ids}))

    def test_refuses(self):
        x = np.zeros((2, 3))
        self.refuses("integer dtype", {"x": x, "ids": np.zeros(2)})
        self.refuses("out of range", {"x": x, "ids": np.zeros(2, int)}, {"axis": 2})


class TestScatterAdd(OpTest):
    type = "scatter_add"
    grad = ("x", "updates")

    def cases(self, rng):
        ids = np.array([4, 0, 4, 4])
        draw = rng.normal
        yield Case({"x": draw(size=(5, 3)), "ids": ids, "updates": draw(size=(4, 3))})
        yield Case({"x": draw(size=6), "ids": ids, "updates": draw(size=4)})
        ids = np.array([[1, 2], [1, 1], [0, 2]])
        yield Case({"x": draw(size=(5, 2, 2)), "ids": ids, "updates": draw(size=(3, 2, 2, 2))})
        ids = np.array([-5, 4, -1, 0], np.int8)
        given = {"x": draw(size=(5, 1)), "ids": ids, "updates": draw(size=(4, 1))}
        yield Case(given, {"from_end": True})

    def reference(self, inputs, attrs):
        out = inputs["x"].copy()
        np.add.at(out, inputs["ids"], inputs["updates"])
        return {"out": out}

    def test_refuses(self):
        x, ids = np.zeros((2, 3)), np.array([0, 1])
        self.refuses("one shape", {"x": x, "ids": ids, "updates": np.zeros((2, 4))})
        self.refuses("integer dtype", {"x": x, "ids": np.zeros(2), "updates": np.zeros((2, 3))})
        self.refuses("one dtype", {"x": x, "ids": ids, "updates": np.zeros((2, 3), int)})
        self.refuses("one dimension", {"x": x[0, 0], "ids": ids, "updates": np.zeros(2)})
        with pytest.raises(RunError, match="'ids' holds 2"):
            self.output(Case({"x": x, "ids": ids + 1, "updates": x}))
        with pytest.raises(RunError, match="'ids' holds -3, want -2 <= ids < 2"):
            self.output(Case({"x": x, "ids": ids - 3, "updates": x}, {"from_end": True}))


class TestOneHot(OpTest):
    type = "one_hot"
    exact_dtype = ("out",)

    def cases(self, rng):
        yield Case({"ids": np.array([0, 3, 1, 3])}, {"depth": 4})
        yield Case({"ids": np.array([[0, 2]], np.int32)}, {"depth": 3, "dtype": np.dtype("int64")})
        yield Case({"ids": np.array(1)}, {"depth": 2, "dtype": np.dtype("float64")})

    def reference(self, inputs, attrs):
        return {"out": np.eye(attrs["depth"], dtype=attrs["dtype"])[inputs["ids"]]}

    def test_refuses(self):
        self.refuses("integer dtype", {"ids": np.zeros(2)}, {"depth": 3})
        self.refuses("below 0", {"ids": np.zeros(2, int)}, {"depth": -1}, AttributeTypeError)
        with pytest.raises(RunError, match="'ids' holds 3, want 0 <= ids < 3"):
            self.output(Case({"ids": np.array([0, 3])}, {"depth": 3}))


def distinct(rng, *shape):
    return rng.permutation(int(np.prod(shape))).reshape(shape) * 0.5 - 2


class TestTopK(OpTest):
    type = "top_k"
    grad = ("x",)

    def cases(self, rng):
        yield Case({"x": distinct(rng, 3, 6)}, {"k": 2})
        yield Case({"x": distinct(rng, 3, 6)}, {"k": 1})
        yield Case({"x": distinct(rng, 2, 5, 3)}, {"k": 3, "axis": 1})
        yield Case({"x": distinct(rng, 7)}, {"k": 7})
        yield Case({"x": distinct(rng, 2, 30)}, {"k": 12})

    def reference(self, inputs, attrs):
        x, axis = inputs["x"], attrs["axis"]
        ids = np.argsort(-x, axis, kind="stable").take(range(attrs["k"]), axis)
        return {"values": np.take_along_axis(x, ids, axis), "ids": ids}

    @pytest.mark.parametrize("wide", [0, 20])
    def test_ties_nan_and_lowest(self, wide):
        """By searching, and by sorting, which a larger k does."""
        inf, nan = np.inf, np.nan
        x = np.array([[1, 3, 3, nan], [2, 2, 2, 2], [-inf, -inf, 5, -inf], [-inf] * 4])
        x = np.concatenate([x, np.full((4, wide), -inf)], 1)
        out = self.output(Case({"x": x}, {"k": 4 + wide // 2}))
        ids = out["ids"][:, :3]
        np.testing.assert_array_equal(ids, [[3, 1, 2], [0, 1, 2], [2, 0, 1], [0, 1, 2]])
        np.testing.assert_array_equal(out["values"], np.take_along_axis(x, out["ids"], 1))

    def test_takes_integers(self):
        x = np.array([[3, 0, 7, 0, 0]], np.uint8)
        out = self.output(Case({"x": x}, {"k": 4}))
        np.testing.assert_array_equal(out["values"], [[7, 3, 0, 0]])
        np.testing.assert_array_equal(out["ids"], [[2, 0, 1, 3]])

    def test_refuses(self):
        x = np.zeros((2, 3))
        self.refuses("does not have 4", {"x": x}, {"k": 4})
        self.refuses("out of range", {"x": x}, {"k": 1, "axis": 2})
        self.refuses("below 1", {"x": x}, {"k": 0}, AttributeTypeError)


class TestSort(OpTest):
    type = "sort"
    grad = ("x",)

    def cases(self, rng):
        yield Case({"x": distinct(rng, 3, 5)})
        yield Case({"x": distinct(rng, 4, 3)}, {"axis": 0, "descending": True})

    def reference(self, inputs, attrs):
        x, axis = inputs["x"], attrs["axis"]
        ids = np.argsort(-x if attrs["descending"] else x, axis, kind="stable")
        return {"out": np.take_along_axis(x, ids, axis), "ids": ids}

    def test_equal_entries_keep_their_order(self):
        for descending in (False, True):
            case = Case({"x": np.zeros((1, 4))}, {"descending": descending})
            np.testing.assert_array_equal(self.output(case)["ids"], [[0, 1, 2, 3]])

    def test_refuses(self):
        self.refuses("out of range", {"x": np.array(1.0)})

    def test_nan_is_the_largest(self):
        x = np.array([[np.nan, 1.0, np.inf, -1.0]])
        for descending, ids in ((False, [3, 1, 2, 0]), (True, [0, 2, 1, 3])):
            found = self.output(Case({"x": x}, {"descending": descending}))
            np.testing.assert_array_equal(found["ids"], [ids])
            np.testing.assert_array_equal(found["out"], x[:, ids])


class TestArgsort(OpTest):
    type = "argsort"
    exact_dtype = ("out",)

    def cases(self, rng):
        yield Case({"x": distinct(rng, 3, 5)})
        yield Case({"x": distinct(rng, 4, 3)}, {"axis": 0, "descending": True})
        yield Case({"x": rng.integers(0, 3, (2, 6, 2))}, {"axis": 1})
        yield Case({"x": np.array([[1.0, 0, 1, 0, np.nan, 0]])}, {"descending": True})

    def reference(self, inputs, attrs):
        x, axis = inputs["x"], attrs["axis"]
        key = np.where(np.isnan(x), np.inf, x)
        return {"out": np.argsort(-key if attrs["descending"] else key, axis, kind="stable")}

    def test_refuses(self):
        self.refuses("out of range", {"x": np.array(1.0)})


class TestArgmax(OpTest):
    type = "argmax"

    def cases(self, rng):
        yield Case({"x": distinct(rng, 3, 5)})
        yield Case({"x": distinct(rng, 3, 5)}, {"axis": 0, "keepdims": True})
        yield Case({"x": distinct(rng, 2, 3, 4)}, {"axis": 1})
        yield Case({"x": distinct(rng, 4)})
        yield Case({"x": np.array([[1, 7, 7], [2, 2, 0]])})

    def reference(self, inputs, attrs):
        find = getattr(np, self.type)
        return {"out": np.asarray(find(inputs["x"], attrs["axis"], keepdims=attrs["keepdims"]))}

    def test_refuses(self):
        self.refuses("out of range", {"x": np.array(1.0)})
        self.refuses("no element along axis 1", {"x": np.zeros((2, 0))})


class TestArgmin(TestArgmax):
    type = "argmin"


@pytest.mark.skipif(not chains.available(), reason="there is no native library")
@pytest.mark.parametrize(
    ("over", "rows", "columns"),
    [("other", 6, 5), ("itself", 6, 5), ("other", 13, 83), ("many others", 40, 83)],
)
def test_rows_that_are_gathered_to_be_added_are_in_no_memory(
    over: str, rows: int, columns: int
) -> None:
    rng = np.random.default_rng(0)
    b = opscope.NetBuilder("rows")
    x = b.input("x", [6, columns])
    target = b.tanh(x) if over == "itself" else b.input("target", [rows, columns])
    source = target if over == "itself" else x
    taken = b.gather(source, b.input("from", [9], "int64"))
    y = b.scale(b.scatter_add(target, b.input("to", [9], "int64"), taken), scale=1.0)
    scope = opscope.Scope()
    given = {"x": rng.standard_normal((6, columns)).astype("f4"), "from": rng.integers(0, 6, 9)}
    given["target"] = rng.standard_normal((rows, columns)).astype("f4")
    given["to"] = rng.integers(0, rows, 9)
    for name in ("x", "from", "to", *(() if over == "itself" else ("target",))):
        scope.var(name).set(given[name])
    net = b.bound_net(frozenset([y.name]), False)
    net.run(scope, opscope.OpContext(train=False, live_out=[y.name]))
    want = np.tanh(given["x"]) if over == "itself" else given["target"].copy()
    np.add.at(want, given["to"], (want.copy() if over == "itself" else given["x"])[given["from"]])
    np.testing.assert_allclose(scope.var(y.name).array, want, rtol=1e-5, atol=1e-5)
    steps = [[op.type for op in step.operators] for step in scope.frames()[-1].plan.steps]
    assert ["gather", "scatter_add"] in steps
    for name, bad in (("from", 6), ("to", rows)):
        numbers = np.array([0, 1, 2, 3, 4, bad, 5, 4, 3])
        scope.var("from").set(given["from"])
        scope.var(name).set(numbers)
        with pytest.raises(RunError, match=f"holds {bad}, want 0 <= ids < {bad}"):
            net.run(scope, opscope.OpContext(train=False, live_out=[y.name]))


def _passing(rng: np.random.Generator, layers: int, nodes: int, width: int) -> opscope.NetBuilder:
    """Layers that send rows along edges and add them up where these end, and their gradients."""
    b = opscope.NetBuilder("graph")
    begins, ends = b.input("begins", [-1], "int64"), b.input("ends", [-1], "int64")
    rows = b.input("rows", [nodes, width])
    for layer in range(layers):
        own = b.fc(rows, size=width, name=f"own{layer}")
        sent = b.fc(rows, size=width, name=f"sent{layer}")
        along = b.gather(sent, begins, from_end=True)
        # What the sums begin with is made after the rows are taken, as in programs of PyTorch.
        zeros = b.fill_like(sent, value=0.0) if rng.random() < 0.5 else own
        rows = b.tanh(b.add(own, b.scatter_add(zeros, ends, along, from_end=True)))
    b.backward_from(b.mean(b.square(rows), name="cost"))
    return b


@pytest.mark.skipif(not chains.available(), reason="there is no native library")
@pytest.mark.parametrize("seed", range(6))
def test_messages_along_edges_are_as_without_fusion(seed: int) -> None:
    rng = np.random.default_rng(seed)
    nodes, edges = ((1, 1), (7, 30), (40, 3), (12, 0), (60, 500), (9, 9))[seed]
    width = (1, 3, 16, 5, 67, 64)[seed]
    b = _passing(rng, 3, nodes, width)
    given = {"rows": rng.standard_normal((nodes, width)).astype("f4")}
    given |= {name: rng.integers(-nodes, nodes, edges) for name in ("begins", "ends")}
    names = ["cost", *(f"own{k}.w@GRAD" for k in range(3)), *(f"sent{k}.w@GRAD" for k in range(3))]
    found = []
    scope = opscope.Scope()
    b.initialize(scope)
    for libraries in ("packed,direct,native,mkl,blas", "xp"):
        with opscope.options(libraries=libraries):
            context = opscope.OpContext(train=True, live_out=names)
            found.append(b.run(scope, context, feed=given, fetch=names))
        if libraries != "xp":
            steps = [[op.type for op in step.operators] for step in scope.frames()[-1].plan.steps]
            assert ["gather", "scatter_add"] in steps
            assert ["gather", "gather_grad"] in steps
    for name in names:
        np.testing.assert_allclose(found[0][name], found[1][name], rtol=2e-4, atol=2e-5)
