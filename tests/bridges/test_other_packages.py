"""Operators of other packages: written for ONNX and PyTorch, and named where one is missing."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import opscope
from opscope import NetBuilder, Scope
from opscope.framework.base.errors import UnknownOperatorError
from opscope.framework.base.sizes.shape import same_as
from opscope.framework.ir.desc import make_op
from opscope.framework.ir.names import inner_name
from opscope.framework.ir.op_list import OpNode
from opscope.framework.ir.registry import Slot, operator, unregister
from opscope.operators.base.derived import derived_kernel

X = np.linspace(-2, 2, 8, dtype=np.float32).reshape(2, 4)


@pytest.fixture
def elsewhere() -> Iterator[None]:
    """Operators of a package that is none of ours: an expression, expansions, a kernel."""
    slots = {"inputs": [Slot("x", "[...]")], "outputs": [Slot("out", "[...]")]}
    squashed = operator("squashed", doc="x / (2 + |x|).", scalar="x / (2 + fabs(x))", **slots)
    squashed.shape_rule(same_as("x"))
    squashed.kernel(derived_kernel)
    twice = operator("twice_squashed", doc="Squashed, and again.", **slots)
    whole = operator("whole_squashed", doc="Squashed, under one name.", whole=True, **slots)

    @twice.expansion
    def expand_twice(op: OpNode) -> list[OpNode]:
        once = inner_name(op.outputs["out"][0], "ONCE")
        return [
            make_op("squashed", op.inputs, {"out": once}),
            make_op("squashed", {"x": once}, op.outputs),
        ]

    @whole.expansion
    def expand_whole(op: OpNode) -> list[OpNode]:
        return [make_op("squashed", op.inputs, op.outputs)]

    centered = operator("own_centered", doc="x less its mean.", shape=same_as("x"), **slots)

    @centered.kernel
    def kernel(k):
        return lambda: k.xp.subtract(k["x"], k["x"].mean(-1, keepdims=True), out=k["out"])

    entries = squashed, twice, whole, centered
    for entry in entries:
        entry.module = "others.ops"
    yield
    for entry in entries:
        unregister(entry.type)


def net_of(op_type: str) -> tuple[NetBuilder, Scope]:
    b, scope = NetBuilder("net"), Scope()
    getattr(b, op_type)(b.input("x", [-1, 4]), name="y")
    return b, scope


@pytest.mark.usefixtures("elsewhere")
@pytest.mark.parametrize("op_type", ["squashed", "twice_squashed", "whole_squashed"])
def test_expressions_and_expansions_are_written(op_type: str, tmp_path) -> None:
    pytest.importorskip("onnxruntime")
    b, scope = net_of(op_type)
    check = opscope.to_onnx(b, tmp_path / "net.onnx", scope)
    assert check.error < 1e-6
    opscope.save(b, scope, tmp_path / "net")
    torch = opscope.to_torch(str(tmp_path / "net.pb"), tmp_path / "module")
    assert torch.source.count(".abs()") == 1 + (op_type == "twice_squashed")


@pytest.mark.usefixtures("elsewhere")
def test_a_form_of_its_own(tmp_path) -> None:
    pytest.importorskip("onnxruntime")
    b, scope = net_of("own_centered")
    with pytest.raises(opscope.OpscopeError, match="there is no form of it in ONNX here"):
        opscope.to_onnx(b, tmp_path / "net.onnx", scope)
    from opscope.framework.ir.registry import lookup

    @lookup("own_centered").form("onnx")
    def write(e) -> None:
        e.set("out", e.node("Sub", e["x"], e.node("ReduceMean", e["x"], axes=[-1])))

    assert opscope.to_onnx(b, tmp_path / "net.onnx", scope).error < 1e-6
    (found,) = opscope.from_onnx(tmp_path / "net.onnx").run({"x": X}).values()
    np.testing.assert_allclose(found, X - X.mean(-1, keepdims=True), atol=1e-6)


def test_a_net_names_the_package_that_is_missing(elsewhere, tmp_path) -> None:
    b, scope = net_of("squashed")
    opscope.save(b, scope, tmp_path / "net")
    assert opscope.load(tmp_path / "net").net.metadata["opscope.operator.squashed"] == "others.ops"
    unregister("squashed")
    with pytest.raises(UnknownOperatorError, match="'squashed'.*from others.ops, .* not installed"):
        opscope.load(tmp_path / "net")
