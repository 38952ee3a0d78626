"""What recurrent and recursive nets share: links, memories, caches, copies of rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from opscope.framework.base.errors import VariableError
from opscope.framework.base.python.bounded_cache import BoundedCache
from opscope.framework.base.scope import Scope
from opscope.framework.fusion.rows.row_copies import (
    copy_call,
    fill_call,
    put_call,
    take_call,
    take_rows,
)
from opscope.framework.ir.desc import make_op, make_var
from opscope.framework.ir.operation import Operator
from opscope.framework.loops.inner_links import (
    check_given,
    check_reads,
    check_taken,
    declared_row,
    slot_positions,
)
from opscope.framework.loops.trees.bank import Bank, StaticInput


def operators() -> list[Operator]:
    """a = tanh(x), state = exp(a)"""
    descs = (
        make_op("tanh", {"x": "x"}, {"out": "a"}),
        make_op("exp", {"x": "a"}, {"out": "state"}),
    )
    return [Operator(desc, index) for index, desc in enumerate(descs)]


def test_slot_positions() -> None:
    assert slot_positions(["a", "", "b", ""]) == [0, -1, 1, -1]
    assert slot_positions([]) == []


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (["x", "p", "x"], "my net: 'x' of the inner net is linked twice"),
        (["x", "a"], "my net: 'a' comes from outside, but the inner net writes it"),
    ],
)
def test_given_names_are_refused(given: list[str], why: str) -> None:
    with pytest.raises(VariableError) as error:
        check_given("my net", "inner net", given, {"a"})
    assert str(error.value) == why


def test_given_names_are_taken() -> None:
    check_given("my net", "inner net", ["x", "p"], {"a"})
    check_taken("my net", "inner net", [("its out link takes", "a")], {"a"})


def test_what_nobody_writes_is_not_taken() -> None:
    with pytest.raises(VariableError) as error:
        check_taken("my net", "inner net", [("its out link takes", "stat")], ["state"])
    assert str(error.value) == (
        "my net: its out link takes 'stat', which no operator of the inner net writes"
        " (did you mean state?)"
    )


def test_reads_are_given_or_written_before() -> None:
    check_reads("my net", "inner net", ["x"], operators(), {})
    with pytest.raises(VariableError, match="of the inner net reads 'x', which is neither linked"):
        check_reads("my net", "inner net", ["y"], operators(), {})
    with pytest.raises(VariableError, match="reads 'a', which is neither linked nor written befo"):
        check_reads("my net", "inner net", ["x"], operators()[::-1], {})


def test_declared_rows() -> None:
    open_, whole = make_var("v", [-1, -1], "float32"), make_var("v", [-1, 4, 2], "float64")
    assert declared_row(None, open_, whole) == ((4, 2), np.dtype("float64"))
    assert declared_row(open_, make_var("v", None, None)) is None


def test_a_full_cache_drops_what_was_used_least_recently() -> None:
    cache: BoundedCache[int, str] = BoundedCache(2)
    assert cache.get(1) is None
    assert [cache.add(number, text) for number, text in ((1, "a"), (2, "b"), (3, "c"))] == [*"abc"]
    assert (cache.get(1), cache.get(2), cache.get(3), len(cache)) == (None, "b", "c", 2)
    cache.add(2, "d")
    assert cache.get(2) == "d"
    cache.add(4, "e")
    assert (cache.values(), cache.get(3)) == (["d", "e"], None)


def test_copies_of_rows() -> None:
    source, rows = np.arange(8.0).reshape(4, 2), np.array([3, 0, 3])
    taken, now, put = np.zeros((3, 2)), np.zeros((3, 2)), np.zeros((5, 2))
    take_call(np, source, rows, taken)()
    take_rows(np, source, rows, now)
    np.testing.assert_array_equal(taken, source[rows])
    np.testing.assert_array_equal(now, source[rows])
    put_call(np, source, None, np.array([4, 1, 0, 2]), put)()
    np.testing.assert_array_equal(put[[4, 1, 0, 2, 3]], [*source, [0, 0]])
    put_call(np, source, np.array([1]), np.array([3]), put)()
    np.testing.assert_array_equal(put[3], source[1])
    copy_call(np, source, put[:4])()
    np.testing.assert_array_equal(put[:4], source)
    fill_call(put[1:3], 0.5)()
    assert (put[1:3] == 0.5).all() and (put[3] == source[3]).all()


def test_declared_names_hide_those_outside() -> None:
    outer = Scope()
    outer.var("x").set(np.ones(2))
    inner = outer.new_scope()
    inner.declare(["x", "y"])
    assert inner.names() == ["x", "y"] and inner.get("x").array is None


def static(array: Any = None, shape: tuple[int, ...] = (2,), offsets: Any = ()) -> StaticInput:
    return StaticInput(array, shape, np.dtype("float32"), offsets)


def test_a_bank_serves_what_it_is_bound_to() -> None:
    array = np.zeros(2, np.float32)
    bank = Bank(("signature",), [static(array), static(offsets=(np.array([0, 2]),))])
    same = [static(array), static(offsets=(np.array([0, 2]),))]
    assert bank.serves(("signature",), same)
    assert not bank.serves(("other",), same)
    assert not bank.serves(("signature",), same[:1])
    assert not bank.serves(("signature",), [static(array.copy()), same[1]])
    assert not bank.serves(("signature",), [same[0], static(offsets=(np.array([0, 1]),))])
    assert not bank.serves(("signature",), [static(array, (1, 2)), same[1]])


def test_a_run_takes_each_batch_once() -> None:
    bank, made = Bank((), []), []

    def make() -> Any:
        made.append(object())
        return made[-1]

    taken = [bank.take((False, 4), make), bank.take((False, 4), make), bank.take((True, 4), make)]
    assert taken == made and len(made) == 3
    bank.taken.clear()
    assert bank.take((False, 4), make) is made[0] and len(made) == 3
