"""Plans and frames: memory, ranges, inputs that change, errors while running, threads."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from opscope.framework.base.backend import CPUPlace
from opscope.framework.base.context import OpContext
from opscope.framework.base.errors import (
    AttributeTypeError,
    OpscopeError,
    RunError,
    ShapeError,
    SlotError,
    UnknownOperatorError,
    VariableError,
)
from opscope.framework.base.options.settings import read_options
from opscope.framework.base.scope import Scope
from opscope.framework.ir.desc import INPUT, OUTPUT, PARAMETER, STATE, make_op, make_var
from opscope.framework.ir.op_list import OpList, SourceLocation, VarDecl, View
from opscope.framework.runtime.net import Net
from opscope.framework.runtime.plain_net import PlainNet
from opscope.framework.runtime.plans.plan import plan_options


def chain(length=6, kind=INPUT, dtype="float32"):
    """x -> h0 -> h1 ... : squares without bias, then y = last + x."""
    desc = OpList(name="chain")
    desc.vars.append(make_var("x", (-1, 3), dtype, kind))
    desc.vars.append(make_var("y", None, None, OUTPUT))
    before = "x"
    for number in range(length):
        op = make_op("toy_square", {"x": before}, {"out": f"h{number}"}, {"bias": 0.125})
        desc.ops.append(op)
        before = f"h{number}"
    desc.ops.append(make_op("toy_add", {"x": before, "y": "x"}, {"out": "y"}))
    return Net.create(desc)


def expected(x, length=6):
    value = x
    for _ in range(length):
        value = value * value + x.dtype.type(0.125)
    return value + x


def fed(x):
    scope = Scope()
    scope.feed({"x": x})
    return scope


X = np.linspace(-0.9, 0.9, 12, dtype=np.float32).reshape(4, 3)


@pytest.mark.parametrize("switch", ["OPSCOPE_REUSE", "OPSCOPE_INPLACE", "OPSCOPE_FUSE"])
@pytest.mark.parametrize("value", ["0", "1"])
def test_switches_change_no_number(monkeypatch, switch, value):
    monkeypatch.setenv(switch, value)
    scope = fed(X)
    chain().run(scope)
    np.testing.assert_allclose(scope.numpy("y"), expected(X), rtol=1e-6)


def blocks(net, scope):
    frame = net.frame(scope, OpContext(live_out=()))
    return frame.plan.blocks


def test_temporaries_share_memory_by_liveness(monkeypatch):
    monkeypatch.setenv("OPSCOPE_FUSE", "0")
    monkeypatch.setenv("OPSCOPE_INPLACE", "0")
    assert len(blocks(chain(), fed(X))) == 2
    monkeypatch.setenv("OPSCOPE_INPLACE", "1")
    assert len(blocks(chain(), fed(X))) == 1
    monkeypatch.setenv("OPSCOPE_REUSE", "0")
    monkeypatch.setenv("OPSCOPE_INPLACE", "0")
    assert len(blocks(chain(), fed(X))) == 6


@pytest.mark.parametrize(
    ("text", "libraries"),
    [(" mkl", ("mkl", "xp")), ("xp,packed", ("xp", "packed")), ("", ("xp",))],
)
def test_libraries_always_end_with_the_reference(text, libraries, monkeypatch):
    monkeypatch.setenv("OPSCOPE_LIBRARIES", text)
    assert plan_options(read_options(), CPUPlace()).libraries == libraries


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("panels,mkl,xp", "no kernel library 'panels'; there are .*mkl, .*packed.*, xp"),
        ("packd", r"no kernel library 'packd' \(did you mean packed\?\); there are "),
    ],
)
def test_unknown_libraries_are_refused(text: str, message: str, monkeypatch) -> None:
    monkeypatch.setenv("OPSCOPE_LIBRARIES", text)
    with pytest.raises(OpscopeError, match=f"^OPSCOPE_LIBRARIES={text}: {message}"):
        chain().run(fed(X))


def test_temporaries_are_not_left_in_the_scope_but_kept_ones_are():
    net = chain()
    scope = fed(X)
    net.run(scope)
    assert "h0" not in scope and "y" in scope
    net.run(scope, OpContext(live_out=["h0"]))
    np.testing.assert_allclose(scope.numpy("h0"), X * X + 0.125, rtol=1e-6)
    net.run(scope)
    assert scope.get("h0").array is None, "a stale value is not left to be read"


def test_inputs_are_read_again_whether_copied_or_replaced():
    net = chain()
    scope = fed(X)
    net.run(scope)
    for x in (X * 0.5, np.zeros((4, 3), np.float32), X[:2].copy(), X):
        scope.get("x").bind(np.ascontiguousarray(x))
        net.run(scope)
        np.testing.assert_allclose(scope.numpy("y"), expected(x), rtol=1e-6)


def test_a_replaced_parameter_is_seen():
    net = chain(kind=PARAMETER)
    scope = fed(X)
    net.run(scope)
    replaced = np.ascontiguousarray(X[::-1])
    scope.get("x").bind(replaced)
    net.run(scope)
    np.testing.assert_allclose(scope.numpy("y"), expected(replaced), rtol=1e-6)
    assert scope.get("x").array is replaced


def test_changing_shapes_and_dtypes_between_runs():
    net = Net.create()
    net.add_op("toy_mul", {"x": "a", "y": "b"}, {"out": "c"})
    net.add_op("toy_relu", {"x": "c"}, {"out": "d"})
    scope = Scope()
    rng = np.random.default_rng(0)
    shapes = [(2, 3), (5,), (2, 3), (0, 3), (), (1, 2, 3)] * 4
    for number, shape in enumerate(shapes):
        dtype = (np.float32, np.float64)[number % 2]
        a, b = rng.normal(size=(2, *shape)).astype(dtype)
        scope.feed({"a": a, "b": b})
        net.run(scope)
        assert scope.get("d").array.dtype == dtype
        np.testing.assert_array_equal(scope.numpy("d"), np.maximum(a * b, 0))


def test_partial_runs_equal_the_whole():
    net = chain()
    whole = fed(X)
    net.run(whole)
    for cut in range(8):
        scope = fed(X)
        net.run(scope, None, 0, cut)
        net.run(scope, None, cut, -1)
        np.testing.assert_array_equal(scope.numpy("y"), whole.numpy("y"), err_msg=f"cut at {cut}")


def test_a_net_that_grows_after_a_run():
    net = chain(1)
    scope = fed(X)
    net.run(scope)
    net.add_op("toy_relu", {"x": "y"}, {"out": "z"})
    net.run(scope)
    np.testing.assert_array_equal(scope.numpy("z"), np.maximum(expected(X, 1), 0))


def test_what_a_later_range_reads_through_a_view_is_kept():
    desc = OpList(name="views")
    desc.vars.append(make_var("x", (2, 4), "float32", INPUT))
    desc.vars.append(make_var("m", (2, 4), "float32"))
    view = make_var("v", (2, 2), "float32", view=View("m", 0, -1, 1, 3))
    desc.vars.extend([view, make_var("y", None, None, OUTPUT)])
    desc.ops.append(make_op("toy_square", {"x": "x"}, {"out": "m"}))
    desc.ops.append(make_op("toy_square", {"x": "m"}, {"out": "z"}))
    desc.ops.append(make_op("toy_square", {"x": "v"}, {"out": "y"}))
    net, x = Net.create(desc), np.arange(8, dtype=np.float32).reshape(2, 4)
    scope = fed(x)
    net.run(scope, end=2)
    net.run(scope, begin=2)
    assert scope.numpy("y").tolist() == (x[:, 1:3] ** 4).tolist()


def test_views_write_into_their_base():
    desc = OpList(name="views")
    desc.vars.extend([make_var("x", (-1, 2), kind=INPUT), make_var("m", (3, 4), kind=OUTPUT)])
    for name, cols in (("left", (0, 2)), ("right", (2, 4))):
        desc.vars.append(VarDecl(name, view=View("m", 0, -1, *cols)))
    desc.ops.append(make_op("toy_relu", {"x": "x"}, {"out": "left"}))
    desc.ops.append(make_op("toy_square", {"x": "left"}, {"out": "right"}))
    scope = fed(np.arange(-2, 4, dtype=np.float32).reshape(3, 2))
    Net.create(desc).run(scope)
    left = np.maximum(scope.numpy("x"), 0)
    np.testing.assert_array_equal(scope.numpy("m"), np.hstack([left, left * left]))


def test_a_range_that_writes_one_view_keeps_what_another_range_wrote_through_others():
    desc = OpList(name="views")
    desc.vars.extend([make_var("x", (3, 2), kind=INPUT), make_var("m", (3, 4), "float32")])
    for name, cols in (("left", (0, 2)), ("right", (2, 4))):
        desc.vars.append(VarDecl(name, view=View("m", 0, -1, *cols)))
    desc.vars.append(make_var("y", None, None, OUTPUT))
    desc.ops.append(make_op("toy_relu", {"x": "x"}, {"out": "left"}))
    desc.ops.append(make_op("toy_square", {"x": "x"}, {"out": "right"}))
    desc.ops.append(make_op("toy_square", {"x": "m"}, {"out": "y"}))
    x = np.arange(-2, 4, dtype=np.float32).reshape(3, 2)
    net, scope = Net.create(desc), fed(x)
    net.run(scope, end=1)
    net.run(scope, begin=1)
    wanted = np.hstack([np.maximum(x, 0), x * x]) ** 2
    np.testing.assert_array_equal(scope.numpy("y"), wanted)


def test_state_is_updated_in_place_in_the_callers_array():
    desc = OpList(name="count")
    desc.vars.append(make_var("n", (1,), kind=STATE))
    desc.vars.append(make_var("one", (1,), kind=INPUT))
    desc.ops.append(make_op("toy_add", {"x": "n", "y": "one"}, {"out": "n"}))
    scope = Scope()
    scope.feed({"n": np.zeros(1, np.float32), "one": np.ones(1, np.float32)})
    held = scope.get("n").array
    net = Net.create(desc)
    for _ in range(3):
        net.run(scope)
    assert held.tolist() == [3] and scope.get("n").array is held


# -- bad input ---------------------------------------------------------------------------------


def snapshot(scope):
    return {
        name: None if scope.get(name).array is None else scope.numpy(name).copy()
        for name in scope.names()
    }


def same(before, after):
    return before.keys() == after.keys() and all(
        (a is None and b is None) or np.array_equal(a, b)
        for a, b in zip(before.values(), after.values(), strict=True)
    )


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (X.astype(np.float64), r"'x' wants float32\[\?, 3\] and was given float64\[4, 3\]"),
        (X[:, :2].copy(), r"'x' wants float32\[\?, 3\] and was given float32\[4, 2\]"),
        (X.ravel(), r"was given float32\[12\]"),
        (X.astype(np.int32), r"was given int32\[4, 3\]"),
    ],
)
def test_wrong_inputs_leave_the_scope_as_it_was(x, message):
    net = chain()
    for first in (True, False):
        scope = Scope()
        if not first:
            scope.feed({"x": X})
            net.run(scope)
        scope.feed({"x": x})
        before = snapshot(scope)
        with pytest.raises(ShapeError, match=message):
            net.run(scope)
        assert same(before, snapshot(scope))
        scope.feed({"x": X})
        net.run(scope)
        np.testing.assert_allclose(scope.numpy("y"), expected(X), rtol=1e-6)


def test_missing_inputs_with_the_nearest_name():
    scope = Scope()
    scope.feed({"xx": X})
    with pytest.raises(VariableError, match=r"no variable 'x'.*did you mean xx"):
        chain().run(scope)
    assert scope.names() == ["xx"]
    scope.var("x")
    with pytest.raises(VariableError, match="'x' holds no value; feed or initialize it"):
        chain().run(scope)


def test_shapes_that_do_not_fit_name_the_operator():
    net = Net.create()
    net.add_op("toy_mul", {"x": "a", "y": "b"}, {"out": "c"})
    scope = Scope()
    scope.feed({"a": X, "b": X[:2]})
    before = snapshot(scope)
    with pytest.raises(ShapeError) as caught:
        net.run(scope)
    for part in ("op 0 (toy_mul)", "x=a float32[4, 3]", "y=b float32[2, 3]"):
        assert part in str(caught.value)
    assert same(before, snapshot(scope))


@pytest.mark.parametrize("when", ["run", "bind"])
@pytest.mark.parametrize("hooked", [False, True])
def test_a_kernel_that_fails_is_named_with_its_operands(when, hooked, tmp_path):
    from opscope.framework.runtime.hooks import Profiler

    net = Net.create()
    net.add_op("toy_square", {"x": "a"}, {"out": "b"})
    op = make_op("toy_fail", {"x": "b"}, {"out": "c"}, {"when": when})
    op.source = SourceLocation("model.py", 3)
    net.add_op(op)
    scope = Scope()
    scope.feed({"a": X})
    with pytest.raises(RunError) as caught:
        net.run(scope, OpContext(hooks=[Profiler()] if hooked else []))
    for part in ("op 1 (toy_fail) at model.py:3", "no luck", "x=b float32[4, 3]", "ValueError"):
        assert part in str(caught.value)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (("toy_rleu", {"x": "a"}, {"out": "z"}), UnknownOperatorError, "did you mean toy_relu"),
        (("toy_add", {"x": "a"}, {"out": "z"}), SlotError, "input slot 'y' is missing"),
        (("toy_relu", {"z": "a"}, {"out": "z"}), SlotError, "no input slot 'z'"),
        (("toy_square", {"x": "a"}, {"out": "z"}, {"bias": 99.0}), AttributeTypeError, "above 10"),
        (("toy_mul", {"x": "a", "y": "b"}, {"out": "z"}), ShapeError, "one shape"),
    ],
)
def test_add_op_that_is_refused_leaves_the_net_as_it_was(arguments, error, message):
    net = Net.create()
    net.add_var(make_var("a", (2, 3), kind=INPUT))
    net.add_var(make_var("b", (3, 3), kind=INPUT))
    net.add_op("toy_relu", {"x": "a"}, {"out": "h"})
    before = net.desc.SerializeToString(deterministic=True)
    with pytest.raises(error, match=message):
        net.add_op(*arguments)
    assert net.desc.SerializeToString(deterministic=True) == before
    assert len(net.operators) == 1


def test_a_composite_that_is_refused_halfway_leaves_the_net_as_it_was():
    net = Net.create()
    net.add_var(make_var("y", (5,), kind=OUTPUT))
    net.add_var(make_var("p", (2, 3), kind=PARAMETER))
    net.add_op("toy_relu", {"x": "p"}, {"out": "h"})
    net.add_var(make_var("s", (7,), kind=STATE))
    before = net.desc.SerializeToString(deterministic=True)
    with pytest.raises(ShapeError):  # the second operator of the two writes a [2, 3] to s
        net.add_op("toy_pair", {"x": "p", "y": "h"}, {"out": "s"})
    assert net.desc.SerializeToString(deterministic=True) == before
    assert len(net.operators) == 1


def test_a_variable_declared_twice(monkeypatch):
    net = Net.create()
    net.add_var(make_var("a", (2,), kind=INPUT))
    with pytest.raises(VariableError, match="'a' is defined twice"):
        net.add_var(make_var("a", (2,)))
    twice = OpList(name="n", vars=[make_var("a", (2,)), make_var("a", (2,))])
    with pytest.raises(VariableError, match="'a' is (defined|declared) twice"):
        Net.create(twice)
    monkeypatch.setenv("OPSCOPE_VERIFY", "0")
    with pytest.raises(VariableError, match="net 'n'.*variable 'a' is (defined|declared) twice"):
        Net.create(twice)


# -- threads -----------------------------------------------------------------------------------


def test_one_net_in_four_threads_with_scopes_of_their_own():
    net = chain()
    failures = []
    start = threading.Barrier(4)

    def work(number):
        try:
            rng = np.random.default_rng(number)
            scope = Scope()
            context = OpContext(seed=number)
            start.wait()
            for _ in range(40):
                x = rng.uniform(-0.9, 0.9, size=(rng.integers(1, 6), 3)).astype(np.float32)
                scope.feed({"x": x})
                net.run(scope, context)
                np.testing.assert_allclose(scope.numpy("y"), expected(x), rtol=1e-5)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_threads_with_kid_scopes_share_the_parents_parameter():
    net = Net.create()
    net.add_op("toy_mul", {"x": "a", "y": "w"}, {"out": "b"})
    root = Scope()
    root.feed({"w": np.full((2, 2), 3, np.float32)})
    kids = [root.new_scope() for _ in range(4)]
    failures = []

    def work(number):
        try:
            for turn in range(30):
                kids[number].var("a").set(np.full((2, 2), number * 100 + turn, np.float32))
                net.run(kids[number])
                assert (kids[number].numpy("b") == 3 * (number * 100 + turn)).all()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_a_name_in_live_out_that_nobody_has():
    """It was passed over, and what was meant was not there after the run."""
    net = PlainNet(OpList(name="n"))
    net.add_op("relu", ["x"], ["hidden"])
    net.add_op("relu", ["hidden"], ["y"])
    scope = Scope()
    scope.feed({"x": np.ones(3, np.float32), "other": np.zeros(2)})
    for live_out in ("hidden", ["x", "y"], ["other"], []):  # of the scope, too, and again
        for _ in range(2):
            net.run(scope, OpContext(live_out=live_out))
    for _ in range(2):
        with pytest.raises(
            VariableError, match="live_out: net 'n' has no variable 'hiden'.*hidden"
        ):
            net.run(scope, OpContext(live_out=["y", "hiden"]))
    net.run(scope, OpContext(live_out=["hidden"]))
    assert scope.numpy("hidden").tolist() == [1, 1, 1]
    net.add_op("relu", ["y"], ["z"])
    net.run(scope, OpContext(live_out=["z", "y"]))
    assert scope.numpy("y").tolist() == [1, 1, 1]
