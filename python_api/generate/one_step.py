"""One step of a net that was trained on whole sequences, for generation.

Recurrent operators are opened: their step nets become part of one PLAIN net, whose rows are
hypotheses; memories become variables, set from outside before each step. What does not depend on
the generated tokens (an encoder, say) is not part of the step and runs once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...framework.base.backend import on_device, to_host
from ...framework.base.context import OpContext
from ...framework.base.errors import (
    NotFiniteError,
    OpscopeError,
    ShapeError,
    VariableError,
    nearest,
)
from ...framework.base.scope import Scope
from ...framework.base.sequence import offsets_of, repeated
from ...framework.files.saved import op_list_of
from ...framework.fusion.row_copies import take_rows
from ...framework.ir.desc import (
    FORWARD,
    INPUT,
    PLAIN,
    STATE,
    make_op,
    make_var,
)
from ...framework.ir.infer import declared_spec
from ...framework.ir.op_list import OpList, OpNode
from ...framework.ir.operation import Operator
from ...framework.ir.row_kinds import EACH, row_kinds
from ...framework.loops.recurrent.description import StepNet, step_net
from ...framework.passes.lowering import lower
from ...framework.passes.prune import prune
from ...framework.runtime.feeding import Feeder
from ...framework.runtime.initialize import PERSISTENT
from ...framework.runtime.net import Net

_IDENTITY_IN_TEST = "dropout"
"""Draws random numbers, so it is not row-wise by declaration; in test phase it only copies."""


@dataclass(frozen=True)
class StepMemory:
    """A memory of an opened recurrent operator.

    Attributes:
        previous, state: variables of the one-step net.
        boot: variable of the whole net that holds first values, a row for each sequence; "" where
            `value` is where all start.
        row, dtype: shape of one row of it, and its numbers.
    """

    previous: str
    state: str
    boot: str
    value: float
    row: tuple[int, ...]
    dtype: np.dtype


@dataclass
class OneStep:
    """A net cut down to one step.

    Attributes:
        net: of type PLAIN, over rows. memories: what goes from step to step.
        context: variables that the step reads and other operators of the whole net write.
    """

    net: OpList
    memories: list[StepMemory] = field(default_factory=list)
    context: list[str] = field(default_factory=list)


def one_step(net: OpList, ids: str, scores: str) -> OneStep:
    """Cut the part of a net that leads from `ids` to `scores` down to one step.

    Memories that are carried from minibatch to minibatch start from zeros here.

    Raises:
        VariableError: no such variables, or `scores` do not depend on `ids`.
        OpscopeError: an operator in between needs more than the present step.
    """
    return _Cut(lower(net), ids, scores).result()


class _Cut:
    def __init__(self, net: OpList, ids: str, scores: str) -> None:
        self.title = f"one step of net {net.name!r}"
        self.vars = {var.name: var for var in net.vars}
        for name in (ids, scores):
            if name not in self.vars:
                raise VariableError(
                    f"{self.title}: there is no variable {name!r}{nearest(name, self.vars)}"
                )
        self.ids = ids
        self.scores = scores
        pruned = prune(net, [scores])
        self.moving = {ids}  # what depends on the tokens
        for op in pruned.ops:
            if self.moving & set(op.input_names()):
                self.moving.update(op.output_names())
        if scores not in self.moving:
            raise VariableError(f"{self.title}: {scores!r} does not depend on {ids!r}")
        self.ops = [op for op in pruned.ops if self.moving & set(op.output_names())]
        self.forward = [op for op in net.ops if op.role == FORWARD]
        self.left_behind = {  # states of sequences, for the next minibatch
            name
            for op in self.forward
            if self.moving & set(op.input_names())
            for name in op.output_names()
            if self.vars[name].kind == STATE
        }
        self.step = OneStep(OpList(f"{net.name} step", PLAIN))
        self.inner: dict[str, Any] = {}  # declarations of opened step nets

    def result(self) -> OneStep:
        needed = {name for op in self.ops for name in op.input_names()} | {self.scores}
        for index, desc in enumerate(self.ops):
            if desc.type == "recurrent":
                self._open(desc, needed, f"{index}/")
            else:
                self._check_rows(desc)
                self.step.net.ops.append(desc)
        written = {name for op in self.step.net.ops for name in op.output_names()}
        read = {name for op in self.step.net.ops for name in op.input_names()}
        for name in dict.fromkeys((*read, *written)):
            var = self.vars.get(name) if name not in self.inner else self.inner[name]
            if var is not None:
                if name in self.moving:
                    var = var.changed(sequence_levels=0)
                self.step.net.vars.append(var)
        steady = read - written - self.inner.keys() - {self.ids}
        self.step.context = sorted(steady | {m.boot for m in self.step.memories if m.boot})
        return self.step

    def _check_rows(self, desc: OpNode) -> None:
        op = Operator(desc)
        names = (*op.input_vars(), *op.output_vars())
        declared = {name: declared_spec(self.vars[name]) for name in names if name in self.vars}
        if op.type == _IDENTITY_IN_TEST:
            return
        specs = {name: spec for name, spec in declared.items() if spec is not None}
        known = all(name in specs for name in op.input_vars())
        fixed = {name for name in op.input_vars() if name not in self.moving}
        kinds = row_kinds(op, specs, self.moving, fixed) if known else None
        if kinds is None or any(kind != EACH for kind in kinds.values()):
            raise OpscopeError(
                f"{self.title}: {op.title()} does not work on each row by itself, so it cannot run"
                f" step by step between {self.ids!r} and {self.scores!r}"
            )

    # -- recurrent operators -------------------------------------------------------------------

    def _open(self, desc: OpNode, needed: set[str], prefix: str) -> None:
        op = Operator(desc)
        step = step_net(op.attrs["net"])
        self._check_open(op, step, needed)
        names = self._names(op, step, prefix)
        for inner in step.net.ops:
            self.step.net.ops.append(inner.renamed(names))
        for outer, inner_name in zip(op.outputs.get("out", ()), step.outputs, strict=True):
            if names[inner_name] != outer:
                copy = make_op("assign", {"x": names[inner_name]}, {"out": outer})
                self.step.net.ops.append(copy)
        boots = op.inputs.get("boot", ())
        for memory in step.memories:
            boot = boots[memory.boot] if memory.boot >= 0 else ""
            spec = step.declared_row(memory)
            if boot and spec is None:
                whole = declared_spec(self.vars[boot])
                spec = None if whole is None else (whole[0][1:], whole[1])
            if spec is None or min(spec[0], default=0) < 0:
                raise OpscopeError(
                    f"{self.title}: the shape of the memory {memory.previous!r} of {step.title} is"
                    " not known"
                )
            previous = names[memory.previous]
            self.inner[previous] = make_var(previous, (-1, *spec[0]), spec[1], INPUT)
            carried = bool(boot) and self._is_carried(boot)
            self.step.memories.append(
                StepMemory(
                    previous, names[memory.state], "" if carried else boot, memory.boot_value, *spec
                )
            )

    def _check_open(self, op: Operator, step: StepNet, needed: set[str]) -> None:
        if step.reverse:
            raise OpscopeError(
                f"{self.title}: {step.title} goes from the end of sequences to their beginning;"
                " what is generated has no end yet"
            )
        for slot, wanted in (("x", True), ("static", False), ("boot", False)):
            for name in op.inputs.get(slot, ()):
                if (name in self.moving) != wanted:
                    kind = "does not depend" if wanted else "depends"
                    raise OpscopeError(
                        f"{self.title}: {name!r}, in slot {slot!r} of {step.title}, {kind} on"
                        f" {self.ids!r}"
                    )
        for slot in ("final", "sum"):
            for name in op.outputs.get(slot, ()):
                if name in needed:
                    raise OpscopeError(
                        f"{self.title}: {name!r}, of {step.title}, is known after the last step"
                        " only"
                    )

    def _names(self, op: Operator, step: StepNet, prefix: str) -> dict[str, str]:
        """Inner name -> name in the one-step net."""
        names = dict(zip(step.inputs, op.inputs["x"], strict=True))
        names |= dict(zip(step.statics, op.inputs.get("static", ()), strict=True))
        for outer, inner in zip(op.outputs.get("out", ()), step.outputs, strict=True):
            names.setdefault(inner, outer)
        for name in step.vars:
            names.setdefault(name, prefix + name)
        for inner in step.net.ops:
            for name in inner.output_names():
                names.setdefault(name, prefix + name)
                if name in step.vars and names[name] not in self.vars:
                    self.inner[names[name]] = step.vars[name].changed(name=names[name])
        return names

    def _is_carried(self, boot: str) -> bool:
        """Whether initial states come from variables that carry states between minibatches."""
        wanted = {boot}
        for op in reversed(self.forward):
            if wanted & set(op.output_names()) and not self.left_behind & set(op.output_names()):
                wanted.update(op.input_names())
        return bool(wanted & self.left_behind)


class Stepper:
    """Runs a net step by step over rows of hypotheses, with their states in a scope of its own.

    Args:
        net: a NetBuilder, a Net, its description, or what `opscope.load` returns.
        scope: holds the parameters; by default that of a loaded net. It stays as it is.
        ids: the input that holds tokens, sequences of integers [rows].
        scores: the variable with the scores of the next token, [rows, tokens]: before or after the
            logarithm of a softmax.
        device: where it runs, by default the place of the scope.

    Raises:
        OpscopeError: the net cannot run step by step; the message says why.
    """

    def __init__(
        self,
        net: Any,
        scope: Scope | None = None,
        *,
        ids: str = "ids",
        scores: str = "scores",
        device: Any = None,
    ) -> None:
        scope = scope if scope is not None else getattr(net, "scope", None)
        if not isinstance(scope, Scope):
            raise VariableError("want the scope that holds the net's parameters")
        self.op_list = op_list_of(net)
        self.ids = str(ids)
        self.scores = str(scores)
        self.step = one_step(self.op_list, self.ids, self.scores)
        self.scope = scope
        kept = [self.scores, *(memory.state for memory in self.step.memories)]
        self._context = OpContext(device, train=False, live_out=kept)
        self._device = device
        self._place = device or scope.place
        self._net = Net.create(self.step.net)
        (var,) = (var for var in self.step.net.vars if var.name == self.ids)
        spec = declared_spec(var)
        if spec is None or len(spec[0]) != 1 or spec[1].kind not in "iu":
            raise ShapeError(f"{self.op_list.name!r}: {self.ids!r} does not hold one integer a row")
        self._dtype = spec[1]
        self._work = Scope(parent=scope)

    def start(self, sequences: int, copies: int = 1, feed: Mapping[str, Any] | None = None) -> None:
        """Begin with `copies` hypotheses of each sequence, side by side, in their first states.

        Args:
            feed: inputs of the net that the first states or the steps depend on, other than the
                tokens; sequences as `Sequences` or lists of arrays.

        Raises:
            VariableError: an input is missing. ShapeError: rows for another number of sequences.
        """
        self.sequences = sequences
        self.copies = copies
        first = self._run_context(feed or {})
        self._work = Scope(parent=self.scope)
        with on_device(self._place):
            self._begin(first, sequences, copies)

    def _begin(self, first: dict[str, tuple[Any, Any]], sequences: int, copies: int) -> None:
        """Set the inputs of the steps to `first`, and memories to their initial states."""
        xp = self._place.xp
        for name, (rows, levels) in first.items():
            if levels and len(levels[-1]) - 1 == sequences:
                self._work.var(name).set(*_repeat_sequences(rows, levels[-1], copies, xp))
            else:
                self._work.var(name).set(rows, levels)
        for memory in self.step.memories:
            value = xp.full((sequences * copies, *memory.row), memory.value, memory.dtype)
            if memory.boot:
                boot = first[memory.boot][0]
                if len(boot) != sequences:
                    raise ShapeError(
                        f"{self.step.net.name}: {memory.boot!r} has {len(boot)} rows for"
                        f" {sequences} sequences"
                    )
                value[...] = xp.repeat(boot, copies, 0)
            self._work.var(memory.previous).bind(value)

    def _run_context(self, feed: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
        """Values and offsets of the inputs of the steps, parameters aside."""
        persistent = {var.name for var in self.op_list.vars if var.kind in PERSISTENT}
        names = [name for name in self.step.context if name not in persistent]
        scope = Scope(parent=self.scope)
        declared = {var.name: var for var in self.op_list.vars}
        for key in feed:
            if str(key) in declared:
                scope.var(str(key))  # the scope of the parameters stays as it is
        if feed:
            Feeder(self.op_list, scope)(feed, lambda: self.step.net.name)
        if names:
            wanted = [name for name in names if declared[name].kind != INPUT]
            if wanted:
                context = OpContext(self._device, train=False, live_out=wanted)
                Net.create(prune(self.op_list, wanted)).run(scope, context)
        first = {}
        for name in names:
            variable = scope.find(name)
            if variable is None or variable.array is None:
                raise VariableError(f"{self.step.net.name}: input {name!r} is missing; feed it")
            first[name] = variable.array, variable.offsets
        return first

    def run(self, tokens: Any) -> np.ndarray:
        """Give each hypothesis its next token.

        Returns:
            Scores of what follows, [hypotheses, tokens], on the host; valid until the next step.

        Raises:
            NotFiniteError: NaN among the scores.
        """
        self._work.var(self.ids).set(np.asarray(tokens, self._dtype))
        self._net.run(self._work, self._context)
        scores = to_host(self._work.get(self.scores).array)
        if np.isnan(scores).any():
            raise NotFiniteError(f"{self.step.net.name}: {self.scores!r} holds NaN")
        return scores

    def advance(self, parents: Sequence[int] | np.ndarray | None = None) -> None:
        """Take over the states of the last step.

        Args:
            parents: for each hypothesis the one that it goes on from; by default itself.
        """
        with on_device(self._place):
            for memory in self.step.memories:
                source = self._work.get(memory.state).array
                target = self._work.get(memory.previous).array
                if parents is None:
                    target[...] = source
                else:
                    xp = self._place.xp
                    take_rows(xp, source, xp.asarray(parents), target)


def _repeat_sequences(rows: Any, offsets: Any, copies: int, xp: Any) -> tuple[Any, Any]:
    """Each sequence `copies` times, side by side."""
    lengths = repeated(np.diff(offsets), copies)
    begins = repeated(offsets[:-1], copies)
    made = offsets_of(lengths)
    index = repeated(begins - made[:-1], lengths) + np.arange(made[-1])
    return rows[xp.asarray(index)], (made,)
