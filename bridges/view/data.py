"""The page's data: a graph, its layout and the statistics of its arrays as JSON."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np

from .graph import KINDS, Facts, Item, NetGraph, Slots
from .layout import GroupLayout, Link, lay_out, size_of
from .numbers import statistics
from .texts import cut

_LONGEST = 4000
_FIRST_SHOWN = 70
"""Items that are shown at first, at most: groups open from outside while there are fewer."""


def page_data(graph: NetGraph, arrays: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """Everything that the page's script reads; the keys are short since they repeat.

    Args:
        arrays: numbers of the values that have some, by `Value.array`.
    """
    items, layouts = lay_out(graph)
    values = {key: number for number, key in enumerate(graph.values)}
    shown = {value.array for value in graph.values.values()} & arrays.keys()
    return {
        "title": graph.title,
        "facts": _cut(graph.facts),
        "compared": graph.compared,
        "profiled": graph.profiled,
        "numbers": graph.numbers,
        "kinds": KINDS,
        "items": [_item(item, values) for item in items],
        "groups": {number: _group(layout) for number, layout in layouts.items()},
        "values": [
            [v.name, v.type, v.kind, _cut(v.facts), v.array if v.array in shown else "", v.change]
            for v in graph.values.values()
        ],
        "arrays": {key: statistics(arrays[key]) for key in sorted(shown)},
        "open": _open(layouts, _closed(graph, items)),
    }


def _closed(graph: NetGraph, items: list[Item]) -> set[int]:
    """Groups that are closed at first: those aside, and operators with a large net inside."""
    counts = Counter(key for item in graph.items.values() for key in item.path)
    return {
        number
        for number, item in enumerate(items)
        if item.aside or (item.writes and counts[item.key] > _FIRST_SHOWN)
    }


def _cut(facts: Facts) -> Facts:
    """Facts whose texts are not longer than anybody reads."""
    return [(name, cut(text, _LONGEST)) for name, text in facts]


def _item(item: Item, values: Mapping[str, int]) -> dict[str, Any]:
    width, height = size_of(item)
    row: dict[str, Any] = {
        "t": item.title,
        "n": item.name,
        "k": KINDS.index(item.kind),
        "z": [round(width), round(height)],
    }
    listed: dict[str, Any] = {
        "i": item.short,
        "l": item.lines,
        "f": _cut(item.facts),
        "r": _slots(item.reads, values),
        "w": _slots(item.writes, values),
        "h": _slots(item.holds, values),
        "c": item.change,
        "d": item.changes,
    }
    row |= {key: value for key, value in listed.items() if value}
    if item.time is not None:
        row["s"] = item.time
    if item.number_shown is not None:
        finite = np.isfinite(item.number_shown)
        row["e"] = item.number_shown if finite else str(item.number_shown)
    if item.memory is not None:
        row["b"] = item.memory
    return row


def _slots(slots: Slots, values: Mapping[str, int]) -> list[list[Any]]:
    return [[slot, [values[key] for key in keys if key in values]] for slot, keys in slots]


def _group(layout: GroupLayout) -> dict[str, Any]:
    return {
        "m": layout.members,
        "p": layout.ports,
        "e": layout.entries,
        "y": [[number for entry in layer for number in entry] for layer in layout.layers],
        "k": [_link(link) for link in layout.links],
        "s": [[member, int(leaves), *rest] for member, leaves, *rest in layout.stubs],
    }


def _link(link: Link) -> list[Any]:
    """[source, target, 1 if upwards, change, item, value, item, value ...]"""
    change = next(iter(link.changes)) if len(link.changes) == 1 else ""
    carried = [number for pair in link.carried for number in pair]
    return [link.source, link.target, int(link.back), change, *carried]


def _open(layouts: Mapping[int, GroupLayout], closed: set[int]) -> list[int]:
    """The groups that are open at first: level by level, as long as few items are shown."""
    opened = [0]
    shown = len(layouts[0].members)
    level = [0]
    while level:
        inner = [m for group in level for m in layouts[group].members]
        inner = [member for member in inner if member in layouts and member not in closed]
        more = sum(len(layouts[group].members) for group in inner)
        if shown + more > _FIRST_SHOWN:
            break
        opened = opened + inner
        shown = shown + more
        level = inner
    return opened


def to_json(data: Mapping[str, Any]) -> str:
    """JSON that can stand in a script element: no text of a file can end it or begin another."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    for char in "<>&\u2028\u2029":
        text = text.replace(char, f"\\u{ord(char):04x}")
    # surrogates cannot be written as UTF-8; damaged names hold them
    return text.encode("utf-8", "replace").decode("utf-8")
