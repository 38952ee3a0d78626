"""Variables in one piece of memory: none lies on another that lives, and the piece is small."""

from __future__ import annotations

import numpy as np
import pytest

from opscope import NetBuilder, OpContext, Scope
from opscope.framework.runtime.plain_net import PlainNet
from opscope.framework.runtime.plans.packing import in_a_row, pack


@pytest.mark.parametrize("seed", range(20))
def test_none_lies_on_another(seed: int) -> None:
    rng = np.random.default_rng(seed)
    count = int(rng.integers(1, 60))
    sizes = (256 * rng.integers(0, 100, count)).tolist()
    first = rng.integers(0, 50, count)
    lives = list(zip(first.tolist(), (first + rng.integers(0, 20, count)).tolist(), strict=True))
    starts, total = pack(sizes, lives)
    assert max(s + n for s, n in zip(starts, sizes, strict=True)) <= total
    for one in range(count):
        for other in range(one):
            together = lives[one][0] <= lives[other][1] and lives[other][0] <= lives[one][1]
            apart = (
                starts[one] + sizes[one] <= starts[other]
                or starts[other] + sizes[other] <= starts[one]
            )
            assert apart or not together
    live = [
        sum(n for n, (a, b) in zip(sizes, lives, strict=True) if a <= t <= b) for t in range(70)
    ]
    assert max(live) <= total <= 1.35 * max(live) + 2**12


def test_nothing() -> None:
    assert pack([], []) == ([], 0)
    assert in_a_row([]) == []
    assert in_a_row([1, 300, 0]) == [0, 256, 768]
    assert pack([0, 0], [(0, 1), (0, 1)])[1] == 0


def test_a_packed_net_computes_the_same_in_less_memory() -> None:
    b, scope = NetBuilder("chain"), Scope()
    h = b.input("x", [-1, 32])
    for size in (64, 128, 256, 64, 32):
        h = b.fc(h, size=size, activation="tanh")
    b.mean(b.square(h), name="loss")
    b.backward_from("loss")
    b.initialize(scope, OpContext(seed=1))
    packed = PlainNet(b.op_list, check=False, packed=True)
    context = OpContext(live_out=["loss", "fc_0.w@GRAD"])
    found = {}
    for rows in (40, 64, 40):
        scope.feed({"x": np.random.default_rng(rows).normal(size=(rows, 32)).astype(np.float32)})
        for net in (b.net, packed):
            net.run(scope, context)
            found[net] = scope.numpy("loss").copy(), scope.numpy("fc_0.w@GRAD").copy()
        np.testing.assert_array_equal(found[b.net][0], found[packed][0])
        np.testing.assert_array_equal(found[b.net][1], found[packed][1])
        plans = [net.plan(scope, context) for net in (b.net, packed)]
        assert plans[1].temporaries <= plans[0].temporaries
