"""Batch normalization with sums of columns in C: equal to NumPy's, for any number of threads."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from opscope.framework.base.context import OpContext
from opscope.framework.base.cpu import threads
from opscope.framework.base.scope import Scope
from opscope.framework.fusion import team
from opscope.framework.ir.desc import View, make_var
from opscope.framework.runtime.plain_net import PlainNet
from opscope.nnet3 import components
from opscope.operators.backends import rows

pytestmark = pytest.mark.skipif(team.library() is None, reason="there is no native library")

X = np.random.default_rng(0).normal(1, 2, (900, 120))
ATTRS = {"epsilon": 0.01, "target_rms": 0.7}


def run(width: int, dtype: Any, border: int = 0) -> dict[str, np.ndarray]:
    """Result, statistics and gradient of a batch normalization in blocks of so many columns.

    Args:
        border: columns on both sides of what it reads and writes, in the same arrays.
    """
    assert components.COMPONENTS  # which registers the operators
    net, scope, attrs = PlainNet(), Scope(), {"block": width, **ATTRS}
    outputs = {slot: [slot] for slot in ("out", "mean", "uvar", "scale")}
    wanted = [*outputs, "x_grad"]
    values = {"x": X.astype(dtype), "g": np.cos(3 * X).astype(dtype)}
    wide = {"x": "wide_x", "g": "wide_g", "out": "wide_out"} if border else {}
    for name, whole in wide.items():
        view = View(whole, 0, -1, border, border + X.shape[1])
        net.add_var(make_var(whole, (len(X), X.shape[1] + 2 * border), np.dtype(dtype).name))
        net.add_var(make_var(name, X.shape, np.dtype(dtype).name, view=view))
        inner = values.pop(name, np.zeros_like(X, dtype))
        values[whole] = np.pad(inner, ((0, 0), (border, border)), constant_values=np.nan)
    net.add_op("nnet3.batch_norm", {"x": ["x"]}, outputs, attrs)
    given = {"x": ["x"], "out": ["out"], "scale": ["scale"], "out_grad": ["g"]}
    net.add_op("nnet3.batch_norm_grad", given, {"x_grad": ["x_grad"]}, attrs)
    scope.feed(values)
    live_out = [wide.get(name, name) for name in wanted]
    net.run(scope, OpContext(train=True, live_out=live_out))
    found = {name: scope.get(wide.get(name, name)).numpy().copy() for name in wanted}
    if border:
        found["out"] = found["out"][:, border:-border]
    return found


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("width", [120, 40, 1])
def test_equal_to_numpy(width: int, dtype: Any, monkeypatch: Any) -> None:
    found = run(width, dtype)
    monkeypatch.setenv("OPSCOPE_LIBRARIES", "mkl,blas,xp")
    monkeypatch.setattr(rows, "moments", None)  # nobody calls it now
    for name, plain in run(width, dtype).items():
        near = 2e-5 if dtype == np.float32 else 1e-11
        np.testing.assert_allclose(found[name], plain, rtol=near, atol=near, err_msg=name)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("width", [120, 40])
def test_columns_of_wider_matrices_are_summed_in_c(
    width: int, dtype: Any, monkeypatch: Any
) -> None:
    plain, calls = run(width, dtype), []
    moments = rows.moments
    monkeypatch.setattr(rows, "moments", lambda *given: calls.append(1) or moments(*given))
    for name, value in run(width, dtype, border=3).items():
        np.testing.assert_array_equal(value, plain[name], err_msg=name)
    assert len(calls) == 2  # forward and gradient


@pytest.mark.parametrize("width", [120, 40])
def test_equal_for_every_number_of_threads(width: int, monkeypatch: Any) -> None:
    monkeypatch.setattr(threads, "usable_cores", lambda: 3)
    monkeypatch.setattr(rows, "_READ", 10_000)
    found = []
    with threads.threads_set(3):
        for number in (1, 2, 3):
            threads.POOL[0] = number
            found.append(run(width, np.float32))
    for other in found[1:]:
        for name, value in found[0].items():
            np.testing.assert_array_equal(other[name], value)
