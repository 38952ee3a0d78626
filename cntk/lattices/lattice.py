"""Lattices in memory, and how they reach the criterion of a network.

minibatch = Minibatch(streams, lattices=Lattices(hmms, [lattice, ...]))
net.forward_backward(minibatch, "criterion")
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from ...framework.base.errors import ShapeError
from ...framework.base.scope import Scope
from ...framework.base.sequence import bincount, lengths_of, offsets_of, repeated
from .hmms import SILENCE, Hmms

PARTS = (  # variables `node@LATTICE@part`, and the slots of the operator that reads them
    ("nodes", (-1,), "int64"),
    ("firsts", (-1,), "int64"),
    ("edges", (-1, 2), "int64"),
    ("lm", (-1,), "float64"),
    ("counts", (-1,), "int64"),
    ("first_units", (-1,), "int64"),
    ("units", (-1, 2), "int64"),
    ("reference", (-1, 3), "int64"),
    ("states", (-1, -1), "int64"),
    ("transitions", (-1, -1, -1), "float64"),
)


def lattice_variable(node: str, part: str) -> str:
    """The variable of a criterion's node that holds one of `PARTS`."""
    return f"{node}@LATTICE@{part.upper()}"


@dataclass(frozen=True)
class LatticeHeader:
    """The settings of the recognizer that made a lattice; the criterion has weights of its own.

    Attributes:
        language, penalty: weight of language-model scores and score of each word when it was made.
        period: seconds from frame to frame.
    """

    language: float = 1.0
    penalty: float = 0.0
    period: float = 0.01


@dataclass(frozen=True, eq=False)
class Lattice:
    """The words recognized in one utterance, as paths from the first node to the last.

    Attributes:
        times: the frame of each node, never falling, [nodes].
        edges: nodes where each edge begins and ends, [edges, 2]. An edge between nodes of the same
            time has no frames.
        scores: language-model score of each edge, natural logarithm, [edges].
        units: phone and frames, edge after edge, [units, 2].
        first: where the units of each edge begin, [edges + 1].
        reference: phone and frames of the spoken words, [phones, 2]; None: not known.
        acoustic: acoustic score of each edge, as it was recorded; None: it was not.
        header: settings of the recognizer.

    Raises:
        ShapeError: sizes do not fit, a node is missing, or an edge does not go forward.
    """

    times: np.ndarray
    edges: np.ndarray
    scores: np.ndarray
    units: np.ndarray
    first: np.ndarray
    reference: np.ndarray | None = None
    acoustic: np.ndarray | None = None
    header: LatticeHeader = field(default_factory=LatticeHeader)

    def __post_init__(self) -> None:
        for name in ("times", "edges", "units", "first", "reference"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, np.asarray(getattr(self, name), np.int64))
        with np.errstate(invalid="ignore"):
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
        if not np.isfinite(self.scores).all():
            raise ShapeError("a score of a lattice is not a number")
        self._check_units()
        if self.reference is not None and (
            self.reference.ndim != 2
            or self.reference.shape[1] != 2
            or (self.reference < 0).any()
            or self.reference[:, 1].sum() != self.frames
        ):
            raise ShapeError(f"the phones of the reference do not have {self.frames} frames")

    def _check_units(self) -> None:
        units, first = self.units, self.first
        if first.shape != (len(self.edges) + 1,) or units.ndim != 2 or units.shape[1] != 2:
            raise ShapeError(
                f"units {units.shape} of a lattice and their first ones {first.shape} do not fit"
                f" {len(self.edges)} edges"
            )
        if first[0] != 0 or first[-1] != len(units) or (np.diff(first) < 0).any():
            raise ShapeError(f"the edges of a lattice do not share its {len(units)} units")
        if units.size and units.min() < 0:
            raise ShapeError("a unit of a lattice has a phone or a length below 0")
        wrong = np.flatnonzero(np.diff(offsets_of(units[:, 1])[first]) != self.lengths)
        if len(wrong):
            edge = int(wrong[0])
            frames = int(units[first[edge] : first[edge + 1], 1].sum())
            raise ShapeError(
                f"the units of edge {edge} of a lattice have {frames} frames, the edge"
                f" {self.lengths[edge]}"
            )

    @classmethod
    def of_states(
        cls, times: np.ndarray, edges: np.ndarray, scores: np.ndarray, states: np.ndarray
    ) -> Lattice:
        """A lattice whose frames have states already, for `Hmms.of_states`.

        Args:
            states: of each frame of each edge, edge after edge.

        Raises:
            ShapeError: as above, or there are not as many states as frames.
        """
        times, edges = np.asarray(times, np.int64), np.asarray(edges, np.int64)
        states = np.asarray(states, np.int64)
        ends = np.cumsum(times[edges[:, 1]] - times[edges[:, 0]])
        if states.shape != (ends[-1] if len(ends) else 0,):
            raise ShapeError(f"{states.shape} states; the edges of the lattice have {ends[-1]}")
        starts = np.ones(len(states), bool)
        starts[1:] = states[1:] != states[:-1]
        starts[ends[ends < len(states)]] = True
        at = np.flatnonzero(starts)
        units = np.column_stack([states[at], np.diff(np.append(at, len(states)))])
        first = np.append(0, np.searchsorted(at, ends))
        return cls(times, edges, scores, units, first)

    @property
    def frames(self) -> int:
        return int(self.times[-1])

    @property
    def lengths(self) -> np.ndarray:
        """Frames of each edge."""
        return self.times[self.edges[:, 1]] - self.times[self.edges[:, 0]]


