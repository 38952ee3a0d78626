"""Layers: what all of them take (`trainable`, `activation`, keywords), and the normalizations."""

from __future__ import annotations

import inspect
import pathlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from opscope import NetBuilder, OpContext, Scope
from opscope.framework.base.errors import (
    AttributeTypeError,
    ShapeError,
    SlotError,
    UnknownOperatorError,
)
from opscope.framework.base.sequence import Sequences
from opscope.framework.ir.desc import PARAMETER
from opscope.python_api.builder.methods import BUILDER_METHODS

RNG = np.random.default_rng(0)
LENGTHS = [3, 1, 2]


def rows(*shape: int) -> np.ndarray:
    return np.random.default_rng(1).normal(size=shape).astype(np.float32)


def image(b: NetBuilder, rank: int = 2) -> Any:
    return b.input("x", [-1, 4, *[5] * rank])


def sequences(b: NetBuilder) -> Any:
    return b.input("x", [-1, 4], levels=1)


def flat(b: NetBuilder) -> Any:
    return b.input("x", [-1, 4])


def convolution(rank: int, kind: str) -> Callable[..., Any]:
    def build(b: NetBuilder, **o: Any) -> Any:
        return getattr(b, kind)(image(b, rank), 6, 3, activation="tanh", **o)

    return build


def additive(b: NetBuilder, **o: Any) -> Any:
    query = b.input("query", [-1, 3])
    return b.attention(query, sequences(b), kind="additive", size=5, **o)[0]


LAYERS: dict[str, Callable[..., Any]] = {
    "fc": lambda b, **o: b.fc(flat(b), size=3, activation="tanh", **o),
    **{f"conv{rank}d": convolution(rank, f"conv{rank}d") for rank in (1, 2, 3)},
    **{f"conv_transpose{r}d": convolution(r, f"conv_transpose{r}d") for r in (1, 2, 3)},
    "sequence_conv": lambda b, **o: b.sequence_conv(sequences(b), 3, left=1, **o),
    "embedding": lambda b, **o: b.embedding(b.input("ids", [-1], "int64"), [5, 3], **o),
    "batch_norm": lambda b, **o: b.batch_norm(image(b), **o),
    "layer_norm": lambda b, **o: b.layer_norm(flat(b), **o),
    "rms_norm": lambda b, **o: b.rms_norm(flat(b), **o),
    "group_norm": lambda b, **o: b.group_norm(image(b), groups=2, **o),
    "instance_norm": lambda b, **o: b.instance_norm(image(b), **o),
    "simple_rnn": lambda b, **o: b.simple_rnn(sequences(b), 3, **o)[0],
    "gru": lambda b, **o: b.gru(sequences(b), 3, layers=2, **o)[0],
    "lstm": lambda b, **o: b.lstm(
        sequences(b), 3, bidirectional=True, peepholes=True, projection=2, forget_bias=1.0, **o
    )[0],
    "rnn_cell": lambda b, **o: b.rnn_cell(flat(b), b.input("h", [-1, 3]), **o),
    "gru_cell": lambda b, **o: b.gru_cell(flat(b), b.input("h", [-1, 3]), reset_after=False, **o),
    "lstm_cell": lambda b, **o: (
        b.lstm_cell(flat(b), b.input("h", [-1, 3]), b.input("c", [-1, 3]), **o).h
    ),
    "tree_lstm": lambda b, **o: b.tree_lstm(
        sequences(b), b.input("parents", [-1], "int64", levels=1), 3, **o
    )[0],
    "attention": additive,
}


def feeds(b: NetBuilder) -> dict[str, Any]:
    """Something for each input of a net made by `LAYERS`."""
    found: dict[str, Any] = {}
    for var in b.forward_net.op_list.vars:
        if var.kind != 1:
            continue
        shape = [6 if dim < 0 else dim for dim in var.shape or ()]
        if var.name == "query":
            shape[0] = len(LENGTHS)
        given: Any = rows(*shape)
        if var.name == "ids":
            given = np.array([0, 1, 4, 4, 2, 0])
        if var.name == "parents":
            given = np.array([-1, 0, 0, -1, -1, 0])
        if var.sequence_levels:
            given = Sequences(given, (np.cumsum([0, *LENGTHS]),))
        found[var.name] = given
    return found


