"""Trees as arrays of parents or as nested tuples, and the order in which their nodes run.

A forest is an integer array: for each node the row of its parent, -1 for a root. With offsets every
sequence of rows is one tree, and parents are counted from the tree's first row.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...base.errors import TreeError
from ...base.sequence import Sequences, bincount, offsets_of, repeated

_SIGNIFICANT_BITS = 4
_SHOWN = 6  # nodes of a cycle that an error tells


@dataclass(frozen=True)
class Trees:
    """Trees packed node by node, every parent before its children.

    Attributes:
        labels: one for each node, as given.
        parents: [nodes], one sequence for each tree: what `StepDesc.parents` is fed with.
        positions: likewise; which child of its parent a node is. 0 for roots.
    """

    labels: list[Any]
    parents: Sequences
    positions: Sequences

    @classmethod
    def from_nested(cls, trees: Sequence[Any]) -> Trees:
        """Trees written as nested tuples.

        Args:
            trees: each a label, or a tuple (label, child, child, ...) whose children are written
                alike. None is a child that is missing: `("-", None, 3)`.

        Raises:
            TreeError: an empty tuple, a tree that is None, or no trees at all.
        """
        labels: list[Any] = []
        parents: list[int] = []
        positions: list[int] = []
        sizes = []
        for number, tree in enumerate(trees):
            first = len(labels)
            if tree is None:
                raise TreeError(f"tree {number} is None")
            # Without recursion: a list that is written as a tree is as deep as it is long.
            waiting = [(tree, -1, 0)]
            while waiting:
                node, parent, position = waiting.pop()
                row = len(labels) - first
                is_inner = isinstance(node, tuple)
                if is_inner and not node:
                    raise TreeError(
                        f"tree {number}: node {row} is an empty tuple, want (label, child, ...)"
                    )
                labels.append(node[0] if is_inner else node)
                parents.append(parent)
                positions.append(position)
                children = node[1:] if is_inner else ()
                waiting += [
                    (child, row, place)
                    # Reversed on a stack: the first child comes off first, and rows have the order
                    # of the text.
                    for place, child in reversed(list(enumerate(children)))
                    if child is not None
                ]
            sizes.append(len(labels) - first)
        if not sizes:
            raise TreeError("no trees: a forest holds at least one")
        levels = (offsets_of(sizes),)
        packed = (Sequences(np.array(a, np.int64), levels) for a in (parents, positions))
        return cls(labels, *packed)


@dataclass(frozen=True)
class ForestSchedule:
    """Which nodes run when: all of one height together, leaves first.

    A node's place is its number in that order; within a height, nodes with more children come
    first. An edge joins a child to its parent. The edges whose parents have one height stand
    together: first the edges of all first children, then of all second ones and so on, each in the
    order of the parents, so that the k-th children belong to the first of these parents.

    Attributes:
        rows: [nodes], row of the node at each place; places: [nodes], the other way round.
        starts: [heights + 1], where the places of each height begin.
        tree: [nodes], number of the tree, by place.
        roots: [trees], places of the roots, in the order of their rows.
        parent: [nodes], place of the parent; `nodes` for a root. By place.
        position: [nodes], which child of its parent a node is. By place.
        edge_child, edge_parent: [edges], places.
        edge: [nodes], the edge above a node, by place; `edges` for a root.
        bundles: for each height the (first, last) edges of all first children, second children...
    """

    rows: np.ndarray
    places: np.ndarray
    starts: np.ndarray
    tree: np.ndarray
    roots: np.ndarray
    parent: np.ndarray
    position: np.ndarray
    edge_child: np.ndarray
    edge_parent: np.ndarray
    edge: np.ndarray
    bundles: tuple[tuple[tuple[int, int], ...], ...]

    @property
    def nodes(self) -> int:
        return len(self.rows)

    @property
    def heights(self) -> int:
        return len(self.starts) - 1

    def child(self, position: int) -> np.ndarray:
        """[nodes], place of each node's child at `position`; `nodes` where there is none."""
        children = np.full(self.nodes, self.nodes, np.int64)
        below = np.flatnonzero((self.parent < self.nodes) & (self.position == position))
        children[self.parent[below]] = below
        return children


