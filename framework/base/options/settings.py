"""Options of nets and switches of the environment: the whole table, each with its text and default.

This module alone reads the switches. Those that change how nets are planned, bound and run are the
fields of `Options`: one value that is passed down, in whose place `options` sets another one for a
thread or task. It is read from the environment where something is built, compiled or planned, and
not where it runs.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import Field, dataclass, field, fields, replace
from functools import lru_cache
from typing import Any

from ....native.units import NAMES
from ..errors import OpscopeError, nearest

_FLAG = ("0", "1")


@dataclass(frozen=True)
class Switch:
    """One environment variable.

    Attributes:
        option: the field of `Options` that it sets; empty: it is one of the process.
    """

    name: str
    default: str
    doc: str
    choices: tuple[str, ...] = ()
    option: str = ""

    def value(self) -> str:
        """The value in the environment now, or the default.

        Raises:
            OpscopeError: the environment holds none of the choices.
        """
        text = os.environ.get(self.name, self.default)
        self.check(text)
        return text

    def check(self, text: str) -> None:
        """Refuse a value that is none of the choices.

        Raises:
            OpscopeError: it is none.
        """
        if self.choices and text not in self.choices:
            raise OpscopeError(f"{self.name}={text}: want one of {', '.join(self.choices)}")


def _option(default: Any, doc: str, choices: tuple[str, ...] = ()) -> Any:
    return field(default=default, metadata={"doc": doc, "choices": choices})


@dataclass(frozen=True)
class Options:
    """How nets are planned, fused, bound and run; what they compute is the same to rounding.

    The environment variable of a field is its name in capitals after `OPSCOPE_`.
    """

    fuse: bool = _option(True, "compile chains of elementwise operators")
    reuse: bool = _option(
        True,
        "let temporaries share memory by liveness, and products the memory of packed factors",
    )
    inplace: bool = _option(True, "let operators write over inputs that nothing reads again")
    recurrent: str = _option(
        "fast",
        "recurrent nets: over whole sequences where that is possible, or one scope a step",
        ("fast", "steps"),
    )
    channels_last: bool = _option(
        True,
        "let images lie in memory with their channels last, where the operators take them so",
    )
    tails: bool = _option(
        True,
        "let kernels compute what follows them: a convolution its batch norm outside of training,"
        " its activation and its pooling",
    )
    verify: bool = _option(False, "verify the net after every pass")
    libraries: tuple[str, ...] = _option(
        ("cuda", "packed", "direct", "native", "mkl", "blas", "xp"),
        "kernel libraries, best first; xp is always there. bf16 before them rounds the factors of"
        " large products to bfloat16",
    )
    amx: bool = _option(
        True,
        "products by AMX: of float32 by tiles of bf16 parts, as accurate as float32; of the library"
        " bf16, which have AVX512-BF16 else; of 8-bit integers, which have VNNI else; needs its"
        " instructions and Linux",
    )
    winograd: bool = _option(
        True,
        "convolutions of 3x3 taps by fewer multiplications: a pixel's error is relative to the"
        " largest weight of a filter in its channel, not to the one that it meets",
    )
    rebind: bool = _option(
        True,
        "compute what operators are bound to for other shapes, where their kernels need not do it;"
        " OPSCOPE_VERIFY=1 compares it with what the kernels bind them to",
    )
    graphs: bool = _option(
        True,
        "on a GPU, record the launches of a run that are the same in each one as CUDA graphs, and"
        " replay them; `opscope profile` says what runs between them",
    )
    keep_packed: bool = _option(
        True, "pack weights of nets that only predict once for all runs, until they change"
    )


_FIELDS = {one.name: one for one in fields(Options)}


def _switch_of(one: Field[Any]) -> Switch:
    """The environment variable of an option."""
    choices = _FLAG if isinstance(one.default, bool) else one.metadata["choices"]
    name = f"OPSCOPE_{one.name.upper()}"
    return Switch(name, option_text(one.default), one.metadata["doc"], choices, one.name)


def option_text(value: Any) -> str:
    """The value of an option as the environment has it."""
    if isinstance(value, tuple):
        return ",".join(value)
    return str(int(value)) if isinstance(value, bool) else str(value)


SWITCHES = {
    switch.name: switch
    for switch in (
        *map(_switch_of, _FIELDS.values()),
        Switch(
            "OPSCOPE_CC",
            "",
            "C compiler for fused chains that run long; empty: cc, gcc or clang on the PATH; none:"
            " they stay interpreted. One that is named compiles the native library as well",
        ),
        Switch(
            "OPSCOPE_CPU",
            "best",
            "kind of processor that compiled code is for, with the instructions of those before it:"
            " best: the one that is there; none: fixed functions are NumPy's. Read when the first"
            " of it is loaded",
            ("best", "none", *NAMES),
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
            "folders that all files which are read and written must lie in, except files that a"
            f" command line names; {os.pathsep!r} between them. Empty: any file",
        ),
        Switch(
            "OPSCOPE_COMMUNICATOR",
            "",
            "how `train` finds other ranks where it is not set: mpi, as `opscope launch` sets;"
            " empty: there are none",
            ("", "mpi"),
        ),
        Switch(
            "OPSCOPE_DEVICE",
            "",
            "where scopes are that are given no place: cpu, gpu (this process's own) or gpu:N, as"
            " `opscope launch --device` sets; empty: cpu",
        ),
        Switch(
            "OPSCOPE_SHARED_GPUS",
            "",
            "how many GPUs the processes of a machine take in turn, as `opscope launch"
            " --share-gpus` sets; empty: each has its own",
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
            "OPSCOPE_RESTARTED",
            "",
            "when the run began that `opscope launch --restarts` has started again, in seconds"
            " since 1970: trainings resume from checkpoints that are not older; empty: none did",
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
_OF_OPTIONS = [switch for switch in SWITCHES.values() if switch.option]
_NAMES = [switch.name for switch in _OF_OPTIONS]
_DEFAULTS = [switch.default for switch in _OF_OPTIONS]


class _Reading(threading.local):
    """The switches that a thread has read in a block of `read_once`; None outside of one."""

    values: dict[str, str] | None = None


_reading = _Reading()


def switch(name: str) -> str:
    """Value of a switch of the process by its name in the table; switches of nets are `Options`."""
    values = _reading.values
    if values is None:
        return SWITCHES[name].value()
    if name not in values:
        values[name] = SWITCHES[name].value()
    return values[name]


@contextmanager
def read_once() -> Iterator[None]:
    """A block in which this thread reads each switch of the process once, for all that it binds.

    A long recurrence binds thousands of kernels, each of which asks what processor to be for.
    """
    before = _reading.values
    if before is None:
        _reading.values = {}
    try:
        yield
    finally:
        _reading.values = before


CHOSEN: ContextVar[Options | None] = ContextVar("options", default=None)
"""The options that a block has set for this thread or task; None: the environment's."""
_latest: list[Options] = []
"""The options of the environment as they were read last; at most one."""


