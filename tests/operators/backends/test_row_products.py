"""Products in blocks of rows and of single rows, against NumPy in float64."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from opscope.framework.base.cpu import threads
from opscope.framework.fusion import chains
from opscope.framework.fusion.compiled import native
from opscope.operators.backends.products import blas, mkl, parts, row_products, vector_products

pytestmark = pytest.mark.skipif(not chains.available(), reason="no native library")


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
def test_task(m, k, n, turned, dtype, library):
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
            task()
        _close(out, wanted, k)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize(("m", "k", "n"), [(340, 770, 64), (700, 300, 32), (333, 200, 80)])
def test_part_of_a_panel(m, k, n, turned, dtype, monkeypatch):
    monkeypatch.setattr(row_products, "is_intel", lambda: False)
    test_task(m, k, n, turned, dtype, None)
    a, b, out = _arrays(m, k, n, dtype, turned)
    monkeypatch.setattr(row_products, "is_intel", lambda: True)
    how = parts.layouts((a, b, out))
    assert row_products.task((a, b, out), how, (1.0, 0.0), None, None) is None


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize(
    ("m", "k", "n"),
    [
        (512, 256, 512),
        (441, 1100, 96),
        (137, 640, 500),
        (1031, 17, 512),
        (512, 256, 132),
        (900, 150, 33),
    ],
)
def test_first_factor_in_columns(m, k, n, turned, dtype, monkeypatch):
    """As in the gradient of weights; other products than MKL's take it."""
    monkeypatch.setattr(row_products, "is_intel", lambda: False)
    _, b, out = _arrays(m, k, n, dtype, turned)
    rows = np.random.default_rng(1).standard_normal((k, m + 9)).astype(dtype)
    a, begin, bias = rows[:, 5 : 5 + m].T, out.copy(), np.arange(n, dtype=dtype)
    how = parts.layouts((a, b, out))
    assert how[0][0]
    for factors, row, wanted in (
        ((1.0, 0.0), None, a.astype(float) @ b),
        ((0.5, 1.0), None, begin + 0.5 * (a.astype(float) @ b)),
        ((1.0, 1.0), bias, bias + a.astype(float) @ b),
    ):
        out[:] = begin
        task = row_products.task((a, b, out), how, factors, row, None)
        assert task is not None
        for _ in range(2 if not factors[1] or row is not None else 1):
            task()
        _close(out, wanted, k)
    if (found := mkl.library()) is not None:
        assert row_products.task((a, b, out), how, (1.0, 0.0), None, found) is None


def test_first_factor_in_columns_on_threads(monkeypatch):
    monkeypatch.setattr(threads, "usable_cores", lambda: 3)
    _, b, out = _arrays(700, 300, 512, np.float32, False)
    a = np.random.default_rng(1).standard_normal((300, 700)).astype(np.float32).T
    found = []
    with threads.threads_set(3):
        for number in (1, 2, 3):
            threads.POOL[0] = number
            task = row_products.task(
                (a, b, out), parts.layouts((a, b, out)), (1.0, 0.0), None, None
            )
            task()
            found.append(out.copy())
    _close(found[0], a.astype(float) @ b, 300)
    assert all((one == found[0]).all() for one in found)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize(("m", "width", "count", "n"), [(348, 64, 2, 768), (401, 96, 3, 64)])
def test_neighboring_rows(m, width, count, n, biased, dtype, monkeypatch):
    monkeypatch.setattr(row_products, "is_intel", lambda: False)
    rng = np.random.default_rng(0)
    x = rng.standard_normal((m + count - 1, width)).astype(dtype)
    w, bias = (rng.standard_normal(size).astype(dtype) for size in ((n, width * count), n))
    out = np.full((m, n), np.nan, dtype)
    call = row_products.of_neighbors(x[:m], count, w.T, out, bias if biased else None)
    for _ in range(2):
        call()
    rows = np.concatenate([x[at : at + m] for at in range(count)], axis=1)
    _close(out, rows.astype(float) @ w.T + (bias if biased else 0), width * count)
    # Rows of a wider matrix do not follow each other without a gap, and few are no product of ours.
    wide = np.zeros((m, 2 * width), dtype)[:, :width]
    assert row_products.of_neighbors(wide, count, w.T, out, None) is None
    assert row_products.of_neighbors(x[:5], count, w.T, out[:5], None) is None


