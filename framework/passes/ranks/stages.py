"""Pipelines: a net is cut into stages, and each rank runs one of them.

Operators say their stage by their device, `stage:1` (`NetBuilder.stage`); those that say none
belong to the last stage whose results they read. A gradient operator belongs to the stage of the
variable whose gradient it reads, an update to the stage of its parameter. What one stage computes
and another one reads is sent: activations to later stages, gradients to earlier ones.

A parameter that several stages read is the first one's. The others get its value with the
activations, and send their parts of its gradient back.

A list that is cut is run in three parts: its forward operators and its gradient operators once a
minibatch, its updates after several of them (`AccumulateGradients`). In which order a rank runs
forward and gradient operators of several minibatches is said elsewhere.

Sources: Huang et al. 2019, GPipe; Narayanan et al. 2019, PipeDream (1F1B).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from ...base.errors import GradientError
from ...ir.desc import BACKWARD, FORWARD, INPUT, OPTIMIZE, PARAMETER, STATE, TEMPORARY, make_op
from ...ir.names import (
    CHECK_OP,
    RECEIVE_OP,
    SEND_OP,
    first_name,
    like_name,
    primal_name,
    sent_name,
    stage_of_device,
)
from ...ir.op_list import OpList, OpNode, VarDecl
from ...ir.operation import Operator
from ...ir.registry import lookup
from .zero import finite_on_all

_RANKS = "ranks"
_SHOWN = 4


def has_stages(net: OpList) -> bool:
    """Whether some operator says that it belongs to a stage."""
    return any(stage_of_device(op.device) is not None for op in net.ops)


@dataclass(frozen=True)
class CutStages:
    """Leaves one stage of a net, with what it sends to the others and receives from them.

    It goes after `AccumulateGradients`: updates run apart from the gradients.

    Attributes:
        stage: which.
    """

    stage: int
    name: str = "cut-stages"

    def apply(self, net: OpList) -> OpList:
        """The operators of the stage; `net` itself stays as it is.

        Inputs `NAME@LIKE` tell `receive` the shapes of what comes; their values are not read.

        Raises:
            GradientError: as `Stages`.
        """
        return Stages(net).net_of(self.stage)


class Stages:
    """Which operator and which variable of a net belongs to which stage.

    Attributes:
        count: how many stages there are.
        of_var: variable -> stage. What all stages compute for themselves (steps, rates, sums of
            weights) is not in it, nor are inputs.

    Raises:
        GradientError: stages that are numbered in another order than they run in, without an
            operator or without a trained parameter; an operator that reads what several stages
            hold; a value that would be sent back and forth. Operators are named.
    """

    def __init__(self, net: OpList) -> None:
        self._net = net
        self._vars = {var.name: var for var in net.vars}
        self._kinds = {var.name: var.kind for var in net.vars}
        if any(var.view is not None for var in net.vars):
            raise GradientError(f"net {net.name!r} has views, and cannot be cut into stages")
        self.of_var: dict[str, int] = {}
        self._written_by: dict[str, int] = {}  # variable -> the role of what writes it
        # Stage by operator; None: all stages run it, each with the variables that it holds.
        self._of_op: list[int | None] = [None] * len(net.ops)
        self._forward()
        self._backward()
        self._updates()
        self._check_trained()
        self._wanted = [self._wants(stage) for stage in range(self.count)]

    # -- forward operators -----------------------------------------------------------------------

    def _forward(self) -> None:
        ops = [(n, op) for n, op in enumerate(self._net.ops) if op.role == FORWARD]
        stages: dict[int, int] = {}
        writers: dict[str, int] = {}
        for index, op in ops:
            said = stage_of_device(op.device)
            if said is None:
                made_by = (writers[name] for name in op.input_names() if name in writers)
                said = max((stages[n] for n in made_by if n in stages), default=None)
            if said is not None:
                stages[index] = said
            writers |= dict.fromkeys(op.output_names(), index)
        # Those that read nothing of another operator go where they are read first.
        readers: dict[str, int] = {}
        for index, op in reversed(ops):
            if index not in stages:
                read = (readers[name] for name in op.output_names() if name in readers)
                stages[index] = min(read, default=0)
            for name in op.input_names():
                readers[name] = min(stages[index], readers.get(name, stages[index]))
        self.count = max(stages.values(), default=-1) + 1
        missing = sorted(set(range(self.count)) - set(stages.values()))
        if missing:
            raise GradientError(
                f"no operator belongs to stage {missing[0]}, and some to stage {self.count - 1}:"
                " stages are numbered from 0 on, without gaps"
            )
        for index, op in ops:
            self._of_op[index] = stages[index]
            for name in op.output_names():
                first = self.of_var.setdefault(name, stages[index])
                if first != stages[index]:
                    raise GradientError(
                        f"{self._title(index)} of stage {stages[index]} writes {name!r}, which"
                        f" {self._writer(name, first)} of stage {first} writes as well"
                    )
                self._written_by[name] = FORWARD
        for index, op in ops:
            for name in op.input_names():
                made_at = self.of_var.get(name)
                if made_at is not None and name in self._written_by:
                    if made_at > stages[index]:
                        raise GradientError(
                            f"{self._title(index)} of stage {stages[index]} reads {name!r}, which"
                            f" {self._writer(name, made_at)} of stage {made_at} computes: number"
                            " stages in the order in which they run"
                        )
                elif self._kinds.get(name) in (PARAMETER, STATE):
                    held = self.of_var.get(name, stages[index])
                    self.of_var[name] = min(held, stages[index])
        for name, kind in self._kinds.items():
            if kind == PARAMETER:
                self.of_var.setdefault(name, 0)

    def _writer(self, name: str, stage: int) -> str:
        return next(
            self._title(index)
            for index, op in enumerate(self._net.ops)
            if self._of_op[index] in (stage, None) and name in op.output_names()
        )

    # -- gradients and updates -------------------------------------------------------------------

    def _backward(self) -> None:
        net = self._net = self._without_crossing_copies()
        for index, op in enumerate(net.ops):
            if op.role != BACKWARD:
                continue
            reads, writes = op.input_names(), op.output_names()
            again = [first_name(name) for name in writes if first_name(name)]
            gradients = [primal_name(n) for n in reads if primal_name(n)]
            gradients = again or gradients or [primal_name(n) for n in writes]
            stages = {self.of_var[name] for name in gradients if name in self.of_var}
            said = stage_of_device(op.device)
            if said is not None:
                stages = {said}
            elif not stages:
                if any(self._kinds.get(name) == STATE for name in writes):
                    continue  # sums of weights, which every stage has
                stages = {max((self.of_var[n] for n in reads if n in self.of_var), default=0)}
            if len(stages) > 1:
                if set(writes) - set(reads) and not lookup(op.type).world:
                    raise self._several(index, stages)
                continue  # sums over ranks: each stage adds up its own gradients
            (stage,) = stages
            self._of_op[index] = stage
            for name in writes:
                self.of_var[name] = stage
                self._written_by[name] = BACKWARD

    def _without_crossing_copies(self) -> OpList:
        """The net where no stage reads what another one computes a second time: the first value
        was sent to it and is still there."""
        copies = {
            name: first_name(name)
            for op in self._net.ops
            for name in op.output_names()
            if op.role == BACKWARD and first_name(name)
        }
        if not copies:
            return self._net
        net = self._net.copy()
        for index, op in enumerate(net.ops):
            if op.role == BACKWARD:
                again = {copies[name] for name in op.output_names() if name in copies}
                own = again or {primal_name(name) for name in op.input_names()}
                stages = {self.of_var[name] for name in own & self.of_var.keys()}
                net.ops[index] = op.renamed(
                    {n: first for n, first in copies.items() if self.of_var[first] not in stages}
                )
        return net

    def _updates(self) -> None:
        for index, op in enumerate(self._net.ops):
            if op.role != OPTIMIZE:
                continue
            names = (*op.input_names(), *op.output_names())
            # Sums of weights are there on all stages.
            held = {
                self.of_var[name]
                for name in names
                if name in self.of_var and (primal_name(name) or self._is_held(name))
            }
            if len(held) > 1:
                if op.type != CHECK_OP and _RANKS not in lookup(op.type).attr_specs:
                    raise self._several(index, held)
                continue
            for stage in held:
                self._of_op[index] = stage
                self.of_var |= dict.fromkeys(op.output_names(), stage)

    def _is_held(self, name: str) -> bool:
        """Whether a variable of a stage is more than a number that its last operator has found."""
        return self._kinds.get(name) in (PARAMETER, STATE) or name not in self._written_by

    def _several(self, index: int, stages: Iterable[int]) -> GradientError:
        held = " and ".join(map(str, sorted(stages)))
        return GradientError(
            f"{self._title(index)} reads what stages {held} hold, and a rank has one stage"
        )

    def _check_trained(self) -> None:
        gradients = {primal_name(n) for op in self._net.ops for n in op.output_names()}
        trained = {self.of_var[n] for n in gradients if self._kinds.get(n) == PARAMETER}
        for stage in range(self.count):
            if stage not in trained:
                titles = [self._title(n) for n, one in enumerate(self._of_op) if one == stage]
                more = ", ..." if len(titles) > _SHOWN else ""
                raise GradientError(
                    f"stage {stage} has no parameter to train: {', '.join(titles[:_SHOWN])}{more};"
                    " let them belong to the stage before or after it"
                )

    def _title(self, index: int) -> str:
        return Operator(self._net.ops[index], index).title()

    def title_of(self, stage: int) -> str:
        """The first operator of a stage, for messages."""
        return self._title(self._of_op.index(stage))

    # -- one stage -------------------------------------------------------------------------------

    def _ops_of(self, stage: int) -> Iterator[tuple[int, OpNode]]:
        """The operators that a stage runs, with the variables that it holds, and their places."""
        for index, op in enumerate(self._net.ops):
            if self._of_op[index] == stage:
                yield index, op
            elif self._of_op[index] is None:
                own = self._own_part(op, stage)
                if own is not None:
                    yield index, own

    def _own_part(self, op: OpNode, stage: int) -> OpNode | None:
        """What a stage does of an operator that all run; None where it has no part in it."""
        entry = lookup(op.type)
        lists = [slot.name for slot in (*entry.inputs, *entry.outputs) if slot.duplicable]
        parts = {
            slot: tuple([n for n in names if self.of_var.get(n, stage) == stage])
            for slots in (op.inputs, op.outputs)
            for slot, names in slots.items()
            if slot in lists
        }
        if not all(parts.values()):
            return None
        return op.changed(
            inputs={slot: parts.get(slot, names) for slot, names in op.inputs.items()},
            outputs={slot: parts.get(slot, names) for slot, names in op.outputs.items()},
        )

    def _wants(self, stage: int) -> dict[tuple[int, int], list[str]]:
        """What a stage gets from others: (their stage, role of what computes it) -> variables."""
        wanted: dict[tuple[int, int], dict[str, None]] = {}
        for index, op in self._ops_of(stage):
            for name in op.input_names():
                source = self.of_var.get(name, stage)
                role = self._written_by.get(name, FORWARD)
                if source == stage:
                    continue
                # Forward, values go to later stages, and gradients to earlier ones.
                if op.role == OPTIMIZE or (source > stage) != (role == BACKWARD):
                    raise GradientError(
                        f"{self._title(index)} of stage {stage} reads {name!r}, which"
                        f" {self._writer(name, source)} of stage {source} computes, and would"
                        " cross the cut between them a second time: values go to later stages, and"
                        " gradients to earlier ones"
                    )
                wanted.setdefault((source, role), {})[name] = None
        return {key: list(names) for key, names in sorted(wanted.items())}

    def net_of(self, stage: int) -> OpList:
        """The net of one stage.

        Raises:
            GradientError: there is no such stage.
        """
        if not 0 <= stage < self.count:
            raise GradientError(f"there is no stage {stage}: the net has {self.count}")
        own = [op for _, op in self._ops_of(stage)]
        declared = dict(self._vars)
        of_all: dict[str, str] = {}
        ops: list[OpNode] = []
        for role in (FORWARD, BACKWARD):
            ops += self._receives(stage, role)
            ops += self._with_sends([op for op in own if op.role == role], stage, role)
        for op in own:
            if op.role != OPTIMIZE:
                continue
            op = op.renamed(of_all)
            spans = op.type == CHECK_OP or _RANKS in lookup(op.type).attr_specs
            if spans and self._spans(op):
                if op.type == CHECK_OP:
                    of_all, ends = finite_on_all(op, declared)
                    ops += [op, *ends]
                    continue
                op = op.changed(attrs={**op.attrs, _RANKS: self.count})
            ops.append(op)
        net = self._net.copy()
        net.ops = ops
        net.vars = self._declared(ops, declared, stage)
        return net

    def _spans(self, op: OpNode) -> bool:
        """Whether other stages run the operator as well, with the variables that they hold."""
        return all(name not in self.of_var for name in op.output_names())

    def _receives(self, stage: int, role: int) -> list[OpNode]:
        return [
            make_op(
                RECEIVE_OP,
                {"like": [like_name(name) for name in names]},
                {"out": names},
                {"rank": source},
                role=role,
            )
            for (source, made_by), names in self._wanted[stage].items()
            if made_by == role
        ]

    def _with_sends(self, ops: Sequence[OpNode], stage: int, role: int) -> list[OpNode]:
        """Operators, with what the others want of them sent as soon as it is there."""
        writes = {name: n for n, op in enumerate(ops, 1) for name in op.output_names()}
        after: dict[int, list[OpNode]] = {}
        for to, wanted in enumerate(self._wanted):
            names = wanted.get((stage, role), ())
            if names:
                made = {"ticket": sent_name(to, role)}
                one = make_op(SEND_OP, {"x": names}, made, {"rank": to}, role=role)
                place = max(writes.get(name, 0) for name in names)
                after.setdefault(place, []).append(one)
        return [
            one
            for n, op in enumerate([None, *ops])
            for one in (*([] if op is None else [op]), *after.get(n, ()))
        ]

    def _declared(
        self, ops: Sequence[OpNode], declared: dict[str, VarDecl], stage: int
    ) -> list[VarDecl]:
        """The variables that a stage's operators name; what it receives is computed by them."""
        used = {name for op in ops for name in (*op.input_names(), *op.output_names())}
        received = {n for names in self._wanted[stage].values() for n in names}
        found = []
        for name, var in declared.items():
            if name in received:
                found.append(var.changed(kind=TEMPORARY, initializer=None))
                found.append(var.changed(name=like_name(name), kind=INPUT, initializer=None))
            elif name in used:
                found.append(var)
        return found
