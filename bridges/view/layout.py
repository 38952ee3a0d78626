"""Where the members of each group stand, for the page to open and close groups with.

Each group is placed alone, its inner groups closed, by `framework/draw/sugiyama.py`. The page keeps
the layers, the order in them and the wanted places; when a group opens it only makes room.
A value that enters or leaves a group has a port on its edge. What would cross many layers, or
comes to a group with many ports, is a stub: a short line with a name that leads there.
"""

from __future__ import annotations

import heapq
import math
import unicodedata
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from ...framework.draw.sugiyama import Box, Placement, place
from .graph import GROUP, Item, NetGraph, name_shortly

_LONGEST = 12
"""Layers that an edge crosses at most; longer ones are stubs."""

_MOST_PORTS = 16
_MOST_READERS = 24  # of a member within a group, and members that it reads; more are stubs
_FEWEST_PARTS = 12  # that nothing drawn connects; fewer stand side by side
_SHELF, _SHAPE = 1200.0, 1.6  # least width of a shelf, and width by height of all
_GAP = (18.0, 30.0)
_PORT = (110.0, 14.0)
_TITLE, _LINE = 21.0, 14.0
_NARROWEST, _WIDEST = 84.0, 250.0
_PADDING = 22.0
_WIDE = frozenset("mwMW@%→←◂×…—")
_SLIM = frozenset("iljtfrI.,:;'|!()[]{}/ ")

Layers = list[list[tuple[int, float]]]
"""From top to bottom: members with their x."""

Carried = tuple[int, int]
"""A value on an edge: the number of the item that computes it, and the number of the value."""


@dataclass
class Link:
    """An edge between two members of a group, or a member and a port.

    Attributes:
        source, target: numbers of members; ports come after the items.
        back: drawn upwards: it closes a circle.
        carried: the values on it.
        changes: of the edges that it stands for.
    """

    source: int
    target: int
    back: bool = False
    carried: dict[Carried, None] = field(default_factory=dict)
    changes: set[str] = field(default_factory=set)


@dataclass
class GroupLayout:
    """The layout of a group.

    Attributes:
        members: numbers of items and groups.
        ports: the value of each port, inputs first; `entries` of them are inputs.
        layers: from top to bottom: (member, its x), where -1 - n is where link n runs through.
        links: what is drawn.
        stubs: (member, whether it leaves, the item at the other end, the value).
    """

    members: list[int]
    ports: list[Carried] = field(default_factory=list)
    entries: int = 0
    layers: Layers = field(default_factory=list)
    links: list[Link] = field(default_factory=list)
    stubs: list[tuple[int, bool, int, int]] = field(default_factory=list)


@lru_cache(1 << 14)
def width_of(text: str, size: float = 12.0) -> float:
    """About how wide a text is in the widest common sans-serif font, at this size."""
    return sum(map(_char_width, text)) * size


@lru_cache(1 << 12)
def _char_width(char: str) -> float:
    if char in _SLIM:
        return 0.4
    if char in _WIDE:
        return 0.95
    if char.isupper():
        return 0.72
    if char.isascii():
        return 0.63
    return 1.0 if unicodedata.east_asian_width(char) in "WF" else 0.65


def size_of(item: Item) -> tuple[float, float]:
    """Width and height of a closed item."""
    sign = 14.0 if item.kind == GROUP else 0.0
    texts = [width_of(item.title, 13.0) + sign, *(width_of(line, 11.0) for line in item.lines)]
    if item.short:
        texts.append(width_of(item.short, 11.0))
    lines = len(item.lines) + bool(item.short)
    width = min(max(max(texts) + _PADDING, _NARROWEST), _WIDEST)
    return width, _TITLE + _LINE * lines + (5.0 if lines else 3.0)


