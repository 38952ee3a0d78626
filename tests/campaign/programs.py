"""Programs of several processes, one of which is killed at a random moment: ranks, and jobs.

Nothing hangs, and the same command goes on until its end, which is as if nobody had killed any.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import chdir
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import score_runs
from cntk_ranks import config_text, write_points
from mpi_runs import PACKAGE, mpiexec
from opscope.framework.parallel.launcher import environment_of_ranks

from .kills import Kills
from .trainings import prepare_nnet3

_END = 60.0  # seconds in which all ranks must be gone after one was killed
_HANGS = 120.0
_OPSCOPE = (sys.executable, "-P", "-m", "opscope")


@dataclass(frozen=True)
class Program:
    """A command that goes on where it was stopped.

    Attributes:
        prepare: writes what it reads into the current folder. command: gives its words.
        results: the files that must be equal in the end.
        ranks: its processes end together; those of jobs may go on, and the next run waits for them.
    """

    name: str
    prepare: Callable[[], None]
    command: Callable[[], tuple[str, ...]]
    results: tuple[str, ...]
    ranks: bool = False


# The programs

_TRAIN = """
import numpy as np
import opscope
from opscope.framework.base.scope import Scope
from pathlib import Path
from small_nets import classifier, data
from training_runs import BATCHES, values

scope = Scope()
history = opscope.train(
    classifier(), BATCHES, scope=scope, epochs=60, seed=5, progress=False, checkpoint="run",
    resume=Path("run.checkpoint").exists(),
)
if history.rank == 0:
    np.savez("end.npz", **values(scope))
