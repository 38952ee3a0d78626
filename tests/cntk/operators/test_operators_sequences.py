"""Operators along sequences: states of delays, gathering, scattering, dropout, sampling."""

from __future__ import annotations

import numpy as np
import pytest

from opscope.cntk import operators as _operators  # noqa: F401  registers them
from opscope.framework.base.errors import RunError
from opscope.framework.base.scope import Scope
from opscope.framework.runtime.plain_net import PlainNet
from opscope.testing import Case, OpTest

OFFSETS = (np.array([0, 3, 3, 4, 8]),)


class TestInitialState(OpTest):
    type = "cntk.initial_state"
    grad = ("x",)

    def cases(self, rng):
        like = {"like": rng.normal(size=(8, 2))}
        offsets = {"like": OFFSETS}
        yield Case({"x": rng.normal(size=(2, 3)), **like}, offsets=offsets)
        carried = {
            "fresh": np.array([True, False, True, False]),
            "carried": rng.normal(size=(4, 2, 3)),
        }
        yield Case({"x": rng.normal(size=(2, 3)), **like, **carried}, offsets=offsets)

    def reference(self, inputs, attrs):
        out = np.broadcast_to(inputs["x"], (4, *inputs["x"].shape)).copy()
        if "fresh" in inputs:
            out[~inputs["fresh"]] = inputs["carried"][~inputs["fresh"]]
        return {"out": out}


class TestExpandRows(OpTest):
    type = "cntk.expand_rows"
    grad = ("x",)

    def cases(self, rng):
        yield Case({"x": rng.normal(size=(2, 3)), "like": rng.normal(size=(5, 1))})

    def reference(self, inputs, attrs):
        x, rows = inputs["x"], len(inputs["like"])
        return {"out": np.broadcast_to(x, (rows, *x.shape)).copy()}


class TestWithSequences(OpTest):
    type = "cntk.with_sequences"
    grad = ("x",)

    def cases(self, rng):
        inputs = {"x": rng.normal(size=(8, 2)), "like": rng.normal(size=(8, 1))}
        yield Case(inputs, offsets={"x": OFFSETS, "like": OFFSETS})

    def reference(self, inputs, attrs):
        return {"out": inputs["x"]}

    def test_other_lengths(self):
        other = (np.array([0, 2, 3, 4, 8]),)
        inputs = {"x": np.ones((8, 2)), "like": np.ones((8, 1))}
        self.refuses("differ in length", inputs, offsets={"x": OFFSETS, "like": other})


INDEX = (np.array([0, 1, 1, 2, 5]),)


class TestPackedIndex(OpTest):
    type = "cntk.packed_index"
    exact_dtype = ("out",)

    def cases(self, rng):
        x = np.array([[2.0], [0], [3], [0], [3]])
        source = rng.normal(size=(8, 2))
        yield Case({"x": x, "source": source}, offsets={"x": INDEX, "source": OFFSETS})

    def reference(self, inputs, attrs):
        return {"out": np.array([[2], [3], [7], [4], [7]])}

    def test_outside(self):
        x = np.array([[3.0], [0], [3], [0], [3]])
        offsets = {"x": INDEX, "source": OFFSETS}
        with pytest.raises(RunError, match="does not lie within its sequence"):
            self.output(Case({"x": x, "source": np.ones((8, 1))}, offsets=offsets))


class TestGatherRows(OpTest):
    type = "cntk.gather_rows"
    grad = ("x",)

    def cases(self, rng):
        index = np.array([[2.0], [3], [7], [2], [7]])
        yield Case({"x": rng.normal(size=(8, 2, 3)), "index": index}, offsets={"index": INDEX})

    def reference(self, inputs, attrs):
        return {"out": inputs["x"][inputs["index"][:, 0].astype(int)]}


class TestScatterRows(OpTest):
    type = "cntk.scatter_rows"
    grad = ("x",)

    def cases(self, rng):
        index = np.array([[2.0], [3], [7], [2], [4]])
        inputs = {"x": rng.normal(size=(5, 2)), "index": index, "like": np.ones((8, 1))}
        yield Case(inputs, offsets={"x": INDEX, "index": INDEX, "like": OFFSETS})

    def reference(self, inputs, attrs):
        out = np.zeros((len(inputs["like"]), *inputs["x"].shape[1:]))
        np.add.at(out, inputs["index"][:, 0].astype(int), inputs["x"])
        return {"out": out}


class TestEpochMean(OpTest):
    type = "cntk.epoch_mean"

    def cases(self, rng):
        yield Case(
            {"x": rng.normal(size=(4, 3)), "mean": rng.normal(size=3), "count": np.array([2.0])}
        )

    def reference(self, inputs, attrs):
        before, total = inputs["count"], inputs["count"] + len(inputs["x"])
        sums = inputs["mean"] * before + inputs["x"].sum(axis=0)
        return {"mean_out": sums / total, "count_out": total}

    def test_refuses(self):
        given = {"x": np.zeros((4, 3)), "mean": np.zeros(3), "count": np.zeros(1)}
        self.refuses("x wants rows", given | {"x": np.array(0.0), "mean": np.array(0.0)})
        self.refuses("rows of x and mean", given | {"mean": np.zeros(2)})
        self.refuses("count and", given | {"count": np.zeros(0)})
        self.refuses("floating", given | {"mean": np.zeros(3, int)})


def test_epoch_mean():
    net, scope = PlainNet(), Scope()
    state = {"mean": "mean", "count": "count"}
    net.add_op("cntk.epoch_mean", {"x": "x", **state}, {f"{k}_out": v for k, v in state.items()})
    rows = np.random.default_rng(2).normal(size=(7, 3))
    scope.feed({"mean": np.full(3, 9.0), "count": np.array([0.0])})
    for part in (rows[:2], rows[2:2], rows[2:]):
        scope.feed({"x": part})
        net.run(scope)
    np.testing.assert_allclose(scope.numpy("mean"), rows.mean(0))
    assert scope.numpy("count")[0] == 7