def with_cost(kind: str, **o: Any) -> tuple[NetBuilder, list[str]]:
    """A net of one layer under a cost that has a parameter `k`, and the layer's parameters."""
    b = NetBuilder()
    out = LAYERS[kind](b, name="layer", **o)
    made = [var.name for var in b.forward_net.op_list.vars if var.kind == PARAMETER]
    b.mean(b.square(out * b.parameter("k", [1], 0.5) - 1.0), name="cost")
    return b, made


@pytest.mark.parametrize("kind", LAYERS)
def test_parameters_that_are_not_trained_stay_and_let_gradients_through(kind: str) -> None:
    found = {}
    for trainable in (True, False):
        b, made = with_cost(kind, trainable=trainable)
        assert made
        b.backward_from("cost")
        b.add_optimization(0.5, "sgd")
        assert set(b.gradients) >= {"k", *(made if trainable else ())}
        assert trainable or not set(b.gradients) & set(made)
        scope = Scope()
        b.run(
            scope,
            context=OpContext(train=False, seed=3),
            feed=feeds(b),
            fetch=["cost"],
            need_backward=False,
        )
        before = {name: scope.numpy(name).copy() for name in (*made, "k")}
        b.run(scope, context=OpContext(seed=3), feed=feeds(b), fetch=["cost"])
        changed = {name for name, value in before.items() if (scope.numpy(name) != value).any()}
        assert changed == {"k", *(made if trainable else ())}

        b, _ = with_cost(kind, trainable=trainable)
        if kind != "embedding":
            b.backward_from("cost", wrt=["x", "k"])
            name = b.gradient("x")
            out = b.run(Scope(), context=OpContext(seed=3), feed=feeds(b), fetch=[name, "cost"])
            found[trainable] = [out[name], out["cost"]]
    if kind != "embedding":
        for one, other in zip(*found.values(), strict=True):
            one, other = (getattr(a, "data", a) for a in (one, other))
            np.testing.assert_allclose(np.asarray(one), np.asarray(other), rtol=1e-6)
            assert np.abs(np.asarray(one)).max() > 0


def test_every_layer_with_a_rate_can_be_frozen() -> None:
    """Layers that come later are held to the same."""
    for name, function in BUILDER_METHODS.items():
        parameters = inspect.signature(function).parameters
        if "lr_factor" in parameters:
            assert "trainable" in parameters, name
            assert parameters["trainable"].default is True, name


