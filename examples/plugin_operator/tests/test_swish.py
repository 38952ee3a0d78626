"""The plug-in, installed: found by name, in nets, gradients, files and documentation."""

from __future__ import annotations

import pathlib

import numpy as np
import pytest

import opscope
from opscope.framework.ir.registry import lookup


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def build() -> tuple[opscope.NetBuilder, opscope.Scope, np.ndarray]:
    b = opscope.NetBuilder("plugin")
    x = b.input("x", [-1, 3], "float64")
    w = b.parameter("w", [3], 2.0, dtype="float64")
    b.mean(b.swish(b.mul(x, w), beta=1.5, name="y"), name="cost")
    b.backward_from("cost")
    rng = np.random.default_rng(0)
    return b, opscope.Scope(), rng.normal(size=(4, 3))


def test_values_and_gradient() -> None:
    b, scope, x = build()
    out = b.run(scope, feed={"x": x}, fetch=["y", "w@GRAD"])
    z, s = 2 * x, sigmoid(3 * x)
    np.testing.assert_allclose(out["y"], z * s, rtol=1e-12)
    slope = s * (1 + 1.5 * z * (1 - s))
    np.testing.assert_allclose(out["w@GRAD"], (slope * x).sum(axis=0) / x.size, rtol=1e-10)


def test_saved_and_loaded(tmp_path: pathlib.Path) -> None:
    b, scope, x = build()
    want = b.run(scope, feed={"x": x}, fetch=["y"])["y"]
    opscope.save(b, scope, tmp_path / "plugin.pb")
    net, loaded = opscope.load(tmp_path / "plugin.pb")
    again = opscope.NetBuilder.from_desc(net.desc)
    got = again.run(loaded, feed={"x": x}, fetch=["y"], need_backward=False)["y"]
    np.testing.assert_array_equal(got, want)


def test_documented(capsys: pytest.CaptureFixture[str]) -> None:
    from opscope.python_api.cli.main import main

    assert lookup("swish").source
    with pytest.raises(SystemExit) as stop:
        main(["ops", "swish"])
    assert stop.value.code == 0
    assert "sigmoid(beta * x)" in capsys.readouterr().out
