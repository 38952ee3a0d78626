"""A net that was trained on whole sequences, cut down to the tokens that come next.

Recurrent operators are opened: their step nets become part of one PLAIN net, whose rows are
hypotheses; memories become variables, set from outside before each step. Attention over earlier
tokens reads caches, states to which each run appends the keys and values of its own tokens. What
does not depend on the generated tokens (an encoder, say) is not part of the step and runs once.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any, NoReturn

import numpy as np

from ...framework.base.errors import OpscopeError, ShapeError, VariableError, nearest
from ...framework.base.sizes.shape import ArraySpec, Shape
from ...framework.ir.desc import (
    FORWARD,
    INPUT,
    PLAIN,
    STATE,
    make_op,
    make_var,
)
from ...framework.ir.infer import declared_spec, infer_one
from ...framework.ir.op_list import OpList, OpNode, VarDecl
from ...framework.ir.operation import Operator
from ...framework.ir.row_kinds import EACH, row_kinds
from ...framework.loops.recurrent.description import StepNet, step_net
from ...framework.passes.lowering import lower
from ...framework.passes.prune import prune

_IDENTITY_IN_TEST = "dropout"
"""Draws random numbers, so it is not row-wise by declaration; in test phase it only copies."""
_ATTENTION = "scaled_dot_product_attention"
_OF_SEQUENCES = ("sequence_pad", "sequence_unpad", "sequence_mask", "sequence_length")
"""Operators that treat the tokens of a run like whole sequences."""
_AXES = ("axis", "axes", "begin_norm_axis")
ACROSS_TOKENS = (_ATTENTION, "cache_append", "positions", "rotary_embedding", *_OF_SEQUENCES)
"""Operators of a step that look at several of its tokens, or at where a token is among them."""


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


@dataclass(frozen=True)
class Cache:
    """Keys or values of all tokens so far: a variable of the one-step net, which it appends to.

    Attributes:
        name: of the variable. axis: along which tokens lie; the first axis counts hypotheses.
        shape: -1 for hypotheses and tokens. dtype: of its numbers.
    """

    name: str
    axis: int
    shape: tuple[int, ...]
    dtype: np.dtype


@dataclass
class OneStep:
    """A net cut down to one step.

    Attributes:
        net: of type PLAIN. Where it has `caches`, or tokens are [N, T], a run takes several tokens
            of each hypothesis; else it is over rows, one token each.
        memories, caches: what goes from step to step.
        context: variables that the step reads and other operators of the whole net write.
        of_sequences: the ones that have a row for each sequence, without saying so.
        past: the variable with the number of tokens before the run's tokens [N]; "" where none
            reads it.
        positions: how many positions there are, by the variable that holds them.
        packed: whether tokens are packed sequences [rows], not [N, T].
        blocks: whether a run takes several tokens of each hypothesis.
    """

    net: OpList
    memories: list[StepMemory] = field(default_factory=list)
    caches: list[Cache] = field(default_factory=list)
    context: list[str] = field(default_factory=list)
    of_sequences: Collection[str] = ()
    past: str = ""
    positions: dict[str, int] = field(default_factory=dict)
    packed: bool = True
    blocks: bool = False


def one_step(net: OpList, ids: str, scores: str) -> OneStep:
    """Cut the part of a net that leads from `ids` to `scores` down to one step.

    Memories that are carried from minibatch to minibatch start from zeros here.

    Raises:
        VariableError: no such variables, or `scores` do not depend on `ids`.
        ShapeError: `ids` are no tokens.
        OpscopeError: an operator in between needs more than the present and the earlier tokens.
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
        tokens = self.vars[ids]
        spec = declared_spec(tokens)
        rank = 0 if spec is None or spec[1].kind not in "iu" else len(spec[0])
        if rank not in (1, 2) or (rank == 2) == bool(tokens.sequence_levels):
            raise ShapeError(
                f"{net.name!r}: {ids!r} does not hold one integer a row: want sequences [-1] or"
                " padded ones [-1, -1]"
            )
        self.packed = rank == 1
        self.past = f"{ids}.past"
        self.specs: dict[str, ArraySpec] = {ids: ((-1,) * rank, tokens.dtype or np.dtype(int))}
        for name in self.vars.keys() - self.moving:
            declared = declared_spec(self.vars[name])
            if declared is not None:
                self.specs[name] = declared
        self.numbers: set[str] = set()  # of positions
        self.across: set[str] = set()  # what tokens attend to of other sequences
        self.step = OneStep(OpList(f"{net.name} step", PLAIN), packed=self.packed)
        self.inner: dict[str, VarDecl] = {}  # declarations that the whole net does not have

    def result(self) -> OneStep:
        step = self.step
        needed = {name for op in self.ops for name in op.input_names()} | {self.scores}
        for index, desc in enumerate(self.ops):
            if desc.type == "recurrent":
                self._open(desc, needed, f"{index}/")
                self._as_declared(desc.output_names())
            elif desc.type == _ATTENTION:
                self._attend(desc)
            elif desc.type == "positions":
                self._count(desc)
            elif desc.type == "rotary_embedding":
                self._rotate(desc)
            else:
                self._check_rows(desc)
                self._add(desc)
        step.blocks = not step.memories and (bool(step.caches) or not self.packed)
        self._declare()
        step.net = prune(step.net, [self.scores, *(memory.state for memory in step.memories)])
        written = {name for op in step.net.ops for name in op.output_names()}
        read = {name for op in step.net.ops for name in op.input_names()}
        step.past = self.past if self.past in read else ""
        steady = read - written - self.inner.keys() - {self.ids}
        step.context = sorted(steady | {m.boot for m in step.memories if m.boot})
        step.of_sequences = self.across
        return step

    def _declare(self) -> None:
        """Declare the variables of the step."""
        step = self.step
        of_tokens = bool(step.caches) or not self.packed
        names = (name for op in step.net.ops for name in (*op.input_names(), *op.output_names()))
        for name in dict.fromkeys(names):
            var = self.inner.get(name) or self.vars.get(name) or VarDecl(name)
            if name == self.ids and of_tokens:
                var = var.changed(shape=self.specs[name][0])
            elif name in self.moving:
                # Of other tokens than whole sequences hold, so of other shapes.
                var = var.changed(shape=None) if of_tokens else var.changed(sequence_levels=0)
            step.net.vars.append(var)

    def _fail(self, why: str) -> NoReturn:
        raise OpscopeError(f"{self.title}: {why}")

    def _shape(self, name: str) -> Shape:
        if name not in self.specs:
            self._fail(f"the shape of {name!r} is not known; declare it")
        return self.specs[name][0]

    def _add(self, node: OpNode) -> None:
        self.step.net.ops.append(node)
        op = Operator(node)
        if all(name in self.specs for name in op.input_vars()):
            self.specs.update(infer_one(op, self.specs, {}))
        else:
            self._as_declared(node.output_names())

    def _as_declared(self, names: Collection[str]) -> None:
        for name in names:
            spec = declared_spec(self.vars[name]) if name in self.vars else None
            if spec is not None:
                self.specs.setdefault(name, spec)

    def _check_rows(self, desc: OpNode) -> None:
        op = Operator(desc)
        if op.type == "embedding" and self.numbers & set(op.inputs["ids"]):
            (table,) = op.inputs["w"]
            self.step.positions[table] = self._shape(table)[0]
        if op.type == _IDENTITY_IN_TEST or op.type in _OF_SEQUENCES:
            return
        known = all(name in self.specs for name in op.input_vars())
        fixed = {name for name in op.input_vars() if name not in self.moving}
        if not (known and self._by_rows(op, fixed)):
            raise OpscopeError(
                f"{self.title}: {op.title()} does not work on each row by itself, so it cannot run"
                f" step by step between {self.ids!r} and {self.scores!r}"
            )

    def _by_rows(self, op: Operator, fixed: set[str]) -> bool:
        """Whether an operator computes each token by itself."""
        kinds = row_kinds(op, self.specs, self.moving, fixed)
        if kinds is None or any(kind != EACH for kind in kinds.values()):
            return False
        if self.packed:
            return True
        # The same of the axis of tokens: of each hypothesis [T, ...].
        attrs = dict(op.node.attrs)
        rank = len(self.specs[next(n for n in op.input_vars() if n in self.moving)][0])
        # `stack` counts axes of its result, which has one more.
        made = infer_one(op, self.specs, {}).values()
        most = max([rank, *[len(shape) for shape, _ in made]])
        for name in _AXES:
            axes = op.attrs.get(name)
            if axes is not None:  # counted from the end, they stay where they are
                several = axes if isinstance(axes, tuple) else (axes,)
                counted = tuple(axis % most - most for axis in several)
                attrs[name] = counted if isinstance(axes, tuple) else counted[0]
        specs = dict(self.specs)
        for name in op.input_vars():
            shape, dtype = self.specs[name]  # of a name that comes twice, too
            if name in self.moving or len(shape) >= rank:
                specs[name] = shape[1:], dtype
        kinds = row_kinds(Operator(op.node.changed(attrs=attrs)), specs, self.moving, fixed)
        return kinds is not None and all(kind == EACH for kind in kinds.values())

    # -- attention and positions ------------------------------------------------------------------

    def _read_past(self) -> str:
        self.inner[self.past] = make_var(self.past, [-1], np.int64, INPUT)
        self.specs[self.past] = (-1,), np.dtype(np.int64)
        return self.past

    def _attend(self, desc: OpNode) -> None:
        op = Operator(desc)
        inputs: dict[str, Any] = {slot: names[0] for slot, names in op.inputs.items()}
        query, *read = (inputs[slot] for slot in ("query", "key", "value"))
        own = [name for name in read if name in self.moving]
        mask = inputs.get("mask", "")
        if not own and query in self.moving and mask not in self.moving:
            self.across.update(name for name in inputs.values() if name not in self.moving)
            if op.attrs["causal"]:
                inputs["past"] = self._read_past()
        elif len(own) < 2 or query not in self.moving or mask or not op.attrs["causal"]:
            self._fail(
                f"{op.title()} does not look at earlier tokens alone: want causal=True, and no mask"
            )
        else:
            inputs["past"] = self._read_past()
            axis = 1 if op.attrs["heads"] else len(self._shape(own[0])) - 2
            inputs["key"], inputs["value"] = (self._cached(name, axis) for name in own)
            # Prompts come without padding, and what lies behind a short one is never looked at.
            inputs.pop("key_mask", None)
        outputs = {"out": op.outputs["out"][0]}
        self._add(make_op(desc.type, inputs, outputs, desc.attrs, source=desc.source))

    def _cached(self, name: str, axis: int) -> str:
        """The variable with what `name` was at all tokens so far."""
        cache = f"{name}.cache"
        if cache not in self.inner:
            shape, dtype = self._shape(name), self.specs[name][1]
            if axis < 1:
                self._fail(f"{name!r} {list(shape)} has no axis of sequences")
            dims = tuple(-1 if at in (0, axis) else size for at, size in enumerate(shape))
            if -1 in dims[1:axis] + dims[axis + 1 :]:
                self._fail(f"the width of {name!r} is not known; declare it")
            self.inner[cache] = make_var(cache, dims, dtype, STATE)
            self.specs[cache] = dims, dtype
            self.step.caches.append(Cache(cache, axis, dims, dtype))
            inputs = {"cache": cache, "x": name, "past": self.past}
            self._add(make_op("cache_append", inputs, {"out": cache}, {"axis": axis}))
        return cache

    def _count(self, desc: OpNode) -> None:
        op = Operator(desc)
        (x,) = op.inputs["x"]
        axis = op.attrs["axis"] % len(self._shape(x))
        if axis != (0 if self.packed else 1):
            self._fail(f"{op.title()} does not count along the tokens")
        self._add_count(x, axis, op.outputs["out"][0])

    def _add_count(self, x: str, axis: int, out: str) -> None:
        inputs = {"x": x, "past": self._read_past()}
        self._add(make_op("positions", inputs, {"out": out}, {"axis": axis}))
        self.numbers.add(out)
        self.moving.add(out)

    def _rotate(self, desc: OpNode) -> None:
        op = Operator(desc)
        (x,) = op.inputs["x"]
        if "positions" in op.inputs:
            if op.inputs["positions"][0] not in self.moving:
                self._fail(f"{op.title()} has positions that do not depend on {self.ids!r}")
            self._add(desc)
            return
        rank = len(self._shape(x))
        numbers = f"{op.outputs['out'][0]}.positions"
        self._add_count(x, 0 if self.packed else rank - 2, numbers)
        if rank == 4:  # heads are an axis of their own
            one = f"{numbers}.of_heads"
            self._add(make_op("unsqueeze", {"x": numbers}, {"out": one}, {"axes": [1]}))
            self.moving.add(one)
            numbers = one
        inputs = {"x": x, "positions": numbers}
        self._add(make_op(desc.type, inputs, {"out": op.outputs["out"][0]}, desc.attrs))

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