def lay_out(graph: NetGraph) -> tuple[list[Item], dict[int, GroupLayout]]:
    """All items and groups by number, and the layout of each group; number 0 is the whole net."""
    listed = [Item("", graph.title, kind=GROUP), *graph.groups.values(), *graph.items.values()]
    numbers = {item.key: number for number, item in enumerate(listed)}
    values = {key: number for number, key in enumerate(graph.values)}
    chains: list[tuple[int, ...]] = [
        (0, *(numbers[key] for key in item.path), n) for n, item in enumerate(listed)
    ]
    chains[0] = (0,)
    name_shortly(graph)
    aside = {number for number, item in enumerate(listed) if item.aside}
    parts = _Parts({0: GroupLayout([])}, aside)
    first = list(range(len(listed)))  # where each member begins in the order of the net
    for number in range(len(listed) - 1, len(graph.groups), -1):
        for group in chains[number][1:-1]:
            first[group] = number
    for number in range(1, len(listed)):
        parts.layouts.setdefault(chains[number][-2], GroupLayout([])).members.append(number)
    for layout in parts.layouts.values():
        layout.members.sort(key=lambda member: first[member])
    for edge in graph.edges:
        source, target = numbers[edge.source], numbers[edge.target]
        carried = (source, values[edge.value])
        parts.add(chains[source], chains[target], carried, edge.delayed, edge.change)
    sizes = [size_of(item) for item in listed]
    placed: dict[Any, Placement] = {}
    for group, layout in parts.layouts.items():
        _Group(layout, parts, group, sizes, first, placed, aside).place()
    return listed, parts.layouts


class _Parts:
    """The edges of the net, cut at the edges of groups.

    Attributes:
        inner: group -> (member, member) -> link with numbers of items.
        enters, leaves: group -> value -> members that read it, that write it.
    """

    def __init__(self, layouts: dict[int, GroupLayout], aside: set[int]) -> None:
        self.layouts = layouts
        self.aside = aside
        self.inner: dict[int, dict[tuple[int, int], Link]] = {}
        self.strong: dict[int, set[tuple[int, int]]] = {}
        self.enters: dict[int, dict[Carried, dict[int, str]]] = {}
        self.leaves: dict[int, dict[Carried, dict[int, str]]] = {}
        self.readers: dict[tuple[int, Carried], int] = {}  # (group, value) -> an item inside

    def add(
        self,
        source: Sequence[int],
        target: Sequence[int],
        carried: Carried,
        late: bool,
        change: str,
    ) -> None:
        """An edge between two items, given by the groups around them, outermost first."""
        depth = 0
        while depth + 1 < min(len(source), len(target)) and source[depth + 1] == target[depth + 1]:
            depth += 1
        if depth + 1 >= min(len(source), len(target)):
            return  # between an item and the group that it stands in
        group = source[depth]
        ends = (source[depth + 1], target[depth + 1])
        link = self.inner.setdefault(group, {}).setdefault(ends, Link(*ends))
        link.carried[carried] = None
        link.changes.add(change)
        if not late:
            self.strong.setdefault(group, set()).add(ends)
        for table, chain in ((self.leaves, source), (self.enters, target)):
            to_aside = table is self.leaves and self.aside.intersection(target[depth + 1 :])
            for outer, inner in zip(chain[depth + 1 :], chain[depth + 2 :], strict=False):
                if to_aside and outer not in self.aside:
                    continue  # no line goes on from there
                table.setdefault(outer, {}).setdefault(carried, {})[inner] = change
        for outer in source[depth + 1 : -1]:
            self.readers[outer, carried] = target[-1]


