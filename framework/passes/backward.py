"""The backward pass: appends gradient operators to an op list.

A gradient maker is a pure function of one operator. This module strings them together in reverse
order, sums the gradients of variables that are used several times, and versions every variable, so
that a gradient which would read an overwritten value is refused instead of computed wrongly.

Sources: Paddle's `backward.cc` (2017) for renaming and summing, Caffe2's `core.py` for versions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..base.dtypes import is_float
from ..base.errors import GradientError, VariableError, nearest
from ..ir.desc import (
    BACKWARD,
    FORWARD,
    INPUT,
    PARAMETER,
    STATE,
    as_names,
    format_location,
    make_op,
    make_var,
)
from ..ir.gradient_args import GradientArgs, VersionedName
from ..ir.names import (
    CONCAT_OP,
    DENSE_OP,
    EMPTY,
    FILL_OP,
    SEED_OP,
    SUM_OP,
    grad_name,
    grad_part_name,
    grad_version_name,
    rows_name,
)
from ..ir.op_list import OpList, OpNode, SourceLocation, VarDecl
from ..ir.operation import expand_op
from ..ir.registry import lookup

_SUM_WIDTH = 32
"""Most gradients that one operator adds up. What is used more often is added up in a tree of sums,
as the gradients arrive: few of them are in memory at one time, a fused loop of each has bounded C
text, and errors of rounding grow with the height of the tree."""

Value = tuple[str, int]
"""A variable at one version: version 0 comes from outside, each write makes the next."""


@dataclass
class BackwardResult:
    """Operators and variables to append, and variable -> name of its gradient."""

    ops: list[OpNode] = field(default_factory=list)
    vars: list[VarDecl] = field(default_factory=list)
    gradients: dict[str, str] = field(default_factory=dict)


class _OperatorGradient(GradientArgs):
    """The gradient of operator `index`, written for a builder of the whole backward pass."""

    def __init__(self, builder: _Builder, index: int, node: OpNode) -> None:
        self._builder = builder
        self._index = index
        self.node = node
        self.attrs = node.attrs
        self._inputs = node.inputs
        self._outputs = node.outputs

    def has(self, slot: str) -> bool:
        return slot in self._inputs or slot in self._outputs

    def inputs(self, slot: str) -> list[VersionedName]:
        seen = self._builder.seen[self._index]
        return [VersionedName(name, seen[name]) for name in self._inputs.get(slot, ())]

    def outputs(self, slot: str) -> list[VersionedName]:
        latest = self._builder.writes[self._index]
        return [
            VersionedName(name, latest[name])
            for name in self._outputs.get(slot, ())
            if name != EMPTY
        ]

    def output_grads(self, slot: str) -> list[str]:
        versions = self._builder.writes[self._index]
        return [
            self._builder.gradient_of((name, versions[name]))
            for name in self._outputs.get(slot, ())
            if name != EMPTY
        ]

    def arriving_grads(self, slot: str) -> list[str]:
        versions = self._builder.writes[self._index]
        parts = self._builder.arrived
        return [
            self._builder.gradient_of((name, versions[name]))
            if name != EMPTY and parts((name, versions[name]))
            else EMPTY
            for name in self._outputs.get(slot, ())
        ]

    def input_grads(self, slot: str) -> list[str]:
        seen = self._builder.seen[self._index]
        return [self._builder.new_part((name, seen[name])) for name in self._inputs.get(slot, ())]

    def needs(self, slot: str) -> bool:
        seen = self._builder.seen[self._index]
        return any(
            (name, seen[name]) in self._builder.needed for name in self._inputs.get(slot, ())
        )

    def sparse_rows(self, grad: str) -> str:
        self._builder.sparse.add(grad)
        return rows_name(grad)

    def op(
        self,
        op_type: str,
        inputs: Mapping[str, str | Sequence[str]],
        outputs: Mapping[str, str | Sequence[str]],
        attrs: Mapping[str, Any] | None = None,
    ) -> OpNode:
        entry = lookup(op_type)
        reads = {}
        for slot, given in inputs.items():
            names = [given] if isinstance(given, str) else list(given)
            known = entry.input_slots.get(slot)
            # Only a value can be overwritten; the shape of a variable stays.
            if known is None or not known.shape_only:
                for name in names:
                    if isinstance(name, VersionedName):
                        self._builder.check_readable(name, self._index)
            reads[slot] = [str(name) for name in names]
        for known in entry.inputs:
            if known.name in inputs and not reads[known.name] and not known.optional:
                raise GradientError(
                    f"{self._builder.title(self._index)} has no variable in its slot"
                    f" {known.name!r}, which the gradient reads"
                )
        writes = {}
        for slot, given in outputs.items():
            names = as_names(given)
            if any(name != EMPTY for name in names):
                writes[slot] = names
        source = self.node.source or SourceLocation()
        device = self.node.device
        return make_op(op_type, reads, writes, attrs, role=BACKWARD, device=device, source=source)


def _plain(op: OpNode) -> list[OpNode]:
    """What runs for an operator that a net keeps whole; its gradient is the gradient of this."""
    return expand_op(op) if lookup(op.type).whole else [op]


class _Builder:
    """State of one backward pass over the forward operators of a net."""

    def __init__(self, net: OpList, stop: Sequence[str]) -> None:
        forward = [op for op in net.ops if op.role == FORWARD]
        self.ops = [op for given in forward for op in _plain(given)]
        self.entries = [lookup(op.type) for op in self.ops]
        self.vars = {var.name: var for var in net.vars}
        self.stopped = set(stop) | {var.name for var in net.vars if var.stop_gradient}
        self.result: list[OpNode] = []
        self.needed: set[Value] = set()
        self.sparse: set[str] = set()
        self._parts: dict[Value, list[list[str]]] = {}  # those summed most often are the last list
        self._crowded: list[Value] = []
        self._final: dict[Value, str] = {}
        self._renames: dict[str, str] = {}
        self._given: set[str] = set()
        self._part_count: dict[str, int] = {}
        self._number_versions()

    # -- versions ------------------------------------------------------------------------------

    def _number_versions(self) -> None:
        self.seen: list[dict[str, int]] = []
        self.writes: list[dict[str, int]] = []
        self.writers: dict[Value, int] = {}
        self.version: dict[str, int] = {}
        for index, op in enumerate(self.ops):
            self.seen.append({name: self.version.get(name, 0) for name in op.input_names()})
            written = {}
            for name in op.output_names():
                written[name] = self.version[name] = self.version.get(name, 0) + 1
                self.writers[(name, written[name])] = index
            self.writes.append(written)

    def latest(self, name: str) -> Value:
        return name, self.version.get(name, 0)

    def check_readable(self, name: VersionedName, reader: int) -> None:
        """Gradients run after all forward operators: they see the last version only."""
        if name.version == self.version.get(name, 0):
            return
        history = []
        for version in range(self.version[name] + 1):
            writer = self.writers.get((str(name), version))
            what = "given from outside" if writer is None else f"written by {self.title(writer)}"
            history.append(f"version {version} {what}")
        raise GradientError(
            f"the gradient of {self.title(reader)} reads version {name.version} of {str(name)!r},"
            f" which is overwritten: {'; '.join(history)}"
        )

    def title(self, index: int) -> str:
        op = self.ops[index]
        where = format_location(op.source)
        return f"op {index} ({op.type})" + (f" at {where}" if where else "")

    # -- what needs a gradient -----------------------------------------------------------------

    def find_needed(self, roots: Sequence[Value]) -> None:
        """Values that depend on `roots` through operators that have a gradient."""
        self.needed = {root for root in roots if root[0] not in self.stopped}
        for index, op in enumerate(self.ops):
            seen, written = self.seen[index], self.writes[index]
            if self.entries[index].no_gradient:
                continue
            if not any((name, version) in self.needed for name, version in seen.items()):
                continue
            slots = self.entries[index].output_slots
            for slot, names in op.outputs.items():
                if slot in slots and slots[slot].intermediate:
                    continue
                for name in names:
                    if name != EMPTY and name not in self.stopped and self._floating(name):
                        self.needed.add((name, written[name]))

    def refuse_views(self) -> None:
        """Gradients follow names: one that passes from a matrix to a view of it would be lost."""
        needed = {name for name, _ in self.needed}
        for index, op in enumerate(self.ops):
            for name in (*op.input_names(), *op.output_names()):
                var = self.vars.get(name)
                if var is None or var.view is None:
                    continue
                if name in needed or var.view.base in needed:
                    raise GradientError(
                        f"no gradient is built through views: {self.title(index)} uses {name!r},"
                        f" a view of {var.view.base!r}; use slice, split or concat instead"
                    )

    def _floating(self, name: str) -> bool:
        var = self.vars.get(name)
        dtype = var.dtype if var is not None else None
        return dtype is None or is_float(dtype)

    # -- gradients by name ---------------------------------------------------------------------

    def new_part(self, value: Value) -> str:
        if value not in self.needed:
            return EMPTY
        part = self._part_name(value[0])
        parts = self._parts.setdefault(value, [[]])[0]
        parts.append(part)
        # Noted only, as the operators that write these parts are not in the list yet.
        if len(parts) % _SUM_WIDTH == 0:
            self._crowded.append(value)
        return part

    def _part_name(self, name: str) -> str:
        number = self._part_count[name] = self._part_count.get(name, -1) + 1
        return grad_part_name(name, number)

    def arrived(self, value: Value) -> bool:
        """Whether any gradient of a value has been computed or given."""
        return value in self._parts

    def seed(self, value: Value, gradient: str) -> None:
        """A gradient that the caller gives."""
        self._given.add(gradient)
        self._parts.setdefault(value, [[]])[0].append(gradient)

    def wanted_name(self, value: Value) -> str:
        name, version = value
        if value == self.latest(name):
            return grad_name(name)
        return grad_version_name(name, version)

    def gradient_of(self, value: Value) -> str:
        """The whole gradient of a value: its one part renamed, the sum of several, or zeros."""
        if value in self._final:
            return self._final[value]
        parts = [part for level in reversed(self._parts.get(value, [])) for part in level]
        final = self.wanted_name(value)
        if not parts:
            fill = make_op(FILL_OP, {"x": value[0]}, {"out": final}, {"value": 0.0}, role=BACKWARD)
            self.result.append(fill)
        elif len(parts) == 1 and parts[0] in self._given:
            final = parts[0]  # the caller's own name stays
        # Renamed instead of copied: most variables are used once, and need no operator for it.
        elif len(parts) == 1:
            self._rename(parts[0], final)
        else:
            self._sum(parts, final, value[0])
        self._final[value] = final
        return final

    def _rename(self, part: str, final: str) -> None:
        self._renames[part] = final
        if part in self.sparse:
            self.sparse.add(final)
            self._renames[rows_name(part)] = rows_name(final)

    def _sum(self, parts: Sequence[str], final: str, name: str) -> None:
        sparse = [part for part in parts if part in self.sparse]
        # Rows that come twice are left so: updates merge them, and a sum would need the whole
        # table.
        if len(sparse) == len(parts):
            rows = [rows_name(part) for part in parts]
            axis = {"axis": 0}
            self.result += [
                make_op(CONCAT_OP, {"x": parts}, {"out": final}, axis, role=BACKWARD),
                make_op(CONCAT_OP, {"x": rows}, {"out": rows_name(final)}, axis, role=BACKWARD),
            ]
            self.sparse.add(final)
            return
        dense = []
        for part in parts:
            if part in sparse:
                inputs = {"x": part, "rows": rows_name(part), "like": name}
                part = f"{part}@DENSE"
                self.result.append(make_op(DENSE_OP, inputs, {"out": part}, role=BACKWARD))
            dense.append(part)
        while len(dense) > _SUM_WIDTH:
            starts = range(0, len(dense), _SUM_WIDTH)
            dense = [self._part_sum(dense[i : i + _SUM_WIDTH], name) for i in starts]
        self.result.append(make_op(SUM_OP, {"x": dense}, {"out": final}, role=BACKWARD))

    def _part_sum(self, parts: Sequence[str], name: str) -> str:
        """A further part of the gradient of `name`: the sum of some."""
        if len(parts) == 1:
            return parts[0]
        total = self._part_name(name)
        self.result.append(make_op(SUM_OP, {"x": parts}, {"out": total}, role=BACKWARD))
        return total

    def _sum_crowded(self) -> None:
        """Put a sum in the place of gradients of which enough have been computed."""
        for value in self._crowded:
            for number, level in enumerate(levels := self._parts[value]):
                dense = [part for part in level if part not in self.sparse]
                if len(dense) < _SUM_WIDTH:
                    break
                if number + 1 == len(levels):
                    levels.append([])
                level[:] = [part for part in level if part in self.sparse]
                for start in range(0, len(dense), _SUM_WIDTH):
                    some = dense[start : start + _SUM_WIDTH]
                    levels[number + 1].append(self._part_sum(some, value[0]))
        self._crowded.clear()

    # -- the sweep -----------------------------------------------------------------------------

    def sweep(self) -> None:
        for index in range(len(self.ops) - 1, -1, -1):
            written, seen, entry = self.writes[index], self.seen[index], self.entries[index]
            if entry.no_gradient or not any(v in self.needed for v in seen.items()):
                continue
            if not any(v in self._parts and v in self.needed for v in written.items()):
                continue
            if entry.gradient is None:
                raise GradientError(
                    f"{self.title(index)} has no gradient maker; register one, or say no_gradient"
                )
            args = _OperatorGradient(self, index, self.ops[index])
            made_ops = entry.gradient(args)
            # A maker may write the gradients of inputs that nothing needs; such operators have no
            # outputs left.
            self.result += [op for op in made_ops if op.output_names()]
            self._sum_crowded()

    def finish(self) -> list[OpNode]:
        """The gradient operators with every renamed part in place."""
        return [op.renamed(self._renames) for op in self.result]


def build_backward(
    net: OpList,
    *,
    targets: str | Sequence[str] | Mapping[str, str | Sequence[str]] | None = None,
    wrt: Sequence[str] | None = None,
    stop: Sequence[str] = (),
    required: bool = True,
    scale: str = "",
) -> BackwardResult:
    """Gradient operators for the forward operators of `net`; see `PlainNet.add_backward_ops`.

    Args:
        targets: as there; several given gradients of one variable are summed.
        required: whether it is an error that no gradient flows from `targets` to `wrt`.
        scale: variable that holds the factor of the targets; "": 1.

    Raises:
        GradientError: nothing to differentiate, an operator without a gradient maker, or a gradient
            that reads an overwritten value.
        VariableError: a target or variable that the net does not have.
    """
    builder = _Builder(net, stop)
    if targets is None:
        targets = _default_target(builder)
    seeds = dict(targets) if isinstance(targets, Mapping) else dict.fromkeys(as_names(targets))
    named = (
        list(wrt)
        if wrt is not None
        else [
            var.name
            for var in net.vars
            if var.kind == PARAMETER and var.name not in builder.stopped
        ]
    )
    known = set(builder.vars) | set(builder.version)
    for name in (*seeds, *named):
        if name not in known:
            raise VariableError(f"the net has no variable {name!r}{nearest(name, known)}")
    roots = {name: _root(builder, name) for name in named}
    builder.find_needed(list(roots.values()))
    builder.refuse_views()
    result = BackwardResult()
    for name, given in seeds.items():
        value = builder.latest(name)
        # A target that depends on none of the parameters adds nothing to their gradients.
        if value not in builder.needed:
            continue
        if given is None:
            given = builder.new_part(value)
            builder.result.append(_seed_op(name, given, scale))
            continue
        if scale:
            raise GradientError(
                f"a loss scale wants losses without a gradient of their own: {name!r}"
            )
        var = builder.vars.get(name)
        shape = var.shape if var is not None else None
        for one in as_names(given):
            builder.seed(value, one)
            result.vars.append(_external_gradient(one, shape, var))
    if required and not any(builder.latest(name) in builder.needed for name in seeds):
        raise GradientError(_why_unreachable(builder, list(seeds), named))
    builder.sweep()
    for name, root in roots.items():
        if root in builder.needed and builder.arrived(root):
            result.gradients[name] = builder.gradient_of(root)
    result.ops = builder.finish()
    _refuse_second(net, result)
    return result


def _refuse_second(net: OpList, result: BackwardResult) -> None:
    """Refuse gradients that the net computes already: the sums of both would have one name."""
    writers = {name: op for op in net.ops for name in op.output_names() if name != EMPTY}
    for name in (name for op in result.ops for name in op.output_names()):
        if name in writers:
            own = f"{name!r} is written by {writers[name].type} already"
            raise GradientError(
                f"the net has these gradients: {own}; ask for the gradients of all targets in"
                " one add_backward_ops([cost, other]), or by wrt for gradients of other variables"
            )


def _seed_op(name: str, gradient: str, scale: str) -> OpNode:
    """The gradient of a target with respect to itself: 1, or the value of the variable `scale`."""
    if scale:
        inputs = {"x": name, "scale": scale}
        return make_op(SEED_OP, inputs, {"out": gradient}, role=BACKWARD)
    return make_op(FILL_OP, {"x": name}, {"out": gradient}, {"value": 1.0}, role=BACKWARD)


def _default_target(builder: _Builder) -> str:
    if not builder.ops:
        raise GradientError("the net has no forward operators to differentiate")
    entry = builder.entries[-1]
    for slot, names in builder.ops[-1].outputs.items():
        if not entry.output_slots[slot].intermediate:
            return names[0]
    raise GradientError(f"{builder.title(len(builder.ops) - 1)} has no output to differentiate")


def _root(builder: _Builder, name: str) -> Value:
    """Version 0 for what comes from outside, the last one for what the net computes."""
    writer = builder.writers.get((name, 1))
    var = builder.vars.get(name)
    given = var is not None and var.kind in (PARAMETER, INPUT, STATE)
    # What the first writer reads itself was there before: its gradient is the given value's.
    outside = writer is None or name in builder.seen[writer] or given
    return (name, 0) if outside else builder.latest(name)


def _external_gradient(name: str, shape: Any, var: VarDecl | None) -> VarDecl:
    dtype = var.dtype if var is not None else None
    return make_var(name, shape, dtype, INPUT)


def _why_unreachable(builder: _Builder, targets: list[str], named: list[str]) -> str:
    if not named:
        return "the net has no parameter to differentiate with respect to; name variables in `wrt`"
    blocked = [
        f"{builder.title(index)} has none: {entry.no_gradient}"
        for index, entry in enumerate(builder.entries)
        if entry.no_gradient
        and any(value in builder.needed for value in builder.seen[index].items())
    ]
    why = f"; on the way {'; '.join(blocked)}" if blocked else ""
    return f"no gradient flows from {', '.join(targets)} to {', '.join(named)}{why}"
