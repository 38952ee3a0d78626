"""Operators of CNTK's own: functions of elements, sparse rows, criteria, distances."""

from __future__ import annotations

import numpy as np
import pytest

from opscope.cntk import operators as _operators  # noqa: F401  registers them
from opscope.framework.base.context import OpContext
from opscope.framework.base.scope import Scope
from opscope.framework.runtime.plain_net import PlainNet
from opscope.testing import Case, OpTest


class TestLog(OpTest):
    type = "cntk.log"
    grad = ("x",)
    nan = False

    def cases(self, rng):
        yield Case({"x": rng.uniform(0.5, 3, size=(3, 4))})

    def reference(self, inputs, attrs):
        return {"out": np.log(inputs["x"])}

    def test_small(self):
        out = self.output(Case({"x": np.array([0.0, -1.0, 1e-38, 1.0])}))["out"]
        np.testing.assert_allclose(out, [-85.1, -85.1, -85.1, 0], rtol=1e-6)


class TestSqrt(OpTest):
    type = "cntk.sqrt"
    grad = ("x",)
    nan = False

    def cases(self, rng):
        yield Case({"x": rng.uniform(0.5, 3, size=(3, 4))})

    def reference(self, inputs, attrs):
        return {"out": np.sqrt(inputs["x"])}

    def test_negative(self):
        assert self.output(Case({"x": np.array([-4.0, 0.0, 4.0])}))["out"].tolist() == [0, 0, 2]


class TestReciprocal(OpTest):
    type = "cntk.reciprocal"
    grad = ("x",)

    def cases(self, rng):
        yield Case({"x": rng.uniform(0.5, 3, size=(3, 4)) * rng.choice([-1, 1], size=(3, 4))})

    def reference(self, inputs, attrs):
        return {"out": 1 / inputs["x"]}

    def test_zero(self):
        assert self.output(Case({"x": np.array([0.0, -4.0])}))["out"].tolist() == [0, -0.25]


class TestLogPlus(OpTest):
    type = "cntk.log_plus"
    grad = ("x", "y")

    def cases(self, rng):
        yield Case({"x": rng.normal(size=(3, 4)), "y": rng.normal(size=(3, 4))})
        yield Case({"x": rng.normal(size=(2, 1, 4)), "y": rng.normal(size=(3, 1))})

    def reference(self, inputs, attrs):
        return {"out": np.logaddexp(inputs["x"], inputs["y"])}


SPARSE = {
    "values": np.array([1.0, -2.0, 3.0, 0.5]),
    "indices": np.array([4, 0, 0, 2]),
    "counts": np.array([1, 0, 3]),
}
DENSE = np.array([[0, 0, 0, 0, 1], [0, 0, 0, 0, 0], [1, 0, 0.5, 0, 0]])  # 3 - 2 of element 0


def row_of_element(inputs):
    return np.repeat(np.arange(len(inputs["counts"])), inputs["counts"])


def dense(inputs, width):
    out = np.zeros((len(inputs["counts"]), width))
    np.add.at(out, (row_of_element(inputs), inputs["indices"]), inputs["values"])
    return out


class TestToDense(OpTest):
    type = "cntk.to_dense"

    def cases(self, rng):
        yield Case(SPARSE, {"width": 5})

    def reference(self, inputs, attrs):
        return {"out": dense(inputs, attrs["width"])}


class TestSparseTimes(OpTest):
    type = "cntk.sparse_times"
    grad = ("w",)

    def cases(self, rng):
        yield Case({**SPARSE, "w": rng.normal(size=(5, 3))})
        yield Case({**SPARSE, "w": rng.normal(size=(5, 3, 2))})
        yield Case({**SPARSE, "w": rng.normal(size=(3, 5))}, {"transpose": True})
        pairs = {**SPARSE, "indices": np.array([9, 0, 0, 7])}
        yield Case({**pairs, "w": rng.normal(size=(5, 3))}, {"parts": 2})
        yield Case({**pairs, "w": rng.normal(size=(3, 5))}, {"parts": 2, "transpose": True})

    def reference(self, inputs, attrs):
        w, parts = inputs["w"], attrs.get("parts", 1)
        w = w.T if attrs.get("transpose") else w.reshape(len(w), np.prod(w.shape[1:], dtype=int))
        rows = dense(inputs, parts * len(w))
        split = rows.reshape(len(rows), parts, len(w)) @ w
        return {"out": split.reshape(len(rows), parts * w.shape[1])}

    def test_one_element_a_row(self):
        inputs = {"values": np.array([2.0, 3.0]), "indices": np.array([1, 0])}
        case = Case({**inputs, "counts": np.array([1, 1]), "w": np.eye(2)})
        assert self.output(case)["out"].tolist() == [[0, 2], [3, 0]]

    def test_gradient_holds_the_rows_that_occur(self):
        net = PlainNet()
        reads = {slot: slot for slot in ("values", "indices", "counts", "w")}
        net.add_op("cntk.sparse_times", reads, {"out": "out"})
        gradient = net.add_backward_ops("out", ["w"])["w"]
        scope = Scope()
        scope.feed({**SPARSE, "w": np.ones((5, 3))})
        net.run(scope)
        assert "cntk.sparse_times_rows_grad" in {op.type for op in net.desc.ops}
        assert scope.numpy(f"{gradient}@ROWS").tolist() == [4, 0, 0, 2]
        np.testing.assert_array_equal(
            scope.numpy(gradient), SPARSE["values"][:, None] * np.ones((4, 3))
        )

    def test_gradient_of_a_transposed_matrix_is_dense(self):
        net = PlainNet()
        reads = {slot: slot for slot in ("values", "indices", "counts", "w")}
        net.add_op("cntk.sparse_times", reads, {"out": "out"}, {"transpose": True})
        gradient = net.add_backward_ops("out", ["w"])["w"]
        scope = Scope()
        scope.feed({**SPARSE, "w": np.ones((3, 5))})
        net.run(scope)
        assert "cntk.sparse_times_columns_grad" in {op.type for op in net.desc.ops}
        np.testing.assert_array_equal(scope.numpy(gradient), np.ones((3, 3)) @ DENSE)