class _Group:
    """One group while it is laid out; members are numbered from 0, ports after them."""

    def __init__(
        self,
        layout: GroupLayout,
        parts: _Parts,
        group: int,
        sizes: Sequence[tuple[float, float]],
        first: Sequence[int],
        placed: dict[Any, Placement],
        aside: set[int],
    ) -> None:
        self.layout = layout
        self.parts = parts
        self.group = group
        self.local = {number: at for at, number in enumerate(layout.members)}
        self.sizes = [sizes[number] for number in layout.members]
        self.first = [first[number] for number in layout.members]
        self.count = len(layout.members)
        self.aside = {self.local[number] for number in aside & self.local.keys()}
        self.is_aside = group in aside
        self.placed = placed  # by boxes and edges: layers of a net are often alike

    def place(self) -> None:
        """Fill in the layout."""
        inner = self.parts.inner.get(self.group, {})
        links = [
            Link(self.local[a], self.local[b], False, link.carried, link.changes)
            for (a, b), link in inner.items()
            if not {self.local[a], self.local[b]} & self.aside
        ]
        strong = {(self.local[a], self.local[b]) for a, b in self.parts.strong.get(self.group, ())}
        order = self._order(links, strong)
        rank = {member: at for at, member in enumerate(order)}
        for link in links:
            link.back = rank[link.source] >= rank[link.target]
        links = [link for link in links if link.source != link.target]
        depth = _depths(links, order, rank)
        links = self._without_long(links, depth)
        links += self._ports(depth)
        self.layout.links = links
        self._take(order, rank, depth)

    def _order(self, links: list[Link], strong: set[tuple[int, int]]) -> list[int]:
        """Members after what they read, else in the net's order. Circles are cut where a value of
        another time is read, if that is possible."""
        waits, holds = [0] * self.count, [0] * self.count
        after: list[list[tuple[int, bool]]] = [[] for _ in range(self.count)]
        for link in links:
            if link.source != link.target:
                is_strong = (link.source, link.target) in strong
                after[link.source].append((link.target, is_strong))
                waits[link.target] += 1
                holds[link.target] += is_strong
        free = [(self.first[m], m) for m in range(self.count) if not waits[m]]
        ready = [(self.first[m], m) for m in range(self.count) if not holds[m]]
        rest = sorted((self.first[m], m) for m in range(self.count))[::-1]
        heapq.heapify(free)
        heapq.heapify(ready)
        done: dict[int, None] = {}
        while len(done) < self.count:
            heap = free or ready
            _, member = heapq.heappop(heap) if heap else rest.pop()
            if member in done:
                continue
            done[member] = None
            for reader, is_strong in after[member]:
                waits[reader] -= 1
                holds[reader] -= is_strong
                if not waits[reader]:
                    heapq.heappush(free, (self.first[reader], reader))
                if is_strong and not holds[reader]:
                    heapq.heappush(ready, (self.first[reader], reader))
        return list(done)

    def _without_long(self, links: list[Link], depth: list[int]) -> list[Link]:
        """The links that are drawn; the others become stubs at both ends."""
        readers, reads = Counter(link.source for link in links), Counter(k.target for k in links)
        kept = []
        for link in links:
            span = abs(depth[link.target] - depth[link.source])
            most = max(readers[link.source], reads[link.target])
            if span <= _LONGEST and most <= _MOST_READERS:
                kept.append(link)
                continue
            (item, value), *_ = link.carried
            self.layout.stubs.append((link.source, True, self.layout.members[link.target], value))
            self.layout.stubs.append((link.target, False, item, value))
        return kept

    def _ports(self, depth: list[int]) -> list[Link]:
        """Ports for what enters and leaves, and the links to them; else stubs."""
        layout = self.layout
        links = []
        enters = self.parts.enters.get(self.group, {})
        leaves = self.parts.leaves.get(self.group, {})
        lowest = max(depth, default=0)
        for table, is_entry in ((enters, True), (leaves, False)):
            many = self.is_aside or len(table) > _MOST_PORTS
            for carried, members in table.items():
                port = self.count + len(layout.ports)
                drawn = []
                for number, change in members.items():
                    member = self.local[number]
                    span = depth[member] if is_entry else lowest - depth[member]
                    if many or span > _LONGEST:
                        other = carried[0]
                        if not is_entry:
                            other = self.parts.readers[self.group, carried]
                        layout.stubs.append((member, not is_entry, other, carried[1]))
                        continue
                    ends = (port, member) if is_entry else (member, port)
                    drawn.append(Link(*ends, False, {carried: None}, {change}))
                if drawn:
                    layout.ports.append(carried)
                    layout.entries += is_entry
                    links += drawn
        return links

    def _take(self, order: list[int], rank: dict[int, int], depth: list[int]) -> None:
        """Place all and keep what the page needs: layers, order and x."""
        layout = self.layout
        ports = len(self.layout.ports)
        if not ports and (shelves := self._on_shelves(order)):
            layout.layers = shelves
            return
        entries = list(range(self.count, self.count + layout.entries))
        exits = list(range(self.count + layout.entries, self.count + ports))
        placed_as = [-1, *entries, *order, *exits]  # box -> member; -1 stands above all entries
        box_of = {member: box for box, member in enumerate(placed_as)}
        boxes = [
            Box(0.0, 0.0) if m < 0 else Box(*(_PORT if m >= self.count else self.sizes[m]))
            for m in placed_as
        ]
        edges = []
        for link in layout.links:
            ends = (box_of[link.source], box_of[link.target])
            edges.append(ends[::-1] if link.back else ends)
        drawn = len(edges)
        edges += [(0, box_of[port]) for port in entries]
        if exits and order:  # exits stand below all else
            deepest = box_of[max(order, key=lambda member: (depth[member], rank[member]))]
            edges += [(deepest, box_of[port]) for port in exits]
        layout.layers = _layers(self._placement(boxes, edges), placed_as, range(drawn))

    def _placement(self, boxes: Sequence[Box], edges: Sequence[tuple[int, int]]) -> Placement:
        key = (tuple([(box.width, box.height) for box in boxes]), tuple(edges))
        if key not in self.placed:
            self.placed[key] = place(boxes, edges)
        return self.placed[key]

    def _on_shelves(self, order: list[int]) -> Layers | None:
        """Layers in which parts that nothing drawn connects stand in rows below one another; None
        where they are few, or not wide side by side: hundreds of branches, say, between stubs."""
        links = self.layout.links
        parts = _connected(order, links)
        if len(parts) < _FEWEST_PARTS:
            return None
        part_of = {member: at for at, part in enumerate(parts) for member in part}
        numbers: list[list[int]] = [[] for _ in parts]
        for number, link in enumerate(links):
            numbers[part_of[link.source]].append(number)
        pieces: list[tuple[Layers, float]] = []
        area = 0.0
        for part, own in zip(parts, numbers, strict=True):
            at = {member: box for box, member in enumerate(part)}
            boxes = [Box(*self.sizes[member]) for member in part]
            ends = [(at[links[n].source], at[links[n].target], links[n].back) for n in own]
            edges = [(b, a) if back else (a, b) for a, b, back in ends]
            placed = self._placement(boxes, edges)
            width = max(box.x + box.width / 2 for box in placed.boxes) + _GAP[0]
            height = max(box.y + box.height / 2 for box in placed.boxes) + _GAP[1]
            pieces.append((_layers(placed, part, own), width))
            area += width * height
        widths = [width for _, width in pieces]
        shelf = max(*widths, math.sqrt(area * _SHAPE), _SHELF)
        return _shelved(pieces, shelf) if sum(widths) > 2 * shelf else None


