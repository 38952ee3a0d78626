"""Products whose sums have one order."""

from __future__ import annotations

import numpy as np

from opscope.speech.ivector.fixed_order import applied, dot, product


def test_products() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(7, 40)), rng.normal(size=(40, 11))
    assert np.allclose(product(a, b), a @ b, rtol=0, atol=1e-13)
    assert np.allclose(applied(a, b[:, 0]), a @ b[:, 0], rtol=0, atol=1e-13)
    for i in range(7):  # a row's result does not depend on the others
        assert np.array_equal(product(a[i : i + 1], b)[0], product(a, b)[i])
        assert np.array_equal(applied(a[i : i + 1], b[:, 0])[0], applied(a, b[:, 0])[i])
    order = rng.permutation(40)
    assert dot(a[0], a[1]) == dot(a[0, order], a[1, order])
    assert dot(np.array([1e16, 1.0, -1e16]), np.ones(3)) == 1.0
