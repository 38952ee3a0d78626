"""Rules about values: read after they are written, written once, and used."""

from __future__ import annotations

import itertools
from bisect import bisect_left
from collections.abc import Iterator

from ...base.algorithms.strongly_connected import strongly_connected
from ...base.errors import doubled, nearest
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

_SEARCHED = 8  # circles for which one looks through the whole net
_SHOWN = 12  # operators of a circle that a message names
_IN_PLACE = 8  # operators that may lie between two writes of one variable
_REWRITABLE = frozenset({PARAMETER, STATE})


def definitions(net: NetCheck) -> None:
    """Every value that is read was given or written before."""
    written: set[str] = set()
    circles = _circles(net)
    reported: set[int] = set()
    chains: list[set[int]] = []
    searches = 0
    for index, op in enumerate(net.ops):
        for name in dict.fromkeys(op.input_names()):
            root = net.base(name)
            if root in written or net.has_value(root) or name in net.given:
                continue
            later = net.writers.get(root)
            if not later:
                _undefined(net, index, name)
                continue
            if circles[index] != circles[later[0]]:
                net.add(
                    "order",
                    f"{net.title(index)} reads {name!r} before {net.title(later[0])} writes it",
                    index,
                )
            # One message for a circle: each of its operators waits for all of the others.
            elif circles[index] not in reported or searches < _SEARCHED:
                searches += 1
                reported.add(circles[index])
                chain = [index, *_chain(net, later[0], index)]
                if set(chain) in chains:
                    continue
                chains.append(set(chain))
                shown = " -> ".join(net.title(number) for number in chain[:_SHOWN])
                more = f" -> ... ({len(chain) - _SHOWN} more)" if len(chain) > _SHOWN else ""
                net.add("cycle", f"operators wait for each other: {shown}{more}", index)
        written.update(net.writes(index))
    for name, var in net.vars.items():
        if var.kind == OUTPUT and net.base(name) not in written and not net.has_value(name):
            # not an error: operators may be added still
            net.add("undefined", f"no operator writes the output {name!r}", severity=WARNING)


def _undefined(net: NetCheck, index: int, name: str) -> None:
    if name in net.vars:
        why = "a temporary that no operator writes"
    else:
        hint = nearest(name, itertools.chain(net.vars, net.writers, net.given))
        why = f"neither declared nor written before{hint}"
    net.add("undefined", f"{net.title(index)} reads {name!r}, {why}", index)


def _waits_for(net: NetCheck, index: int) -> Iterator[int]:
    """The operators whose values one operator waits for."""
    for name in net.reads(index):
        if not net.has_value(name) and name in net.writers:
            writers = net.writers[name]
            before = bisect_left(writers, index)
            yield writers[before - 1] if before else writers[0]


def _circles(net: NetCheck) -> list[int]:
    """For each operator a number; those that wait for each other have the same one."""
    circle = [-1] * len(net.ops)
    waits = [list(_waits_for(net, index)) for index in range(len(net.ops))]
    for number, members in enumerate(strongly_connected(waits)):
        for index in members:
            circle[index] = number
    return circle


def _chain(net: NetCheck, start: int, goal: int) -> list[int]:
    """Operators from `start` to `goal`, which is in a circle with it, by the shortest way."""
    came: dict[int, int] = {start: -1}
    queue = [start]
    for here in queue:
        if here == goal:
            break
        for source in _waits_for(net, here):
            if source not in came:
                came[source] = here
                queue.append(source)
    path = [goal]
    while came[path[-1]] >= 0:
        path.append(came[path[-1]])
    return path[::-1]


def double_writes(net: NetCheck) -> None:
    """A variable is written once, unless it is also read or outlives the run.

    What an operator reads may be made of the variable by others just before it: so is a matrix
    changed in place in several steps.
    """
    first: dict[str, int] = {}
    handed_back = _handed_back(net)
    for index, op in enumerate(net.ops):
        names = op.output_names()
        for name in doubled(names):
            net.add("doubly-defined", f"{net.title(index)} writes {name!r} twice", index)
        reads = set(net.reads(index))
        for name in dict.fromkeys(names):
            if name in net.root or name in reads or net.kind_of(name) in _REWRITABLE:
                continue
            if index in handed_back or _is_made_of(net, index, name):
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


def _handed_back(net: NetCheck) -> range:
    """The operators that hand values to those that ran before, in a list that is run again."""
    marks = [index for index, op in net.operators.items() if op.entry.boundary]
    if not marks or marks[-1] != len(net.ops) - 1:
        return range(0)
    return range(marks[-2] + 1 if len(marks) > 1 else 0, marks[-1])


def _is_made_of(net: NetCheck, index: int, name: str) -> bool:
    """Whether what an operator reads was made of a variable, by few operators before it."""
    waiting = [index]
    for _ in range(_IN_PLACE):
        if not waiting:
            break
        here = waiting.pop()
        for read in net.reads(here):
            if read == name:
                return True
            writers = net.writers.get(read, [])
            before = bisect_left(writers, here)
            # What was written before the variable itself cannot be made of it.
            if before and writers[before - 1] >= net.writers[name][0]:
                waiting.append(writers[before - 1])
    return False


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
                    why = f"nothing reads {slot}={name}; declare it an OUTPUT if it is a result"
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