def _connected(order: Sequence[int], links: Sequence[Link]) -> list[list[int]]:
    """Members by what links connect, in order."""
    near: dict[int, list[int]] = {member: [] for member in order}
    for link in links:
        near[link.source].append(link.target)
        near[link.target].append(link.source)
    part_of: dict[int, int] = {}
    parts: list[list[int]] = []
    for member in order:
        if member not in part_of:
            parts.append([])
            waiting = [member]
            while waiting:
                each = waiting.pop()
                if each not in part_of:
                    part_of[each] = len(parts) - 1
                    waiting += near[each]
        parts[part_of[member]].append(member)
    return parts


def _shelved(pieces: Sequence[tuple[Layers, float]], shelf: float) -> Layers:
    """The layers of pieces side by side, shelf below shelf."""
    shelved: Layers = []
    begin, x = 0, 0.0  # the first layer of the shelf, where the next piece stands
    for layers, width in pieces:
        if x and x + width > shelf:
            begin = len(shelved)
            x = 0.0
        for level, layer in enumerate(layers, begin):
            if level == len(shelved):
                shelved.append([])
            shelved[level] += [(member, round(at + x, 1)) for member, at in layer]
        x += width
    return shelved


def _layers(placed: Placement, members: Sequence[int], links: Sequence[int]) -> Layers:
    """The layers of a placement, without the box that stands above the entries.

    Args:
        links: the numbers of those that the first routes are of.
    """
    rows: dict[float, list[tuple[int, float]]] = {}
    for member, box in zip(members, placed.boxes, strict=True):
        if member >= 0:
            rows.setdefault(round(box.y, 2), []).append((member, round(box.x, 1)))
    for number, route in zip(links, placed.routes, strict=False):
        for (x, top), (_, bottom) in zip(route[1:-1:2], route[2:-1:2], strict=True):
            rows.setdefault(round((top + bottom) / 2, 2), []).append((-1 - number, round(x, 1)))
    return [sorted(rows[y], key=lambda entry: entry[1]) for y in sorted(rows)]


def _depths(links: list[Link], order: list[int], rank: dict[int, int]) -> list[int]:
    """The layer of each member by the longest path to it; sources stand above their readers."""
    below: list[list[int]] = [[] for _ in order]
    fed: set[int] = set()
    for link in links:
        upper, lower = link.source, link.target
        if link.back:
            upper, lower = lower, upper
        below[upper].append(lower)
        fed.add(lower)
    depth = [0] * len(order)
    for member in order:
        for lower in below[member]:
            depth[lower] = max(depth[lower], depth[member] + 1)
    for member in order:
        if member not in fed and below[member]:
            depth[member] = min(depth[lower] for lower in below[member]) - 1
    return depth
