"""Large float32 products by AMX outside of loops: accuracy, layouts, threads, the switch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from opscope import NetBuilder, OpContext, Scope
from opscope.framework.base.cpu.threads import threads_set
from opscope.operators.backends.bfloat16 import bf16_products
from opscope.operators.backends.products import blas, mkl, parts
from tiles import tiles  # noqa: F401

pytestmark = pytest.mark.usefixtures("tiles")
SIZES = [(96, 32, 512), (100, 600, 300), (192, 33, 200), (2000, 64, 40), (97, 520, 600)]


def factors(m: int, n: int, k: int, layout: str) -> tuple[Any, Any]:
    rng = np.random.default_rng(m + n + k)
    a, b = rng.normal(size=(m, k)).astype("f4"), rng.normal(size=(k, n)).astype("f4")
    if "a" in layout:
        a = np.asfortranarray(a)
    if "b" in layout:
        b = np.asfortranarray(b)
    if "+" in layout:  # parts of wider matrices
        a = np.pad(a, ((0, 0), (3, 5)))[:, 3:-5]
        b = np.pad(b, ((1, 2), (0, 7)))[1:-2, :-7]
    return a, b


def served(a: Any, b: Any, out: Any) -> bool:
    how = parts.layouts((a, b, out))
    return how is not None and bf16_products.task((a, b, out), how, (1.0, 0.0), None) is not None


@pytest.mark.parametrize("layout", ["", "a", "b", "ab", "+"])
@pytest.mark.parametrize("m, n, k", SIZES)
def test_as_accurate_as_float32(m: int, n: int, k: int, layout: str) -> None:
    a, b = factors(m, n, k, layout)
    whole = np.random.default_rng(1).normal(size=(m + 2, n + 5)).astype("f4")
    out, bias = whole[1:-1, 2 : n + 2], np.linspace(-1, 1, n, dtype="f4")
    assert served(a, b, out)
    exact = 0.5 * (a.astype("f8") @ b.astype("f8"))
    size = 0.5 * (np.abs(a).astype("f8") @ np.abs(b)) + 2
    for product in [blas.product] + [mkl.product] * (mkl.library() is not None):
        for added in (0, bias, out.copy()):
            before = whole.copy()
            given: dict[str, Any] = {}
            if added is bias:
                given["bias"] = bias
            elif np.ndim(added) == 2:
                given["by"], added = np.empty_like(out), out.copy()
            product(np, a, b, out, alpha=0.5, **given)()
            assert (np.abs(out - exact - added) / (size + np.abs(added))).max() < 3e-7
            before[1:-1, 2 : n + 2] = out
            np.testing.assert_array_equal(whole, before)  # nothing else was written


@pytest.mark.parametrize("m, n, k", SIZES)
@pytest.mark.parametrize("layout", ["", "a"])
def test_the_number_of_threads_changes_no_bit(m: int, n: int, k: int, layout: str) -> None:
    a, b = factors(m, n, k, layout)
    found = []
    for threads in (1, 2):
        with threads_set(threads):
            out = np.empty((m, n), "f4")
            blas.product(np, a, b, out)()
            found.append(out)
    np.testing.assert_array_equal(*found)


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan, 3e38, 1e-42])
@pytest.mark.parametrize("where", ["a", "b"])
def test_values_that_cannot_be_split(where: str, value: float) -> None:
    a, b = factors(100, 200, 300, "")
    (a if where == "a" else b)[77, 150] = value
    out = np.empty((100, 200), "f4")
    with np.errstate(all="ignore"):
        mkl.product(np, a, b, out)() if mkl.library() else blas.product(np, a, b, out)()
        wanted = a @ b
    np.testing.assert_allclose(out, wanted, rtol=1e-5, atol=1e-4)


def test_large_factors_are_not_kept_packed() -> None:
    for size, joins in ((384, True), (512, False)):
        a, b, out = *factors(100, size, size, ""), np.empty((100, size), "f4")
        how = parts.layouts((a, b, out))
        assert how is not None
        task = bf16_products.task((a, b, out), how, (1.0, 0.0), None)
        assert task is not None and (task.by_rows is not None) is joins
        task()
        np.testing.assert_allclose(out, a.astype("f8") @ b, rtol=0, atol=2e-3)


def test_what_others_do_better() -> None:
    for m, n, k in (
        (95, 500, 512),
        (63, 512, 512),
        (100, 31, 512),
        (512, 512, 31),
        (64, 64, 64),
        (0, 40, 40),
    ):
        assert not served(*factors(m, n, k, ""), np.empty((m, n), "f4"))
    a, b = (x.astype("f8") for x in factors(256, 256, 256, ""))
    assert not served(a, b, np.empty((256, 256)))


def _results(libraries: str, monkeypatch: pytest.MonkeyPatch) -> list[np.ndarray]:
    """A layer with what follows it in the cache, its gradients and an update."""
    monkeypatch.setenv("OPSCOPE_LIBRARIES", libraries)
    b = NetBuilder("layer")
    x = b.input("x", [-1, 120])
    hidden = b.fc(x, size=200, activation="relu", name="h")
    cost = b.mean(b.square(b.fc(b.add(hidden, b.tanh(hidden)), size=64)), name="cost")
    b.backward_from(cost, wrt="x")
    scope = Scope()
    b.initialize(scope, OpContext(seed=2))
    feed = {"x": np.random.default_rng(3).normal(size=(500, 120)).astype("f4")}
    found = b.run(scope, feed=feed, fetch=["cost", "x@GRAD"])
    return [found["cost"], found["x@GRAD"]]


@pytest.mark.parametrize("libraries", ["mkl,blas", "blas"])
def test_a_net_with_the_switch_on_and_off(libraries: str, monkeypatch: pytest.MonkeyPatch) -> None:
    on = _results(libraries, monkeypatch)
    monkeypatch.setenv("OPSCOPE_AMX", "0")
    for one, other in zip(on, _results(libraries, monkeypatch), strict=True):
        scale = np.abs(other).max()
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-5 * scale)
    assert not served(*factors(256, 256, 256, ""), np.empty((256, 256), "f4"))
