"""What differs between two nets: the graph of one, with what the other had, marked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from .graph import ADDED, CHANGED, REMOVED, Facts, Item, NetGraph, Slots

_PLACES = frozenset({"written at", "operator"})
"""Facts about where an item stands in its file, which may differ."""

Arrays = Mapping[str, np.ndarray]


def mark_difference(graph: NetGraph, arrays: Arrays, old: NetGraph, old_arrays: Arrays) -> None:
    """Mark in a graph what differs from another one, and put in what only the other has.

    Items are the same in both if they have one key: an operator has the key of its main result.

    Args:
        arrays, old_arrays: numbers of values, by `Value.array`.
    """
    graph.compared = old.title
    for key, value in old.values.items():
        new = graph.values.setdefault(key, replace(value, change=REMOVED))
        if new.change != REMOVED and new.type != value.type:
            new.change = CHANGED
            new.facts.append(("was", value.type))
    for key, value in graph.values.items():
        if key not in old.values:
            value.change = ADDED
    differing = _differing_arrays(graph, arrays, old, old_arrays)
    for table, theirs in ((graph.items, old.items), (graph.groups, old.groups)):
        for key, item in table.items():
            if key in theirs:
                item.changes = _changes(item, theirs[key], graph, old, differing)
                item.change = CHANGED if item.changes else ""
            elif key not in old.items and key not in old.groups and table is graph.items:
                item.change = ADDED
    _add_removed(graph, old)
    mine = {(edge.source, edge.target, edge.value) for edge in graph.edges}
    theirs = {(edge.source, edge.target, edge.value) for edge in old.edges}
    for edge in graph.edges:
        if (edge.source, edge.target, edge.value) not in theirs:
            edge.change = ADDED
    there = graph.items.keys() | graph.groups.keys()
    for edge in old.edges:
        is_new = (edge.source, edge.target, edge.value) not in mine
        if is_new and edge.source in there and edge.target in there:
            graph.edges.append(replace(edge, change=REMOVED))


def _add_removed(graph: NetGraph, old: NetGraph) -> None:
    """Put in the items that only the old graph has, with the groups around them."""
    for key, item in old.items.items():
        if key in graph.items or key in graph.groups:
            continue
        path = []
        for group in item.path:
            if group in graph.items:
                break  # what was a group is an item now
            if group not in graph.groups:
                title = old.groups[group]
                graph.groups[group] = replace(title, path=tuple(path))
                if title.facts:
                    graph.groups[group].change = REMOVED
            path.append(group)
        graph.items[key] = replace(item, path=tuple(path), change=REMOVED)


def _changes(
    item: Item, before: Item, graph: NetGraph, old: NetGraph, differing: Mapping[str, str]
) -> list[str]:
    """What differs in an item, a line each."""
    lines = []
    if item.title != before.title:
        lines.append(f"was {before.title}")
    lines += _fact_lines(item.facts, before.facts)
    for word, now, then in (
        ("reads", item.reads, before.reads),
        ("writes", item.writes, before.writes),
        ("parameters", item.holds, before.holds),
    ):
        if _names(now, graph) != _names(then, old):
            lines.append(f"{word}: {_shown(then, old)} → {_shown(now, graph)}")
    for slots in (item.writes, item.holds):
        for _, keys in slots:
            for key in keys:
                then = old.values.get(key)
                if then is not None and then.type != graph.values[key].type:
                    lines.append(f"{then.name}: {then.type} → {graph.values[key].type}")
                elif key in differing:
                    lines.append(f"{graph.values[key].name}: {differing[key]}")
    return lines


def _fact_lines(facts: Facts, before: Facts) -> list[str]:
    now = {name: text for name, text in facts if name not in _PLACES}
    then = {name: text for name, text in before if name not in _PLACES}
    return [
        f"{name}: {then.get(name, 'none')} → {now.get(name, 'none')}"
        for name in {**then, **now}
        if then.get(name) != now.get(name)
    ]


def _names(slots: Slots, graph: NetGraph) -> list[tuple[str, list[str]]]:
    return [(slot, [graph.values[key].name for key in keys]) for slot, keys in slots]


def _shown(slots: Slots, graph: NetGraph) -> str:
    return ", ".join(name for _, names in _names(slots, graph) for name in names) or "nothing"


def _differing_arrays(
    graph: NetGraph, arrays: Arrays, old: NetGraph, old_arrays: Arrays
) -> dict[str, str]:
    """Values whose numbers differ between the two, and by how much."""
    differences = {}
    for key, value in graph.values.items():
        before = old.values.get(key)
        if before is None or value.array not in arrays or before.array not in old_arrays:
            continue
        a, b = arrays[value.array], old_arrays[before.array]
        if a.shape != b.shape:
            differences[key] = f"{list(b.shape)} → {list(a.shape)}"
        elif (
            a.dtype.kind in "fiub"
            and b.dtype.kind in "fiub"
            and not np.array_equal(a, b, equal_nan=a.dtype.kind == "f" and b.dtype.kind == "f")
        ):
            with np.errstate(all="ignore"):
                away = np.abs(a.astype(np.float64) - b)
            most = float(np.nanmax(away)) if not np.isnan(away).all() else float("nan")
            count = int(np.count_nonzero(away))
            differences[key] = f"{count} of {a.size} numbers differ, by at most {most:.4g}"
        if key in differences:
            value.change = CHANGED
            value.facts.append(("numbers", differences[key]))
    return differences
