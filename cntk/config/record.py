"""What is read from a config: the names that were looked up in its sections, and what was wrong.

Every config has a `Record`. A run ends at the first error; a check makes the record `lenient`: a
value that is missing or of the wrong type is noted, and the reading continues with a stand-in.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from ...framework.base.errors import OpscopeError

T = TypeVar("T")


class HasPath(Protocol):
    """A section, as a record knows it."""

    path: str


SectionT = TypeVar("SectionT", bound=HasPath)


class Record(Generic[SectionT]):
    """What was read from the sections of one config.

    Attributes:
        sections: those in which a name was looked up, by their paths in lower case.
        asked: the names looked up in each of them: lower case -> as the reader spells it.
        reasons: parameters that a setting beside them switches off: path of the section -> name as
            the reader spells it -> reason.
        left: paths of sections that were not read to their end, or hold names other than
            parameters', in lower case: nothing is said of what is in them.
        missing: names of parameters that were missing, in lower case.
        problems: of a lenient reading; None where the first error is raised.
        grown: characters that replaced variables have brought into values.
    """

    def __init__(self) -> None:
        self.sections: dict[str, SectionT] = {}
        self.asked: dict[str, dict[str, str]] = {}
        self.reasons: dict[str, dict[str, str]] = {}
        self.left: set[str] = set()
        self.missing: set[str] = set()
        self.problems: list[OpscopeError] | None = None
        self._left_out: set[str] = set()
        self.grown = 0

    def ask(self, section: SectionT, name: str) -> None:
        """Note that a name was looked up in a section, whether it is there or not."""
        path = section.path.lower()
        self.sections.setdefault(path, section)
        self.asked.setdefault(path, {}).setdefault(name.lower(), name)

    def explain(self, section: SectionT, name: str, reason: str) -> None:
        """Note why a name that a section may have is not looked up."""
        path = section.path.lower()
        self.sections.setdefault(path, section)
        self.reasons.setdefault(path, {}).setdefault(name, reason)

    @property
    def is_incomplete(self) -> bool:
        """Whether a lenient reading continues without some parameter."""
        return bool(self._left_out)

    def leave(self, path: str) -> None:
        """Say nothing of the names in a section."""
        self.left.add(path.lower())

    def is_left_out(self, path: str) -> bool:
        """Whether a lenient reading continues without the parameter of this path."""
        return path.lower() in self._left_out

    def lenient(self, read: Callable[[], T]) -> tuple[T | None, list[OpscopeError]]:
        """The result of a reading that continues after errors, and the errors.

        A parameter that the reading refuses is left out, and the reading begins again. An error
        about no parameter ends it: the result is None then.
        """
        self.problems = []
        self._left_out = set()
        try:
            return self._read(read), self.problems
        finally:
            self.problems = None
            self._left_out = set()

    def _read(self, read: Callable[[], T]) -> T | None:
        while True:
            try:
                return read()
            except OpscopeError as error:
                parameter = getattr(error, "parameter", None)
                if parameter is not None and self.is_left_out(parameter):
                    return None
                if getattr(error, "location", None) is not None or not self.problems:
                    self.note(error)  # else perhaps only for want of what was wrong before
                if parameter is None:
                    return None
                self._left_out.add(parameter.lower())

    def note(self, error: OpscopeError) -> bool:
        """Add a problem to the list of a lenient reading; False where errors are raised."""
        if self.problems is None:
            return False
        if str(error) not in map(str, self.problems):
            self.problems.append(error)
        return True
