"""Whether the commands of a config run on several ranks, and how they reach each other.

Source: CNTK's `CNTK/CNTK.cpp` and `Common/MPIWrapper.cpp`.
"""

from __future__ import annotations

import os

from ...framework.base.communicator import Communicator, SingleCommunicator
from ..config.parameters import ConfigParameters

_COUNTS = ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "MV2_COMM_WORLD_SIZE", "PMIX_SIZE")
"""Variables in which launchers of MPI tell how many processes they have started."""


def launched_ranks() -> int:
    """How many processes a launcher of MPI has started, this one among them; 1 without one."""
    for name in _COUNTS:
        text = os.environ.get(name, "")
        if text.isdecimal() and text.isascii():
            return int(text[:9])
    return 1


def communicator_of(config: ConfigParameters) -> Communicator | None:
    """The ranks of a run, by `parallelTrain` of the top level: by default several where a launcher
    of MPI has started several. None: this process alone, without ranks.

    Raises:
        FormatError: several processes were started, which would write the same files.
        OpscopeError: mpi4py is not installed.
    """
    count = launched_ranks()
    if not config.has("parallelTrain") or config.is_section("parallelTrain"):
        parallel = count > 1
    else:
        parallel = config.bool("parallelTrain", False)
        if not parallel and count > 1:
            raise config["parallelTrain"].error(
                f"it is false, but {count} processes were started, which would write the same files"
            )
    if not parallel:
        return None
    if count == 1:
        return SingleCommunicator()
    from ...framework.parallel.mpi import MpiCommunicator

    return MpiCommunicator()


def log_of_rank(path: str, communicator: Communicator | None, stamped: bool) -> str:
    """The path of this rank's log; `stamped`: as CNTK names it in its server farm."""
    if communicator is None or not path:
        return path
    if stamped:
        return f"{path}rank{communicator.rank}"
    return f"{path}.rank{communicator.rank}" if communicator.rank else path
