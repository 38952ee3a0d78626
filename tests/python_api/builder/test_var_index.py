"""Indexing of a Var: values and shapes as NumPy's, gradients, and its refusals."""

from __future__ import annotations

import numpy as np
import pytest

from opscope import NetBuilder, Scope
from opscope.framework.base.errors import AttributeTypeError, OpscopeError, RunError, ShapeError

SHAPE = (3, 4, 2, 5)
X = np.random.default_rng(0).normal(size=SHAPE)
MASK = np.arange(4) % 3 == 0
MATRIX_MASK = np.arange(12).reshape(3, 4) % 5 == 0
IDS = np.array([2, 0, -1, 2])
TABLE = np.array([[1, 0], [-2, 3]])

KEYS = {
    "int": 1,
    "negative int": -1,
    "int of NumPy": np.int64(-2),
    "0-d array": np.array(2),
    "ints": (0, -1, 1),
    "all ints": (2, 3, 1, 4),
    "nothing": (),
    "all": slice(None),
    "begin": slice(None, 2),
    "end": slice(1, None),
    "negative end": slice(None, -1),
    "step": (slice(None), slice(None, None, 2)),
    "back": slice(None, None, -1),
    "back from": (slice(None), slice(2, None, -1)),
    "back to": (slice(None), slice(None, 0, -2)),
    "back by two": (..., slice(-1, 0, -2)),
    "empty": slice(2, 1),
    "far": slice(-100, 100),
    "very far": slice(-(10**30), 10**30),
    "two slices": (slice(1, None), slice(None, None, -1)),
    "dots": (..., 0),
    "dots between": (0, ..., -1),
    "dots alone": ...,
    "dots of nothing": (0, 0, ..., 0, 0),
    "new": None,
    "new axes": (None, slice(None), None, 1, None),
    "new last": (..., None),
    "list": [2, 0, 2],
    "empty list": [],
    "range": (slice(None), range(3)),
    "array": IDS,
    "array of an axis": (slice(None), IDS),
    "last axis": (..., IDS),
    "matrix of ids": (slice(None), TABLE),
    "array and int": (0, IDS),
    "int and array": (IDS, 1),
    "int, slice, array": (0, slice(None), [1, 0, 1]),
    "array, slice, int": (IDS, slice(None), 1),
    "array, dots, int": (IDS, ..., 1),
    "array and new": (None, IDS, None),
    "array, new, int": (IDS, None, 1),
    "array, slices": (slice(1, None), IDS, slice(None, None, -1)),
    "two arrays": ([0, 1, 2], [3, -1, 0]),
    "two arrays of an end": (..., [0, 1, -1], [0, -5, 4]),
    "two arrays apart": ([0, 1], slice(None), [1, -1]),
    "two arrays that broadcast": ([[0], [2]], [1, 2, 3]),
    "three arrays": ([0, 1], [3, 2], [1, 1]),
    "three apart": ([0, 1], [3, 2], slice(None), [1, 4]),
    "arrays, int, slice": ([0, 1], 2, [1, 0], slice(1, 3)),
    "mask": (slice(None), MASK),
    "mask of none": (slice(None), MASK & False),
    "mask of two axes": MATRIX_MASK,
    "mask and array": (slice(None), MASK, [0, 1]),
    "mask as a list": ([True, False, True],),
}


def taken(key, leading=SHAPE[0]):
    b = NetBuilder(dtype="float64")
    x = b.input("x", [leading, *SHAPE[1:]])
    return b, x, x[key]


