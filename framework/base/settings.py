"""Environment switches: the whole table, each with its text and default."""

from __future__ import annotations

import os
from dataclasses import dataclass

from .errors import OpscopeError


@dataclass(frozen=True)
class Switch:
    """One environment variable."""

    name: str
    default: str
    doc: str
    choices: tuple[str, ...] = ()

    def value(self) -> str:
        """The value in the environment now, or the default.

        Raises:
            OpscopeError: the environment holds none of the choices.
        """
        found = os.environ.get(self.name, self.default)
        if self.choices and found not in self.choices:
            raise OpscopeError(f"{self.name}={found}: want one of {', '.join(self.choices)}")
        return found

    def on(self) -> bool:
        return self.value() == "1"


_FLAG = ("0", "1")
SWITCHES = {
    switch.name: switch
    for switch in (
        Switch("OPSCOPE_FUSE", "1", "compile chains of elementwise operators", _FLAG),
        Switch("OPSCOPE_REUSE", "1", "let temporaries share memory by liveness", _FLAG),
        Switch("OPSCOPE_INPLACE", "1", "let operators write over inputs nobody reads again", _FLAG),
        Switch(
            "OPSCOPE_RECURRENT",
            "fast",
            "recurrent nets: over whole sequences where that is possible, or one scope a step",
            ("fast", "steps"),
        ),
        Switch("OPSCOPE_VERIFY", "0", "verify the net after every pass", _FLAG),
        Switch(
            "OPSCOPE_LIBRARIES",
            "packed,native,mkl,blas,xp",
            "kernel libraries, best first; xp is always there",
        ),
        Switch(
            "OPSCOPE_CC", "", "C compiler for fused chains; empty: cc, gcc or clang on the PATH"
        ),
        Switch(
            "OPSCOPE_THREADS",
            "",
            "threads of all that computes; empty: OMP_NUM_THREADS, or the cores that are free",
        ),
        Switch(
            "OPSCOPE_SPIN",
            "100",
            "microseconds that an idle thread looks for work before it sleeps; 0: at once",
        ),
        Switch(
            "OPSCOPE_PIPES",
            "0",
            "commands that may run: 1: those in file names of a command line; files: also those"
            " that a file names (lines of an .scp, renderCmd of a CNTK config)",
            (*_FLAG, "files"),
        ),
        Switch(
            "OPSCOPE_LIMITS",
            "",
            "limits of what a file may ask for, as `name=number` with commas between (see Limits)",
        ),
        Switch(
            "OPSCOPE_ROOT",
            "",
            "folders that all files which are read and written must lie in, but those of a command"
            f" line's words; {os.pathsep!r} between them. Empty: any file",
        ),
        Switch(
            "OPSCOPE_COMMUNICATOR",
            "",
            "how `train` finds other ranks where it is not told: mpi, as `opscope launch` sets;"
            " empty: there are none",
            ("", "mpi"),
        ),
        Switch("OPSCOPE_CACHE", "", "folder for compiled chains; empty: the user's cache folder"),
    )
}


def switch(name: str) -> str:
    """Value of a switch by its name in the table."""
    return SWITCHES[name].value()


def is_on(name: str) -> bool:
    return SWITCHES[name].on()
