"""The top level of a config: its log, and warnings of obsolete and unused parameters.

Source: CNTK's `CNTK/CNTK.cpp`.
"""

from __future__ import annotations

import logging
import re
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from ...framework.base.cpu.cores import usable_cores
from ...framework.base.cpu.threads import threads_set
from ...framework.base.options.option_fields import option
from ..config.commands import Command
from ..config.parameters import ConfigParameters
from ..sgd.job import JobProgress
from ..sgd.report import Say

_TRAINING = ("train", "trainRNN")
_LINE = re.compile(r"[^\n]*\n?")


def log_path(config: ConfigParameters) -> str:
    """The file that `stderr` names, or "". With `timestamping` the names of the commands belong to
    its name, as CNTK's server farm wants it."""
    path = config.string("stderr", "")
    if path and config.bool("timestamping", False):
        path += "".join(f"_{name}" for name in config.array("command", "train").strings()) + ".log"
    return path


def stamped(say: Say) -> Say:
    """Lines with date and time in front of them."""
    begins = True

    def write(text: str) -> None:
        nonlocal begins
        for line in _LINE.findall(text):
            if begins and line.strip():
                line = time.strftime("%m/%d/%Y %H:%M:%S: ") + line
            begins = line.endswith("\n") if line else begins
            if line:
                say(line)

    return write


@contextmanager
def warnings_to(say: Say) -> Iterator[None]:
    """A context in which the warnings of readers are lines of the log."""
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: say(f"WARNING: {record.getMessage()}\n")
    logger = logging.getLogger("opscope.cntk")
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)


def refuse_obsolete(config: ConfigParameters, listed: Sequence[Command]) -> None:
    """Refuse parameters whose meaning has changed in CNTK.

    Raises:
        FormatError: `type` in place of `precision`; `truncated` in a reader section alone.
    """
    if config.has("type"):
        raise config["type"].error(
            "CNTK: Use of 'type' parameter is deprecated, it is called 'precision' now."
        )
    if config.has("truncated"):
        return
    for command in listed:
        section = command.parameters
        if not set(_TRAINING) & set(command.actions) or "SGD" not in section:
            continue
        if "reader" not in section:
            continue
        reader = section.section("reader")
        if reader.has("truncated") and not section.section("SGD").has("truncated"):
            raise reader["truncated"].error(
                "DisableLegacyUsage: setting Truncated only in reader section are not allowed. "
                "Please move Truncated=true/false to the top level section."
            )


@dataclass(frozen=True, kw_only=True)
class TopOptions:
    """The settings of a config's top level.

    Attributes:
        log: the file for the log; "" for standard error.
        folder: in which to run; "" for the present one.
        stamps: whether lines of the log have date and time.
        trace_level: whether the config is logged.
        threads: of the CPU, see `cpu_threads`.
        done: the file to write at the end; "" for none.
        progress: whether the progress is reported.
        parallel: whether several processes train together; None: where there are several.
    """

    log: str
    folder: str = option("", name="currentDirectory")
    stamps: bool = option(False, name="timestamping")
    trace_level: int = option(0, name="traceLevel")
    threads: int = option(0, name="numCPUThreads")
    done: str = option("", name="doneFile")
    progress: bool = option(False, name="progressTracing")
    parallel: bool | None

    @classmethod
    def of(cls, config: ConfigParameters) -> TopOptions:
        """The settings of a config.

        Raises:
            FormatError: a value is wrong.
        """
        parallel = None
        if config.has("parallelTrain") and not config.is_section("parallelTrain"):
            parallel = config.bool("parallelTrain")
        return cls(**config.options(cls), log=log_path(config), parallel=parallel)


@contextmanager
def cpu_threads(wanted: int, say: Say) -> Iterator[None]:
    """As many threads as `numCPUThreads` says, for a run: 0 is the default of opscope, a negative
    number leaves so many cores free.

    Source: CNTK, Source/Math/CPUMatrix.cpp, SetNumThreads.
    """
    if wanted == 0:
        yield
        return
    cores = usable_cores()
    number = min(wanted, cores) if wanted > 0 else max(1, cores + wanted)
    say(f"Using {number} CPU threads.\n")
    with threads_set(number):
        yield


def job_progress(listed: Sequence[Command], say: Say) -> JobProgress:
    """Tells the progress of all trainings of a run, as `progressTracing` asks for it."""
    total = 0
    for command in listed:
        for action in command.actions:
            if action in _TRAINING:
                epochs = epochs_of(command)
                say(f"CNTKModelPath: {command.parameters.string('modelPath')}\n")
                say(f"CNTKCommandTrainInfo: {command.name} : {epochs}\n")
                total += epochs
    say(f"CNTKCommandTrainInfo: CNTKNoMoreCommands_Total : {total}\n")
    return JobProgress(total)


def epochs_of(command: Command) -> int:
    """Epochs of a training."""
    section = command.parameters
    return section.section("optimizer" if "optimizer" in section else "SGD").int("maxEpochs")


def done_text() -> str:
    """The text of the file `doneFile` after a run."""
    return (
        f"Successfully finished at {time.strftime('%Y/%m/%d %H:%M:%S')} on {socket.gethostname()}\n"
    )
