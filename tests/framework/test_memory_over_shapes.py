"""Memory stays where it is while inputs come in ever new shapes: caches are bounded by bytes."""

from __future__ import annotations

import gc
import tracemalloc
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import opscope
from opscope import NetBuilder, Scope
from opscope.framework.base.errors import RunError
from opscope.framework.base.python import bounded_cache
from opscope.framework.base.python.bounded_cache import BoundedCache
from opscope.framework.runtime.plain_net import PlainNet
from opscope.framework.runtime.plans.memory import Workspace
from opscope.nnet3 import ChunkComputer, ChunkOptions, Nnet

SHAPES, EARLY = 150, 60
"""Shapes in all, and those after which all caches are full; 1,000 are in test_onnx_shapes.py."""


def idle_bytes() -> int:
    """What all caches keep for shapes other than the last ones."""
    return bounded_cache._IDLE.nbytes


class Held:
    """Something that a cache keeps, and that refers to itself."""

    def __init__(self, nbytes: int) -> None:
        self.nbytes, self.own = nbytes, self
        self.released = False

    def release(self) -> None:
        self.released, self.own = True, None


def size(held: Held) -> int:
    return held.nbytes


@pytest.fixture
def small_limit(monkeypatch: pytest.MonkeyPatch) -> int:
    """A limit of 1,000 bytes, as if no other test had left anything."""
    monkeypatch.setattr(bounded_cache, "_IDLE", bounded_cache._IdleValues())
    most = 1000
    monkeypatch.setenv("OPSCOPE_LIMITS", f"cache={most}")
    return most


def test_all_caches_share_one_limit(small_limit: int) -> None:
    before = idle_bytes()
    first: BoundedCache[int, Held] = BoundedCache(nbytes=size)
    second: BoundedCache[int, Held] = BoundedCache(nbytes=size, release=Held.release)
    huge = first.add(0, Held(10**12))
    assert idle_bytes() == before  # it is in use
    first.drop(0)
    del huge
    for number in range(4):
        first.add(number, Held(300))
    assert (len(first), idle_bytes() - before) == (4, 900)
    kept = second.add(0, Held(200))
    second.add(1, Held(200))
    assert idle_bytes() <= small_limit
    assert (first.get(0), kept.released, len(second)) == (None, False, 2)  # the oldest of all went
    assert first.get(1) is not None  # from now on the last one
    for number in range(2, 9):
        second.add(number, Held(200))
    assert (kept.released, len(second), len(first)) == (True, 6, 1)
    del first, second
    gc.collect()
    assert idle_bytes() == before


def test_what_is_used_again_is_not_counted(small_limit: int) -> None:
    before = idle_bytes()
    cache: BoundedCache[str, Held] = BoundedCache(nbytes=size)
    a, b = cache.add("a", Held(400)), cache.add("b", Held(600))
    for _ in range(3):
        assert (cache.get("a"), cache.get("b")) == (a, b)
    assert idle_bytes() - before == 400
    cache.drop_where(lambda held: held is a)
    assert (idle_bytes(), cache.get("a")) == (before, None)


def test_what_was_given_up_is_free_at_once(small_limit: int) -> None:
    cache: BoundedCache[int, Held] = BoundedCache(1, size, Held.release)
    gone = weakref.ref(cache.add(0, Held(1)))
    gc.disable()
    try:
        cache.add(1, Held(1))
        assert gone() is None
    finally:
        gc.enable()


def test_a_frame_with_large_inputs_gives_its_room_to_the_next_one(small_limit: int) -> None:
    b, scope = NetBuilder("n"), Scope()
    b.relu(b.input("x", [-1, 1000]), name="y")
    for rows in (40, 20, 40):  # more than 64 KB: inputs are bound, not copied
        given = np.ones((rows, 1000), np.float32)
        made = b.run(scope, feed={"x": given}, fetch=["y"], need_backward=False)["y"]
        assert made.shape == (rows, 1000)


def test_blocks_that_were_too_small_are_given_up() -> None:
    b, scope = NetBuilder("n"), Scope()
    x = b.input("x", [-1, 50])
    b.matmul(b.exp(b.matmul(x, b.parameter("w", [50, 50]))), b.parameter("u", [50, 50]), name="y")
    b.initialize(scope)
    for rows in (10, 20, 400, 15, 10):
        given = np.full((rows, 50), 0.1, np.float32)
        made = b.run(scope, feed={"x": given}, fetch=["y"], need_backward=False)["y"]
        assert made.shape == (rows, 50) and np.ptp(made, axis=0).max() < 1e-6
        assert not any(frame.is_outgrown for frame in scope.frames())
    (workspace,) = scope.bound["workspaces"].values()
    assert isinstance(workspace, Workspace) and len(workspace.blocks) <= 2
    assert sum(block.nbytes for block in workspace.blocks.values()) < 2.5 * 400 * 50 * 4


def test_parameters_that_all_shapes_update_are_not_counted_for_each() -> None:
    b, scope = NetBuilder("n"), Scope()
    cost = b.mean(b.fc(b.input("x", [-1, 200]), size=200))
    b.backward_from(cost)
    b.add_optimization(0.1, "sgd")
    for rows in (3, 2):
        b.run(scope, feed={"x": np.ones((rows, 200), np.float32)}, fetch=[cost])
    assert len(scope.frames()) == 2
    assert all(frame.nbytes < 200 * 200 * 4 for frame in scope.frames())


