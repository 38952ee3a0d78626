"""The graph of a network of Kaldi's, from its op list in the dialect `nnet3`.

An item is a node together with the descriptor that feeds it and its component; a group is a layer:
nodes whose names begin alike before the first dot.
"""

from __future__ import annotations

from collections.abc import Mapping

from ...framework.ir.desc import PARAMETER, VarDecl
from ...framework.ir.op_list import OpList, OpNode
from ...nnet3.draw.short_form import short_parts, sources_at_t
from ...nnet3.language.descriptor_parse import parse_descriptor
from ...nnet3.language.nodes import input_name
from . import graph as g
from .graph import Edge, Facts, Item, NetGraph, drop_small_groups, nest
from .texts import attribute_facts, attribute_text, box_lines, cut, value_of

_LONGEST = 40
_AVERAGED = ("value_", "deriv_", "oderiv_")
"""Begin the names of what nonlinearities average while training."""
_DESCRIPTORS = ("nnet3.descriptor", "nnet3.output")


def nnet3_graph(net: OpList, title: str) -> NetGraph:
    """The graph of a network in the dialect `nnet3`; arrays are known by their variables."""
    graph = NetGraph(title)
    declared = {var.name: var for var in net.vars}
    components = {str(op.attrs["name"]): op for op in net.ops if op.type == "nnet3.component"}
    feeds = {op.outputs["out"][0]: op for op in net.ops if op.type == "nnet3.descriptor"}
    fed = {op.inputs["x"][0] for op in net.ops if op.type == "nnet3.component_node"}
    read: dict[str, set[str]] = {}  # node -> those that it reads at another frame alone
    for op in net.ops:
        if op.type == "nnet3.component" or (
            op.type in _DESCRIPTORS and op.outputs["out"][0] in fed
        ):
            continue
        name = op.outputs["out"][0]
        feed = feeds.get(input_name(name)) if op.type == "nnet3.component_node" else op
        component = components.get(str(op.attrs.get("component", "")))
        item = _item(graph, op, feed, component, declared)
        names = name.split(".")[:1] if "." in name else [name]
        nest(graph, item, names)
        graph.add(item)
        read[item.key] = _delayed(feed)
    for item in graph.items.values():
        for _, keys in item.reads:
            for key in keys:
                if key in graph.items:
                    delayed = key in read[item.key]
                    graph.edges.append(Edge(key, item.key, key, delayed))
    graph.facts += [(key, net.metadata[key]) for key in sorted(net.metadata) if key != "dialect"]
    drop_small_groups(graph)
    return graph


def _item(
    graph: NetGraph,
    op: OpNode,
    feed: OpNode | None,
    component: OpNode | None,
    declared: Mapping[str, VarDecl],
) -> Item:
    """A node: an input, an output, a component node, or a range of dimensions."""
    name = op.outputs["out"][0]
    dim = int((declared[name].shape or (0, 0))[-1])
    graph.values[name] = value_of(declared[name])
    item = Item(name, op.type.removeprefix("nnet3."), name, writes=[("out", [name])])
    if op.type == "nnet3.input":
        item.kind = g.INPUT
        item.facts = [("config", f"input-node name={name} dim={dim}")]
        return item
    if op.type == "nnet3.dim_range":
        begin = int(op.attrs["dim_offset"])
        source = op.inputs["x"][0]
        item.title = "dim-range"
        item.lines = [f"columns {begin}:{begin + dim}"]
        item.reads = [("x", [source])]
        text = f"dim-range-node name={name} input-node={source} dim-offset={begin} dim={dim}"
        item.facts = [("config", text)]
        return item
    assert feed is not None
    descriptor = str(feed.attrs["descriptor"])
    item.reads = [("input", list(feed.inputs.get("nodes", ())))]
    short = ", ".join(short_parts(parse_descriptor(descriptor)))
    tells = short != "".join(feed.inputs.get("nodes", ()))
    item.lines = [f"◂ {cut(short, _LONGEST)}"] if tells else []
    if component is None:
        item.kind = g.OUTPUT
        objective = str(op.attrs.get("objective", ""))
        item.lines.append(f"{dim}, {objective}" if objective else f"{dim}")
        text = f"output-node name={name} input={descriptor} dim={dim} objective={objective}"
        item.facts = [("config", text), ("reads", short)]
        return item
    return _component_item(graph, item, component, descriptor, short, declared)


def _component_item(
    graph: NetGraph,
    item: Item,
    component: OpNode,
    descriptor: str,
    short: str,
    declared: Mapping[str, VarDecl],
) -> Item:
    called = str(component.attrs["name"])
    kind = str(component.attrs["type"])
    item.title = kind.removesuffix("Component")
    text = f"component-node name={item.name} component={called} input={descriptor}"
    facts: Facts = [("config", text), ("reads", short), ("component", called), ("type", kind)]
    item.facts = facts + attribute_facts(component, ("name", "type"))
    parts = [component]
    for _, inner in component.inner_nets():  # the parts of a CompositeComponent
        parts += inner.ops
        item.facts += [(str(part.attrs.get("name", "")), _part_text(part)) for part in inner.ops]
    trained = False
    for part in parts:
        for slot, keys in part.inputs.items():
            var = declared.get(keys[0]) if keys else None
            if var is None:
                continue
            trained |= var.kind == PARAMETER
            if var.name not in graph.values:
                graph.values[var.name] = value_of(var)
                graph.values[var.name].array = var.name
            item.holds.append((slot, [var.name]))
    if trained:
        item.kind = g.TRAINED
    if "time_offsets" in component.attrs:
        item.lines.append(f"time offsets {attribute_text(component.attrs['time_offsets'])[1:-1]}")
    held = ((slot, graph.values[key]) for slot, (key,) in item.holds)
    shown = ((slot, value) for slot, value in held if not slot.startswith(_AVERAGED))
    item.lines += box_lines({}, ((slot, v) for slot, v in shown if not v.type.endswith("[0]")))
    return item


def _part_text(part: OpNode) -> str:
    settings = ", ".join(f"{name}={text}" for name, text in attribute_facts(part, ("name", "type")))
    return f"{part.attrs.get('type', '')} {settings}"


def _delayed(feed: OpNode | None) -> set[str]:
    """The nodes that a descriptor reads at other frames alone."""
    if feed is None or "descriptor" not in feed.attrs:
        return set()
    now = sources_at_t(parse_descriptor(str(feed.attrs["descriptor"])))
    return set(feed.inputs.get("nodes", ())) - now
