"""Products of few rows with a large matrix: equal to NumPy's, and for every number of threads."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

from matrix_layouts import LAYOUTS, check_layouts
from opscope import NetBuilder, Scope
from opscope.framework.base.cpu import threads
from opscope.framework.fusion import team
from opscope.operators.backends.products import few_rows, parts
from opscope.operators.linear import matmul

pytestmark = pytest.mark.skipif(team.library() is None, reason="there is no native library")

product = parts.by_task(partial(few_rows.task, None), matmul.product)


@pytest.mark.parametrize("layout_b", LAYOUTS)
@pytest.mark.parametrize("layout_a", LAYOUTS)
def test_layouts(layout_a: str, layout_b: str, monkeypatch: Any) -> None:
    monkeypatch.setattr(few_rows, "_SMALLEST", 0)
    monkeypatch.setattr(few_rows, "_MOST", 100)
    monkeypatch.setattr(few_rows, "_PIECE", 256)
    for dtype in (np.float32, np.float64):
        check_layouts(product, layout_a, layout_b, dtype)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("sizes", [(1, 300, 517), (4, 1003, 130), (3, 65, 700)])
def test_equal_for_every_number_of_threads(
    sizes: tuple[int, int, int], dtype: Any, monkeypatch: Any
) -> None:
    monkeypatch.setattr(threads, "usable_cores", lambda: 3)
    monkeypatch.setattr(few_rows, "_READ", 100)
    m, k, n = sizes
    rng = np.random.default_rng(0)
    a, b, bias = (rng.normal(size=s).astype(dtype) for s in ((m, k), (k, n), (n,)))
    found = []
    with threads.threads_set(3):
        for number in (1, 2, 3):
            threads.POOL[0] = number
            out = np.empty((m, n), dtype)
            product(np, a, b, out, alpha=0.5, bias=bias)()
            found.append(out)
    near = 1e-5 if dtype == np.float32 else 1e-12
    np.testing.assert_allclose(found[0], 0.5 * (a @ b) + bias, rtol=near, atol=50 * near)
    for other in found[1:]:
        np.testing.assert_array_equal(other, found[0])


def test_it_serves_and_can_be_switched_off(monkeypatch: Any) -> None:
    served = []
    real = few_rows.task
    monkeypatch.setattr(few_rows, "task", lambda *a: served.append(1) or real(*a))
    monkeypatch.setenv("OPSCOPE_KEEP_PACKED", "0")
    results = []
    for libraries in ("native,mkl,blas,xp", "mkl,blas,xp"):
        monkeypatch.setenv("OPSCOPE_LIBRARIES", libraries)
        b, scope = NetBuilder(), Scope()
        x = b.input("x", [-1, 300])
        w = b.parameter("w", [300, 250], init=np.cos(np.arange(75_000)).reshape(300, 250))
        y = b.fc(b.matmul(x, w), size=200, name="y")
        feed = {"x": np.sin(np.arange(600, dtype=np.float32)).reshape(2, 300)}
        b.run(scope, feed=feed, fetch=[y], need_backward=False)
        results.append(len(served))
    assert results == [2, 2]


class Row:
    """A net of one product: of a row with weights, in packed blocks where these are kept."""

    def __init__(self, sizes: tuple[int, int], dtype: str, *, turned: bool = False) -> None:
        rng = np.random.default_rng(sizes[1])
        self.b, (k, n) = NetBuilder("row", dtype), sizes
        self.x, self.w = rng.normal(size=(1, k)).astype(dtype), rng.normal(size=(k, n))
        w = self.b.parameter("w", [n, k] if turned else [k, n], init=self.w.T if turned else self.w)
        x = self.b.input("x", [1, k])
        self.b.matmul(x, w, transpose_y=turned, alpha=0.5, name="y")
        self.scope = Scope()

    def run(self) -> np.ndarray:
        feed = {"x": self.x}
        return self.b.run(self.scope, feed=feed, fetch=["y"], need_backward=False)["y"]

    def frame(self) -> Any:
        (frame,) = self.scope.frames()
        return frame


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("sizes", [(300, 517), (1003, 130), (65, 700), (700, 79), (129, 256)])
def test_packed_blocks(sizes: tuple[int, int], dtype: str, turned: bool, monkeypatch: Any) -> None:
    """In both directions, by every number of threads, and of weights that have changed."""
    monkeypatch.setattr(threads, "usable_cores", lambda: 3)
    monkeypatch.setattr(few_rows, "_READ", 100)
    monkeypatch.setattr(few_rows, "_SHARED", 0)
    near = 1e-5 if dtype == "float32" else 1e-12
    with threads.threads_set(3):
        net, found = Row(sizes, dtype, turned=turned), []
        for number in (1, 2, 3, 1, 2):
            threads.POOL[0] = number
            found.append(net.run())
        assert net.frame().kept._used.keys() == {"w"}
        wanted = 0.5 * (net.x @ net.w)
        np.testing.assert_allclose(found[0], wanted, rtol=near, atol=50 * near)
        for other in found[1:]:
            np.testing.assert_array_equal(other, found[0])
        net.scope.var("w").set((net.w.T if turned else net.w).astype(dtype) * 2)
        np.testing.assert_allclose(net.run(), 2 * wanted, rtol=near, atol=100 * near)


def test_packed_blocks_can_be_switched_off(monkeypatch: Any) -> None:
    """Neither are they where threads would get few of them each."""
    for switch, shared, kept in (("1", 2, True), ("0", 2, False), ("1", 100, False)):
        monkeypatch.setenv("OPSCOPE_KEEP_PACKED", switch)
        monkeypatch.setattr(threads, "usable_cores", lambda: 2)
        monkeypatch.setattr(few_rows, "_SHARED", shared)
        with threads.threads_set(2):
            net = Row((300, 517), "float32")
            np.testing.assert_allclose(net.run(), 0.5 * (net.x @ net.w), rtol=1e-4, atol=1e-3)
        frame = net.frame()
        assert bool(frame.kept is not None and frame.kept._used) is kept
