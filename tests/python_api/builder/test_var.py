"""Var as an array: infix operators, comparisons, constants, dtypes, methods, and its refusals."""

from __future__ import annotations

import operator

import numpy as np
import pytest

from opscope import NetBuilder, Scope
from opscope.framework.base.errors import (
    AttributeTypeError,
    ShapeError,
    VariableError,
)
from opscope.python_api.builder import Var

RNG = np.random.default_rng(0)
X = RNG.normal(size=(3, 4))
Y = RNG.normal(size=(3, 4)) + 4
N = np.arange(-6, 6).reshape(3, 4)
M = np.arange(1, 13).reshape(3, 4)
P = N > 0
Q = N % 2 == 0
GIVEN = {"x": X, "y": Y, "n": N, "m": M, "p": P, "q": Q}


def builder(dtype="float64", names=GIVEN):
    b = NetBuilder(dtype=dtype)
    return b, [
        b.input(name, [-1, 4], None if GIVEN[name].dtype.kind == "f" else GIVEN[name].dtype)
        for name in names
    ]


def value(b, out, given=GIVEN):
    """The value of a variable; its declared shape and dtype are those of the value."""
    found = b.run(Scope(), feed=given, fetch=[out], need_backward=False)[out.name]
    assert found.dtype == out.dtype
    assert len(out.shape) == found.ndim
    assert all(known in (-1, dim) for known, dim in zip(out.shape, found.shape, strict=True))
    return found


FLOATS = {
    "x + y": lambda x, y: x + y,
    "x - 2": lambda x, y: x - 2,
    "2 - x": lambda x, y: 2 - x,
    "x / 4": lambda x, y: x / 4,
    "1 / y": lambda x, y: 1 / y,
    "x / 0": lambda x, y: x / 0,
    "x ** 2": lambda x, y: x**2,
    "x ** 3": lambda x, y: x**3,
    "y ** 0.5": lambda x, y: y**0.5,
    "2 ** x": lambda x, y: 2**x,
    "y ** x": lambda x, y: y**x,
    "x // y": lambda x, y: x // y,
    "x // 0.5": lambda x, y: x // 0.5,
    "5 // y": lambda x, y: 5 // y,
    "x % 2": lambda x, y: x % 2,
    "7 % y": lambda x, y: 7 % y,
    "x % y": lambda x, y: x % y,
    "-x": lambda x, y: -x,
    "+x": lambda x, y: +x,
    "abs(x)": lambda x, y: abs(x),
    "round(x)": lambda x, y: round(x) if isinstance(x, Var) else np.round(x),
    "array on the left": lambda x, y: Y - x,
    "array on the right": lambda x, y: x - Y,
    "row on the left": lambda x, y: np.arange(4) * x,
    "column of float32": lambda x, y: x + np.float32([[1], [2], [3]]),
    "list": lambda x, y: x * [1, 2, 3, 4],
    "list on the left": lambda x, y: [1.5, 2, 3, 4] - x,
    "scalar of NumPy": lambda x, y: np.float64(3) * x,
    "scalar of NumPy, right": lambda x, y: x / np.float32(3),
    "integer of NumPy": lambda x, y: np.int64(3) + x,
    "0-d array": lambda x, y: np.array(2.5) * x,
    "x @ array": lambda x, y: x @ Y.T,
    "array @ x": lambda x, y: Y.T @ x,
    "x @ vector": lambda x, y: x @ [1, 0, 0, 2],
    "vector @ x": lambda x, y: np.arange(3.0) @ x,
    "x @ y.T": lambda x, y: x @ y.T,
}


