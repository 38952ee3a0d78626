"""One net over many shapes: plans share their form, and compute what plans of their own do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from opscope import NetBuilder, Scope
from opscope.framework.runtime.fused import fuse
from shape_nets import results


@pytest.mark.parametrize("seed", range(6))
def test_shared_plans_compute_what_plans_of_their_own_do(seed: int) -> None:
    found, wanted = (results(seed, one_net=one) for one in (True, False))
    assert found.keys() == wanted.keys()
    for name, value in wanted.items():
        np.testing.assert_allclose(found[name], value, 1e-9, 1e-12, err_msg=name)


def test_operators_are_grouped_once_for_all_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = []
    group = fuse.group_chains

    def counted(*args: Any, **more: Any) -> Any:
        counts.append(1)
        return group(*args, **more)

    b = NetBuilder("rows")
    x = b.input("x", [-1, 6])
    out = b.relu(b.add(b.fc(x, size=6), b.sum(x, axes=[1], keepdims=True)))
    scope = Scope()
    b.initialize(scope)
    monkeypatch.setattr(fuse, "group_chains", counted)
    for rows in (5, 3, 8, 5, 1, 9, 1):
        b.run(scope, feed={"x": np.ones((rows, 6))}, fetch=[out])
    # Of one row each sum is a single number, which meets the loop in another way.
    assert len(counts) == 2
