"""Jobs run to their end: submitted, watched, run again where they failed or were lost.

What is known of a job lies in the folder, in files that are written in one piece, so that a run
that was cut off continues: jobs that are under way are waited for, and no finished job runs again.

    NAME.json       the attempt, and how the scheduler calls it
    NAME.N.sh       the script of attempt N
    NAME.N.status   its exit status; there is none while it runs
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from ...framework.base.errors import FormatError, OpscopeError, RunError, SaveError
from ...framework.base.files.atomic import write_atomically
from ...framework.base.options.settings import as_environment
from ...framework.base.untrusted.opener import open_text
from ...framework.base.untrusted.records import json_file, record
from ...framework.base.untrusted.values import in_range, shown, whole_number
from .job import Job, JobRunner, Script, script_text

Log = Callable[[str], None]
_FIRST_WAIT, _LONGEST_WAIT, _LONGEST_LOCAL_WAIT = 0.02, 3.0, 0.2
"""Seconds between two looks; to look at processes of this machine costs nearly nothing."""
_SHOWN_LINES = 8
"""Last lines of a log that the error about a job shows."""
_STATUS = 100
"""Characters of a file that holds an exit status, at most."""
_CARRIED = ("PATH", "PYTHONPATH", "LD_LIBRARY_PATH")
_CARRIED_PREFIXES = ("OPSCOPE_", "OMP_", "OPENBLAS_", "MKL_", "PYTHON")


def carried_environment() -> dict[str, str]:
    """The variables that jobs get: where programs and packages are, threads, and our switches, as
    they are and as a block of `opscope.options` has them."""
    return {
        name: value
        for name, value in sorted((os.environ | as_environment()).items())
        if name in _CARRIED or name.startswith(_CARRIED_PREFIXES)
    }


_MOST_ATTEMPTS = 100_000
_IDENTIFIER = re.compile(r"(?:[A-Za-z0-9][\w.@:\[\]/+-]{0,254})?", re.ASCII)


@dataclass(frozen=True)
class _Record:
    """What is known of a job, as its file says it.

    Attributes:
        attempt: the number of the last one. id: how the scheduler calls it; empty: it has not said.
        on: the name of the scheduler.
    """

    attempt: int = 0
    id: str = ""
    on: str = ""

    def __post_init__(self) -> None:
        in_range(self.attempt, "'attempt'", 0, _MOST_ATTEMPTS)
        if not _IDENTIFIER.fullmatch(self.id):  # it goes to the scheduler's commands
            raise FormatError(f"'id': {shown(self.id)} is no name of a job")


@dataclass
class _UnderWay:
    """One attempt of a job.

    Attributes:
        since: when it was submitted. gone: when the scheduler was first seen to have lost it.
    """

    job: Job
    attempt: int
    identifier: str
    since: float
    gone: float | None = None


class JobPool:
    """Runs jobs in a folder.

    Args:
        folder: for the files above; made where it is missing.
        runner: where jobs run. tries: how often a job is run before the pool gives up.
        minutes: how long an attempt may take, counted from its submission; 0 = for ever.
        environment: what jobs get; by default `carried_environment()`.
    """

    def __init__(
        self,
        folder: str,
        runner: JobRunner,
        log: Log,
        tries: int = 3,
        minutes: float = 0.0,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._folder = os.path.abspath(folder)
        self.runner = runner
        self._log = log
        self._tries = tries
        self._minutes = minutes
        self._environment = carried_environment() if environment is None else environment
        self._run = hashlib.sha256(self._folder.encode()).hexdigest()[:10]
        self._tried: dict[str, int] = {}  # attempts of this run, by job
        try:
            os.makedirs(self._folder, exist_ok=True)
        except OSError as error:
            raise SaveError(f"cannot make the folder {folder}: {error.strerror}") from error

    def run(self, jobs: Sequence[Job]) -> None:
        """Run jobs to their end; those that are done already are not run again.

        Raises:
            RunError: a job failed as often as it may, or took too long; all others are ended.
            SaveError: a file cannot be written.
        """
        waiting = [job for job in jobs if not self.is_done(job)]
        under_way: list[_UnderWay] = []
        try:
            for job in list(waiting):
                if (adopted := self._adopted(job)) is not None:
                    under_way.append(adopted)
                    waiting.remove(job)
            pause = _FIRST_WAIT
            longest = _LONGEST_WAIT if self.runner.patience else _LONGEST_LOCAL_WAIT
            while waiting or under_way:
                most = self.runner.most or len(jobs)
                while waiting and len(under_way) < most:
                    under_way.append(self._submit(waiting.pop(0)))
                    pause = _FIRST_WAIT
                ended = list(self._ended(under_way))
                for entry in ended:
                    under_way.remove(entry)
                    if self._has_to_run_again(entry):
                        waiting.insert(0, entry.job)
                if not ended:
                    time.sleep(pause)
                    pause = min(pause * 1.2, longest)
        except BaseException:
            for entry in under_way:
                with contextlib.suppress(OpscopeError):
                    self.runner.cancel(entry.identifier)
            raise

    def is_done(self, job: Job) -> bool:
        """Whether an attempt of the job has ended well."""
        attempt = self._record(job).attempt
        return any(self._status(job, number) == 0 for number in range(1, attempt + 1))

    def forget(self, prefix: str) -> None:
        """Remove the files of jobs whose names begin so, once they are not needed any more."""
        for name in os.listdir(self._folder):
            if name.startswith(prefix):
                with contextlib.suppress(OSError):
                    os.unlink(os.path.join(self._folder, name))

    # One job

    def _path(self, name: str) -> str:
        return os.path.join(self._folder, name)

    def _record(self, job: Job) -> _Record:
        path = self._path(f"{job.name}.json")
        try:
            return record(json_file(path, missing={}), _Record, path)
        except FormatError as error:
            problem = str(error).removeprefix(f"{path}: ")
            raise SaveError(f"{path}: damaged: {problem}") from None

    def _write_record(self, job: Job, attempt: int, identifier: str) -> None:
        text = json.dumps({"attempt": attempt, "id": identifier, "on": self.runner.name})
        write_atomically(self._path(f"{job.name}.json"), text.encode())

    def _status(self, job: Job, attempt: int) -> int | None:
        """The exit status of an attempt; None while there is none."""
        try:
            with open_text(self._path(f"{job.name}.{attempt}.status")) as file:
                return whole_number(file.read(_STATUS).strip(), "the status")
        except (OSError, ValueError, FormatError):
            return None

    def _submit(self, job: Job) -> _UnderWay:
        attempt = self._record(job).attempt + 1
        name = f"{job.name}.{attempt}"
        text = script_text(job, self._path(f"{name}.status"), os.getcwd(), self._environment)
        path = self._path(f"{name}.sh")
        write_atomically(path, text.encode())
        self._write_record(job, attempt, "")
        identifier = self.runner.submit(Script(name, path, self._path(f"{name}.out"), self._run))
        self._write_record(job, attempt, identifier)
        return _UnderWay(job, attempt, identifier, time.monotonic())

    def _adopted(self, job: Job) -> _UnderWay | None:
        """The attempt of a run before this one, if it is still under way."""
        known = self._record(job)
        identifier, attempt = known.id, known.attempt
        if not identifier or known.on != self.runner.name:
            return None
        if self._status(job, attempt) is not None or not self.runner.poll([identifier]):
            return None
        self._log(f"{job.name}: waiting for job {identifier} of the run before")
        return _UnderWay(job, attempt, identifier, time.monotonic())

    def _ended(self, under_way: Sequence[_UnderWay]) -> Iterator[_UnderWay]:
        """Those that wrote their status, were lost, or took too long."""
        open_ones = []
        for entry in under_way:
            if self._status(entry.job, entry.attempt) is not None:
                yield entry
            else:
                open_ones.append(entry)
        if not open_ones:
            return
        now = time.monotonic()
        try:
            alive = self.runner.poll([entry.identifier for entry in open_ones])
        except RunError as error:  # a scheduler that is down comes back, or the time limit ends it
            self._log(f"{self.runner.name} does not answer: {error}")
            alive = {entry.identifier for entry in open_ones}
            time.sleep(_LONGEST_WAIT)
        for entry in open_ones:
            if self._minutes and now - entry.since > 60 * self._minutes:
                raise RunError(
                    f"{entry.job.name}: job {entry.identifier} on {self.runner.name} did not come"
                    f" back within {self._minutes:g} minutes{self._end_of_log(entry.job)}"
                )
            if entry.identifier in alive:
                entry.gone = None
            elif entry.gone is None:
                entry.gone = now
            elif now - entry.gone >= self.runner.patience:
                yield entry

    def _has_to_run_again(self, entry: _UnderWay) -> bool:
        """What to do about an attempt that is over.

        Raises:
            RunError: it failed, and there is no attempt left.
        """
        job = entry.job
        status = self._status(entry.job, entry.attempt)
        if status == 0:
            return False
        what = "was lost" if status is None else f"failed with status {status}"
        if status is None:
            with contextlib.suppress(OpscopeError):  # it must not write beside its successor
                self.runner.cancel(entry.identifier)
        tried = self._tried[job.name] = self._tried.get(job.name, 0) + 1
        if tried < self._tries:
            self._log(f"{job.name}: job {entry.identifier} {what}; it is run again")
            return True
        what_failed = (
            f"{job.name}: job {entry.identifier} on {self.runner.name} {what}, attempt"
            f" {self._tries} of {self._tries}{self._end_of_log(job)}"
        )
        if job.optional:
            self._log(f"{what_failed}; the run continues without it")
            return False
        raise RunError(what_failed)

    def _end_of_log(self, job: Job) -> str:
        """The last lines of a job's log, for a message."""
        try:
            with open_text(job.log, "replace") as file:
                lines = [line.rstrip() for line in file if not line.startswith("#")]
        except (OSError, FormatError):
            return f"; it has no log {job.log}"
        return f"; {job.log} ends with:\n" + "\n".join(lines[-_SHOWN_LINES:])
