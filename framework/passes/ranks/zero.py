"""Sharded training (ZeRO): each rank holds a part of optimizer states, gradients and parameters.

A parameter, its gradient and its states are cut alike, element by element (`shard`). The pass
begins with the buckets and weights of `InsertAllReduce`:

- stage 1: sums of gradients are scattered, so that each rank gets its part of them; it updates
  the same part of a parameter, with states of the part alone, and the parts of all are gathered.
- stage 2: buckets are sent as soon as the backward pass has finished them, and their gradients die.
- stage 3: parameters are parts as well. They are gathered before the first forward operator that
  reads them, once more before the first gradient operator that does, and die after the last one.

Updates stay the operators that the optimizer pass has made; only their variables are shorter. So
they must work element by element, or take norms over ranks (the attribute `ranks`).

Source: Rajbhandari et al. 2020, ZeRO: Memory Optimizations Toward Training Trillion Parameter
Models; Zhao et al. 2023, PyTorch FSDP.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ....proto import net_pb2 as pb
from ...base.communicator import part_length
from ...base.errors import AttributeTypeError, GradientError
from ...base.sizes.shape import count
from ...ir.desc import (
    BACKWARD,
    FORWARD,
    OPTIMIZE,
    OUTPUT,
    PARAMETER,
    STATE,
    TEMPORARY,
    make_op,
    make_var,
)
from ...ir.messages import as_op_list
from ...ir.names import (
    ALL_FINITE_OP,
    CHECK_OP,
    COMMIT_OP,
    GATHER_SHARDS_OP,
    GRAD_SUFFIX,
    SCATTER_START_OP,
    SCATTER_WAIT_OP,
    SHARD_OP,
    STORE_OP,
    SYNC_OP,
    UNDO_OP,
    again_name,
    all_ranks_name,
    scattered_name,
    shard_name,
    ticket_name,
    whole_name,
)
from ...ir.op_list import OpList, OpNode, VarDecl
from ...ir.operation import Operator
from ...ir.registry import lookup
from .all_reduce import SUM, WORTH, Bucket, Gradient, GradientExchange, InsertAllReduce, in_buckets

STAGES = (1, 2, 3)
_ELEMENTS: Mapping[str, tuple[str, ...]] = {
    SYNC_OP: ("param", "master"),
    STORE_OP: ("x",),
    UNDO_OP: ("x",),
    COMMIT_OP: ("new", "old"),
    "clip": ("x",),
}
"""Operators of updates that work element by element -> the input slots of such arrays."""
_RANKS = "ranks"
_BUCKETS = 8
"""Buckets of gradients that there are at least, where each is worth it."""


@dataclass(frozen=True)
class ShardTraining(InsertAllReduce):
    """Sums over ranks and shards between them, in place of `InsertAllReduce`, whose fields it has.

    Whole on every rank stay: parameters without a gradient, those whose gradient has rows for a
    part of a table, views and their bases, and states that have another shape than a parameter.

    Attributes:
        stage: 1 shards optimizer states, 2 gradients as well, 3 parameters as well.
        ranks: how many there are.
    """

    stage: int = 1
    ranks: int = 1
    name: str = "shard-training"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.stage not in STAGES or self.ranks < 1:
            raise AttributeTypeError(
                f"{self.name}: stage is 1, 2 or 3 and ranks at least 1, not {self.stage!r} and"
                f" {self.ranks!r}"
            )

    def apply(self, net: OpList | pb.NetDesc) -> OpList:
        """The net with shards; `net` itself stays as it is.

        Raises:
            GradientError: as `InsertAllReduce`; or an update needs whole parameters, as L-BFGS.
            VariableError: the net has no variable `weight`.
        """
        exchange = _ShardedExchange(as_op_list(net), self)
        return exchange.net if not exchange.params else _Sharder(exchange, self).net


def sharded_vars(net: OpList, of_rank: OpList) -> list[VarDecl]:
    """The parameters and states of a net of which the net of a rank holds parts."""
    parts = {whole_name(v.name) for v in of_rank.vars if v.kind in (PARAMETER, STATE)}
    return [var for var in net.vars if var.name in parts]


class _ShardedExchange(GradientExchange):
    """Sums of gradients that are scattered.

    Attributes:
        params: name -> declaration of the parameters of which each rank updates a part.
    """

    def __init__(self, net: OpList, options: ShardTraining) -> None:
        self.params: dict[str, VarDecl] = {}
        self._stage, self._ranks = options.stage, options.ranks
        super().__init__(net, options)

    def exchange(self, gradients: Sequence[Gradient]) -> None:
        views = self.bases.keys() | set(self.bases.values())
        parted: list[Gradient] = []
        for one in gradients:
            var = self.vars.get(one.name.removesuffix(GRAD_SUFFIX))
            if var is not None and _can_be_parted(var) and views.isdisjoint((var.name, one.name)):
                self.params[var.name] = var
                parted.append(one)
        super().exchange([one for one in gradients if one not in parted])
        if self._stage == 1:  # all of them are there until the updates begin
            parted = [_at(one, self.updates - 1) for one in parted]
        # Two buckets are packed at a time, beside the gradients: of a small net they are smaller.
        some = max(sum(one.nbytes for one in parted) // _BUCKETS, WORTH)
        former: list[OpNode] = []
        for number, bucket in enumerate(in_buckets(parted, min(self.options.bucket_bytes, some))):
            start, wait = self._scatter(number, bucket)
            # The former bucket arrives while this one is computed: never more than two are there.
            self.before.setdefault(bucket.done + 1, []).extend([*former, start])
            former = [wait]
        self.before.setdefault(self.updates, []).extend(former)

    def _scatter(self, number: int, bucket: Bucket) -> tuple[OpNode, OpNode]:
        names = bucket.names
        ticket = self.declare(ticket_name(len(self.params) + number), (), "int64")
        packed, part = (scattered_name(number, what) for what in ("packed", "part"))
        for name in names:
            var = self.params[name.removesuffix(GRAD_SUFFIX)]
            length = part_length(count(var.shape or ()), self._ranks)
            # An output, with memory of its own: a temporary would take a large block that is free,
            # which the next gradient then lacks.
            part_of = shard_name(name)
            self.vars[part_of] = make_var(part_of, (length,), bucket.members[0].dtype, OUTPUT)
        ranks = {_RANKS: self._ranks}
        start = make_op(
            SCATTER_START_OP,
            {"x": names, **self.weights},
            {"packed": packed, "part": part, "ticket": ticket},
            ranks,
            role=BACKWARD,
        )
        like = [name.removesuffix(GRAD_SUFFIX) for name in names]
        wait = make_op(
            SCATTER_WAIT_OP,
            {"packed": packed, "part": part, "ticket": ticket, "like": like},
            {"out": [shard_name(name) for name in names]},
            {**ranks, "mode": self.mode} if self.mode != SUM else ranks,
            role=BACKWARD,
        )
        return start, wait


class _Sharder:
    """Gives updates, and at stage 3 all operators, the parts that a rank holds.

    Attributes:
        net: the net that is made.
    """

    def __init__(self, exchange: _ShardedExchange, options: ShardTraining) -> None:
        self.net = exchange.net
        self._options = options
        self._ranks = options.ranks
        self._params = exchange.params
        self._vars = {var.name: var for var in self.net.vars}
        # Whole -> what a rank holds of it, for all that updates touch.
        self._shards = {name + GRAD_SUFFIX: shard_name(name + GRAD_SUFFIX) for name in self._params}
        self._shards |= {name: self._declare_part(var) for name, var in self._params.items()}
        self._of_all: dict[str, str] = {}  # what a rank has found -> what all have
        first = next(n for n, op in enumerate(self.net.ops) if op.role == OPTIMIZE)
        before, updates = self.net.ops[:first], self.net.ops[first:]
        changed = [one for n, op in enumerate(updates, first) for one in self._update(op, n)]
        if options.stage == 3:
            self.net.ops = [*self._gathered_before_use(before), *changed]
        else:
            cut = self._cut({name: self._shards[name] for name in self._params})
            self.net.ops = [*before, *cut, *changed, *self._gathered_at_the_end()]
        self.net.vars = list(self._vars.values())

    # -- updates ---------------------------------------------------------------------------------

    def _update(self, op: OpNode, index: int) -> list[OpNode]:
        """An update operator over parts, and what goes with it."""
        op = op.renamed(self._of_all)
        if self._shards.keys().isdisjoint(op.input_names()):
            return [op]
        entry = lookup(op.type)
        over_ranks = _RANKS in entry.attr_specs
        if op.type == CHECK_OP:
            self._of_all, ends = finite_on_all(op, self._vars)
            return [op.renamed(self._shards), *ends]
        slots = _ELEMENTS.get(op.type, ())
        if "param" in entry.input_slots and len(op.inputs.get("param", ())) == 1:
            if entry.expressions or over_ranks:
                states = (slot for slot in op.inputs if f"{slot}_out" in op.outputs)
                slots = ("grad", *states)
        attrs = {**op.attrs, _RANKS: self._ranks} if over_ranks else op.attrs
        if not slots and over_ranks:  # a norm over gradients, whole ones among them
            whole = {n: shard_name(n) for n in op.input_names() if n not in self._shards}
            self._vars |= {part: VarDecl(part) for part in whole.values()}
            return [*self._cut(whole), op.renamed(self._shards | whole).changed(attrs=attrs)]
        if not slots:
            raise GradientError(
                f"{Operator(op, index).title()} wants whole parameters, and each rank holds a"
                " part: train with zero=0, or with an optimizer that works element by element"
            )
        names = [name for slot in slots for name in op.inputs.get(slot, ())] + op.output_names()
        length = next(self._length(name) for name in names if name in self._shards)
        for name in names:
            if name not in self._shards:
                self._shards[name] = self._declare_part(self._vars.get(name), name, length)
        parts = {name: self._shards[name] for name in names}
        return [op.renamed(parts).changed(attrs=attrs)]

    def _length(self, name: str) -> int:
        shape = self._vars[self._shards[name]].shape
        assert shape is not None
        return shape[0]

    def _declare_part(self, var: VarDecl | None, name: str = "", length: int = -1) -> str:
        """Declare what a rank holds of a variable in its place, and give its name."""
        name = name if var is None else var.name
        part = shard_name(name)
        if var is None:
            self._vars[part] = VarDecl(part, (length,))
            return part
        length = part_length(count(var.shape or ()), self._ranks)
        kind = var.kind
        if kind == PARAMETER and self._options.stage < 3:
            kind = TEMPORARY
        elif kind == PARAMETER:
            self._vars[name] = var.changed(kind=TEMPORARY, initializer=None)
        else:
            del self._vars[name]
        self._vars[part] = make_var(part, (length,), var.dtype, kind, lr_factor=var.lr_factor)
        return part

    def _cut(self, parts: Mapping[str, str]) -> list[OpNode]:
        """Operators that cut this rank's parts of variables that are whole."""
        alike: dict[np.dtype | None, list[str]] = {}
        for name in parts:
            var = self._vars.get(name)
            alike.setdefault(None if var is None else var.dtype, []).append(name)
        ranks = {_RANKS: self._ranks}
        return [
            make_op(
                SHARD_OP, {"x": group}, {"out": [parts[n] for n in group]}, ranks, role=OPTIMIZE
            )
            for group in alike.values()
        ]

    # -- parameters ------------------------------------------------------------------------------

    def _gathered_at_the_end(self) -> list[OpNode]:
        """Operators that put the parameters of all ranks together, in buckets."""
        like = [
            Gradient(name, 0, _nbytes(var), var.dtype, False) for name, var in self._params.items()
        ]
        buckets = in_buckets(like, self._options.bucket_bytes)
        return [self._gather(bucket.names, {}, OPTIMIZE) for bucket in buckets]

    def _gathered_before_use(self, ops: Sequence[OpNode]) -> list[OpNode]:
        """Forward and backward operators, with parameters gathered before those that read them."""
        placed: list[OpNode] = []
        names: dict[int, dict[str, str]] = {FORWARD: {}, BACKWARD: {}}
        for index, op in enumerate(ops):
            known = names[BACKWARD if op.role == BACKWARD else FORWARD]
            wanted: dict[np.dtype | None, list[str]] = {}
            # One message for all that the operator reads, of each dtype.
            for name in dict.fromkeys(Operator(op, index).value_reads()):
                if name in self._params and name not in known:
                    wanted.setdefault(self._params[name].dtype, []).append(name)
            for group in wanted.values():
                again = {name: again_name(name) for name in group if op.role == BACKWARD}
                known |= {name: again.get(name, name) for name in group}
                self._vars |= {
                    other: self._vars[name].changed(name=other) for name, other in again.items()
                }
                placed.append(self._gather(group, again, op.role))
            placed.append(op.renamed(known) if op.role == BACKWARD else op)
        return placed

    def _gather(self, names: Sequence[str], renames: Mapping[str, str], role: int) -> OpNode:
        shapes = [self._params[name].shape or () for name in names]
        return make_op(
            GATHER_SHARDS_OP,
            {"x": [self._shards[name] for name in names]},
            {"out": [renames.get(name, name) for name in names]},
            {_RANKS: self._ranks, "shapes": [n for shape in shapes for n in (len(shape), *shape)]},
            role=role,
        )


def finite_on_all(
    check: OpNode, declared: dict[str, VarDecl]
) -> tuple[dict[str, str], list[OpNode]]:
    """What follows the check of a scaled loss reads whether the parts of all ranks are finite.

    Args:
        declared: variables of the net, to which new ones are added.

    Returns:
        What a rank has found -> what all have, and the operators that find that.
    """
    of_all = {name: all_ranks_name(name) for name in check.outputs.get("finite", ())}
    for name, out in of_all.items():
        declared[out] = declared[name].changed(name=out) if name in declared else VarDecl(out)
    ends = [
        make_op(ALL_FINITE_OP, {"x": name}, {"out": out}, role=OPTIMIZE)
        for name, out in of_all.items()
    ]
    return of_all, ends


def _can_be_parted(var: VarDecl) -> bool:
    known = var.shape is not None and count(var.shape) >= 0
    return var.kind == PARAMETER and known and var.view is None and not var.sequence_levels


def _at(one: Gradient, done: int) -> Gradient:
    return Gradient(one.name, done, one.nbytes, one.dtype, one.sparse)


def _nbytes(var: VarDecl) -> int:
    return count(var.shape or ()) * (var.dtype.itemsize if var.dtype else 4)