@dataclass(frozen=True, eq=False)
class Lattices:
    """The lattices of a minibatch.

    Attributes:
        hmms: of their phones.
        items: of each sequence; None: it has none, and is left out of the criterion.
    """

    hmms: Hmms
    items: Sequence[Lattice | None]

    @property
    def have_references(self) -> bool:
        """Whether all lattices have their reference."""
        return all(item is None or item.reference is not None for item in self.items)

    def take(self, sequences: np.ndarray) -> Lattices:
        """The lattices of the sequences with these numbers."""
        return Lattices(self.hmms, [self.items[number] for number in sequences.tolist()])


def feed_lattices(scope: Scope, node: str, lattices: Lattices, begin: np.ndarray) -> None:
    """Give lattices to the criterion `node`.

    Args:
        begin: row at which each sequence of the minibatch begins, [sequences + 1].

    Raises:
        ShapeError: there are more lattices than sequences or fewer, one has not as many frames as
            its sequence, or a phone is unknown.
    """
    hmms = lattices.hmms
    lengths = np.diff(begin)
    if len(lattices.items) != len(lengths):
        raise ShapeError(f"{node}: {len(lattices.items)} lattices; {len(lengths)} sequences")
    present = []
    for number, lattice in enumerate(lattices.items):
        if lattice is None:
            continue
        if lattice.frames != lengths[number]:
            raise ShapeError(
                f"{node}: the lattice of sequence {number} has {lattice.frames} frames, the"
                f" sequence {lengths[number]}"
            )
        present.append((int(begin[number]), lattice))
    firsts = offsets_of([len(lattice.times) for _, lattice in present])
    arrays = {
        "nodes": _joined([lattice.times + row for row, lattice in present]),
        "firsts": firsts,
        "edges": _joined(
            [lattice.edges + at for at, (_, lattice) in zip(firsts[:-1], present, strict=True)], 2
        ),
        "lm": _joined([lattice.scores for _, lattice in present]).astype(np.float64),
        "first_units": offsets_of(_joined([np.diff(lattice.first) for _, lattice in present])),
        "units": _joined([lattice.units for _, lattice in present], 2),
        "reference": _joined([_placed(row, lattice) for row, lattice in present], 3),
        "states": hmms.states,
        "transitions": hmms.transitions,
    }
    for name in ("units", "reference"):
        if arrays[name].size and arrays[name][:, 0].max() >= len(hmms):
            raise ShapeError(f"{node}: a lattice has a phone that is not below {len(hmms)}")
    arrays["counts"] = _counts(arrays["units"], arrays["first_units"], hmms)
    for part, array in arrays.items():
        scope.var(lattice_variable(node, part)).set(np.ascontiguousarray(array))


def _joined(arrays: list[np.ndarray], wide: int | None = None) -> np.ndarray:
    return np.concatenate([np.zeros(0 if wide is None else (0, wide), np.int64), *arrays])


def _placed(row: int, lattice: Lattice) -> np.ndarray:
    """Phone, first row and frames of each phone of the reference."""
    if lattice.reference is None:
        return np.zeros((0, 3), np.int64)
    phones, frames = lattice.reference.T
    return np.column_stack([phones, row + np.cumsum(frames) - frames, frames])


def _counts(units: np.ndarray, first: np.ndarray, hmms: Hmms) -> np.ndarray:
    """Whether correct frames of an edge count: they do not if the edge is silence alone."""
    counts = np.ones(len(first) - 1, np.int64)
    silence = hmms.numbers.get(SILENCE)
    alone = np.flatnonzero(lengths_of(first) == 1)
    counts[alone[units[first[alone], 0] == silence]] = 0
    return counts


def levels(edges: np.ndarray, count: int) -> list[np.ndarray]:
    """Numbers of edges in rounds: all edges into a node are in one round, after the edges into the
    nodes where they begin."""
    order = np.argsort(edges[:, 0], kind="stable")
    first = np.searchsorted(edges[order, 0], np.arange(count + 1))
    waiting = bincount(edges[:, 1], minlength=count)
    depth = np.zeros(count, np.int64)
    ready = np.flatnonzero(waiting == 0)
    round_ = 0
    while len(ready):
        depth[ready] = round_
        counts = lengths_of(first)[ready]
        starts = repeated(first[ready] - np.cumsum(counts) + counts, counts)
        leaving = order[starts + np.arange(len(starts))]
        ends, times = np.unique(edges[leaving, 1], return_counts=True)
        waiting[ends] -= times
        ready = ends[waiting[ends] == 0]
        round_ = round_ + 1
    by_depth = np.argsort(depth[edges[:, 1]], kind="stable")
    cuts = np.flatnonzero(np.diff(depth[edges[by_depth, 1]])) + 1
    return [part for part in np.split(by_depth, cuts) if len(part)]
