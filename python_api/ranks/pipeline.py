"""A rank's stage of a pipeline: in which order it runs the minibatches of an update.

GPipe runs all of them forward, and then their gradients. 1F1B begins with the gradients of the
first minibatch as soon as the last stage has its loss, and then runs one forward and one backward
in turn, so that stage s of S holds the activations of S - s minibatches at most. Stages wait
equally long in both: of m minibatches, (S - 1) / (m + S - 1) of the time.

Sources: Huang et al. 2019, GPipe; Narayanan et al. 2019, PipeDream; PyTorch's
torch.distributed.pipelining.
"""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ...framework.base.communicator import Communicator
from ...framework.base.context import OpContext
from ...framework.base.errors import RanksError, VariableError
from ...framework.base.scope import Scope
from ...framework.base.sizes.shape import ArraySpec, Levels
from ...framework.ir.desc import BACKWARD, FORWARD, INPUT, PARAMETER, STATE
from ...framework.ir.infer import declared_spec, infer_specs
from ...framework.ir.names import RANK_WEIGHT, RECEIVE_OP, like_name
from ...framework.ir.op_list import OpList
from ...framework.parallel.groups import Group
from ...framework.passes.ranks.all_reduce import first_update
from ...framework.passes.ranks.stages import Stages
from ...framework.runtime.feeding import Feeder
from ...framework.runtime.footprint import run_bytes
from ...framework.runtime.plain_net import PlainNet
from .shards import Joining, pack, unpack

ONE_F_ONE_B, GPIPE, OFF = "1f1b", "gpipe", "off"
SCHEDULES = (ONE_F_ONE_B, GPIPE, OFF)
_MOST_SHAPES = 64
"""Shapes of minibatches for which a rank remembers the shapes of what it receives."""
Measured = tuple[dict[str, np.ndarray], int]
"""The values of a minibatch that are measured, and its rows."""


class _Slot:
    """Where the inputs and activations of one minibatch are, until its gradients are computed."""

    def __init__(self, net: OpList, scope: Scope) -> None:
        self.scope = Scope(scope.place, parent=scope)
        self.feed = Feeder(net, self.scope, complete=True, empty=True)
        self.likes: tuple[Any, ...] = ()


