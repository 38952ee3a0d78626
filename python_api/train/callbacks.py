"""Callbacks of `train`: functions of the user that run after minibatches and epochs.

train(b, data, epochs=9, callbacks=[lambda at: print(at.epoch, at.row["loss"])])

class Watch(Callback):
    def on_step(self, at):
        if at.values["loss"] > 100:
            at.stop()
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...framework.base.errors import AttributeTypeError, OpscopeError, nearest
from ...framework.base.scope import Scope
from ...framework.training.history import History


@dataclass
class TrainingState:
    """Where a training stands, as callbacks see it.

    Attributes:
        net: the net that is trained. scope: its values; what a callback sets there stays.
        history: the rows so far.
        epochs: number of epochs in all.
        epoch: the one under way, or just finished, from 1.
        step: minibatches of this epoch so far.
        values: of the loss and of what the metrics read, in the last minibatch, by variable.
        row: the history's row of the epoch; empty before its end.
        rank: where several train together, which of them this is; callbacks run on all.
    """

    net: Any
    scope: Scope
    history: History
    epochs: int
    epoch: int = 0
    step: int = 0
    values: Mapping[str, np.ndarray] = field(default_factory=dict)
    row: Mapping[str, float] = field(default_factory=dict)
    stopping: bool = False
    rank: int = 0

    def stop(self) -> None:
        """End the training here: the checkpoint is written and `train` returns.

        All ranks end where one of them says so. After a minibatch its epoch stays unfinished, as
        after a Ctrl-C, and has no row.
        """
        self.stopping = True


class Callback:
    """Called while a training runs. Derive from it and override what you need.

    An error raised in a method ends the training; the message names the callback and the place.
    """

    def on_step(self, at: TrainingState) -> None:
        """After each minibatch, its update included."""

    def on_epoch(self, at: TrainingState) -> None:
        """After each epoch and its evaluation, before the checkpoint is written."""


_METHODS = ("on_step", "on_epoch")


class Callbacks:
    """The callbacks of one training.

    Args:
        given: Callbacks, other objects with a method `on_step` or `on_epoch`, or functions, which
            are called after each epoch. A single one may stand alone.

    Raises:
        AttributeTypeError: something else.
    """

    def __init__(self, given: Any) -> None:
        if callable(given) or any(hasattr(given, method) for method in _METHODS):
            given = [given]
        if not isinstance(given, Iterable):
            raise AttributeTypeError(f"callbacks: want functions and Callbacks, not {given!r}")
        self._called: dict[str, list[tuple[str, Callable[[TrainingState], Any]]]] = {
            method: [] for method in _METHODS
        }
        for callback in given:
            self._add(callback)

    def _add(self, callback: Any) -> None:
        if inspect.isclass(callback):
            raise AttributeTypeError(
                f"callbacks: {callback.__name__} is a class; give an object: {callback.__name__}()"
            )
        name = getattr(callback, "__name__", type(callback).__name__)
        for method in dir(callback):
            if method.startswith("on_") and method not in _METHODS:
                raise AttributeTypeError(
                    f"callbacks: {name} has a method {method}, which nothing calls"
                    f"{nearest(method, _METHODS)}; there are {' and '.join(_METHODS)}"
                )
        methods = [method for method in _METHODS if hasattr(callback, method)]
        for method in methods:
            if getattr(type(callback), method, None) is not getattr(Callback, method):
                self._called[method].append((f"{name}.{method}", getattr(callback, method)))
        if not methods and not callable(callback):
            raise AttributeTypeError(
                f"callbacks: want functions and objects with {' or '.join(_METHODS)}, not"
                f" {callback!r}"
            )
        if not methods:
            self._called["on_epoch"].append((name, callback))

    def on_step(self, at: TrainingState) -> None:
        """Call what wants to see each minibatch."""
        self._call("on_step", at)

    def on_epoch(self, at: TrainingState) -> None:
        """Call what wants to see each epoch."""
        self._call("on_epoch", at)

    def _call(self, method: str, at: TrainingState) -> None:
        for name, function in self._called[method]:
            try:
                function(at)
            except Exception as error:
                place = f"epoch {at.epoch}"
                if method == "on_step":
                    place += f", minibatch {at.step}"
                raise OpscopeError(
                    f"callback {name}, {place}: {type(error).__name__}: {error}"
                ) from error
