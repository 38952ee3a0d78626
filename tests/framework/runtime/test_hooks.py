"""Profiler, finite check and dumps, with and without fused steps."""

from __future__ import annotations

import json
import threading
import time

import numpy as np
import pytest

import opscope
from opscope.framework.base.context import Hook, OpContext
from opscope.framework.base.errors import NotFiniteError, SaveError, VariableError
from opscope.framework.base.scope import Scope
from opscope.framework.ir.desc import INPUT, OUTPUT, make_op, make_var
from opscope.framework.ir.op_list import OpList
from opscope.framework.runtime.hooks import Dump, FiniteCheck, Profiler
from opscope.framework.runtime.net import Net

X = np.array([[1.0, -2.0], [3.0, 4.0]], np.float32)


def toy_net():
    net = Net.create()
    net.add_op("toy_square", {"x": "x"}, {"out": "a"})
    net.add_op("toy_relu", {"x": "a"}, {"out": "b"})
    net.add_op("toy_add", {"x": "b", "y": "x"}, {"out": "y"})
    return net


def fusable_net():
    """log(x) -> tanh -> y: real operators that run as one step where a compiler is there."""
    desc = OpList(name="fusable")
    desc.vars.extend([make_var("x", (2, 2), kind=INPUT), make_var("y", None, None, OUTPUT)])
    desc.ops.append(make_op("log", {"x": "x"}, {"out": "a"}))
    desc.ops.append(make_op("tanh", {"x": "a"}, {"out": "b"}))
    desc.ops.append(make_op("scale", {"x": "b"}, {"out": "y"}, {"scale": 2.0}))
    return Net.create(desc)


def run(net, *hooks, x=X, scope=None, **options):
    scope = scope or Scope()
    scope.feed({"x": x})
    net.run(scope, OpContext(hooks=hooks, **options))
    return scope


class Order(Hook):
    def __init__(self):
        self.calls = []

    def before_run(self, frame):
        self.calls.append("run")

    def before_op(self, frame, index):
        self.calls.append(f"before {frame.plan.steps[index].operators[0].type}")

    def after_op(self, frame, index):
        self.calls.append(f"after {frame.plan.steps[index].operators[-1].type}")

    def after_run(self, frame):
        self.calls.append("end")


def test_hooks_are_called_in_order(monkeypatch):
    monkeypatch.setenv("OPSCOPE_FUSE", "0")
    order = Order()
    run(toy_net(), order)
    assert order.calls == [
        "run",
        *("before toy_square", "after toy_square"),
        *("before toy_relu", "after toy_relu"),
        *("before toy_add", "after toy_add"),
        "end",
    ]


def test_hooks_change_no_number():
    plain = run(toy_net()).numpy("y")
    hooked = run(toy_net(), Profiler(), FiniteCheck(), Hook()).numpy("y")
    assert np.array_equal(plain, hooked)


# -- profiler ----------------------------------------------------------------------------------


def test_profiler_counts_calls_times_and_memory():
    profiler, net, scope = Profiler(), toy_net(), Scope()
    for _ in range(3):
        run(net, profiler, scope=scope)
    assert profiler.runs == 3
    step = profiler.steps["%0 toy_square"]
    assert step.count == 3 and step.memory == X.nbytes
    assert 0 < step.fastest <= step.total / 3 <= step.slowest <= step.total


def test_nets_within_operators_have_rows_of_their_own(monkeypatch):
    """Operators of steps that run one by one: no label twice, no time twice, one run."""
    monkeypatch.setenv("OPSCOPE_RECURRENT", "steps")
    b = opscope.NetBuilder("sequences")
    states, _ = b.lstm(b.input("x", [-1, 3], levels=1), 4)
    b.mean(b.square(states), name="loss")
    b.backward_from("loss")
    b.add_optimization(0.1)
    b.initialize(scope := Scope(), OpContext(seed=0))
    x = opscope.Sequences.from_list([np.ones((n, 3), np.float32) for n in (3, 2)])
    profiler = Profiler()
    for number in (1, 2):
        scope.feed({"x": x})
        b.net.run(scope, OpContext(hooks=[profiler], train=True))
        assert profiler.runs == number
    inner = [label for label in profiler.steps if " / " in label]
    outer = {label.partition(" / ")[0] for label in inner}
    assert len(outer) == 2 and all(" recurrent" in label for label in outer)
    assert all(profiler.steps[label].count == 2 for label in outer)
    assert max(profiler.steps[label].count for label in inner) >= 6  # a call for each time
    fresh = Profiler()
    scope.feed({"x": x})
    begin = time.perf_counter_ns()
    b.net.run(scope, OpContext(hooks=[fresh], train=True))
    whole = time.perf_counter_ns() - begin
    assert sum(step.total for step in fresh.steps.values()) <= whole


