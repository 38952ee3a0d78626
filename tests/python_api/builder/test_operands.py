"""Methods that take variables one after the other, and the layer prelu."""

from __future__ import annotations

import re

import numpy as np
import pytest

from opscope import NetBuilder
from opscope.framework.base.errors import AttributeTypeError, ShapeError, SlotError, VariableError
from opscope.framework.base.scope import Scope
from opscope.python_api.builder.typed_names import METHODS_ELSEWHERE as ELSEWHERE


def values(b, feed, *fetch):
    found = b.run(Scope(), feed=feed, fetch=list(fetch), need_backward=False)
    return [found[var.name] for var in fetch]


class TestEinsum:
    @pytest.fixture
    def b(self):
        return NetBuilder()

    def test_operands_one_by_one_or_in_a_list(self, b):
        x, y = b.input("x", [-1, 3]), b.input("y", [3, 4])
        one, other = b.einsum("ij,jk->ik", x, y), b.einsum("ij,jk->ik", [x, y], name="z")
        assert one.shape == (-1, 4) and other.name == "z"
        feed = {"x": np.ones((2, 3), np.float32), "y": np.ones((3, 4), np.float32)}
        for found in values(b, feed, one, other):
            np.testing.assert_array_equal(found, np.full((2, 4), 3))

    def test_refuses(self, b):
        x = b.input("x", [-1, 3])
        with pytest.raises(ShapeError, match=r"einsum.*'ij,jk->ik'.* 2 operands and is given 1"):
            b.einsum("ij,jk->ik", x)

        with pytest.raises(AttributeTypeError, match="einsum takes the equation first.*<Var x"):
            b.einsum(x, "ij->ji")

    def test_as_an_operator(self, b):
        x = b.input("x", [2, 3])
        assert b.add_op("einsum", [x], equation="ij->j").shape == (3,)


class TestMeshgrid:
    def test_one_result_for_each_vector(self):
        b = NetBuilder()
        x, y = b.input("x", [-1]), b.input("y", [3])
        rows, columns = b.meshgrid(x, y)
        assert rows.shape == columns.shape == (-1, 3)
        (alone,) = b.meshgrid([y])
        feed = {"x": np.float32([1, 2]), "y": np.float32([5, 6, 7])}
        found = values(b, feed, rows, columns, alone)
        wanted = [*np.meshgrid(feed["x"], feed["y"], indexing="ij"), feed["y"]]
        for one, other in zip(found, wanted, strict=True):
            np.testing.assert_array_equal(one, other)
        assert b.meshgrid(x, y, indexing="xy")[0].shape == (3, -1)


def test_names_of_other_libraries_are_understood():
    methods = set(dir(NetBuilder()))
    assert all(re.match(r"\w+", ours)[0] in methods for ours in ELSEWHERE.values())
    assert all(theirs == theirs.lower() for theirs in ELSEWHERE)
    for theirs, ours in (("std", "reduce_std"), ("hardswish", "hard_swish"), ("clamp", "clip")):
        with pytest.raises(AttributeError, match=f"'{theirs}'; write b.{ours}"):
            getattr(NetBuilder(), theirs)
    with pytest.raises(AttributeError, match=r"write b.net, and save all with opscope.save\(b, "):
        NetBuilder().save()


def test_arguments_of_other_libraries_are_understood():
    b = NetBuilder()
    x = b.input("x", [-1, 3])
    with pytest.raises(AttributeTypeError, match=r"norm has no .*'ord' \(write p=1\)"):
        b.norm(x, ord=1)
    with pytest.raises(AttributeTypeError, match=r"tril has no .*'k' \(write diagonal=1\)"):
        b.tril(x, k=1)
    with pytest.raises(VariableError, match="var takes a name.*<Var x.*write b.reduce_var"):
        b.var(x)


