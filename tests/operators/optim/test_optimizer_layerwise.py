"""LAMB and LARS against the papers' algorithms, written out."""

import numpy as np
import pytest

from opscope import NetBuilder, OpContext, Scope
from opscope.testing import Case, OptimizerTest


def norm(x):
    return np.sqrt((x * x).sum())


class TestLamb(OptimizerTest):
    type = "lamb"
    states = ("moment1", "moment2")
    attrs = ({"beta1": 0.5, "beta2": 0.9, "epsilon": 1e-3}, {"weight_decay": 0.0})
    step_slot = True
    sparse = False
    decoupled = True

    def update(self, p, g, lr, s, a, step):
        m = a["beta1"] * s["moment1"] + (1 - a["beta1"]) * g
        v = a["beta2"] * s["moment2"] + (1 - a["beta2"]) * g * g
        r = m / (1 - a["beta1"] ** step)
        u = r / (np.sqrt(v / (1 - a["beta2"] ** step)) + a["epsilon"]) + a["weight_decay"] * p
        trust = norm(p) / norm(u) if norm(p) and norm(u) else 1.0
        return p - lr * trust * u, m, v

    def test_norms_of_zero(self):
        inputs = self.inputs(np.random.default_rng(0), (3, 4))
        for zero in ({"param": np.zeros((3, 4))}, {"grad": np.zeros((3, 4))}):
            zeros = {name: np.zeros((3, 4)) for name in ("moment1", "moment2")}
            given = inputs | zeros | zero
            attrs = {"weight_decay": 0.0}
            with np.errstate(all="raise"):
                found = self.output(Case(given, attrs), "float64")["param_out"]
            whole = {"beta1": 0.9, "beta2": 0.999, "epsilon": 1e-6, "lr_factor": 1.0, **attrs}
            wanted = self.reference(given, whole)["param_out"]
            np.testing.assert_allclose(found, wanted, rtol=1e-12)

    def test_half_precision_does_not_overflow(self):
        inputs = self.inputs(np.random.default_rng(0), (300,)) | {"param": np.full(300, 100.0)}
        found = self.output(self.case(inputs), "float16")["param_out"]
        wanted = self.output(self.case(inputs), "float64")["param_out"]
        np.testing.assert_allclose(found, wanted, rtol=0.01)


class TestLars(OptimizerTest):
    type = "lars"
    states = ("velocity",)
    attrs = ({"momentum": 0.5, "trust": 0.1}, {"weight_decay": 0.2, "trust": 1.0})
    sparse = False
    decoupled = True  # the decay is a part of the gradient, but not for its norm

    def update(self, p, g, lr, s, a, step):
        ratio = 1.0
        if norm(p) and norm(g):
            ratio = a["trust"] * norm(p) / (norm(g) + a["weight_decay"] * norm(p))
        v = a["momentum"] * s["velocity"] + lr * ratio * (g + a["weight_decay"] * p)
        return p - v, v

    @pytest.mark.parametrize("name", ["param", "grad"])
    def test_norms_of_zero(self, name):
        inputs = self.inputs(np.random.default_rng(0), (3, 4)) | {name: np.zeros((3, 4))}
        with np.errstate(all="raise"):
            found = self.output(Case(inputs), "float64")["param_out"]
        attrs = {"momentum": 0.9, "trust": 0.001, "weight_decay": 0.0, "lr_factor": 1.0}
        wanted = self.reference(inputs, attrs)["param_out"]
        np.testing.assert_allclose(found, wanted, rtol=1e-12)


@pytest.mark.parametrize("name", ["lamb", "lars"])
def test_a_sparse_gradient_is_made_dense(name):
    """An embedding and the same table read by a product with one-hot rows."""
    tables = []
    for sparse in (True, False):
        b = NetBuilder(dtype="float64")
        table = b.parameter("table", [5, 3], ("uniform_random", {"low": -1.0, "high": 1.0}))
        if sparse:
            rows = b.add_op("embedding", b.input("ids", [-1], "int64"), table, sparse=True)
        else:
            rows = b.input("hot", [-1, 5]) @ table
        b.backward_from(b.mean(b.square(rows), name="loss"))
        b.add_optimization(0.1, name, clip_norm=0.5)
        scope, ids = Scope(), np.array([1, 3, 1, 0])
        b.initialize(scope)
        scope.feed({"table": np.arange(15.0).reshape(5, 3) / 7})
        for _ in range(3):
            b.run(scope, feed={"ids": ids} if sparse else {"hot": np.eye(5)[ids]})
        types = [op.type for op in b.op_list.ops]
        assert name in types and ("rows_to_dense" in types) == sparse
        tables.append(scope.numpy("table"))
    np.testing.assert_allclose(*tables, rtol=1e-12)


@pytest.mark.parametrize(("name", "rate"), [("lamb", 0.02), ("lars", 3.0)])
def test_it_trains(name, rate):
    b = NetBuilder()
    x, label = b.input("x", [-1, 2]), b.input("label", [-1], "int64")
    scores = b.fc(b.fc(x, size=8, activation="tanh"), size=2)
    cost = b.mean(b.softmax_cross_entropy(scores, label), name="cost")
    b.backward_from(cost)
    b.add_optimization(rate, name)
    points = np.array([[0, 0], [0, 1], [1, 0], [1, 1]], np.float32)
    feed, scope = {"x": points, "label": [0, 1, 1, 0]}, Scope()
    b.initialize(scope, OpContext(seed=0))
    costs = [b.run(scope, feed=feed, fetch=[cost])["cost"] for _ in range(300)]
    assert costs[-1] < 0.1 * costs[0]
