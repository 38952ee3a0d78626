"""Layered placement of small directed graphs, as Sugiyama, Tagawa and Toda (1981) do it.

Layers by longest path, fewer crossings by barycenters, then positions that are as straight as the
order within each layer allows. No dependencies; meant for nets of some hundred boxes.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Sequence
from dataclasses import dataclass, field

SIDE_GAP = 18.0
LAYER_GAP = 30.0
_SWEEPS = 12
_ABREAST = 6  # sources of one reader that stand side by side


@dataclass
class Box:
    """A node: its size in pixels, and where its center was placed."""

    width: float
    height: float
    x: float = 0.0
    y: float = 0.0


@dataclass
class Placement:
    """A placed graph: boxes and, for each edge, the points it runs through, from top to bottom."""

    width: float
    height: float
    boxes: list[Box]
    routes: list[list[tuple[float, float]]] = field(default_factory=list)


def place(boxes: Sequence[Box], edges: Sequence[tuple[int, int]]) -> Placement:
    """Place an acyclic graph so that its edges run downwards; the top left corner is (0, 0).

    Args:
        boxes: sorted topologically: each comes after its predecessors.
    """
    graph = _Graph(list(boxes), list(edges))
    graph.order()
    graph.position()
    return graph.placement()


class _Graph:
    def __init__(self, boxes: list[Box], edges: list[tuple[int, int]]) -> None:
        self.boxes = boxes
        self.count = len(boxes)
        self.edges = edges
        self.layer = self._layers()
        self.paths = [self._path(start, end) for start, end in edges]
        self.up: list[list[int]] = [[] for _ in self.boxes]
        self.down: list[list[int]] = [[] for _ in self.boxes]
        for path in self.paths:
            for above, below in zip(path, path[1:], strict=False):
                self.down[above].append(below)
                self.up[below].append(above)
        depth = max(self.layer, default=-1) + 1
        self.layers: list[list[int]] = [[] for _ in range(depth)]
        for node, layer in enumerate(self.layer):
            self.layers[layer].append(node)

    def _layers(self) -> list[int]:
        """Longest path from the top; sources stand right above their first reader, in rows."""
        layer = [0] * self.count
        # By their ends: nodes are in topological order, so a layer is final before it is used.
        for start, end in sorted(self.edges, key=lambda edge: edge[1]):
            layer[end] = max(layer[end], layer[start] + 1)
        fed = {end for _, end in self.edges}
        standing: dict[int, int] = {}  # reader -> sources above it
        readers: list[list[int]] = [[] for _ in range(self.count)]
        for start, end in self.edges:
            readers[start].append(end)
        for node in range(self.count):
            if node not in fed and readers[node]:
                first, reader = min((layer[end], end) for end in readers[node])
                number = standing[reader] = standing.get(reader, -1) + 1
                layer[node] = first - 1 - number // _ABREAST
        top = min(layer, default=0)
        return [number - top for number in layer]

    def _path(self, start: int, end: int) -> list[int]:
        """The edge as a chain with an invisible box in every layer that it crosses."""
        path = [start]
        for layer in range(self.layer[start] + 1, self.layer[end]):
            path.append(len(self.boxes))
            # Four pixels wide, so that other boxes leave room for the line.
            self.boxes.append(Box(4.0, 0.0))
            self.layer.append(layer)
        return [*path, end]

    # -- order within layers -------------------------------------------------------------------

    def order(self) -> None:
        best = [list(layer) for layer in self.layers]
        fewest = self._crossings()
        for sweep in range(_SWEEPS):
            if not fewest:
                break
            downwards = sweep % 2 == 0
            near = self.up if downwards else self.down
            turn = self.layers if downwards else self.layers[::-1]
            for above, layer in zip(turn, turn[1:], strict=False):
                rank = {node: number for number, node in enumerate(above)}
                now = {node: number for number, node in enumerate(layer)}
                layer.sort(key=lambda node: _mean([rank[n] for n in near[node]], now[node]))  # noqa: B023
            crossings = self._crossings()
            if crossings < fewest:
                best = [list(layer) for layer in self.layers]
                fewest = crossings
        self.layers = best

    def _crossings(self) -> int:
        total = 0
        for layer, below in zip(self.layers, self.layers[1:], strict=False):
            rank = {node: number for number, node in enumerate(below)}
            seen: list[int] = []
            for node in layer:
                ends = sorted(rank[end] for end in self.down[node])
                # Two edges cross where their ends are in the other order than their beginnings:
                # inversions, counted in n log n comparisons.
                total += sum(len(seen) - bisect_right(seen, end) for end in ends)
                for end in ends:
                    insort(seen, end)
        return total

    # -- positions -----------------------------------------------------------------------------

    def position(self) -> None:
        top = 0.0
        for layer in self.layers:
            height = max(self.boxes[node].height for node in layer)
            for node in layer:
                self.boxes[node].y = top + height / 2
                if node >= self.count:  # a line runs straight through the layer
                    self.boxes[node].height = height
            top += height + LAYER_GAP
            self._separate(layer, [0.0] * len(layer))
        # a side input follows its reader, so that the main chain stays straight
        chain = [[n for n in above if self.up[n]] or above for above in self.up]
        for sweep in range(_SWEEPS + 1):  # the last one runs downwards
            near = chain if sweep % 2 == 0 else self.down
            for layer in self.layers if sweep % 2 == 0 else self.layers[::-1]:
                wanted = [
                    _mean([self.boxes[n].x for n in near[node]], self.boxes[node].x)
                    for node in layer
                ]
                self._separate(layer, wanted)

    def _separate(self, layer: list[int], wanted: list[float]) -> None:
        """Positions nearest to `wanted` (least squares) that keep order and distance.

        Distances taken away, this is isotonic regression: pool neighbors that are out of order.
        """
        shift = 0.0
        shifts = []
        for number, node in enumerate(layer):
            if number:
                shift += (self.boxes[layer[number - 1]].width + self.boxes[node].width) / 2
                shift += SIDE_GAP
            shifts.append(shift)
        pools: list[list[float]] = []  # sum, count
        for want, away in zip(wanted, shifts, strict=True):
            pools.append([want - away, 1.0])
            while len(pools) > 1 and pools[-2][0] / pools[-2][1] > pools[-1][0] / pools[-1][1]:
                total, count = pools.pop()
                pools[-1][0] += total
                pools[-1][1] += count
        values = [total / count for total, count in pools for _ in range(int(count))]
        for node, value, away in zip(layer, values, shifts, strict=True):
            self.boxes[node].x = value + away

    def placement(self) -> Placement:
        if not self.boxes:
            return Placement(0.0, 0.0, [])
        left = min(box.x - box.width / 2 for box in self.boxes)
        for box in self.boxes:
            box.x -= left
        routes = []
        for path in self.paths:
            first = self.boxes[path[0]]
            last = self.boxes[path[-1]]
            points = [(first.x, first.y + first.height / 2)]
            for node in path[1:-1]:
                box = self.boxes[node]
                points += [(box.x, box.y - box.height / 2), (box.x, box.y + box.height / 2)]
            routes.append([*points, (last.x, last.y - last.height / 2)])
        width = max(box.x + box.width / 2 for box in self.boxes)
        height = max(box.y + box.height / 2 for box in self.boxes)
        return Placement(width, height, self.boxes[: self.count], routes)


def _mean(values: Sequence[float], otherwise: float) -> float:
    return sum(values) / len(values) if values else otherwise
