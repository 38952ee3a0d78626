"""The command `launch`: the same program as several ranks."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import click

_WRONG_ARGUMENTS = 2
"""The exit code of commands, and of scripts with argparse, that refuse their arguments: started
again, they would do so again."""


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
@click.option(
    "--timeout",
    type=click.FloatRange(0, min_open=True),
    metavar="SECONDS",
    help="End the run when a rank has waited so long for the others; by default it waits for ever.",
)
@click.option(
    "--device",
    default="",
    metavar="DEVICE",
    help="cpu, or gpu: each rank has a GPU of its own, and gradients go from one to the other.",
)
@click.option(
    "--restarts",
    type=click.IntRange(0),
    default=0,
    metavar="N",
    help="Start all ranks again, up to N times, when one has failed: trainings resume from their"
    " checkpoints. Wrong arguments (exit code 2) end the run.",
)
@click.option("--share-gpus", is_flag=True, help="Let ranks take the GPUs in turn.")
@click.argument("script")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def launch(
    ranks: int,
    threads: int | None,
    launcher: str | None,
    timeout: float | None,
    device: str,
    restarts: int,
    share_gpus: bool,
    script: str,
    arguments: tuple[str, ...],
) -> None:
    """Run SCRIPT with its ARGUMENTS as several ranks.

    SCRIPT is a Python file, or a command of opscope: `opscope launch -n 2 train net.pb ...`.
    Trainings by `opscope.train` are shared by the ranks. The exit code comes from the launcher. It
    is not 0 if a rank has failed, or has left without ending its part (`os._exit`). After a
    training one line says how much memory a rank took.
    """
    from ...framework.base.cpu.cores import usable_cores
    from ...framework.base.errors import OpscopeError
    from ...framework.parallel.launcher import environment_of_ranks, find_launcher

    program = program_of(script, arguments)
    start = find_launcher(launcher, os.environ, "launch")
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
    environment.setdefault("OPSCOPE_COMMUNICATOR", "mpi")
    if timeout is not None:
        environment["OPSCOPE_RANKS_WAIT"] = repr(timeout)
    if device or share_gpus:
        environment |= _places(device, share_gpus, None if slurm else ranks)
    began = time.time()
    for restart in range(restarts + 1):
        if restart:
            environment["OPSCOPE_RESTARTED"] = repr(began)
            click.echo(f"opscope: restart {restart} of {restarts}", err=True)
        end = _run_once([*command, *program], ranks, environment, timeout)
        if end.code in (0, _WRONG_ARGUMENTS) or end.interrupted:
            break
        if end.why and restart < restarts:
            click.echo(f"opscope: {end.why}", err=True)
    if end.why:
        raise OpscopeError(end.why)
    sys.exit(end.code)


@dataclass
class _End:
    """How a run ended.

    Attributes:
        why: what this program has found; "" where the ranks have written it themselves.
        interrupted: whether by Ctrl-C.
    """

    code: int = 0
    why: str = ""
    interrupted: bool = False

    def interrupt(self) -> None:
        self.interrupted = True


def _run_once(
    command: Sequence[str], ranks: int, environment: dict[str, str], timeout: float | None
) -> _End:
    """Run all ranks to their end."""
    from ...framework.parallel.launched import left_early, noted_memory, waits_in_vain
    from ...framework.parallel.launcher import run_ranks

    end = _End()
    sys.stdout.flush()
    with TemporaryDirectory(prefix="opscope-launch-") as folder:
        environment["OPSCOPE_ROLL_CALL"] = folder
        give_up = None if timeout is None else partial(waits_in_vain, folder, timeout)
        end.code = run_ranks(
            command, ranks, environment, give_up=give_up, interrupted=end.interrupt
        )
        early = left_early(folder)
        if timeout is not None and waits_in_vain(folder, timeout):
            end.why = (
                f"launch: of {ranks} ranks, {_ranks(early)} waited {timeout:g} s for the others to"
                " begin (--timeout)"
            )
        elif early and end.code == 0:
            end.why = (
                f"launch: {_ranks(early)} of {ranks} left without ending the run, by os._exit or a"
                " library's exit; the launcher reported no failure"
            )
        end.code = end.code or int(bool(end.why))
        memory = noted_memory(folder)
    if memory and not end.code:
        click.echo(f"opscope: {_memory_line(memory)}", err=True)
    return end


def _memory_line(memory: Sequence[Mapping[str, int]]) -> str:
    """What a training took on the rank that took most."""
    from ...framework.base.sizes.byte_sizes import size_text

    totals = [sum(one.values()) for one in memory]
    most = max(range(len(totals)), key=totals.__getitem__)
    parts = ", ".join(f"{what} {size_text(size)}" for what, size in memory[most].items())
    return f"memory of a rank: {size_text(totals[most])} at most (rank {most}: {parts})"


def _places(device: str, share: bool, ranks: int | None) -> dict[str, str]:
    """The variables by which ranks find their places.

    Args:
        ranks: of this machine; None where it is not known how many these are.

    Raises:
        OpscopeError: no such place; the ranks would share GPUs without being asked to, or are asked
            to and have none.
    """
    from ...framework.base.backend import Place, parse_place
    from ...framework.base.errors import OpscopeError

    if parse_place(device or "cpu").kind == "cpu":
        if share:
            raise OpscopeError("launch: --share-gpus goes with --device gpu")
        return {"OPSCOPE_DEVICE": device}
    count = Place("gpu").xp.cuda.runtime.getDeviceCount()
    named = device != "gpu"  # one for all
    if ranks is not None and not share and ranks > (1 if named else count):
        raise OpscopeError(
            f"launch: {ranks} ranks want a GPU each, and "
            + (f"--device {device} is one" if named else f"this machine has {count}")
            + "; --share-gpus lets several have the same"
        )
    return {"OPSCOPE_DEVICE": device} | ({"OPSCOPE_SHARED_GPUS": str(count)} if share else {})


def _ranks(names: Sequence[str]) -> str:
    return f"rank{'s' * (len(names) > 1)} {', '.join(names)}"


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


def _allotted(environment: Mapping[str, str]) -> int:
    """Cores of a task, as Slurm has allotted them; 0 where it has not said."""
    text = environment.get("SLURM_CPUS_PER_TASK", "")
    return int(text) if text.isdecimal() else 0
