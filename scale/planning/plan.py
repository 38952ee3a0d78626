"""The time of a training step on p ranks, from times of its operators and its messages.

A step is a row of events: operators that compute, sums that begin, sums that are waited for. Times
and sizes are lines over the number of rows that a rank has. Messages go over the link one after
another; those that begin early travel while operators compute.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ...framework.base.errors import OpscopeError
from ...framework.parallel.cost import exchange_cost
from ...framework.parallel.link import Link

LATENCY, BANDWIDTH, COMPUTE = "latency", "bandwidth", "compute"
_MOST_ROWS = 1 << 40
"""Rows a rank beyond which no batch is looked for."""


@dataclass(frozen=True)
class Line:
    """fixed + slope * rows, neither of them below 0."""

    fixed: float = 0.0
    slope: float = 0.0

    def __call__(self, rows: float) -> float:
        return self.fixed + self.slope * rows

    @classmethod
    def through(cls, one: tuple[int, float], other: tuple[int, float]) -> Line:
        """The line through two points (rows, value) with different rows, the second with more.

        Where it would fall, or start below 0, it goes through the second point alone.
        """
        (few, low), (many, high) = one, other
        slope = (high - low) / (many - few)
        if slope <= 0:
            return cls(fixed=high)
        fixed = high - slope * many
        return cls(fixed, slope) if fixed >= 0 else cls(slope=high / many)


@dataclass(frozen=True)
class Event:
    """Something that a rank does in a step.

    Attributes:
        kind: "compute", or a `Message`'s kind, or "wait". size: seconds, or bytes, over rows.
        ticket: of a sum that begins before it is waited for, and of what waits for it.
    """

    kind: str
    size: Line = Line()
    ticket: str = ""


@dataclass(frozen=True)
class StepTime:
    """A step on p ranks, in seconds.

    Attributes:
        compute: of operators. latency, bandwidth: what ranks wait for messages, in two parts.
    """

    compute: float
    latency: float
    bandwidth: float

    @property
    def whole(self) -> float:
        return self.compute + self.latency + self.bandwidth

    @property
    def efficiency(self) -> float:
        """The part of the step in which operators compute: 1 if messages cost nothing."""
        return self.compute / self.whole if self.whole > 0 else 1.0

    @property
    def bound(self) -> str:
        """The largest part of the step."""
        parts = ((COMPUTE, self.compute), (BANDWIDTH, self.bandwidth), (LATENCY, self.latency))
        return max(parts, key=lambda part: part[1])[0]


def step_time(
    events: Sequence[Event], rows: float, ranks: int, link: Link, algorithm: str
) -> StepTime:
    """The time of a step.

    Args:
        events: of one rank. rows: of the minibatch of one rank. ranks: how many there are.
        link: between any two of them. algorithm: of sums, one of `cost.ALGORITHMS`.

    Raises:
        OpscopeError: fewer ranks than one, or no such algorithm.
    """
    now = free = compute = waited = 0.0  # `free`: when the link has carried all that began
    latency = bandwidth = 0.0
    ends: dict[str, float] = {}
    for event in events:
        size = event.size(rows)
        if event.kind == COMPUTE:
            now += size
            compute += size
        elif event.kind == "wait":
            waited += max(0.0, ends[event.ticket] - now)
            now = max(now, ends[event.ticket])
        else:
            cost = exchange_cost(event.kind, ranks, algorithm)
            alpha = cost.messages * link.latency
            beta = cost.volume * size / link.bandwidth
            latency += alpha
            bandwidth += beta
            free = max(now, free) + alpha + beta
            if event.ticket:
                ends[event.ticket] = free
            else:
                waited += free - now
                now = free
    share = waited / (latency + bandwidth) if latency + bandwidth > 0 else 0.0
    return StepTime(compute, latency * share, bandwidth * share)


def rows_for(
    efficiency: float, events: Sequence[Event], ranks: int, link: Link, algorithm: str
) -> int | None:
    """The fewest rows a rank with which a step is that efficient; None if no number is enough.

    Raises:
        OpscopeError: the efficiency is not above 0 and below 1.
    """
    if not 0 < efficiency < 1:
        raise OpscopeError(f"an efficiency is a number above 0 and below 1, not {efficiency:g}")

    def enough(rows: int) -> bool:
        return step_time(events, rows, ranks, link, algorithm).efficiency >= efficiency

    if not enough(_MOST_ROWS):
        return None
    low, high = 0, _MOST_ROWS  # rows that are not enough, and that are
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def with_times(events: Sequence[Event], step: Line, rows: int) -> list[Event]:
    """The events with operators that take as long together as `step` says.

    Each has the share of the step that it has now with so many rows.

    Raises:
        OpscopeError: no operator computes.
    """
    weights = [event.size(rows) if event.kind == COMPUTE else 0.0 for event in events]
    total = sum(weights)
    if total <= 0:
        raise OpscopeError("no operator of the step computes, so there is nothing to be timed")
    return [
        replace(event, size=Line(step.fixed * weight / total, step.slope * weight / total))
        if event.kind == COMPUTE
        else event
        for event, weight in zip(events, weights, strict=True)
    ]
