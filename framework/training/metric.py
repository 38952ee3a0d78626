"""What is measured over the minibatches of an epoch: the interface of metrics."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np


class Metric(ABC):
    """Something measured over the minibatches of an epoch. Derive from it for your own.

    Args:
        name: column of the history.
        fetch: variables (handles or names) whose values `update` gets.
        keys: where the result is several numbers, their names: each is a column `name.key`.
    """

    def __init__(self, name: str, fetch: Iterable[object], keys: Iterable[str] = ()) -> None:
        self.name = name
        self.fetch = tuple(str(var) for var in fetch)
        self.keys = tuple(keys)

    @property
    def columns(self) -> list[str]:
        """The columns of the history that it fills."""
        return [f"{self.name}.{key}" for key in self.keys] if self.keys else [self.name]

    def fresh(self) -> Metric:
        """The same metric for another pass over data, which has not begun."""
        other = copy.deepcopy(self)
        other.reset()
        return other

    @abstractmethod
    def update(self, values: Mapping[str, np.ndarray], rows: int) -> None:
        """Take up a minibatch.

        Args:
            values: of the variables in `fetch`, by name, on the host; copy what is kept.
            rows: of the minibatch.
        """

    @abstractmethod
    def result(self) -> float | Mapping[str, float]:
        """The number over all minibatches since `reset`; a number for each of `keys` if it has any.

        Called after one minibatch at least. NaN where there is nothing to divide by.
        """

    @abstractmethod
    def reset(self) -> None:
        """Forget all minibatches: an epoch begins."""

    @abstractmethod
    def state(self) -> dict[str, Any]:
        """What `restore` needs in the middle of an epoch: numbers, strings, lists and NumPy arrays
        by name. Checkpoints hold it."""

    @abstractmethod
    def restore(self, state: Mapping[str, Any]) -> None:
        """Take up what `state` gave.

        Raises:
            KeyError, TypeError, ValueError: it is the state of another metric.
        """
