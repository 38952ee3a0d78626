"""Rules about nets inside nets: step nets with their links, and nets in attributes."""

from __future__ import annotations

from ...base.errors import doubled, nearest
from ...ir.desc import PLAIN, TYPE_NAMES, enum_name
from ...ir.op_list import StepDecl
from .net_check import NetCheck


def step_nets(net: NetCheck) -> None:
    """A net has the step nets that its type asks for, with links to what is there."""
    plain = net.desc.type == PLAIN
    if plain and net.desc.steps:
        net.add("steps", "a PLAIN net has no step net; say RECURRENT or RECURSIVE")
    if not plain and not net.desc.steps:
        kind = enum_name(TYPE_NAMES, net.desc.type)
        net.add("steps", f"a {kind} net has no step net")
    for number, step in enumerate(net.desc.steps):
        _step(net, step, f"step net {step.net.name or number!r}")


def _step(net: NetCheck, step: StepDecl, title: str) -> None:
    known = set(net.vars) | set(net.writers) | net.given | net.outer
    written = {name for op in step.net.ops for name in op.output_names()}
    declared = {var.name for var in step.net.vars}
    pairs = [] if step.child_net is None else step.child_net.ops
    by_pair = {name for op in pairs for name in op.output_names()}
    for kind, links in (("in", step.in_links), ("static", step.static_links)):
        for link in links:
            if link.outer not in known:
                hint = nearest(link.outer, known)
                net.add(
                    "undefined",
                    f"{title}: its {kind} link reads {link.outer!r}, which is not there{hint}",
                )
    for link in step.out_links:
        if link.inner not in written:
            hint = nearest(link.inner, written)
            net.add(
                "undefined",
                f"{title}: its out link takes {link.inner!r}, which no operator in it writes{hint}",
            )
    for name in (step.parents, step.positions):
        if name and name not in known:
            hint = nearest(name, known)
            net.add("undefined", f"{title}: its trees are {name!r}, which is not there{hint}")
    for memory in step.memories:
        if memory.state not in written | declared | by_pair:
            hint = nearest(memory.state, written)
            net.add("undefined", f"{title}: nothing writes its memory {memory.state!r}{hint}")
        if memory.boot and memory.boot not in known:
            hint = nearest(memory.boot, known)
            net.add(
                "undefined",
                f"{title}: memory {memory.state!r} boots from {memory.boot!r}, which is not"
                f" there{hint}",
            )
    inner = [link.inner for link in (*step.in_links, *step.static_links)]
    inner += [memory.previous for memory in step.memories]
    for name in doubled(inner):
        net.add("doubly-defined", f"{title}: {name!r} is linked twice")
    taken = {link.inner for link in step.out_links} | {m.state for m in step.memories}
    taken |= {link.outer for link in step.child_links}
    net.inside(step.net, title, -1, frozenset(inner), frozenset(known), frozenset(taken))
    if step.child_net is not None:
        inner = [link.inner for link in (*step.in_links, *step.static_links, *step.child_links)]
        given, outer = frozenset(inner), frozenset(known)
        net.inside(step.child_net, f"{title}, child net", -1, given, outer, frozenset(taken))


def nested(net: NetCheck) -> None:
    """Nets in attributes are also sound."""
    visible = frozenset({*net.vars, *net.writers, *net.given, *net.outer})
    for index, op in enumerate(net.ops):
        for _, inner in op.inner_nets():
            title = f"{net.title(index)}: net {inner.name or '?'!r}"
            net.inside(inner, title, index, frozenset(), visible, visible)
