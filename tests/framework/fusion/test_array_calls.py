"""Array functions from scalar expressions: values, memory and what they are rewritten into."""

from types import SimpleNamespace

import numpy as np
import pytest

from opscope.framework.fusion.scalars.array_calls import array_calls, array_plan, per_run_values
from opscope.framework.fusion.scalars.array_idioms import array_tree
from opscope.framework.fusion.scalars.expression import ExpressionError, nodes, parse


class Bench:
    """Stands in for the kernel's arguments and counts scratch arrays."""

    def __init__(self):
        self.xp = np
        self.taken = 0

    def scratch(self, shape, dtype):
        self.taken += 1
        return np.full(shape, 7, dtype)


def run(expressions, given, results, numbers=(), counts=()):
    bench = Bench()
    plan = array_plan(tuple(expressions.items()), tuple(results), tuple(numbers), tuple(counts))
    calls = array_calls(bench, plan, given, results)
    with np.errstate(all="ignore"):
        for call in calls:
            call()
    return SimpleNamespace(scratch=bench.taken, calls=len(calls))


def compute(text, numbers=(), **given):
    shape = np.broadcast_shapes(*(array.shape for array in given.values()))
    out = np.empty(shape, next(iter(given.values())).dtype)
    run({"out": text}, given, {"out": out}, numbers)
    return out


X = np.array([-np.inf, -2.5, -1.0, -0.0, 0.0, 0.25, 1.0, 3.0, np.inf, np.nan])
Y = np.array([1.0, -3.0, -1.0, 2.0, 0.0, 0.25, -1.0, 4.0, 2.0, 1.0])


def scalar_value(text, names):
    """The value of an expression for numbers, by the rules of C."""

    def value(tree):
        if tree[0] == "num":
            return np.float64(tree[1])
        if tree[0] == "var":
            return names[tree[1]]
        if tree[0] == "choose":
            return value(tree[2]) if value(tree[1]) else value(tree[3])
        if tree[0] == "call":
            known = {"fabs": np.abs, "fmax": np.fmax, "fmin": np.fmin}
            return known.get(tree[1], getattr(np, tree[1], None))(*map(value, tree[2:]))
        if tree[0] == "unary":
            of = value(tree[2])
            return {"-": -of, "+": of, "!": float(not of)}[tree[1]]
        a, b = value(tree[2]), value(tree[3])
        return {
            "+": lambda: a + b,
            "-": lambda: a - b,
            "*": lambda: a * b,
            "/": lambda: a / b,
            "<": lambda: float(a < b),
            "<=": lambda: float(a <= b),
            ">": lambda: float(a > b),
            ">=": lambda: float(a >= b),
            "==": lambda: float(a == b),
            "!=": lambda: float(a != b),
            "&&": lambda: float(bool(a) and bool(b)),
            "||": lambda: float(bool(a) or bool(b)),
        }[tree[1]]()

    return value(parse(text))


@pytest.mark.parametrize(
    "text",
    [
        "x + y * 2 - x / 4",
        "(x + y) * (x + y) - (x + y)",
        "x < 0 ? 0 : x",
        "x > 1 ? 1 : x",
        "x < -1 ? -1 : x > 1 ? 1 : x",
        "x != x || x > y ? x : y",
        "x > 0 ? 1 : x < 0 ? -1 : x",
        "x > 0 ? sqrt(x) : 0",
        "x == 0 ? 0 : 1 / x",
        "x > y ? x * 3 : y - 1",
        "x > 0 ? 1 : 0",
        "(x > 0) + (y > 0)",
        "-(x > y)",
        "x > 0 && !(y < 1) || x < -2",
        "1 / (1 + exp(-x))",
        "fmax(x, y) + fmin(x, 0) + fabs(y)",
        "x * x + y * y",
        "fma(x, y, 1)" if hasattr(np, "fma") else "x * y + 1",
        "x > 0 ? x : 0.25 * x",
        "x > 0 ? x : 2 * x",
        "x > y ? x * y : y * y - x",
        "-x * y / -3 + -y * (-x) - -x / y",
        "x + -(y * -2) - -(-x)",
    ],
)
def test_values_are_those_of_the_expression(text):
    with np.errstate(all="ignore"):
        wanted = [scalar_value(text, {"x": x, "y": y}) for x, y in zip(X, Y, strict=True)]
    np.testing.assert_allclose(compute(text, x=X, y=Y), wanted, rtol=1e-15)


def test_results_may_have_the_memory_of_what_they_are_computed_from():
    texts = {"y_grad": "-(2 * (x - y)) * g", "x_grad": "2 * (x - y) * g"}
    x, y, g = np.arange(4.0), np.arange(4.0)[::-1].copy(), np.full(4, 3.0)
    wanted = 2 * (x - y) * g
    y_grad = np.empty(4)
    ran = run(texts, {"x": x, "y": y, "g": g}, {"y_grad": y_grad, "x_grad": g})
    np.testing.assert_array_equal(g, wanted)
    np.testing.assert_array_equal(y_grad, -wanted)
    assert ran.calls == 4  # the sign comes last, so that both share the rest


@pytest.mark.parametrize("names", [("x_grad", "y_grad"), ("y_grad", "x_grad")])
def test_a_given_array_is_read_before_a_result_is_written_over_it(names):
    g, x = np.arange(1.0, 4.0), np.full(3, 2.0)
    results = {"x_grad": g, "y_grad": np.empty(3)}
    texts = {"x_grad": "g * x", "y_grad": "g"}
    run({n: texts[n] for n in names}, {"g": g, "x": x}, {n: results[n] for n in names})
    np.testing.assert_array_equal(results["y_grad"], [1, 2, 3])
    np.testing.assert_array_equal(results["x_grad"], [2, 4, 6])


