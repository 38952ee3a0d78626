"""Functions and modules of other packages: found by entry points, their faults told as errors."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import EntryPoint
from typing import TypeVar

from .errors import OpscopeError, RunError

T = TypeVar("T")


def load_plugin(point: EntryPoint) -> object:
    """What an entry point names.

    Raises:
        OpscopeError: its module cannot be imported, or lacks the name.
    """
    try:
        return point.load()
    except OpscopeError:
        raise
    except Exception as error:  # whatever another package's module raises
        raise OpscopeError(
            f"the plug-in {point.name!r} of the group {point.group} cannot be loaded:"
            f" {point.value}: {type(error).__name__}: {error}"
        ) from error


def call_plugin(owner: str, function: Callable[..., T], *arguments: object) -> T:
    """The result of a function of another package.

    Args:
        owner: who it belongs to, for errors.

    Raises:
        OpscopeError: one that the function raises; a RunError that names the owner for any other.
    """
    try:
        return function(*arguments)
    except OpscopeError:
        raise
    except Exception as error:  # whatever another package's code raises
        raise RunError(f"{owner} failed: {type(error).__name__}: {error}") from error
