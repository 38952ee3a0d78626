"""What a page shows of a net: items, the values that flow between them, and groups of items."""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import dataclass, field
from itertools import islice

from ...framework.ir.names import inner_name

Facts = list[tuple[str, str]]
"""Names and texts, in the order in which they are shown."""

INPUT, OUTPUT, TRAINED, OPERATOR, STATE = "input", "output", "trained", "operator", "state"
BACKWARD, OPTIMIZE, GROUP = "backward", "optimizer", "group"
KINDS = (INPUT, OUTPUT, TRAINED, OPERATOR, STATE, BACKWARD, OPTIMIZE, GROUP)
"""Kinds of items; a kind has a color."""

_DEEPEST = 12
"""Groups that a name is split into, at most: names of files may have any number of parts."""

ADDED, REMOVED, CHANGED = "added", "removed", "changed"


@dataclass
class Value:
    """A variable.

    Attributes:
        name: of the variable.
        type: dtype and shape as text.
        kind: what it is: input, parameter, temporary ...
        facts: what else is known.
        array: key of its numbers in `NetGraph.arrays`, or "".
        change: ADDED, REMOVED, CHANGED or "", in a difference.
    """

    name: str
    type: str = ""
    kind: str = ""
    facts: Facts = field(default_factory=list)
    array: str = ""
    change: str = ""


Slots = list[tuple[str, list[str]]]
"""Slots of an operator and the values in them, by their keys in `NetGraph.values`."""


@dataclass
class Item:
    """An operator, an input or an output; or a group of items.

    Attributes:
        key: unique in the graph; equal in two nets for what is the same in both.
        title: the type of the operator.
        name: of what it computes.
        kind: one of KINDS.
        lines: short texts below the title.
        facts: attributes, source line and what else is shown of it.
        path: keys of the groups around it, the outermost first.
        reads, writes, holds: values by slot: inputs, results, parameters.
        change: ADDED, REMOVED, CHANGED or "", in a difference.
        changes: what differs, a line each.
        short: the name without the names of the groups around it; "" where the title says it.
        aside: of a group: it is closed at first, and no lines lead there, since they would come
            from everywhere.
        number: of the operator in the outermost net; -1 for anything else.
        time, memory: seconds and bytes that a profile measured; None where it did not.
        number_shown: a number to color it by, see `NetGraph.numbers`; None where it has none.
    """

    key: str
    title: str
    name: str = ""
    kind: str = OPERATOR
    lines: list[str] = field(default_factory=list)
    facts: Facts = field(default_factory=list)
    path: tuple[str, ...] = ()
    reads: Slots = field(default_factory=list)
    writes: Slots = field(default_factory=list)
    holds: Slots = field(default_factory=list)
    change: str = ""
    changes: list[str] = field(default_factory=list)
    short: str = ""
    aside: bool = False
    number: int = -1
    time: float | None = None
    memory: int | None = None
    number_shown: float | None = None


@dataclass
class Edge:
    """A value that one item computes and another one reads.

    Attributes:
        source, target: keys of items.
        value: its key.
        delayed: read at another time, so that it may close a circle.
        change: ADDED, REMOVED or "", in a difference.
    """

    source: str
    target: str
    value: str
    delayed: bool = False
    change: str = ""


@dataclass
class NetGraph:
    """A net as a page shows it.

    Attributes:
        title: of the page.
        facts: about the whole net.
        items: operators, inputs and outputs in order, by key.
        groups: groups of items by key; their order says nothing.
        edges: between items.
        values: variables by key.
        arrays: numbers of parameters and states, as `numbers.Statistics`' JSON, by key.
        compared: what this net was compared with; "" without a difference.
        profiled: how it was profiled; "" without a profile. place: where.
        numbers: what the numbers are that items are colored by; "" without any.
    """

    title: str
    facts: Facts = field(default_factory=list)
    items: dict[str, Item] = field(default_factory=dict)
    groups: dict[str, Item] = field(default_factory=dict)
    edges: list[Edge] = field(default_factory=list)
    values: dict[str, Value] = field(default_factory=dict)
    compared: str = ""
    profiled: str = ""
    place: str = "the CPU"
    numbers: str = ""

    def add(self, item: Item) -> Item:
        """Put an item in; a key that is there already gets a number after it."""
        stem = item.key
        number = 1
        while item.key in self.items or item.key in self.groups:
            number += 1
            item.key = f"{stem}#{number}"
        target = self.groups if item.kind == GROUP else self.items
        target[item.key] = item
        return item

    def group(self, key: str, title: str, path: tuple[str, ...]) -> Item:
        """The group of this key, made if it is not there."""
        if key not in self.groups:
            self.groups[key] = Item(key, title, kind=GROUP, path=path)
        return self.groups[key]


