"""Clusters of Gaussian statistics: merged from below, moved between clusters, split from above.

Objectives are compared in single precision and ties are broken as Kaldi's queues do, so that the
same statistics give the same clusters. Source: Kaldi's `tree/cluster-utils.cc`.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from .gaussians import distances, objectives, sums_by

_TRIES, _ITERATIONS = 10, 20
_REFINING, _CLOSEST = 100, 5
_STALE = np.float32(1e-5)


@dataclass(order=True)
class _Merge:
    """A pair of clusters that may be merged; only its distance counts in the order of the queue."""

    distance: np.float32
    compartment: int = field(compare=False)
    first: int = field(compare=False)
    second: int = field(compare=False)


class _Compartment:
    """Clusters that may be merged with each other.

    Args:
        rows: [points, 1 + 2 * dim]. floor: least variance.
    """

    def __init__(self, rows: np.ndarray, floor: float) -> None:
        self.floor = floor
        self.rows = rows.copy()
        self.objectives = objectives(rows, floor)
        self.merged_into = list(range(len(rows)))
        self.alive = np.ones(len(rows), bool)
        self.distances = np.zeros((len(rows), len(rows)), np.float32)
        for i in range(1, len(rows)):
            self.distances[i, :i] = self._from(i, np.arange(i))

    def _from(self, i: int, others: np.ndarray) -> np.ndarray:
        return distances(
            self.rows[i], self.objectives[i], self.rows[others], self.objectives[others], self.floor
        )

    def pairs(self) -> list[tuple[int, int]]:
        """The pairs of clusters that are left, the higher number first."""
        left = np.flatnonzero(self.alive).tolist()
        return [(i, j) for i in left for j in left if j < i]

    def can_merge(self, i: int, j: int, distance: np.float32) -> bool:
        """Whether two clusters are left, and their distance is still this one."""
        known = self.distances[i, j]
        return bool(
            self.alive[i] and self.alive[j] and abs(known - distance) <= _STALE * abs(distance)
        )

    def merge(self, i: int, j: int) -> list[tuple[int, int]]:
        """Put cluster `j` into `i`; the pairs whose distances changed."""
        self.rows[i] += self.rows[j]
        self.objectives[i] = objectives(self.rows[i], self.floor)
        self.alive[j] = False
        self.merged_into[j] = i
        others = np.flatnonzero(self.alive & (np.arange(len(self.rows)) != i))
        pairs = [(max(i, k), min(i, k)) for k in others.tolist()]
        for pair, distance in zip(pairs, self._from(i, others), strict=True):
            self.distances[pair] = distance
        return pairs

    def clusters(self) -> list[int]:
        """The number of the cluster of each point, clusters counted in the order of points."""
        numbers = np.cumsum(self.alive) - 1
        found = []
        for point in range(len(self.rows)):
            while self.merged_into[point] != point:
                point = self.merged_into[point]
            found.append(int(numbers[point]))
        return found


def merged_below(rows: np.ndarray, threshold: float, floor: float) -> list[int]:
    """The cluster of each point, the closest two merged while they are within a threshold.

    Args:
        rows: [points, 1 + 2 * dim]. threshold: most objective lost by a merge.
        floor: least variance.
    """
    least = np.float32(threshold)
    part = _Compartment(rows, floor)

    def within() -> list[tuple[np.float32, int, int]]:
        close = [(part.distances[pair], *pair) for pair in part.pairs()]
        return [each for each in close if each[0] <= least]

    queue = within()
    heapq.heapify(queue)
    while queue:
        distance, i, j = heapq.heappop(queue)
        if not part.can_merge(i, j, distance):
            continue
        for pair in part.merge(i, j):
            if part.distances[pair] < least:
                heapq.heappush(queue, (part.distances[pair], *pair))
            if len(queue) >= len(rows) ** 2:
                # Kaldi drops what is out of date here, which counts: a stale pair may be merged.
                queue = within()
                heapq.heapify(queue)
    return part.clusters()


def merged_to_count(groups: list[np.ndarray], count: int, floor: float) -> list[list[int]]:
    """The cluster of each point of each group, merged within groups until `count` are left of all.

    Equal distances come in the order of a binary heap of single pushes, as in Kaldi.

    Args:
        groups: [points, 1 + 2 * dim] each. count: at least one for each group that is not empty.
        floor: least variance.
    """
    parts = [_Compartment(rows, floor) for rows in groups]
    left = sum(map(len, groups))
    queue: list[_Merge] = []

    def push(number: int, pair: tuple[int, int]) -> None:
        distance = parts[number].distances[pair]
        if distance < np.inf:
            heapq.heappush(queue, _Merge(distance, number, *pair))

    def push_all() -> None:
        for number, part in enumerate(parts):
            for pair in part.pairs():
                push(number, pair)

    push_all()
    while left > count and queue:
        best = heapq.heappop(queue)
        part = parts[best.compartment]
        if not part.can_merge(best.first, best.second, best.distance):
            continue
        left -= 1
        for pair in part.merge(best.first, best.second):
            push(best.compartment, pair)
        if len(queue) >= left**2:
            queue.clear()
            push_all()
    return [part.clusters() for part in parts]


class _Refiner:
    """Moves points to the clusters where the objective grows.

    Args:
        points: [points, 1 + 2 * dim].
        clusters: [clusters, 1 + 2 * dim], which change. assigned: the cluster of each point, which
            changes.
        closest: how many clusters a point may move between. floor: least variance.
    """

    def __init__(
        self,
        points: np.ndarray,
        clusters: np.ndarray,
        assigned: np.ndarray,
        closest: int,
        floor: float,
    ) -> None:
        self.points, self.clusters, self.assigned, self.floor = points, clusters, assigned, floor
        self.closest = min(closest, len(clusters))
        self.gain = np.float32(0)
        self._moves = 0
        self._changed = [0] * len(clusters)
        self._objectives = objectives(clusters, floor)
        numbers = np.arange(len(clusters))
        self._near = np.empty((len(points), self.closest), np.int64)
        self._values = np.empty((len(points), self.closest), np.float32)
        self._times = [[0] * self.closest for _ in points]
        self._own = [self.closest - 1] * len(points)
        for p, point in enumerate(points):
            own = assigned[p]
            others = numbers[numbers != own]
            before = self._objectives[others]
            lost = before - objectives(clusters[others] + point, floor)
            order = np.lexsort((others, lost))[: self.closest - 1]
            self._near[p] = [*others[order], own]
            self._values[p, :-1] = -(lost[order] - before[order])
            self._values[p, -1] = objectives(clusters[own] - point, floor)

    def refine(self, iterations: int) -> np.float32:
        """Visit all points again and again; how much the objective grew."""
        for _ in range(iterations if self.closest > 1 else 0):
            before = self._moves
            for p in range(len(self.points)):
                self._visit(p)
            if self._moves == before:
                break
        return np.float32(self.gain)

    def _visit(self, p: int) -> None:
        own = self._own[p]
        leaving = self._value(p, own)
        mine = self._near[p, own]
        for place in range(self.closest):
            if place == own:
                continue
            other = self._near[p, place]
            entering = self._value(p, place)
            gain = entering + leaving - self._objectives[other] - self._objectives[mine]
            if gain > 0:
                self.gain += gain
                self._moves += 1
                self._own[p] = place
                self.assigned[p] = other
                self.clusters[mine] -= self.points[p]
                self.clusters[other] += self.points[p]
                for cluster in (mine, other):
                    self._objectives[cluster] = objectives(self.clusters[cluster], self.floor)
                    self._changed[cluster] = self._moves
                return

    def _value(self, p: int, place: int) -> np.float32:
        """The objective of a cluster with the point, or of its own without it."""
        cluster = self._near[p, place]
        if self._times[p][place] < self._changed[cluster]:
            sign = -1 if place == self._own[p] else 1
            moved = self.clusters[cluster] + sign * self.points[p]
            self._values[p, place] = objectives(moved, self.floor)
            self._times[p][place] = self._moves
        return self._values[p, place]


def refined(
    points: np.ndarray,
    clusters: np.ndarray,
    assigned: np.ndarray,
    iterations: int,
    closest: int,
    floor: float,
) -> np.float32:
    """Move points between clusters while the objective grows; `clusters` and `assigned` change.

    Args:
        points: [points, 1 + 2 * dim]. clusters: [clusters, 1 + 2 * dim], the sums of their points.
        assigned: the cluster of each point.
        iterations: visits of each point at most. closest: clusters that a point may move between.
        floor: least variance.

    Returns:
        How much the objective grew.
    """
    if iterations <= 0:
        return np.float32(0)
    return _Refiner(points, clusters, assigned, closest, floor).refine(iterations)


def k_means(
    points: np.ndarray, count: int, floor: float, rand: Callable[[], int], tries: int = 2
) -> tuple[np.float32, np.ndarray]:
    """The best of some tries to divide points into clusters.

    Args:
        points: [points, 1 + 2 * dim], at least `count` of them. floor: least variance.
        rand: a number of C's `rand()`, by which each try begins.

    Returns:
        How much the objective exceeds a single cluster's, and the cluster of each point.
    """
    best: tuple[np.float32, np.ndarray] | None = None
    for _ in range(tries):
        found = _k_means_once(points, count, floor, rand)
        if best is None or found[0] > best[0]:
            best = found
    assert best is not None
    return best


def _k_means_once(
    points: np.ndarray, count: int, floor: float, rand: Callable[[], int]
) -> tuple[np.float32, np.ndarray]:
    size = len(points)
    step = 1
    if size > 1:
        step = 1 + rand() % (size - 1)
        while math.gcd(step, size) != 1:
            step = step % (size - 1) + 1
    order = np.arange(size) * step % size
    assigned = np.empty(size, np.int64)
    assigned[order] = np.arange(size) % count
    clusters = sums_by(assigned[order], points[order], count)
    total = np.zeros_like(clusters[0])
    gain = np.float32(0)
    for cluster in clusters:
        total += cluster
        gain += objectives(cluster, floor)
    gain -= objectives(total, floor)
    for _ in range(_ITERATIONS):
        more = refined(points, clusters, assigned, _REFINING, _CLOSEST, floor)
        gain += more
        if more == 0:
            break
    return np.float32(gain), assigned


@dataclass
class _Node:
    """A part of a hierarchy: its points, the node above, its number among leaves or the others."""

    points: np.ndarray
    parent: _Node | None
    number: int
    halves: np.ndarray | None = None


def hierarchy(
    points: np.ndarray, floor: float, rand: Callable[[], int]
) -> tuple[np.ndarray, list[int]]:
    """Points split in two again and again, the best split first, until none helps.

    Args:
        points: [points, 1 + 2 * dim]. floor: least variance.
        rand: a number of C's `rand()`.

    Returns:
        The leaf of each point, and the parent of each node: leaves first, the root last, which is
        its own.
    """
    leaves = [_Node(np.arange(len(points)), None, 0)]
    inner: list[_Node] = []
    queue: list[tuple[float, int, _Node]] = []
    made = 0

    def weigh(node: _Node) -> None:
        nonlocal made
        made += 1
        if len(node.points) < 2:
            return
        gain, node.halves = k_means(points[node.points], 2, floor, rand, _TRIES)
        if gain > 0:
            # Among equals Kaldi takes the greatest address, as a rule the newest.
            heapq.heappush(queue, (-float(gain), -made, node))

    weigh(leaves[0])
    while queue:
        node = heapq.heappop(queue)[2]
        assert node.halves is not None
        parts = [node.points[node.halves == half] for half in (0, 1)]
        low = _Node(parts[0], node, node.number)
        high = _Node(parts[1], node, len(leaves))
        leaves[node.number] = low
        leaves.append(high)
        node.number = len(inner)
        inner.append(node)
        weigh(low)
        weigh(high)
    last = len(leaves) + len(inner) - 1
    assigned = np.empty(len(points), np.int64)
    for leaf in leaves:
        assigned[leaf.points] = leaf.number
    nodes = [*leaves, *reversed(inner)]
    return assigned, [last - node.parent.number if node.parent else last for node in nodes]
