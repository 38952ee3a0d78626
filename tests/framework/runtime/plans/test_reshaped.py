"""Results of reshapes in the memory of their inputs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from opscope.framework.base.context import OpContext
from opscope.framework.base.scope import Scope
from opscope.framework.runtime.plain_net import PlainNet

_X = np.arange(24, dtype=np.float32).reshape(4, 6) / 10


def _frame(*ops: tuple[str, dict[str, str], str, dict[str, Any]], wanted: str) -> Any:
    """The frame of operators (type, inputs, output, attributes), after a run."""
    net, scope = PlainNet(), Scope()
    for op_type, inputs, out, attrs in ops:
        net.add_op(op_type, {slot: [name] for slot, name in inputs.items()}, {"out": [out]}, attrs)
    scope.feed({"x": _X})
    context = OpContext(live_out=frozenset({wanted}))
    net.run(scope, context)
    return net.frame(scope, context), scope.get(wanted).numpy()


_RESHAPE = ("reshape", {"x": "h"}, "flat", {"shape": [24]})


def test_a_reshape_of_what_is_read_later_copies_nothing() -> None:
    frame, found = _frame(
        ("exp", {"x": "x"}, "h", {}),
        _RESHAPE,
        ("softmax", {"x": "flat"}, "p", {}),
        ("softmax", {"x": "h"}, "q", {}),
        ("reshape", {"x": "q"}, "r", {"shape": [24]}),
        ("mul", {"x": "p", "y": "r"}, "out", {}),
        wanted="out",
    )
    assert np.shares_memory(frame.arrays["h"], frame.arrays["flat"])
    powers = np.exp(np.exp(_X))
    wanted = powers / powers.sum() * powers / powers.sum(1, keepdims=True)
    np.testing.assert_allclose(found, wanted.reshape(-1), rtol=1e-5)


@pytest.mark.parametrize("first", ["h", "flat"])
def test_neither_is_written_over_while_the_other_one_is_read(first: str) -> None:
    other = {"h": "flat", "flat": "h"}[first]
    frame, found = _frame(
        ("exp", {"x": "x"}, "h", {}),
        _RESHAPE,
        ("softmax", {"x": first}, "p", {}),  # it may write over what it reads last
        ("softmax", {"x": other}, "q", {}),
        ("reshape", {"x": "p"}, "u", {"shape": [24]}),
        ("reshape", {"x": "q"}, "v", {"shape": [24]}),
        ("sub", {"x": "u", "y": "v"}, "out", {}),
        wanted="out",
    )
    assert np.shares_memory(frame.arrays["h"], frame.arrays["flat"])
    powers = np.exp(np.exp(_X))
    rows = powers / powers.sum(1, keepdims=True)
    wanted = (powers / powers.sum() - rows) * (1 if first == "flat" else -1)
    np.testing.assert_allclose(found, wanted.reshape(-1), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("written", ["h", "flat"])
def test_what_is_written_again_has_memory_of_its_own(written: str) -> None:
    frame, found = _frame(
        ("exp", {"x": "x"}, "h", {}),
        _RESHAPE,
        ("tanh", {"x": written}, written, {}),
        ("reshape", {"x": "h"}, "u", {"shape": [24]}),
        ("sub", {"x": "u", "y": "flat"}, "out", {}),
        wanted="out",
    )
    assert not np.shares_memory(frame.arrays["h"], frame.arrays["flat"])
    h = np.exp(_X).reshape(-1)
    difference = np.tanh(h) - h
    np.testing.assert_allclose(found, difference if written == "h" else -difference, rtol=1e-5)
