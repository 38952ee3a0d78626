"""The graph of a net of operators: NetBuilder's nets, saved nets, lowered nets, other dialects.

Operators whose results have names that begin alike (`fc_0`, `fc_0@INNER@LINEAR`; parts between dots
and slashes) form a group, as do the operators of gradients and of updates. An operator with a net
inside is a group of that net's operators.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from ...framework.ir.desc import (
    BACKWARD,
    FORWARD,
    INPUT,
    OPTIMIZE,
    OUTPUT,
    PARAMETER,
    STATE,
    TYPE_NAMES,
    enum_name,
)
from ...framework.ir.names import EMPTY
from ...framework.ir.op_list import OpList, OpNode, StepDecl, VarDecl
from . import graph as g
from .graph import (
    Edge,
    Item,
    NetGraph,
    Slots,
    Value,
    drop_small_groups,
    nest,
    scattered_groups,
)
from .rectangles import Rectangles
from .texts import attribute_facts, box_lines, source_facts, value_of

_ROLES = {BACKWARD: ("gradients", g.BACKWARD), OPTIMIZE: ("updates", g.OPTIMIZE)}
_SPECIAL = re.compile(r"@[A-Z].*")
_LAST = re.compile(r"[^./:]+$")


def op_net_graph(net: OpList, title: str) -> NetGraph:
    """The graph of an op list; values that a file holds are known by the names of variables."""
    graph = NetGraph(title)
    roles = [op.role for op in net.ops]
    counts = [f"{roles.count(FORWARD)} forward"]
    counts += [f"{roles.count(r)} {name}" for r, (name, _) in _ROLES.items() if roles.count(r)]
    graph.facts.append(("operators", ", ".join(counts)))
    graph.facts += [(key, net.metadata[key]) for key in sorted(net.metadata)]
    reader = _Reader(graph, {})
    reader.read(net, (), "")
    drop_small_groups(graph, reader.nets, scattered_groups(graph, reader.nets))
    return graph


class _Reader:
    """Reads one net, and by further readers the nets inside it.

    Attributes:
        outer: variables of the net around by name: the keys of their values here.
        nets: groups that stay: operators with nets inside, gradients, updates.
    """

    def __init__(self, graph: NetGraph, outer: Mapping[str, str]) -> None:
        self.graph = graph
        self.values: dict[str, str] = dict(outer)  # variable -> key of its present value
        self.writers: dict[str, str] = {}  # key of a value -> key of the item that writes it
        self.nets: set[str] = set()
        self.first: dict[str, str] = {}  # variable -> key of its value before any operator
        self.views = Rectangles(())
        self.own: list[str] = []  # keys of the items that this net added

    def read(self, net: OpList, path: tuple[str, ...], prefix: str) -> None:
        """Add a net's operators.

        Args:
            path: groups that they stand in.
            prefix: of the keys of its variables: the net's own place in the nets around.
        """
        declared = {var.name: var for var in net.vars}
        self.views = Rectangles(net.vars)
        versions: dict[str, int] = {}
        for var in net.vars:
            if var.name not in self.values:
                self._value(var.name, var, prefix)
        for var in net.vars:
            if var.kind == INPUT and not prefix:
                self._end(var, path)
        groups = _layers(net)
        for index, op in enumerate(net.ops):
            self._operator(op, index, declared, versions, path, prefix, groups)
        for step in net.steps:
            links = {link.outer: link.inner for link in (*step.in_links, *step.static_links)}
            outer = {i: self.values[o] for o, i in links.items() if o in self.values}
            self._inner(step, outer, path, f"{prefix}step/")
        for var in net.vars:
            if var.kind == OUTPUT and not prefix:
                self._end(var, path)

    # -- variables -----------------------------------------------------------------------------

    def _value(self, name: str, var: VarDecl | None, prefix: str, version: int = 0) -> str:
        key = f"{prefix}{name}" + (f"@{version}" if version else "")
        if key not in self.graph.values:
            self.graph.values[key] = value_of(var) if var is not None else Value(name)
            if var is not None and var.kind in (PARAMETER, STATE):
                self.graph.values[key].array = name
        self.values[name] = key
        return key

    def _end(self, var: VarDecl, path: tuple[str, ...]) -> None:
        """An item for an input, or for an output."""
        key = self.values[var.name]
        is_input = var.kind == INPUT
        kind = g.INPUT if is_input else g.OUTPUT
        item = Item(f"{kind} {var.name}", kind, var.name, kind, path=path)
        self.graph.add(item)
        slots: Slots = [("value", [key])]
        if is_input:
            item.writes = slots
            self._write(var.name, key, item)
        else:
            item.reads = slots
            self._connect(item)

    def _write(self, name: str, key: str, item: Item) -> None:
        self.writers[key] = item.key
        if name in self.views:
            self.views.write(name, key, item.key)

    def _connect(self, item: Item) -> None:
        """Edges to an item from those that wrote what it reads."""
        for _, keys in item.reads:
            for key in keys:
                name = self.graph.values[key].name
                if name in self.views:
                    sources = list(self.views.written(name))
                else:
                    sources = [(key, self.writers[key])] if key in self.writers else []
                for value, writer in sources:
                    if writer != item.key:
                        self.graph.edges.append(Edge(writer, item.key, value))

    # -- operators -----------------------------------------------------------------------------

    def _operator(
        self,
        op: OpNode,
        index: int,
        declared: Mapping[str, VarDecl],
        versions: dict[str, int],
        path: tuple[str, ...],
        prefix: str,
        groups: Mapping[int, list[str]],
    ) -> None:
        results = op.output_names()
        named = [name for name in op.outputs.get("out", ()) if name != EMPTY]
        main = next(iter([*named, *results]), "")
        item = Item(f"{prefix}{main or f'{op.type} {index}'}", op.type, main, path=path)
        item.number = -1 if prefix else index
        if op.role in _ROLES and not prefix:
            name, item.kind = _ROLES[op.role]
            nest(self.graph, item, [name])
            self.nets.add(item.path[-1])
            self.graph.groups[item.path[-1]].aside = True
        item.facts = [("operator", f"%{index}")] + attribute_facts(op) + source_facts(op)
        if op.device:
            item.facts.append(("device", op.device))
        for slot, names in op.inputs.items():
            held = [self._known(name, prefix) for name in names if _is_held(declared.get(name))]
            read = [self._known(n, prefix) for n in names if not _is_held(declared.get(n))]
            item.holds += [(slot, held)] if held else []
            item.reads += [(slot, [k for k in read if k])] if any(read) else []
        item.holds = [(slot, [key for key in keys if key]) for slot, keys in item.holds]
        if item.holds and item.kind == g.OPERATOR:
            item.kind = g.TRAINED
        item.lines = box_lines(op.attrs, self._held(item))
        inner = list(op.inner_nets())
        if not inner:
            nest(self.graph, item, groups.get(index, []))
        else:
            item.kind = g.GROUP
            self.nets.add(item.key)
        self.graph.add(item)
        if inner:
            self.nets.add(item.key)
        self._connect(item)
        for name in dict.fromkeys(results):
            if self.values.get(name) in self.writers:
                versions[name] = versions.get(name, 0) + 1
            key = self._value(name, declared.get(name), prefix, versions.get(name, 0))
            self._write(name, key, item)
        for slot, names in op.outputs.items():
            keys = [self.values[name] for name in names if name != EMPTY]
            item.writes += [(slot, keys)] if keys else []
        for name, net in inner:
            self._nested(op, item, name, net, prefix)

    def _held(self, item: Item) -> Iterator[tuple[str, Value]]:
        """The parameters of an operator by their slots, or by their own names in a slot of all."""
        for slot, keys in item.holds:
            for key in keys:
                value = self.graph.values[key]
                last = _LAST.search(value.name)
                yield (last[0] if slot == "inputs" and last else slot), value

    def _known(self, name: str, prefix: str) -> str:
        if name == EMPTY:
            return ""
        return self.values.get(name) or self._value(name, None, prefix)

    # -- nets inside ---------------------------------------------------------------------------

    def _nested(self, op: OpNode, item: Item, name: str, net: OpList, prefix: str) -> None:
        """The net in an attribute: its operators inside of the group that the operator is."""
        path = (*item.path, item.key)
        prefix = f"{prefix}{item.name or op.type}/"
        steps = net.steps
        if len(list(op.inner_nets())) > 1:
            key = f"{item.key}/{name}"
            self.graph.group(key, name, path)
            path = (*path, key)
        item.facts.append((name, f"{enum_name(TYPE_NAMES, net.type).lower()} net"))
        if not steps:
            self._sub(net, dict(self.values), path, prefix)
            return
        for step in steps:
            outer = {}
            for slot, links in (("x", step.in_links), ("static", step.static_links)):
                for given, link in zip(op.inputs.get(slot, ()), links, strict=False):
                    if given in self.values:
                        outer[link.inner] = self.values[given]
            given = iter(op.inputs.get("boot", ()))
            for memory in step.memories:
                boot = next(given, "") if memory.boot else ""
                if boot in self.values:
                    outer[memory.previous] = self.values[boot]
            inside = self._inner(step, outer, path, prefix)
            # a result is what the operator inside writes, for those who read it outside
            for slot, links in (("out", step.out_links), ("sum", step.sum_links)):
                for result, link in zip(op.outputs.get(slot, ()), links, strict=False):
                    writer = inside.writers.get(inside.values.get(link.inner, ""))
                    if writer and result in self.values:
                        self.writers[self.values[result]] = writer

    def _inner(
        self, step: StepDecl, outer: Mapping[str, str], path: tuple[str, ...], prefix: str
    ) -> _Reader:
        """A step net; a memory that is written is read at another step."""
        inside = self._sub(step.net, outer, path, prefix)
        for memory in step.memories:
            writer = inside.writers.get(inside.values.get(memory.state, ""))
            previous = inside.first.get(memory.previous, "")
            for reader in inside.readers_of(previous) if writer else ():
                self.graph.edges.append(
                    Edge(str(writer), reader, inside.values[memory.state], delayed=True)
                )
        if step.child_net is not None:
            self._sub(step.child_net, outer, path, f"{prefix}child/")
        return inside

    def _sub(
        self, net: OpList, outer: Mapping[str, str], path: tuple[str, ...], prefix: str
    ) -> _Reader:
        inside = _Reader(self.graph, outer)
        inside.writers = dict(self.writers)
        inside.nets = self.nets
        inside.first = {var.name: outer.get(var.name, f"{prefix}{var.name}") for var in net.vars}
        first = len(self.graph.items)
        inside.read(net, path, prefix)
        inside.own = list(self.graph.items)[first:]
        return inside

    def readers_of(self, value: str) -> Iterator[str]:
        """The items of this net that read a value."""
        for key in self.own:
            if any(value in keys for _, keys in self.graph.items[key].reads):
                yield key


def _is_held(var: VarDecl | None) -> bool:
    return var is not None and var.kind in (PARAMETER, STATE)


def _layers(net: OpList) -> dict[int, list[str]]:
    """The names of the groups of each operator, from the name of its result."""
    folders_of = {}
    for index, op in enumerate(net.ops):
        names = [*op.outputs.get("out", ()), *op.output_names()]
        name = next((name for name in names if name != EMPTY), "")
        *folders, last = name.strip("/").split("/")
        folders_of[index] = [*filter(None, folders), *_parts(_SPECIAL.sub("", last))]
    return folders_of


def _parts(name: str) -> list[str]:
    """`encoder.0.attention` -> `encoder`, `encoder.0`, `attention`: a number alone says little."""
    parts = [part for part in name.split(".") if part]
    return [
        f"{parts[at - 1]}.{part}" if at and part.isdecimal() else part
        for at, part in enumerate(parts)
    ]
