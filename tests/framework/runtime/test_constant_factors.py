"""Weights that several products of a net share are packed once; the numbers stay the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import opscope
from opscope.operators.backends.bfloat16 import bf16_gemm

ROWS, WIDTH = 20, 32


def steps(monkeypatch: pytest.MonkeyPatch, amx: str, uses: int) -> tuple[Any, list[np.ndarray]]:
    """A net that multiplies with one matrix several times; its frame, and losses of 3 updates."""
    monkeypatch.setenv("OPSCOPE_AMX", amx)
    b = opscope.NetBuilder("shared")
    w = b.parameter("w", [WIDTH, WIDTH], "xavier")
    value = b.input("x", [-1, WIDTH])
    for _ in range(uses):
        value = b.tanh(b.matmul(value, w))
    cost = b.mean(b.square(value))
    b.backward_from(cost)
    b.add_optimization(type="sgd", learning_rate=0.5)
    scope = opscope.Scope()
    rng = np.random.default_rng(0)
    b.initialize(scope)
    scope.find("w").set(rng.normal(size=(WIDTH, WIDTH)).astype("f4") / 5)
    x = rng.normal(size=(ROWS, WIDTH)).astype("f4")
    found = [b.run(scope, feed={"x": x}, fetch=[cost, "w"]) for _ in range(3)]
    frame = scope.frames()[-1]
    predicted = b.run(scope, need_backward=False, feed={"x": x}, fetch=[value])
    forward = scope.frames()[-1]
    results = [value for one in (*found, predicted) for value in one.values()]
    return (frame, forward), results


@pytest.mark.skipif(bf16_gemm.library() is None, reason="there is no AMX")
def test_packed_once_in_a_run_that_does_not_write_them(monkeypatch: pytest.MonkeyPatch) -> None:
    (training, forward), found = steps(monkeypatch, "1", 5)
    assert training.prepared is None  # the run updates w
    assert len(forward.prepared.calls()) == 1
    (_, plain), wanted = steps(monkeypatch, "0", 5)
    assert not plain.prepared.calls()
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


@pytest.mark.skipif(bf16_gemm.library() is None, reason="there is no AMX")
def test_values_set_between_runs_are_packed_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPSCOPE_AMX", "1")
    b = opscope.NetBuilder("again")
    w = b.parameter("w", [WIDTH, WIDTH], "xavier")
    x = value = b.input("x", [-1, WIDTH])
    for _ in range(4):
        value = b.matmul(value, w)
    scope = opscope.Scope()
    b.initialize(scope)
    given = np.random.default_rng(0).normal(size=(ROWS, WIDTH)).astype("f4")
    for factor in (1.0, 0.5, -0.25):
        scope.find("w").set(np.eye(WIDTH, dtype="f4") * factor)
        found = b.run(scope, need_backward=False, feed={x: given}, fetch=[value])
        np.testing.assert_allclose(found[value.name], given * factor**4, rtol=1e-6)


def test_few_products_do_not_share(monkeypatch: pytest.MonkeyPatch) -> None:
    (_, forward), _ = steps(monkeypatch, "1", 2)
    assert forward.prepared is None
