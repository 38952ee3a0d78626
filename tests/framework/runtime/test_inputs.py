"""How frames take inputs: copied, handed over, replaced; and where results are kept."""

from __future__ import annotations

import numpy as np
import pytest

from opscope.framework.base.context import OpContext
from opscope.framework.base.errors import VariableError
from opscope.framework.base.scope import Scope
from opscope.framework.ir.desc import INPUT, make_op, make_var
from opscope.framework.ir.op_list import OpList
from opscope.framework.runtime.plain_net import PlainNet

SMALL, LARGE = (4, 3), (256, 256)


def doubler() -> PlainNet:
    net = OpList(name="doubler")
    net.vars.append(make_var("x", (-1, -1), "float32", INPUT))
    net.ops.append(make_op("scale", {"x": "x"}, {"out": "y"}, {"scale": 2.0}))
    net.ops.append(make_op("square", {"x": "y"}, {"out": "z"}))
    return PlainNet(net)


@pytest.mark.parametrize("shape", [SMALL, LARGE])
@pytest.mark.parametrize("give", ["set", "share"])
def test_every_run_sees_the_input_given_last(shape: tuple[int, int], give: str) -> None:
    net, scope, context = doubler(), Scope(), OpContext(live_out=["z"])
    arrays = [np.full(shape, n, np.float32) for n in (1, 2, 3)]
    for _ in range(2):
        for array in arrays:
            getattr(scope.var("x"), give)(array)
            net.run(scope, context)
            np.testing.assert_array_equal(scope.numpy("z"), 4 * array**2)
    assert [float(array[0, 0]) for array in arrays] == [1, 2, 3]  # the caller's stay as they were


def test_a_large_array_that_is_handed_over_is_not_copied() -> None:
    net, scope, context = doubler(), Scope(), OpContext(live_out=["z"])
    first, second = (np.ones(LARGE, np.float32) for _ in range(2))
    scope.var("x").share(first)
    net.run(scope, context)
    scope.var("x").share(second)
    net.run(scope, context)
    frame = net.frame(scope, context)
    assert frame.arrays["x"] is second


@pytest.mark.parametrize("shape", [SMALL, LARGE])
def test_shapes_may_alternate(shape: tuple[int, int]) -> None:
    net, scope, context = doubler(), Scope(), OpContext(live_out=["z"])
    for rows in (shape[0], 1, shape[0], 1):
        x = np.full((rows, shape[1]), rows, np.float32)
        scope.var("x").set(x)
        net.run(scope, context)
        np.testing.assert_array_equal(scope.numpy("z"), 4 * x**2)


def test_results_are_local_even_where_a_parent_has_the_name() -> None:
    net, outer = doubler(), Scope()
    outer.var("z").set(np.float32(7))
    outer.var("x").set(np.ones(SMALL, np.float32))
    inner = outer.new_scope()
    net.run(inner)
    assert outer.numpy("z") == 7
    np.testing.assert_array_equal(inner.numpy("z"), np.full(SMALL, 4))


def test_a_shared_array_is_never_written() -> None:
    scope = Scope()
    mine = np.ones(3, np.float32)
    scope.var("x").share(mine)
    scope.var("x").set(np.full(3, 2, np.float32))
    assert mine.tolist() == [1, 1, 1]
    net = PlainNet()
    net.add_op("increment", {"x": "w"}, {"out": "w"}, {"value": 1.0})
    scope.var("w").share(mine)
    with pytest.raises(VariableError, match="'w' shares the caller's array"):
        net.run(scope)
    assert mine.tolist() == [1, 1, 1]


def test_frames_of_one_scope_share_the_memory_of_temporaries(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OPSCOPE_FUSE", "0")  # fused, there is no temporary
    net, scope, context = doubler(), Scope(), OpContext(live_out=["z"])
    frames = []
    for rows in (64, 32, 48, 64):
        scope.var("x").set(np.full((rows, 8), rows, np.float32))
        net.run(scope, context)
        np.testing.assert_array_equal(scope.numpy("z"), np.full((rows, 8), 4 * rows**2))
        frames.append(net.frame(scope, context))
    held = [frame.arrays["y"] for frame in frames]
    assert all(np.may_share_memory(held[0], other) for other in held)