class Pipeline:
    """This rank's part in a net that is cut into stages.

    Of S stages, rank r runs stage r mod S. Ranks with the same stage train on parts of the
    minibatches, as ranks without stages do.

    Args:
        net: with sums over ranks and over minibatches.
        schedule: `ONE_F_ONE_B` or `GPIPE`.

    Attributes:
        stages: the whole net's. stage, replica: of this rank. replicas: how many there are.
        net: what this rank runs.

    Raises:
        GradientError: as `Stages`.
        RanksError: the ranks are fewer than the stages, or no multiple of them.
    """

    def __init__(self, communicator: Communicator, net: OpList, schedule: str) -> None:
        self._ranks = communicator
        self._whole = PlainNet(net, check=False)
        self.stages = Stages(self._whole.op_list)
        self.schedule = schedule
        count, size = self.stages.count, communicator.size
        if size % count:
            raise RanksError(
                f"the net has {count} stages, the last one with"
                f" {self.stages.title_of(count - 1)}, and {size} ranks run: start {count} of them"
                f" or a multiple, or train the whole net on each by pipeline={OFF!r}",
                on_all=True,
            )
        self.replicas = size // count
        self.replica, self.stage = divmod(communicator.rank, count)
        peers = [self.replica * count + stage for stage in range(count)]
        alike = [replica * count + self.stage for replica in range(self.replicas)]
        # Gradients are summed over ranks with the same stage; norms of all gradients over stages.
        self._between = Group(communicator, alike, peers)
        self._over_stages = Group(communicator, peers)
        self.net = PlainNet(self.stages.net_of(self.stage), check=False)
        own = self.net.op_list
        self._over_stages.agreed.add(self.net.version)  # which the stages' nets are not alike in
        self._forward_end = self.net.last_forward_op + 1
        self._updates = first_update(own)
        made = {n for op in own.ops if op.role == FORWARD for n in op.output_names()}
        read = {n for op in own.ops if op.role == BACKWARD for n in op.input_names()}
        self._kept = made & read
        self._made_backward = {
            n for op in own.ops if op.role == BACKWARD for n in op.output_names()
        }
        self._received = [
            name for op in own.ops if op.type == RECEIVE_OP for name in op.output_names()
        ]
        self._joining = Joining(net)
        self._kinds = {var.name: var.kind for var in net.vars}
        self._weighted = RANK_WEIGHT in self._kinds and self.replicas > 1
        self._slots: list[_Slot] = []
        self._free: list[_Slot] = []
        self._specs: dict[Any, Mapping[str, tuple[ArraySpec, Levels]]] = {}
        self._likes: dict[ArraySpec, Any] = {}
        self.seconds = 0.0

    def bubble(self, minibatches: int) -> float:
        """The share of the time in which a stage waits, if all stages take equally long."""
        count = self.stages.count
        return (count - 1) / (minibatches + count - 1)

    @property
    def waited(self) -> float:
        """The share of the time in which this rank has waited for others."""
        waited = self._between.waited + self._over_stages.waited
        return waited / self.seconds if self.seconds else 0.0

    def run_bytes(self) -> int:
        """What the minibatches under way take, beside parameters and states."""
        return sum(max(map(run_bytes, slot.scope.frames()), default=0) for slot in self._slots)

    # -- the minibatches of an update ------------------------------------------------------------

    def run(
        self,
        batches: Sequence[Mapping[Any, Any]],
        scope: Scope,
        context: OpContext,
        fetch: Iterable[str],
        where: Callable[[], str],
    ) -> list[Measured]:
        """Run forward and gradient operators of some minibatches; their measured values.

        Args:
            batches: this rank's parts of them. context: of the training, or of an evaluation, which
                runs forward only.
        """
        began = time.perf_counter()
        train = context.phase is not False
        own = [name for name in fetch if self._is_own(name)]
        later = [name for name in own if name in self._made_backward]
        own = [name for name in own if name not in later]
        forward = self._context(context, [*self._kept, *own])
        weights = [RANK_WEIGHT] * (self._weighted and RANK_WEIGHT in self._made_backward)
        backward = self._context(context, [*later, *weights])
        under_way: deque[tuple[_Slot, int]] = deque()
        found: list[tuple[dict[str, np.ndarray], int, float | None]] = []

        def end_oldest() -> None:
            slot, number = under_way.popleft()
            self.net.run(slot.scope, backward, self._forward_end, self._updates)
            values, rows, _ = found[number]
            values |= _values(slot.scope, later)
            weight = float(slot.scope.numpy(RANK_WEIGHT)) if weights else None
            found[number] = values, rows, weight
            self._free.append(slot)

        most = len(batches) if self.schedule == GPIPE else self.stages.count - self.stage
        for number, batch in enumerate(batches):
            slot = self._take_slot(scope)
            rows = slot.feed(batch, where, held_out=not train)
            self._tell_shapes(slot, scope)
            context.renew()
            self.net.run(slot.scope, forward, 0, self._forward_end)
            found.append((_values(slot.scope, own), rows, None))
            if not train:
                self._free.append(slot)
                continue
            under_way.append((slot, number))
            if len(under_way) == most:
                end_oldest()
        while under_way:
            end_oldest()
        joined = self._joined(found)
        self.seconds += time.perf_counter() - began
        return joined

    def update(self, scope: Scope, context: OpContext) -> None:
        """Update the stage's parameters by the gradients that have been added up."""
        began = time.perf_counter()
        updates = context.derive(train=True, live_out=None)
        updates.communicator = self._over_stages
        self.net.run(scope, updates, self._updates)
        self.seconds += time.perf_counter() - began

    def _context(self, context: OpContext, live_out: Iterable[str]) -> OpContext:
        own = context.derive(train=context.phase is not False, live_out=live_out)
        own.communicator = self._between
        return own

    def _take_slot(self, scope: Scope) -> _Slot:
        if not self._free:
            self._free.append(_Slot(self._whole.op_list, scope))
            self._slots.append(self._free[-1])
        return self._free.pop()

    def _tell_shapes(self, slot: _Slot, scope: Scope) -> None:
        """Give `receive` what has the shapes of that which comes: as the whole net would have it
        for this minibatch."""
        known: dict[str, ArraySpec] = {}
        offsets: dict[str, Levels] = {}
        for name, var in self._whole.vars.items():
            variable = slot.scope.find(name) if var.kind == INPUT else None
            if variable is not None and variable.inner is not None:
                known[name] = variable.inner.shape, variable.inner.dtype
                if variable.offsets:
                    offsets[name] = variable.offsets
            elif var.kind in (PARAMETER, STATE):
                spec = declared_spec(var)
                if spec is not None:
                    known[name] = spec
        lengths = [(n, *(level.tobytes() for level in levels)) for n, levels in offsets.items()]
        key = (tuple(known[n] for n in known if self._kinds[n] == INPUT), tuple(lengths))
        if slot.likes == key:
            return
        slot.likes = key
        if key not in self._specs:
            if len(self._specs) >= _MOST_SHAPES:
                self._specs.clear()
            end = first_update(self._whole.op_list)
            operators = self._whole.operators[:end]
            specs = infer_specs(operators, known, self._whole.vars, offsets)
            self._specs[key] = {n: (specs[n], offsets.get(n, ())) for n in self._received}
        xp = scope.place.xp
        for name, (spec, levels) in self._specs[key].items():
            if spec not in self._likes:
                # One element stands for all, as values are not read. It stays: a frame that is
                # bound to it would copy from another one.
                self._likes[spec] = xp.broadcast_to(xp.empty((), spec[1]), spec[0])
            slot.scope.var(like_name(name)).bind(self._likes[spec], levels)

    # -- what is measured ------------------------------------------------------------------------

    def _is_own(self, name: str) -> bool:
        """Whether this rank gives the values of a variable to those that measure."""
        return self.stages.of_var.get(name, 0) == self.stage

    def _joined(
        self, found: Sequence[tuple[dict[str, np.ndarray], int, float | None]]
    ) -> list[Measured]:
        """Values and rows of whole minibatches, on all ranks."""
        packed = [pack(*one) for one in found]
        head = json.dumps([len(one) for one in packed]).encode()
        parts = self._ranks.exchange(b"\n".join((head, b"".join(packed))))
        ranks = [_unpacked(part) for part in parts]
        joined = []
        for of_ranks in zip(*ranks, strict=True):
            replicas = []
            for begin in range(0, len(of_ranks), self.stages.count):
                stages = of_ranks[begin : begin + self.stages.count]
                values = {n: array for one, _, _ in stages for n, array in one.items()}
                weights = [weight for _, _, weight in stages if weight is not None]
                replicas.append((values, stages[0][1], weights[0] if weights else None))
            if self.replicas == 1:
                joined.append(replicas[0][:2])
            else:
                joined.append(self._joining.join(replicas))
        return joined


def _values(scope: Scope, names: Iterable[str]) -> dict[str, np.ndarray]:
    """Values as of now, on the host."""
    values = {}
    for name in names:
        variable = scope.find(name)
        if variable is None or variable.inner is None:
            raise VariableError(f"{name!r} holds no value; a loss or metric needs one")
        values[name] = variable.numpy()
    return values


def _unpacked(part: bytes) -> list[tuple[dict[str, np.ndarray], int, float | None]]:
    end = part.index(b"\n")
    begin = end + 1
    found = []
    for length in json.loads(part[:end]):
        found.append(unpack(part[begin : begin + length]))
        begin += length
    return found
