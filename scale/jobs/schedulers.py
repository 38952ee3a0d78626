"""Jobs through the commands of Slurm and of Grid Engine."""

from __future__ import annotations

import getpass
import re
import shutil
import subprocess
from collections.abc import Sequence

from ...framework.base.errors import RunError
from .job import Resources, Script

_ANSWER = 120.0
"""Seconds that a scheduler may take to answer."""
_MISSING = {
    "sbatch": "Slurm's commands: the package slurm-client of Debian and Ubuntu, slurm of Fedora",
    "squeue": "Slurm's commands: the package slurm-client of Debian and Ubuntu, slurm of Fedora",
    "qsub": "Grid Engine's commands: the package gridengine-client of Debian and Ubuntu",
    "qstat": "Grid Engine's commands: the package gridengine-client of Debian and Ubuntu",
    "kubectl": "Kubernetes' command: see https://kubernetes.io/docs/tasks/tools/",
}


def ask(*words: str, text: str | None = None) -> str:
    """What a scheduler's command prints.

    Raises:
        RunError: it is not installed, fails, or does not end.
    """
    if shutil.which(words[0]) is None:
        what = _MISSING.get(words[0], "")
        raise RunError(f"there is no command {words[0]!r}" + (f"; install {what}" if what else ""))
    try:
        done = subprocess.run(
            words, input=text, capture_output=True, text=True, timeout=_ANSWER, errors="replace"
        )
    except subprocess.TimeoutExpired:
        raise RunError(f"{words[0]} gave no answer within {_ANSWER:g} s") from None
    except OSError as error:
        raise RunError(f"{words[0]}: {error.strerror}") from error
    if done.returncode:
        message = "; ".join(done.stderr.split("\n")[:5]).strip("; ") or done.stdout.strip()
        raise RunError(f"{words[0]} failed with status {done.returncode}: {message}")
    return done.stdout


class SlurmRunner:
    """`sbatch`, `squeue` and `scancel`."""

    name = "Slurm"
    patience = 15.0
    _OVER = frozenset(
        "BOOT_FAIL CANCELLED COMPLETED DEADLINE FAILED NODE_FAIL OUT_OF_MEMORY PREEMPTED REVOKED"
        " TIMEOUT".split()
    )

    def __init__(self, resources: Resources) -> None:
        self.most = resources.most
        self.threads = resources.threads or 1
        self._options = ["--ntasks=1", f"--cpus-per-task={self.threads}"]
        if resources.memory:
            self._options.append(f"--mem={resources.memory}")
        if resources.time:
            self._options.append(f"--time={resources.time}")
        if resources.gpus:
            self._options.append(f"--gres=gpu:{resources.gpus}")
        self._options += resources.rest

    def submit(self, script: Script) -> str:
        """See `JobRunner`."""
        reply = ask(
            *("sbatch", "--parsable", "--export=PATH", "--no-requeue", "--open-mode=append"),
            *(f"--job-name={script.name}", f"--output={script.output}", *self._options),
            script.path,
        )
        number = reply.strip().split("\n")[-1].partition(";")[0]
        if not number.isdigit():
            raise RunError(f"sbatch printed no job number but {reply.strip()!r}")
        return number

    def poll(self, identifiers: Sequence[str]) -> set[str]:
        """See `JobRunner`."""
        try:
            reply = ask("squeue", "--noheader", f"--jobs={','.join(identifiers)}", "--format=%i %T")
        except RunError as error:
            if "Invalid job id" in str(error):  # all of them are forgotten
                return set()
            raise
        rows = [line.split() for line in reply.splitlines() if line.strip()]
        return {row[0] for row in rows if row[-1] not in self._OVER}

    def cancel(self, identifier: str) -> None:
        """See `JobRunner`."""
        ask("scancel", identifier)


class SgeRunner:
    """`qsub`, `qstat` and `qdel`, of Grid Engine and its descendants."""

    name = "Grid Engine"
    patience = 30.0
    _NUMBER = re.compile(r"\b(\d+)\b")

    def __init__(self, resources: Resources) -> None:
        self.most = resources.most
        self.threads = resources.threads or 1
        self._options: list[str] = []
        if resources.memory:
            self._options += ["-l", f"mem_free={resources.memory},ram_free={resources.memory}"]
        if resources.time:
            self._options += ["-l", f"h_rt={resources.time}"]
        if self.threads > 1:
            self._options += ["-pe", "smp", str(self.threads)]
        if resources.gpus:
            self._options += ["-l", f"gpu={resources.gpus}"]
        self._options += resources.rest

    def submit(self, script: Script) -> str:
        """See `JobRunner`."""
        reply = ask(
            *("qsub", "-terse", "-S", "/bin/sh", "-j", "y", "-r", "n"),
            *("-N", f"j{script.name}", "-o", script.output, *self._options, script.path),
        )
        match = self._NUMBER.search(reply)
        if match is None:
            raise RunError(f"qsub printed no job number but {reply.strip()!r}")
        return match[1]

    def poll(self, identifiers: Sequence[str]) -> set[str]:
        """See `JobRunner`. A job in an error state (`Eqw`) never runs, so it is over."""
        rows = [line.split() for line in ask("qstat", "-u", getpass.getuser()).splitlines()]
        listed = {row[0] for row in rows if len(row) > 4 and "E" not in row[4]}
        return listed & set(identifiers)

    def cancel(self, identifier: str) -> None:
        """See `JobRunner`."""
        ask("qdel", identifier)
