"""The graph of a network of CNTK's, from its op list in the dialect `cntk`.

Parameters stand in the operators that read them. Groups follow the names: macros of NDL and
functions of BrainScript call what they make `caller.name`. BrainScript names an argument of a layer
that another one computes `z.x`, that one's argument `z.x.x`, so such a chain is one name.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from ...framework.base.errors import FormatError
from ...framework.ir.desc import INPUT, VarDecl
from ...framework.ir.op_list import OpList, OpNode
from . import graph as g
from .graph import Edge, Item, NetGraph, drop_small_groups, nest
from .texts import attribute_facts, box_lines, cut, source_facts, value_of

_PREFIX = "cntk."
_PARAMETER = "cntk.LearnableParameter"
_INPUTS = ("cntk.InputValue", "cntk.SparseInputValue")
_DELAYS = ("cntk.PastValue", "cntk.FutureValue")
_CHAIN = re.compile(r"[^.]+(?:\.x)*(?=\.|$)")  # z, z.x, z.x.x ...
_ARGUMENT = re.compile(r"\w*Args\[\d+\]|_")  # parts of an expression, which stand in its group
_LONGEST = 160


def cntk_graph(net: OpList, title: str) -> NetGraph:
    """The graph of a network in the dialect `cntk`; arrays are known by their nodes."""
    graph = NetGraph(title)
    declared = {var.name: var for var in net.vars}
    roles = _roles(net)
    for key in sorted(net.metadata):
        if key.startswith(_PREFIX):
            text = net.metadata[key]
            group = key.removeprefix(_PREFIX)
            graph.facts.append(
                (group, text if group == "precision" else cut(", ".join(_names(text)), _LONGEST))
            )
    ops = {op.outputs["output"][0]: op for op in net.ops}
    read = {name for op in net.ops for name in op.inputs.get("inputs", ())}
    held = {name for name, op in ops.items() if op.type == _PARAMETER and name in read}
    for name, var in declared.items():
        graph.values[name] = value_of(var)
        if name in ops and (ops[name].type == _PARAMETER or var.kind != INPUT):
            graph.values[name].array = name
    for op in net.ops:
        if op.outputs["output"][0] not in held:
            graph.add(_item(op, declared, held, ops, roles))
    _group(graph)
    for item in list(graph.items.values()):
        op = ops[item.name]
        for name in dict.fromkeys(op.inputs.get("inputs", ())):
            if name in graph.items:
                graph.edges.append(Edge(name, item.key, name, op.type in _DELAYS))
    return graph


def _item(
    op: OpNode,
    declared: Mapping[str, VarDecl],
    held: set[str],
    ops: Mapping[str, OpNode],
    roles: Mapping[str, str],
) -> Item:
    name = op.outputs["output"][0]
    item = Item(name, op.type.removeprefix(_PREFIX), name, writes=[("output", [name])])
    inputs = op.inputs.get("inputs", ())
    for number, source in enumerate(inputs):
        target = item.holds if source in held else item.reads
        target.append((f"input {number}" if len(inputs) > 1 else "input", [source]))
    item.facts = attribute_facts(op) + source_facts(op)
    for _, (source,) in item.holds:
        settings = attribute_facts(ops[source], ("shape",)) + source_facts(ops[source])
        item.facts += [(f"{source}: {key}", text) for key, text in settings]
    if name in roles:
        item.facts.insert(0, ("role", roles[name]))
    if op.type in _INPUTS:
        item.kind = g.INPUT
    elif "output" in roles.get(name, ""):
        item.kind = g.OUTPUT
    elif item.holds:
        item.kind = g.TRAINED
    elif op.type == _PARAMETER:
        item.kind = g.STATE
    sources = [source for _, (source,) in item.holds]
    named = ((source.rpartition(".")[2], value_of(declared[source])) for source in sources)
    item.lines = box_lines(op.attrs, named)
    return item


def _roles(net: OpList) -> dict[str, str]:
    """Node -> the groups that it is in: feature, label, criterion, evaluation, output."""
    groups_of: dict[str, list[str]] = {}
    for key in sorted(net.metadata):
        group = key.removeprefix(_PREFIX)
        if key.startswith(_PREFIX) and group != "precision":
            for name in _names(net.metadata[key]):
                groups_of.setdefault(name, []).append(group)
    return {name: ", ".join(groups) for name, groups in groups_of.items()}


def _names(text: str) -> list[str]:
    try:
        names = json.loads(text)
    except (ValueError, RecursionError):
        names = None
    if not isinstance(names, list):
        raise FormatError(f"want a list of names of nodes, not {text[:80]!r}")
    return [str(name) for name in names]


def _group(graph: NetGraph) -> None:
    """Nest all items by their names. What is called as a group stands in it, as its result."""
    parts = {key: _parts(item.name) for key, item in graph.items.items()}
    prefixes = {tuple(names[:end]) for names in parts.values() for end in range(1, len(names))}
    for key, names in parts.items():
        nest(graph, graph.items[key], names if tuple(names) in prefixes else names[:-1])
    drop_small_groups(graph)


def _parts(name: str) -> list[str]:
    """`z.x.x.lstm.proj.PlusArgs[0]` -> `z.x.x`, `lstm`, `proj`, and the last part again."""
    chain = _CHAIN.match(name)
    if chain is None:
        return [name]
    parts = [chain[0], *name[chain.end() + 1 :].split(".")] if chain.end() < len(name) else [name]
    shown = [part for part in parts if not _ARGUMENT.fullmatch(part)]
    return [*shown, parts[-1]] if _ARGUMENT.fullmatch(parts[-1]) else shown