def test_a_failed_run_leaves_nothing_open():
    profiler, scope = Profiler(), Scope()
    with pytest.raises(NotFiniteError):
        run(toy_net(), profiler, FiniteCheck(), x=np.full((2, 2), np.inf, np.float32))
    run(toy_net(), profiler, scope=scope)
    assert profiler.runs == 1 and not any(" / " in label for label in profiler.steps)


def test_the_table_is_sorted_by_total_time():
    profiler = Profiler()
    run(toy_net(), profiler)
    for label, total in (("%0 toy_square", 1000), ("%1 toy_relu", 3000), ("%2 toy_add", 2000)):
        profiler.steps[label].total = total
        profiler.steps[label].fastest = profiler.steps[label].slowest = total
    lines = profiler.table().splitlines()
    assert [line.split()[0:2] for line in lines[1:-1]] == [
        ["%1", "toy_relu"],
        ["%2", "toy_add"],
        ["%0", "toy_square"],
    ]
    assert lines[0].split() == [
        *("operator", "calls", "total", "ms", "mean", "us", "min", "us", "max", "us"),
        *("share", "out", "KiB"),
    ]
    assert "50.0%" in lines[1] and lines[-1].startswith("all") and lines[-1].endswith("in 1 runs")


def test_an_empty_table():
    assert Profiler().table().splitlines()[-1].split() == ["all", "0", "0.000", "in", "0", "runs"]


def test_fused_steps_are_one_line():
    profiler = Profiler()
    run(fusable_net(), profiler)
    types = [op for label in profiler.steps for op in label.split()[1].split("+")]
    assert types == ["log", "tanh", "scale"]


def test_chrome_trace_is_valid_and_atomic(tmp_path):
    profiler, path = Profiler(), tmp_path / "trace.json"
    run(toy_net(), profiler)
    profiler.chrome_trace(path)
    events = json.loads(path.read_text())["traceEvents"]
    assert [event["name"] for event in events] == ["%0 toy_square", "%1 toy_relu", "%2 toy_add"]
    assert all(event["ph"] == "X" and event["dur"] > 0 for event in events)
    starts = [event["ts"] for event in events]
    assert starts == sorted(starts) and events[0]["args"] == {"output_bytes": X.nbytes}
    with pytest.raises(SaveError):
        profiler.chrome_trace(tmp_path / "nowhere" / "trace.json")
    assert [file.name for file in tmp_path.iterdir()] == ["trace.json"]


def test_events_are_bounded():
    profiler = Profiler(max_events=2)
    run(toy_net(), profiler)
    assert len(profiler._events) == 2 and len(profiler.steps) == 3


