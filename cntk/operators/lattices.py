"""The sequence criterion: the reference against all paths of a lattice."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...framework.errors import RunError
from ...framework.registry import AttrSpec, Slot, operator
from ...framework.sequence import runs
from ...framework.shape import ShapeArgs
from ...operators._calls import Call
from ..lattice import levels
from .large_outputs import log_softmax, on_host

lattice_criterion = operator(
    "cntk.lattice_criterion",
    doc=(
        "Log probability of the reference's states among the paths of each utterance's lattice,"
        " summed: its acoustic score less the log sum over paths, scores divided by `acoustic`. An"
        " edge scores language * lm + penalty + its frames' likelihoods. The gradient by x is that"
        " of minus this value for softmax outputs, gamma - label, gamma being what share of the"
        " paths has a state in a frame, mixed with cross entropy: smoothing * gamma + (1 -"
        " smoothing) * softmax(x) - label; 0 in rows where gamma of the label is below `drop`."
    ),
    inputs=[
        Slot("label", "one-hot, [N, S]"),
        Slot("x", "logits, [N, S]", not_in_gradient=True),
        Slot("likelihoods", "scaled log likelihoods of the states, [N, S]"),
        Slot("nodes", "row that each node of the lattices stands before, int64 [V]"),
        Slot("firsts", "first node of each utterance, int64 [U + 1]"),
        Slot("edges", "nodes that edges begin and end at, int64 [E, 2]"),
        Slot("lm", "language-model scores of the edges, float64 [E]"),
        Slot("states", "states of the frames of each edge in turn, int64 [F]"),
    ],
    outputs=[
        Slot("out", "[1]", not_in_gradient=True),
        Slot("slope", "the gradient by x, [N, S]", intermediate=True),
    ],
    attrs=[
        AttrSpec("acoustic", "float", "what scores are divided by", 14.0),
        AttrSpec("language", "float", "weight of lm", 14.0),
        AttrSpec("penalty", "float", "score of each edge", 0.0),
        AttrSpec("boost", "float", "taken off for each correct frame (boosted MMI)", 0.0),
        AttrSpec("smoothing", "float", "weight of the lattice in the gradient", 0.95, 0.0, 1.0),
        AttrSpec("drop", "float", "least gamma of the label", 1e-10),
    ],
    source=(
        "CNTK: SequenceWithSoftmaxNode, Source/SequenceTrainingLib; Su et al. 2013, Error back"
        " propagation for sequence training"
    ),
)


@lattice_criterion.shape_rule
def _(s: ShapeArgs) -> None:
    shape = s.same_shape("label, x and likelihoods", *map(s.__getitem__, ("label", "x")))
    s.same_shape("label and likelihoods", shape, s.rank("likelihoods", 2))
    edges, ends = s.rank("edges", 2)
    s.same("ends of an edge", ends, 2)
    s.same("edges and lm", edges, s.rank("lm", 1)[0])
    dtype = s.floats("label", "x", "likelihoods")
    s.set("out", ((1,), dtype))
    s.set("slope", (shape, dtype))


class _Paths:
    """The lattices of a minibatch as arrays, checked."""

    def __init__(self, k: Any, shape: tuple[int, int]) -> None:
        held = (on_host(k[slot]) for slot in ("nodes", "firsts", "edges", "lm", "states"))
        self.nodes, firsts, self.edges, self.lm, self.states = held
        self.begin, self.end = firsts[:-1], firsts[1:] - 1
        lengths = self.nodes[self.edges[:, 1]] - self.nodes[self.edges[:, 0]]
        self.rows = runs(self.nodes[self.edges[:, 0]], lengths)
        self.edge_of_row = np.repeat(np.arange(len(lengths)), lengths)
        ends = self.nodes[self.end] if len(self.end) else np.zeros(1, np.int64)
        if (ends[-1], len(self.states)) != (shape[0], len(self.rows)):
            raise RunError(
                k.describe(f"the lattices have {ends[-1]} frames, the minibatch {shape[0]}")
            )
        if len(self.states) and not 0 <= self.states.min() <= self.states.max() < shape[1]:
            raise RunError(k.describe(f"a state of the lattices is not in 0 .. {shape[1] - 1}"))
        self.rounds = levels(self.edges, len(self.nodes))

    def per_edge(self, frames: np.ndarray) -> np.ndarray:
        """Sums over the frames of edges."""
        return np.bincount(self.edge_of_row, frames, len(self.edges))

    def _sums(self, score: np.ndarray, forward: bool) -> np.ndarray:
        """Log sums over the paths from the first node to each one, or from there to the last."""
        total = np.full(len(self.nodes), -np.inf)
        total[self.begin if forward else self.end] = 0
        source, target = self.edges.T if forward else self.edges.T[::-1]
        for part in self.rounds if forward else _backwards(self.edges, self.rounds):
            np.logaddexp.at(total, target[part], total[source[part]] + score[part])
        return total

    def posteriors(self, k: Any, score: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Log sum over the paths of each utterance, and the probability of each edge."""
        before, after = self._sums(score, True), self._sums(score, False)
        totals = before[self.end]
        if not np.isfinite(totals).all():
            bad = int(np.flatnonzero(~np.isfinite(totals))[0])
            raise RunError(k.describe(f"no path leads through the lattice of utterance {bad}"))
        utterance = np.searchsorted(self.begin, self.edges[:, 0], side="right") - 1
        begin, end = self.edges.T
        return totals, np.exp(before[begin] + score + after[end] - totals[utterance])


def _backwards(edges: np.ndarray, rounds: list[np.ndarray]) -> list[np.ndarray]:
    """Rounds of edges that begin where all edges from their ends are done."""
    if not rounds:
        return []
    last = int(edges.max())
    return levels(last - edges[:, ::-1], last + 1)


@lattice_criterion.kernel
def _(k: Any) -> Call:
    xp, label, x, out = k.xp, k["label"], k["x"], k["out"]
    slope, attrs = k.get("slope"), k.attrs

    def run() -> None:
        paths = _Paths(k, x.shape)
        scores = on_host(k["likelihoods"]).astype(np.float64)
        wanted = on_host(label.argmax(1)) if len(x) else np.zeros(0, np.int64)
        acoustic = paths.per_edge(scores[paths.rows, paths.states])
        weighted = attrs["language"] * paths.lm + attrs["penalty"] + acoustic
        edge = weighted / attrs["acoustic"]
        if attrs["boost"]:
            edge -= attrs["boost"] * paths.per_edge(paths.states == wanted[paths.rows])
        totals, share = paths.posteriors(k, edge)
        numbers = np.arange(len(wanted))
        out[0] = scores[numbers, wanted].sum() / attrs["acoustic"] - totals.sum()
        if slope is None or not len(x):
            return
        gamma = np.zeros(x.shape)
        np.add.at(gamma, (paths.rows, paths.states), share[paths.edge_of_row])
        smoothing = attrs["smoothing"]
        share = (1 - smoothing) * xp.exp(log_softmax(xp, x.copy()))
        xp.add(share, xp.asarray(smoothing * gamma, x.dtype), slope)
        xp.subtract(slope, label, slope)
        slope[xp.asarray(gamma[numbers, wanted] < attrs["drop"])] = 0

    return run


@lattice_criterion.backward("x")
def _(k: Any) -> Call:
    xp = k.xp

    def run() -> None:
        xp.multiply(k["slope"], k["out_grad"], k["x_grad"])

    return run
