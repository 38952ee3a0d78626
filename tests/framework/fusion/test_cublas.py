"""Products of cuBLASLt, on a stand-in that checks what its functions are given."""

from __future__ import annotations

import gc

import numpy as np
import pytest

from opscope.framework.base.backend import on_device
from opscope.framework.base.dtypes import HALVES
from opscope.framework.fusion.cuda import cublas
from opscope.testing import device_blas
from opscope.testing.device_double import DOUBLE, by_default, launches, xp

RNG = np.random.default_rng(0)
DTYPES = ["float32", "float64"]


@pytest.fixture(autouse=True)
def _device():
    with by_default(), on_device(DOUBLE):
        yield


def whole(*shape, dtype="float32"):
    return RNG.normal(size=shape).astype(dtype)


LAYOUTS = {
    "rows": lambda a: xp.asarray(a),
    "columns": lambda a: xp.asarray(np.ascontiguousarray(a.swapaxes(-1, -2))).swapaxes(-1, -2),
    "part": lambda a: xp.asarray(np.concatenate([a, a], -1))[..., : a.shape[-1]],
    "every second row": lambda a: xp.asarray(np.repeat(a, 2, -2))[..., ::2, :],
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("left", LAYOUTS)
@pytest.mark.parametrize("right", LAYOUTS)
@pytest.mark.parametrize("sizes", [(4, 3, 5), (1, 3, 5), (4, 1, 5), (4, 3, 1), (1, 1, 1)])
def test_any_layout(left, right, sizes, dtype):
    m, k, n = sizes
    a, b = whole(m, k, dtype=dtype), whole(k, n, dtype=dtype)
    out = xp.zeros((m, n), dtype)
    call = cublas.product(xp, LAYOUTS[left](a), LAYOUTS[right](b), out)
    assert call is not None
    launches.clear()
    call()
    assert launches == ["cublasLtMatmul"]
    np.testing.assert_allclose(out.get(), a @ b, 1e-5, 1e-6)


def test_factors_and_what_is_there():
    a, b, held = whole(4, 3), whole(3, 5), whole(4, 5)
    out = xp.asarray(held)
    call = cublas.product(xp, xp.asarray(a), xp.asarray(b), out, alpha=2.0, adds=True)
    assert call is not None
    call()
    np.testing.assert_allclose(out.get(), held + 2 * a @ b, 1e-5, 1e-6)


def test_a_bias_or_sums_in_the_same_kernel():
    a, b, bias = whole(4, 3), whole(3, 5), whole(5)
    out, sums = xp.zeros((4, 5), np.float32), xp.zeros(5, np.float32)
    left, right = xp.asarray(a), xp.asarray(b)
    for given, added in (({"bias": xp.asarray(bias)}, bias), ({"sums": sums}, 0)):
        call = cublas.product(xp, left, right, out, **given)
        assert call is not None
        call()
        np.testing.assert_allclose(out.get(), a @ b + added, 1e-5, 1e-6)
    np.testing.assert_allclose(sums.get(), b.sum(0), 1e-5, 1e-6)
    double = [xp.asarray(one, np.float64) for one in (a, b, np.zeros((4, 5)), bias)]
    assert cublas.product(xp, *double[:3], bias=double[3]) is None, "which has no epilogues"


@pytest.mark.parametrize("lead", [(2,), (2, 3), (1, 3), (3, 1)])
def test_stacks(lead):
    a, b = whole(*lead, 4, 3), whole(*lead, 3, 5)
    shared = whole(4, 3)
    for left, given in ((a, xp.asarray(a)), (shared, xp.asarray(shared))):
        out = xp.zeros((*lead, 4, 5), np.float32)
        launches.clear()
        cublas.multiply(xp, given, xp.asarray(b), out)()
        assert launches == ["cublasLtMatmul"]
        np.testing.assert_allclose(out.get(), left @ b, 1e-5, 1e-6)


@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_halves_are_summed_in_float32_and_rounded_once(dtype):
    a, b, bias = (whole(*shape).astype(dtype) for shape in ((4, 300), (300, 5), (5,)))
    wide = [one.astype(np.float32) for one in (a, b, bias)]
    out, sums = xp.zeros((4, 5), dtype), xp.zeros(5, dtype)
    left, right = xp.asarray(a), xp.asarray(b)
    for given, added in (({"bias": xp.asarray(bias)}, wide[2]), ({"sums": sums}, 0)):
        call = cublas.product(xp, left, right, out, **given)
        assert call is not None
        call()
        np.testing.assert_array_equal(out.get(), (wide[0] @ wide[1] + added).astype(dtype))
    np.testing.assert_array_equal(sums.get(), wide[1].sum(0).astype(dtype))


def test_what_it_does_not_take_is_left_to_cupy():
    a, b = xp.asarray(whole(4, 6))[:, ::2], xp.asarray(whole(3, 5))
    out = xp.zeros((4, 5), np.float32)
    assert cublas.product(xp, a, b, out) is None, "neither rows nor columns lie in one piece"
    assert cublas.product(xp, b.T, b, xp.zeros((5, 5), np.float64)) is None
    assert cublas.product(xp, b[:, :0], b[:0], xp.zeros((3, 5), np.float32)) is None
    launches.clear()
    cublas.multiply(xp, a, b, out)()
    assert launches == ["matmul"]


def test_descriptors_go_with_their_product():
    gc.collect()
    before = len(device_blas._made)
    out = xp.zeros((4, 5), np.float32)
    call = cublas.product(xp, xp.asarray(whole(4, 3)), xp.asarray(whole(3, 5)), out)
    assert len(device_blas._made) > before
    del call
    gc.collect()
    assert len(device_blas._made) == before


class Wrong(device_blas.Library):
    def cublasLtMatmul(self, *args):  # noqa: N802
        return 0


class Failing(device_blas.Library):
    def cublasLtCreate(self, *args):  # noqa: N802
        return 3


@pytest.mark.parametrize(
    ("library", "why"),
    [(Wrong(), "differ from NumPy's"), (Failing(), "the status 3"), (None, "is not found")],
)
def test_a_library_that_is_missing_or_computes_wrongly_is_not_used(library, why, monkeypatch):
    cublas._handle.cache_clear()
    monkeypatch.setattr(cublas, "load", lambda major: library)
    try:
        out = xp.zeros((4, 5), np.float32)
        with pytest.warns(RuntimeWarning, match=f"cuBLASLt is not used on GPU 1: .*{why}"):
            cublas.multiply(xp, xp.asarray(whole(4, 3)), xp.asarray(whole(3, 5)), out)
        assert cublas._handle(xp, 1) is None
    finally:
        cublas._handle.cache_clear()
