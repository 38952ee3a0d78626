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
        Switch(
            "OPSCOPE_REUSE",
            "1",
            "let temporaries share memory by liveness, and products that of their packed factors",
            _FLAG,
        ),
        Switch("OPSCOPE_INPLACE", "1", "let operators write over inputs nobody reads again", _FLAG),
        Switch(
            "OPSCOPE_ROWS",
            "1",
            "do products and what follows them a block of rows after another",
            _FLAG,
        ),
        Switch(
            "OPSCOPE_PIECES",
            "1",
            "cut tall products, sums over rows and softmax into pieces that stay in the cache",
            _FLAG,
        ),
        Switch(
            "OPSCOPE_VECTORS",
            "1",
            "multiply a single row, or few, with a large matrix by loops of our own",
            _FLAG,
        ),
        Switch(
            "OPSCOPE_SPLICE",
            "1",
            "compile nnet3 networks so that spliced rows are read where they lie, not copied",
            _FLAG,
        ),
        Switch(
            "OPSCOPE_RECURRENT",
            "fast",
            "recurrent nets: over whole sequences where that is possible, or one scope a step",
            ("fast", "steps"),
        ),
        Switch(
            "OPSCOPE_CHANNELS_LAST",
            "1",
            "let images lie in memory with their channels last, where the operators take them so",
            _FLAG,
        ),
        Switch(
            "OPSCOPE_TAILS",
            "1",
            "let kernels compute what follows them: a convolution its batch norm outside of"
            " training, its activation and its pooling",
            _FLAG,
        ),
        Switch("OPSCOPE_VERIFY", "0", "verify the net after every pass", _FLAG),
        Switch(
            "OPSCOPE_LIBRARIES",
            "packed,direct,native,mkl,blas,xp",
            "kernel libraries, best first; xp is always there. bf16 before them rounds the"
            " factors of large products to bfloat16",
        ),
        Switch(
            "OPSCOPE_AMX",
            "1",
            "float32 products by AMX tiles of bf16 parts, as accurate as float32, and those of"
            " the library bf16; needs its instructions, Linux and a C compiler",
            _FLAG,
        ),
        Switch(
            "OPSCOPE_KEEP_PACKED",
            "1",
            "pack weights of nets that only predict once for all runs, until they change",
            _FLAG,
        ),
        Switch(
            "OPSCOPE_CC",
            "",
            "C compiler for fused chains; empty: cc, gcc or clang on the PATH; none: NumPy computes"
            " them",
        ),
        Switch(
            "OPSCOPE_MARCH",
            "native",
            "instructions of what is compiled: those of this processor, or of a level of x86-64"
            " (v2: SSE4, v3: AVX2, v4: AVX-512, none of them AMX). Read when the first of it is",
            ("native", "x86-64-v4", "x86-64-v3", "x86-64-v2"),
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
        Switch(
            "OPSCOPE_RANKS_WAIT",
            "0",
            "seconds that a rank waits for the others before it ends the run, as `opscope launch"
            " --timeout` sets; 0: for ever",
        ),
        Switch(
            "OPSCOPE_ROLL_CALL",
            "",
            "folder in which ranks note that they began and that they ended, as `opscope launch`"
            " sets; empty: they note nothing",
        ),
        Switch(
            "OPSCOPE_CACHE",
            "",
            "folder for compiled chains and computations; empty: the user's cache folder",
        ),
        Switch(
            "OPSCOPE_KEEP_COMPUTATIONS",
            "1",
            "keep compiled nnet3 computations in that folder for the next process",
            _FLAG,
        ),
    )
}


def switch(name: str) -> str:
    """Value of a switch by its name in the table."""
    return SWITCHES[name].value()


def is_on(name: str) -> bool:
    return SWITCHES[name].on()