def batches(begin: int, end: int) -> Iterator[tuple[int, int]]:
    """Cuts a range into few pieces of few different lengths.

    Trees are new in every minibatch, and so are the numbers of nodes of one height; step nets are
    bound for a number of rows. Lengths with few significant bits let bound ones be used again:
    eight lengths between a power of two and the next, and rarely more than three pieces.
    """
    while begin < end:
        unit = 1 << max((end - begin).bit_length() - _SIGNIFICANT_BITS, 0)
        size = (end - begin) // unit * unit
        yield begin, begin + size
        begin += size


def make_forest_schedule(
    parents: Any, offsets: Any = None, *, arity: int = 0, positions: Any = None
) -> ForestSchedule:
    """The schedule of a forest; works on whole arrays, in O(nodes log nodes).

    Args:
        parents: [nodes] integers.
        offsets: [trees + 1]; None: one forest with any number of roots.
        arity: most children of a node; 0 = any number.
        positions: [nodes], which child of its parent a node is, for arity > 0; None numbers
            children in the order of their rows. Not looked at for roots.

    Raises:
        TreeError: a parent outside its tree, a cycle, no root or several, an empty tree, too many
            children, or two children at one position. Tree and node are named, nodes counted from
            the tree's first row.
    """
    check = _Checks(np.asarray(parents, np.int64), offsets, arity)
    parents = check.absolute
    nodes = len(parents)
    depth = check.depths()
    below = np.flatnonzero(parents >= 0)
    counts = bincount(parents[below], minlength=nodes)
    ordinal = _ordinals(parents, below, counts)
    if positions is None:
        check.arity_of(counts)
        position = ordinal
    else:
        position = np.where(parents >= 0, np.asarray(positions, np.int64), 0)
        check.positions_of(position, below)
    height = _heights(parents, depth)
    # Nodes with more children first: the k-th children then belong to the first of the parents, and
    # adding them is a slice.
    rows = np.lexsort((-counts, height))
    places = np.empty(nodes, np.int64)
    places[rows] = np.arange(nodes)
    starts = offsets_of(bincount(height))
    up = np.append(places, nodes)[parents[rows]]  # parents of -1 take the last entry
    row_of_edge = below[
        np.lexsort((places[parents[below]], ordinal[below], height[parents[below]]))
    ]
    edge = np.full(nodes, len(below), np.int64)
    edge[places[row_of_edge]] = np.arange(len(below))
    return ForestSchedule(
        rows,
        places,
        starts,
        check.tree[rows],
        places[np.flatnonzero(parents < 0)],
        up,
        position[rows],
        places[row_of_edge],
        places[parents[row_of_edge]],
        edge,
        _bundles(height[parents[row_of_edge]], ordinal[row_of_edge], len(starts) - 1),
    )


