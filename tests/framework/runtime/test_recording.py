"""CUDA graphs of runs, on the stand-in of CuPy: what is replayed, what is not, and why."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest

from device_steps import STEPS
from opscope import NetBuilder, OpContext, Scope, options
from opscope.bridges.profile.profiling import profile
from opscope.framework.base.backend import on_device
from opscope.framework.base.errors import RunError
from opscope.framework.fusion.cuda.cublas import WORKSPACE
from opscope.framework.runtime.executor import Frame
from opscope.framework.runtime.recording import obstacle
from opscope.testing.device_double import DOUBLE, by_default, launches, xp

TEST = OpContext(train=False, seed=0)


def run_counting(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """What each run of a frame launches from now on."""
    seen: list[list[str]] = []
    run = Frame._run_watched

    def counted(frame: Frame, context: OpContext) -> None:
        before = len(launches)
        run(frame, context)
        seen.append(launches[before:])

    monkeypatch.setattr(Frame, "_run_watched", counted)
    return seen


@pytest.mark.parametrize("name", ["mlp", "conv", "lstm", "step net", "transformer", "cntk", "ctc"])
def test_a_step_is_one_launch_with_the_same_losses(name, monkeypatch):
    with by_default():
        with options(graphs=False):
            step = STEPS[name]()
            wanted = [step() for _ in range(8)]
        step = STEPS[name]()
        seen = run_counting(monkeypatch)
        found = [step() for _ in range(8)]
        assert all(one != ["graph"] for one in seen[:3]) and seen[3:] == [["graph"]] * 5
        np.testing.assert_array_equal(found, wanted)
        with options(graphs=False):
            step()
        assert len(seen[-1]) > 10


def test_graphs_take_no_memory_for_products_of_their_own(monkeypatch):
    with by_default(), on_device(DOUBLE):
        step = STEPS["mlp"]()
        seen = run_counting(monkeypatch)
        used = []
        for _ in range(4):
            step()
            used.append(xp.get_default_memory_pool().used_bytes())
    assert seen[2] != ["graph"] and seen[3] == ["graph"]
    assert used[3] - used[1] < WORKSPACE / 8


@pytest.mark.parametrize("name", ["tdnn", "tdnn-f", "lstmp", "lf-mmi"])
def test_natural_gradient_has_graphs_for_both_its_ways(name, monkeypatch):
    """Its estimate moves in each fourth step only. What decides on the host runs between graphs."""
    with by_default():
        with options(graphs=False):
            step = STEPS[name]()
            wanted = [step()["parameters"] for _ in range(20)]
        step = STEPS[name]()
        seen = run_counting(monkeypatch)
        found = [step()["parameters"] for _ in range(20)]
    np.testing.assert_array_equal(found, wanted)
    graphs = [run.count("graph") for run in seen]
    assert graphs[:2] == [0, 0] and graphs.count(0) < 7 and min(graphs[-4:]) == max(graphs) < 7
    # Self-repair and the like launch little beside the graphs.
    assert max(len(run) for run, count in zip(seen, graphs, strict=True) if count) < 50


def net(random: bool = False) -> tuple[NetBuilder, Any, Scope]:
    b = NetBuilder("net")
    hidden = b.fc(b.input("x", [-1, 4]), 3, "tanh")
    out = b.dropout(hidden, p=0.5) if random else hidden
    scope = Scope()
    b.initialize(scope, OpContext(seed=1))
    return b, out, scope


def test_new_inputs_and_parameters_are_seen(monkeypatch):
    with by_default():
        b, out, scope = net()
        seen = run_counting(monkeypatch)
        rng = np.random.default_rng(0)
        for turn in range(8):
            if turn == 5:
                (weight,) = (name for name in scope.names() if name.endswith("w"))
                scope.feed({weight: rng.normal(size=(4, 3)).astype(np.float32)})
            x = rng.normal(size=(2, 4)).astype(np.float32)
            (found,) = b.run(scope, TEST, feed={"x": x}, fetch=[out])
            with options(graphs=False):
                (wanted,) = b.run(scope, TEST, feed={"x": x}, fetch=[out])
            np.testing.assert_array_equal(found, wanted)
        assert ["graph"] in seen


def test_random_numbers_are_drawn_in_each_run(monkeypatch):
    with by_default():
        b, out, scope = net(random=True)
        seen = run_counting(monkeypatch)
        x = np.ones((2, 4), np.float32)
        runs = [b.run(scope, feed={"x": x}, fetch=[out]) for _ in range(6)]
        assert ["graph"] not in seen
        assert len({np.asarray(one).tobytes() for one in runs}) > 1


def test_a_generator_of_cupy_is_known_to_draw():
    class Generator:
        __module__ = "cupy.random._generator_api"

        def random(self) -> None: ...

    assert "draws random numbers" in obstacle(Generator().random)
    assert "draws random numbers" in obstacle(partial(Generator().random))


def test_a_profile_tells_what_keeps_a_net_from_it():
    with by_default():
        b, _, scope = net()
        assert "else as a CUDA graph" in profile(b, scope=scope, rows=2).table()
        b = NetBuilder("ids")
        b.embedding(b.input("x", [-1], "int64"), [5, 3], init="xavier")
        b.initialize(scope, OpContext(seed=1))
        assert "else as a CUDA graph, best" in profile(b, scope=scope, rows=2).table()
        b, hidden, scope = net()
        noise = b.gaussian_random(shape=[1, 3])
        b.tanh(b.add(hidden, noise))
        table = profile(b, scope=scope, rows=2).table()
        assert "else as 2 CUDA graphs, without gaussian_random decides on the host" in table


@pytest.fixture
def stream() -> Iterator[Any]:
    with by_default(), on_device(DOUBLE):
        found = xp.cuda.Stream(non_blocking=True)
        yield found


def test_what_a_stream_refuses_while_it_records(stream):
    x = xp.ones((2, 2), np.float32)
    first = x[0, 0]
    with pytest.raises(RuntimeError, match="legacy"):
        xp.cuda.Stream(null=True).begin_capture()
    for refused, error in (
        (lambda: x.get(), "not permitted"),
        (lambda: float(first), "not permitted"),
        (lambda: xp.asarray(np.ones(2)), "not permitted"),
        (lambda: xp.dot(x, x), "cuBLAS"),
        (lambda: x + x, "outside of the pool"),
    ):
        stream.begin_capture()
        try:
            with pytest.raises((RuntimeError, NotImplementedError), match=error):
                refused()
        finally:
            stream.end_capture()
    stream.begin_capture()
    xp.add(x, x, x)
    graph = stream.end_capture()
    assert (x.get() == 1).all(), "what is recorded is not computed"
    graph.launch()
    graph.launch()
    assert (x.get() == 4).all()


def test_no_memory_names_what_wants_it(monkeypatch):
    with by_default():
        b, out, scope = net()
        x = np.ones((1000, 4), np.float32)
        empty = xp.empty

        def full(shape: Any, *args: Any, **kwargs: Any) -> Any:
            if np.prod(shape) > 4000:
                raise MemoryError("Out of memory allocating")
            return empty(shape, *args, **kwargs)

        monkeypatch.setattr(xp, "empty", full, raising=False)
        with pytest.raises(RunError) as caught:
            b.run(scope, feed={"x": x}, fetch=[out])
        for part in ("double: ", "bytes are free", "float32[1000, 3]", "memory=BYTES"):
            assert part.replace("bytes are free", "are free") in str(caught.value)
