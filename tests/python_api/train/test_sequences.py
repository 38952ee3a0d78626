"""Sequences through NetBuilder and training: what is fed, fetched and refused."""

import numpy as np
import pytest

import opscope
from opscope import NetBuilder, Scope, Sequences
from opscope.framework.base.errors import AttributeTypeError, ShapeError
from opscope.python_api.train.minibatches import Minibatches

ITEMS = [np.full((n, 2), n, np.float32) for n in (3, 0, 2)]


def pooling(levels=1):
    b = NetBuilder("pooling")
    x = b.input("x", [-1, 2], levels=levels)
    return b, b.sequence_pool(x, pool_type="sum", name="total")


@pytest.mark.parametrize("value", [ITEMS, tuple(ITEMS), Sequences.from_list(ITEMS)])
def test_an_input_takes_sequences(value):
    b, total = pooling()
    out = b.run(Scope(), feed={"x": value}, fetch=[total], need_backward=False)
    assert out["total"].tolist() == [[9, 9], [0, 0], [4, 4]]


def test_lists_are_cast_as_arrays_are():
    b, total = pooling()
    out = b.run(Scope(), feed={"x": [[[1, 2]], []]}, fetch=[total], need_backward=False)
    assert out["total"].dtype == np.float32 and out["total"].tolist() == [[1, 2], [0, 0]]
    c = NetBuilder()
    c.sequence_length(c.input("ids", [-1], "int64", levels=1))
    with pytest.raises(ShapeError, match="'ids' wants int64 and was given float64"):
        c.run(Scope(), feed={"ids": [[1.5], [2]]})


def test_only_empty_sequences():
    b, total = pooling()
    out = b.run(Scope(), feed={"x": [[], []]}, fetch=[total], need_backward=False)
    assert out["total"].tolist() == [[0, 0], [0, 0]]


def test_two_levels_and_results_with_offsets():
    b, total = pooling(levels=2)
    scope = Scope()
    feed = {"x": [[ITEMS[0], ITEMS[2]], [], [ITEMS[1]]]}
    b.run(scope, feed=feed, fetch=[total], need_backward=False)
    found = scope.sequences("total").to_list()
    assert [part.tolist() for part in found] == [[[9, 9], [4, 4]], [], [[0, 0]]]


def test_lengths_may_differ_from_run_to_run():
    b, total = pooling()
    scope = Scope()
    for items in (ITEMS, ITEMS[::-1], ITEMS[:1], ITEMS):
        out = b.run(scope, feed={"x": items}, fetch=[total], need_backward=False)
        assert out["total"][:, 0].tolist() == [float(part.sum() / 2) for part in items]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (np.zeros((3, 2)), "input 'x' wants 1 level of sequences: give it Sequences or a list"),
        (3.0, "wants 1 level of sequences: .* not one float"),
        ([], "wants 1 level of sequences: no sequences"),
        ([[[1, 2]], [[1]]], "wants 1 level of sequences: .*different shapes"),
        ([[1, 2]], r"wants \[-1, 2\] .* and was given \[2\]"),
        (Sequences.from_list([[ITEMS[0]]], levels=2), "1 level of sequences and was given 2"),
    ],
)
def test_refused_values(value, message):
    b, total = pooling()
    with pytest.raises(ShapeError, match=message):
        b.run(Scope(), feed={"x": value}, fetch=[total])


def test_plain_arrays_name_the_variable():
    b, total = pooling(levels=0)
    with pytest.raises(ShapeError, match="sequence_pool.*x 'x' carries no sequences; give it"):
        b.run(Scope(), feed={"x": np.zeros((3, 2))}, fetch=[total])


# -- training ------------------------------------------------------------------------------------


def letter_finder():
    """Whether a sequence of letters holds the letter 3: embedding, convolution, maximum."""
    b = NetBuilder("finder")
    letters = b.input("letters", [-1], "int64", levels=1)
    label = b.input("label", [-1], "int64")
    rows = b.embedding(letters, size=[6, 8])
    hidden = b.tanh(b.sequence_conv(rows, 8, left=1, right=1))
    pooled = b.sequence_pool(hidden, pool_type="max")
    scores = b.fc(pooled, size=2)
    cost = b.mean(b.softmax_cross_entropy(scores, label), name="cost")
    error = b.sub(b.fill_constant(shape=[], value=1.0), b.accuracy(scores, label)[0], name="error")
    b.backward_from(cost)
    return b, cost, error


def test_layer_of_a_convolution_over_time():
    b = NetBuilder()
    x = b.input("x", [-1, 2], levels=1)
    out = b.sequence_conv(x, size=3, left=1, right=1, init=1.0, bias_init=0.5, name="conv")
    assert out.shape == (-1, 3) and b.shape_of("conv.w") == (6, 3)
    feed = {"x": [[[1, 2], [3, 4]], [[5, 6]]]}
    found = b.run(Scope(), feed=feed, fetch=[out], need_backward=False)["conv"]
    assert found[:, 0].tolist() == [10.5, 10.5, 11.5]
    again = b.add_op("sequence_conv", x, w="conv.w", left=1, right=1)
    found = b.run(Scope(), feed=feed, fetch=[again], need_backward=False)[again.name]
    assert found[:, 2].tolist() == [10, 10, 11]
    with pytest.raises(AttributeTypeError, match="sequence_conv.*give `size` or `w`"):
        b.sequence_conv(x)


def words(rng, count):
    items = [rng.integers(0, 6, rng.integers(1, 9)) for _ in range(count)]
    label = np.array([int((item == 3).any()) for item in items])
    return {"letters": Sequences.from_list(items), "label": label}


def test_training_on_sequences():
    rng = np.random.default_rng(0)
    b, cost, error = letter_finder()
    b.add_optimization(0.02, "adam")
    data = Minibatches(words(rng, 300), 30)
    history = opscope.train(
        b, data, epochs=8, scope=Scope(), loss=cost, metrics=[error], progress=False
    )
    assert history.rows[-1]["error"] < 0.1 < history.rows[0]["error"]


def test_minibatches_of_sequences():
    data = Minibatches({"x": Sequences.from_list(ITEMS), "n": [3, 0, 2]}, 2, seed=1)
    assert len(data) == 2 and data.rows == 3
    seen = []
    for batch in data:
        assert [len(part) for part in batch["x"]] == batch["n"].tolist()
        seen += batch["n"].tolist()
    assert sorted(seen) == [0, 2, 3]
    with pytest.raises(ShapeError, match="'x' 3, 'n' 2"):
        Minibatches({"x": Sequences.from_list(ITEMS), "n": [1, 2]}, 2)
