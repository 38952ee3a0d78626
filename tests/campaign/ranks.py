"""Ranks killed at random moments: nothing hangs, and the training goes on bit for bit."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from cntk_ranks import config_text, write_points
from mpi_runs import PACKAGE, mpiexec
from opscope.framework.base.processes import is_alive

from .kills import Kills

METHODS = {
    "1 bit": "DataParallelSGD = [ gradientBits = 1 ]",
    "averages": "ModelAveragingSGD = [ blockSizePerWorker = 20 ]",
    "block momentum": "BlockMomentumSGD = [ blockSizePerWorker = 20 ; resetSGDMomentum = false ]",
}
_RANKS, _EPOCHS = 2, 30
_END = 10.0  # seconds in which all ranks must be gone after one was killed
_PROGRAM = """
import os, sys
from opscope.python_api.cli.main import main
name = f"pid.{os.getpid()}"
open(name, "w").close()
main(["cntk", "configFile=t.cntk", "stderr=log"])
"""


def kill_ranks(name: str, count: int, rng: random.Random, folder: Path) -> Kills:
    """Kill a rank of a training so often; each goes on until it is over, and must end as one that
    nobody killed. `broken` counts other ends, and runs that went on after the kill."""
    found, number = Kills(f"cntk train, {_RANKS} ranks, {name}"), 0
    whole = _prepared(folder / "whole", METHODS[name])
    began = time.monotonic()
    _run(whole, None, rng)
    seconds = time.monotonic() - began
    wanted = (whole / "m.dnn").read_bytes()
    while found.killed < count:
        number += 1
        here = _prepared(folder / str(number), METHODS[name])
        try:
            while _run(here, lambda: rng.uniform(0.1, 1.0) * seconds, rng):
                found.killed += 1
            found.broken += (here / "m.dnn").read_bytes() != wanted
        except (OSError, RuntimeError, subprocess.TimeoutExpired):
            found.broken += 1
        found.leftovers += len([path for path in here.rglob(".*") if path.is_file()])
    return found


def _prepared(folder: Path, section: str) -> Path:
    folder.mkdir()
    write_points(folder / "train.ctf", 1200)
    text = config_text(
        folder,
        precision="float",
        epochs=_EPOCHS,
        size=40,
        parallel=f"parallelizationMethod = {section.split()[0]} ; {section}",
        hidden="Dropout (Tanh (w * features))",
        sgd="learningRatesPerSample = 0.01 ; momentumPerMB = 0.5 ; dropoutRate = 0.2",
    )
    (folder / "t.cntk").write_text(text)
    return folder


def _run(folder: Path, wait: Callable[[], float] | None, rng: random.Random) -> bool:
    """Train, and kill one of the ranks after some time; false where it ended before.

    Raises:
        RuntimeError: it ended by itself with an error, or a rank went on after the kill.
    """
    for path in folder.glob("pid.*"):
        path.unlink()
    names = ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS", "OPSCOPE_THREADS")
    environment = {**os.environ, **dict.fromkeys(names, "1")}
    paths = [str(PACKAGE), environment.get("PYTHONPATH", "")]
    environment["PYTHONPATH"] = os.pathsep.join(part for part in paths if part)
    launcher = subprocess.Popen(
        [mpiexec(), "-n", str(_RANKS), sys.executable, "-P", "-c", _PROGRAM],
        cwd=folder,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        launcher.wait(None if wait is None else wait())
    except subprocess.TimeoutExpired:
        processes = [int(path.suffix[1:]) for path in folder.glob("pid.*")]
        if len(processes) < _RANKS:
            processes = []  # they are just being started: the launcher is killed
        victim = rng.choice([*processes, launcher.pid])
        os.kill(victim, signal.SIGKILL)
        launcher.wait(_END)
        _wait_for_end(processes)
        return True
    if launcher.returncode:
        raise RuntimeError(f"the training ended with {launcher.returncode}")
    return False


def _wait_for_end(processes: list[int]) -> None:
    until = time.monotonic() + _END
    left = processes
    while left and time.monotonic() < until:
        time.sleep(0.05)
        left = [process for process in left if is_alive(process)]
    for process in left:
        os.kill(process, signal.SIGKILL)
    if left:
        raise RuntimeError(f"{len(left)} ranks went on after the kill")
