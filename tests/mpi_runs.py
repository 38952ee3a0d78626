"""Programs that run as ranks under the real mpiexec; skipped where MPI is not installed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import textwrap
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
    ranks: int, program: str, folder: Path, timeout: float = 60
) -> subprocess.CompletedProcess[str]:
    """Run the text of a program as `ranks` processes, with one thread each."""
    path = folder / "ranks.py"
    path.write_text(textwrap.dedent(program))
    names = ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS", "OPSCOPE_THREADS")
    environment = {**os.environ, **dict.fromkeys(names, "1")}
    paths = [str(PACKAGE), str(Path(__file__).parent), environment.get("PYTHONPATH", "")]
    environment["PYTHONPATH"] = os.pathsep.join(part for part in paths if part)
    return subprocess.run(
        [mpiexec(), "-n", str(ranks), sys.executable, "-P", str(path)],
        capture_output=True,
        text=True,
        timeout=timeout,
        env=environment,
        cwd=folder,
    )
