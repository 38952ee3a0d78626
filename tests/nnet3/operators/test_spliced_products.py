"""Operators of products with rows of several matrices, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

import opscope
from opscope.framework.ir.names import EMPTY
from opscope.framework.ir.op_list import OpList, OpNode
from opscope.framework.runtime.plain_net import PlainNet

RNG = np.random.default_rng(0)
PARTS = [RNG.standard_normal((9, width)).astype(np.float32) for width in (3, 5, 4)]
W = RNG.standard_normal((7, 12)).astype(np.float32)
GRAD = RNG.standard_normal((9, 7)).astype(np.float32)


def _run(op, given, wanted):
    scope = opscope.Scope()
    for name, array in given.items():
        scope.var(name).set(array.copy())
    PlainNet(OpList("n", ops=[op]), check=False).run(scope)
    return [np.array(scope.get(name).array) for name in wanted]


def _given(**more):
    return {"a": PARTS[0], "b": PARTS[1], "c": PARTS[2]} | more


def _op(kind, inputs, outputs, **attrs):
    return OpNode(f"nnet3.{kind}", inputs, outputs, attrs)


@pytest.fixture(params=["packed,mkl,blas,xp", "xp"], autouse=True)
def libraries(request, monkeypatch):
    monkeypatch.setenv("OPSCOPE_LIBRARIES", request.param)


def test_matmul():
    op = _op("spliced_matmul", {"x": ("a", "b", "c"), "w": ("w",)}, {"out": ("out",)})
    assert op.type == "nnet3.spliced_matmul"
    (out,) = _run(op, _given(w=W), ["out"])
    np.testing.assert_allclose(out, np.hstack(PARTS) @ W.T, atol=1e-5)


def test_weight_grad():
    inputs = {"x": ("a", "b", "c"), "out_grad": ("g",)}
    op = OpNode("nnet3.spliced_weight_grad", inputs, {"w_grad": ("d",)})
    (found,) = _run(op, _given(g=GRAD), ["d"])
    np.testing.assert_allclose(found, GRAD.T @ np.hstack(PARTS), atol=1e-5)


def test_input_grad():
    inputs = {"out_grad": ("g",), "w": ("w",), "y": (EMPTY, "c")}
    attrs = {"first": [3, 8], "columns": [5, 4], "adds": [0, 1]}
    op = OpNode("nnet3.spliced_input_grad", inputs, {"x_grad": ("b", "c")}, attrs)
    given = {"b": PARTS[1], "c": PARTS[2], "g": GRAD, "w": W}
    first, second = _run(op, given, ["b", "c"])
    np.testing.assert_allclose(first, GRAD @ W[:, 3:8], atol=1e-5)
    np.testing.assert_allclose(second, PARTS[2] + GRAD @ W[:, 8:], atol=1e-5)


@pytest.mark.parametrize(
    ("attrs", "why"),
    [
        ({"first": [0], "columns": [13], "adds": [0]}, "of the 12 of w"),
        ({"first": [0, 3], "columns": [3], "adds": [0]}, "2 first, 1 columns and 1 adds"),
        ({"first": [-1], "columns": [3], "adds": [0]}, "columns from"),
    ],
)
def test_input_grad_refuses(attrs, why):
    op = OpNode(
        "nnet3.spliced_input_grad", {"out_grad": ("g",), "w": ("w",)}, {"x_grad": ("b",)}, attrs
    )
    with pytest.raises(opscope.OpscopeError, match=why):
        _run(op, {"g": GRAD, "w": W}, ["b"])


def test_matmul_refuses():
    op = OpNode("nnet3.spliced_matmul", {"x": ("a", "b"), "w": ("w",)}, {"out": ("out",)})
    with pytest.raises(opscope.OpscopeError, match="columns of w and of all x"):
        _run(op, _given(w=W), ["out"])
