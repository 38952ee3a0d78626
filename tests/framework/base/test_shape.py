"""Shape rules' helpers and inference over op lists, with unknown dimensions."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from opscope.framework.base.errors import ShapeError, VariableError
from opscope.framework.base.sizes.shape import ShapeArgs, count, fits
from opscope.framework.ir.desc import PARAMETER, make_op, make_var
from opscope.framework.ir.infer import infer_specs, view_shape, view_slices
from opscope.framework.ir.op_list import View
from opscope.framework.ir.operation import Operator

F32 = np.dtype("float32")
F64 = np.dtype("float64")


def arguments(**shapes):
    """ShapeArgs of a toy_add that reads x and y of these shapes."""
    op = Operator(make_op("toy_add", {"x": "x", "y": "y"}, {"out": "out"}), 3)
    specs = {"x": ((2, 3), F32), "y": ((2, 3), F32)}
    specs.update({name: (shape, F32) for name, shape in shapes.items()})
    return ShapeArgs(op, specs)


@pytest.mark.parametrize(
    ("shapes", "result"),
    [
        ([(2, 3), (3,)], (2, 3)),
        ([(2, 1), (1, 3)], (2, 3)),
        ([(), (4,)], (4,)),
        ([(-1, 3), (2, 3)], (2, 3)),
        ([(-1,), (1,)], (-1,)),
        ([(-1,), (-1,)], (-1,)),
        ([(0, 1), (1, 5)], (0, 5)),
        ([(2,)], (2,)),
        ([], ()),
    ],
)
def test_broadcast(shapes, result):
    assert arguments().broadcast(*shapes) == result


def test_broadcast_agrees_with_numpy():
    args = arguments()
    dims = [(), (1,), (2,), (3, 1), (1, 2), (3, 2)]
    for one, other in itertools.product(dims, dims):
        assert args.broadcast(one, other) == np.broadcast_shapes(one, other)


def test_refusals_show_every_operand():
    args = arguments(y=(2, 4))
    for refuse in (
        lambda: args.broadcast(args["x"], args["y"]),
        lambda: args.same_shape("x and y", args["x"], args["y"]),
        lambda: args.same("the columns", 3, 4),
        lambda: args.rank("x", 1, 3),
        lambda: args.axis(2, 2),
        lambda: args.integers("x"),
    ):
        with pytest.raises(ShapeError) as caught:
            refuse()
        for part in ("op 3 (toy_add)", "x=x float32[2, 3]", "y=y float32[2, 4]", "out=out"):
            assert part in str(caught.value)


def test_agreeing_dimensions_aside_from_unknown_ones():
    args = arguments()
    assert args.same("n", -1, 4, -1) == 4 and args.same("n", -1, -1) == -1
    assert args.same_shape("all", (-1, 3), (2, -1)) == (2, 3)
    with pytest.raises(ShapeError, match="must have one shape: \\[2\\], \\[2, 1\\]"):
        args.same_shape("all", (2,), (2, 1))


def test_axes_count_from_both_ends():
    args = arguments()
    assert [args.axis(axis, 3) for axis in (-3, -1, 0, 2)] == [0, 2, 0, 2]
    for axis in (-4, 3):
        with pytest.raises(ShapeError, match=f"axis {axis} is out of range for 3 dimensions"):
            args.axis(axis, 3)


def test_floats_share_one_dtype():
    args = arguments()
    assert args.floats("x", "y") == F32
    mixed = ShapeArgs(args.op, {"x": ((), F32), "y": ((), F64)})
    with pytest.raises(ShapeError, match="one floating dtype for all of these"):
        mixed.floats("x", "y")


def test_count():
    assert (count(()), count((2, 3)), count((2, -1)), count((0, 3))) == (1, 6, -1, 0)


def test_fits():
    assert fits((2, 3), (-1, 3)) and fits((-1,), (5,)) and fits((), ())
    assert not fits((2, 3), (2,)) and not fits((2, 3), (2, 4))


def relu(x, out):
    return Operator(make_op("toy_relu", {"x": x}, {"out": out}))


def test_inference_runs_down_the_list_with_unknown_dimensions():
    ops = [relu("x", "a"), Operator(make_op("toy_add", {"x": "a", "y": "x"}, {"out": "b"}))]
    specs = infer_specs(ops, {"x": ((-1, 3), F32)}, {})
    assert specs["b"] == ((-1, 3), F32)


def test_inference_without_a_shape_and_in_parts():
    with pytest.raises(VariableError, match="the shape of 'x' is not known"):
        infer_specs([relu("x", "a")], {}, {})
    ops = [relu("x", "a"), relu("y", "b")]
    assert infer_specs(ops, {"y": ((2,), F32)}, {}, partial=True) == {
        "y": ((2,), F32),
        "b": ((2,), F32),
    }


def test_a_parameter_keeps_its_declared_shape():
    declared = {"w": make_var("w", (4,), kind=PARAMETER)}
    with pytest.raises(ShapeError, match=r"writes \[2\] to 'w', which is \[4\]"):
        infer_specs([relu("x", "w")], {"x": ((2,), F32)}, declared)


def view(rows, cols):
    return make_var("v", view=View("m", *rows, *cols))


@pytest.mark.parametrize(
    ("rows", "cols", "base", "shape"),
    [
        ((0, -1), (0, -1), (3, 4), (3, 4)),
        ((1, 3), (2, -1), (3, 4), (2, 2)),
        ((0, -1), (1, 3), (-1, 4), (-1, 2)),
        ((2, 2), (4, 4), (3, 4), (0, 0)),
        ((5, 7), (0, -1), (-1, -1), (2, -1)),
    ],
)
def test_shapes_of_views(rows, cols, base, shape):
    var = view(rows, cols)
    assert view_shape("v", var.view, base) == shape
    assert infer_specs([relu("v", "y")], {"m": (base, F32)}, {"v": var})["y"] == (shape, F32)
    if min(base) >= 0:
        assert np.empty(base)[view_slices("v", var.view, base)].shape == shape


@pytest.mark.parametrize(
    ("rows", "cols", "base"),
    [
        ((0, 4), (0, -1), (3, 4)),
        ((0, -1), (0, 5), (-1, 4)),
        ((2, 1), (0, -1), (3, 4)),
        ((-1, 2), (0, -1), (3, 4)),
        ((0, -1), (0, -1), (3,)),
        ((3, 1), (0, -1), (-1, 4)),
    ],
)
def test_views_outside_their_base(rows, cols, base):
    with pytest.raises(ShapeError, match="view 'v': "):
        view_shape("v", view(rows, cols).view, base)
