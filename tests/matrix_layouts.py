"""Matrices that lie in memory in every way that products must cope with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

LAYOUTS = {
    "rows": lambda m, n, make: make(m, n),
    "columns": lambda m, n, make: make(n, m).T,
    "part of rows": lambda m, n, make: make(m, n + 5)[:, 2 : n + 2],
    "part of columns": lambda m, n, make: make(n, m + 5).T[2 : m + 2],
    "every other row": lambda m, n, make: make(2 * m, n)[::2],
    "every other element": lambda m, n, make: make(m, 2 * n)[:, ::2],
    "backwards": lambda m, n, make: make(m, n)[::-1],
    "one row for all": lambda m, n, make: np.broadcast_to(make(1, n), (m, n)),
}


def maker(dtype: Any) -> Callable[..., np.ndarray]:
    """A function that makes random arrays of a shape."""
    rng = np.random.default_rng(7)
    return lambda *shape: rng.normal(size=shape).astype(dtype)


def check_layouts(product: Any, layout_a: str, layout_b: str, dtype: Any) -> None:
    """Compare a product with NumPy's for several sizes and layouts of the result."""
    make = maker(dtype)
    for m, n, k in ((5, 7, 3), (1, 4, 3), (4, 1, 3), (4, 3, 1), (1, 1, 1), (40, 30, 200)):
        a, b = LAYOUTS[layout_a](m, k, make), LAYOUTS[layout_b](k, n, make)
        for layout in ("rows", "part of rows", "columns", "every other element"):
            out = LAYOUTS[layout](m, n, lambda *shape: np.full(shape, np.nan, dtype))
            for alpha, bias in ((1.0, None), (1.0, make(n)), (-0.5, None), (2.0, make(n))):
                product(np, a, b, out, alpha=alpha, bias=bias)()
                wanted = alpha * (a @ b) + (0 if bias is None else bias)
                np.testing.assert_allclose(out, wanted, rtol=0, atol=1e4 * np.finfo(dtype).eps)


def check_adding(product: Any, layout: str) -> None:
    """Products that are added to what is there."""
    make = maker(np.float64)
    for m, n, k in ((5, 7, 3), (4, 1, 3), (4, 3, 0), (0, 3, 2)):
        a, b, before = make(m, k), make(k, n), make(m, n)
        out = LAYOUTS[layout](m, n, make)
        out[...] = before
        product(np, a, b, out, alpha=-0.5, by=np.empty((m, n)))()
        np.testing.assert_allclose(out, before - 0.5 * (a @ b), rtol=1e-12, atol=1e-14)
