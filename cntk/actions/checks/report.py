"""The problems of a file, each once, in the order of their places."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from ....framework.base.errors import OpscopeError
from ...base.text import MOST_ERRORS, Location
from ...network.network import Network

ERROR, WARNING = "error", "warning"
_ABSENT = re.compile(
    r"error opening file '([^'\0]+)': No such file|there is no model file '([^'\0]+)'"
    r"|^(?:\S+: )?([^\s\0]+): (?:cannot be read: )?No such file or directory$"
)


@dataclass(frozen=True)
class Problem:
    """A problem.

    Attributes:
        severity: `ERROR` or `WARNING`.
        text: with the place, if there is one.
        location: the place.
        file: the path of a file that is not there, if that is the problem.
    """

    severity: str
    text: str
    location: Location | None = None
    file: str = ""


@dataclass
class Report:
    """The problems and networks of one file.

    Attributes:
        recorded: the problems, in the order in which they were found.
        networks: the networks that were built, by the names of their sections.
    """

    recorded: list[Problem] = field(default_factory=list)
    networks: dict[str, Network] = field(default_factory=dict)
    _refused: set[str] = field(default_factory=set)  # parameters
    _reported: set[str] = field(default_factory=set)  # texts, first lines and absent files

    @property
    def problems(self) -> list[tuple[str, str]]:
        """Pairs of severity and text, in the order of their places: file by file, line by line."""
        sources: dict[str, int] = {}
        for problem in self.recorded:
            if problem.location is not None:
                sources.setdefault(problem.location.source.name, len(sources))

        def place(problem: Problem) -> tuple[int, int, int]:
            at = problem.location
            if at is None:
                return len(sources), 0, 0
            return sources[at.source.name], at.line, at.column

        return [(problem.severity, problem.text) for problem in sorted(self.recorded, key=place)]

    @property
    def errors(self) -> list[Problem]:
        """What stops a run."""
        return [problem for problem in self.recorded if problem.severity == ERROR]

    @property
    def is_full(self) -> bool:
        """Whether so much is wrong that a reading which continues after errors had better end."""
        return len(self.recorded) >= MOST_ERRORS

    @contextmanager
    def collected(self) -> Iterator[None]:
        """A context whose errors are added, each once."""
        try:
            yield
        except OpscopeError as error:
            self.add_error(error)
            for other in getattr(error, "others", ()):  # of other members, of the rest of a text
                self.add_error(other)
            network = getattr(error, "network", None)
            for other in network.problems() if network is not None else ():
                if not str(error).startswith(str(other)):  # the first, perhaps with a longer chain
                    self.add_error(other)

    def add_error(self, error: OpscopeError, severity: str = ERROR, file: str = "") -> None:
        """Add an error of the package; `file` is one that is not there."""
        text = str(error)
        parameter = getattr(error, "parameter", None)
        if parameter is not None and severity == ERROR:
            if parameter in self._refused:
                return  # another reader refuses it as well
            self._refused.add(parameter)
        absent = _ABSENT.search(text.split("\n", 1)[0]) if not file else None
        file = file or (os.path.abspath(next(filter(None, absent.groups()))) if absent else "")
        self.add(severity, text, getattr(error, "location", None), file)

    def add(
        self, severity: str, text: str, location: Location | None = None, file: str = ""
    ) -> None:
        """Add a problem, unless it is there: the same text, place or absent file."""
        line = text.split("\n", 1)[0]
        keys = {f"text {text}", f"file {file}"} if file else {f"text {text}"}
        if not keys.isdisjoint(self._reported) or (location and f"line {line}" in self._reported):
            return
        self._reported |= {*keys, f"line {line}"}
        self.recorded.append(Problem(severity, text, location, file))
