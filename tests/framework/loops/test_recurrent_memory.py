"""What runs of recurrent nets hold: as docs/architecture.md tells it, in numbers."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from opscope import NetBuilder, OpContext, Scope, Sequences
from opscope.framework.loops.recurrent.store import Arena

WIDTH, HIDDEN, BATCH, FLOAT = 8, 64, 4, 4
KEPT = FLOAT * (16 * HIDDEN + WIDTH)
"""Bytes that training an LSTM holds for each step of a sequence; see the worked example there."""


def run(steps: int, *, train: bool, trace: bool = False) -> tuple[int, int]:
    """Bytes of the arenas and, with `trace`, the most that was allocated during two runs."""
    b = NetBuilder("net")
    fetch = b.lstm(b.input("x", [-1, WIDTH], levels=1), HIDDEN)[0]
    if train:
        fetch = b.mean(b.square(fetch))
        b.backward_from(fetch)
        b.add_optimization(type="sgd", learning_rate=0.01)
    scope = Scope()
    b.initialize(scope)
    rows = np.random.default_rng(0).normal(size=(BATCH, steps, WIDTH)).astype(np.float32)
    b.feed(scope, {"x": Sequences.from_padded(rows, lengths=[steps] * BATCH)})
    net = b.bound_net(frozenset([fetch.name]), train)
    context = OpContext(train=train, live_out=[fetch.name])
    if trace:
        tracemalloc.start()
    try:
        for _ in range(2):
            net.run(scope, context)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    arenas = [value for value in scope.bound.values() if isinstance(value, Arena)]
    return sum(array.nbytes for arena in arenas for array in arena.arrays()), peak


@pytest.fixture(autouse=True)
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPSCOPE_RECURRENT", "fast")


def test_training_grows_by_the_same_bytes_with_each_step() -> None:
    first, second, third = (run(steps, train=True)[0] for steps in (200, 600, 1000))
    assert second - first == third - second == 400 * BATCH * KEPT


def test_a_forward_run_holds_the_same_whatever_the_steps() -> None:
    (first, low), (second, high) = (run(steps, train=False, trace=True) for steps in (400, 1600))
    assert first == second < 600 * KEPT
    links = FLOAT * HIDDEN + 8 * 8  # the out-link, and places of rows
    assert high - low < 1200 * BATCH * 2 * links
