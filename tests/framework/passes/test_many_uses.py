"""A variable that very many operators use: its gradient is a tree of sums."""

from __future__ import annotations

import numpy as np
import pytest

from opscope import NetBuilder, Scope
from opscope.framework.fusion.scalars.expression import cost, names, nodes, parse, written_out
from opscope.framework.ir.desc import BACKWARD
from opscope.framework.ir.names import SUM_OP
from opscope.framework.passes.backward import build_backward

ROWS = 3


def shared_net(uses: int) -> NetBuilder:
    """h = 0.9 (h + w), as often as that; the loss is the mean of the last one."""
    b = NetBuilder("shared")
    h = b.input("x", [ROWS, 4])
    w = b.parameter("w", [4], 0.5)
    for _ in range(uses):
        h = b.scale(b.add(h, w), scale=0.9)
    b.mean(h, name="loss")
    return b


def gradient_of_shared(uses: int) -> float:
    """What every element of the gradient of w is: each use passes on a power of 0.9."""
    return float(np.sum(0.9 ** np.arange(1, uses + 1))) / 4


@pytest.mark.parametrize("uses", [1, 33, 1000])
def test_one_parameter_of_many_operators_trains(uses):
    b, scope = shared_net(uses), Scope()
    b.backward_from("loss")
    b.add_optimization(0.1, "sgd")
    b.initialize(scope)
    b.run(scope, feed={"x": np.ones((ROWS, 4), np.float32)})
    expected = 0.5 - 0.1 * gradient_of_shared(uses)
    np.testing.assert_allclose(scope.numpy("w"), np.full(4, expected), rtol=1e-5)


@pytest.mark.slow
def test_thousands_of_uses_train():
    test_one_parameter_of_many_operators_trains(3_000)


@pytest.mark.parametrize("uses", [2, 32, 33, 65, 1025])
def test_sums_are_narrow_and_add_up_every_part_once(uses):
    ops = build_backward(shared_net(uses).op_list).ops
    sums = [op for op in ops if op.type == SUM_OP]
    assert all(2 <= len(op.inputs["x"]) <= 96 and op.role == BACKWARD for op in sums)
    made = [name for op in ops for name in op.output_names() if name.startswith("w@GRAD")]
    read = [name for op in sums for name in op.inputs["x"]]
    assert sorted(read) == sorted(set(made) - {"w@GRAD"}) and len(set(made)) == len(made)
    assert len(read) == uses + len(sums) - 1


def test_parts_are_summed_as_they_arrive():
    """Few of the parts of one gradient are in memory at the same time."""
    waiting: set[str] = set()
    most = 0
    for op in build_backward(shared_net(2000).op_list).ops:
        waiting.difference_update(op.input_names())
        waiting.update(name for name in op.output_names() if name.startswith("w@GRAD"))
        most = max(most, len(waiting))
    assert most <= 32 + 63


def test_a_sum_of_very_many_arrays():
    """It is left to its kernel: compilers take minutes for a loop over thousands of arrays."""
    b = NetBuilder("wide")
    b.sum([b.input("x", [ROWS]), b.input("y", [ROWS])] * 2500, name="z")
    feed = {"x": np.ones(ROWS, np.float32), "y": np.full(ROWS, 3, np.float32)}
    got = b.run(Scope(), feed=feed, fetch=["z"])
    np.testing.assert_array_equal(got["z"], np.full(ROWS, 10_000))


def test_the_terms_of_a_sum_are_one_level():
    tree = written_out(parse("2 * sum(x)"), {"x": 100_000})
    assert len(list(nodes(tree))) == 100_003
    assert cost(tree) == 100_000 and len(names(tree)) == 100_000
    assert written_out(parse("sum(x)"), {"x": 1}) == ("var", "x[0]")
