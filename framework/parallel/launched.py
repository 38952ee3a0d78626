"""How many processes a launcher of MPI has started, found without MPI."""

from __future__ import annotations

import os

_COUNTS = (
    *("PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "MV2_COMM_WORLD_SIZE", "PMIX_SIZE"),
    "MPI_LOCALNRANKS",  # of this machine alone; where nothing else is said
)
"""Variables in which launchers of MPI tell how many processes they have started."""


def launched_ranks() -> int:
    """How many processes a launcher of MPI has started, this one among them; 1 without one."""
    for name in _COUNTS:
        text = os.environ.get(name, "")
        if text.isdecimal() and text.isascii():
            return int(text[:9])
    return 1