def test_one_profiler_for_several_threads():
    profiler, net = Profiler(), toy_net()
    threads = [
        threading.Thread(target=lambda: [run(net, profiler) for _ in range(5)]) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert profiler.runs == 20
    assert {step.count for step in profiler.steps.values()} == {20}


# -- finite check ------------------------------------------------------------------------------


def test_the_first_bad_operator_is_named():
    huge = np.array([[1.0, 2.0], [1e30, 4.0]], np.float32)
    where = r"op 0 \(toy_square\) at .*test_hooks.py:\d+"
    why = r"output out=a holds inf at \[1, 0\], 1 of 4 elements \(x=x float32\[2, 2\]"
    with pytest.raises(NotFiniteError, match=f"{where}: {why}"):
        run(toy_net(), FiniteCheck(), x=huge)


def test_bad_data_is_told_from_bad_operators():
    bad = X.copy()
    bad[1, 1] = np.nan
    with pytest.raises(NotFiniteError, match=r"'x' was given to the net with nan at \[1, 1\]"):
        run(toy_net(), FiniteCheck(), x=bad)
    with pytest.raises(NotFiniteError, match=r"op 0 \(toy_square\).*: output out=a holds nan"):
        run(toy_net(), FiniteCheck(inputs=False), x=bad)


def test_ignored_variables():
    bad = X.copy()
    bad[1, 1] = np.inf
    run(toy_net(), FiniteCheck(ignore=["x", "a", "b", "y"]), x=bad)


@pytest.mark.parametrize("fuse", ["0", "1"])
def test_a_bad_value_from_a_fused_chain(monkeypatch, fuse):
    monkeypatch.setenv("OPSCOPE_FUSE", fuse)
    with pytest.raises(NotFiniteError, match=r"op \d \((log|tanh|scale)\).* holds nan at \[0, 1\]"):
        run(fusable_net(), FiniteCheck())


def test_integers_and_empty_arrays_are_finite():
    run(toy_net(), FiniteCheck(), x=np.zeros((0, 2), np.float32))


# -- dump --------------------------------------------------------------------------------------


def test_dump_to_a_function():
    seen = []
    dump = Dump(["a", "x"], lambda name, array, op, number: seen.append((name, array, op, number)))
    net, scope = toy_net(), Scope()
    run(net, dump, scope=scope)
    run(net, dump, x=X * 2, scope=scope)
    assert [(name, op, number) for name, _, op, number in seen] == [
        ("x", -1, 0),
        ("a", 0, 0),
        ("x", -1, 1),
        ("a", 0, 1),
    ]
    np.testing.assert_array_equal(seen[1][1], X * X)
    np.testing.assert_array_equal(seen[3][1], X * X * 4)


def test_dump_to_files(tmp_path):
    net, scope, dump = toy_net(), Scope(), Dump("a", tmp_path / "values")
    for _ in range(2):
        run(net, dump, scope=scope)
    files = sorted(path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*.npy"))
    assert files == ["values/run_000000/a.npy", "values/run_000001/a.npy"]
    np.testing.assert_array_equal(np.load(tmp_path / files[0]), X * X)


def test_dump_packed_and_overwritten_variables(tmp_path):
    net = Net.create()
    net.add_op("toy_square", {"x": "x"}, {"out": "a/b"})
    net.add_op("toy_square", {"x": "a/b"}, {"out": "a/b"})
    run(net, Dump(["a/b"], tmp_path, packed=True))
    held = np.load(tmp_path / "run_000000.npz")
    assert sorted(held) == ["a/b", "a/b#2"]
    np.testing.assert_array_equal(held["a/b"], X**2)
    np.testing.assert_array_equal(held["a/b#2"], X**4)
    run(net, Dump(["a/b"], tmp_path))
    assert sorted(path.name for path in (tmp_path / "run_000000").iterdir()) == [
        "a%2Fb#2.npy",
        "a%2Fb.npy",
    ]


def test_unknown_names_with_the_nearest(tmp_path):
    net = Net.create()
    net.add_op("toy_square", {"x": "x"}, {"out": "hidden"})
    with pytest.raises(VariableError, match=r"no variable 'hiden' \(did you mean hidden\?\)"):
        run(net, Dump(["hiden"], tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_names_inside_a_fused_kernel(tmp_path):
    net = fusable_net()
    scope = Scope()
    scope.feed({"x": X})
    if net.frame(scope, OpContext()).array("b") is not None:
        pytest.skip("no C compiler here: nothing is fused")
    with pytest.raises(VariableError, match="'b' lives inside a fused kernel; keep it"):
        run(net, Dump(["b"], tmp_path))
    run(net, Dump(["b"], tmp_path), live_out=["b"])
    assert [path.name for path in tmp_path.rglob("*.npy")] == ["b.npy"]


def test_a_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(SaveError, match="cannot write"):
        run(toy_net(), Dump(["a"], tmp_path / "file"))