def scattered_groups(graph: NetGraph, keep: Container[str] = ()) -> set[str]:
    """Groups that a path leaves and enters again: their name stands for no part of the net.

    Args:
        keep: keys of groups that are not looked at.
    """
    numbers = {key: number for number, key in enumerate(graph.items)}
    sources: list[list[int]] = [[] for _ in numbers]
    for edge in graph.edges:
        source, target = numbers.get(edge.source), numbers.get(edge.target)
        if edge.delayed or source is None or target is None:  # None: an operator with a net inside
            continue
        if source < target:
            sources[target].append(source)
    members: dict[str, list[int]] = {}
    for key, item in graph.items.items():
        for group in item.path:
            if group not in keep:
                members.setdefault(group, []).append(numbers[key])
    found = set()
    for group, numbered in members.items():
        inside = set(numbered)
        after: set[int] = set()  # items outside that read what the group computes
        for number in range(numbered[0], numbered[-1] + 1):
            if number not in inside:
                if any(source in inside or source in after for source in sources[number]):
                    after.add(number)
            elif not after.isdisjoint(sources[number]):
                found.add(group)
                break
    return found


def drop_small_groups(graph: NetGraph, keep: Iterable[str] = (), drop: Container[str] = ()) -> None:
    """Dissolve groups that hold a single member or none, and inner ones of two.

    Args:
        keep: keys of groups that stay: operators with a net inside.
        drop: keys of groups that are dissolved, whatever they hold.
    """
    kept = set(keep)
    held: dict[str, dict[str, None]] = {key: {} for key in graph.groups}
    for item in [*graph.items.values(), *graph.groups.values()]:
        if item.path:
            held[item.path[-1]][item.key] = None
    gone = set()
    for key in sorted(graph.groups, key=lambda key: -len(graph.groups[key].path)):
        group = graph.groups[key]
        members = held[key]
        is_large = len(members) >= (3 if group.path else 2) and key not in drop
        if key in kept or is_large:
            continue
        gone.add(key)
        if group.path:
            del held[group.path[-1]][key]
            held[group.path[-1]] |= members
        for inner in graph.groups.keys() & members if len(members) == 1 else ():
            within = graph.groups[inner]
            if inner not in kept and not within.title.startswith(f"{group.title}."):
                within.title = f"{group.title}.{within.title}"
    for item in [*graph.items.values(), *graph.groups.values()]:
        item.path = tuple(key for key in item.path if key not in gone)
    for key in gone:
        del graph.groups[key]


def nest(graph: NetGraph, item: Item, names: Iterable[str]) -> None:
    """Put an item into nested groups of these names, inside of the groups that it stands in."""
    path = item.path
    for name in islice(names, _DEEPEST):
        key = f"{path[-1]}/{name}" if path else f"group {name}"
        graph.group(key, name, path)
        path = (*path, key)
    item.path = path


def name_shortly(graph: NetGraph) -> None:
    """Set the short names of all items, and write into each group how much it holds."""
    counts = dict.fromkeys(graph.groups, 0)
    for item in graph.items.values():
        for key in item.path:
            counts[key] += 1
    for key, group in graph.groups.items():
        several = "s" if counts[key] != 1 else ""
        group.lines = [*group.lines, f"{counts[key]} item{several}"]
    for item in [*graph.items.values(), *graph.groups.values()]:
        short = item.name
        for key in item.path:
            title = graph.groups[key].title
            for before in title, title.rpartition(".")[2], graph.groups[key].name:
                for start in f"{before}.", f"{before}/", inner_name(before, ""):
                    if before and short.startswith(start) and len(short) > len(start):
                        short = short.removeprefix(start).removeprefix("_.")
        item.short = "" if short == item.title else item.name if short.isdecimal() else short