def test_part_of_wider_matrices():
    whole = np.random.default_rng(0).standard_normal((1100, 700)).astype(np.float32)
    a, out = whole[50:1050, 100:400], np.zeros((1000, 600), np.float32)[:, 7:487]
    b = np.random.default_rng(1).standard_normal((300, 480)).astype(np.float32)
    task = row_products.task((a, b, out), parts.layouts((a, b, out)), (1.0, 0.0), None, None)
    task()
    _close(out, a.astype(float) @ b, 300)
    assert not out.base[:, :7].any() and not out.base[:, 487:].any()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    ("m", "k", "n"),
    [(1, 1, 1), (128, 64, 128), (9, 257, 50), (133, 600, 17), (300, 33, 96), (7, 5, 0), (3, 0, 20)],
)
def test_small_product(m, k, n, dtype):
    for a_turned in (0, 1):
        for b_turned in (0, 1):
            for alpha, beta in ((1.0, 0.0), (0.125, 0.0), (-2.0, 1.0)):
                a, b, out = _arrays(m, k, n, dtype, b_turned)
                a = np.asfortranarray(a) if a_turned else a
                wide = np.full((m, n + 3), 7, dtype)  # what lies beside the result stays
                wide[:, :n] = out
                steps = a.strides[int(a_turned)], b.strides[int(b_turned)], wide.strides[0]
                steps = [max(step // a.itemsize, 1) for step in steps]
                how, sizes = (a_turned, b_turned), (m, n, k, *steps)
                gemm = row_products.make_gemm(dtype, how, (alpha, beta), sizes)
                arguments = gemm.handle, a.ctypes.data, b.ctypes.data, wide.ctypes.data
                ctypes.CFUNCTYPE(None, *(ctypes.c_void_p,) * 4)(gemm.address)(*arguments)
                _close(wide[:, :n], alpha * (a.astype(float) @ b) + beta * out, max(k, 1))
                assert (wide[:, n:] == 7).all()


def test_weights_may_change():
    a, b, out = _arrays(1024, 512, 512, np.float32, True)
    call = mkl.product(np, a, b, out)
    call()
    b *= 2
    call()
    _close(out, a.astype(float) @ b, 2048)


class TestVectors:
    @pytest.mark.parametrize("dtype", ["float32", "float64"])
    @pytest.mark.parametrize(("k", "n"), [(784, 512), (517, 333), (3, 70_000), (9000, 16)])
    def test_task(self, k, n, dtype):
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
            call, results = task, []
            for _ in range(3):  # to and fro: every bit is the same
                out[:] = begin
                call()
                results.append(out.copy())
            _close(out, wanted, k)
            assert all((one == results[0]).all() for one in results)

    def test_declines(self):
        for m, k, n, turned in ((2, 784, 512, False), (1, 784, 512, True), (1, 20, 20, False)):
            arrays = _arrays(m, k, n, np.float32, turned)
            how = parts.layouts(arrays)
            assert vector_products.task(arrays, how, (1.0, 0.0), None) is None


@pytest.mark.skipif(native.load("dot_products", "float") is None, reason="GCC alone compiles them")
class TestFewRows:
    """Products of few rows with a matrix that lies in columns."""

    @pytest.mark.parametrize("dtype", ["float32", "float64"])
    @pytest.mark.parametrize(
        ("m", "k", "n"), [(2, 64, 768), (7, 97, 101), (12, 768, 64), (16, 220, 768), (15, 517, 333)]
    )
    def test_numbers(self, m, k, n, dtype, monkeypatch):
        monkeypatch.setattr(vector_products, "_SOME", 0)
        a, b, out = _arrays(m, k, n, dtype, True)
        begin, bias = out.copy(), np.arange(n, dtype=dtype)
        how = parts.layouts((a, b, out))
        for factors, row, wanted in (
            ((1.0, 0.0), None, a.astype(float) @ b),
            ((-0.5, 1.0), None, begin - 0.5 * (a.astype(float) @ b)),
            ((1.0, 1.0), bias, bias + a.astype(float) @ b),
        ):
            out[:] = begin
            task = vector_products.few_rows((a, b, out), how, factors, row)
            assert task is not None
            task()
            _close(out, wanted, k)

    def test_part_of_wider_matrices(self):
        rng = np.random.default_rng(0)
        a = rng.standard_normal((30, 300)).astype(np.float32)[5:21, 3:103]
        b = rng.standard_normal((500, 200)).astype(np.float32)[9:210, 11:111].T
        out = np.zeros((16, 240), np.float32)[:, 7:208]
        blas.product(np, a, b, out, bias=b[0])()
        _close(out, a.astype(float) @ b + b[0], 100)
        assert not out.base[:, :7].any() and not out.base[:, 208:].any()

    def test_values_that_are_no_numbers_stay_where_they_are(self):
        a, b, out = (np.abs(one) for one in _arrays(5, 101, 99, np.float32, True))
        a[1, 100], a[2, 90], b[99, 7], b[0, 98] = np.inf, np.nan, np.inf, -np.inf
        task = vector_products.few_rows((a, b, out), parts.layouts((a, b, out)), (1.0, 0.0), None)
        task()
        with np.errstate(invalid="ignore"):
            np.testing.assert_allclose(out, a @ b, rtol=1e-5)

    @pytest.mark.parametrize("dtype", ["float32", "float64"])
    def test_equal_for_every_number_of_threads(self, dtype, monkeypatch):
        monkeypatch.setattr(threads, "usable_cores", lambda: 3)
        a, b, out = _arrays(16, 300, 1003, dtype, True)
        found = []
        with threads.threads_set(3):
            for number in (1, 2, 3):
                threads.POOL[0] = number
                blas.product(np, a, b, out)()
                found.append(out.copy())
        _close(found[0], a.astype(float) @ b, 300)
        assert all((one == found[0]).all() for one in found)

    @pytest.mark.parametrize("product", [blas.product, mkl.product])
    @pytest.mark.parametrize("sizes", [(3, 64, 256), (6, 512, 512)])
    def test_who_is_asked(self, sizes, product, monkeypatch):
        if product is mkl.product and mkl.library() is None:
            pytest.skip("MKL is not installed")
        a, b, out = _arrays(*sizes, np.float32, True)
        served = []
        real = vector_products.few_rows

        def noted(*args):
            task = real(*args)
            served.append(task is not None)
            return task

        monkeypatch.setattr(vector_products, "few_rows", noted)
        product(np, a, b, out)()
        by_mkl = sizes[1] == 512 and vector_products._rows(a.dtype, by_mkl=True) > 0
        assert served == [product is blas.product or by_mkl]
        _close(out, a.astype(float) @ b, sizes[1])

    @pytest.mark.parametrize(
        ("m", "k", "n", "turned"),
        [(1, 512, 512, True), (33, 512, 512, True), (6, 512, 512, False), (6, 768, 64, True)],
    )
    def test_declines(self, m, k, n, turned):
        arrays = _arrays(m, k, n, np.float32, turned)
        how = parts.layouts(arrays)
        assert vector_products.few_rows(arrays, how, (1.0, 0.0), None) is None
