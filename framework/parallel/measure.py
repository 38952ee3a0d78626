"""Times of all_reduce as ranks measure them, and the link that explains them best.

As a program it prints the times of the ranks that run it:

    mpiexec -n 2 python -m opscope.framework.parallel.measure
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from ..base.communicator import Communicator
from ..base.errors import OpscopeError
from .cost import exchange_cost
from .link import Link
from .mpi import MpiCommunicator

SIZES = tuple(1 << power for power in range(12, 25, 2))
"""Bytes of the sums that are measured: 4 KiB to 16 MiB."""
_REPEATS = 20


@dataclass(frozen=True)
class Measured:
    """The time of a sum of `nbytes` bytes over `ranks` ranks."""

    ranks: int
    nbytes: int
    seconds: float


@dataclass(frozen=True)
class Fit:
    """A link, and how far its times are from the measured ones.

    Attributes:
        errors: number of ranks -> root of the mean squared relative error, and the largest one.
    """

    link: Link
    errors: dict[int, tuple[float, float]]


def measure_all_reduce(
    communicator: Communicator, sizes: Iterable[int] = SIZES, repeats: int = _REPEATS
) -> list[Measured]:
    """Times of sums of float32: of each size the shortest, of the rank for which it took longest.

    The shortest, because other programs that run meanwhile are no matter of the link.
    """
    measured: list[Measured] = []
    for nbytes in sizes:
        array = np.zeros(nbytes // 4, np.float32)
        communicator.all_reduce(array)
        spent: list[float] = []
        for _ in range(repeats):
            # Ranks that come late would count as a slow link.
            communicator.barrier()
            start = time.perf_counter()
            communicator.all_reduce(array)
            spent.append(time.perf_counter() - start)
        ranks = [json.loads(part) for part in communicator.exchange(json.dumps(spent).encode())]
        # Of one sum the slowest rank: the sum is there when all have it.
        shortest = min(max(times) for times in zip(*ranks, strict=True))
        measured.append(Measured(communicator.size, nbytes, shortest))
    return measured


def fit_link(measured: Sequence[Measured]) -> Fit:
    """The latency and bandwidth whose costs have the least squares of relative errors.

    Args:
        measured: over two ranks or more, of at least two sizes.

    Raises:
        OpscopeError: too few times, or times that do not grow with the size.
    """
    if len({one.nbytes for one in measured}) < 2 or any(one.ranks < 2 for one in measured):
        raise OpscopeError("a link is fitted to sums over two ranks or more, of at least two sizes")
    # Sums of `MpiCommunicator` send as many bytes as a ring.
    costs = [exchange_cost("all_reduce", one.ranks, "ring") for one in measured]
    times = np.array([one.seconds for one in measured])
    terms = np.array(
        [[c.messages, c.volume * one.nbytes] for c, one in zip(costs, measured, strict=True)]
    )
    # Divided by the times: errors are relative, or the largest sums alone would decide.
    scaled = terms / times[:, None]
    latency, slope = np.linalg.lstsq(scaled, np.ones(len(times)), rcond=None)[0]
    if latency < 0:  # the best one that is allowed
        latency = 0.0
        slope = scaled[:, 1].sum() / (scaled[:, 1] ** 2).sum()
    if slope <= 0:
        raise OpscopeError("the measured times do not grow with the size of the sums: no bandwidth")
    gaps = np.abs(terms @ [latency, slope] / times - 1)
    errors: dict[int, tuple[float, float]] = {}
    for ranks in sorted({one.ranks for one in measured}):
        of = gaps[[one.ranks == ranks for one in measured]]
        errors[ranks] = float(np.sqrt((of**2).mean())), float(of.max())
    return Fit(Link(float(latency), float(1 / slope)), errors)


def _main() -> None:
    with MpiCommunicator() as communicator:
        measured = measure_all_reduce(communicator)
        if communicator.rank == 0:
            print(json.dumps([[one.ranks, one.nbytes, one.seconds] for one in measured]))


if __name__ == "__main__":
    _main()