def test_a_net_may_be_kept_for_few_shapes() -> None:
    net, scope = PlainNet(most_shapes=2), Scope()
    net.add_op("relu", ["x"], ["y"])
    for rows in (3, 4, 5):
        scope.var("x").set(np.ones(rows, np.float32))
        net.run(scope)
    assert [frame.arrays["y"].shape for frame in scope.frames()] == [(4,), (5,)]


def test_a_frame_that_was_given_up_says_so() -> None:
    b, scope = NetBuilder("n"), Scope()
    b.relu(b.input("x", [-1]), name="y")
    b.run(scope, feed={"x": np.ones(3, np.float32)}, need_backward=False)
    (frame,) = scope.frames()
    frame.release()
    with pytest.raises(RunError, match="given up for frames of other shapes"):
        frame.run(opscope.OpContext())
    assert b.run(scope, feed={"x": np.ones(3, np.float32)}, fetch=["y"], need_backward=False)


# -- many shapes -------------------------------------------------------------------------------


def ragged() -> Callable[[int], object]:
    """A recurrent net over batches of sentences."""
    b, scope, rng = NetBuilder("tagger"), Scope(), np.random.default_rng(0)
    words = b.input("words", [-1], "int64", levels=1)
    out, _ = b.gru(b.embedding(words, [50, 8]), 8)
    b.fc(out, size=5, name="tags")
    b.initialize(scope)

    def run(number: int) -> object:
        lengths = rng.permutation(8)[: 2 + number % 3] + 1 + number % 7
        given = [np.zeros(length, np.int64) for length in (*lengths, 1 + number % 11)]
        return b.run(scope, feed={"words": given}, fetch=["tags"], need_backward=False)

    return run


def rows() -> Callable[[int], object]:
    """A net over batches with ever other numbers of rows."""
    b, scope = NetBuilder("rows"), Scope()
    b.fc(b.fc(b.input("x", [-1, 40]), size=64, activation="relu"), size=32, name="y")
    b.initialize(scope)
    order = np.random.default_rng(0).permutation(SHAPES) + 500

    def run(number: int) -> object:
        given = np.zeros((order[number], 40), np.float32)
        return b.run(scope, feed={"x": given}, fetch=["y"], need_backward=False)

    return run


def chunks() -> Callable[[int], object]:
    """Utterances of ever other lengths."""
    nnet = Nnet.from_config_text(
        "input-node name=input dim=10\n"
        "component name=a type=NaturalGradientAffineComponent input-dim=30 output-dim=16\n"
        "component-node name=a component=a input=Append(Offset(input,-1),input,Offset(input,1))\n"
        "component name=o type=LogSoftmaxComponent dim=16\n"
        "component-node name=o component=o input=a\n"
        "output-node name=output input=o\n"
    )
    computer = ChunkComputer(nnet, ChunkOptions(frames_per_chunk=SHAPES + 100))
    order = np.random.default_rng(0).permutation(SHAPES) + 20
    return lambda number: computer.compute(np.zeros((order[number], 10), np.float32))


@pytest.mark.parametrize("make", [ragged, rows, chunks])
def test_memory_stays_over_many_shapes(
    make: Callable[[], Callable[[int], object]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPSCOPE_LIMITS", "cache=1M")
    run = make()
    tracemalloc.start()
    try:
        for number in range(EARLY):
            run(number)
        early, _ = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        for number in range(EARLY, SHAPES):
            run(number)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    gc.collect()
    assert peak < 1.3 * early + (1 << 20), (early, peak)
    assert idle_bytes() <= 1 << 20


def test_memory_goes_back_to_the_system(monkeypatch: pytest.MonkeyPatch) -> None:
    trimmed = []
    monkeypatch.setattr(bounded_cache, "_malloc_trim", lambda: trimmed.append)
    cache: BoundedCache[int, Held] = BoundedCache(1, size)
    for number in range(5):
        cache.add(number, Held(9 << 20))
    assert trimmed == [0, 0]


def test_threads_that_drop_each_others_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    """No frame is taken apart while another thread begins to use it."""
    monkeypatch.setenv("OPSCOPE_LIMITS", "cache=40K")
    b = NetBuilder("n")
    b.scale(b.relu(b.fc(b.input("x", [-1, 4]), size=3)), scale=2.0, name="y")
    parameters = Scope()
    b.initialize(parameters)

    def work(seed: int) -> float:
        rng, scope, worst = np.random.default_rng(seed), Scope(parent=parameters), 0.0
        w, bias = (parameters.numpy(name) for name in sorted(parameters.names())[::-1])
        for _ in range(150):
            x = rng.normal(size=(rng.integers(1, 7), 4)).astype(np.float32)
            y = b.run(scope, feed={"x": x}, fetch=["y"], need_backward=False)["y"]
            worst = max(worst, float(np.abs(y - 2 * np.maximum(x @ w + bias, 0)).max()))
        return worst

    with ThreadPoolExecutor(6) as pool:
        assert max(pool.map(work, range(6))) < 1e-5
