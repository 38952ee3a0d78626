"""Programs that run as ranks under the real mpiexec; skipped where MPI is not installed."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from importlib.util import find_spec
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[2]


def mpiexec() -> str:
    """The launcher: that of the interpreter's environment, else of the PATH."""
    if find_spec("mpi4py") is None:
        pytest.skip("mpi4py is not installed: pip install opscope[mpi]")
    beside = Path(sys.executable).parent / "mpiexec"
    found = str(beside) if beside.exists() else shutil.which("mpiexec")
    if not found:
        pytest.skip("mpi4py is there, but no mpiexec: pip install opscope[mpi]")
    return found


def run_ranks(
    ranks: int,
    program: str,
    folder: Path,
    timeout: float = 60,
    *,
    interrupt_after: float = 0,
) -> subprocess.CompletedProcess[str]:
    """Run the text of a program as `ranks` processes, with one thread each.

    `interrupt_after`: seconds after which the launcher gets a Ctrl-C; 0: never.
    """
    path = folder / "ranks.py"
    path.write_text(textwrap.dedent(program))
    names = ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS", "OPSCOPE_THREADS")
    environment = {**os.environ, **dict.fromkeys(names, "1")}
    paths = [str(PACKAGE), str(Path(__file__).parent), environment.get("PYTHONPATH", "")]
    environment["PYTHONPATH"] = os.pathsep.join(part for part in paths if part)
    command = [mpiexec(), "-n", str(ranks), sys.executable, "-P", str(path)]
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        cwd=folder,
    ) as running:
        try:
            if interrupt_after:
                while not (folder / "ready").exists():
                    time.sleep(0.05)
                time.sleep(interrupt_after)
                running.send_signal(signal.SIGINT)
            out, err = running.communicate(timeout=timeout)
        except BaseException:
            running.kill()
            raise
    return subprocess.CompletedProcess(command, running.returncode, out, err)
