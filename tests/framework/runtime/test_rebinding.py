"""Steps for other shapes: fields that are computed are those that kernels bind."""

from __future__ import annotations

import gc
import weakref
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest

from opscope import NetBuilder, OpContext, Scope
from opscope.framework.base.errors import RunError
from opscope.framework.fusion.compiled.arguments import TRACING, NotTracedError
from opscope.framework.ir.desc import PARAMETER
from opscope.framework.runtime import executor
from opscope.framework.runtime.net import Net
from opscope.framework.runtime.other_shapes import rebinding, tracing
from opscope.operators.backends import rows
from shape_nets import results


@pytest.fixture
def checked(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether each step that a trace bound agrees with its kernel; all steps are traced."""
    found: list[bool] = []
    check = rebinding.StepTraces.check

    def noted(*args: Any) -> None:
        found.append(False)
        check(*args)
        found[-1] = True

    monkeypatch.setattr(executor, "_SLOW", 0.0)
    monkeypatch.setattr(rebinding.StepTraces, "check", noted)
    monkeypatch.setenv("OPSCOPE_VERIFY", "1")
    return found


def test_fields_of_random_nets_are_those_that_kernels_bind(
    checked: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = [results(seed, one_net=True) for seed in range(3)]
    assert checked and all(checked)
    checked.clear()
    monkeypatch.setenv("OPSCOPE_REBIND", "0")
    for seed, values in enumerate(found):
        bound = results(seed, one_net=True)
        assert values.keys() == bound.keys()
        assert all(value.tobytes() == bound[name].tobytes() for name, value in values.items())
    assert not checked, "the switch is off"


SIZES = (24, 40), (24, 56), (24, 64), (24, 72), (32, 72), (40, 88)
"""Widths that vary, and then heights, too."""


def image_net() -> tuple[NetBuilder, str]:
    """Convolutions of all kinds, with and without what follows them."""
    b = NetBuilder("images")
    h = b.input("x", [-1, 3, -1, -1])
    h = b.relu(b.conv2d(h, filters=16, kernel=3, stride=2, padding=1))
    h = b.hard_swish(b.conv2d(h, filters=16, kernel=3, padding=1, groups=16))
    h = b.conv2d(h, filters=24, kernel=1)
    h = b.add(h, b.sigmoid(b.conv2d(h, filters=24, kernel=5, padding=2)))
    h = b.avg_pool2d(h, kernel=3, stride=2, padding=1, ceil_mode=True, count_include_pad=False)
    h = b.conv_transpose2d(h, filters=16, kernel=2, stride=2)
    h = b.max_pool2d(b.relu(b.conv2d(h, filters=8, kernel=3, padding=1)), kernel=2)
    return b, b.global_avg_pool(h).name


def test_images_of_new_sizes_are_bound_by_traces(checked: list[bool]) -> None:
    b, out = image_net()
    scope = Scope()
    b.initialize(scope, OpContext(seed=0))
    values = {var.name: scope.numpy(var.name) for var in b.op_list.vars if var.name in scope}
    net = Net.create(b.net.op_list)
    rng = np.random.default_rng(0)
    counts = []
    for size in SIZES:
        x = rng.normal(size=(1, 3, *size)).astype(np.float32)
        found = []
        alone = Scope()
        alone.feed(values)
        for one, where in ((net, scope), (Net.create(b.net.op_list), alone)):
            where.feed({"x": x})
            one.run(where, OpContext(train=False, live_out=[out]))
            found.append(where.numpy(out).tobytes())
        assert found[0] == found[1]
        counts.append(len(checked))
    assert all(checked) and counts[3] >= 3 and counts[5] > counts[4] == counts[3]


@pytest.mark.parametrize("kernel", [1, 3, 5])
@pytest.mark.parametrize("is_kept", [True, False])
def test_alike_layers_whose_weights_each_run_packs(
    kernel: int, is_kept: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The panels go with the address of the weights, which a trace of alike layers leaves open."""
    monkeypatch.setenv("OPSCOPE_KEEP_PACKED", str(int(is_kept)))
    for name in ("AMX", "WINOGRAD"):
        monkeypatch.setenv(f"OPSCOPE_{name}", "0")
    b = NetBuilder("alike")
    h = b.input("x", [-1, 80, -1, -1])
    for _ in range(4):
        h = b.gelu(b.conv2d(h, filters=80, kernel=kernel, padding=kernel // 2))
    scope = Scope()
    b.initialize(scope, OpContext(seed=0))
    values = {var.name: scope.numpy(var.name) for var in b.op_list.vars if var.name in scope}
    for name, value in values.items():
        scope.var(name).bind(value.copy())
    net = Net.create(b.net.op_list)
    rng = np.random.default_rng(0)
    for shape in ((1, 80, 20, 21), (2, 80, 30, 19), (1, 80, 25, 27), (3, 80, 10, 11)):
        alone = Scope()
        alone.feed(values)
        found = []
        x = rng.normal(size=shape).astype(np.float32)
        for one, where in ((net, scope), (Net.create(b.net.op_list), alone)):
            where.feed({"x": x})
            one.run(where, OpContext(train=False, live_out=[h.name]))
            found.append(where.numpy(h.name).tobytes())
        assert found[0] == found[1]


def test_scopes_have_panels_of_their_own(
    checked: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Several threads may run a net, each with its own scope."""
    monkeypatch.setenv("OPSCOPE_KEEP_PACKED", "0")
    b, out = image_net()
    parent = Scope()
    b.initialize(parent, OpContext(seed=0))
    scopes = [Scope(parent=parent) for _ in range(2)]
    held: list[list[int]] = [[], []]
    asked = rebinding.memory_of
    rng = np.random.default_rng(0)
    for size in SIZES[:4]:
        for scope, found in zip(scopes, held, strict=True):

            def noted(key: Any, make: Any, found: list[int] = found) -> Any:
                memory = asked(key, make)
                found.append(memory.ctypes.data)
                return memory

            monkeypatch.setattr(rebinding, "memory_of", noted)
            scope.feed({"x": rng.normal(size=(1, 3, *size)).astype(np.float32)})
            b.net.run(scope, OpContext(train=False, live_out=[out]))
    assert checked and all(checked)
    assert set(held[0]).isdisjoint(held[1])
    assert all(len(set(found)) < len(found) for found in held), "frames of a scope share them"


def test_no_trace_writes_to_memory_that_a_kernel_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """Frames of several threads may be bound by one trace."""
    sums, shared, own = (np.zeros((1, 2, 8), np.float32) for _ in range(3))
    monkeypatch.setattr(TRACING, "trace", tracing.Trace([], set(), set(), [shared]))

    def bind(out: np.ndarray) -> None:
        fields = {"width": 8, "columns": 8, "blocks": 1, "sums": sums}
        factors = {"first_factor": 1.0, "second_factor": 1.0}
        rows.task("added", sums.dtype, 1, first=out[0, 0], second=out[0, 1], **factors, **fields)

    bind(shared)
    with pytest.raises(NotTracedError, match="the kernel's own"):
        bind(own)


def test_other_fields_are_refused(checked: list[bool], monkeypatch: pytest.MonkeyPatch) -> None:
    traced: set[Any] = set()

    def once(self: Any, *args: Any) -> bool:
        """Whether a step is being traced, and not yet bound by its trace."""
        is_new = self not in traced
        traced.add(self)
        return is_new

    monkeypatch.setattr(tracing.Traced, "agrees", once)
    with pytest.raises(RunError, match=r"op \d+ \(.*its kernel binds it to other fields"):
        test_images_of_new_sizes_are_bound_by_traces(checked)


def test_a_step_of_single_numbers_is_traced(checked: list[bool]) -> None:
    """None of its sizes is fixed."""
    b = NetBuilder("numbers")
    x = b.input("x", [-1, -1])
    mean = b.mean(x)
    h = b.mul(x, b.tanh(b.mul(mean, mean)))
    scope = Scope()
    for size in (4, 5, 6, 7):
        scope.feed({"x": np.full((size, 3), 2, np.float32)})
        b.net.run(scope, OpContext(train=False, live_out=[h.name]))
        assert np.allclose(scope.numpy(h.name), 2 * np.tanh(4))
    frame = scope.frames()[0]
    (step,) = (one for one in frame.plan.steps if any(op.type == "tanh" for op in one.operators))
    assert frame.traces[id(step)].traced and checked


@pytest.mark.parametrize("verify", [False, True])
def test_a_trace_that_disagrees_serves_no_frame(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, verify: bool
) -> None:
    monkeypatch.setattr(executor, "_SLOW", 0.0)
    monkeypatch.setattr(tracing.Traced, "agrees", lambda *args: False)
    monkeypatch.setenv("OPSCOPE_VERIFY", "1" if verify else "0")
    b = NetBuilder("pool")
    h = b.max_pool2d(b.input("x", [1, 1, -1, -1]), kernel=2)
    scope = Scope()
    with pytest.raises(RunError, match="other fields") if verify else nullcontext():
        for size in (4, 6, 8, 10, 12):
            x = np.arange(size * size, dtype=np.float32).reshape(1, 1, size, size)
            scope.feed({"x": x})
            b.net.run(scope, OpContext(train=False, live_out=[h.name]))
            assert np.array_equal(scope.numpy(h.name), x[:, :, 1::2, 1::2])
    problems = [record.getMessage() for record in caplog.records]
    assert len(problems) == (0 if verify else 1)
    assert all(one.startswith("bound again for each shape: op 0 (max_pool2d)") for one in problems)


def test_a_net_holds_no_arrays_of_scopes_that_are_gone(checked: list[bool]) -> None:
    b, out = image_net()
    scope = Scope()
    b.initialize(scope, OpContext(seed=0))
    for size in SIZES[:4]:
        scope.feed({"x": np.zeros((1, 3, *size), np.float32)})
        b.net.run(scope, OpContext(train=False, live_out=[out]))
    assert checked
    names = [var.name for var in b.op_list.vars if var.kind == PARAMETER]
    parameters = [weakref.ref(scope.get(name).inner) for name in names]
    assert parameters
    del scope
    gc.collect()
    assert not any(one() is not None for one in parameters)
