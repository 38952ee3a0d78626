"""Small nets in any precision, with data that they learn."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from opscope import NetBuilder

Made = tuple[NetBuilder, Any, dict[str, Any]]
"""A builder without gradients, its cost, and a minibatch."""


def _ended(b: NetBuilder, scores: Any) -> Any:
    label = b.input("label", [-1], "int64")
    return b.mean(b.softmax_cross_entropy(scores, label), name="cost")


def mlp(dtype: str) -> Made:
    """Fully connected layers with batch and layer normalization."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(96, 12)).astype(np.float32)
    b = NetBuilder("mlp", dtype)
    hidden = b.batch_norm(b.fc(b.input("x", [-1, 12]), size=32, activation="relu"))
    hidden = b.layer_norm(b.fc(hidden, size=32, activation="tanh"))
    cost = _ended(b, b.fc(hidden, size=4))
    return b, cost, {"x": x, "label": (x @ rng.normal(size=(12, 4))).argmax(1)}


def conv(dtype: str) -> Made:
    """A convolution, a pooling, a convolution: which row of the picture is bright?"""
    rng = np.random.default_rng(1)
    label = rng.integers(0, 4, 64)
    x = rng.normal(size=(64, 1, 8, 8)).astype(np.float32)
    x[np.arange(64), 0, 2 * label] += 1.5
    b = NetBuilder("conv", dtype)
    y = b.conv2d(b.input("x", [-1, 1, 8, 8]), 8, 3, padding=[1, 1], activation="relu")
    y = b.max_pool2d(y, kernel=[2, 2])
    y = b.batch_norm(b.conv2d(y, 8, 3, padding=[1, 1]))
    cost = _ended(b, b.fc(b.flatten(b.relu(y)), size=4))
    return b, cost, {"x": x, "label": label}


def lstm(dtype: str) -> Made:
    """An embedding and an LSTM: which of the symbols came first?"""
    rng = np.random.default_rng(2)
    ids = [rng.integers(0, 5, size) for size in rng.integers(2, 7, 48)]
    b = NetBuilder("lstm", dtype)
    given = b.input("x", [-1], "int64", levels=1)
    states, _ = b.lstm(b.embedding(given, [5, 8]), 16)
    cost = _ended(b, b.fc(b.sequence_pool(states, pool_type="last"), size=5))
    return b, cost, {"x": ids, "label": np.array([one[0] for one in ids])}


def attention(dtype: str) -> Made:
    """A transformer's encoder layer: which of the symbols is there twice?"""
    rng = np.random.default_rng(3)
    ids = np.array([rng.permutation(6)[:5] for _ in range(64)])
    label = ids[:, 0].copy()
    ids[:, 4] = label
    width, steps = 16, 5
    b = NetBuilder("attention", dtype)
    x = b.embedding(b.input("x", [-1, steps], "int64"), [6, width])
    place = b.parameter("place", [steps, width], ("gaussian_random", {"std": 0.3}))
    x = x + place
    query, key, value = (b.fc(x, size=width, name=name) for name in ("query", "key", "value"))
    weights = b.softmax(b.scale(b.matmul(query, key, transpose_y=True), scale=width**-0.5))
    x = b.layer_norm(x + weights @ value)
    x = b.layer_norm(x + b.fc(b.fc(x, size=32, activation="gelu"), size=width))
    cost = _ended(b, b.fc(b.reduce_mean(x, axes=[1]), size=6))
    return b, cost, {"x": ids, "label": label}


def recurrent(dtype: str) -> Made:
    """A step net written by hand, with a normalization inside: was the sum positive?"""
    rng = np.random.default_rng(4)
    x = [rng.normal(size=(size, 6)).astype(np.float32) for size in rng.integers(2, 7, 40)]
    b = NetBuilder("recurrent", dtype)
    given = b.input("x", [-1, 6], levels=1)
    with b.recurrent("rnn") as step:
        now, before = step.input(given), step.memory(12)
        new = b.layer_norm(b.fc([now, before], size=12, activation="tanh"))
        step.update(before, new)
        last = step.final(before)
    cost = _ended(b, b.fc(last, size=2))
    return b, cost, {"x": x, "label": np.array([int(one[-1, 0] > 0) for one in x])}


def tree(dtype: str) -> Made:
    """A tree-LSTM: of which kind is the root?"""
    rng = np.random.default_rng(5)
    shapes = [[-1], [-1, 0, 0], [-1, 0, 0, 1, 1], [-1, 0, 1, 1]] * 4
    x = [rng.normal(size=(len(parents), 6)).astype(np.float32) for parents in shapes]
    b = NetBuilder("tree", dtype)
    nodes, parents = b.input("x", [-1, 6], levels=1), b.input("parents", [-1], "int64", levels=1)
    _, roots = b.tree_lstm(nodes, parents, 12)
    cost = _ended(b, b.fc(roots, size=3))
    label = np.array([one[0, :3].argmax() for one in x])
    return b, cost, {"x": x, "parents": list(map(np.array, shapes)), "label": label}


NETS: dict[str, Callable[[str], Made]] = {
    "mlp": mlp,
    "conv": conv,
    "lstm": lstm,
    "attention": attention,
    "recurrent": recurrent,
    "tree": tree,
}
