"""Tree-LSTMs of NetBuilder: against a plain recursion, gradients, saving, and in a larger net."""

from __future__ import annotations

import numpy as np
import pytest

import opscope
from opscope import NetBuilder, OpContext, Scope
from opscope.framework.base.errors import AttributeTypeError, ShapeError, TreeError, VariableError
from opscope.framework.base.sequence import Sequences
from opscope.framework.ir.desc import PARAMETER
from opscope.framework.loops.trees.forest import Trees
from tree_nets import random_trees, walk

K, H = 5, 4


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def reference(values, name, x, parents, offsets, arity, positions=None):
    """h of every node, by recursion; `values` maps names of parameters to arrays."""
    p = {key.removeprefix(f"{name}."): value for key, value in values.items()}

    def node(row, below):
        iou = x[row] @ p["iou.w"] + p["iou.b"]
        forget = x[row] @ p["f.w"] + p["f.b"]
        if not arity:
            iou = iou + sum((h for _, (h, _) in below), np.zeros(H)) @ p["u_iou"]
            kept = sum((sigmoid(forget + h @ p["u_f"]) * c for _, (h, c) in below), np.zeros(H))
        else:
            h_all, c_all = np.zeros((arity, H)), np.zeros((arity, H))
            for number, (child, (h, c)) in enumerate(below):
                place = number if positions is None else positions[child]
                h_all[place], c_all[place] = h, c
            z = h_all.reshape(-1) @ p["u_all"]
            iou = iou + z[: 3 * H]
            kept = sum(
                sigmoid(forget + z[(3 + k) * H : (4 + k) * H]) * c_all[k] for k in range(arity)
            )
        i, o, u = sigmoid(iou[:H]), sigmoid(iou[H : 2 * H]), np.tanh(iou[2 * H :])
        c = i * u + kept
        return o * np.tanh(c), c

    return np.array([h for h, _ in walk(parents, offsets, node)])


def build(arity, *, positions=False, dtype="float64"):
    """Inputs -> fc -> tree-LSTM -> scores of roots and of nodes -> one cost."""
    b = NetBuilder("trees", dtype)
    x = b.input("x", [-1, K])
    parents = b.input("parents", [-1], "int64", levels=1)
    where = b.input("positions", [-1], "int64") if positions else None
    hidden = b.fc(x, size=K, activation="tanh", name="hidden")
    states, roots = b.tree_lstm(hidden, parents, H, arity=arity, positions=where, name="lstm")
    scores = b.fc(roots, size=3, name="scores")
    cost = b.mean(b.square(scores)) + b.mean(b.square(states))
    return b, b.square(cost, name="cost")


def values_of(b, scope):
    return {v.name: scope.numpy(v.name) for v in b.desc.vars if v.kind == PARAMETER}


def forest(rng, arity, sizes=(7, 1, 12)):
    parents, offsets = random_trees(rng, sizes, arity=arity)
    feed = {"x": rng.normal(size=(len(parents), K)), "parents": Sequences(parents, (offsets,))}
    return feed, parents, offsets


@pytest.mark.parametrize("arity", [0, 1, 2, 3])
def test_equal_to_a_plain_recursion(arity):
    b, _ = build(arity)
    scope, rng = Scope(), np.random.default_rng(arity)
    feed, parents, offsets = forest(rng, arity)
    b.initialize(scope, OpContext(seed=2))
    found = b.run(scope, feed=feed, fetch=["hidden", "lstm", "lstm.root"], need_backward=False)
    values = values_of(b, scope)
    assert (values["lstm.f.b"] == 1).all()
    wanted = reference(values, "lstm", found["hidden"], parents, offsets, arity)
    np.testing.assert_allclose(found["lstm"], wanted, rtol=1e-11, atol=1e-13)
    np.testing.assert_allclose(found["lstm.root"], wanted[parents == -1], rtol=1e-11, atol=1e-13)


def test_positions_tell_left_from_right():
    b, _ = build(2, positions=True)
    trees = Trees.from_nested([("-", None, 3), ("-", 3, None), ("-", 3), ("+", ("-", 1), 2)])
    rng = np.random.default_rng(0)
    kinds = {label: rng.normal(size=K) for label in dict.fromkeys(trees.labels)}
    feed = {
        "x": np.array([kinds[label] for label in trees.labels]),
        "parents": trees.parents,
        "positions": trees.positions.data,
    }
    scope = Scope()
    found = b.run(scope, feed=feed, fetch=["hidden", "lstm"], need_backward=False)
    wanted = reference(
        values_of(b, scope),
        "lstm",
        found["hidden"],
        trees.parents.data,
        trees.parents.levels[0],
        2,
        trees.positions.data,
    )
    np.testing.assert_allclose(found["lstm"], wanted, rtol=1e-11, atol=1e-13)
    right, left, only = (found["lstm"][row] for row in (0, 2, 4))
    assert np.allclose(left, only) and not np.allclose(left, right)


