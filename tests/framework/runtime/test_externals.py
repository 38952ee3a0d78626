"""What a net reads from a scope is looked at again where it has changed."""

from __future__ import annotations

import numpy as np
import pytest

from opscope import Scope
from opscope.framework.base.errors import ShapeError, VariableError
from opscope.framework.ir.desc import INPUT, PARAMETER, make_var
from opscope.framework.runtime.externals import externals_of

NAMES = ["x", "w"]
DECLARED = {
    "x": make_var("x", (-1, 3), "float32", INPUT),
    "w": make_var("w", (3, 2), "float32", PARAMETER),
}


def scope_of(rows: int) -> Scope:
    scope = Scope()
    scope.feed({"x": np.ones((rows, 3), "f4"), "w": np.ones((3, 2), "f4")})
    return scope


def test_other_values_have_other_signatures() -> None:
    scope = scope_of(4)
    outside = externals_of(NAMES, scope)
    assert externals_of(NAMES, scope) is outside
    specs, levels, first = outside.specs(DECLARED, "net")
    assert specs == {"x": ((4, 3), np.dtype("f4")), "w": ((3, 2), np.dtype("f4"))} and not levels
    scope.feed({"x": np.zeros((4, 3), "f4")})
    assert outside.specs(DECLARED, "net")[2] == first
    scope.feed({"x": np.zeros((5, 3), "f4")})
    specs, _, second = outside.specs(DECLARED, "net")
    assert specs["x"][0] == (5, 3) and second != first
    scope.feed({"x": np.zeros((4, 3), "f4")})
    scope.get("w").bind(np.ones((3, 2), "f8").astype("f4"))
    assert outside.specs(DECLARED, "net")[2] == first


def test_constants_are_others_where_what_no_run_feeds_has_another_array() -> None:
    scope = scope_of(4)
    outside = externals_of(NAMES, scope)
    assert outside.constants is not outside.constants, "nothing was looked at"
    outside.specs(DECLARED, "net")
    first = outside.constants
    scope.feed({"x": np.zeros((5, 3), "f4")})
    outside.specs(DECLARED, "net")
    assert outside.constants is first
    scope.get("w").bind(np.ones((3, 2), "f4"))
    assert outside.constants is not first
    outside.specs(DECLARED, "net")
    second = outside.constants
    assert second is not first and outside.constants is second


def test_a_local_variable_hides_that_of_a_parent() -> None:
    parent = scope_of(4)
    kid = parent.new_scope()
    outside = externals_of(NAMES, kid)
    assert outside.specs(DECLARED, "net")[0]["x"][0] == (4, 3)
    kid.var("x").set(np.ones((7, 3), "f4"))
    assert outside.specs(DECLARED, "net")[0]["x"][0] == (7, 3)
    kid.erase("x")
    assert outside.specs(DECLARED, "net")[0]["x"][0] == (4, 3)


def test_offsets_that_change_alone() -> None:
    scope = scope_of(4)
    outside = externals_of(NAMES, scope)
    array = scope.get("x").inner
    scope.get("x").bind(array, (np.array([0, 1, 4]),))
    _, levels, first = outside.specs(DECLARED, "net")
    assert levels["x"][0].tolist() == [0, 1, 4]
    scope.get("x").bind(array, (np.array([0, 2, 4]),))
    _, levels, second = outside.specs(DECLARED, "net")
    assert levels["x"][0].tolist() == [0, 2, 4] and first != second
    scope.get("x").bind(array)
    assert outside.specs(DECLARED, "net")[1] == {}


def test_what_is_wrong_is_named_each_time() -> None:
    scope = scope_of(4)
    outside = externals_of(NAMES, scope)
    outside.specs(DECLARED, "net")
    for _ in range(2):
        scope.feed({"x": np.ones((4, 5), "f4")})
        with pytest.raises(ShapeError, match=r"net: variable 'x' wants .* was given"):
            outside.specs(DECLARED, "net")
    scope.get("x").clear()
    with pytest.raises(VariableError, match="'x' holds no value"):
        outside.specs(DECLARED, "net")
    scope.erase("x")
    with pytest.raises(VariableError, match="the scope has no variable 'x'"):
        outside.specs(DECLARED, "net")
    scope.feed({"x": np.ones((2, 3), "f4")})
    assert outside.specs(DECLARED, "net")[0]["x"][0] == (2, 3)