@pytest.mark.parametrize("key", KEYS.values(), ids=KEYS)
def test_values_and_gradients(key):
    wanted = X[key]
    b, x, out = taken(key)
    assert out.shape == wanted.shape
    weight = np.random.default_rng(1).normal(size=wanted.shape)
    b.backward_from((out * weight).sum(), wrt=[x])
    gradient = np.zeros(SHAPE)
    np.add.at(gradient, key, weight)
    got = b.run(Scope(), feed={"x": X}, fetch=[out, b.gradient(x)])
    np.testing.assert_array_equal(got[out.name], wanted)
    np.testing.assert_allclose(got[b.gradient(x)], gradient, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("key", [k for k in KEYS.values() if k is not KEYS["mask of two axes"]])
def test_an_unknown_first_dimension(key):
    if np.asarray(key[0] if isinstance(key, tuple) and key else 0).dtype == bool:
        pytest.skip("truth values want a known dimension")
    b, _, out = taken(key, -1)
    wanted = X[key]
    assert len(out.shape) == wanted.ndim
    assert all(known in (-1, dim) for known, dim in zip(out.shape, wanted.shape, strict=True))
    got = b.run(Scope(), feed={"x": X}, fetch=[out], need_backward=False)[out.name]
    np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize("leading", [3, -1])
@pytest.mark.parametrize("dtype", ["int64", "int32", "int8", "uint8"])
@pytest.mark.parametrize(
    "key",
    [
        lambda i: i,
        lambda i: (slice(None), i),
        lambda i: (..., i),
        lambda i: (slice(None), 0, i),
        lambda i: (i, slice(None), 0),
        lambda i: (i, [0, 1, 3, 2]),
        lambda i: ([0, 1, 2, 1], i),
        lambda i: (i, i),
        lambda i: (i[:, None], i),
        lambda i: (i, slice(None), i, 0),
        lambda i: (slice(1, None), i, i // 2),
    ],
)
def test_variables_as_indexes(key, dtype, leading):
    b = NetBuilder(dtype="float64")
    x, i = b.input("x", [leading, *SHAPE[1:]]), b.input("i", [-1], dtype)
    ids = np.array([1, 0, 1, 0], dtype)
    if dtype[0] == "i":
        ids[1:3] = -1, -2
    out, wanted = x[key(i)], X[key(ids)]
    weight = np.random.default_rng(1).normal(size=wanted.shape)
    b.backward_from((out * weight).sum(), wrt=[x])
    gradient = np.zeros(SHAPE)
    np.add.at(gradient, key(ids), weight)
    got = b.run(Scope(), feed={"x": X, "i": ids}, fetch=[out, b.gradient(x)])
    np.testing.assert_array_equal(got[out.name], wanted)
    np.testing.assert_allclose(got[b.gradient(x)], gradient, rtol=1e-12, atol=1e-15)


def test_a_single_variable_takes_the_axis_away():
    b = NetBuilder()
    x, i = b.input("x", [-1, 4]), b.input("i", [], "int64")
    out = x[i]
    assert out.shape == (4,)
    got = b.run(Scope(), feed={"x": X[:, :, 0, 0], "i": -1}, fetch=[out], need_backward=False)
    np.testing.assert_allclose(got[out.name], X[-1, :, 0, 0], rtol=1e-6)


@pytest.mark.parametrize("bad", [3, -4])
@pytest.mark.parametrize("key", [lambda i: i, lambda i: (i, [0]), lambda i: ([0], i)])
def test_variables_out_of_range_are_found_in_the_run(key, bad):
    b = NetBuilder(dtype="float64")
    x, i = b.input("x", [-1, 3, 4, 5]), b.input("i", [1], "int64")
    out = x[key(i)]
    with pytest.raises(RunError, match="gather.* holds"):
        b.run(Scope(), feed={"x": np.zeros((3, 3, 4, 5)), "i": [bad]}, fetch=[out])


@pytest.mark.parametrize("place", [3, -4])
def test_an_unknown_dimension_that_is_too_short(place):
    b, _, out = taken(place, -1)
    with pytest.raises(OpscopeError, match="squeeze.*axis 0 has size 0"):
        b.run(Scope(), feed={"x": X}, fetch=[out])


def test_random_keys():
    """Keys of slices, integers, None, `...` and one array in any order."""
    rng = np.random.default_rng(3)
    b = NetBuilder(dtype="float64")
    x = b.input("x", [-1, *SHAPE[1:]])
    pairs = []
    for _ in range(150):
        key = random_key(rng)
        pairs.append((x[key], X[key], key))
    got = b.run(Scope(), feed={"x": X}, fetch=[out for out, *_ in pairs], need_backward=False)
    for out, wanted, key in pairs:
        np.testing.assert_array_equal(got[out.name], wanted, err_msg=str(key))


def random_key(rng):
    axes, arrays, key = 0, 0, []
    for _ in range(rng.integers(1, 7)):
        kind = rng.integers(5)
        if kind == 0:
            key.append(None)
        elif kind == 1 and Ellipsis not in [k for k in key if not isinstance(k, np.ndarray)]:
            key.append(...)
        elif axes < 4:
            behind = Ellipsis in [k for k in key if not isinstance(k, np.ndarray)]
            dim = 2 if behind else SHAPE[axes]  # no dimension is smaller
            if kind == 2:
                key.append(int(rng.integers(-dim, dim)))
            elif kind == 3 and not arrays:
                key.append(rng.integers(-dim, dim, size=rng.integers(1, 4, rng.integers(1, 3))))
                arrays += 1
            else:
                ends = [None if rng.integers(3) == 0 else int(e) for e in rng.integers(-6, 7, 2)]
                key.append(slice(*ends, int(rng.choice([-2, -1, 1, 2]))))
            axes += 1
    return tuple(key)


def test_cheap_keys_append_little():
    b, x, _ = taken(...)
    assert x[...] is x and x[:] is x and not b.op_list.ops
    x[0, None, ::-1, ..., 1:]  # noqa: B018
    assert [op.type for op in b.op_list.ops] == ["slice", "squeeze", "unsqueeze"]


REFUSED = [
    (lambda x, m, f: x[0, 0, 0, 0, 0], ShapeError, r"'x' \[\?, 4, 2, 5\]: 5 indexes for 4 axes"),
    (lambda x, m, f: x[:, 4], ShapeError, "4 is out of range for axis 1 of size 4"),
    (lambda x, m, f: x[..., -6], ShapeError, "-6 is out of range for axis 3 of size 5"),
    (lambda x, m, f: x[:, [1, 4]], ShapeError, "4 is out of range for axis 1"),
    (lambda x, m, f: x[0, [0], -5], ShapeError, "-5 is out of range for axis 2"),
    (lambda x, m, f: x[..., ...], ShapeError, "more than one"),
    (lambda x, m, f: x[m], ShapeError, r"'m' holds is known only.*b\.where\(m, x, other\)"),
    (lambda x, m, f: x[x > 0], ShapeError, r"'greater_0' holds is known only"),
    (lambda x, m, f: x[f], AttributeTypeError, "'f' has dtype float64, want integers"),
    (lambda x, m, f: x["rows"], AttributeTypeError, "'rows' is none: want integers, slices"),
    (lambda x, m, f: x[1.5], AttributeTypeError, "1.5 is none"),
    (lambda x, m, f: x[[0.5]], AttributeTypeError, "an array of float64, want integers"),
    (lambda x, m, f: x[[[1], [1, 2]]], AttributeTypeError, "is no array of integers"),
    (lambda x, m, f: x[True], AttributeTypeError, "True is no index"),
    (lambda x, m, f: x[: x.sum()], AttributeTypeError, "no bound of a slice.*while the net is b"),
    (lambda x, m, f: x[:1.5], AttributeTypeError, "1.5 is no bound"),
    (lambda x, m, f: x[::0], ShapeError, "step is not 0"),
    (lambda x, m, f: x[[True, False, True]], ShapeError, "axis 0 is of unknown size"),
    (lambda x, m, f: x[:, [True, False]], ShapeError, "axis 1 has size 4, .* size 2 there"),
    (lambda x, m, f: x[:, [0, 1], [0, 1, 0]], ShapeError, r"\[2\] and \[3\] do not broadcast"),
]


@pytest.mark.parametrize(("call", "error", "message"), REFUSED)
def test_refusals(call, error, message):
    b = NetBuilder(dtype="float64")
    x = b.input("x", [-1, *SHAPE[1:]])
    m, f = b.input("m", [-1], bool), b.input("f", [-1])
    with pytest.raises(error, match=message) as caught:
        call(x, m, f)
    assert "test_var_index.py:" in str(caught.value)
