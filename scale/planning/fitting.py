"""A link fitted to sums that ranks of this machine have measured."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from ...framework.base.errors import OpscopeError
from ...framework.parallel import measure
from ...framework.parallel.launcher import environment_of_ranks, find_launcher

_PATIENCE = 120
"""Seconds that the ranks have."""


def measured_fit(rank_counts: Iterable[int]) -> measure.Fit:
    """The link of this machine, by sums over each of these numbers of ranks.

    Raises:
        OpscopeError: mpiexec or mpi4py is not installed, or the ranks fail.
    """
    times = [one for ranks in rank_counts for one in _times(ranks)]
    return measure.fit_link(times)


def _times(ranks: int) -> list[measure.Measured]:
    start = find_launcher(None, os.environ, "--fit", here=True)
    command = [start, "-n", str(ranks), sys.executable, "-P", "-m", measure.__name__]
    home = str(Path(measure.__file__).resolve().parents[3])
    path = os.pathsep.join(filter(None, [home, os.environ.get("PYTHONPATH", "")]))
    environment = environment_of_ranks(os.environ, 1) | {"PYTHONPATH": path}
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=_PATIENCE
        )
    except subprocess.TimeoutExpired:
        raise OpscopeError(f"the sums of {ranks} ranks take more than {_PATIENCE} s") from None
    except OSError as error:
        raise OpscopeError(f"cannot start {command[0]}: {error.strerror}") from None
    if done.returncode:
        said = (done.stderr or done.stdout).strip().splitlines() or ["without a word"]
        raise OpscopeError(f"the sums of {ranks} ranks have failed: {said[-1]}")
    return [measure.Measured(*row) for row in json.loads(done.stdout)]