@pytest.mark.parametrize("kind", LAYERS)
def test_rates_of_layers_reach_their_parameters(kind: str) -> None:
    b, made = with_cost(kind, lr_factor=0.25)
    factors = {b.declared(name).lr_factor for name in made}
    assert factors == {0.25}


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (
            lambda b, x: b.conv2d(x, 16, kernel_size=3),
            AttributeTypeError,
            ["'kernel_size'", "kernel=3"],
        ),
        (lambda b, x: b.conv2d(x, out_channels=8), AttributeTypeError, ["write filters=8"]),
        (lambda b, x: b.max_pool2d(x, kernel_size=2), AttributeTypeError, ["write kernel=2"]),
        (lambda b, x: b.fc(x, units=2), AttributeTypeError, ["write size=2", "it has x, size"]),
        (lambda b, x: b.max_pool2d(x, 2), SlotError, ["by name: kernel=2"]),
        (lambda b, x: b.interpolate(x, 3), SlotError, ["by name: size=3"]),
        (lambda b, x: b.interpolate(x, [3, 4]), SlotError, ["by name: size=[3, 4]"]),
        (lambda b, x: b.interpolate(x, 2.5), SlotError, ["'like' wants", "by name: scale=2.5"]),
        (lambda b, x: b.interpolate(x, 3, 4), SlotError, ["by name: size=[3, 4]"]),
        (lambda b, x: b.fc(x, siez=2), AttributeTypeError, ["did you mean size?"]),
        (lambda b, x: b.conv2d(x, 4, 3, paddin=1), AttributeTypeError, ["did you mean padding"]),
        (lambda b, x: b.lstm(x, hidden_size=4), AttributeTypeError, ["write size=4"]),
        (lambda b, x: b.layer_norm(x, eps=1e-3), AttributeTypeError, ["write epsilon=0.001"]),
        (lambda b, x: b.fc(), AttributeTypeError, ["fc: missing", "'x'", "it takes x, size"]),
        (lambda b, x: b.fc(x, 2, activation=b.relu), AttributeTypeError, ['activation="relu"']),
        (lambda b, x: b.fc(x, 2, np.tanh), AttributeTypeError, ['write activation="tanh"']),
        (lambda b, x: b.conv2d(x, 2, 3, max), AttributeTypeError, ['such as activation="relu"']),
        (lambda b, x: b.conv1d(x, 2, 3, None), AttributeTypeError, ["not None", '"" for none']),
        (lambda b, x: b.simple_rnn(x, 2, activation=b.tanh), AttributeTypeError, ['"tanh"']),
        (lambda b, x: b.conv2d(x, 2, 3, "rleu"), UnknownOperatorError, ["did you mean relu"]),
        (
            lambda b, x: b.conv2d(x, w="w", trainable=False),
            AttributeTypeError,
            ["trainable=False", "with w= it makes none"],
        ),
        (
            lambda b, x: b.layer_norm(x, affine=False, lr_factor=2.0),
            AttributeTypeError,
            ["lr_factor=2.0", "with affine=False it makes none"],
        ),
        (lambda b, x: b.fc(x, 3, w="m"), ShapeError, ["size=3", "w 'm' is [5, 2]"]),
        (lambda b, x: b.conv2d(x, 3, w="w"), ShapeError, ["filters=3", "is [2, 4, 3, 3]"]),
        (lambda b, x: b.conv2d(x, kernel=[3, 5], w="w"), ShapeError, ["kernel=[3, 5]"]),
        (lambda b, x: b.conv_transpose2d(x, 6, w="w"), ShapeError, ["filters=6"]),
        (lambda b, x: b.embedding(x, [5, 3], w="m"), ShapeError, ["size=[5, 3]"]),
        (
            lambda b, x: b.attention("m", "s", trainable=False),
            AttributeTypeError,
            ["trainable=False", "with kind='dot' it makes none"],
        ),
        (lambda b, x: b.conv2d(x, 4, 3, padding="sam"), AttributeTypeError, ["'sam'", "same"]),
        (lambda b, x: b.group_norm(x), AttributeTypeError, ["missing", "'groups'"]),
    ],
)
def test_mistakes(call: Callable[..., Any], error: type, words: list[str]) -> None:
    b = NetBuilder()
    x = b.input("x", [-1, 4, 5, 5])
    b.parameter("w", [2, 4, 3, 3])
    b.parameter("m", [5, 2])
    b.input("s", [-1, 2], levels=1)
    before = len(b.forward_net.op_list.vars)
    with pytest.raises(error) as caught:
        call(b, x)
    for word in words:
        assert word in str(caught.value)
    if error is AttributeTypeError and "makes none" not in str(caught.value):
        assert f"{pathlib.Path(__file__).name}:" in str(caught.value)
    if words != ["'sam'", "same"]:
        assert len(b.forward_net.op_list.vars) == before  # nothing was made


def test_what_is_asked_of_given_parameters_may_be_said() -> None:
    b = NetBuilder()
    x, w = b.input("x", [-1, 4, 5, 5]), b.parameter("w", [6, 4, 3, 3])
    assert b.conv2d(x, 6, 3, w=w).shape == (-1, 6, 3, 3)
    assert b.conv_transpose2d(b.input("y", [-1, 6, 5, 5]), 8, 3, w=w, groups=2).shape[1] == 8
    assert b.fc(b.input("z", [-1, 3]), 2, w=b.parameter("m", [3, 2])).shape == (-1, 2)


# -- padding -----------------------------------------------------------------------------------


def test_padding_may_be_a_word() -> None:
    b = NetBuilder()
    x = b.input("x", [-1, 4, 7, -1])
    assert b.conv2d(x, 6, 3, padding="same").shape == (-1, 6, 7, -1)
    assert b.conv2d(x, 6, 3, stride=2, padding="same", name="c").shape == (-1, 6, 4, -1)
    assert b.conv2d(x, 6, 3, padding="valid").shape == (-1, 6, 5, -1)
    assert b.max_pool2d(x, kernel=3, stride=2, padding="same", name="p").shape == (-1, 4, 4, -1)
    assert b.avg_pool2d(x, kernel=[3, 2], padding="same").shape == (-1, 4, 3, -1)
    out = b.run(Scope(), feed={"x": rows(2, 4, 7, 10)}, fetch=["c", "p"], need_backward=False)
    assert (out["c"].shape, out["p"].shape) == ((2, 6, 4, 5), (2, 4, 4, 5))
    with pytest.raises(AttributeTypeError, match="conv_transpose2d.*padding"):
        b.conv_transpose2d(x, 6, 3, padding="same")