@pytest.mark.parametrize("expression", FLOATS.values(), ids=FLOATS)
@pytest.mark.filterwarnings("ignore:divide by zero", "ignore:invalid value")
def test_floats(expression):
    b, (x, y) = builder(names="xy")
    with np.errstate(divide="ignore"):
        wanted = expression(X, Y)
    out = expression(x, y)
    assert isinstance(out, Var) and out.dtype == np.float64
    np.testing.assert_allclose(value(b, out, {"x": X, "y": Y}), wanted, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize(
    "name", [n for n in FLOATS if "0" not in n and "//" not in n and "round" not in n]
)
def test_gradients_of_floats(name):
    """The gradient of the sum of the squares, against central differences along a direction."""
    expression = FLOATS[name]
    b, (x, y) = builder(names="xy")
    cost = (expression(x, y) ** 2).sum()
    wrt = [v for v in (x, y) if any(v.name in op.input_names() for op in b.op_list.ops)]
    b.backward_from(cost, wrt=wrt)
    found = b.run(Scope(), feed={"x": X, "y": Y}, fetch=[b.gradient(v) for v in wrt])
    rng, step = np.random.default_rng(1), 1e-6
    for v, gradient in zip(wrt, found.values(), strict=True):
        way = rng.normal(size=X.shape)
        sides = [
            (expression(X + s * way * (v is x), Y + s * way * (v is y)) ** 2).sum()
            for s in (step, -step)
        ]
        slope = (sides[0] - sides[1]) / (2 * step)
        np.testing.assert_allclose((gradient * way).sum(), slope, rtol=1e-5, atol=1e-6)


COMPARISONS = [operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne]


@pytest.mark.parametrize("compare", COMPARISONS)
@pytest.mark.parametrize("other", ["m", "x", 0, 2.5, N[0], M.tolist(), True])
def test_comparisons(compare, other):
    b, variables = builder()
    n = variables[2]
    theirs, wanted = other, other
    if isinstance(other, str):
        theirs, wanted = b.var(other), GIVEN[other]
    for one, two, out in (
        (N, wanted, compare(n, theirs)),
        (wanted, N, compare(theirs, n)),
    ):
        assert out.dtype == bool
        np.testing.assert_array_equal(value(b, out), compare(np.asarray(one), np.asarray(two)))


def test_logic():
    b, (x, _, _, _, p, q) = builder()
    cases = [
        (p & q, P & Q),
        (p | q, P | Q),
        (p ^ q, P ^ Q),
        (~p, ~P),
        (p & True, P),
        (False | p, P),
        (p ^ Q, P ^ Q),
        (np.array([True, False, True, False]) & p, P & [True, False, True, False]),
        ((x > 0) & (x < 1), (X > 0) & (X < 1)),
        (p == q, P == Q),
        (p + q, P + Q),
        (p * q, P * Q),
    ]
    for out, wanted in cases:
        np.testing.assert_array_equal(value(b, out), wanted)


INTEGERS = [
    lambda n, m: n + 1,
    lambda n, m: 10 - n,
    lambda n, m: 3 * n,
    lambda n, m: n * True,
    lambda n, m: n + m,
    lambda n, m: n - M,
    lambda n, m: [[1], [2], [3]] * n,
    lambda n, m: n // 4,
    lambda n, m: 100 // m,
    lambda n, m: n % 4,
    lambda n, m: n % m,
    lambda n, m: n**0,
    lambda n, m: n**1,
    lambda n, m: n**2,
    lambda n, m: n**5,
    lambda n, m: -n,
    lambda n, m: abs(n),
    lambda n, m: n.round(),
    lambda n, m: n + (2**60 + 1),
]


@pytest.mark.parametrize("expression", INTEGERS)
def test_integers_stay_integers(expression):
    b, variables = builder("float32")
    out = expression(*variables[2:4])
    assert out.dtype == np.int64
    np.testing.assert_array_equal(value(b, out), expression(N, M))


@pytest.mark.parametrize(
    "expression",
    [
        lambda n, m: n / 2,
        lambda n, m: n / m,
        lambda n, m: 1 / m,
        lambda n, m: n * 0.5,
        lambda n, m: 2.0 * n,
        lambda n, m: n + np.array([0.5, 1, 2, 3]),
        lambda n, m: n**0.5 if isinstance(n, Var) else np.sqrt(n.astype(float)),
        lambda n, m: m**1.5,
        lambda n, m: n.mean(),
        lambda n, m: n > 0.5,
    ],
)
@pytest.mark.filterwarnings("ignore:invalid value")
@np.errstate(invalid="ignore")
def test_integers_become_floats_of_the_builder(expression):
    for dtype in ("float32", "float64"):
        b, variables = builder(dtype)
        out = expression(*variables[2:4])
        wanted = expression(N, M)
        assert out.dtype == (dtype if np.asarray(wanted).dtype.kind == "f" else bool)
        np.testing.assert_allclose(value(b, out), wanted, rtol=1e-6)


def test_dtypes_of_two_variables():
    b = NetBuilder()
    kinds = ("bool", "int8", "uint8", "int32", "int64", "float16", "float32", "float64")
    x = {kind: b.input(kind, [2], kind) for kind in kinds}
    for one in kinds:
        for two in kinds:
            wanted = np.promote_types(one, two)
            if {np.dtype(one).kind, np.dtype(two).kind} & {"f"} and one[0] != two[0]:
                wanted = np.dtype(one if one[0] == "f" else two)  # integers give way
            assert (x[one] + x[two]).dtype == wanted, (one, two)
    assert (x["float16"] * np.ones(2)).dtype == np.float16
    assert (x["int8"] + 100).dtype == np.int8
    with pytest.raises(ShapeError, match="200 is out of bounds for int8"):
        x["int8"] + 200
    with pytest.raises(ShapeError, match="-1 is out of bounds for uint8"):
        x["uint8"] + np.array([3, -1])


def test_gradients_pass_conversions():
    """Of a float that met integers; the integers have none."""
    b, variables = builder()
    x, n = variables[0], variables[2]
    b.backward_from((x * n).sum(), wrt=[x])
    gradient = b.run(Scope(), feed=GIVEN, fetch=[b.gradient(x)])
    np.testing.assert_array_equal(gradient[b.gradient(x)], N)


def test_numbers_beside_floats_make_no_constants():
    b, (x,) = builder(names="x")
    (x * 2 + 1) / 3  # noqa: B018
    assert [op.type for op in b.op_list.ops] == ["scale", "scale", "scale"]


METHODS = {
    "T": lambda x: x.T,
    "transpose": lambda x: x.transpose(),
    "transpose(1, 0)": lambda x: x.transpose(1, 0),
    "transpose((1, 0))": lambda x: x.transpose((1, 0)),
    "swapaxes": lambda x: x.swapaxes(0, -1),
    "reshape(2, 6)": lambda x: x.reshape(2, 6),
    "reshape([-1, 2])": lambda x: x.reshape([-1, 2]),
    "reshape(-1)": lambda x: x.reshape(-1),
    "flatten": lambda x: x.flatten(),
    "squeeze": lambda x: x[:, :1].squeeze(1),
    "squeeze()": lambda x: x.reshape(1, 12, 1).squeeze(),
    "sum": lambda x: x.sum(),
    "sum(0)": lambda x: x.sum(0),
    "sum(axis=-1, keepdims)": lambda x: x.sum(axis=-1, keepdims=True),
    "sum((0, 1))": lambda x: x.sum((0, 1)),
    "mean": lambda x: x.mean(),
    "mean(1)": lambda x: x.mean(1),
    "prod": lambda x: x.prod(axis=1),
    "max": lambda x: x.max(),
    "min(axis=0)": lambda x: x.min(axis=0),
    "argmax": lambda x: x.argmax(),
    "argmax(0)": lambda x: x.argmax(0),
    "argmin(1)": lambda x: x.argmin(axis=1),
    "cumsum": lambda x: x.cumsum(),
    "cumsum(0)": lambda x: x.cumsum(0),
    "clip": lambda x: x.clip(-0.5, 0.5),
    "clip(max)": lambda x: x.clip(max=0.5),
    "round": lambda x: x.round(),
    "astype": lambda x: x.astype("int32"),
    "astype(bool)": lambda x: x.astype(bool),
}


@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
def test_methods_of_arrays(method):
    b, (x,) = builder(names="x")
    out, wanted = method(x), method(X)
    assert out.dtype == wanted.dtype
    np.testing.assert_allclose(value(b, out, {"x": X}), wanted, rtol=1e-12)


def test_ndim_len_and_iteration():
    b = NetBuilder()
    x, open_end = b.input("x", [2, 3]), b.input("open", [-1, 3])
    assert (x.ndim, open_end.ndim, len(x), x.sum().ndim) == (2, 2, 2, 0)
    first, second = x
    given = np.arange(6).reshape(2, 3)
    out = b.run(Scope(), feed={"x": given, "open": given}, fetch=[first, second])
    np.testing.assert_array_equal([out[first.name], out[second.name]], given)
    for call in (len, list, next_of):
        with pytest.raises(ShapeError, match="first dimension is not known"):
            call(open_end)
        with pytest.raises(ShapeError, match="it has no axes"):
            call(x.sum())


def next_of(x):
    return next(iter(x))


# -- sum and mean ----------------------------------------------------------------------------------


def test_sum_and_mean_agree_on_what_no_axis_means():
    b, (x, y) = builder(names="xy")
    for make, wanted in (
        (b.sum, np.sum),
        (b.mean, np.mean),
        (b.reduce_sum, np.sum),
        (b.reduce_mean, np.mean),
    ):
        for out, axis, keep in (
            (make(x), None, False),
            (make("x"), None, False),
            (make(x, axes=[1]), 1, False),
            (make(x, axes=[0, -1], keepdims=True), (0, 1), True),
            (make(x, keepdims=True), None, True),
        ):
            got = value(b, out, {"x": X, "y": Y})
            np.testing.assert_allclose(got, wanted(X, axis=axis, keepdims=keep), rtol=1e-12)
    np.testing.assert_allclose(value(b, b.sum(x, 1), {"x": X, "y": Y}), X.sum(1))
    np.testing.assert_allclose(value(b, b.mean(x, axes=0), {"x": X, "y": Y}), X.mean(0))


def test_sum_of_a_list_adds_variables_up():
    b, (x, y) = builder(names="xy")
    out = b.sum([x, y, "x"], name="total")
    assert out.name == "total" and b.op_list.ops[-1].type == "sum"
    np.testing.assert_allclose(value(b, out, {"x": X, "y": Y}), X + Y + X)
    with pytest.raises(AttributeTypeError, match="element by element, without axes"):
        b.sum([x, y], axes=[0])


def test_the_operators_are_as_before():
    """`add_op` appends what saved files hold: `sum` of several, `mean` of all elements."""
    b, (x,) = builder(names="x")
    assert b.add_op("sum", x).shape == (-1, 4)
    assert b.mean(x).shape == () and b.op_list.ops[-1].type == "mean"


# -- choices ---------------------------------------------------------------------------------------


def test_choices_take_numbers_and_arrays():
    b, (x, y, n, m, p, q) = builder()
    cases = [
        (b.where(p, x, y), np.where(P, X, Y)),
        (b.where("p", "x", 0), np.where(P, X, 0.0)),
        (b.where(x > 0, 1.5, x), np.where(X > 0, 1.5, X)),
        (b.where(p, n, 7), np.where(P, N, 7)),
        (b.where(p, n, x), np.where(P, N, X)),
        (b.where(p, 1, 0), np.where(P, 1, 0)),
        (b.where(p, 0.5, [0, 1, 2, 3]), np.where(P, 0.5, [0, 1, 2, 3])),
        (b.where(P, x, 0.0), np.where(P, X, 0.0)),
        (b.where(p, q, False), np.where(P, Q, False)),
        (b.maximum(x, 0), np.maximum(X, 0)),
        (b.maximum(0.5, x), np.maximum(0.5, X)),
        (b.minimum(n, m), np.minimum(N, M)),
        (b.minimum(x, n), np.minimum(X, N)),
        (b.maximum(n, M[0]), np.maximum(N, M[0])),
    ]
    for out, wanted in cases:
        got = value(b, out)
        assert got.dtype == wanted.dtype
        np.testing.assert_array_equal(got, wanted)
    assert b.maximum(x, 0, name="mine").name == "mine"
    b.backward_from(b.sum(b.where(x > 0, x, 0) + b.maximum(x, 0.25)), wrt=[x])
    got = b.run(Scope(), feed=GIVEN, fetch=b.gradient(x))[b.gradient(x)]
    np.testing.assert_array_equal(got, (X > 0) + 1.0 * (X > 0.25))


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda b, x: b.where(x > 0, x, None), AttributeTypeError, "'x' where None: a variable"),
        (
            lambda b, x: b.where(x > 0, None, 0),
            AttributeTypeError,
            "where: want variables",
        ),
        (lambda b, x: b.where(x, x, 0), ShapeError, "condition wants dtype bool"),
        (lambda b, x: b.maximum(x, "z"), VariableError, "no variable 'z'"),
        (lambda b, x: b.minimum({}, x), AttributeTypeError, r"'x' minimum \{\} \(dict\)"),
        (
            lambda b, x: b.reshape(x, shape=[x, 2]),
            AttributeTypeError,
            "<Var x.* holds no numbers",
        ),
        (lambda b, x: x.clip("a"), AttributeTypeError, "minimum='a' is string, want float"),
    ],
)
def test_bad_choices(call, error, message):
    b, (x,) = builder(names="x")
    with pytest.raises(error, match=message):
        call(b, x)
