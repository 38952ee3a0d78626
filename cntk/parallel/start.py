"""Whether the commands of a config run on several ranks, and how they reach each other.

Source: CNTK's `CNTK/CNTK.cpp` and `Common/MPIWrapper.cpp`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ...framework.base.communicator import Communicator, SingleCommunicator
from ...framework.base.errors import OpscopeError
from ...framework.parallel.launched import launched_ranks


@contextmanager
def launched(communicator: Communicator | None = None) -> Iterator[Communicator | None]:
    """The processes that a launcher of MPI has started, for as long as a command line runs; None
    where there is this one alone. What fails inside ends all of them, with one message.

    Args:
        communicator: is taken where it is given.

    Raises:
        OpscopeError: mpi4py is not installed.
    """
    if communicator is None and launched_ranks() > 1:
        from ...framework.parallel.mpi import MpiCommunicator

        with MpiCommunicator() as communicator:
            yield communicator
    else:
        yield communicator


def ranks_of(
    parallel: bool | None,
    communicator: Communicator | None,
    error: Callable[[str], OpscopeError],
) -> Communicator | None:
    """The ranks of a run, by `parallelTrain` of the top level: by default several where a launcher
    of MPI has started several. None: this process alone, without ranks.

    Args:
        parallel: what the config says, if it says anything.
        communicator: the processes that there are.
        error: makes an error about an error of a message.

    Raises:
        FormatError: several processes were started, which would write the same files.
    """
    count = 1 if communicator is None else communicator.size
    if parallel or (parallel is None and count > 1):
        return communicator or SingleCommunicator()
    if count > 1:
        raise error(
            f"parallelTrain is false, but {count} processes were started, which would write the"
            " same files"
        )
    return None


def log_of_rank(path: str, communicator: Communicator | None, stamped: bool) -> str:
    """The path of this rank's log; `stamped`: as CNTK names it in its server farm."""
    if communicator is None or not path:
        return path
    if stamped:
        return f"{path}rank{communicator.rank}"
    return f"{path}.rank{communicator.rank}" if communicator.rank else path
