"""Trainings by `opscope.train` on dry ranks and in one process, and how they are compared."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import opscope
from opscope.framework.base.backend import Place
from opscope.framework.base.communicator import Communicator
from opscope.framework.files.saved import op_list_of, persistent_values
from opscope.framework.parallel.dry import DryWorld
from opscope.framework.training.history import History

Values = dict[str, np.ndarray]


def classifier(dtype: str = "float64", dropout: float = 0.0, norm: bool = False) -> Any:
    """x [-1, 6] -> a layer -> 3 classes; the mean of the costs, momentum, a bound on gradients."""
    b = opscope.NetBuilder("digits", dtype)
    h = b.fc(b.input("x", [-1, 6]), size=8, activation="tanh", name="h")
    if norm:
        h = b.batch_norm(h, name="norm")
    if dropout:
        h = b.dropout(h, p=dropout)
    return finish(b, b.fc(h, size=3, name="y"), "momentum", 0.1, clip_norm=1.0)


def finish(b: Any, scores: Any, optimizer: str = "adam", rate: float = 0.01, **options: Any) -> Any:
    """The end of a net: a loss, an accuracy, gradients and updates, which all say no stage."""
    label = b.input("label", [-1], "int64")
    right, _, _ = b.accuracy(scores, label)
    b.scale(right, scale=1.0, name="right")
    b.mean(b.softmax_cross_entropy(scores, label), name="loss")
    b.backward_from("loss")
    b.add_optimization(rate, optimizer, **options)
    return b


def net(optimizer: str = "adam", dtype: str = "float64", rate: float = 0.01, **options: Any) -> Any:
    """Layers of shapes that ranks cannot share out evenly, and a parameter of one number."""
    b = opscope.NetBuilder("digits", dtype)
    h = b.fc(b.input("x", [-1, 6]), size=7, activation="tanh", name="h")
    h = b.mul(h, b.parameter("gain", [], init=1.5))
    return finish(b, b.fc(h, size=3, name="y"), optimizer, rate, **options)


def tied(dtype: str = "float64") -> Any:
    """A table whose gradient has rows, which stays whole, beside layers that are shared out."""
    b = opscope.NetBuilder("words", dtype)
    h = b.embedding(b.input("ids", [-1], "int64"), size=[20, 4], sparse=True, name="table")
    cost = b.softmax_cross_entropy(b.fc(h, size=3), b.input("label", [-1], "int64"))
    b.mean(cost, name="loss")
    b.backward_from("loss")
    b.add_optimization(0.1, "adam", clip_norm=0.5)
    return b


def half(dtype: str, loss_scale: Any = "dynamic") -> Any:
    """As `classifier`, in half precision with a scaled loss."""
    b = opscope.NetBuilder("halves", dtype)
    h = b.fc(b.input("x", [-1, 6]), size=7, activation="tanh", name="h")
    cost = b.softmax_cross_entropy(b.fc(h, size=3, name="y"), b.input("label", [-1], "int64"))
    b.mean(cost, name="loss")
    b.backward_from("loss")
    b.add_optimization(0.01, "adam", loss_scale=loss_scale, clip_norm=1.0)
    return b


def arrays(rows: int, dtype: str = "float64", seed: int = 0) -> dict[str, np.ndarray]:
    """Samples for `classifier`."""
    rng = np.random.default_rng(seed)
    return {"x": rng.normal(size=(rows, 6)).astype(dtype), "label": rng.integers(0, 3, rows)}


def train(
    build: Callable[[], Any],
    data: Any,
    communicator: Communicator | None = None,
    place: Place | None = None,
    **options: Any,
) -> tuple[Values, History]:
    """Parameters and states after a training from the same beginning, and its history."""
    net, scope = build(), opscope.Scope(place)
    options = {"epochs": 4, "seed": 5, **options}
    history = opscope.train(
        net, data, scope=scope, progress=False, communicator=communicator, **options
    )
    values = persistent_values(op_list_of(net), scope)
    return {name: array.copy() for name, array in values.items()}, history


def on_ranks(
    size: int, build: Callable[[], Any], data: Any, **options: Any
) -> list[tuple[Values, History]]:
    """The same on dry ranks: what each has."""
    return DryWorld(size).run(lambda c: train(build, data, c, **options))


def numbers(history: History) -> list[dict[str, float]]:
    """The rows without their times."""
    return [{k: v for k, v in row.items() if k != "seconds"} for row in history.rows]


def check_equal(
    found: list[tuple[Values, History]], wanted: tuple[Values, History], tolerance: float = 1e-12
) -> None:
    """Ranks among themselves bit by bit, and against one process."""
    for values, history in found:
        for name, value in wanted[0].items():
            assert values[name].tobytes() == found[0][0][name].tobytes(), f"{name}: ranks differ"
            assert np.abs(values[name] - value).max(initial=0) <= tolerance, name
        assert numbers(history) == numbers(found[0][1])
    for row, other in zip(numbers(found[0][1]), numbers(wanted[1]), strict=True):
        assert row.keys() == other.keys()
        for name, value in other.items():
            single = 1e-7 if name.endswith("right") else 0.0  # accuracies are float32
            assert abs(row[name] - value) <= max(tolerance, single), name
