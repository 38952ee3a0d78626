"""Trainings within a budget of memory: ranks choose together what is computed again."""

from __future__ import annotations

from collections.abc import Sequence

from ...framework.base.backend import Place
from ...framework.base.context import OpContext
from ...framework.base.errors import RanksError, RunError
from ...framework.base.scope import Scope
from ...framework.ir.op_list import OpList
from ...framework.passes.memory.less_memory import LessMemory
from ...framework.passes.ranks.all_reduce import first_update
from ...framework.runtime.budget import (
    MOST_ROUNDS,
    WithinMemory,
    held_apart,
    memory_budget,
    peak_bytes,
)
from ...framework.runtime.plain_net import PlainNet
from ..ranks.agreement import Ranks

_HELP = "smaller minibatches with accumulate= help, zero= on several ranks, and dtypes of 16 bits"


class KeptSmall:
    """The net of a training, rewritten so that its steps stay within a budget.

    Args:
        net: as the user gave it. given: the budget, see `byte_size`. place: where it trains.

    Attributes:
        net, plain: see `WithinMemory`.

    Raises:
        OpscopeError: no budget is given so.
    """

    def __init__(self, net: OpList, ranks: Ranks, given: int | str, place: Place) -> None:
        self._ranks = ranks
        span = None
        if ranks.accumulate > 1:
            span = lambda net: (0, first_update(net.op_list))  # noqa: E731
        self._within = WithinMemory(
            ranks.synchronized or net,
            lambda net: ranks.finish(net, packed=True),
            memory_budget(given, place, "train: memory"),
            span=span,
            smaller=_HELP,
        )

    @property
    def net(self) -> PlainNet:
        return self._within.net

    @property
    def plain(self) -> PlainNet:
        return self._within.plain

    def for_batch(self, scope: Scope, context: OpContext, where: str) -> PlainNet:
        """The net for the minibatch in the scope; all ranks ask for it in step.

        Raises:
            RunError: nothing keeps its step within the budget.
            RanksError: on another rank.
        """
        for _ in range(MOST_ROUNDS):
            if all(self._ranks.of_all(self._within.fits(scope, context))):
                return self._within.net
            # Again where kernels take more beside than they did for the choice before.
            self._choose(scope, context, where)
        peaks = self._ranks.of_all(self._within.peak(scope, context))
        budget = self._within.budget
        why = [self._within.beyond(peak) if peak > budget else "" for peak in peaks]
        self._raise(why, where)
        return self._within.net

    def _choose(self, scope: Scope, context: OpContext, where: str) -> None:
        """Let all ranks run the net that one of them needs."""
        within = self._within
        done, why = LessMemory(), ""
        try:
            done = within.choose(scope, context)
        except RunError as error:
            why = str(error)
        peak = 0 if why else within.plain_peak(scope, context)
        said = self._ranks.of_all(
            [why, peak, [*done.repeated.items()], [*done.moved.items()], [*done.units]]
        )
        self._raise([one[0] for one in said], where)
        # What the rank with the largest part of the minibatch needs serves the others as well.
        _, _, repeated, moved, units = max(said, key=lambda one: one[1])
        within.use(LessMemory(dict(repeated), dict(moved), units))

    def check(self, scope: Scope, context: OpContext, where: str) -> None:
        """Refuse an evaluation beyond the budget.

        Raises:
            RunError: its run would take more.
        """
        net = self._within.plain
        plan = net.plan(scope, context, 0, net.last_forward_op + 1)
        peak = peak_bytes(plan) + sum(held_apart(net, plan, scope).values())
        if peak > self._within.budget:
            raise RunError(f"{where}: {self._within.beyond(peak)}")

    def _raise(self, errors: Sequence[str], where: str) -> None:
        own = errors[self._ranks.rank]
        if own:
            raise RunError(f"{where}: {own}")
        other = next((rank for rank, why in enumerate(errors) if why), None)
        if other is not None:
            raise RanksError(f"{where}: rank {other}: {errors[other]}", on_all=True)
