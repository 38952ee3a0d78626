"""What newcomers bring as data: tensors of PyTorch, columns of tables, lists of ragged arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import opscope
from opscope import NetBuilder, Scope, ShapeError


class Dtype:
    """A dtype of another library, which NumPy does not know."""


class Tensor:
    """An array of another library, as PyTorch's: NumPy's functions take it."""

    def __init__(self, values: Any, refuses: str = "") -> None:
        self.values, self.refuses = np.asarray(values), refuses
        self.dtype, self.shape = Dtype(), self.values.shape

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        if self.refuses:
            raise RuntimeError(self.refuses)
        return self.values if dtype is None else self.values.astype(dtype)


def double() -> NetBuilder:
    b = NetBuilder("double")
    b.scale(b.input("x", [-1, 2]), scale=2.0, name="y")
    return b


@pytest.mark.parametrize("dtype", ["float32", "float64", "int64"])
def test_tensors_of_other_libraries_are_fed(dtype: str) -> None:
    x = np.array([[1, 2], [3, 4]], dtype)
    b = double()
    fed = b.run(Scope(), feed={"x": Tensor(x)}, fetch="y")["y"]
    np.testing.assert_array_equal(fed, 2 * x)
    np.testing.assert_array_equal(b.predict({"x": Tensor(x)}, scope=Scope())["y"], 2 * x)


def test_a_tensor_that_gives_no_array_says_why() -> None:
    with pytest.raises(ShapeError, match="input 'x' is no array: detach it"):
        double().run(Scope(), feed={"x": Tensor([[1, 2]], "detach it")}, fetch="y")


def test_torch_tensors() -> None:
    torch = pytest.importorskip("torch")
    x = torch.tensor([[1.0, 2.0]], dtype=torch.float64)
    b = double()
    assert b.run(Scope(), feed={"x": x}, fetch="y")["y"].tolist() == [[2.0, 4.0]]
    with pytest.raises(ShapeError, match="detach"):
        b.run(Scope(), feed={"x": x.requires_grad_()}, fetch="y")
    w = b.parameter("w", [2], torch.tensor([3.0, 4.0]))
    assert b.run(Scope(), feed={"x": x.detach()}, fetch=w)["w"].tolist() == [3.0, 4.0]


@pytest.mark.parametrize("lengths", [[2, 3, 1, 4], [3, 3, 3, 3]])
def test_minibatches_of_a_list_of_sequences(lengths: list[int]) -> None:
    b = NetBuilder("words")
    words = b.input("words", [-1], "int64", levels=1)
    tags = b.input("tags", [-1], "int64", levels=1)
    scores = b.fc(b.embedding(words, [9, 4]), size=3)
    b.cross_entropy_loss(scores, tags, name="loss")
    b.backward_from("loss")
    b.add_optimization(0.1)
    sentences = [np.arange(length) for length in lengths]
    batches = opscope.Minibatches({"words": sentences, "tags": [s % 3 for s in sentences]}, 3)
    seen = [len(batch["words"]) for batch in batches(0)]
    assert seen == [3, 1]
    history = opscope.train(b, batches, epochs=2, scope=Scope(), progress=False, seed=0)
    assert history.rows[1]["loss"] < history.rows[0]["loss"]


def test_minibatches_of_lists_of_numbers_and_of_rows() -> None:
    batches = opscope.Minibatches(
        {"x": [[1, 2], [3, 4], [5, 6]], "label": [0, 1, 2]}, 2, shuffle=False
    )
    (first, second) = batches
    assert np.asarray(first["x"]).tolist() == [[1, 2], [3, 4]]
    assert first["label"].tolist() == [0, 1] and second["label"].tolist() == [2]


def test_lists_as_initial_values() -> None:
    b = NetBuilder("init")
    w = b.parameter("w", [2, 2], [[1, 2], [3, 4]])
    assert b.run(Scope(), fetch=w)["w"].tolist() == [[1.0, 2.0], [3.0, 4.0]]
    with pytest.raises(
        opscope.AttributeTypeError, match=r"parameter 'v' is \[3\], its first value"
    ):
        b.parameter("v", [3], [1, 2])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda net: net.run("scope"), "the scope must be an opscope.Scope, not a str"),
        (lambda net: net.run(Scope(), {"x": 1}), "the context must be .* not a dict.*scope.feed"),
        (
            lambda net: net.add_op("scale", ["x"], ["z"], [2.0]),
            r"attributes go by name.*not \[2.0\]",
        ),
        (
            lambda net: net.add_optimizer_ops("sgd"),
            r"want OptimizerAttrs\('adam', 0.001\), not 'sgd'",
        ),
        (lambda net: opscope.Net.create("net.pb"), "want a NetDesc"),
    ],
)
def test_a_net_by_hand_refuses_other_arguments(call: Any, message: str) -> None:
    net = opscope.PlainNet()
    net.add_op("relu", ["x"], ["y"])
    with pytest.raises(opscope.OpscopeError, match=message):
        call(net)
    assert [op.type for op in net.operators] == ["relu"]


def classifier() -> NetBuilder:
    b = NetBuilder("classifier")
    scores = b.fc(b.input("x", [-1, 4]), size=3, name="scores")
    b.cross_entropy_loss(scores, b.input("label", [-1], "int64"), name="loss")
    b.backward_from("loss")
    b.add_optimization(0.1)
    return b


def test_a_training_reads_no_input_that_an_earlier_feed_left_behind() -> None:
    b, scope = classifier(), Scope()
    x, label = np.ones((4, 4), np.float32), np.zeros(4, np.int64)
    whole = [{"x": x, "label": label}]
    opscope.train(b, whole, epochs=1, scope=scope, progress=False)
    before = scope.numpy("scores.w")
    stale = "epoch 1, minibatch 1: input 'label' is not in the feed.*an earlier run"
    with pytest.raises(opscope.VariableError, match=stale):
        opscope.train(b, [{"x": x}], epochs=1, scope=scope, progress=False)
    np.testing.assert_array_equal(scope.numpy("scores.w"), before)
    with pytest.raises(opscope.VariableError, match="evaluation: input 'label' is not in the feed"):
        opscope.train(b, whole, epochs=1, scope=scope, evaluate=[{"x": x}], progress=False)
    with pytest.raises(opscope.VariableError, match="minibatch 1: input 'label' is missing"):
        opscope.train(classifier(), [{"x": x}], epochs=1, scope=Scope(), progress=False)


def test_an_input_that_was_set_to_stay_is_read_while_training() -> None:
    b, scope = classifier(), Scope()
    b.feed(scope, {"label": np.zeros(4, np.int64)})
    x = np.ones((4, 4), np.float32)
    history = opscope.train(
        b, [{"x": x}], epochs=2, scope=scope, evaluate=[{"x": x}], progress=False
    )
    assert history.last["eval_loss"] < history.rows[0]["loss"]


def test_a_history_is_shown_in_a_line() -> None:
    batches = [{"x": np.ones((4, 4)), "label": np.zeros(4, np.int64)}]
    history = opscope.train(classifier(), batches, epochs=2, scope=Scope(), progress=False)
    assert repr(history).startswith("<History of 2 epochs: loss ")
    assert repr(opscope.History()) == "<History of 0 epochs>"
