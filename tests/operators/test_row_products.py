"""Products in blocks of rows and of single rows, against NumPy in float64."""

from __future__ import annotations

import numpy as np
import pytest

from opscope.framework.fusion import compiler, team
from opscope.operators.backends import blas, mkl, parts, row_products, vector_products

pytestmark = pytest.mark.skipif(not compiler.available(), reason="no C compiler")


def _arrays(m, k, n, dtype, turned, seed=0):
    rng = np.random.default_rng(seed)
    a = rng.standard_normal((m, k)).astype(dtype)
    b = rng.standard_normal((n, k) if turned else (k, n)).astype(dtype)
    return a, b.T if turned else b, rng.standard_normal((m, n)).astype(dtype)


def _close(found, wanted, k):
    atol = (1e-5 if found.dtype == np.float32 else 1e-12) * k**0.5 * 4
    np.testing.assert_allclose(found, wanted, rtol=4e-6, atol=atol)


@pytest.mark.parametrize("library", [None, "mkl"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize(
    ("m", "k", "n"), [(64, 784, 512), (1000, 400, 500), (1013, 64, 96), (1201, 515, 487)]
)
def test_task(m, k, n, turned, dtype, library, monkeypatch):
    monkeypatch.setenv("OPSCOPE_ROWS", "1")
    found = mkl.library() if library else None
    if library and found is None:
        pytest.skip("MKL is not installed")
    a, b, out = _arrays(m, k, n, dtype, turned)
    begin = out.copy()
    how = parts.layouts((a, b, out))
    bias = np.arange(n, dtype=dtype)
    for factors, row, wanted in (
        ((1.0, 0.0), None, a.astype(float) @ b),
        ((2.0, 1.0), None, begin + 2 * (a.astype(float) @ b)),
        ((1.0, 1.0), bias, bias + a.astype(float) @ b),
    ):
        out[:] = begin
        task = row_products.task((a, b, out), how, factors, row, found)
        assert task is not None and task.by_rows.rows == m
        for _ in range(2 if not factors[1] or row is not None else 1):
            team.run_together([task])()
        _close(out, wanted, k)


def test_part_of_wider_matrices(monkeypatch):
    monkeypatch.setenv("OPSCOPE_ROWS", "1")
    whole = np.random.default_rng(0).standard_normal((1100, 700)).astype(np.float32)
    a, out = whole[50:1050, 100:400], np.zeros((1000, 600), np.float32)[:, 7:487]
    b = np.random.default_rng(1).standard_normal((300, 480)).astype(np.float32)
    task = row_products.task((a, b, out), parts.layouts((a, b, out)), (1.0, 0.0), None, None)
    team.run_together([task])()
    _close(out, a.astype(float) @ b, 300)
    assert not out.base[:, :7].any() and not out.base[:, 487:].any()


def test_weights_may_change(monkeypatch):
    monkeypatch.setenv("OPSCOPE_ROWS", "1")
    a, b, out = _arrays(1024, 512, 512, np.float32, True)
    call = mkl.product(np, a, b, out)
    call()
    b *= 2
    call()
    _close(out, a.astype(float) @ b, 2048)


@pytest.mark.parametrize("switch", ["0", "1"])
def test_switch(switch, monkeypatch):
    monkeypatch.setenv("OPSCOPE_ROWS", switch)
    a, b, out = _arrays(1024, 128, 96, np.float32, False)
    task = row_products.task((a, b, out), parts.layouts((a, b, out)), (1.0, 0.0), None, None)
    assert (task is not None) == (switch == "1")
    for product in (mkl.product, blas.product):
        product(np, a, b, out)()
        _close(out, a.astype(float) @ b, 128)


class TestVectors:
    @pytest.mark.parametrize("dtype", ["float32", "float64"])
    @pytest.mark.parametrize(("k", "n"), [(784, 512), (517, 333), (3, 70_000), (9000, 16)])
    def test_task(self, k, n, dtype, monkeypatch):
        monkeypatch.setenv("OPSCOPE_VECTORS", "1")
        a, b, out = _arrays(1, k, n, dtype, False)
        begin, bias = out.copy(), np.arange(n, dtype=dtype)
        how = parts.layouts((a, b, out))
        for factors, row, wanted in (
            ((1.0, 0.0), None, a.astype(float) @ b),
            ((0.5, 1.0), None, begin + 0.5 * (a.astype(float) @ b)),
            ((1.0, 1.0), bias, bias + a.astype(float) @ b),
        ):
            out[:] = begin
            task = vector_products.task((a, b, out), how, factors, row)
            call, results = team.run_together([task]), []
            for _ in range(3):  # to and fro: every bit is the same
                out[:] = begin
                call()
                results.append(out.copy())
            _close(out, wanted, k)
            assert all((one == results[0]).all() for one in results)

    def test_switch(self, monkeypatch):
        a, b, out = _arrays(1, 784, 512, np.float32, False)
        how, results = parts.layouts((a, b, out)), []
        for switch in "01":
            monkeypatch.setenv("OPSCOPE_VECTORS", switch)
            task = vector_products.task((a, b, out), how, (1.0, 0.0), None)
            assert (task is not None) == (switch == "1")
            mkl.product(np, a, b, out)()
            results.append(out.copy())
        np.testing.assert_allclose(*results, atol=2e-4)

    def test_declines(self, monkeypatch):
        monkeypatch.setenv("OPSCOPE_VECTORS", "1")
        for m, k, n, turned in ((2, 784, 512, False), (1, 784, 512, True), (1, 20, 20, False)):
            arrays = _arrays(m, k, n, np.float32, turned)
            how = parts.layouts(arrays)
            assert vector_products.task(arrays, how, (1.0, 0.0), None) is None
