"""What a Var is not: handles as keys, and what is said where one is used as if it held numbers."""

from __future__ import annotations

import inspect
import operator

import numpy as np
import pytest

from opscope import NetBuilder, Scope
from opscope.framework.base.errors import (
    AttributeTypeError,
    OpscopeError,
    ShapeError,
    VariableError,
)
from opscope.python_api.builder import Var

X = np.random.default_rng(0).normal(size=(3, 4))
DTYPES = {"x": None, "y": None, "n": "int64", "p": bool}


def builder(dtype="float64", names=DTYPES):
    b = NetBuilder(dtype=dtype)
    return b, [b.input(name, [-1, 4], DTYPES[name]) for name in names]


# -- identity --------------------------------------------------------------------------------------


def test_handles_are_keys_by_identity():
    b, (x, y) = builder(names="xy")
    again = b.var("x")
    table = {x: "x", y: "y"}
    assert table[x] == "x" and again not in table and len({x, y, x}) == 2
    assert any(v is x for v in [y, x]) and not any(v is again for v in [y, x])
    assert len(b.op_list.ops) == 0


def test_list_membership_says_what_to_write():
    b, (x, y) = builder(names="xy")
    assert x in [x, y]  # identity comes first
    with pytest.raises(VariableError, match=r"any\(v is x for v in list\)"):
        y in [x]  # noqa: B015


# -- refusals --------------------------------------------------------------------------------------


class Foreign:
    def __radd__(self, other):
        return "foreign"

    def __lt__(self, other):
        return "foreign"


def test_foreign_objects_may_answer():
    _, (x,) = builder(names="x")
    assert x + Foreign() == "foreign"
    with pytest.raises(TypeError, match="unsupported operand"):
        x - Foreign()


REFUSED = [
    (lambda b, x, n, p: x + "y", AttributeTypeError, r"'x' \+ 'y' \(str\): a variable goes"),
    (lambda b, x, n, p: None * x, AttributeTypeError, r"'x' \* None: a variable"),
    (lambda b, x, n, p: x - {"a": 1}, AttributeTypeError, r"\{'a': 1\} \(dict\)"),
    (lambda b, x, n, p: x + 1j, AttributeTypeError, r"1j \(complex\)"),
    (lambda b, x, n, p: x * ["a"], AttributeTypeError, r"\['a'\] \(list\)"),
    (lambda b, x, n, p: x @ "w", AttributeTypeError, "'x' @ 'w'"),
    (lambda b, x, n, p: x == None, AttributeTypeError, "'x' == None"),  # noqa: E711
    (lambda b, x, n, p: x != "x", AttributeTypeError, "'x' != 'x'"),
    (lambda b, x, n, p: x < object, AttributeTypeError, "'x' < <class 'object'>"),
    (lambda b, x, n, p: "y" if x else "n", VariableError, r"neither true nor false.*b\.where"),
    (lambda b, x, n, p: x > 0 and x < 1, VariableError, r"instead of `and`"),
    (lambda b, x, n, p: 0 < x < 1, VariableError, r"\(a < x\) & \(x < b\)"),
    (lambda b, x, n, p: not x, VariableError, "neither true nor false"),
    (lambda b, x, n, p: float(x), VariableError, r"float.*no numbers while.*fetch=\['x'\]"),
    (lambda b, x, n, p: int(n), VariableError, r"int.*fetch=\['n'\]"),
    (lambda b, x, n, p: np.asarray(x), VariableError, "a NumPy array: <Var x"),
    (lambda b, x, n, p: np.add(X, x), TypeError, "does not support ufuncs"),
    (lambda b, x, n, p: 3 in x, VariableError, "x == number says where"),
    (lambda b, x, n, p: operator.setitem(x, 0, 1), VariableError, r"cannot be set.*b\.where"),
    (lambda b, x, n, p: x & p, ShapeError, "'x' has dtype float64; comparisons give"),
    (lambda b, x, n, p: p | 1, ShapeError, "wants truth values, and 1 has dtype int64"),
    (lambda b, x, n, p: p & "q", AttributeTypeError, r"'p' & 'q' \(str\)"),
    (lambda b, x, n, p: ~x, ShapeError, "wants dtype bool and has float64"),
    (lambda b, x, n, p: p - p, ShapeError, r"holds truth values; convert them.*p\.astype"),
    (lambda b, x, n, p: 2**n, ShapeError, r"integers have powers.*n\.astype"),
    (lambda b, x, n, p: n**-1, ShapeError, "integers have powers by numbers from 0 on"),
    (lambda b, x, n, p: n @ n.T, ShapeError, "matmul"),
    (lambda b, x, n, p: x @ 3, ShapeError, "at least 1 dimension"),
    (lambda b, x, n, p: x.round(2), AttributeTypeError, r"\(x \* 100\)\.round\(\) / 100"),
    (lambda b, x, n, p: x.swapaxes(0, 2), ShapeError, "no axes 0 and 2"),
    (lambda b, x, n, p: x.sum(axis=2), ShapeError, "out of range"),
    (lambda b, x, n, p: x.sum(axis="rows"), OpscopeError, "axes"),
    (lambda b, x, n, p: x.relu(), AttributeError, r"write b\.relu\(x, \.\.\.\)"),
    (lambda b, x, n, p: x.fc(size=3), AttributeError, r"write b\.fc\(x"),
    (lambda b, x, n, p: x.item(), AttributeError, r"b\.run\(scope, feed"),
    (lambda b, x, n, p: x.backward(), AttributeError, r"b\.backward_from"),
    (lambda b, x, n, p: x.rehsape(3), AttributeError, "did you mean reshape"),
]


@pytest.mark.parametrize(("call", "error", "message"), REFUSED)
def test_refusals(call, error, message):
    b, (x, n, p) = builder(names="xnp")
    with pytest.raises(error, match=message) as caught:
        call(b, x, n, p)
    if isinstance(caught.value, OpscopeError):
        assert "test_var_misuse.py:" in str(caught.value)


def test_variables_of_another_builder():
    one, two = builder(names="x")[1][0], builder(names="x")[1][0]
    for call in (operator.add, operator.lt, operator.matmul, operator.eq):
        with pytest.raises(VariableError, match="another NetBuilder"):
            call(one, two)


def test_every_method_is_documented():
    for name, method in vars(Var).items():
        if not name.startswith("_"):
            assert inspect.getdoc(method), name


def test_a_var_where_a_word_may_stand():
    """What takes a Var or a word compares only words."""
    b = NetBuilder()
    x = b.input("x", [-1, 3])
    w, v = b.parameter("w", [3, 1]), b.parameter("v", [3, 1])
    cost = b.mean(x @ w + x @ v)
    b.backward_from(cost, wrt=w)
    b.add_optimization(0.1, parameters=w)
    out = b.run(Scope(), feed={"x": np.ones((2, 3))}, fetch=cost)
    assert list(out) == [cost.name]
