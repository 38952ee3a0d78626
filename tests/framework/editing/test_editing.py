"""What all languages of edits share: patterns, ranks, the text of differences, refusals."""

from __future__ import annotations

import numpy as np
import pytest

from opscope.framework.base.errors import AttributeTypeError, OpscopeError, VariableError
from opscope.framework.editing.difference import difference
from opscope.framework.editing.low_rank import Parts, checked, cut
from opscope.framework.editing.operations import (
    Copy,
    Edit,
    LowRank,
    Rename,
    SetRate,
    perform_by,
    told_by,
)
from opscope.framework.editing.patterns import matching, renamed_pairs
from opscope.framework.ir.desc import INPUT, PARAMETER, make_op, make_var
from opscope.framework.ir.op_list import OpList

NAMES = ["a.w", "a.b", "b.w", "out"]


def test_names_of_patterns():
    assert matching(NAMES, ["*.w", "a.*"], "parameter") == ["a.w", "a.b", "b.w"]
    with pytest.raises(VariableError, match=r"no parameter is called 'c\*'; there are a.w, a.b"):
        matching(NAMES, ["a*", "c*"], "parameter")
    with pytest.raises(VariableError, match=r"called 'outt' \(did you mean out\?\)"):
        matching(NAMES, ["outt"], "output")


def test_pairs_of_names():
    assert renamed_pairs(NAMES, "*.w", "w.*", "node") == [("a.w", "w.a"), ("b.w", "w.b")]
    assert renamed_pairs(NAMES, "out", "y", "node") == [("out", "y")]
    assert renamed_pairs(["aba"], "a*a", "*", "node") == [("aba", "b")]
    for new in ("x", "*x*"):
        with pytest.raises(VariableError, match="must have one star each, or none"):
            renamed_pairs(NAMES, "a*", new, "node")


def test_decompositions():
    matrix = np.random.default_rng(0).normal(size=(6, 4)).astype("f")
    parts = Parts.of(matrix)
    left, right = parts.factors(4)
    np.testing.assert_allclose(left @ right, matrix, atol=1e-6)
    np.testing.assert_allclose(np.linalg.norm(left, axis=0), np.linalg.norm(right, axis=1))
    left, right = parts.factors(2)
    assert np.linalg.norm(matrix - left @ right) == pytest.approx(np.linalg.norm(parts.s[2:]))
    np.testing.assert_allclose(parts.nearest(2), left @ right, atol=1e-12)
    share = (parts.s[:2] ** 2).sum() / (parts.s**2).sum()
    assert parts.rank_holding(share * 0.999) == 2 and parts.rank_holding(share * 1.001) == 3
    assert cut(LowRank(("*",), 5), matrix) is None
    assert cut(LowRank(("*",), 3, shrinkage=1), matrix) is None  # 30 numbers for 24
    assert cut(LowRank(("*",), 2, shrinkage=1), matrix) is not None
    for rank, keep in ((0, 0.0), (2, 0.5), (-1, 0.0), (0, 1.0)):
        with pytest.raises(AttributeTypeError):
            checked(LowRank(("*",), rank, keep))


def test_edits_are_told_by_name():
    edits = Edit.__subclasses__()
    assert len(edits) == len({edit.__name__ for edit in edits}) == 18
    error = told_by(OpscopeError("no such thing"), LowRank(("a",), 2))
    assert str(error) == "low-rank: no such thing"
    assert str(told_by(error, LowRank(("a",), 2))) == "low-rank: no such thing"
    with pytest.raises(VariableError, match="the edit 'copy' is not for this kind.*: because"):
        perform_by({}, {Copy: "because"}, None, Copy("a", "b"))
    assert perform_by({Rename: lambda net, edit: f"{net} {edit.new}"}, {}, "x", Rename("a", "b"))
    with pytest.raises(VariableError, match="it has nothing of that sort"):
        perform_by({}, {}, None, SetRate(("a",), 1.0))


def _net(kind: str = "relu", size: int = 3) -> OpList:
    net = OpList("n")
    net.vars = [
        make_var("x", (-1, 2), "float32", INPUT),
        make_var("w", (2, size), "float32", PARAMETER),
        make_var("h", (-1, size), "float32"),
        make_var("y", (-1, size), "float32"),
    ]
    net.ops = [
        make_op("matmul", {"x": "x", "y": "w"}, {"out": "h"}),
        make_op(kind, {"x": "h"}, {"out": "y"}, {"p": 0.5} if kind == "dropout" else {}),
    ]
    return net


def test_differences():
    values = {"w": np.zeros((2, 3), "f")}
    same = difference(_net(), values, _net(), {"w": values["w"].copy()})
    assert not same and str(same) == "no difference"
    nan = {"w": np.full((2, 3), np.nan, "f")}
    assert not difference(_net(), nan, _net(), {"w": nan["w"].copy()})
    other = values["w"].copy()
    other[1, 2] = 0.25
    found = difference(_net(), values, _net("dropout"), {"w": other})
    assert str(found).splitlines() == [
        "~ y",
        "    type: relu -> dropout",
        "    p: none -> 0.5",
        "~ w",
        "    1 of 6 numbers differ, by at most 0.25",
        "0 removed, 0 added, 2 changed",
    ]
    wide = difference(_net(), values, _net(size=4), {"w": np.zeros((2, 4), "f")})
    assert wide.changed["w"] == ["shape: [2, 3] -> [2, 4]"]
    short = _net()
    del short.ops[1], short.vars[3]
    less = difference(_net(), values, short, values)
    assert less.removed == ["y = relu(h) [?, 3]"] and not less.added and not less.changed
    turned = _net()
    turned.ops.reverse()
    order = difference(_net(), values, turned, values)
    assert order.changed == {"network": ["the order of operators"]}
