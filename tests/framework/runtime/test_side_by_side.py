"""Loops that do not depend on each other run side by side."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from opscope.bridges.onnx.files.graph import Graph
from opscope.bridges.onnx.files.writing import model_bytes
from opscope.bridges.onnx.importing.model import model_of_bytes
from opscope.framework.fusion import team
from opscope.framework.runtime import side_by_side

LENGTHS = (70, 64, 33, 50, 40, 64, 1, 2, 64)
"""The first one binds the steps; the loop of long others is a list of its own."""

pytestmark = pytest.mark.skipif(team.library() is None, reason="there is no native library")


def layers(count: int, direction: str, kind: str = "LSTM", **attrs: int) -> bytes:
    """Recurrent layers over x [T, 1, 6], one after the other."""
    g, rng = Graph("layers", 17), np.random.default_rng(0)
    x, ways = g.input("x", np.float32, ["T", 1, 6]), 2 if direction == "bidirectional" else 1
    for size in (6, 5 * ways)[:count]:
        rows = {"LSTM": 20, "GRU": 15, "RNN": 5}[kind]
        w, r = (g.constant(rng.normal(size=(ways, rows, k)).astype("f4")) for k in (size, 5))
        y = g.node(kind, [x, w, r], hidden_size=5, direction=direction, **attrs)
        rows = g.node("Transpose", [y], perm=[0, 2, 1, 3])
        x = g.node("Reshape", [rows, g.constant(np.array([0, 0, -1]))])
    g.output(x, np.float32)
    return model_bytes(g)


def run(data: bytes, threads: int, monkeypatch: pytest.MonkeyPatch) -> tuple[list[Any], list[int]]:
    """The results for all lengths, and how many lists were done side by side, each time."""
    counts: list[int] = []
    beside = side_by_side.beside
    with monkeypatch.context() as patch:
        patch.setattr(side_by_side, "most_threads", lambda: threads)
        patch.setattr(side_by_side, "beside", lambda all: counts.append(len(all)) or beside(all))
        model, rng = model_of_bytes(data), np.random.default_rng(1)
        found = [model.run({"x": rng.normal(size=(n, 1, 6)).astype("f4")}) for n in LENGTHS]
    return [next(iter(one.values())) for one in found], counts


def fresh(data: bytes, number: int) -> Any:
    """The result for one of the lengths, which a model is given that has seen no other."""
    model, rng = model_of_bytes(data), np.random.default_rng(1)
    every = [rng.normal(size=(n, 1, 6)).astype("f4") for n in LENGTHS]
    return next(iter(model.run({"x": every[number]}).values()))


GRU = {"kind": "GRU", "linear_before_reset": 1}


@pytest.mark.parametrize("kind", [{}, GRU, {**GRU, "linear_before_reset": 0}, {"kind": "RNN"}])
@pytest.mark.parametrize("count", [1, 2])
def test_both_directions_of_a_layer(
    kind: dict[str, Any], count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = layers(count, "bidirectional", **kind)
    alone, none = run(data, 1, monkeypatch)
    found, counts = run(data, 2, monkeypatch)
    assert not none
    assert counts and set(counts) == {2} and len(counts) % count == 0
    for number, (one, other) in enumerate(zip(found, alone, strict=True)):
        np.testing.assert_array_equal(one, other)
        np.testing.assert_array_equal(one, fresh(data, number))


def test_a_loop_that_reads_what_another_one_gives(monkeypatch: pytest.MonkeyPatch) -> None:
    data = layers(2, "forward")
    alone, _ = run(data, 1, monkeypatch)
    found, counts = run(data, 2, monkeypatch)
    assert not counts
    for one, other in zip(found, alone, strict=True):
        np.testing.assert_array_equal(one, other)