@pytest.mark.parametrize("arity", [0, 2])
def test_gradients_of_all_parameters(arity):
    b, cost = build(arity)
    b.backward_from(cost)
    scope, rng = Scope(), np.random.default_rng(7)
    feed, _, _ = forest(rng, arity)
    names = [v.name for v in b.desc.vars if v.kind == PARAMETER]
    assert len(names) == 2 + 4 + (1 if arity else 2) + 2
    b.run(scope, feed=feed)
    grads = b.run(scope, feed=feed, fetch=[b.gradient(name) for name in names])
    for name in names:
        value = scope.numpy(name)
        direction = rng.normal(size=value.shape)
        costs = []
        for step in (1e-6, -1e-6):
            scope.get(name).set(value + step * direction)
            out = b.run(scope, feed=feed, fetch=["cost"], need_backward=False)
            costs.append(float(out["cost"]))
        scope.get(name).set(value)
        wanted = (costs[0] - costs[1]) / 2e-6
        got = float((grads[b.gradient(name)] * direction).sum())
        assert abs(got - wanted) <= 1e-6 * max(1.0, abs(wanted)), name


@pytest.mark.parametrize("arity", [0, 2])
def test_saved_and_loaded_nets_are_equal(arity, tmp_path):
    b, cost = build(arity, dtype="float32")
    b.backward_from(cost)
    b.add_optimization(0.1, "adam")
    scope = Scope()
    feed, _, _ = forest(np.random.default_rng(1), arity)
    feed["x"] = feed["x"].astype("float32")
    b.run(scope, feed=feed)
    opscope.save(b, scope, tmp_path / "trees.pb")
    net, other = opscope.load(tmp_path / "trees.pb", train=True)
    again = NetBuilder.from_desc(net.desc)
    one, two = (
        builder.run(held, feed=feed, fetch=["lstm", "scores"], need_backward=False)
        for builder, held in ((b, scope), (again, other))
    )
    for name, value in one.items():
        np.testing.assert_array_equal(value, two[name])
    other.feed({"x": feed["x"]})  # the loaded net trains on, gradients and updates included
    other.var("parents").set(feed["parents"].data, feed["parents"].levels)
    b.net.run(scope)
    net.run(other)
    for name in values_of(b, scope):
        np.testing.assert_array_equal(scope.numpy(name), other.numpy(name))


def test_training_lowers_the_cost():
    b, cost = build(0, dtype="float32")
    b.backward_from(cost)
    b.add_optimization(0.02, "adam")
    scope, rng = Scope(), np.random.default_rng(1)
    costs = []
    for _ in range(40):  # new trees every time
        feed, _, _ = forest(rng, 0, rng.integers(1, 12, size=6))
        feed["x"] = feed["x"].astype("float32")
        costs.append(float(b.run(scope, feed=feed, fetch=["cost"])["cost"]))
    assert np.mean(costs[-5:]) < 0.2 * np.mean(costs[:5])


@pytest.mark.parametrize(
    ("parents", "offsets", "error", "text"),
    [
        ([1, 0, -1], [0, 3], TreeError, "tree 0: node 0 is its own ancestor: 0 -> 1 -> 0"),
        ([-1, -1, 0], [0, 3], TreeError, "tree 0 has several roots: nodes 0 and 1"),
        ([-1, 0, 0, 0], [0, 4], TreeError, "tree 0: node 0 has 3 children, more than 2"),
        ([-1, -1, 5], [0, 1, 3], TreeError, "tree 1: node 1 has the parent 5, but the tree has 2"),
        ([-1, -2], [0, 2], TreeError, "tree 0: node 1 has the parent -2"),
        ([-1, 0], [0, 0, 2], TreeError, "tree 0 has no nodes"),
        ([-1, 0, -1], None, ShapeError, "'parents' wants 1 level of sequences"),
    ],
)
def test_bad_trees_are_refused(parents, offsets, error, text):
    b, _ = build(2)
    packed = np.array(parents)
    if offsets is not None:
        packed = Sequences(packed, (np.array(offsets),))
    feed = {"x": np.zeros((len(parents), K)), "parents": packed}
    with pytest.raises(error, match=text):
        b.run(Scope(), feed=feed, fetch=["lstm"], need_backward=False)


def test_wrong_arguments_fail_on_the_line_that_wrote_them():
    b = NetBuilder("trees")
    x, parents = b.input("x", [-1, K]), b.input("parents", [-1], "int64", levels=1)
    with pytest.raises(AttributeTypeError, match="want size >= 1"):
        b.tree_lstm(x, parents, 0)
    with pytest.raises(ShapeError, match="parent wants an integer dtype"):
        b.tree_lstm(x, b.input("floats", [-1]), H)
    with pytest.raises(VariableError, match="no variable 'parent' .did you mean parents"):
        b.tree_lstm(x, "parent", H)
    b.tree_lstm(x, parents, H, name="lstm")
    with pytest.raises(VariableError, match="'lstm.iou.w' is defined twice"):
        b.tree_lstm(x, parents, H, name="lstm")
