"""Convolutions on a GPU, on the stand-in of CuPy, where kernels could not count the windows."""

import numpy as np
import pytest

from opscope import NetBuilder, OpContext, Scope
from opscope.framework.fusion.compiled import compiler
from opscope.operators.backends.cuda import cuda_windows
from opscope.testing.device_double import by_default, launches

with_compiler = pytest.mark.skipif(not compiler.available(), reason="there is no C compiler")
RNG = np.random.default_rng(0)
X, W = (RNG.normal(size=size).astype(np.float32) for size in ((2, 3, 6, 6), (2, 3, 3, 3)))


def step():
    b = NetBuilder("conv")
    h = b.conv2d(b.input("x", [-1, 3, 6, 6]), filters=2, kernel=3, padding=1, name="c")
    b.mean(b.square(h), name="loss")
    b.backward_from("loss")
    scope = Scope()
    b.initialize(scope, OpContext(seed=1))
    scope.feed({"c.w": W})
    return b.run(scope, feed={"x": X}, fetch=["loss", "c.w@GRAD"])


@pytest.mark.parametrize("most", [500, pytest.param(1 << 31, marks=with_compiler)])
def test_windows_beyond_what_places_count(most, monkeypatch):
    wanted = step()  # an image has 3 * 9 * 36 elements of windows
    monkeypatch.setattr(cuda_windows, "_MOST", most)
    with by_default():
        launches.clear()
        found = step()
    assert ("gather_windows" in launches) == (most > 500)
    for name, value in wanted.items():
        np.testing.assert_allclose(np.asarray(found[name]), value, 1e-5, 1e-6, err_msg=name)
