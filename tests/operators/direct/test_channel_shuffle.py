"""Channels that groups exchange, and ranges of channels that are read where they lie."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import opscope
from opscope.framework.fusion import chains

pytestmark = pytest.mark.skipif(not chains.available(), reason="there is no native library")

PERM = [0, 2, 1, 3, 4]


def exchanged(b: Any, x: Any, groups: int, perm: Any = PERM) -> tuple[Any, Any]:
    """What the exchange gives, and what it computes first."""
    n, channels, high, wide = x.shape
    cut = b.reshape(x, shape=[n, groups, channels // groups, high, wide])
    shape = [n, channels, *((high, wide) if perm == PERM else (wide, high))]
    return b.reshape(b.transpose(cut, perm=perm), shape=shape), cut


def run(build: Any, shape: tuple[int, ...], dtype: str, **how: Any) -> tuple[Any, list[np.ndarray]]:
    """The plan of a net over images, and its results."""
    b = opscope.NetBuilder("net", dtype=dtype)
    outs = build(b, b.input("x", list(shape), dtype))
    scope = opscope.Scope()
    b.initialize(scope)
    rng = np.random.default_rng(0)
    for name in sorted(name for name in scope.names() if scope.var(name).shape is not None):
        scope.var(name).set(rng.normal(size=scope.var(name).shape).astype(dtype))
    names = [out.name for out in outs]
    with opscope.options(**how):
        context = opscope.OpContext(train=False, live_out=names)
        for _ in range(2):
            scope.var("x").set(rng.normal(size=shape).astype(dtype))
            b.bound_net(frozenset(names), False).run(scope, context)
    return scope.frames()[-1].plan, [np.array(scope.var(name).array) for name in names]


def spanned(plan: Any) -> int:
    return sum(
        [op.type for op in step.operators] == ["reshape", "transpose", "reshape"]
        for step in plan.steps
    )


def check(build: Any, shape: tuple[int, ...], count: int, dtype: str = "float32") -> Any:
    plan, found = run(build, shape, dtype)
    _, wanted = run(build, shape, dtype, libraries="xp", channels_last=False, fuse=False)
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4 * np.abs(other).max(initial=1))
    assert spanned(plan) == count
    return plan


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    "shape, channels, groups",
    [
        ((1, 3, 28, 28), 48, 2),
        ((2, 8, 14, 15), 50, 2),
        ((1, 8, 20, 20), 14, 2),
        ((1, 8, 12, 12), 60, 3),
        ((1, 8, 30, 30), 8, 8),
        ((3, 8, 1, 1), 24, 2),
        ((1, 8, 40, 40), 6, 1),
    ],
)
def test_between_convolutions(shape: Any, channels: int, groups: int, dtype: str) -> None:
    def build(b: Any, x: Any) -> Any:
        y = b.conv2d(x, filters=channels, kernel=1)
        return [b.conv2d(exchanged(b, y, groups)[0], filters=16, kernel=1)]

    plan = check(build, shape, 1, dtype)
    (step,) = [step for step in plan.steps if len(step.operators) == 3]
    if shape[2:] != (1, 1):
        assert {*step.reads, *step.writes} <= plan.channels_last


def test_planes_that_no_convolution_reads() -> None:
    check(lambda b, x: [exchanged(b, b.tanh(x), 2)[0]], (1, 8, 40, 40), 1)


def test_what_is_read_on_the_way_is_computed() -> None:
    def build(b: Any, x: Any) -> Any:
        y, cut = exchanged(b, b.conv2d(x, filters=16, kernel=1), 2)
        return [b.conv2d(y, filters=16, kernel=1), b.tanh(cut)]

    check(build, (1, 8, 9, 9), 0)


def test_axes_in_another_order() -> None:
    def build(b: Any, x: Any) -> Any:
        y = b.conv2d(x, filters=16, kernel=1)
        return [b.conv2d(exchanged(b, y, 2, [0, 2, 1, 4, 3])[0], filters=16, kernel=1)]

    check(build, (1, 8, 9, 7), 0)


def test_groups_of_rows() -> None:
    """As many axes as groups of channels have, but other elements."""

    def build(b: Any, x: Any) -> Any:
        y = b.conv2d(x, filters=4, kernel=1)
        cut = b.transpose(b.reshape(y, shape=[3, 8, 2, 4, 4]), perm=PERM)
        return [b.conv2d(b.reshape(cut, shape=[6, 8, 4, 4]), filters=8, kernel=1)]

    check(build, (3, 8, 8, 8), 1)  # the kernel declines: the operators run one by one


def block(b: Any, x: Any) -> Any:
    """A block of a ShuffleNet: half of the channels pass by a convolution."""
    first = b.slice(x, axes=[1], starts=[0], ends=[24])
    rest = b.conv2d(b.slice(x, axes=[1], starts=[24]), filters=24, kernel=3, padding="same")
    return exchanged(b, b.concat([first, rest], axis=1), 2)[0]


def test_ranges_that_convolutions_and_joins_read_are_no_copies() -> None:
    def build(b: Any, x: Any) -> Any:
        y = b.relu(b.conv2d(x, filters=48, kernel=1))
        return [b.conv2d(block(b, block(b, y)), filters=16, kernel=1)]

    plan = check(build, (2, 8, 14, 14), 2)
    ranges = [step.writes[0] for step in plan.steps if step.operators[0].type == "slice"]
    assert len(ranges) == 4 and plan.parts.keys() >= set(ranges)


@pytest.mark.parametrize(
    "how", [{"starts": [3], "ends": [19]}, {"starts": [-16]}, {"starts": [0], "ends": [-30]}]
)
def test_a_range(how: dict[str, Any]) -> None:
    def build(b: Any, x: Any) -> Any:
        y = b.conv2d(x, filters=40, kernel=1)
        return [b.conv2d(b.slice(y, axes=[1], **how), filters=16, kernel=3)]

    plan = check(build, (2, 8, 9, 9), 0)
    assert len(plan.parts) == 1


@pytest.mark.parametrize(
    "how",
    [
        {"axes": [1], "starts": [0], "ends": [40], "steps": [2]},
        {"axes": [1], "starts": [39], "ends": [0], "steps": [-1]},
        {"axes": [2], "starts": [1], "ends": [6]},
        {"axes": [1, 3], "starts": [0, 1], "ends": [16, 8]},
    ],
)
def test_what_is_no_range_of_channels_is_copied(how: dict[str, Any]) -> None:
    def build(b: Any, x: Any) -> Any:
        y = b.conv2d(x, filters=40, kernel=1)
        return [b.conv2d(b.slice(y, **how), filters=16, kernel=3)]

    assert not check(build, (2, 8, 9, 9), 0).parts


def test_a_range_that_other_operators_read_is_copied() -> None:
    def build(b: Any, x: Any) -> Any:
        y = b.conv2d(x, filters=32, kernel=1)
        some = b.slice(y, axes=[1], starts=[8])
        return [b.conv2d(some, filters=16, kernel=3), b.softmax(some, axis=3)]

    assert not check(build, (2, 8, 9, 9), 0).parts
