"""Functions of vectors in C: their errors, and what they give at the ends of their ranges."""

from __future__ import annotations

import numpy as np
import pytest

from opscope.framework.fusion import chains
from opscope.framework.fusion.compiled import native
from opscope.framework.fusion.scalars.codegen import FULL, Graph, Loop, Operand
from opscope.framework.fusion.scalars.expression import parse
from scalar_loops import task_of_loop

pytestmark = pytest.mark.skipif(not chains.available(), reason="there is no native library")

_FUNCTIONS = {
    "exp(x0)": (np.exp, 1.3),
    "tanh(x0)": (np.tanh, 3),
    "1 / (1 + exp(-x0))": (lambda x: 1 / (1 + np.exp(-x)), 3),
}
"""Expressions, what they are, and the bounds of their errors in units of the last place."""
_ZERO_FROM = {"float32": -89.0, "float64": -710.0}
"""Sigmoids below it are 0 or denormal."""


def apply(text: str, x: np.ndarray) -> np.ndarray:
    loop = Loop(x.dtype.name, (Operand(FULL, x.dtype.name),) * 2, (parse(text),), ((1, "v0"),))
    out = np.empty_like(x)
    task_of_loop(loop, [x, out])()
    return out


def numbers(dtype: str) -> np.ndarray:
    """Numbers of all sizes, denormals among them, and more of them where functions change."""
    rng = np.random.default_rng(0)
    kind = np.dtype(dtype)
    whole = np.dtype(f"u{kind.itemsize}")
    anywhere = rng.integers(0, np.iinfo(whole).max, 60_000, whole, endpoint=True).view(kind)
    ends = 105 if dtype == "float32" else 750
    parts = [rng.uniform(-end, end, 60_000) for end in (ends, 20, 1)]
    return np.concatenate([anywhere[np.isfinite(anywhere)], *(one.astype(kind) for one in parts)])


def errors(found: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """In units of the last place of the right results, which have more digits."""
    with np.errstate(over="ignore", under="ignore"):
        rounded = wanted.astype(found.dtype)
    same = (found == rounded) | (np.isnan(found) & np.isnan(wanted))
    with np.errstate(invalid="ignore"):
        units = np.spacing(np.abs(rounded)).astype(wanted.dtype)
        return np.where(same, 0, np.abs(found - wanted) / units)


@pytest.fixture(params=[one.name for one in native.kinds_here() if one.files is None] or ["best"])
def processor(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Each kind that this processor is."""
    monkeypatch.setenv("OPSCOPE_CPU", request.param)
    return str(request.param)


@pytest.mark.usefixtures("processor")
@pytest.mark.parametrize("text", _FUNCTIONS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_errors_are_a_few_units(dtype: str, text: str) -> None:
    function, bound = _FUNCTIONS[text]
    x = numbers(dtype)
    if "/" in text:
        x = x[x > _ZERO_FROM[dtype]]
    more = np.float64 if dtype == "float32" else np.longdouble
    if np.finfo(more).nmant <= np.finfo(dtype).nmant:
        pytest.skip("this machine has no numbers of more digits")
    with np.errstate(all="ignore"):
        wrong = errors(apply(text, x), function(x.astype(more)))
    worst = int(np.argmax(wrong))
    assert wrong[worst] < bound, (x[worst], wrong[worst])
    assert wrong.max() > 0.5  # they are no other functions, which round once


@pytest.mark.usefixtures("processor")
@pytest.mark.parametrize("text", _FUNCTIONS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_ends_are_those_of_numpy(dtype: str, text: str) -> None:
    """Signs of zeros count, and NaN stays NaN in its lane alone."""
    tiny = np.finfo(dtype).smallest_subnormal
    given = [0.0, -0.0, np.inf, -np.inf, np.nan, 1e4, -1e4, 1e30, -1e30, tiny, -tiny, -5 * tiny]
    x = np.array(given * 11, dtype)  # whole vectors, and a part of one
    with np.errstate(all="ignore"):
        wanted = _FUNCTIONS[text][0](x)
    found = apply(text, x)
    np.testing.assert_array_equal(found, wanted)
    known = ~np.isnan(wanted)
    np.testing.assert_array_equal(np.signbit(found[known]), np.signbit(wanted[known]))


@pytest.mark.usefixtures("processor")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_small_results(dtype: str) -> None:
    """Denormal results of exp, and zeros below them; sigmoids that are denormal or 0."""
    low = np.log(np.finfo(dtype).tiny)
    x = np.linspace(1.25 * low, low, 1001).astype(dtype)
    with np.errstate(under="ignore", over="ignore"):
        wanted = np.exp(x.astype(np.longdouble)).astype(dtype)
    tiny = np.finfo(dtype).smallest_subnormal
    assert wanted[0] == 0 and (wanted > 0).sum() > 200
    np.testing.assert_allclose(apply("exp(x0)", x), wanted, rtol=0, atol=2 * float(tiny))
    found = apply("1 / (1 + exp(-x0))", x)
    assert found[0] == 0 and (found >= 0).all() and found.max() < 2 * np.finfo(dtype).tiny


def test_a_sigmoid_is_one_function() -> None:
    """In either order of its sum; other quotients are none."""
    for text, calls in {
        "1 / (1 + exp(-x0))": ["sigmoid"],
        "1 / (exp(-x0) + 1)": ["sigmoid"],
        "x0 / (1 + exp(-x0))": ["exp"],
        "1 / (2 + exp(-x0))": ["exp"],
        "1 / (1 + exp(x0))": ["exp"],
        "1 / (1 + 1)": [],
        "1 / (1 + exp(-(x0 * x0)))": ["sigmoid"],
        "1 / (1 + exp2(-x0))": ["exp2"],
    }.items():
        loop = Loop("float32", (Operand(FULL, "float32"),) * 2, (parse(text),), ((1, "v0"),))
        graph = Graph(loop)
        graph_calls = [graph.operations[i] for i in graph.needed()]
        assert [one.extra for one in graph_calls if one.name == "call"] == calls, text
