"""Random nets for images of any number and size, and their results over a sequence of shapes."""

from __future__ import annotations

from typing import Any

import numpy as np

from opscope import NetBuilder, OpContext, Scope
from opscope.framework.runtime.net import Net

CHANNELS = 4


def drawn_net(rng: np.random.Generator) -> tuple[NetBuilder, list[str]]:
    """A net with gradients, and the names of its results."""
    b = NetBuilder("shapes", "float64")
    h: Any = b.mul(b.input("x", [-1, CHANNELS, -1, -1]), b.parameter("w", [CHANNELS, 1, 1]))
    found: list[Any] = []
    for number in range(int(rng.integers(2, 6))):
        way = int(rng.integers(6))
        if way == 0:
            stride = int(rng.choice([1, 1, 2]))
            kernel = int(rng.choice([1, 3]))
            h = b.conv2d(h, filters=CHANNELS, kernel=kernel, padding=1, stride=stride)
            h = b.max_pool2d(h, kernel=[2, 2]) if rng.random() < 0.3 else h
        elif way == 1:
            h = b.add(h, b.mean(h, axes=[2, 3], keepdims=True))
        elif way == 2:
            h = b.mul(h, b.parameter(f"scale{number}", [CHANNELS, 1, 1]))
        elif way == 3:
            h = b.conv2d(b.concat([h, b.tanh(h)], axis=1), filters=CHANNELS, kernel=1)
        elif way == 4:
            h = b.sub(h, b.softmax(h))
        else:
            h = b.mul(b.relu(h), b.sigmoid(h))
        found.append(h)
    loss = b.mean(b.mul(h, h))
    b.backward_from(loss)
    return b, [one.name for one in (*found, loss)] + list(b.gradients.values())


def drawn_shapes(rng: np.random.Generator) -> list[tuple[int, int, int]]:
    """Batch, height and width of each run: some come again, some have sizes that are equal."""
    drawn = [tuple(rng.integers(2, 9, 3).tolist()) for _ in range(4)]
    return [*drawn, (1, 4, 5), (3, 2, 2), drawn[0], (4, 4, 4), drawn[2]]


def results(seed: int, *, one_net: bool) -> dict[str, np.ndarray]:
    """All results for all shapes: of one net in one scope, or of a net of its own for each."""
    rng = np.random.default_rng(seed)
    b, names = drawn_net(rng)
    scope = Scope()
    b.initialize(scope, OpContext(seed=seed))
    values = {var.name: scope.numpy(var.name) for var in b.op_list.vars if var.name in scope}
    net = Net.create(b.net.op_list)
    found = {}
    for number, (batch, height, width) in enumerate(drawn_shapes(rng)):
        if not one_net:
            scope, net = Scope(), Net.create(b.net.op_list)
            scope.feed(values)
        scope.feed({"x": rng.normal(size=(batch, CHANNELS, height, width))})
        net.run(scope, OpContext(live_out=names))
        found |= {f"{name}, run {number}": scope.numpy(name) for name in names}
    return found
