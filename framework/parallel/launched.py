"""How many processes a launcher of MPI has started, found without MPI; which of them have ended."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress

from ..base.errors import OpscopeError
from ..base.files.atomic import write_atomically
from ..base.machine.local_rank import first_number
from ..base.options.settings import switch
from ..base.untrusted.opener import read_file

_COUNTS = (
    *("PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "MV2_COMM_WORLD_SIZE", "PMIX_SIZE"),
    "MPI_LOCALNRANKS",  # of this machine alone; where nothing else is said
)
"""Variables in which launchers of MPI write how many processes they have started."""
_MEMORY = "memory.json"
_NUMBERS = ("PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID")
"""Variables in which they tell each process its rank."""


def launched_ranks() -> int:
    """How many processes a launcher of MPI has started, this one among them; 1 without one."""
    count = first_number(_COUNTS)
    return 1 if count is None else count


def restarted_since() -> float:
    """When the run began that `opscope launch --restarts` has started again, in seconds since 1970;
    0 where it has not.

    Raises:
        OpscopeError: the switch holds no such number.
    """
    return seconds_of("OPSCOPE_RESTARTED", "seconds since 1970, as `opscope launch` sets them")


def seconds_of(name: str, what: str) -> float:
    """A switch that holds seconds; 0 where it is empty.

    Raises:
        OpscopeError: it holds something else; `what` says what is wanted.
    """
    text = switch(name)
    try:
        seconds = float(text or 0)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < float("inf"):
        raise OpscopeError(f"{name}={text}: want {what}")
    return seconds


class RollCall:
    """This process's entries in the roll call of `opscope launch`, a folder.

    A process that leaves by `os._exit`, or by a C library's `exit`, runs nothing of ours, and
    launchers take its code of 0 for success. So each rank notes that it has begun, that it has met
    the others, and that it has ended in order; one without the last note has left early. Launchers
    name a rank that a signal has ended by its process alone, so that is noted, too.
    """

    def __init__(self) -> None:
        self._folder = switch("OPSCOPE_ROLL_CALL")
        self._name = next(
            (os.environ[name] for name in _NUMBERS if os.environ.get(name, "").isdecimal()), "?"
        )
        self.note(_process(os.getpid()))
        self.note("began")

    def note(self, what: str) -> None:
        """Note that this rank has "began", "met" or "ended"."""
        # A folder is there at once and whole; on another machine there may be no place for it.
        with suppress(OSError):
            if self._folder:
                os.mkdir(os.path.join(self._folder, f"{what}-{self._name}"))


def left_early(folder: str) -> list[str]:
    """The ranks that have begun, by the notes in a roll call's folder, but not ended in order."""
    begun, ended = (_noted(folder, what) for what in ("began", "ended"))
    return sorted(begun - ended, key=lambda rank: (len(rank), rank))


def rank_of(folder: str, process: int) -> str:
    """The rank that a process has noted itself as; "" where none has, or there is no folder, or
    processes of several machines have this number."""
    ranks = _noted(folder, _process(process)) if folder else set()
    return ranks.pop() if len(ranks) == 1 else ""


def waits_in_vain(folder: str, seconds: float) -> bool:
    """Whether a rank began so long ago and has not met the others yet.

    MPI makes a rank wait within its start, where nothing of ours runs.
    """
    waiting = _noted(folder, "began") - _noted(folder, "met")
    with suppress(OSError):
        began = [os.stat(os.path.join(folder, f"began-{rank}")).st_mtime for rank in waiting]
        return bool(began) and time.time() - min(began) > seconds
    return False


def note_memory(ranks: Sequence[Mapping[str, int]]) -> None:
    """Note for `opscope launch` what a training took on each rank, in bytes by what holds them."""
    folder = switch("OPSCOPE_ROLL_CALL")
    # On another machine than the launcher's there may be no place for it.
    with suppress(OSError):
        if folder:
            write_atomically(os.path.join(folder, _MEMORY), json.dumps(list(ranks)).encode())


def noted_memory(folder: str) -> list[dict[str, int]]:
    """What `note_memory` has noted last, by rank; empty where no training has ended."""
    path = os.path.join(folder, _MEMORY)
    return json.loads(read_file(path)) if os.path.exists(path) else []


def _process(number: int) -> str:
    return f"process {number}"


def _noted(folder: str, what: str) -> set[str]:
    return {
        rank
        for note, _, rank in (name.partition("-") for name in os.listdir(folder))
        if note == what
    }
