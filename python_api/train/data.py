"""The data of a training: minibatches, or a function of the epoch's number that gives them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from typing import Any

from ...framework.base.errors import OpscopeError

Batches = Iterable[Mapping[Any, Any]]
Data = Batches | Callable[[int], Batches]


def batches_of(data: Data, epoch: int) -> Iterator[Mapping[Any, Any]]:
    """The minibatches of an epoch.

    Raises:
        OpscopeError: a function of the data returned none.
    """
    if not callable(data):
        return iter(data)
    minibatches = data(epoch)
    if not isinstance(minibatches, Iterable):
        raise OpscopeError(
            f"the function of the data returned {minibatches!r} for epoch {epoch}: want minibatches"
        )
    return iter(minibatches)


def check_data(data: Any, argument: str) -> None:
    """Refuse what is no data: whole arrays, a file's name, a function of something else.

    Args:
        argument: of `train`, for the message.

    Raises:
        OpscopeError: it is none.
    """
    right = "a list of minibatches {'x': array, ...}, or opscope.Minibatches(arrays, 32)"
    if isinstance(data, Mapping):
        raise OpscopeError(
            f"train: {argument} is one mapping: want {right}, which cuts such arrays up; [{{...}}]"
            " is a list of one minibatch"
        )
    whole = isinstance(data, (str, bytes)) or hasattr(data, "__array__")
    if whole or not (callable(data) or isinstance(data, Iterable)):
        raise OpscopeError(f"train: {argument} is a {type(data).__name__}: want {right}")
    if callable(data):
        try:
            inspect.signature(data).bind(0)
        except TypeError:
            raise OpscopeError(
                f"train: {argument} is a function that must take the number of an epoch:"
                " lambda epoch: minibatches"
            ) from None
        except ValueError:
            pass  # a function in C tells nothing of its arguments


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
