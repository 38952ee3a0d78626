"""What other packages add to CNTK's front end: names they register, faults reported as errors."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import TYPE_CHECKING, Generic, TypeVar, cast

from ..errors import OpscopeError, RunError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

T = TypeVar("T")


class Plugins(Generic[T]):
    """Things of one sort that configs call by name: readers, writers, actions, learners.

    A table lists the plug-ins of this package. A running program adds others by `add`, an
    installed package by entry points.

    Args:
        what: one of them is called, for errors.
        group: of the entry points.
        own: names of this package's own.
        any_case: whether configs may write the names in any case.
    """

    def __init__(
        self, what: str, group: str, own: Iterable[str] = (), *, any_case: bool = False
    ) -> None:
        self.what = what
        self.group = group
        self.any_case = any_case
        self._own = list(own)
        self._added: dict[str, T] = {}

    def same(self, name: str, other: str) -> bool:
        """Whether configs mean one thing by two names."""
        return name.lower() == other.lower() if self.any_case else name == other

    def names(self) -> list[str]:
        """All names: this package's, the program's, other packages'."""
        points = (point.name for point in entry_points(group=self.group))
        return sorted({*self._own, *self._added, *points})

    def add(self, name: str, thing: T) -> None:
        """Let configs of this process use a name.

        Raises:
            OpscopeError: the name is taken.
        """
        for known in (*self._own, *self._added):
            if self.same(known, name):
                raise OpscopeError(f"the {self.what} {known!r} is there already")
        self._added[name] = thing

    def remove(self, name: str) -> None:
        """Forget a name that `add` made known, to add it again."""
        self._added.pop(name, None)

    def find(self, name: str) -> T | None:
        """What a name means to the program or to another package; None where nothing.

        Raises:
            OpscopeError: two packages bring it, or its module cannot be loaded.
        """
        for known, thing in self._added.items():
            if self.same(known, name):
                return thing
        there = entry_points(group=self.group)
        points = [point for point in there if self.same(point.name, name)]
        # One package that is installed twice on the path lists its entry point twice.
        if len({point.value for point in points}) > 1:
            sources = " and ".join(sorted({point.value for point in points}))
            raise OpscopeError(
                f"the {self.what} {name!r} is brought by two packages ({self.group}): {sources}"
            )
        return cast(T, load_plugin(points[0])) if points else None

    def owner(self, name: str) -> str:
        """Who a name belongs to, for errors."""
        if any(self.same(known, name) for known in self._added):
            return f"the {self.what} {name!r}"
        return f"the {self.what} {name!r} of another package ({self.group})"


def entry_points(*, group: str) -> tuple[EntryPoint, ...]:
    """The entry points of a group, in all installed packages."""
    return _points(group, tuple(sys.path))


@lru_cache(maxsize=16)
def _points(group: str, path: tuple[str, ...]) -> tuple[EntryPoint, ...]:
    """Those in the folders of `sys.path`; to find them, a file of each package is read."""
    import importlib.metadata  # slow to load, seldom needed

    return tuple(importlib.metadata.entry_points(group=group))


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


def owner_of(what: str, thing: object) -> str:
    """Who the methods of an object belong to, for errors: `the reader my_package.MyReader`."""
    return f"the {what} {type(thing).__module__}.{type(thing).__name__}"
