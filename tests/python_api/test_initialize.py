"""First values of parameters and states."""

from __future__ import annotations

import numpy as np
import pytest

from opscope.framework.base.context import OpContext
from opscope.framework.base.errors import ShapeError, VariableError
from opscope.framework.base.scope import Scope
from opscope.framework.ir.desc import INPUT, PARAMETER, STATE, make_op, make_var
from opscope.framework.ir.op_list import Link, OpList, StepDecl
from opscope.framework.runtime import initialize as module
from opscope.framework.runtime.initialize import initialize, persistent_vars


def constant(value, shape=(2,), dtype="float32", out="w"):
    attrs = {"shape": list(shape), "dtype": np.dtype(dtype), "value": float(value)}
    return make_op("fill_constant", {}, {"out": out}, attrs)


def net_of(*variables):
    net = OpList(name="t")
    net.vars.extend(variables)
    return net


def test_fills_what_holds_no_value():
    net = net_of(
        make_var("x", [-1], "float32", INPUT),
        make_var("w", [2], "float32", PARAMETER, initializer=constant(3)),
        make_var("s", [], "int64", STATE, initializer=constant(4, (), "int64", "s")),
        make_var("given", [2], "float32", PARAMETER, initializer=constant(5, out="given")),
    )
    scope = Scope()
    scope.feed({"given": np.zeros(2, np.float32)})
    assert initialize(net, scope) == ["w", "s"]
    assert scope.numpy("w").tolist() == [3, 3]
    assert scope.numpy("s") == 4 and scope.numpy("s").dtype == np.int64
    assert scope.numpy("given").tolist() == [0, 0]
    assert initialize(net, scope) == []


def test_overwrite():
    net = net_of(make_var("w", [2], "float32", PARAMETER, initializer=constant(3)))
    scope = Scope()
    scope.feed({"w": np.zeros(2, np.float32)})
    held = scope.get("w").array
    assert initialize(net, scope, overwrite=True) == ["w"]
    assert scope.numpy("w").tolist() == [3, 3]
    assert held.tolist() == [0, 0]


def test_fills_a_variable_of_a_parent_scope():
    net = net_of(make_var("w", [2], "float32", PARAMETER, initializer=constant(3)))
    parent = Scope()
    parent.var("w")
    kid = parent.new_scope()
    initialize(net, kid)
    assert parent.numpy("w").tolist() == [3, 3]
    assert kid.names() == []


def test_names_all_that_are_lost():
    net = net_of(
        make_var("a", [2], "float32", PARAMETER),
        make_var("b", [2], "float32", STATE),
        make_var("w", [2], "float32", PARAMETER, initializer=constant(3)),
    )
    scope = Scope()
    with pytest.raises(VariableError, match="neither value nor initializer: 'a', 'b'"):
        initialize(net, scope)
    assert scope.names() == []


@pytest.mark.parametrize(
    "var",
    [
        make_var("w", [3], "float32", PARAMETER, initializer=constant(3)),
        make_var("w", [2], "float64", PARAMETER, initializer=constant(3)),
        make_var("w", [], "float32", PARAMETER, initializer=constant(3)),
    ],
)
def test_wrong_shape_or_dtype_leaves_the_scope(var):
    scope = Scope()
    good = make_var("v", [2], "float32", PARAMETER, initializer=constant(1, out="v"))
    with pytest.raises(ShapeError, match="'w'"):
        initialize(net_of(good, var), scope)
    assert scope.names() == []


@pytest.mark.parametrize(
    "outputs", [{"out": "b"}, {"out": "w", "indices": "c"}, {}], ids=["other", "two", "none"]
)
def test_an_initializer_writes_its_variable_and_nothing_else(outputs):
    op = make_op("top_k", {"x": "a"}, outputs, {"k": 1})
    net = net_of(make_var("w", [2], "float32", PARAMETER, initializer=op))
    with pytest.raises(VariableError, match="'w' must write it and nothing else"):
        initialize(net, Scope())


def test_one_seed_gives_one_set_of_values():
    attrs = {"shape": [8], "dtype": np.dtype("float32"), "low": -1.0, "high": 1.0}
    net = net_of()
    for name in "vw":
        random = make_op("uniform_random", {}, {"out": name}, attrs)
        net.vars.append(make_var(name, [8], "float32", PARAMETER, initializer=random))
    scopes = [Scope(), Scope()]
    for scope in scopes:
        initialize(net, scope, OpContext(seed=3))
    one, two = scopes
    assert np.array_equal(one.numpy("w"), two.numpy("w"))
    assert not np.array_equal(one.numpy("v"), one.numpy("w"))


def test_an_initializer_may_read_what_is_there():
    copy = make_op("assign", {"x": "source"}, {"out": "w"})
    net = net_of(make_var("w", [2], "float32", PARAMETER, initializer=copy))
    scope = Scope()
    scope.feed({"source": np.array([1, 2], np.float32)})
    initialize(net, scope)
    assert scope.numpy("w").tolist() == [1, 2]


def test_persistent_vars_of_inner_nets():
    inner = net_of(
        make_var("u", [2], "float32", PARAMETER),
        make_var("w", [2], "float32", PARAMETER),
        make_var("linked", [2], "float32", PARAMETER),
    )
    net = net_of(make_var("w", [2], "float32", PARAMETER))
    step = StepDecl(net=inner)
    net.steps.append(step)
    step.static_links.append(Link("w", "linked"))
    assert [var.name for var in persistent_vars(net)] == ["w", "u"]


def drawn(op_type, name, shape, like=None):
    slots = {} if like is None else {"like": like}
    attrs = {"shape": [-1 if like else size for size in shape], "dtype": np.dtype("float32")}
    op = make_op(op_type, slots, {"out": name}, attrs)
    return make_var(name, shape, "float32", PARAMETER, initializer=op)


def many_variables():
    """Small and large ones, some drawn like others, in an order in which all kinds meet."""
    for number in range(60):
        yield drawn("xavier_random", f"w{number}", (3, 5))
        yield make_var(
            f"b{number}",
            [5],
            "float32",
            PARAMETER,
            initializer=constant(number % 2, (5,), out=f"b{number}"),
        )
        if number % 20 == 7:
            yield drawn("xavier_random", f"large{number}", (100, 100))
            yield drawn("gaussian_random", f"like{number}", (3, 5), like=f"w{number}")
        yield drawn("he_random", f"h{number}", (3, 5) if number % 3 else (5, 3))


def test_those_that_are_alike_have_one_net_and_draw_in_order(monkeypatch):
    made = []
    net_of_some = module._net_of
    monkeypatch.setattr(module, "_net_of", lambda *a: made.append(a[0]) or net_of_some(*a))
    monkeypatch.setattr(module, "_TOGETHER", 8)
    net = net_of(*many_variables())
    values = {}
    for small in (module._SMALL, 0):
        monkeypatch.setattr(module, "_SMALL", small)
        scope = Scope()
        names = initialize(net, scope, OpContext(seed=3))
        values[small] = [scope.numpy(name).tobytes() for name in names]
        assert len(values[small]) == 60 * 3 + 6
        assert len({id(scope.get(name).inner) for name in names}) == len(names)
    assert values[0] == values[1 << 15]
    alone = [var for var in made if len(var) == 1]
    assert len(alone) == 5  # xavier, two constants, he of two shapes