def current() -> Options:
    """The options of this thread or task, for what was planned: the environment is not looked at.

    Equal options are the same object.
    """
    chosen = CHOSEN.get()
    if chosen is not None:
        return chosen
    return _latest[0] if _latest else read_options()


def read_options() -> Options:
    """The options of this thread or task: of the innermost `options`, else of the environment now.

    Raises:
        OpscopeError: a variable has a value that it cannot have.
    """
    chosen = CHOSEN.get()
    if chosen is None:
        chosen = _of_texts(tuple(map(os.environ.get, _NAMES, _DEFAULTS)))
        _latest[:] = [chosen]
    return chosen


@contextmanager
def options(**changed: Any) -> Iterator[Options]:
    """A block in which nets are planned and run with other options.

    >>> import opscope
    >>> b = opscope.NetBuilder("net")
    >>> y = b.relu(b.input("x", [-1, 2]))
    >>> with opscope.options(fuse=False, libraries="mkl,blas"):
    ...     b.predict({"x": [[-1, 1]]})[y.name]
    array([[0., 1.]], dtype=float32)

    It holds for this thread or task alone, whatever others run at the same time, the same net
    included: a net is planned once for all equal options. Options that are not named stay as they
    are around the block, at first as the environment has them (`OPSCOPE_FUSE` is `fuse`; see the
    table of switches). A thread that the block starts begins with the environment's;
    `contextvars.copy_context().run` takes them there.

    Args:
        changed: options by name. Flags are True or False; `libraries` is a list of names, or a text
            with commas between them.

    Returns:
        For `as`: all options of the block.

    Raises:
        OpscopeError: there is no such option, or it cannot have such a value. Libraries that no
            operator has are refused where a net is planned.
    """
    chosen = {name: _checked(name, value) for name, value in changed.items()}
    with using(replace(read_options(), **chosen)) as all_options:
        yield all_options


def as_environment() -> dict[str, str]:
    """The options of a block as variables, for processes that work for it; empty outside of one."""
    chosen = CHOSEN.get()
    if chosen is None:
        return {}
    return {each.name: option_text(getattr(chosen, each.option)) for each in _OF_OPTIONS}


@contextmanager
def using(chosen: Options) -> Iterator[Options]:
    """A block of this thread or task with these options."""
    chosen = _same(chosen)
    token = CHOSEN.set(chosen)
    try:
        yield chosen
    finally:
        CHOSEN.reset(token)


def _checked(name: str, value: Any) -> Any:
    """The value of an option as its field holds it."""
    if name not in _FIELDS:
        known = ", ".join(_FIELDS)
        raise OpscopeError(
            f"options: there is no option {name!r}{nearest(name, _FIELDS)}; there are {known}"
        )
    default = _FIELDS[name].default
    choices = _FIELDS[name].metadata["choices"]
    if isinstance(default, bool):
        wanted = "True or False"
        fits = isinstance(value, bool)
    elif isinstance(default, tuple):
        if isinstance(value, str):
            value = _names(value)
        fits = isinstance(value, list | tuple) and all(isinstance(each, str) for each in value)
        wanted = "a list of names"
        value = tuple(value) if fits else value
    else:
        wanted = " or ".join(map(repr, choices))
        fits = value in choices
    if not fits:
        raise OpscopeError(f"options: {name} is {wanted}, not {value!r}")
    return value


def _names(text: str) -> tuple[str, ...]:
    return tuple(name for part in text.split(",") if (name := part.strip()))


@lru_cache(maxsize=64)
def _of_texts(texts: tuple[str, ...]) -> Options:
    """The options that values of the variables say.

    Raises:
        OpscopeError: a variable cannot have its value.
    """
    for switch, text in zip(_OF_OPTIONS, texts, strict=True):
        switch.check(text)
    values: dict[str, Any] = {}
    for text, (name, one) in zip(texts, _FIELDS.items(), strict=True):
        if isinstance(one.default, bool):
            values[name] = text == "1"
        else:
            values[name] = _names(text) if isinstance(one.default, tuple) else text
    return _same(Options(**values))


@lru_cache(maxsize=1024)
def _same(chosen: Options) -> Options:
    """One object for all equal options, so that runs compare them in no time."""
    return chosen