def test_overlapping_memory_is_not_written_too_early():
    memory = np.arange(6.0)
    x, out = memory[:-1], memory[1:]
    wanted = (x + 1) * (x + 2)
    run({"out": "(x + 1) * (x + 2)"}, {"x": x}, {"out": out})
    np.testing.assert_array_equal(out, wanted)


def test_values_are_written_over_those_that_are_not_read_again():
    out = np.empty(3)
    ran = run({"out": "1 / (1 + exp(-x))"}, {"x": np.zeros(3)}, {"out": out})
    assert (ran.scratch, ran.calls) == (0, 4)
    np.testing.assert_array_equal(out, 0.5)


def test_equal_terms_are_computed_once():
    assert run({"out": "exp(x) * (1 - exp(x))"}, {"x": X}, {"out": np.empty_like(X)}).calls == 3


def test_later_expressions_use_earlier_ones():
    a, b = np.empty(3), np.empty(3)
    run({"a": "x + 1", "b": "a * a", "c": "b"}, {"x": np.arange(3.0)}, {"a": a, "b": b})
    np.testing.assert_array_equal(b, [1, 4, 9])
    (only,) = np.empty((1, 3))
    run({"a": "x + 1", "b": "a * a"}, {"x": np.arange(3.0)}, {"b": only})
    np.testing.assert_array_equal(only, b)


def test_rows_and_columns_broadcast():
    x, row, column = np.ones((2, 3)), np.arange(3.0), np.array([[1.0], [2.0]])
    found = compute("x * row + column", x=x, row=row, column=column)
    np.testing.assert_array_equal(found, row + column)


def test_sums_of_many_and_integers():
    given = {"x[0]": np.array([1, 2]), "x[1]": np.array([3, 4]), "x[2]": np.array([5, 6])}
    out = np.empty(2, np.int64)
    run({"out": "sum(x) + 1"}, given, {"out": out}, counts=[("x", 3)])
    assert out.tolist() == [10, 13]


@pytest.mark.parametrize(
    ("text", "numbers", "calls"),
    [
        ("scale * x + bias", {"scale": 1.0, "bias": 0.0}, 1),  # a copy
        ("scale * x + bias", {"scale": 2.0, "bias": 0.0}, 1),
        ("(fmax(beta * x, 0) + log1p(exp(-fabs(beta * x)))) / beta", {"beta": 1.0}, 6),
        ("x > 0 ? g : g * (x + alpha)", {"alpha": 1.0, "g": 2.0}, 3),
        ("flag ? x : exp(x)", {"flag": 0.0}, 1),
    ],
)
def test_what_numbers_leave_without_effect_is_left_out(text, numbers, calls):
    out = np.empty_like(X)
    assert run({"out": text}, {"x": X}, {"out": out}, numbers.items()).calls == calls


@pytest.mark.parametrize(
    ("text", "function"),
    [
        ("x < 0 ? 0 : x", "maximum"),
        ("x > y ? 1 : x < y ? -1 : x - y", "sign"),
        (
            "x == y ? x + 0.6931471805599453 : (x > y ? x : y) + log1p(exp(-fabs(x - y)))",
            "logaddexp",
        ),
    ],
)
def test_choices_become_array_functions(text, function):
    tree = array_tree(parse(text))
    assert function in [node[1] for node in nodes(tree) if node[0] == "call"]
    assert not [node for node in nodes(tree) if node[0] == "choose"]


def test_a_product_with_a_truth_value_is_not_made_of_what_may_be_nan():
    tree = array_tree(parse("x > 0 ? sqrt(x) : 0"))
    assert tree[0] == "choose"
    assert array_tree(parse("x > 0 ? x * 2 : 0"))[0] == "binary"


def test_functions_that_numpy_lacks_are_refused():
    with pytest.raises(ExpressionError, match="NumPy has no function 'lgamma'"):
        compute("lgamma(x)", x=X)


@pytest.mark.parametrize("zero", ["0.0", "-0.0"])
def test_zeros_of_both_signs_have_plans_of_their_own(zero):
    one = np.ones(2)
    np.testing.assert_array_equal(
        compute("x / c", [("c", zero)], x=one), np.copysign(np.inf, float(zero))
    )


def test_what_is_the_same_for_all_elements_is_computed_once_in_float64():
    texts = (("out", "x * (1 - pow(b, n)) - s * y + (n > 2 ? 1 : x)"),)
    bench, numbers = Bench(), (("b", "0.9999999"),)
    plan = array_plan(texts, ("out",), numbers, single=("n", "s"))
    single = {"n": np.array(3), "s": np.array(0.1)}
    before, per_run = per_run_values(bench, plan, single, np.dtype("float32"))
    assert {array.dtype for array in per_run.values()} == {np.dtype("float32")}
    x, y = np.float32([1, 2]), np.float32([3, 4])
    out = np.empty(2, np.float32)
    for call in [*before, *array_calls(bench, plan, {"x": x, "y": y, **per_run}, {"out": out})]:
        call()
    factor = np.float32(1 - np.power(0.9999999, 3))
    assert factor != 1 - np.power(np.float32(0.9999999), np.float32(3))
    np.testing.assert_array_equal(out, x * factor - np.float32(0.1) * y + 1)