class TestPrelu:
    def test_one_slope_for_each_channel_or_one_for_all(self):
        b = NetBuilder()
        x = b.input("x", [-1, 3, 2])
        out, shared = b.prelu(x, name="p"), b.prelu(x, shared=True, init=0.5, name="q")
        assert b.shape_of("p.w") == (3,) and b.shape_of("q.w") == (1,)
        x = np.array([[[1, -2], [-4, 0], [3, -8]]], np.float32)
        found = values(b, {"x": x}, out, shared)
        np.testing.assert_array_equal(found[0], np.where(x > 0, x, x / 4))
        np.testing.assert_array_equal(found[1], np.where(x > 0, x, x / 2))

    def test_a_slope_that_is_there(self):
        b = NetBuilder()
        x = b.input("x", [-1, 3])
        b.prelu(x, name="p")
        slope = b.var("p.w")
        b.prelu(x, slope)
        b.add_op("prelu", x, slope)
        made = [var.name for var in b.op_list.vars if var.name.endswith(".w")]
        assert made == ["p.w"]
        with pytest.raises(AttributeTypeError, match="w="):
            b.prelu(x, slope, trainable=False)

    def test_channels_must_be_known(self):
        b = NetBuilder()
        with pytest.raises(ShapeError, match="prelu.*must be known"):
            b.prelu(b.input("x", [-1, -1]))


X = np.array([[1.5, -2, 3], [0.5, 4, -1]], np.float32)
N = np.array([3, -1, 2])


@pytest.mark.parametrize(
    ("method", "wanted", "number"),
    [
        *((name, getattr(np, ufunc), 2.5) for name, ufunc in (
            ("add", "add"), ("sub", "subtract"), ("mul", "multiply"), ("div", "divide"),
            ("mod", "mod"), ("fmod", "fmod"), ("floor_divide", "floor_divide"),
            ("atan2", "arctan2"), ("equal", "equal"), ("not_equal", "not_equal"),
            ("less", "less"), ("less_equal", "less_equal"), ("greater", "greater"),
            ("greater_equal", "greater_equal"), ("maximum", "maximum"), ("minimum", "minimum"),
        )),
        ("pow", np.power, 2),
    ],
)  # fmt: skip
def test_elementwise_methods_take_numbers_and_arrays(method, wanted, number):
    b = NetBuilder()
    x = b.input("x", [-1, 3])
    call, row = getattr(b, method), np.array([2, 1, 0.5], np.float32)
    results = call(x, number), call(x=x, y=row, name="named"), call("x", y=number)
    swapped = () if method == "pow" else (call(number, x),)
    found = values(b, {"x": X}, *results, *swapped)
    with np.errstate(invalid="ignore"):
        told = wanted(X, number), wanted(X, row), wanted(X, number), wanted(number, X)
    for one, other in zip(found, told, strict=False):
        np.testing.assert_allclose(one, other.astype(one.dtype), rtol=1e-6)
    assert results[1].name == "named"


def test_numbers_get_the_dtype_of_the_other():
    b = NetBuilder()
    n, x, t = b.input("n", [3], dtype="int64"), b.input("x", [3]), b.input("t", [3], dtype="bool")
    assert b.mul(n, 2).dtype == np.int64 and b.mul(n, 2.5).dtype == np.float32
    assert b.mul(x, 2).dtype == np.float32 and b.add(x, np.float64(1)).dtype == np.float32
    (both,) = values(b, {"t": N > 0}, b.logical_and(t, True))
    np.testing.assert_array_equal(both, N > 0)
    b.backward_from(b.sum(b.mul(x, 3.0)), wrt=[x])
    with pytest.raises(SlotError, match="input slot 'y' is missing"):
        b.mul(x, None)
    with pytest.raises(SlotError):
        b.mul(x, 2.0, 3.0)
    with pytest.raises(SlotError):
        b.mul(2.0)
    with pytest.raises(VariableError, match="no variable 'z'"):
        b.mul("z", 2.0)
