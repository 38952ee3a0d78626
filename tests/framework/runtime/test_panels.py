"""Memory for packed factors that the products of a frame share."""

import numpy as np
import pytest

import opscope
from opscope.framework.fusion import team
from opscope.framework.fusion.rows import row_blocks
from opscope.framework.fusion.rows.row_blocks import ByRows, Span
from opscope.framework.runtime.plans import memory
from opscope.operators.backends.bfloat16 import bf16_gemm

needs_compiler = pytest.mark.skipif(team.library() is None, reason="there is no native library")
needs_amx = pytest.mark.skipif(bf16_gemm.library() is None, reason="there is no AMX")


def _overlap(a, b) -> bool:
    return np.shares_memory(a, b)


def test_outside_of_frames_memory_is_a_product_s_own():
    first, second = memory.panel_memory(100), memory.panel_memory(100)
    assert not _overlap(first, second)
    assert first.ctypes.data % 64 == 0


def test_one_after_another_they_share(monkeypatch):
    monkeypatch.setenv("OPSCOPE_REUSE", "1")
    with memory.shared_panels():
        first, second, larger = (memory.panel_memory(size) for size in (100, 80, 1000))
        with memory.shared_panels():  # of an inner frame
            inner = memory.panel_memory(100)
        again = memory.panel_memory(100)
    assert _overlap(first, second) and second.nbytes == 80
    assert not _overlap(first, larger) and _overlap(again, larger)
    assert not _overlap(inner, again)
    assert not _overlap(memory.panel_memory(100), again)


def test_in_turn_those_that_may_be_joined_have_their_own(monkeypatch):
    monkeypatch.setenv("OPSCOPE_REUSE", "1")
    with memory.shared_panels():
        taken = [memory.panel_memory(64, in_turn=True) for _ in range(row_blocks.MOST_ITEMS + 1)]
        other = memory.panel_memory(64)
    starts = [one.ctypes.data for one in taken]
    assert len(set(starts[:-1])) == row_blocks.MOST_ITEMS and starts[-1] == starts[0]
    assert other.ctypes.data not in starts


def test_without_reuse_nothing_is_shared(monkeypatch):
    monkeypatch.setenv("OPSCOPE_REUSE", "0")
    with memory.shared_panels():
        assert not _overlap(memory.panel_memory(100), memory.panel_memory(100))


def test_memory_of_a_key_is_shared_while_a_view_of_it_is_there(monkeypatch):
    monkeypatch.setenv("OPSCOPE_REUSE", "1")
    panels = memory.Panels()
    made = []

    def asked(key: str) -> np.ndarray:
        with memory.shared_panels(panels):
            found = memory.memory_of(key, lambda: made.append(key) or team.aligned(100))
        assert found.nbytes == 100 and found.ctypes.data % 64 == 0
        return found.view(np.float32)[5:]

    first, other = asked("a"), asked("b")
    assert asked("a").ctypes.data == first.ctypes.data and not _overlap(first, other)
    assert made == ["a", "b"]
    del first
    asked("a")
    assert made == ["a", "b", "a"]


def test_products_that_share_are_not_joined():
    def part(at: int, panel: int) -> ByRows:
        rows = (Span(at, 64, 64),)
        return ByRows(1024, ((1, 2),), rows, rows, None, ((3, 4),), (), (Span(panel, 0, 100),))

    assert row_blocks.join([part(0, 1 << 20), part(1 << 24, (1 << 20) + 100)]) is not None
    assert row_blocks.join([part(0, 1 << 20), part(1 << 24, (1 << 20) + 99)]) is None


def _deep(layers: int, x: np.ndarray) -> tuple[np.ndarray, float]:
    """The result of many layers and the sum of a gradient."""
    b = opscope.NetBuilder("deep")
    hidden = b.input("x", [-1, x.shape[1]])
    for number in range(layers):
        hidden = b.fc(hidden, size=64 if number % 3 else 96, activation="tanh")
    cost = b.mean(b.square(hidden), name="cost")
    b.backward_from(cost)
    scope = opscope.Scope()
    b.initialize(scope, context=opscope.OpContext(seed=7))
    gradient = next(name for name in b.net.vars if name.endswith(".w@GRAD"))
    found = b.run(scope, feed={"x": x}, fetch=[hidden.name, gradient])
    return np.array(found[hidden.name]), np.array(found[gradient])


@needs_compiler
@pytest.mark.parametrize("count", [1, 2])
def test_deep_nets_are_equal(monkeypatch, count):
    """More products than memory in turn, forward in blocks of rows."""
    x = np.random.default_rng(0).standard_normal((512, 64)).astype(np.float32)
    found = {}
    with opscope.framework.base.cpu.threads.threads_set(count):
        for reuse in "01":
            monkeypatch.setenv("OPSCOPE_REUSE", reuse)
            found[reuse] = _deep(30, x)
    for off, on in zip(found["0"], found["1"], strict=True):
        np.testing.assert_array_equal(on, off)


@needs_amx
def test_memory_does_not_grow_with_the_products(monkeypatch):
    monkeypatch.setenv("OPSCOPE_REUSE", "1")
    taken: set[int] = set()
    take = memory.Panels.take

    def recorded(own, size, *, in_turn):
        found = take(own, size, in_turn=in_turn)
        taken.add(found.ctypes.data)
        return found

    monkeypatch.setattr(memory.Panels, "take", recorded)
    x = np.random.default_rng(0).standard_normal((512, 64)).astype(np.float32)
    for layers in (30, 60):
        taken.clear()
        _deep(layers, x)
        assert 0 < len(taken) <= 2 * (row_blocks.MOST_ITEMS + 1)  # some memory grows once
