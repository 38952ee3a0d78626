"""The optimizer pass: op lists as text, state variables, schedules, clipping, refusals."""

from __future__ import annotations

import pytest

from opscope import NetBuilder
from opscope.framework.base.errors import (
    AttributeTypeError,
    GradientError,
    ShapeError,
    VariableError,
)
from opscope.framework.ir.desc import INPUT, OPTIMIZE, PARAMETER, STATE, make_op, make_var
from opscope.framework.ir.op_list import OpList
from opscope.framework.ir.printer import op_text, var_text
from opscope.framework.passes.optimizer import (
    OptimizerAttrs,
    build_optimizer,
    constant_rates,
    optimizer_types,
    schedule_types,
)


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


def appended(desc, **options):
    """The net with an optimizer's operators behind it, and what is new."""
    result = build_optimizer(desc, OptimizerAttrs(**options))
    desc.ops.extend(result.ops)
    desc.vars.extend(result.vars)
    return result


def test_a_second_optimizer_has_its_own_rate_and_step():
    desc = net("w", "v")
    appended(desc, type="toy_heavy", learning_rate=0.5, parameters=["w"])
    second = appended(desc, type="toy_heavy", learning_rate=0.25, parameters=["v"])
    assert [op_text(op) for op in second.ops] == [
        "increment(x=optimizer@STEP@2) -> out=optimizer@STEP@2  {value=1.0}  #optimize",
        "toy_heavy(param=v, grad=v@GRAD, lr=optimizer@LEARNING_RATE@2, step=optimizer@STEP@2,"
        " speed=v@TOY_HEAVY_SPEED) -> param_out=v, speed_out=v@TOY_HEAVY_SPEED  #optimize",
    ]
    assert [var.name for var in second.vars] == [
        "optimizer@STEP@2",
        "optimizer@LEARNING_RATE@2",
        "v@TOY_HEAVY_SPEED",
    ]
    assert constant_rates(desc) == {
        "optimizer@LEARNING_RATE": 0.5,
        "optimizer@LEARNING_RATE@2": 0.25,
    }


def test_each_schedule_writes_its_own_rate():
    desc = net("w", "v", "u")
    every = {"every": 10}
    names = [
        appended(desc, type="toy_sgd", parameters=parameter, **given).ops[-1].inputs["lr"]
        for parameter, given in (
            ("w", {"schedule": "step_decay", "schedule_attrs": every}),
            ("v", {"learning_rate": 0.5}),
            ("u", {"schedule": "step_decay", "schedule_attrs": every, "learning_rate": 2.0}),
        )
    ]
    assert names == [(f"optimizer@LEARNING_RATE{end}",) for end in ("", "@2", "@3")]
    written = [op.outputs["out"] for op in desc.ops if op.type == "lr_step_decay"]
    assert written == [names[0], names[2]]
    counted = [op.outputs["out"] for op in desc.ops if op.type == "increment"]
    assert counted == [("optimizer@STEP",), ("optimizer@STEP@3",)]
    assert constant_rates(desc) == {"optimizer@LEARNING_RATE@2": 0.5}


def test_each_global_norm_is_its_own():
    desc = net("w", "v")
    appended(desc, type="toy_sgd", clip_norm=1.0, parameters="w")
    second = appended(desc, type="toy_sgd", clip_norm=2.0, parameters="v")
    assert [op_text(op).removesuffix("  #optimize") for op in second.ops] == [
        "global_norm_scale(x=v@GRAD) -> scale=optimizer@GRADIENT_SCALE@2  {clip_norm=2.0}",
        "toy_sgd(param=v, grad=v@GRAD, lr=optimizer@LEARNING_RATE@2,"
        " grad_scale=optimizer@GRADIENT_SCALE@2) -> param_out=v",
    ]


def test_the_rest():
    desc = net("w", "v", "u")
    appended(desc, type="toy_heavy", parameters=["v"])
    rest = appended(desc, type="toy_sgd", parameters="rest")
    assert [op.inputs["param"] for op in rest.ops] == [("w",), ("u",)]
    with pytest.raises(GradientError, match="'rest': no parameter is left for toy_sgd"):
        appended(desc, type="toy_sgd", parameters="rest")


@pytest.mark.parametrize("parameters", [None, ["v", "w"], "w"])
def test_a_parameter_has_one_optimizer(parameters):
    desc = net("w", "v")
    appended(desc, type="toy_heavy", parameters=["w"])
    with pytest.raises(VariableError, match=r"'w' would.* two optimizers, toy_heavy and toy_sgd:"):
        appended(desc, type="toy_sgd", parameters=parameters)


def test_a_factor_of_the_call_and_one_of_the_parameter_multiply():
    lines, _ = built(net("w", factors={"w": 2.0}), type="sgd", attrs={"lr_factor": 0.25})
    assert lines[0].endswith("{lr_factor=0.5}")


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
    assert {"cosine", "step_decay"} <= set(schedule_types())


def test_a_parameter_that_is_not_trainable():
    desc = net("w")
    desc.vars.append(make_var("v", (3,), kind=PARAMETER, stop_gradient=True))
    with pytest.raises(GradientError, match="'v' has no gradient .it is not trainable"):
        built(desc, type="toy_sgd", parameters=["v"])


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"type": "toy_sgdd"}, AttributeTypeError, r"'toy_sgdd' is no optimizer.*mean toy_sgd"),
        ({"type": "toy_add"}, AttributeTypeError, "'toy_add' is no optimizer"),
        ({"parameters": ["ww"]}, VariableError, "no variable 'ww'"),
        ({"parameters": ["x"]}, GradientError, "'x' has no gradient: add_backward_ops first"),
        ({"parameters": ["w", "w"]}, VariableError, "toy_sgd: parameter 'w' is named twice"),
        ({"parameters": []}, VariableError, "toy_sgd: no parameters are named"),
        ({"schedule": "cosin"}, AttributeTypeError, "no schedule 'cosin'.*mean cosine"),
        ({"schedule_attrs": {"every": 1}}, AttributeTypeError, "without a schedule.*cosine"),
        ({"attrs": {"lr": 1.0}}, AttributeTypeError, "no attribute 'lr' .*learning_rate"),
        ({"attrs": {"betas": 1.0}}, AttributeTypeError, "here it is beta1 and beta2"),
        ({"type": "adam", "attrs": {"beta": 1.0}}, AttributeTypeError, "mean beta2, beta1"),
        ({"type": 0.1, "learning_rate": "sgd"}, AttributeTypeError, "it comes first"),
        ({"learning_rate": "0.1"}, AttributeTypeError, "learning_rate must be a number, not '0.1'"),
        (
            {"schedule": "noam", "schedule_attrs": {"learning_rate": 1.0}},
            AttributeTypeError,
            "begins with is learning_rate of the optimizer",
        ),
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


@pytest.mark.parametrize("scale", [None, 8.0, "dynamic"])
def test_overlap_in_half_precision_names_the_optimizer(scale):
    b = NetBuilder(dtype="float16")
    x = b.input("x", [-1, 3])
    b.backward_from(b.mean(b.add_op("matmul", x, b.parameter("w", [3, 2])), name="cost"))
    b.add_optimization(0.1, "adam", loss_scale=scale)
    with pytest.raises(VariableError, match="'w' would be updated by two optimizers, adam and sgd"):
        b.add_optimization(0.1, "sgd", parameters=["w"])
