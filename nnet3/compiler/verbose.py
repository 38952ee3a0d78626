"""Who hears of what is compiled and computed, as with Kaldi's `--verbose`.

    with telling(Verbose(level=4, log=print)):
        ...    # requests that are compiled here are reported

Levels are Kaldi's; `reports.py` and `run.trace` have the words:

    2  what compressed memory saves
    3  the greatest memory use before and after the passes
    4  the request, and the commands before and after the passes
    5  which steps have derivatives; every command that is run
    6  the graph of nodes and their epochs, the rounds of the search for rows
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass


@dataclass(frozen=True)
class Verbose:
    """Where reports go, and how much they say.

    Attributes:
        level: as Kaldi's `--verbose`.
        log: takes lines of the kind LOG, which Kaldi prints from some level on.
        vlog: takes lines of the kind VLOG with their level; None: `log` takes them.
        debug: whether every command that is run is reported, whatever the level.
    """

    level: int
    log: Callable[[str], None]
    vlog: Callable[[int, str], None] | None = None
    debug: bool = False

    @property
    def tells_commands(self) -> bool:
        """Whether every command that is run is reported."""
        return self.debug or self.level >= 5

    def at(self, level: int, message: str) -> None:
        """Tell a line of the kind VLOG."""
        if self.level < level:
            return
        if self.vlog is None:
            self.log(message)
        else:
            self.vlog(level, message)


VERBOSE: ContextVar[Verbose | None] = ContextVar("verbose", default=None)
"""Where what is compiled and run here is reported; None: nowhere."""


@contextmanager
def telling(listener: Verbose) -> Iterator[None]:
    """A context in which a listener gets reports of what is compiled and run."""
    token = VERBOSE.set(listener)
    try:
        yield
    finally:
        VERBOSE.reset(token)
