"""The command `launch`: the same program as several ranks."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import click

_THREADS = ("OPSCOPE_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
_LAUNCHERS = ("mpiexec", "mpirun")
_SLURM = ("SLURM_JOB_ID", "SLURM_JOBID")
_INSTALL = (
    "pip install opscope[mpi] brings mpi4py and MPICH with its mpiexec (in Debian: apt install"
    " mpich)"
)


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option(
    "-n", "--ranks", type=click.IntRange(1), required=True, help="How many processes to start."
)
@click.option(
    "--threads",
    type=click.IntRange(1),
    help="Threads of each rank; by default the cores of this machine, shared out.",
)
@click.option(
    "--launcher",
    metavar="PROGRAM",
    help="mpiexec, srun or another one, perhaps with a path; by default the one that fits.",
)
@click.argument("script")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def launch(
    ranks: int,
    threads: int | None,
    launcher: str | None,
    script: str,
    arguments: tuple[str, ...],
) -> None:
    """Run SCRIPT with its ARGUMENTS as several ranks.

    SCRIPT is a Python file, or a command of opscope: `opscope launch -n 2 train net.pb ...`.
    Trainings by `opscope.train` are shared by the ranks. The exit code is that of the launcher, and
    not 0 where a rank has failed.
    """
    from ...framework.base.cpu.cores import usable_cores
    from ...framework.base.errors import OpscopeError

    program = program_of(script, arguments)
    start = find_launcher(launcher, os.environ)
    slurm = Path(start).name == "srun"
    cores = usable_cores()
    # Of the ranks that srun starts, how many share a machine is Slurm's affair, as are their cores.
    most = cores if slurm and _allotted(os.environ) else max(cores // ranks, 1)
    if threads is not None and threads > most:
        raise OpscopeError(
            f"launch: {ranks} ranks of {threads} threads are more than the {cores} cores of this"
            f" machine: --threads {most} at most"
        )
    if ranks > cores and not slurm:
        click.echo(f"warning: {ranks} ranks share {cores} cores", err=True)
    command = [start, "-n", str(ranks)]
    if slurm and _allotted(os.environ):
        command.append(f"--cpus-per-task={_allotted(os.environ)}")
        most = _allotted(os.environ)
    environment = environment_of_ranks(os.environ, threads or most)
    sys.stdout.flush()
    sys.exit(_run([*command, *program], environment))


def program_of(script: str, arguments: Sequence[str]) -> list[str]:
    """The command line of one rank.

    Raises:
        OpscopeError: `script` is neither a file nor a command of opscope.
    """
    from ...framework.base.errors import OpscopeError, nearest
    from .main import commands

    if script in commands() and script != "launch":
        return [sys.executable, "-m", __name__.rpartition(".python_api.")[0], script, *arguments]
    if os.path.isfile(script):
        return [sys.executable, script, *arguments]
    raise OpscopeError(
        f"launch: {script!r} is neither a Python file nor a command of opscope"
        f"{nearest(script, commands())}"
    )


def find_launcher(given: str | None, environment: Mapping[str, str]) -> str:
    """The program that starts ranks.

    Within a job of Slurm it is srun; else the mpiexec beside this Python, which fits the MPI that
    pip has installed there; else one on the PATH.

    Raises:
        OpscopeError: there is none, or mpi4py is missing; the message says what to install.
    """
    from importlib.util import find_spec

    from ...framework.base.errors import OpscopeError

    if find_spec("mpi4py") is None:
        raise OpscopeError(f"launch: ranks want mpi4py, which is not installed: {_INSTALL}")
    path = environment.get("PATH", os.defpath)
    if given is not None:
        found = shutil.which(given, path=path)
        if found is None:
            raise OpscopeError(f"launch: there is no program {given!r}: {_INSTALL}")
        return found
    beside = str(Path(sys.executable).parent)
    slurm = shutil.which("srun", path=path) if any(n in environment for n in _SLURM) else None
    places = [(name, where) for where in (beside, path) for name in _LAUNCHERS]
    for found in (slurm, *(shutil.which(name, path=where) for name, where in places)):
        if found:
            return found
    raise OpscopeError(f"launch: there is no mpiexec, mpirun or srun to start ranks: {_INSTALL}")


def environment_of_ranks(environment: Mapping[str, str], threads: int) -> dict[str, str]:
    """The environment of a rank: its threads, and that `train` is to find the others."""
    made = {**environment, **dict.fromkeys(_THREADS, str(threads))}
    made.setdefault("OPSCOPE_COMMUNICATOR", "mpi")
    return made


def _allotted(environment: Mapping[str, str]) -> int:
    """Cores of a task, as Slurm has allotted them; 0 where it has not said."""
    text = environment.get("SLURM_CPUS_PER_TASK", "")
    return int(text) if text.isdecimal() else 0


def _run(command: Sequence[str], environment: Mapping[str, str]) -> int:
    """Run a launcher to its end; its exit code. A Ctrl-C reaches it as it does this program."""
    from ...framework.base.errors import OpscopeError

    try:
        process = subprocess.Popen(command, env=environment)
    except OSError as error:
        raise OpscopeError(f"launch: cannot start {command[0]}: {error.strerror}") from error
    with process:
        while True:
            try:
                code = process.wait()
                return code if code >= 0 else 128 - code
            except KeyboardInterrupt:
                continue  # the ranks write their checkpoint and end
