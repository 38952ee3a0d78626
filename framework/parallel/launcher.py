"""Programs that start ranks, mpiexec and its like: where they are, what ranks get, how they end."""

from __future__ import annotations

import contextlib
import os
import re
import select
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import util
from pathlib import Path

from ..base.errors import OpscopeError
from .launched import rank_of

THREADS = ("OPSCOPE_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
"""Variables that say how many threads a process may have."""
_LAUNCHERS = ("mpiexec", "mpirun")
_SLURM = ("SLURM_JOB_ID", "SLURM_JOBID")
_INSTALL = (
    "pip install opscope[mpi] brings mpi4py and MPICH with its mpiexec (in Debian: apt install"
    " mpich)"
)
_PIECE = 1 << 16
_LOOK = 0.5
"""Seconds between two questions whether to give up."""
_LINE = b"=" * 40
_BEGIN = b"\n" + b"=" * 83 + b"\n=   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES\n"
_BANNER = re.compile(
    re.escape(_BEGIN)
    + rb"(?:=   PID (?P<process>\d+) RUNNING AT (?P<host>.*)\n|=   .*\n)+=+\n"
    + rb"(?:YOUR APPLICATION TERMINATED WITH THE EXIT STRING: (?P<why>.*)\n"
    + rb"This typically refers .*\nPlease see the FAQ .*\n)?"
)


def find_launcher(
    given: str | None, environment: Mapping[str, str], who: str, *, here: bool = False
) -> str:
    """The program that starts ranks.

    Within a job of Slurm it is srun; else the mpiexec beside this Python, which fits the MPI that
    pip has installed there; else one on the PATH.

    Args:
        given: its name, if the user has said one. who: asks, for messages.
        here: all ranks on this machine, so no srun.

    Raises:
        OpscopeError: there is none, or mpi4py is missing; the message says what to install.
    """
    if util.find_spec("mpi4py") is None:
        raise OpscopeError(f"{who}: ranks want mpi4py, which is not installed: {_INSTALL}")
    path = environment.get("PATH", os.defpath)
    if given is not None:
        program = shutil.which(given, path=path)
        if program is None:
            raise OpscopeError(f"{who}: there is no program {given!r}: {_INSTALL}")
        return program
    beside = str(Path(sys.executable).parent)
    in_slurm = not here and any(name in environment for name in _SLURM)
    slurm = shutil.which("srun", path=path) if in_slurm else None
    places = [(name, where) for where in (beside, path) for name in _LAUNCHERS]
    for program in (slurm, *(shutil.which(name, path=where) for name, where in places)):
        if program:
            return program
    raise OpscopeError(f"{who}: there is no mpiexec, mpirun or srun to start ranks: {_INSTALL}")


def environment_of_ranks(environment: Mapping[str, str], threads: int) -> dict[str, str]:
    """The environment of ranks that have so many threads each."""
    return {**environment, **dict.fromkeys(THREADS, str(threads))}


def run_ranks(
    command: Sequence[str],
    ranks: int,
    environment: Mapping[str, str],
    *,
    give_up: Callable[[], bool] | None = None,
    interrupted: Callable[[], None] | None = None,
) -> int:
    """Run a launcher to its end; its exit code. A Ctrl-C reaches it as it does this program.

    `give_up` is asked from time to time whether to end the ranks, with code 1; `interrupted` hears
    of a Ctrl-C. What the launcher
    and the ranks write is passed to standard output at once. Only MPICH's banner about a rank that
    a signal has ended is held back: one line on standard error names the rank instead.

    Raises:
        OpscopeError: it cannot be started.
    """
    try:
        process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE)
    except OSError as error:
        raise OpscopeError(f"cannot start {command[0]}: {error.strerror}") from error
    with process:
        assert process.stdout is not None
        roll_call = environment.get("OPSCOPE_ROLL_CALL", "")
        output = _Output(process.stdout.fileno(), roll_call, ranks, give_up)
        while True:
            try:
                if not output.pass_on():
                    process.terminate()
                    process.wait()
                    return 1
                process.stdout.close()  # ranks that write on learn so, as without us
                code = process.wait()
                return code if code >= 0 else 128 - code
            except KeyboardInterrupt:
                # The ranks write their checkpoint and end.
                if interrupted is not None:
                    interrupted()


class _Output:
    """What a launcher writes.

    Args:
        number: of the file to read. roll_call: a folder, or "". ranks: how many it starts.
        give_up: see `run_ranks`.
    """

    def __init__(
        self, number: int, roll_call: str, ranks: int, give_up: Callable[[], bool] | None
    ) -> None:
        self._give_up = give_up
        self._given_up = False
        self._number = number
        self._roll_call = roll_call
        self._count = ranks
        self._held = b"\n"  # as if a line had ended, which no banner misses
        self._begun = False  # whether anything was written

    def pass_on(self) -> bool:
        """Write on until the end, or until nothing reads; False: the ranks are to be ended."""
        with contextlib.suppress(BrokenPipeError):
            while data := self._read():
                self._held += data
                keep = _suspected(self._held)
                self._write(self._held[: len(self._held) - keep])
                self._held = self._held[len(self._held) - keep :]
            rest = self._held
            self._held = b""
            banner = _BANNER.search(rest)
            if banner is None:
                self._write(rest)
            else:
                self._write(rest[: banner.start()] + rest[banner.end() :])
                print(f"opscope: {self._message(banner)}", file=sys.stderr, flush=True)
        return not self._given_up

    def _read(self) -> bytes:
        """What comes next, nothing at the end; meanwhile `give_up` is asked."""
        # On Windows no pipe can be waited for.
        while self._give_up is not None and sys.platform != "win32":
            if select.select([self._number], [], [], _LOOK)[0]:
                break
            if self._give_up():
                self._given_up = True
                return b""
        return os.read(self._number, _PIECE)

    def _write(self, data: bytes) -> None:
        if not self._begun and data:
            self._begun = True
            data = data[1:]
        if data:
            sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()

    def _message(self, banner: re.Match[bytes]) -> str:
        """The message in place of a banner."""
        process = int(banner["process"] or 0)
        why = (banner["why"] or b"it has ended").decode(errors="replace")
        host = (banner["host"] or b"").decode(errors="replace")
        rank = rank_of(self._roll_call, process)
        who = f"rank {rank} of {self._count}" if rank else "a rank"
        return f"{who} has ended the run: {why}, process {process} on {host}"


def _suspected(text: bytes) -> int:
    """How many bytes at the end may be of a banner, which is the last thing that is written."""
    at = text.find(_BEGIN)
    if at >= 0:
        return len(text) - at
    for count in range(min(len(_BEGIN) - 1, len(text)), len(_LINE), -1):
        if text.endswith(_BEGIN[:count]):
            return count
    return 0
