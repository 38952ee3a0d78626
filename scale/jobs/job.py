"""Jobs, and what every job runner can do."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from ...framework.base.options.option_fields import option


@dataclass(frozen=True)
class Job:
    """A command line that is run to its end, once.

    Attributes:
        name: letters, digits, `.`, `_` and `-`; no other job of the folder has it.
        command: the program and its arguments; no shell reads them.
        log: the file that gets what the command prints.
        optional: the run continues where this job fails.
    """

    name: str
    command: tuple[str, ...]
    log: str
    optional: bool = False


@dataclass(frozen=True)
class Script:
    """What a scheduler is given: an executable shell script, and where its own messages go.

    Attributes:
        name: of the job, with the number of the attempt.
        path: of the script, absolute. output: the file for the scheduler's own messages.
        run: the same text for all jobs of one folder, of letters and digits.
    """

    name: str
    path: str
    output: str
    run: str


class JobRunner(Protocol):
    """Submits scripts to a scheduler.

    A job that has written its status file is over, whatever the scheduler says: so a runner need
    only know which jobs may still write one.

    Attributes:
        name: of the scheduler, for messages.
        most: how many jobs may be under way at a time; 0 = any number.
        threads: that a job may use; 0 = its share of this machine's cores.
        patience: seconds that a status file may take to appear after the scheduler has forgotten
            the job: network file systems are late.
    """

    name: str
    most: int
    threads: int
    patience: float

    def submit(self, script: Script) -> str:
        """Start a script; returns the identifier by which `poll` and `cancel` know it, in another
        process, too.

        Raises:
            RunError: the scheduler refuses, or its commands are not installed.
        """
        ...

    def poll(self, identifiers: Sequence[str]) -> set[str]:
        """The jobs among these that wait or run.

        Raises:
            RunError: the scheduler does not answer.
        """
        ...

    def cancel(self, identifier: str) -> None:
        """End a job, if it is there."""
        ...


@dataclass(frozen=True)
class Resources:
    """The options of Kaldi's job scripts that all schedulers have words for.

    Attributes:
        rest: all other words, for the scheduler's own command.
    """

    memory: str = option("", "Of each job, such as 4G.", "mem")
    time: str = option("", "That each job may take, such as 4:00:00.")
    threads: int = option(0, "Of each job; 0 = not said.", "num-threads")
    gpus: int = option(0, "Of each job.", "gpu")
    most: int = option(0, "Jobs at a time; 0 = any number.", "max-jobs-run")
    rest: tuple[str, ...] = ()


def script_text(job: Job, status: str, folder: str, environment: Mapping[str, str]) -> str:
    """The shell script of a job.

    It writes the exit status to the file `status` as its last act, in one piece.

    Args:
        folder: where the command runs. environment: variables that it gets.
    """
    exports = [f"export {name}={shlex.quote(value)}" for name, value in environment.items()]
    log = shlex.quote(job.log)
    waiting = shlex.quote(f"{status}.part")
    lines = [
        "#!/bin/sh",
        "# A job of `opscope nnet3 train`.",
        f"cd {shlex.quote(folder)} || exit 1",
        *exports,
        f"{{ echo '#' Running on \"$(hostname)\"; echo '#' Started at \"$(date)\"; }} > {log}",
        f"{shlex.join(job.command)} >> {log} 2>&1 < /dev/null",
        "status=$?",
        f"echo '#' Finished at \"$(date)\" with status $status >> {log}",
        f"echo $status > {waiting} && mv -f {waiting} {shlex.quote(status)}",
        "exit $status",
    ]
    return "\n".join(lines) + "\n"
