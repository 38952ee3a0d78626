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
