"""The optimizer pass: op lists as text, state variables, schedules, clipping, refusals."""

from __future__ import annotations

import pytest

from opscope.framework.base.errors import (
    AttributeTypeError,
    GradientError,
    ShapeError,
    VariableError,
)
from opscope.framework.ir.desc import INPUT, OPTIMIZE, PARAMETER, STATE, make_op, make_var
from opscope.framework.ir.op_list import OpList
from opscope.framework.ir.printer import op_text, var_text
from opscope.framework.passes.optimizer import OptimizerAttrs, build_optimizer, optimizer_types


def net(*parameters, factors=None):
    """Parameters of shape [3] that have gradients, as the backward pass leaves them."""
    desc = OpList(name="n")
    desc.vars.append(make_var("x", (3,), kind=INPUT))
    for name in parameters:
        given = {"lr_factor": factors[name]} if factors and name in factors else {}
        desc.vars.append(make_var(name, (3,), kind=PARAMETER, **given))
        desc.vars.append(make_var(f"{name}@GRAD", (3,)))
    return desc


def built(desc, **options):
    result = build_optimizer(desc, OptimizerAttrs(**options))
    assert all(op.role == OPTIMIZE for op in result.ops)
    return [op_text(op).removesuffix("  #optimize") for op in result.ops], result.vars


def test_a_stateless_optimizer():
    lines, variables = built(net("w", "b", factors={"b": 2.0}), type="toy_sgd", learning_rate=0.5)
    rate = "lr=optimizer@LEARNING_RATE"
    assert lines == [
        f"toy_sgd(param=w, grad=w@GRAD, {rate}) -> param_out=w",
        f"toy_sgd(param=b, grad=b@GRAD, {rate}) -> param_out=b  {{lr_factor=2.0}}",
    ]
    assert [var_text(var) for var in variables] == [
        "state  optimizer@LEARNING_RATE  float32[]"
        "  init=fill_constant(dtype=float32, shape=[], value=0.5)"
    ]


def test_state_follows_from_the_slots_of_the_operator():
    lines, variables = built(net("w"), type="toy_heavy", attrs={"drag": 0.25})
    assert lines == [
        "increment(x=optimizer@STEP) -> out=optimizer@STEP  {value=1.0}",
        "toy_heavy(param=w, grad=w@GRAD, lr=optimizer@LEARNING_RATE, step=optimizer@STEP,"
        " speed=w@TOY_HEAVY_SPEED) -> param_out=w, speed_out=w@TOY_HEAVY_SPEED  {drag=0.25}",
    ]
    assert [(var.name, var.shape) for var in variables] == [
        ("optimizer@STEP", ()),
        ("optimizer@LEARNING_RATE", ()),
        ("w@TOY_HEAVY_SPEED", (3,)),
    ]
    assert all(var.kind == STATE and var.initializer.type for var in variables)


def test_a_second_optimizer_shares_step_and_rate():
    desc = net("w", "v")
    first = build_optimizer(desc, OptimizerAttrs("toy_heavy", parameters=["w"]))
    desc.ops.extend(first.ops)
    desc.vars.extend(first.vars)
    second = build_optimizer(desc, OptimizerAttrs("toy_heavy", parameters=["v"]))
    assert [op.type for op in second.ops] == ["toy_heavy"]
    assert [var.name for var in second.vars] == ["v@TOY_HEAVY_SPEED"]


def test_schedules_compute_the_rate_from_the_step():
    lines, _ = built(net("w"), type="toy_sgd", schedule="step_decay", schedule_attrs={"every": 10})
    assert lines[:2] == [
        "increment(x=optimizer@STEP) -> out=optimizer@STEP  {value=1.0}",
        "lr_step_decay(step=optimizer@STEP) -> out=optimizer@LEARNING_RATE"
        "  {every=10, learning_rate=0.01}",
    ]


def test_clipping_by_value_and_by_norm():
    lines, _ = built(net("w", "v"), type="toy_sgd", clip_value=1.0, clip_norm=5.0)
    assert lines[:3] == [
        "clip(x=w@GRAD) -> out=w@GRAD@CLIP  {maximum=1.0, minimum=-1.0}",
        "clip(x=v@GRAD) -> out=v@GRAD@CLIP  {maximum=1.0, minimum=-1.0}",
        "global_norm_scale(x=[w@GRAD@CLIP, v@GRAD@CLIP]) -> scale=optimizer@GRADIENT_SCALE"
        "  {clip_norm=5.0}",
    ]
    assert lines[3] == (
        "toy_sgd(param=w, grad=w@GRAD@CLIP, lr=optimizer@LEARNING_RATE,"
        " grad_scale=optimizer@GRADIENT_SCALE) -> param_out=w"
    )


def test_sparse_gradients_bring_their_rows():
    desc = net("w")
    desc.vars.append(make_var("w@GRAD@ROWS", (-1,), "int64"))
    lines, _ = built(desc, type="toy_sgd")
    assert "rows=w@GRAD@ROWS" in lines[0]


def test_types_are_found_by_their_slots():
    assert {"toy_sgd", "toy_heavy"} <= set(optimizer_types())
    assert "toy_add" not in optimizer_types()


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"type": "toy_sgdd"}, AttributeTypeError, r"'toy_sgdd' is no optimizer.*mean toy_sgd"),
        ({"type": "toy_add"}, AttributeTypeError, "'toy_add' is no optimizer"),
        ({"parameters": ["ww"]}, VariableError, "no variable 'ww'"),
        ({"parameters": ["x"]}, GradientError, "'x' has no gradient: add_backward_ops first"),
    ],
)
def test_refusals(options, error, message):
    with pytest.raises(error, match=message):
        built(net("w"), **{"type": "toy_sgd", **options})


@pytest.mark.parametrize("name", ["learning_rate", "clip_value", "clip_norm"])
def test_negative_and_nan_options(name):
    for value in (-1.0, float("nan")):
        with pytest.raises(AttributeTypeError, match=f"{name} must not be negative"):
            OptimizerAttrs("toy_sgd", **{name: value})


def test_no_gradients_at_all():
    desc = net()
    desc.vars.append(make_var("w", (3,), kind=PARAMETER))
    with pytest.raises(GradientError, match="add_backward_ops first"):
        built(desc, type="toy_sgd")


def test_a_parameter_of_unknown_shape():
    desc = net()
    desc.vars.extend([make_var("w", (-1,), kind=PARAMETER), make_var("w@GRAD", (-1,))])
    desc.ops.append(make_op("toy_relu", {"x": "w"}, {"out": "y"}))
    with pytest.raises(ShapeError, match="'w' has no full shape"):
        built(desc, type="toy_sgd")
