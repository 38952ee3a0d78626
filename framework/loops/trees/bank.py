"""Nets bound for batches of nodes: a scope keeps a bank of them for the trees that follow.

The node net is bound for a number of rows, each time in a step scope of its own: the nodes of the
next forest are cut into batches of the same sizes (forest.batches). What a batch computes stays in
its step scope until the gradient operators have run there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...base.context import OpContext
from ...base.scope import Scope
from ...base.sizes.shape import ArraySpec, Levels
from ...ir.desc import BACKWARD
from ...ir.names import carry_name
from ...runtime.executor import Frame
from ...runtime.plain_net import PlainNet
from ...runtime.plans.plan import analyze
from .forest import ForestSchedule


class BoundBatch:
    """A net bound for a number of rows, in a step scope of its own.

    Args:
        given: shapes of what is copied in before each run. statics: arrays and offsets of what
            stays where it is. Names that the net does not have are left out.

    Attributes:
        arrays: of everything the forward run reads or leaves behind.
    """

    def __init__(
        self,
        net: PlainNet,
        rows: int,
        given: Mapping[str, ArraySpec],
        statics: Mapping[str, tuple[Any, Levels]],
        parent: Scope,
        context: OpContext,
    ) -> None:
        self.rows = rows
        self.scope = Scope(parent=parent)
        self.scope.declare(net.vars)
        self._xp = parent.place.xp if context.device is None else context.device.xp
        for name, (shape, dtype) in given.items():
            if name in net.vars:
                self.scope.var(name).bind(self._xp.empty((rows, *shape[1:]), dtype))
        for name, (array, offsets) in statics.items():
            if name in net.vars:
                self.scope.var(name).bind(array, offsets)
        self.frame = net.frame(self.scope, context)
        self.arrays = self.frame.arrays
        self._gradients: dict[PlainNet, Frame] = {}

    def gradient(self, net: PlainNet, begin: int, context: OpContext) -> Frame:
        """The bound gradient operators of `net`, from `begin` on."""
        views = self._gradients.get(net)
        if views is not None:
            return views
        self.scope.declare(net.vars)
        for name, array in list(self.arrays.items()):
            seed = self.scope.find(carry_name(name))
            if seed is not None:
                seed.bind(self._xp.empty_like(array))
        views = self._gradients[net] = net.frame(self.scope, context, begin)
        return views


BatchRange = tuple[int, int, BoundBatch]
"""Places (or edges) begin:end of a forest, and the batch that computed them."""


@dataclass(frozen=True)
class ForwardRun:
    """A forward run, for its gradient: the schedule, and the batches that ran at each height."""

    schedule: ForestSchedule
    nodes: list[list[BatchRange]]
    pairs: list[list[BatchRange]]


@dataclass(frozen=True, eq=False)
class StaticInput:
    """A static input that batches are bound to.

    Attributes:
        array: itself where it is the same from plan to plan; None where batches hold a copy.
    """

    array: Any
    shape: tuple[int, ...]
    dtype: np.dtype
    offsets: Levels

    def fits(self, other: StaticInput) -> bool:
        """Whether what is bound to one of them serves the other."""
        return (
            self.array is other.array
            and (self.shape, self.dtype) == (other.shape, other.dtype)
            and len(self.offsets) == len(other.offsets)
            and all(map(np.array_equal, self.offsets, other.offsets))
        )


@dataclass
class Bank:
    """The batches of one `recursive` operator in one scope.

    Attributes:
        signature, statics: what the batches are bound to; where they differ, a new bank is made.
        copies: of static inputs whose arrays are not the same from plan to plan.
        batches: by (whether of the child net, rows). taken: how many of them this run has taken.
        serial: number of the last forward run. last: what it left for its gradient.
        filled: by the address of an array that forward runs fill with their number: the last one.
    """

    signature: tuple[Any, ...]
    statics: list[StaticInput]
    copies: dict[str, Any] = field(default_factory=dict)
    batches: dict[tuple[bool, int], list[BoundBatch]] = field(default_factory=dict)
    taken: dict[tuple[bool, int], int] = field(default_factory=dict)
    serial: int = 0
    filled: dict[int, int] = field(default_factory=dict)
    last: ForwardRun | None = None

    def serves(self, signature: tuple[Any, ...], statics: list[StaticInput]) -> bool:
        """Whether its batches fit a frame with this signature and these static inputs."""
        return (
            self.signature == signature
            and len(self.statics) == len(statics)
            and all(one.fits(other) for one, other in zip(self.statics, statics, strict=True))
        )

    def take(self, key: tuple[bool, int], make: Callable[[], BoundBatch]) -> BoundBatch:
        """A batch that this run has not taken yet."""
        batches = self.batches.setdefault(key, [])
        number = self.taken.get(key, 0)
        if number == len(batches):
            batches.append(make())
        self.taken[key] = number + 1
        return batches[number]


def gradient_begin(net: PlainNet) -> int:
    """Index of the first gradient operator."""
    return next(op.index for op in net.operators if op.role == BACKWARD)


def gradient_reads(net: PlainNet) -> list[str]:
    """Variables of a step scope that the gradient operators of a net read."""
    begin = gradient_begin(net)
    return analyze(net.operators[begin:], (), net.vars, frozenset()).externals
