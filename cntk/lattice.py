"""Lattices of recognised words beside the utterances of a minibatch.

feed_lattices(net.scope, "criterion", lattices)
net.forward_backward(minibatch, "criterion")
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..framework.errors import ShapeError
from ..framework.scope import Scope
from ..framework.sequence import lengths_of

PARTS = ("NODES", "FIRSTS", "EDGES", "SCORES", "STATES")  # variables `node@LATTICE@part`


def lattice_variable(node: str, part: str) -> str:
    """The variable of a criterion's node that holds one of `PARTS`."""
    return f"{node}@LATTICE@{part}"


@dataclass(frozen=True, eq=False)
class Lattice:
    """What was recognised in one utterance: paths from its first node to its last one.

    Attributes:
        times: frame at which each node stands, none before the one in front of it; [nodes].
        edges: nodes where each edge begins and ends, [edges, 2]. An edge between nodes of the same
            time has no frames.
        scores: language-model score of each edge, natural logarithm, [edges].
        states: state (a row of the net's output) of each frame of each edge, edge after edge.

    Raises:
        ShapeError: sizes do not fit, a node is missing, or an edge does not go forward.
    """

    times: np.ndarray
    edges: np.ndarray
    scores: np.ndarray
    states: np.ndarray

    def __post_init__(self) -> None:
        for name in ("times", "edges", "states"):
            object.__setattr__(self, name, np.asarray(getattr(self, name), np.int64))
        object.__setattr__(self, "scores", np.asarray(self.scores, np.float64))
        times, edges = self.times, self.edges
        if times.ndim != 1 or not len(times) or (np.diff(times) < 0).any() or times[0] != 0:
            raise ShapeError("the times of a lattice's nodes begin with 0 and never fall")
        if edges.ndim != 2 or edges.shape[1:] != (2,) or self.scores.shape != edges.shape[:1]:
            raise ShapeError(
                f"edges {edges.shape} and scores {self.scores.shape} of a lattice do not fit:"
                " (begin, end) and a score for each"
            )
        if edges.size and (edges.min() < 0 or edges.max() >= len(times)):
            raise ShapeError(f"an edge of a lattice leaves its {len(times)} nodes")
        if (edges[:, 0] >= edges[:, 1]).any():
            raise ShapeError("an edge of a lattice does not go to a later node")
        frames = int((times[edges[:, 1]] - times[edges[:, 0]]).sum())
        if self.states.shape != (frames,):
            raise ShapeError(f"the edges of a lattice have {frames} frames, {self.states.shape}")

    @property
    def frames(self) -> int:
        return int(self.times[-1])


def feed_lattices(scope: Scope, node: str, lattices: Sequence[Lattice]) -> None:
    """Give the lattices of the next minibatch's utterances, in their order, to the criterion
    `node`."""
    frames = np.concatenate([[0], np.cumsum([lattice.frames for lattice in lattices])])
    nodes = np.concatenate([[0], np.cumsum([len(lattice.times) for lattice in lattices])])
    shifted = zip(lattices, frames, nodes, strict=False)
    times, edges = [], []
    for lattice, frame, number in shifted:
        times.append(lattice.times + frame)
        edges.append(lattice.edges + number)
    arrays = {
        "NODES": np.concatenate(times or [np.zeros(0, np.int64)]),
        "FIRSTS": nodes.astype(np.int64),
        "EDGES": np.concatenate(edges or [np.zeros((0, 2), np.int64)]),
        "SCORES": np.concatenate([lattice.scores for lattice in lattices] or [np.zeros(0)]),
        "STATES": np.concatenate(
            [lattice.states for lattice in lattices] or [np.zeros(0, np.int64)]
        ),
    }
    for part, array in arrays.items():
        scope.var(lattice_variable(node, part)).set(array)


def levels(edges: np.ndarray, count: int) -> list[np.ndarray]:
    """Numbers of edges in rounds: all edges into a node stand in one round, after those into the
    nodes they begin at."""
    order = np.argsort(edges[:, 0], kind="stable")
    first = np.searchsorted(edges[order, 0], np.arange(count + 1))
    waiting = np.bincount(edges[:, 1], minlength=count)
    depth = np.zeros(count, np.int64)
    ready, round_ = np.flatnonzero(waiting == 0), 0
    while len(ready):
        depth[ready] = round_
        counts = lengths_of(first)[ready]
        starts = np.repeat(first[ready] - np.cumsum(counts) + counts, counts)
        leaving = order[starts + np.arange(len(starts))]
        ends, times = np.unique(edges[leaving, 1], return_counts=True)
        waiting[ends] -= times
        ready, round_ = ends[waiting[ends] == 0], round_ + 1
    by_depth = np.argsort(depth[edges[:, 1]], kind="stable")
    cuts = np.flatnonzero(np.diff(depth[edges[by_depth, 1]])) + 1
    return [part for part in np.split(by_depth, cuts) if len(part)]