# -- normalizations ----------------------------------------------------------------------------


NORMS = {
    "batch_norm": lambda torch: torch.nn.BatchNorm2d(4),
    "group_norm": lambda torch: torch.nn.GroupNorm(2, 4),
    "instance_norm": lambda torch: torch.nn.InstanceNorm2d(4, affine=True),
}


@pytest.mark.parametrize("kind", NORMS)
def test_normalizations_equal_torch(kind: str) -> None:
    torch = pytest.importorskip("torch")
    b, made = with_cost(kind)
    assert made == ["layer.scale", "layer.bias"]
    scale, bias = RNG.normal(size=4).astype(np.float32), RNG.normal(size=4).astype(np.float32)
    scope = Scope()
    scope.feed({"layer.scale": scale, "layer.bias": bias})
    b.backward_from("cost", wrt=["x", *made])
    grads = [b.gradient(name) for name in ("x", *made)]
    found = b.run(scope, feed=feeds(b), fetch=["layer", *grads])
    twin = NORMS[kind](torch)
    with torch.no_grad():
        twin.weight.copy_(torch.tensor(scale))
        twin.bias.copy_(torch.tensor(bias))
    x = torch.tensor(feeds(b)["x"], requires_grad=True)
    out = twin(x)
    ((out * 0.5 - 1) ** 2).mean().backward()
    wanted = [out.detach(), x.grad, twin.weight.grad, twin.bias.grad]
    for name, value in zip(["layer", *grads], wanted, strict=True):
        np.testing.assert_allclose(found[name], value.numpy(), rtol=1e-4, atol=1e-5, err_msg=name)


def test_first_values_of_normalizations() -> None:
    b, scope = NetBuilder(), Scope()
    x = b.input("x", [-1, 4, 3])
    names = ["batch_norm", "layer_norm", "group_norm", "instance_norm"]
    for kind in names:
        more = {"groups": 2} if kind == "group_norm" else {}
        getattr(b, kind)(x, init=0.5, bias_init=-1.0, name=kind, **more)
    b.rms_norm(x, init="zeros", name="rms", begin_norm_axis=1)
    b.run(scope, feed={"x": rows(2, 4, 3)}, need_backward=False)
    for kind in names:
        assert (scope.numpy(f"{kind}.scale") == 0.5).all()
        assert (scope.numpy(f"{kind}.bias") == -1).all()
    assert scope.numpy("rms.scale").shape == (4, 3) and not scope.numpy("rms.scale").any()


def test_normalizations_without_and_with_given_parameters() -> None:
    b = NetBuilder()
    x = b.input("x", [-1, 4, 3])
    plain = b.group_norm(x, groups=2, affine=False)
    b.layer_norm(x, affine=False)
    assert not [var for var in b.forward_net.op_list.vars if var.kind == PARAMETER]
    scale, bias = b.parameter("s", [4], 2.0), b.parameter("b", [4], 1.0)
    shared = b.group_norm(x, 2, scale=scale, bias=bias)
    single = b.instance_norm(x, scale=scale)
    b.batch_norm(x, scale=scale, bias=bias, name="first")
    running = {"mean": "first.mean", "variance": "first.variance"}
    again = b.batch_norm(x, scale=scale, bias=bias, **running)
    kinds = [var.name for var in b.forward_net.op_list.vars if var.kind == PARAMETER]
    assert kinds == ["s", "b"]
    given = {"x": rows(2, 4, 3)}
    out = b.run(Scope(), feed=given, fetch=[plain, shared, single, again], need_backward=False)
    np.testing.assert_allclose(out[shared.name], 2 * out[plain.name] + 1, rtol=1e-5, atol=1e-5)
    assert np.abs(out[single.name].mean(2)).max() < 1e-5
