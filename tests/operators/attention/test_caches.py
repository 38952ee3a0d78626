"""Caches of keys and values: what is appended to them, and by whom that is refused."""

import numpy as np
import pytest

from opscope.framework.base.errors import RunError
from opscope.testing import Case, OpTest


class TestCacheAppend(OpTest):
    type = "cache_append"

    def cases(self, rng):
        past = np.array([0, 3], np.int64)
        yield Case(
            {"cache": rng.normal(size=(2, 5, 3)), "x": rng.normal(size=(2, 2, 3)), "past": past}
        )
        cache, x = rng.normal(size=(2, 3, 5, 2)), rng.normal(size=(2, 3, 1, 2))
        yield Case({"cache": cache, "x": x, "past": past}, {"axis": 2})

    def reference(self, inputs, attrs):
        out = inputs["cache"].copy()
        axis = attrs.get("axis", 1)
        rows, x = out.swapaxes(1, axis), inputs["x"].swapaxes(1, axis)
        for one, new, begin in zip(rows, x, inputs["past"], strict=True):
            one[begin : begin + len(new)] = new
        return {"out": out}

    def test_refuses(self):
        cache, x, past = np.zeros((2, 4, 3)), np.zeros((2, 2, 3)), np.array([0, 3], np.int64)
        with pytest.raises(RunError, match="2 rows do not fit after 3 into a cache of 4"):
            self.output(Case({"cache": cache, "x": x, "past": past}))
        for begins, wrong in (([1, -1], -1), ([-2, 3], -2), ([3, -2], 3), ([1 << 62, 0], 1 << 62)):
            with pytest.raises(
                RunError, match=f"2 rows do not fit after {wrong} into a cache of 4"
            ):
                self.output(Case({"cache": cache, "x": x, "past": np.array(begins, np.int64)}))
        self.refuses("6 rows do not go", {"cache": cache, "x": np.zeros((2, 6, 3)), "past": past})
        self.refuses("a row of x", {"cache": cache, "x": x[:, :, :2], "past": past})
        self.refuses("int64", {"cache": cache, "x": x, "past": past.astype(np.int32)})
