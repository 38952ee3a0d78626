"""What a builder understands without being told: names in any case, places, the one cost."""

from __future__ import annotations

import pytest

from opscope.framework.base import errors
from opscope.python_api.builder import NetBuilder


@pytest.mark.parametrize(
    ("typed", "made"),
    [
        ('b.fc(x, 3, activation="LeakyReLU")', '"leaky_relu"'),
        ('b.add_op("LogSoftmax", x)', '"log_softmax"'),
        ('b.add_op("FC", x, 3, "Hard-Swish")', '"hard_swish"'),
        ('b.add_op("fc", x, w=b.parameter("w", [6, 2]), activation="ReLU")', '"relu"'),
        ('b.simple_rnn(b.input("s", [-1, 4], levels=1), 3, activation="ReLU")', '"relu"'),
        (
            'b.transformer_encoder(b.input("t", [-1, 4, 6]), layers=1, heads=2, activation="GELU")',
            '"gelu_erf"',
        ),
        ('b.parameter("p", [3], "Zeros")', '"fill_constant"'),
        ('b.parameter("p", [3, 3], ("Uniform", {"low": -1.0}))', '"uniform_random"'),
        ('b.input("i", [3], "Float-16")', "dtype: FLOAT16"),
        ('b.conv2d(image, 8, 3, padding="SAME")', '"same"'),
        ('b.add_optimization(0.1, "AdamW")', '"adamw"'),
        ('b.add_optimization(0.1, "L-BFGS")', '"lbfgs"'),
        (
            'b.add_optimization(0.1, schedule="Exponential-Decay", schedule_attrs=DECAY)',
            '"lr_exponential_decay"',
        ),
    ],
)
def test_names_are_typed_in_any_case(typed: str, made: str) -> None:
    b = NetBuilder()
    x, image = b.input("x", [-1, 6]), b.input("image", [-1, 3, 9, 9])
    b.mean(b.matmul(x, b.parameter("w0", [6, 2])), name="cost")
    decay = {"decay_steps": 10, "decay_rate": 0.5}
    eval(typed, {"b": b, "x": x, "image": image, "DECAY": decay})
    assert made in str(b.desc)


def test_layers_take_numbers_by_position_where_the_operator_has_its_parameter() -> None:
    b = NetBuilder()
    x, ids, image = b.input("x", [-1, 6]), b.input("i", [-1], "int64"), b.input("m", [-1, 3, 9, 9])
    assert b.add_op("fc", [x, x], 4).shape == (-1, 4)
    assert b.add_op("embedding", ids, [10, 5]).shape == (-1, 5)
    assert b.add_op("conv2d", image, 8, 3, "relu").shape == (-1, 8, 7, 7)
    w = b.parameter("w", [6, 2])
    assert b.add_op("fc", x, w).shape == b.add_op("fc", x, "w").shape == (-1, 2)
    assert len(b.net.vars["w"].shape or ()) == 2


def test_the_cost_is_found_where_it_is_the_only_one() -> None:
    b = NetBuilder()
    x = b.input("x", [-1, 3])
    out = b.fc(x, size=2, name="out")
    b.mean(x, name="of_no_parameter")
    with pytest.raises(errors.GradientError, match=r"ends in out \[\?, 2\]: take a mean"):
        b.add_optimization(0.1)
    b.mean(out, name="one")
    with pytest.raises(errors.AttributeTypeError, match="'adaam' is no optimizer"):
        b.add_optimization(0.1, "adaam")
    assert not b.objective.costs, "what failed asked for nothing"
    b.reduce_sum(out, name="two")
    with pytest.raises(
        errors.GradientError, match=r"backward_from\(cost\) first: 2 single.*: one, two"
    ):
        b.add_optimization(0.1)
    b.backward_from("two")
    b.add_optimization(0.1)
    assert b.objective.costs == ("two",)
