"""Operators that say they work row by row give the same in one go and step by step."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from opscope import NetBuilder
from opscope.framework.base.context import OpContext
from opscope.framework.base.scope import Scope

ON_ROWS = [  # operator and attributes, for rows of 4 x 3 numbers
    ("glu", {"axis": 1}),
    ("prelu", {}),
    ("reduce_var", {"axes": [1, 2]}),
    ("reduce_std", {"axes": [-1]}),
    ("norm", {"axes": [1], "p": 3.0}),
    ("normalize", {"axis": 1}),
    ("cumsum", {"axis": 1}),
    ("cumprod", {"axis": -1, "reverse": True}),
    ("flip", {"axes": [1]}),
    ("roll", {"axes": [1, 2], "shifts": [1, -1]}),
    ("repeat_interleave", {"axis": 2, "repeats": 2}),
    ("mish", {}),
    ("log1p", {}),
]
NOT_ON_ROWS = [  # by attributes that name the axis of the rows, or all
    ("reduce_var", {}),
    ("norm", {"axes": [0]}),
    ("cumprod", {"axis": 0}),
    ("flip", {}),
    ("roll", {"shifts": [1]}),
    ("tril", {}),
    ("einsum", {"equation": "nij->nji"}),
]


@pytest.mark.parametrize(("op", "attrs"), ON_ROWS + NOT_ON_ROWS)
def test_both_ways(op: str, attrs: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(3)
    sequences = [rng.uniform(0.1, 2, (length, 12)).astype(np.float32) for length in (3, 1, 2)]
    found = {}
    for way in ("steps", "fast"):
        monkeypatch.setenv("OPSCOPE_RECURRENT", way)
        b = NetBuilder()
        x = b.input("x", [-1, 12], levels=1)
        w = b.parameter("w", [12], 0.7)
        with b.recurrent("loop") as step:
            row, state = step.input(x), step.memory(1)
            rows = b.reshape(b.mul(row, w), shape=[0, 4, 3])
            rows = [rows] if op == "einsum" else rows
            value = b.prelu(rows, name="slopes") if op == "prelu" else b.add_op(op, rows, **attrs)
            total = b.reduce_sum(b.sin(value), keepdims=True)
            total = b.reshape(total, shape=[-1])
            new = b.add(b.scale(state, scale=0.5), total)
            step.update(state, new)
            out = step.output(new)
        b.backward_from(b.mean(out))
        scope = Scope()
        fetch = [out.name, b.gradient("w")]
        context = OpContext(seed=0)
        ran = b.run(scope, feed={"x": sequences}, fetch=fetch, context=context)
        found[way] = [ran[name] for name in fetch]
    for one, other in zip(*found.values(), strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-5, atol=1e-6)
    assert np.abs(found["fast"][1]).max() > 0