class TestSparseTimesRowsGrad(OpTest):
    type = "cntk.sparse_times_rows_grad"

    def cases(self, rng):
        yield Case({**SPARSE, "out_grad": rng.normal(size=(3, 2)), "w": np.ones((5, 2))})
        yield Case({**SPARSE, "out_grad": rng.normal(size=(3, 6)), "w": np.ones((5, 3, 2))})
        pairs = {**SPARSE, "indices": np.array([9, 0, 0, 7])}
        inputs = {**pairs, "out_grad": rng.normal(size=(3, 4)), "w": np.ones((5, 2))}
        yield Case(inputs, {"parts": 2})

    def reference(self, inputs, attrs):
        w, out_grad = inputs["w"], inputs["out_grad"]
        part, rows = np.divmod(inputs["indices"], len(w))
        arrived = out_grad.reshape(len(out_grad), attrs["parts"], *w.shape[1:])
        factors = inputs["values"].reshape(-1, *(1,) * (arrived.ndim - 2))
        return {"grad": factors * arrived[row_of_element(inputs), part], "rows": rows}


@pytest.mark.parametrize("train", [False, True])
def test_is_training(train):
    net, scope = PlainNet(), Scope()
    net.add_op("cntk.is_training", {}, {"out": "out"}, {"dtype": np.dtype(np.float64)})
    net.run(scope, OpContext(train=train))
    assert scope.numpy("out").tolist() == [float(train)]


def log_softmax(x):
    return x - np.log(np.exp(x).sum(1, keepdims=True))


class TestCrossEntropy(OpTest):
    type = "cntk.cross_entropy_with_softmax"
    resize = False  # the gradient is that of labels whose rows add up to 1
    grad = ("label", "x")

    def cases(self, rng):
        yield Case({"label": rng.dirichlet(np.ones(4), 5), "x": rng.normal(size=(5, 4))})

    def reference(self, inputs, attrs):
        logs = log_softmax(inputs["x"])
        return {"out": np.array([-(inputs["label"] * logs).sum()]), "log_softmax": logs}


class TestClassificationError(OpTest):
    type = "cntk.classification_error"

    def cases(self, rng):
        label = np.eye(4)[rng.integers(0, 4, 7)]
        for top in (1, 2):
            yield Case({"label": label, "x": rng.normal(size=(7, 4))}, {"top": top})

    def reference(self, inputs, attrs):
        order = np.argsort(-inputs["x"], 1)[:, : attrs["top"]]
        hit = (order == inputs["label"].argmax(1)[:, None]).any(1)
        return {"out": np.array([float((~hit).sum())])}


class TestLogistic(OpTest):
    type = "cntk.logistic"
    grad = ("x",)

    def cases(self, rng):
        label = rng.integers(0, 2, (6, 1)).astype(float)
        yield Case({"label": label, "x": rng.uniform(0.1, 0.9, (6, 1))})

    def reference(self, inputs, attrs):
        label, x = inputs["label"], inputs["x"]
        return {"out": np.array([-(label * np.log(x) + (1 - label) * np.log(1 - x)).sum()])}

    def test_weights(self):
        label, x = np.array([[1.0], [0.0]]), np.array([[0.25], [0.5]])
        case = Case({"label": label, "x": x, "weight": np.array([[1.0], [3.0]])})
        wanted = -2 * (np.log(0.25) + 3 * np.log(0.5)) / 4
        assert self.output(case)["out"][0] == pytest.approx(wanted, rel=1e-6)


class TestCosDistance(OpTest):
    type = "cntk.cos_distance"
    grad = ("x", "y")

    def cases(self, rng):
        inputs = {"x": rng.normal(size=(5, 4)), "y": rng.normal(size=(5, 4))}
        yield Case(inputs)
        yield Case(inputs, {"shift": 2, "negatives": 3})

    def reference(self, inputs, attrs):
        x, y = (a / np.linalg.norm(a, axis=1, keepdims=True) for a in inputs.values())
        columns = [(x * y).sum(1)]
        for m in range(attrs["negatives"]):
            columns.append((x * np.roll(y, -(attrs["shift"] + m), 0)).sum(1))
        return {"out": np.stack(columns, 1)}
