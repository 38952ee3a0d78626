"""Which of the processes of its machine this one is, by what its launcher says; its GPU."""

from __future__ import annotations

import os
from collections.abc import Iterable

from ..options.settings import switch

_NUMBERS = (
    *("OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "MV2_COMM_WORLD_LOCAL_RANK"),
    "SLURM_LOCALID",
    "LOCAL_RANK",  # of torchrun
)
"""Variables in which launchers tell each process its number on its machine."""
_OWN_GPUS = ("SLURM_GPUS_PER_TASK",)
"""Variables that are set where a process sees no GPUs but its own, counted from 0."""


def local_rank() -> int | None:
    """The number of this process among the processes that were launched on its machine; None
    without a launcher."""
    return first_number(_NUMBERS)


def first_number(names: Iterable[str]) -> int | None:
    """The number in the first of some environment variables that has one; None where none has."""
    for name in names:
        text = os.environ.get(name, "")
        if text.isdecimal() and text.isascii():
            return int(text[:9])
    return None


def own_gpu() -> int:
    """The number of the GPU of this process: its local rank's, or the first one.

    Where ranks share GPUs (`opscope launch --share-gpus`) they take them in turn.
    """
    if any(os.environ.get(name) for name in _OWN_GPUS):
        return 0
    shared = switch("OPSCOPE_SHARED_GPUS")
    rank = local_rank() or 0
    return rank % int(shared) if shared.isdecimal() and int(shared) else rank
