"""Formulas over columns of matrices as one compiled loop."""

from types import SimpleNamespace

import numpy as np
import pytest

from opscope.framework.fusion import chains
from opscope.operators.base.fused import called, computed, fused

K = SimpleNamespace(xp=np, scratch=np.empty)
FORMULAS = {"s": "1 / (1 + exp(-x * w))", "y": "s * x + m", "z": "y - s"}


def arrays(dtype):
    rng = np.random.default_rng(0)
    whole = rng.normal(size=(5, 9)).astype(dtype)
    return {"x": whole[:, 1:5], "w": rng.normal(size=4).astype(dtype), "m": whole[:, 6, None]}


@pytest.mark.skipif(not chains.available(), reason="no native library")
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rows_columns_and_parts_of_matrices(dtype):
    given, out = arrays(dtype), np.full((5, 10), 9, dtype)
    fused(K, given, FORMULAS, {"y": out[:, :4], "z": out[:, 5:9]})()
    s = 1 / (1 + np.exp(-given["x"] * given["w"]))
    y = s * given["x"] + given["m"]
    np.testing.assert_allclose(out[:, :4], y, 1e-5, 1e-6)
    np.testing.assert_allclose(out[:, 5:9], y - s, 1e-5, 1e-6)
    assert (out[:, [4, 9]] == 9).all()


def test_what_is_left_to_other_kernels(monkeypatch):
    given = arrays(np.float32)
    results = {"y": np.zeros((5, 4), np.float32)}
    assert fused(K, given | {"w": np.ones(4)}, FORMULAS, results) is None  # another dtype
    by_column = np.ones((4, 5), np.float32).T
    assert fused(K, given | {"x": by_column}, FORMULAS, results) is None
    monkeypatch.setenv("OPSCOPE_FUSE", "0")
    assert fused(K, given, FORMULAS, results) is None


@pytest.mark.parametrize("fuse", ["0", "1"])
def test_computed_is_right_with_and_without_a_compiled_loop(fuse, monkeypatch):
    monkeypatch.setenv("OPSCOPE_FUSE", fuse)
    given, out = arrays(np.float64), np.full((5, 10), 9.0)
    s = 1 / (1 + np.exp(-given["x"] * given["w"]))
    y = s * given["x"] + given["m"]
    computed(K, given, FORMULAS, {"y": out[:, :4], "z": out[:, 5:9]})()
    np.testing.assert_allclose(out[:, :4], y, 1e-13)
    np.testing.assert_allclose(out[:, 5:9], y - s, 1e-13)
    assert (out[:, [4, 9]] == 9).all()


def test_called_takes_blocks_of_columns():
    x, w = np.random.default_rng(0).normal(size=(3, 2, 4)), np.arange(4.0)
    out = np.empty((3, 2, 4))
    for call in called(K, {"x": x, "w": w}, {"y": "(x - w) * w"}, {"y": out}):
        call()
    np.testing.assert_array_equal(out, (x - w) * w)
