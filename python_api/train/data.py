"""The data of a training: minibatches, or a function of the epoch's number that gives them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from typing import Any

import numpy as np

from ...framework.base.errors import OpscopeError

Batches = Iterable[Mapping[Any, Any]]
Data = Batches | Callable[[int], Batches]


def batches_of(data: Data, epoch: int) -> Iterator[Mapping[Any, Any]]:
    """The minibatches of an epoch."""
    return iter(data(epoch) if callable(data) else data)


def length_of(data: Data) -> int | None:
    """The number of minibatches, where the data say it."""
    return len(data) if isinstance(data, Sized) else None


def check_reiterable(data: Data, epochs: int) -> None:
    """Refuse an iterator, which is used up after one epoch.

    Raises:
        OpscopeError: it is one, and there are several epochs.
    """
    if epochs > 1 and not callable(data) and iter(data) is data:
        raise OpscopeError(
            "the data can be gone through only once; give a list, a Minibatches, or a function"
            " of the epoch's number that returns minibatches"
        )


def is_whole(value: Any) -> bool:
    """Whether something is a whole number, as counts are."""
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)
