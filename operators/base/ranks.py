"""The communicator of a run, for kernels that exchange values with other ranks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...framework.base.communicator import Communicator, SingleCommunicator
from ...framework.ir.kernel_args import Call, KernelArgs
from ...framework.ir.schema import AttrSpec

_ALONE = SingleCommunicator()
SHARED = AttrSpec(
    "ranks",
    "int",
    "how many ranks hold a part each of what has the norm; 1: this one holds all of it",
    1,
    minimum=1,
)
"""The attribute of operators that take norms, which may be over parts."""


def ranks_of(k: KernelArgs) -> Callable[[], Communicator]:
    """A function that gives the communicator of the run under way, by the operator that asks."""
    # Asked in each run: a kernel is bound once, and runs in contexts with other communicators.
    state = k.state
    title = k.op.title()

    def get() -> Communicator:
        context = state.context
        ranks = None if context is None else context.communicator
        if ranks is None:
            return _ALONE
        ranks.operator = title
        return ranks

    return get


def over_ranks(k: KernelArgs, square: Any) -> list[Call]:
    """Calls that add up what the ranks have found of a sum, where each has a part (`SHARED`)."""
    if k.attrs[SHARED.name] == 1:
        return []
    ranks = ranks_of(k)
    return [lambda: ranks().all_reduce(square)]