"""


def _parallel(section: str) -> Program:
    words = section.split()
    bits = " of 1 bit" if "gradientBits" in section else ""

    def prepare() -> None:
        write_points(Path("train.ctf"), 1200)
        text = config_text(
            Path.cwd(),
            precision="float",
            epochs=30,
            size=40,
            parallel=f"parallelizationMethod = {words[0]} ; {section}",
            hidden="Dropout (Tanh (w * features))",
            sgd="learningRatesPerSample = 0.01 ; momentumPerMB = 0.5 ; dropoutRate = 0.2",
        )
        Path("t.cntk").write_text(text)

    return Program(
        f"cntk parallelTrain, {words[0]}{bits}",
        prepare,
        lambda: (mpiexec(), "-n", "2", *_OPSCOPE, "cntk", "configFile=t.cntk", "stderr=log"),
        ("m.dnn",),
        ranks=True,
    )


def _prepare_scoring() -> None:
    score_runs.write_nnet3(Path("final.raw"))
    score_runs.write_table("ark,scp:feats.ark,feats.scp", score_runs.features(60))


RANKS = (
    Program(
        "launch -n 2 train",
        lambda: Path("train.py").write_text(_TRAIN) and None,
        lambda: (*_OPSCOPE, "launch", "-n", "2", "train.py"),
        ("end.npz",),
        ranks=True,
    ),
    _parallel("DataParallelSGD = [ gradientBits = 1 ]"),
    _parallel("ModelAveragingSGD = [ blockSizePerWorker = 20 ]"),
    _parallel("BlockMomentumSGD = [ blockSizePerWorker = 20 ; resetSGDMomentum = false ]"),
)
JOBS = (
    Program(
        "nnet3 train by jobs",
        prepare_nnet3,
        lambda: (
            *(*_OPSCOPE, "nnet3", "train", "--feats=ark:feats.ark", "--targets=ark:ali.ark"),
            *("--network=net.xconfig", "--dir=exp", "--epochs=2", "--minibatch=8,1:4"),
            *("--valid-utterances=4", "--cmd=run.pl --max-jobs-run 2", "--samples-per-iter=200"),
            *("--jobs-initial=1", "--jobs-final=2"),
        ),
        ("exp/final.raw",),
    ),
    Program(
        "score",
        _prepare_scoring,
        lambda: (
            *(*_OPSCOPE, "score", "final.raw", "scp:feats.scp", "ark,scp:out.ark,out.scp"),
            "--shards=2",
        ),
        ("out.ark", "out.scp"),
    ),
)
PROGRAMS = (*(RANKS if find_spec("mpi4py") else ()), *JOBS)

# The kills


class _Run:
    """One run of a program in a folder."""

    def __init__(self, program: Program, folder: Path) -> None:
        environment = environment_of_ranks(os.environ, 1)
        paths = [str(PACKAGE), str(Path(__file__).parent.parent), environment.get("PYTHONPATH", "")]
        environment["PYTHONPATH"] = os.pathsep.join(part for part in paths if part)
        self.program = program
        with open(folder / "told", "ab") as told:
            self.main = subprocess.Popen(
                program.command(), cwd=folder, env=environment, stdout=told, stderr=told
            )

    def end(self, seconds: float) -> bool:
        """Whether it ended by itself, and well, within some time.

        Raises:
            RuntimeError: it ended with an error.
        """
        try:
            code = self.main.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        if code:
            raise RuntimeError(f"{self.program.name} ended with {code}")
        return True

    def kill(self, rng: random.Random) -> bool:
        """Kill one of its processes; whether it came to a good end all the same.

        Raises:
            RuntimeError: a rank went on. TimeoutExpired: the program did.
        """
        processes = _family(self.main.pid)
        _kill(rng.choice(processes))
        code = self.main.wait(_END if self.program.ranks else _HANGS)
        if self.program.ranks:
            _wait_for_end(processes)
        return code == 0

    def clear(self) -> None:
        """End what is left of it."""
        for process in _family(self.main.pid):
            _kill(process)
        self.main.wait()


def kill_program(program: Program, count: int, rng: random.Random, folder: Path) -> Kills:
    """Kill one process of a program so often; each program goes on until it is over.

    `broken` counts other ends, and programs that hang.
    """
    found, number = Kills(program.name), 0
    began = time.monotonic()
    wanted = _ended(program, folder / "whole", lambda run: run.end(_HANGS))
    seconds = time.monotonic() - began

    def end_or_kill(run: _Run) -> bool:
        if run.end(rng.uniform(0.05, 1.0) * seconds):
            return True
        found.killed += 1
        return run.kill(rng)

    while found.killed < count:
        number += 1
        here = folder / str(number)
        try:
            found.broken += _ended(program, here, end_or_kill) != wanted
        except (OSError, RuntimeError, subprocess.TimeoutExpired):
            found.broken += 1
        found.leftovers += len([path for path in here.rglob(".*") if path.is_file()])
    return found


def _ended(program: Program, folder: Path, run_on: Callable[[_Run], bool]) -> list[bytes]:
    """The results of a program in a new folder, started until `run_on` says that it ended well."""
    folder.mkdir()
    with chdir(folder):
        program.prepare()
    ended = False
    while not ended:
        run = _Run(program, folder)
        try:
            ended = run_on(run)
        finally:
            run.clear()
    return [(folder / name).read_bytes() for name in program.results]


def _family(process: int) -> list[int]:
    """A process and all that come from it, as far as they run."""
    parents = {
        pid: fields for pid in _numbers() if (fields := _state(pid)) and fields[0] not in "ZX"
    }
    found = [process] if process in parents else []
    for one in found:  # grows meanwhile
        found += [pid for pid, fields in parents.items() if int(fields[1]) == one]
    return found


def _numbers() -> list[int]:
    return [int(path.name) for path in Path("/proc").iterdir() if path.name.isdecimal()]


def _state(process: int) -> list[str]:
    """The fields of a process behind its name, [state, parent, ...]; empty where there is none."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def _kill(process: int) -> None:
    try:
        os.kill(process, signal.SIGKILL)
    except ProcessLookupError:
        return  # it has just ended


def _wait_for_end(processes: list[int]) -> None:
    until = time.monotonic() + _END
    left = processes
    while left and time.monotonic() < until:
        time.sleep(0.05)
        left = [process for process in left if (_state(process) or "X")[0] not in "ZX"]
    for process in left:
        _kill(process)
    if left:
        raise RuntimeError(f"{len(left)} ranks went on after the kill")
