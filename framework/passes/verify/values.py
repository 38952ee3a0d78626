"""Rules about values: read after they are written, written once, and used."""

from __future__ import annotations

from collections.abc import Iterator

from ...base.errors import nearest
from ...ir.desc import (
    FORWARD,
    INPUT,
    OUTPUT,
    PARAMETER,
    STATE,
    TEMPORARY,
)
from ...ir.names import EMPTY
from ...ir.op_list import OpList
from .net_check import WARNING, NetCheck

_REWRITABLE = frozenset({PARAMETER, STATE})


def definitions(net: NetCheck) -> None:
    """Every value that is read was given or written before."""
    written: set[str] = set()
    cycles: set[frozenset[int]] = set()
    for index, op in enumerate(net.ops):
        for name in dict.fromkeys(name for name in op.input_names() if name != EMPTY):
            root = net.base(name)
            if root in written or net.has_value(root) or name in net.given:
                continue
            later = net.writers.get(root)
            if not later:
                _undefined(net, index, name)
                continue
            chain = _chain(net, later[0], index)
            if chain is None:
                net.add(
                    "order",
                    f"{net.title(index)} reads {name!r} before {net.title(later[0])} writes it",
                    index,
                )
            elif frozenset(chain) not in cycles:
                cycles.add(frozenset(chain))
                shown = " -> ".join(net.title(number) for number in (index, *chain))
                net.add("cycle", f"operators wait for each other: {shown}", index)
        written.update(net.writes(index))
    for name, var in net.vars.items():
        if var.kind == OUTPUT and net.base(name) not in written and not net.has_value(name):
            # not an error: operators may be added still
            net.add("undefined", f"no operator writes the output {name!r}", severity=WARNING)


def _undefined(net: NetCheck, index: int, name: str) -> None:
    if name in net.vars:
        why = "a temporary that no operator writes"
    else:
        known = [*net.vars, *net.writers, *net.given]
        why = f"neither declared nor written before{nearest(name, known)}"
    net.add("undefined", f"{net.title(index)} reads {name!r}, {why}", index)


def _chain(net: NetCheck, start: int, goal: int) -> list[int] | None:
    """Operators from `start` to `goal`, each waiting for a value of the next; None if none."""
    came: dict[int, int] = {start: -1}
    queue = [start]
    for here in queue:
        if here == goal:
            path = [here]
            while came[path[-1]] >= 0:
                path.append(came[path[-1]])
            return path[::-1]
        for name in net.reads(here):
            if net.has_value(name) or name not in net.writers:
                continue
            before = [w for w in net.writers[name] if w < here]
            source = before[-1] if before else net.writers[name][0]
            if source not in came:
                came[source] = here
                queue.append(source)
    return None


def double_writes(net: NetCheck) -> None:
    """A variable is written once, but where it is read, too, or outlives the run."""
    first: dict[str, int] = {}
    for index, op in enumerate(net.ops):
        names = [name for name in op.output_names() if name != EMPTY]
        for name in {name for name in names if names.count(name) > 1}:
            net.add("doubly-defined", f"{net.title(index)} writes {name!r} twice", index)
        reads = set(net.reads(index))
        for name in dict.fromkeys(names):
            if name in net.root or name in reads or net.kind_of(name) in _REWRITABLE:
                continue
            if name in first:
                net.add(
                    "doubly-defined",
                    f"{net.title(index)} writes {name!r}, which {net.title(first[name])}"
                    " defined, without reading it",
                    index,
                )
            elif net.kind_of(name) == INPUT or name in net.given:
                net.add(
                    "doubly-defined",
                    f"{net.title(index)} writes {name!r}, an input, without reading it",
                    index,
                )
        for name in names:
            first.setdefault(name, index)


def unused(net: NetCheck) -> None:
    """Every result is read by somebody; a warning only."""
    read = {name for index in range(len(net.ops)) for name in net.reads(index)}
    read |= net.wanted | set(_linked_names(net.desc))
    read |= {name for op in net.ops for _, inner in op.inner_nets() for name in _all_names(inner)}
    for index, op in net.operators.items():
        for slot, names in op.outputs.items():
            if op.entry.output_slots[slot].intermediate or op.role != FORWARD:
                continue
            for name in names:
                root = net.base(name)
                if name != EMPTY and root not in read and net.kind_of(root) == TEMPORARY:
                    why = f"nobody reads {slot}={name}; declare it an OUTPUT if it is a result"
                    net.add("unused", f"{net.title(index)}: {why}", index, WARNING)
    for name, var in net.vars.items():
        used = net.base(name) in read or net.base(name) in net.writers
        if var.kind == TEMPORARY and not used and name not in net.root.values():
            net.add("unused", f"variable {name!r} is declared and not used", severity=WARNING)


def _linked_names(desc: OpList) -> Iterator[str]:
    """Variables that step nets take from their outer net."""
    for step in desc.steps:
        for link in (*step.in_links, *step.static_links, *step.out_links):
            yield link.outer
        yield from (step.parents, step.positions)
        for memory in step.memories:
            yield memory.boot


def _all_names(net: OpList) -> Iterator[str]:
    """Every variable name that the operators of a net mention."""
    for op in net.ops:
        yield from op.input_names()
        yield from op.output_names()
        for _, inner in op.inner_nets():
            yield from _all_names(inner)
    for step in net.steps:
        for link in (*step.in_links, *step.static_links, *step.out_links):
            yield link.outer
        yield from (step.parents, step.positions)
        yield from _all_names(step.net)
        if step.child_net is not None:
            yield from _all_names(step.child_net)
