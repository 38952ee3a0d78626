"""A line that fails leaves the net as it was, so that it may be mended and tried again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from opscope import NetBuilder, OpscopeError, Scope

CALLS: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "conv2d": (
        lambda b: b.conv2d("image", 4, 30, name="c"),
        lambda b: b.conv2d("image", 4, 3, name="c"),
    ),
    "fc": (
        lambda b: b.fc("rows", 4, activation="matmul", name="c"),
        lambda b: b.fc("rows", 4, activation="relu", name="c"),
    ),
    "batch_norm": (
        lambda b: b.batch_norm("image", momentum=3.0, name="c"),
        lambda b: b.batch_norm("image", momentum=0.3, name="c"),
    ),
    "lstm": (
        lambda b: b.lstm("rows", 3, layers=2, dropout=3.0, name="c"),
        lambda b: b.lstm("rows", 3, layers=2, dropout=0.3, name="c")[0],
    ),
    "transformer": (
        lambda b: b.transformer_encoder("padded", layers=2, heads=2, dropout=3.0, name="c"),
        lambda b: b.transformer_encoder("padded", layers=2, heads=2, name="c"),
    ),
    "loss": (
        lambda b: b.cross_entropy_loss("rows", "label", weight=[1.0], name="c"),
        lambda b: b.cross_entropy_loss("rows", "label", weight=[1.0] * 4, name="c"),
    ),
}


@pytest.fixture
def b() -> NetBuilder:
    b = NetBuilder("net")
    b.input("image", [-1, 3, 8, 8])
    b.input("rows", [-1, 4], levels=1)
    b.input("padded", [-1, -1, 4])
    b.input("label", [-1], "int64")
    return b


@pytest.mark.parametrize("name", CALLS)
def test_a_layer_that_fails_leaves_nothing_behind(name: str, b: NetBuilder) -> None:
    wrong, right = CALLS[name]
    before, net = b.desc.SerializeToString(), b.forward_net
    with pytest.raises(OpscopeError):
        wrong(b)
    assert b.desc.SerializeToString() == before
    assert b.forward_net is net
    assert right(b).name == "c"  # its names are free


def test_a_layer_that_fails_in_a_step_leaves_the_step_as_it_was(b: NetBuilder) -> None:
    with b.recurrent("r") as step:
        row, h = step.input("rows"), step.memory(3)
        with pytest.raises(OpscopeError):
            b.fc([row, h], 3, activation="matmul", name="c")
        new = b.fc([row, h], 3, activation="tanh", name="c")
        step.update(h, new)
        out = step.output(new)
    feed = {"rows": [np.ones((2, 4)), np.ones((3, 4))]}
    assert b.run(Scope(), feed=feed, fetch=out, need_backward=False)[out.name].shape == (5, 3)


def test_what_ran_before_runs_after_a_line_that_failed(b: NetBuilder) -> None:
    y, scope = b.fc("padded", 2, name="y"), Scope()
    feed = {"padded": np.ones((1, 2, 4))}
    first = b.run(scope, feed=feed, fetch=y)["y"]
    with pytest.raises(OpscopeError):
        b.conv2d("image", 4, 30)
    np.testing.assert_array_equal(b.run(scope, feed=feed, fetch=y)["y"], first)
    assert scope.names() == ["y.w", "y.b", "padded", "y"]
