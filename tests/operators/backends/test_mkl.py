"""Products by MKL: they equal NumPy's for every layout, and MKL may be missing."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from matrix_layouts import LAYOUTS, check_adding, check_layouts, maker
from opscope.framework.base.context import OpContext
from opscope.framework.base.scope import Scope
from opscope.framework.runtime.plain_net import PlainNet
from opscope.operators.backends.products import mkl as _mkl
from opscope.operators.linear import matmul

with_mkl = pytest.mark.skipif(_mkl.library() is None, reason="the package mkl is not installed")


@with_mkl
@pytest.mark.parametrize("layout_b", LAYOUTS)
@pytest.mark.parametrize("layout_a", LAYOUTS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_layouts(layout_a: str, layout_b: str, dtype: Any) -> None:
    check_layouts(_mkl.product, layout_a, layout_b, dtype)


@with_mkl
@pytest.mark.parametrize("shape", [(0, 3, 2), (3, 0, 2), (3, 2, 0), (0, 0, 0)])
def test_no_elements(shape: tuple[int, int, int]) -> None:
    m, n, k = shape
    out = np.full((m, n), np.nan, np.float32)
    bias = np.arange(n, dtype=np.float32)
    _mkl.product(np, np.ones((m, k), "f"), np.ones((k, n), "f"), out, bias=bias)()
    np.testing.assert_array_equal(out, np.broadcast_to(bias, (m, n)))


@with_mkl
@pytest.mark.parametrize("layout", ["rows", "part of rows", "columns"])
@pytest.mark.parametrize("product", [_mkl.product, matmul.product])
def test_adding_to_what_is_there(product: Any, layout: str) -> None:
    check_adding(product, layout)


@with_mkl
@pytest.mark.parametrize("begin", ["nothing", "bias", "out"])
@pytest.mark.parametrize("depth", [2 * _mkl._PIECE - 1, 2 * _mkl._PIECE, 5 * _mkl._PIECE + 7])
@pytest.mark.parametrize("intel", [True, False])
def test_narrow_gradients_of_weights(
    depth: int, begin: str, intel: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """MKL multiplies pieces; ragged columns are OpenBLAS's on processors that are not Intel's."""
    cut: list[Any] = []
    in_pieces = _mkl._in_pieces

    def noted(*given: Any) -> Any:
        cut.append(given)
        return in_pieces(*given)

    monkeypatch.setattr(_mkl, "_in_pieces", noted)
    monkeypatch.setattr(_mkl, "is_intel", lambda: intel)
    make = maker(np.float32)
    a, b, bias = make(depth, 40), make(depth, 24), make(24)
    whole = make(40, 30)
    out, before = whole[:, 3:27], whole.copy()
    want = a.T.astype(np.float64) @ b
    given: dict[str, Any] = {}
    if begin == "bias":
        want, given = want + bias, {"bias": bias}
    elif begin == "out":
        want, given = want + out, {"by": np.empty_like(out)}
    call = _mkl.product(np, a.T, b, out, **given)
    by_mkl = intel or _mkl.blas.library() is None
    deep = depth >= 2 * _mkl._PIECE
    assert len(cut) == (by_mkl and deep and _mkl.team.library() is not None)
    call()
    np.testing.assert_allclose(out, want, rtol=1e-5, atol=1e-4)
    np.testing.assert_array_equal(whole[:, :3], before[:, :3])
    np.testing.assert_array_equal(whole[:, 27:], before[:, 27:])


@with_mkl
def test_neighbors_of_a_view_are_untouched() -> None:
    whole = np.full((6, 9), np.nan, np.float32)
    _mkl.product(np, np.ones((6, 2), "f"), np.ones((2, 4), "f"), whole[:, 3:7])()
    assert (whole[:, 3:7] == 2).all()
    assert np.isnan(whole[:, :3]).all() and np.isnan(whole[:, 7:]).all()


@with_mkl
def test_nan_in_and_nan_out() -> None:
    a, out = np.ones((3, 2), "f"), np.empty((3, 4), "f")
    a[1, 0] = np.nan
    _mkl.product(np, a, np.ones((2, 4), "f"), out)()
    assert np.isnan(out).any(axis=1).tolist() == [False, True, False]


@with_mkl
def test_code_outlives_the_cache() -> None:
    make = maker(np.float64)
    a, b, out = make(4, 6), make(6, 5), np.empty((4, 5))
    call = _mkl.product(np, a, b, out)
    _mkl._gemm.cache_clear()
    call()
    np.testing.assert_allclose(out, a @ b)


def _layer(dtype: Any) -> tuple[PlainNet, Scope]:
    net, scope, make = PlainNet(), Scope(), maker(dtype)
    net.add_op("affine", {"x": ["x"], "w": ["w"], "b": ["b"]}, {"out": ["h"]})
    net.add_op("matmul", {"x": ["h"], "y": ["w"]}, {"out": ["y"]}, {"transpose_y": True})
    scope.feed({"x": make(8, 6), "w": make(6, 5), "b": make(5)})
    return net, scope


@with_mkl
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_kernels_in_a_net(dtype: Any, monkeypatch: Any) -> None:
    results = []
    for libraries in ("mkl,xp", "xp"):
        monkeypatch.setenv("OPSCOPE_LIBRARIES", libraries)
        net, scope = _layer(dtype)
        frame = net.frame(scope, OpContext())
        uses_mkl = libraries != "xp" and dtype != np.float16
        assert hasattr(frame.calls[1], "memory") is uses_mkl
        net.run(scope)
        results.append(scope.numpy("y"))
    np.testing.assert_allclose(*results, rtol=1e-5, atol=1e-5)


@pytest.fixture
def forgotten() -> Iterator[None]:
    """MKL is looked for anew, and again afterwards."""
    _mkl.library.cache_clear()
    yield
    _mkl.library.cache_clear()


@pytest.mark.parametrize(
    "files", [lambda name: None, lambda name: [], lambda name: ["/nowhere/libmkl_rt.so.9"]]
)
def test_without_mkl(files: Any, forgotten: None, monkeypatch: Any) -> None:
    monkeypatch.setattr(_mkl.installed, "files", files)
    net, scope = _layer(np.float32)
    net.run(scope)
    wanted = (scope.numpy("x") @ scope.numpy("w") + scope.numpy("b")) @ scope.numpy("w").T
    np.testing.assert_allclose(scope.numpy("y"), wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.skipif(sys.platform == "emscripten", reason="it has no processes")
def test_mkl_is_not_loaded_by_importing() -> None:
    code = (
        "import opscope.operators.backends.products.gemm_backends;"
        "from opscope.operators.backends.products import mkl;"
        "assert mkl.library.cache_info().currsize == 0"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_library_that_numpy_computes_with_is_left_to_numpy(monkeypatch: Any) -> None:
    found = _mkl.library()
    if found is None:
        pytest.skip("MKL is not installed")
    of_numpy = SimpleNamespace(filepath=found._name)
    monkeypatch.setattr(_mkl, "controllers", lambda: [of_numpy])
    assert _mkl.library.__wrapped__() is None
