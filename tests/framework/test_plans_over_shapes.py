"""One net over many shapes: plans share their form, and compute what plans of their own do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import sequence_nets
from opscope import NetBuilder, Scope, set_threads
from opscope.framework.loops.recurrent import loop
from opscope.framework.runtime import executor
from opscope.framework.runtime.fused import fuse
from opscope.framework.runtime.plans import plan
from shape_nets import results


@pytest.mark.parametrize("seed", range(6))
def test_shared_plans_compute_what_plans_of_their_own_do(seed: int) -> None:
    found, wanted = (results(seed, one_net=one) for one in (True, False))
    assert found.keys() == wanted.keys()
    for name, value in wanted.items():
        np.testing.assert_allclose(found[name], value, 1e-9, 1e-12, err_msg=name)


@pytest.mark.parametrize(("seed", "dtype"), [(n, f"float{32 + 32 * (n % 2)}") for n in range(6)])
def test_nets_over_sequences_compute_what_nets_of_their_own_do(
    seed: int, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    try:
        set_threads(1 + seed // 2 % 2)
        wanted = sequence_nets.results(seed, dtype, one_net=False)
        # All steps are traced, and what is computed is compared with what rules and kernels give.
        monkeypatch.setattr(executor, "_SLOW", 0.0)
        monkeypatch.setattr(loop, "MANY", 2)
        monkeypatch.setenv("OPSCOPE_VERIFY", "1")
        found = sequence_nets.results(seed, dtype, one_net=True)
    finally:
        set_threads(None)
    assert found.keys() == wanted.keys()
    for name, value in wanted.items():
        assert found[name].tobytes() == value.tobytes(), name


def test_shapes_of_batches_are_inferred_for_few_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    b = NetBuilder("tagger")
    h, _ = b.lstm(b.embedding(b.input("words", [-1], "int64", levels=1), [9, 8]), 8)
    h = b.transformer_encoder_layer(h, heads=2, dropout=0.0)
    b.mean(b.sequence_pool(h), name="loss")
    b.backward_from("loss")
    scope, rng = Scope(), np.random.default_rng(0)
    b.initialize(scope)
    asked: list[int] = []
    infer = plan.infer_specs

    def counted(operators: Any, *args: Any, **more: Any) -> Any:
        asked.extend([1] if len(operators) > 20 else [])  # not of a step of a loop
        return infer(operators, *args, **more)

    monkeypatch.setenv("OPSCOPE_VERIFY", "0")
    monkeypatch.setattr(plan, "infer_specs", counted)
    counts = []
    for number in range(16):  # now one sequence is the longest, now two are
        lengths = [*[17] * (1 + number % 2), *rng.integers(2, 17, 5)]
        given = [np.zeros(n, np.int64) for n in lengths]
        b.run(scope, feed={"words": given}, fetch=["loss"])
        counts.append(len(asked))
    assert counts[7] == counts[-1]


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
