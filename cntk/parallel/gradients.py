"""Sums of gradients over ranks, and the updates that follow from them, as a net of its own.

One rank's net computes gradients; ranks without samples skip it and bring zeros.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ...framework.base.context import OpContext
from ...framework.base.scope import Scope
from ...framework.ir.desc import INPUT, OPTIMIZE, PARAMETER, STATE, make_op, make_var
from ...framework.ir.op_list import OpList
from ...framework.runtime.plain_net import PlainNet

Extend = Callable[[OpList], OpList]


@dataclass(frozen=True)
class Learning:
    """A parameter that learns: its name, shape, and the variable of its gradient."""

    name: str
    shape: tuple[int, ...]
    gradient: str


class GradientExchange:
    """Sums gradients over ranks and updates the parameters.

    Args:
        scope: of the network.
        learning: the parameters, in the same order on all ranks.
        dtype: of the network.
        extend: appends the updates to a net.
        bits: of an element on its way.
        zero: see `cntk.quantized_all_reduce`.
        buffered: whether the sums are used one minibatch later.
        stats_every: exchanges between two lines about the time they take; 0: no lines.
        say: takes these lines.

    Attributes:
        learning, bits: as given.
    """

    def __init__(
        self,
        scope: Scope,
        learning: Sequence[Learning],
        dtype: np.dtype,
        extend: Extend,
        *,
        bits: int,
        zero: bool = True,
        buffered: bool = False,
        stats_every: int = 0,
        say: Callable[[str], None],
    ) -> None:
        self._scope = scope
        self.learning = list(learning)
        self._dtype = dtype
        self.bits = bits
        self._zero = zero
        self._quantized = bits < 8 * dtype.itemsize
        self._start = PlainNet(self._sending(), check=False) if buffered else None
        self._sums = PlainNet(
            self._receiving() if buffered else self._sum(self._declared()), check=False
        )
        self._updates = PlainNet(extend(self._declared()), check=False)
        self._every = stats_every
        self._say = say
        self._done = 0
        self.begin_epoch()

    def begin_epoch(self) -> None:
        """Forget what rounding has lost."""
        for one in self.learning if self._quantized else ():
            for state in _errors(one.gradient):
                self._scope.var(state).set(np.zeros(one.shape, self._dtype))

    def feed(self, gradients: Mapping[str, np.ndarray]) -> None:
        """Take the gradients of this rank's samples, by variable; zeros for those without."""
        for one in self.learning:
            grad = gradients.get(one.gradient)
            value = np.zeros(one.shape, self._dtype) if grad is None else grad
            self._scope.var(one.gradient).set(value.reshape(one.shape))

    def send(self, context: OpContext) -> None:
        """Begin the sums of what was fed, where they are used later."""
        if self._start is not None:
            self._start.run(self._scope, context)

    def update(self, context: OpContext) -> None:
        """Sum what was fed, or wait for the sums that were begun, and update the parameters."""
        began = time.perf_counter()
        self._sums.run(self._scope, context)
        if self._every > 0 and self._done % self._every == 0:
            what = "Actual gradient aggregation" if self._start is None else _WAIT
            self._say(f"{what} time: {time.perf_counter() - began:.6g}\n")
        self._done += 1
        self._updates.run(self._scope, context)

    # -- operators -------------------------------------------------------------------------------

    def _declared(self) -> OpList:
        net = OpList()
        for one in self.learning:
            net.vars.append(make_var(one.name, one.shape, self._dtype, PARAMETER))
            net.vars.append(make_var(one.gradient, one.shape, self._dtype, INPUT))
        return net

    def _sum(self, net: OpList) -> OpList:
        """The net with the sums of the gradients, in their own variables."""
        names = [one.gradient for one in self.learning]
        if not self._quantized:
            net.ops.append(make_op("all_reduce", {"x": names}, {"out": names}, role=OPTIMIZE))
            return net
        own, sums = zip(*(_errors(name) for name in names), strict=True)
        for one in self.learning:
            for state in _errors(one.gradient):
                net.vars.append(make_var(state, one.shape, self._dtype, STATE))
        net.ops.append(
            make_op(
                "cntk.quantized_all_reduce",
                {"x": names, "error": own, "sum_error": sums},
                {"out": names, "error_out": own, "sum_error_out": sums},
                {"bits": self.bits, "zero": self._zero},
                role=OPTIMIZE,
            )
        )
        return net

    def _sending(self) -> OpList:
        """Gradients copied, and their sums begun."""
        net = self._declared()
        if self._quantized:
            net = self._sum(net)  # the second rounding wants all parts: it waits here
        sent = [_sent(one.gradient) for one in self.learning]
        for one, name in zip(self.learning, sent, strict=True):
            net.vars.append(make_var(name, one.shape, self._dtype, STATE))
            net.ops.append(make_op("assign", {"x": one.gradient}, {"out": name}, role=OPTIMIZE))
        if not self._quantized:
            net.vars.append(make_var(_TICKET, (), np.int64, STATE))
            net.ops.append(
                make_op(
                    "all_reduce_start",
                    {"x": sent},
                    {"lent": sent, "ticket": _TICKET},
                    role=OPTIMIZE,
                )
            )
        return net

    def _receiving(self) -> OpList:
        """The sums that were begun, in the variables of the gradients."""
        net = OpList()
        names = [one.gradient for one in self.learning]
        sent = list(map(_sent, names))
        for one, name in zip(self.learning, sent, strict=True):
            net.vars.append(make_var(one.name, one.shape, self._dtype, PARAMETER))
            net.vars.append(make_var(name, one.shape, self._dtype, INPUT))
            net.vars.append(make_var(one.gradient, one.shape, self._dtype, STATE))
        if self._quantized:
            for name, source in zip(names, sent, strict=True):
                net.ops.append(make_op("assign", {"x": source}, {"out": name}, role=OPTIMIZE))
            return net
        net.vars.append(make_var(_TICKET, (), np.int64, INPUT))
        net.ops.append(
            make_op(
                "all_reduce_wait", {"x": sent, "ticket": _TICKET}, {"out": names}, role=OPTIMIZE
            )
        )
        return net


_WAIT = "Async gradient aggregation wait"
_TICKET = "ranks@TICKET"


def _sent(gradient: str) -> str:
    return f"{gradient}@SENT"


def _errors(gradient: str) -> tuple[str, str]:
    return f"{gradient}@ERROR", f"{gradient}@SUM_ERROR"
