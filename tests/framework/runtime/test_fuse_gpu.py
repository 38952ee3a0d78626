"""Fused chains on the stand-in of CuPy: numbers, overlapping arrays, kernels with many arrays."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from fuse_ops import fuse_operators
from opscope.framework.base.backend import on_device
from opscope.framework.base.context import OpContext
from opscope.framework.base.scope import Scope
from opscope.framework.fusion.scalars.codegen import MOST_ARRAYS
from opscope.framework.runtime.plain_net import PlainNet
from opscope.testing.device_double import DOUBLE, instead_of_cupy, xp


@pytest.fixture(autouse=True)
def on_the_double() -> Iterator[None]:
    with fuse_operators(), instead_of_cupy():
        yield


def chain(*ops: tuple[str, str, str]) -> PlainNet:
    net = PlainNet()
    for op_type, inputs, out in ops:
        names = inputs.split()
        net.add_op(op_type, dict(zip("xy", names, strict=False)), {"out": out})
    return net


def ran(net: PlainNet, feed: dict[str, Any], place: Any = None) -> Scope:
    scope = Scope(place)
    scope.feed(feed)
    net.run(scope)
    return scope


def sizes(net: PlainNet, scope: Scope) -> list[int]:
    return [len(step.operators) for step in net.frame(scope, OpContext()).plan.steps]


def test_numbers() -> None:
    rng = np.random.default_rng(0)
    feed = {"a": rng.normal(size=(5, 7)), "b": rng.normal(size=7), "c": rng.normal(size=(5, 1))}
    net = chain(
        ("fz_add", "a b", "t"), ("fz_tanh", "t", "u"), ("fz_mul", "u c", "v"), ("fz_elu", "v", "w")
    )
    scope = ran(net, feed, DOUBLE)
    assert sizes(net, scope) == [4]
    np.testing.assert_allclose(scope.numpy("w"), ran(net, feed).numpy("w"), rtol=1e-12)


def test_arrays_that_overlap_are_run_one_by_one() -> None:
    net, scope = chain(("fz_half", "a", "t"), ("fz_add", "t b", "b")), Scope(DOUBLE)
    with on_device(DOUBLE):
        memory = xp.arange(12, dtype=np.float32)
        scope.var("a").bind(memory[:8])
        scope.var("b").bind(memory[4:])
    net.run(scope)
    assert sizes(net, scope) == [1, 1]
    held = np.arange(12, dtype=np.float32)
    np.testing.assert_array_equal(scope.numpy("b"), held[:8] / 2 + held[4:])


def test_a_kernel_has_so_many_arrays_and_no_more() -> None:
    feed = {f"a{i}": np.full(3, i, np.float32) for i in range(40)} | {"t0": np.zeros(3, np.float32)}
    net = chain(*(("fz_add", f"t{i} a{i}", f"t{i + 1}") for i in range(40)))
    scope = ran(net, feed, DOUBLE)
    assert scope.numpy("t40").tolist() == [780] * 3
    found = sizes(net, scope)
    assert max(found) * 2 + 1 <= MOST_ARRAYS["gpu"] < max(found) * 2 + 3 and sum(found) == 40
