"""Shape rules are asked once for operators that are alike but for the names of their variables."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from opscope.framework.base.errors import ShapeError
from opscope.framework.base.sizes.dims import Dims
from opscope.framework.ir.desc import make_op
from opscope.framework.ir.infer import infer_specs
from opscope.framework.ir.operation import Operator
from opscope.framework.ir.registry import lookup

F32 = np.dtype("float32")


def clip(x: str, out: str, most: float = 1.0) -> Operator:
    return Operator(make_op("clip", {"x": x}, {"out": out}, {"minimum": 0.0, "maximum": most}))


def test_alike_operators_share_what_the_rule_gave(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    entry = lookup("clip")
    rule: Any = entry.shape
    monkeypatch.setattr(entry, "shape", lambda s: (asked.append(s.op), rule(s)))
    shape = (3, 1234, 5)  # which no other test has
    operators = [clip("x", "a"), clip("a", "b"), clip("b", "c"), clip("c", "d", 2.0)]
    assert infer_specs(operators, {"x": (shape, F32)}, {}, {})["d"] == (shape, F32)
    assert len(asked) == 2
    infer_specs(operators, {"x": (shape, np.dtype("float64"))}, {}, {})
    assert len(asked) == 4


def test_sizes_that_vary_are_told_apart_without_a_look_at_their_values(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = []
    entry = lookup("clip")
    rule: Any = entry.shape
    monkeypatch.setattr(entry, "shape", lambda s: (asked.append(s.op), rule(s)))
    dims = Dims(hashes=False)
    rows, columns = dims.size(0, 4), dims.size(1, 4)  # equal now, and not always
    conditions = dict(dims.conditions)
    operators = [clip("x", "a"), clip("a", "b"), clip("b", "c"), clip("y", "d"), clip("z", "e")]
    known = {"x": ((rows, 7), F32), "y": ((columns, 7), F32), "z": ((rows + 1 - 1, 7), F32)}
    specs = infer_specs(operators, known, {}, {}, remember=False)
    assert len(asked) == 2  # of x and of y; z is as large as x
    assert specs["c"][0][0] is not columns and rows.is_same(specs["e"][0][0])
    assert rows.is_same(specs["c"][0][0]) and columns.is_same(specs["d"][0][0])
    assert dims.conditions == conditions
    infer_specs(operators, known, {}, {}, remember=False)
    assert len(asked) == 4  # nothing is remembered from list to list


def test_offsets_pass_through_what_was_asked_before() -> None:
    levels = (np.array([0, 2, 5]),)
    for _ in range(2):
        offsets = {"x": levels}
        infer_specs([clip("x", "a"), clip("a", "b")], {"x": ((5, 7), F32)}, {}, offsets)
        assert offsets["b"] is levels


def test_refused_inputs_are_refused_each_time() -> None:
    op = Operator(make_op("matmul", {"x": "a", "y": "b"}, {"out": "c"}))
    for _ in range(2):
        with pytest.raises(ShapeError, match="columns of x and rows of y.*a float32.*2, 3"):
            infer_specs([op], {"a": ((2, 3), F32), "b": ((4, 5), F32)}, {}, {})


@pytest.mark.parametrize("one", [0.0, -0.0])
def test_the_sign_of_a_zero_tells_operators_apart(one: float) -> None:
    assert clip("x", "a", one).signature() is clip("y", "b", one).signature()
    assert clip("x", "a", one).signature() is not clip("x", "a", -one).signature()
