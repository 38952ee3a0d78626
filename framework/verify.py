"""The verifier: everything that can be wrong with a NetDesc and that needs no data to see.

`problems` lists all of it; `verify` raises the first error as the package's own exception type. The
rules run over one description at a time and go down into nested nets and step nets.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from ..proto import net_pb2 as pb
from .backend import parse_place
from .desc import (
    BACKWARD,
    FORWARD,
    INPUT,
    OPTIMIZE,
    OUTPUT,
    PARAMETER,
    PLAIN,
    STATE,
    TEMPORARY,
    format_location,
    input_names,
    output_names,
)
from .errors import (
    AttributeTypeError,
    CycleError,
    DeviceError,
    FormatError,
    GradientError,
    OpscopeError,
    ShapeError,
    SlotError,
    UnknownOperatorError,
    VariableError,
    format_shape,
    nearest,
)
from .infer import declared_meta, fits, infer_metas, view_shape
from .names import EMPTY
from .operation import Operator
from .passes import expand_op
from .shape import Meta

ERROR, WARNING = "error", "warning"

KINDS: dict[str, type[OpscopeError]] = {
    "unknown-operator": UnknownOperatorError,
    "slot": SlotError,
    "attribute": AttributeTypeError,
    "device": DeviceError,
    "undefined": VariableError,  # nobody gives it a value
    "order": VariableError,  # read before it is written
    "cycle": CycleError,
    "doubly-defined": VariableError,
    "unused": VariableError,  # a warning
    "shape": ShapeError,
    "view": ShapeError,
    "role": GradientError,
    "steps": FormatError,
}
"""Every kind of problem with the exception that `verify` raises for it."""

_KIND_OF = {
    UnknownOperatorError: "unknown-operator",
    SlotError: "slot",
    AttributeTypeError: "attribute",
    DeviceError: "device",
    ShapeError: "shape",
}
_GIVEN = frozenset({INPUT, PARAMETER, STATE})  # kinds that hold a value before the first operator
_REWRITABLE = frozenset({PARAMETER, STATE})


@dataclass(frozen=True)
class Problem:
    """One finding.

    Attributes:
        severity: "error" or "warning". kind: a key of `KINDS`.
        message: one sentence that names operator, variables, shapes and source line.
        op: index of the operator in the outermost net; -1 where no single one is meant.
    """

    severity: str
    kind: str
    message: str
    op: int = -1


def verify(desc: pb.NetDesc, stage: str = "", *, undeclared: bool = False) -> None:
    """Check a net; warnings do not count.

    Args:
        stage: what has just happened to the net (`after pass fuse`), for the message.
        undeclared: whether it may read variables that it does not declare, from the scope.

    Raises:
        OpscopeError: the first error, as the type that `KINDS` tells; others follow in its text.
    """
    found = [
        problem
        for problem in problems(desc)
        if problem.severity == ERROR and not (undeclared and problem.kind == "undefined")
    ]
    if not found:
        return
    title = f"net {desc.name!r}" if desc.name else "net"
    prefix = f"{title} {stage}".rstrip()
    more = "".join(f"\n  also: {problem.message}" for problem in found[1:])
    raise KINDS[found[0].kind](f"{prefix}: {found[0].message}{more}")


def problems(desc: pb.NetDesc) -> list[Problem]:
    """All that is wrong or suspicious: errors first, each group in the order of operators."""
    found = _Check(desc).run()
    return sorted(found, key=lambda problem: (problem.severity != ERROR, problem.op))


@dataclass
class _Check:
    """One net under examination.

    `given` holds variables that have a value before the first operator runs (links of a step net),
    `outer` those of the nets around it, which a nested net may read.
    """

    desc: pb.NetDesc
    given: frozenset[str] = frozenset()
    outer: frozenset[str] = frozenset()
    wanted: frozenset[str] = frozenset()  # results that somebody outside takes
    found: list[Problem] = field(default_factory=list)

    def run(self) -> list[Problem]:
        self.vars = {var.name: var for var in self.desc.vars}
        self.ops = list(self.desc.ops)
        self.root = {v.name: v.view.base for v in self.desc.vars if v.HasField("view")}
        self.operators: dict[int, Operator] = {}
        self.unsound: set[str] = set()
        self._number_writers()
        for rule in (
            self._declarations,
            self._views,
            self._operators,
            self._roles,
            self._definitions,
            self._double_writes,
            self._steps,
            self._nested,
            self._unused,
            self._shapes,
        ):
            rule()
        return self.found

    # -- helpers -------------------------------------------------------------------------------

    def add(self, kind: str, message: str, op: int = -1, severity: str = ERROR) -> None:
        self.found.append(Problem(severity, kind, message, op))

    def title(self, index: int) -> str:
        where = format_location(self.ops[index].source)
        name = f"op {index} ({self.ops[index].type})"
        return f"{name} at {where}" if where else name

    def kind_of(self, name: str) -> int:
        var = self.vars.get(name)
        return TEMPORARY if var is None else var.kind

    def base(self, name: str) -> str:
        return self.root.get(name, name)

    def reads(self, index: int) -> list[str]:
        return [self.base(name) for name in input_names(self.ops[index]) if name != EMPTY]

    def writes(self, index: int) -> list[str]:
        return [self.base(name) for name in output_names(self.ops[index]) if name != EMPTY]

    def _number_writers(self) -> None:
        self.writers: dict[str, list[int]] = {}
        for index in range(len(self.ops)):
            for name in dict.fromkeys(self.writes(index)):
                self.writers.setdefault(name, []).append(index)
        self.linked_out = {link.outer for step in self.desc.steps for link in step.out_links}

    def has_value(self, name: str) -> bool:
        """Whether a variable holds something before the first operator."""
        if name in self.given or name in self.linked_out or self.kind_of(name) in _GIVEN:
            return True
        return name in self.outer and name not in self.writers

    # -- rules ---------------------------------------------------------------------------------

    def _declarations(self) -> None:
        seen = set()
        for var in self.desc.vars:
            where = format_location(var.source)
            at = f" at {where}" if where else ""
            if not var.name or var.name == EMPTY:
                self.add("undefined", f"a variable{at} is named {var.name!r}")
            elif var.name in seen:
                self.add("doubly-defined", f"variable {var.name!r}{at} is declared twice")
            seen.add(var.name)
            if var.has_dims and any(dim < -1 for dim in var.dims):
                self.add("shape", f"variable {var.name!r}{at} has the dims {list(var.dims)}")
            if var.initializer.type:
                self._initializer(var)

    def _initializer(self, var: pb.VarDesc) -> None:
        prefix = f"the initialiser of {var.name!r}"
        op = self._decode(var.initializer, -1, f"{prefix}: ")
        if op is not None and op.output_vars() != [var.name]:
            written = ", ".join(op.output_vars()) or "nothing"
            self.add("slot", f"{prefix}: {op.title()} writes {written}, not {var.name}")

    def _views(self) -> None:
        for name, base in self.root.items():
            why = self._view_fault(self.vars[name], base)
            if why:
                self.add("view", why)
                self.unsound.add(name)

    def _view_fault(self, var: pb.VarDesc, base: str) -> str:
        title = f"view {var.name!r}"
        if base not in self.vars:
            return f"{title}: its base {base!r} is not declared{nearest(base, self.vars)}"
        if base in self.root:
            root = self.root[base]
            return f"{title}: its base {base!r} is itself a view; take a rectangle of {root!r}"
        target = self.vars[base]
        if var.dtype and target.dtype and var.dtype != target.dtype:
            names = (pb.DataType.Name(var.dtype), pb.DataType.Name(target.dtype))
            return f"{title}: it is {names[0].lower()} and its base {base!r} {names[1].lower()}"
        if not target.has_dims:
            return ""
        try:
            extents = view_shape(var, tuple(target.dims))
        except ShapeError as error:
            return str(error)
        if var.has_dims and not fits(tuple(var.dims), extents):
            held, cut = format_shape(tuple(var.dims)), format_shape(extents)
            return f"view {var.name!r}: it is declared {held} and its ranges make {cut}"
        return ""

    def _operators(self) -> None:
        for index, desc in enumerate(self.ops):
            op = self._decode(desc, index)
            if op is not None:
                self.operators[index] = op

    def _decode(self, desc: pb.OpDesc, index: int, prefix: str = "") -> Operator | None:
        try:
            op = Operator(desc, index)
            if desc.device:
                parse_place(desc.device)
        except OpscopeError as error:
            self.add(_KIND_OF.get(type(error), "attribute"), f"{prefix}{error}", index)
            return None
        for kind, slots in (("input", desc.inputs), ("output", desc.outputs)):
            names = [slot.name for slot in slots]
            for name in {name for name in names if names.count(name) > 1}:
                self.add("slot", f"{prefix}{op.title()}: {kind} slot {name!r} comes twice", index)
        return op

    def _roles(self) -> None:
        order = (FORWARD, BACKWARD, OPTIMIZE)
        latest = 0
        for index, op in enumerate(self.ops):
            rank = order.index(op.role) if op.role in order else 0
            if rank < order.index(self.ops[latest].role):
                name = pb.OpDesc.Role.Name(op.role)
                before = pb.OpDesc.Role.Name(self.ops[latest].role)
                self.add(
                    "role",
                    f"{self.title(index)} is {name} and stands behind {self.title(latest)},"
                    f" which is {before}",
                    index,
                )
            else:
                latest = index

    def _definitions(self) -> None:
        """Every value that is read was given or written before."""
        written: set[str] = set()
        cycles: set[frozenset[int]] = set()
        for index, op in enumerate(self.ops):
            for name in dict.fromkeys(name for name in input_names(op) if name != EMPTY):
                root = self.base(name)
                if root in written or self.has_value(root) or name in self.given:
                    continue
                later = self.writers.get(root)
                if not later:
                    self._undefined(index, name)
                    continue
                chain = self._chain(later[0], index)
                if chain is None:
                    self.add(
                        "order",
                        f"{self.title(index)} reads {name!r} before {self.title(later[0])}"
                        " writes it",
                        index,
                    )
                elif frozenset(chain) not in cycles:
                    cycles.add(frozenset(chain))
                    shown = " -> ".join(self.title(number) for number in (index, *chain))
                    self.add("cycle", f"operators wait for each other: {shown}", index)
            written.update(self.writes(index))
        for name, var in self.vars.items():
            if var.kind == OUTPUT and self.base(name) not in written and not self.has_value(name):
                # not an error: operators may be added still
                self.add("undefined", f"no operator writes the output {name!r}", severity=WARNING)

    def _undefined(self, index: int, name: str) -> None:
        if name in self.vars:
            why = "a temporary that no operator writes"
        else:
            known = [*self.vars, *self.writers, *self.given]
            why = f"neither declared nor written before{nearest(name, known)}"
        self.add("undefined", f"{self.title(index)} reads {name!r}, {why}", index)

    def _chain(self, start: int, goal: int) -> list[int] | None:
        """Operators from `start` to `goal`, each waiting for a value of the next; None if none."""
        came: dict[int, int] = {start: -1}
        queue = [start]
        for here in queue:
            if here == goal:
                path = [here]
                while came[path[-1]] >= 0:
                    path.append(came[path[-1]])
                return path[::-1]
            for name in self.reads(here):
                if self.has_value(name) or name not in self.writers:
                    continue
                before = [w for w in self.writers[name] if w < here]
                source = before[-1] if before else self.writers[name][0]
                if source not in came:
                    came[source] = here
                    queue.append(source)
        return None

    def _double_writes(self) -> None:
        first: dict[str, int] = {}
        for index, op in enumerate(self.ops):
            names = [name for name in output_names(op) if name != EMPTY]
            for name in {name for name in names if names.count(name) > 1}:
                self.add("doubly-defined", f"{self.title(index)} writes {name!r} twice", index)
            reads = set(self.reads(index))
            for name in dict.fromkeys(names):
                if name in self.root or name in reads or self.kind_of(name) in _REWRITABLE:
                    continue
                if name in first:
                    self.add(
                        "doubly-defined",
                        f"{self.title(index)} writes {name!r}, which {self.title(first[name])}"
                        " defined, without reading it",
                        index,
                    )
                elif self.kind_of(name) == INPUT or name in self.given:
                    self.add(
                        "doubly-defined",
                        f"{self.title(index)} writes {name!r}, an input, without reading it",
                        index,
                    )
            for name in names:
                first.setdefault(name, index)

    def _unused(self) -> None:
        read = {name for index in range(len(self.ops)) for name in self.reads(index)}
        read |= self.wanted | set(self._linked_names())
        read |= {name for op in self.ops for net in _nets_of(op) for name in _all_names(net)}
        for index, op in self.operators.items():
            for slot, names in op.outputs.items():
                if op.entry.output_slots[slot].intermediate or op.role != FORWARD:
                    continue
                for name in names:
                    root = self.base(name)
                    if name != EMPTY and root not in read and self.kind_of(root) == TEMPORARY:
                        why = f"nobody reads {slot}={name}; declare it an OUTPUT if it is a result"
                        self.add("unused", f"{self.title(index)}: {why}", index, WARNING)
        for name, var in self.vars.items():
            used = self.base(name) in read or self.base(name) in self.writers
            if var.kind == TEMPORARY and not used and name not in self.root.values():
                self.add("unused", f"variable {name!r} is declared and not used", severity=WARNING)

    # -- nested nets ---------------------------------------------------------------------------

    def _linked_names(self) -> Iterator[str]:
        for step in self.desc.steps:
            for link in (*step.in_links, *step.static_links, *step.out_links):
                yield link.outer
            yield from (step.parents, step.positions)
            for memory in step.memories:
                yield memory.boot

    def _steps(self) -> None:
        plain = self.desc.type == PLAIN
        if plain and self.desc.steps:
            self.add("steps", "a PLAIN net has no step net; say RECURRENT or RECURSIVE")
        if not plain and not self.desc.steps:
            kind = pb.NetDesc.Type.Name(self.desc.type)
            self.add("steps", f"a {kind} net has no step net")
        for number, step in enumerate(self.desc.steps):
            self._step(step, f"step net {step.net.name or number!r}")

    def _step(self, step: pb.StepDesc, title: str) -> None:
        known = set(self.vars) | set(self.writers) | self.given | self.outer
        made = {name for op in step.net.ops for name in output_names(op)}
        declared = {var.name for var in step.net.vars}
        by_pair = {name for op in step.child_net.ops for name in output_names(op)}
        for kind, links in (("in", step.in_links), ("static", step.static_links)):
            for link in links:
                if link.outer not in known:
                    hint = nearest(link.outer, known)
                    self.add(
                        "undefined",
                        f"{title}: its {kind} link reads {link.outer!r}, which is not there{hint}",
                    )
        for link in step.out_links:
            if link.inner not in made:
                hint = nearest(link.inner, made)
                self.add(
                    "undefined",
                    f"{title}: its out link takes {link.inner!r}, which no operator in it"
                    f" writes{hint}",
                )
        for name in (step.parents, step.positions):
            if name and name not in known:
                hint = nearest(name, known)
                self.add("undefined", f"{title}: its trees are {name!r}, which is not there{hint}")
        for memory in step.memories:
            if memory.state not in made | declared | by_pair:
                hint = nearest(memory.state, made)
                self.add("undefined", f"{title}: nobody writes its memory {memory.state!r}{hint}")
            if memory.boot and memory.boot not in known:
                hint = nearest(memory.boot, known)
                self.add(
                    "undefined",
                    f"{title}: memory {memory.state!r} boots from {memory.boot!r}, which is not"
                    f" there{hint}",
                )
        inner = [link.inner for link in (*step.in_links, *step.static_links)]
        inner += [memory.previous for memory in step.memories]
        for name in {name for name in inner if inner.count(name) > 1}:
            self.add("doubly-defined", f"{title}: {name!r} is linked twice")
        taken = {link.inner for link in step.out_links} | {m.state for m in step.memories}
        taken |= {link.outer for link in step.child_links}
        self._inside(step.net, title, -1, frozenset(inner), frozenset(known), frozenset(taken))
        if step.HasField("child_net"):
            inner = [link.inner for link in (*step.in_links, *step.static_links, *step.child_links)]
            given, outer = frozenset(inner), frozenset(known)
            self._inside(step.child_net, f"{title}, child net", -1, given, outer, frozenset(taken))

    def _nested(self) -> None:
        visible = frozenset({*self.vars, *self.writers, *self.given, *self.outer})
        for index, op in enumerate(self.ops):
            for net in _nets_of(op):
                title = f"{self.title(index)}: net {net.name or '?'!r}"
                self._inside(net, title, index, frozenset(), visible, visible)

    def _inside(
        self,
        net: pb.NetDesc,
        title: str,
        op: int,
        given: frozenset[str],
        outer: frozenset[str],
        wanted: frozenset[str],
    ) -> None:
        for one in _Check(net, given, outer, wanted).run():
            self.add(one.kind, f"{title}: {one.message}", op, one.severity)

    # -- shapes --------------------------------------------------------------------------------

    def _shapes(self) -> None:
        """The first contradiction only: what follows from it would not be news."""
        known: dict[str, Meta] = {}
        for name, var in self.vars.items():
            meta = declared_meta(var)
            if meta is not None and name not in self.root and self.has_value(name):
                known[name] = meta
        at = -1

        def in_turn() -> Iterator[Operator]:
            nonlocal at
            for at, op in self.operators.items():
                if op.entry.shape is not None:
                    yield op
                elif op.entry.expand is not None:
                    yield from (Operator(inner, at) for inner in expand_op(self.ops[at]))

        sound = {name: var for name, var in self.vars.items() if name not in self.unsound}
        try:
            metas = infer_metas(in_turn(), known, sound, partial=True)
        except OpscopeError as error:
            self.add(_KIND_OF.get(type(error), "shape"), str(error), at)
            return
        for name, var in self.vars.items():
            shape, dtype = metas.get(name, (None, None))
            writer = self.writers.get(name, [-1])[-1]
            if shape is None or writer < 0:
                continue
            at_fault = var.has_dims and not fits(shape, tuple(var.dims))
            declared = declared_meta(var)
            if at_fault or (declared is not None and declared[1] != dtype):
                held = format_shape(tuple(var.dims) if var.has_dims else None)
                wanted = f"{pb.DataType.Name(var.dtype).lower()}{held}"
                self.add(
                    "shape",
                    f"{self.title(writer)} writes {dtype}{format_shape(shape)} to {name!r},"
                    f" which is declared {wanted}",
                    writer,
                )


def _nets_of(op: pb.OpDesc) -> list[pb.NetDesc]:
    """Nets in the attributes of an operator."""
    held = (op.attrs[name] for name in sorted(op.attrs))
    return [attr.net for attr in held if attr.WhichOneof("value") == "net"]


def _all_names(net: pb.NetDesc) -> Iterator[str]:
    """Every variable name that the operators of a net mention."""
    for op in net.ops:
        yield from input_names(op)
        yield from output_names(op)
        for inner in _nets_of(op):
            yield from _all_names(inner)
    for step in net.steps:
        for link in (*step.in_links, *step.static_links, *step.out_links):
            yield link.outer
        yield from (step.parents, step.positions)
        yield from _all_names(step.net)
        yield from _all_names(step.child_net)