def _ordinals(parents: np.ndarray, below: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Which child of its parent each node is, counted in the order of rows; 0 for roots."""
    ordered = below[np.argsort(parents[below], kind="stable")]
    begins = offsets_of(counts)
    ordinal = np.zeros(len(parents), np.int64)
    ordinal[ordered] = np.arange(len(ordered)) - begins[parents[ordered]]
    return ordinal


def _heights(parents: np.ndarray, depth: np.ndarray) -> np.ndarray:
    height = np.zeros(len(parents), np.int64)
    ordered = np.argsort(-depth, kind="stable")
    ends = np.cumsum(bincount(depth)[::-1]) if len(depth) else []
    begin = 0
    for end in ends[:-1]:  # the last ones are the roots
        rows = ordered[begin:end]
        # Deepest first, so that a node's own height is final before it counts for its parent.
        np.maximum.at(height, parents[rows], height[rows] + 1)
        begin = end
    return height


def _bundles(
    height: np.ndarray, ordinal: np.ndarray, heights: int
) -> tuple[tuple[tuple[int, int], ...], ...]:
    """Edges that stand together with one height and one ordinal, by height."""
    bundles: list[list[tuple[int, int]]] = [[] for _ in range(heights)]
    changes = (np.diff(height) != 0) | (np.diff(ordinal) != 0)
    bounds = [0, *(np.flatnonzero(changes) + 1).tolist(), len(height)]
    for begin, end in zip(bounds[:-1], bounds[1:], strict=True):
        if begin < end:
            bundles[int(height[begin])].append((begin, end))
    return tuple(map(tuple, bundles))


class _Checks:
    """Checks that an array of parents is a forest; errors name tree and node."""

    def __init__(self, parents: np.ndarray, offsets: Any, arity: int) -> None:
        self.arity = arity
        self.named = offsets is not None
        whole = [0, len(parents)] if len(parents) else [0]
        self.offsets = np.asarray(whole if offsets is None else offsets, np.int64)
        sizes = np.diff(self.offsets)
        if len(sizes) and sizes.min() == 0:
            raise TreeError(f"tree {int(sizes.argmin())} has no nodes; leave it out")
        self.tree = repeated(np.arange(len(sizes)), sizes)
        own = sizes[self.tree]
        outside = np.flatnonzero((parents < -1) | (parents >= own))
        if len(outside):
            row = int(outside[0])
            raise TreeError(
                f"{self.name(row)} has the parent {parents[row]}, but the {self.what} has"
                f" {own[row]} nodes"
            )
        self.absolute = np.where(parents < 0, -1, parents + self.offsets[self.tree])

    @property
    def what(self) -> str:
        return "tree" if self.named else "forest"

    def local(self, row: int) -> int:
        return int(row - self.offsets[self.tree[row]])

    def name(self, row: int) -> str:
        tree = f"tree {self.tree[row]}: " if self.named else "forest: "
        return f"{tree}node {self.local(row)}"

    def depths(self) -> np.ndarray:
        """Distance of each node from its root, by pointer jumping; roots are checked first."""
        parents = self.absolute
        nodes = len(self.absolute)
        up = np.append(np.where(parents < 0, nodes, parents), nodes)
        depth = (up != nodes).astype(np.int64)
        # Each jump doubles the distance: a chain of a million nodes takes twenty rounds.
        for _ in range(nodes.bit_length()):
            depth += depth[up]
            up = up[up]
        rest = np.flatnonzero(up != nodes)
        if len(rest):  # after that many jumps they stand on a cycle
            raise TreeError(self._describe_cycle(int(up[rest[0]])))
        roots = np.flatnonzero(parents < 0)
        double = np.flatnonzero(np.diff(self.tree[roots]) == 0) if self.named else roots[:0]
        if len(double):
            first, second = map(int, roots[double[0] : double[0] + 2])
            raise TreeError(
                f"tree {self.tree[first]} has several roots:"
                f" nodes {self.local(first)} and {self.local(second)} have no parent"
            )
        return depth[:nodes]

    def _describe_cycle(self, row: int) -> str:
        path = [self.local(row)]
        at = int(self.absolute[row])
        while at != row and len(path) < _SHOWN:
            path.append(self.local(at))
            at = int(self.absolute[at])
        shown = " -> ".join(map(str, [*path, "..." if at != row else self.local(row)]))
        return f"{self.name(row)} is its own ancestor: {shown}"

    def arity_of(self, counts: np.ndarray) -> None:
        wrong = np.flatnonzero(counts > self.arity)
        if self.arity and len(wrong):
            row = int(wrong[0])
            raise TreeError(f"{self.name(row)} has {counts[row]} children, more than {self.arity}")

    def positions_of(self, position: np.ndarray, below: np.ndarray) -> None:
        wrong = below[(position[below] < 0) | (position[below] >= self.arity)]
        if len(wrong):
            row = int(wrong[0])
            raise TreeError(
                f"{self.name(row)} is child {position[row]} of its parent,"
                f" want 0 <= position < {self.arity}"
            )
        # Parent and position as one number: a pair that comes twice stands together once sorted.
        keys = self.absolute[below] * self.arity + position[below]
        order = np.argsort(keys, kind="stable")
        double = np.flatnonzero(np.diff(keys[order]) == 0)
        if len(double):
            first, second = map(int, below[order[double[0] : double[0] + 2]])
            raise TreeError(
                f"{self.name(first)} and node {self.local(second)} are both child"
                f" {position[first]} of node {self.local(int(self.absolute[first]))}"
            )
