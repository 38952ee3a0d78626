"""Programs that run as ranks under the real mpiexec; skipped where MPI is not installed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from opscope.framework.base.errors import OpscopeError
from opscope.framework.parallel.launcher import environment_of_ranks, find_launcher

PACKAGE = Path(__file__).resolve().parents[2]


def mpiexec() -> str:
    """The launcher, as `opscope launch` finds it."""
    try:
        return find_launcher(None, os.environ, "tests", here=True)
    except OpscopeError as error:
        pytest.skip(str(error))


def run_ranks(
    ranks: int,
    program: str,
    folder: Path,
    *,
    interrupt_after: float = 0,
    here: Path | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run the text of a program as `ranks` processes, with one thread each.

    A program that has not ended after four minutes fails the test: ends take seconds, but on a
    busy machine starts take long.

    Args:
        interrupt_after: seconds after which the launcher gets a Ctrl-C; 0: never.
        here: a folder of further modules.
    """
    path = folder / "ranks.py"
    path.write_text(textwrap.dedent(program))
    environment = environment_of_ranks(os.environ, 1)
    paths = [str(PACKAGE), str(Path(__file__).parent), environment.get("PYTHONPATH", "")]
    paths.append("" if here is None else str(here))
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
            out, err = running.communicate(timeout=240)
        except BaseException:
            running.kill()
            raise
    return subprocess.CompletedProcess(command, running.returncode, out, err)
