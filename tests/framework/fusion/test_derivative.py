"""Derived gradients of scalar expressions: their text, and their values in float64."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from opscope.framework.fusion.scalars.array_idioms import BINARY, array_function
from opscope.framework.fusion.scalars.derivative import gradients
from opscope.framework.fusion.scalars.expression import (
    ExpressionError,
    Tree,
    fold,
    names,
    parse,
    text_of,
)
from opscope.framework.ir.registry import lookup, operator_types

FUNCTIONS = {
    "erf": np.vectorize(math.erf, otypes=[float]),
    "erfc": np.vectorize(math.erfc, otypes=[float]),
}


def value(text: str, known: Mapping[str, Any]) -> np.ndarray:
    """An expression in float64; every part of it is computed for every element."""

    def computed(tree: Tree, below: Sequence[Any]) -> Any:
        if tree[0] == "num":
            return np.float64(tree[1])
        if tree[0] == "var":
            return np.asarray(known[tree[1]], np.float64)
        if tree[0] == "choose":
            return np.where(*below)
        if tree[0] == "unary":
            return np.logical_not(below[0]) if tree[1] == "!" else -below[0]
        if tree[0] == "binary":
            return getattr(np, BINARY[tree[1]])(*below)
        function = FUNCTIONS.get(tree[1]) or getattr(np, array_function(tree[1]))
        return function(*below)

    with np.errstate(all="ignore"):
        return fold(parse(text), computed)


def _cases() -> list[str]:
    """Operators with a scalar expression of one output, and a gradient of their own or none yet."""
    found = []
    for op_type in operator_types():
        entry = lookup(op_type)
        single = list(entry.expressions) == ["out"] and entry.expressions["out"] != "sum(x)"
        if single and not entry.no_gradient and not op_type.endswith("_grad"):
            found.append(op_type)
    return found


ABOVE_ZERO = {
    "cntk.log": "below 1e-37 CNTK goes on with exp(-out), where its value is flat",
    "cntk.sqrt": "below 0 CNTK divides by the value, which is 0 there",
    "focal_modulation": "cross entropies are not negative",
}
"""Operators whose hand-written gradient is the derivative above 0 only, and why."""


def _points(op_type: str) -> tuple[dict[str, Any], list[str]]:
    """Inputs and attributes where nothing has a kink, and the inputs that have gradients."""
    entry = lookup(op_type)
    text = entry.expressions["out"]
    lowest, highest = {"acosh": (1.1, 4.0)}.get(op_type, (0.05, 0.95))
    rng = np.random.default_rng(1)
    known: dict[str, Any] = {}
    for number, slot in enumerate(s.name for s in entry.inputs if s.name in names(parse(text))):
        known[slot] = rng.uniform(lowest, highest, 64) + 0.01 * number
    for name, spec in entry.attr_specs.items():
        known[name] = {"maximum": 0.5, "minimum": 0.1}.get(name, spec.default)
    everywhere = op_type not in ABOVE_ZERO
    if everywhere and np.isfinite(value(text, {**known, "x": -4 * known["x"]})).all():
        known["x"] = np.where(np.arange(64) % 2, known["x"], -4 * known["x"])
    grad = entry.type + "_grad"
    has = [s.name[:-5] for s in lookup(grad).outputs] if grad in operator_types() else ["x"]
    return known, [name for name in has if name in known]


@pytest.mark.parametrize("op_type", _cases())
def test_derived_gradients_are_finite_differences(op_type: str) -> None:
    text = lookup(op_type).expressions["out"]
    known, wrt = _points(op_type)
    known |= {"out": value(text, known), "out_grad": np.linspace(0.5, 2, 64)}
    for slot, derived in gradients(text, wrt).items():
        name, step = slot.removesuffix("_grad"), 1e-6
        high, low = (value(text, {**known, name: known[name] + s}) for s in (step, -step))
        wanted = (high - low) / (2 * step) * known["out_grad"]
        np.testing.assert_allclose(value(derived, known), wanted, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("op_type", [t for t in _cases() if f"{t}_grad" in operator_types()])
def test_written_gradients_are_the_derived_ones(op_type: str) -> None:
    entry = lookup(op_type)
    written = lookup(f"{op_type}_grad").expressions
    known, wrt = _points(op_type)
    known |= {"out": value(entry.expressions["out"], known), "out_grad": np.linspace(0.5, 2, 64)}
    derived = gradients(entry.expressions["out"], wrt)
    for slot in written.keys() & derived.keys():
        ours, theirs = value(written[slot], known), value(derived[slot], known)
        np.testing.assert_allclose(ours, theirs, rtol=1e-12, atol=1e-14, err_msg=slot)


@pytest.mark.parametrize(
    ("text", "gradient"),
    [
        ("tanh(x)", "out_grad * (1 - out * out)"),
        ("1 / (1 + exp(-x))", "out_grad * out * (1 - out)"),
        ("1 / sqrt(x)", "-out_grad * out * out * out * 0.5"),
        ("x * x", "out_grad * x * 2"),
        ("log(x)", "out_grad / x"),
        ("fabs(x)", "x > 0 ? out_grad : x < 0 ? -out_grad : out_grad * x"),
        ("x < a ? a : x > b ? b : x", "x >= a && x <= b ? out_grad : 0"),
        ("a * x + b", "out_grad * a"),
        ("floor(x)", "0"),
    ],
)
def test_text(text: str, gradient: str) -> None:
    assert gradients(text, ["x"]) == {"x_grad": gradient}


def test_value_stands_for_an_input() -> None:
    assert gradients("x / y", ["x", "y"]) == {
        "y_grad": "-out_grad * out / y",
        "x_grad": "out_grad / y",
    }


def test_no_infinity_meets_its_inverse() -> None:
    far = {"x": np.array([-1e4, 1e4]), "beta": 1.0, "out_grad": 1.0}
    derived = gradients("x / (1 + exp(-beta * x))", ["x"])["x_grad"]
    np.testing.assert_array_equal(value(derived, far), [0.0, 1.0])


def test_unknown_derivative() -> None:
    with pytest.raises(ExpressionError, match="the derivative of tgamma is not known"):
        gradients("tgamma(x)", ["x"])


@pytest.mark.parametrize("op_type", _cases())
def test_text_of_a_tree_is_read_as_the_tree(op_type: str) -> None:
    tree = parse(lookup(op_type).expressions["out"])
    assert parse(text_of(tree)) == tree


@pytest.mark.parametrize("zero", [0.0, -0.0])
def test_text_of_a_zero_keeps_its_sign(zero: float) -> None:
    text = text_of(("binary", "/", ("var", "x"), ("num", zero)))
    assert value(text, {"x": 1.0}) == math.copysign(math.inf, zero)
