"""Numbers drawn in the shape of another variable."""

import numpy as np
import pytest

import opscope
from opscope import NetBuilder, Scope
from opscope.framework.base.errors import ShapeError


def test_as_many_as_another_variable_has():
    b = NetBuilder("drawn", "float64")
    x, p = b.input("x", [-1, 4]), b.input("p", [-1])
    drawn = {
        "normal": b.randn_like(x, mean=2.0, name="normal"),
        "even": b.rand_like(x, low=1.0, name="even"),
        "coins": b.bernoulli(p, name="coins"),
        "rows": b.gaussian_random(x, shape=[-1, 8], name="rows"),
    }
    cost = b.sum([b.mean(one) for one in (*list(drawn.values())[:3], p)])
    b.backward_from(cost, [p])
    scope = Scope()
    for count in (3, 20000):
        feed = {"x": np.zeros((count, 4)), "p": np.full(count, 0.3)}
        found = b.run(scope, opscope.OpContext(seed=1), feed=feed, fetch=[*drawn, b.gradient(p)])
        shapes = {name: value.shape for name, value in found.items() if name in drawn}
        assert shapes == {
            "normal": (count, 4),
            "even": (count, 4),
            "coins": (count,),
            "rows": (count, 8),
        }
        np.testing.assert_allclose(found["p@GRAD"], 1 / count)  # of the mean of p alone
    means = {name: found[name].mean() for name in drawn}
    for name, mean in (("normal", 2), ("even", 1), ("coins", 0.3), ("rows", 0)):
        assert means[name] == pytest.approx(mean, abs=0.02)
    assert set(np.unique(found["coins"])) == {0, 1} and found["rows"].dtype == np.float32
    with pytest.raises(ShapeError, match="rank of 'y' is not known"):
        b.forward_net.add_op("exp", ["unknown"], ["y"])
        b.randn_like("y")
