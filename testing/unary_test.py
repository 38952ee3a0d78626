"""Cases that all elementwise operators of one input share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .op_test import Case, OpTest


def away_from(rng, shape, *kinks):
    """Random numbers, none of which is within 0.01 of a kink."""
    x = np.array(rng.normal(size=shape) * 2)
    for kink in kinks:
        near = np.abs(x - kink) < 0.01
        x[near] = kink + 0.02
    return x


class UnaryTest(OpTest):
    """An operator of one input and one output.

    A subclass has `formula(x, **attrs)`, which returns the result. `given` holds the attributes of
    each case, `kinks` the numbers that x keeps away from.
    """

    formula: Callable[..., Any]
    grad = ("x",)
    dtypes = ("float16", "float32", "float64")
    given = ({},)
    kinks = ()

    def cases(self, rng):
        for attrs in self.given:
            yield Case({"x": away_from(rng, (3, 4), *self.kinks)}, attrs)
        yield Case({"x": away_from(rng, (2, 3, 5), *self.kinks)}, self.given[0])
        yield Case({"x": away_from(rng, (), *self.kinks)}, self.given[0])

    def reference(self, inputs, attrs):
        return {"out": np.asarray(self.formula(inputs["x"], **attrs))}

    def test_refuses_integers(self):
        self.refuses("floating", {"x": np.arange(3)}, self.given[0])
