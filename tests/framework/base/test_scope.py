"""Scope and Variable: identity, offsets, kids, look-up, errors."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest

from opscope.framework.base.backend import CPUPlace, parse_place
from opscope.framework.base.errors import DeviceError, ShapeError, VariableError
from opscope.framework.base.scope import Scope, default_scope


def test_var_makes_locally_and_find_climbs():
    root = Scope(CPUPlace())
    kid = root.new_scope()
    made = root.var("w")
    assert kid.find("w") is made and "w" in kid
    assert kid.var("w") is not made, "var makes locally"
    assert kid.find("w") is kid.var("w"), "the nearest one wins"
    assert root.find("w") is made
    assert kid.names() == ["w"] and root.find("nothing") is None


def test_get_names_the_nearest():
    scope = Scope()
    scope.var("weight")
    with pytest.raises(VariableError, match=r"no variable 'wieght'.*did you mean weight"):
        scope.new_scope().get("wieght")


def test_kids_are_owned_by_their_parent():
    root = Scope()
    kid = weakref.ref(root.new_scope())
    gc.collect()
    assert kid() is not None and kid().parent is root and kid().place == root.place
    root.drop_kids()
    gc.collect()
    assert kid() is None


def test_set_copies_and_keeps_the_array_while_shape_and_dtype_stay():
    variable = Scope().var("x")
    given = np.array([1.0, 2.0], np.float32)
    variable.set(given)
    held = variable.array
    given[0] = 9
    assert variable.numpy().tolist() == [1, 2], "the caller's array is not held"
    variable.set(np.array([3.0, 4.0], np.float32))
    assert variable.array is held and held.tolist() == [3, 4]
    variable.set([5.0, 6.0, 7.0], dtype="float32")
    assert variable.array is not held and variable.shape == (3,)
    variable.set([5.0, 6.0, 7.0])
    assert variable.array.dtype == np.float64, "without dtype the value's own"


def test_numpy_is_a_copy():
    variable = Scope().var("x")
    variable.set([1.0])
    variable.numpy()[0] = 7
    assert variable.numpy().tolist() == [1.0]


def test_clear_and_erase():
    scope = Scope()
    scope.var("x").set([1.0])
    scope.var("x").clear()
    assert "x" in scope and scope.get("x").array is None
    with pytest.raises(VariableError, match="'x' holds no value"):
        scope.numpy("x")
    scope.erase("x")
    scope.erase("x")
    assert "x" not in scope


def test_feed_sets_where_the_variable_is():
    root = Scope()
    root.var("w").set([1.0])
    kid = root.new_scope()
    kid.feed({"w": [2.0], "x": [3.0]})
    assert root.numpy("w").tolist() == [2.0]
    assert kid.names() == ["x"] and "x" not in root


def test_a_change_of_identity_marks_the_whole_tree():
    root = Scope()
    kid = root.new_scope()
    before = root.version
    kid.var("x").set([1.0])
    after = root.version
    assert after != before
    kid.var("x").set([2.0])
    assert root.version == after, "copying into the same array changes no version"
    kid.var("x").set([1.0, 2.0])
    assert root.version != after


def test_offsets_are_kept_and_replaced():
    variable = Scope().var("x")
    variable.set(np.zeros((5, 2)), offsets=[[0, 1, 2], [0, 2, 5]])
    assert [level.tolist() for level in variable.offsets] == [[0, 1, 2], [0, 2, 5]]
    assert variable.offsets[0].dtype == np.int64
    variable.set(np.zeros((5, 2)))
    assert variable.offsets == ()


@pytest.mark.parametrize(
    ("offsets", "message"),
    [
        ([[1, 5]], "must be a list that starts with 0"),
        ([[]], "must be a list that starts with 0"),
        ([[0, 3, 2, 5]], r"level 0 fall from 3 to 2 at entry 2"),
        ([[0, 4]], "end at 4, but there are 5 rows"),
        ([[0, 3], [0, 2, 5]], "level 0 end at 3, but there are 2 sequences"),
        ([[[0, 5]]], "must be a list that starts with 0"),
    ],
)
def test_bad_offsets_leave_the_variable_as_it_was(offsets, message):
    variable = Scope().var("x")
    variable.set(np.ones((5, 1)), offsets=[[0, 5]])
    with pytest.raises(ShapeError, match=message):
        variable.set(np.zeros((5, 1)), offsets=offsets)
    assert variable.numpy().sum() == 5 and variable.offsets[0].tolist() == [0, 5]


def test_a_scalar_carries_no_sequences():
    with pytest.raises(ShapeError, match="'x': a scalar cannot carry sequences"):
        Scope().var("x").set(1.0, offsets=[[0]])


@pytest.mark.parametrize("value", [[[1.0], [1.0, 2.0]], "text", [None], [1j], object()])
def test_values_that_are_no_arrays_of_numbers(value):
    variable = Scope().var("x")
    variable.set([3.0])
    with pytest.raises(ShapeError, match="variable 'x'"):
        variable.set(value)
    assert variable.numpy().tolist() == [3.0]


def test_step_scopes_show_in_the_text_form():
    scope = Scope()
    scope.var("steps").step_scopes = [scope.new_scope(), scope.new_scope()]
    scope.var("x").set(np.zeros((2, 3), np.float32))
    assert repr(scope.get("steps")) == "<Variable steps: 2 steps>"
    assert repr(scope.get("x")) == "<Variable x: float32[2, 3]>"
    assert repr(scope) == "<Scope on cpu: 2 variables, 2 kids>"


def test_default_scope_is_one():
    assert default_scope() is default_scope()


def test_places_by_text():
    assert str(parse_place("cpu")) == "cpu" and str(parse_place("gpu")) == "gpu:0"
    assert parse_place("gpu:3").index == 3
    for text in ("tpu", "cpu:1", "gpu:x", "gpu:-1", ""):
        with pytest.raises(DeviceError, match="is no device"):
            parse_place(text)
