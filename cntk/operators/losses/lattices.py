"""The sequence criterion: the reference against all paths of a lattice."""

from __future__ import annotations

from typing import Any

import numpy as np

from ....framework.base.backend import to_host
from ....framework.base.errors import RunError
from ....framework.base.sequence import bincount, lengths_of, repeated, runs
from ....framework.base.sizes.shape import ShapeArgs
from ....framework.ir.kernel_args import Call, KernelArgs
from ....framework.ir.registry import AttrSpec, Slot, operator
from ...lattices.lattice import PARTS, levels
from .alignment import align
from .large_outputs import log_softmax

lattice_criterion = operator(
    "cntk.lattice_criterion",
    doc=(
        "Log probability of the reference's states among the paths of each utterance's lattice,"
        " summed: its acoustic score less the log sum over paths, scores divided by `acoustic`. An"
        " edge scores lm * language (nothing where lm < -200) + penalty + the best path of each of"
        " its phones. The gradient by x is the gradient of minus this value for softmax outputs:"
        " gamma - label, gamma being the share of the paths that has a state in a frame, mixed with"
        " cross entropy: smoothing * gamma + (1 - smoothing) * softmax(x) - label. With `risk` the"
        " value is the expected number of frames whose state is the label's, and the gradient by x"
        " the gradient of minus this number, mixed likewise. The gradient is 0 in rows where gamma"
        " of a label is below `drop` (not with `risk`). Rows without a lattice give nothing."
    ),
    inputs=[
        Slot("label", "one-hot, [N, S]"),
        Slot("x", "logits, [N, S]", not_in_gradient=True),
        Slot("likelihoods", "scaled log likelihoods of the states, [N, S]"),
        Slot("nodes", "row that each node of the lattices stands before, int64 [V]"),
        Slot("firsts", "first node of each lattice, int64 [U + 1]"),
        Slot("edges", "nodes that edges begin and end at, int64 [E, 2]"),
        Slot("lm", "language-model scores of the edges, float64 [E]"),
        Slot("counts", "1 where correct frames of an edge count, else 0, int64 [E]"),
        Slot("first_units", "first phone of each edge, int64 [E + 1]"),
        Slot("units", "phone and frames, edge after edge, int64 [K, 2]"),
        Slot("reference", "phone, first row, frames of the reference, int64 [R, 3]"),
        Slot("states", "states of each phone, -1 after the last, int64 [P, M]"),
        Slot(
            "transitions",
            "log probabilities from the entry and each state to each state and the exit, float64"
            " [P, M + 1, M + 1]",
        ),
    ],
    outputs=[
        Slot("out", "[1]", not_in_gradient=True),
        Slot("slope", "the gradient by x, [N, S]", intermediate=True),
    ],
    attrs=[
        AttrSpec("acoustic", "float", "divisor of scores", 14.0),
        AttrSpec("language", "float", "weight of lm", 14.0),
        AttrSpec("penalty", "float", "score of each edge", 0.0),
        AttrSpec("boost", "float", "taken off for each correct frame (boosted MMI)", 0.0),
        AttrSpec("risk", "bool", "count correct frames: state-level minimum Bayes risk", False),
        AttrSpec("realign", "bool", "take labels from an alignment of `reference`", False),
        AttrSpec("smoothing", "float", "weight of the lattice in the gradient", 0.95, 0.0, 1.0),
        AttrSpec("drop", "float", "least gamma of the label", 1e-10),
    ],
    source=(
        "CNTK: SequenceWithSoftmaxNode, Source/SequenceTrainingLib, Math/latticefunctionskernels.h;"
        " Su et al. 2013, Error back propagation for sequence training; Gibson and Hain 2006,"
        " Hypothesis spaces for minimum Bayes risk training"
    ),
)

_WHOLE = ("nodes", "firsts", "edges", "counts", "first_units", "units", "reference", "states")
_NO_SCORE = -200.0  # language-model scores below it are not meant


@lattice_criterion.shape_rule
def lattice_criterion_shape(s: ShapeArgs) -> None:
    shape = s.same_shape("label, x and likelihoods", *map(s.__getitem__, ("label", "x")))
    s.same_shape("label and likelihoods", shape, s.rank("likelihoods", 2))
    edges, ends = s.rank("edges", 2)
    s.same("ends of an edge", ends, 2)
    s.same("edges and lm", edges, s.rank("lm", 1)[0])
    s.same("edges and counts", edges, s.rank("counts", 1)[0])
    s.same("numbers of a unit", s.rank("units", 2)[1], 2)
    s.same("numbers of a phone of the reference", s.rank("reference", 2)[1], 3)
    for slot in ("nodes", "firsts", "first_units"):
        s.rank(slot, 1)
    for slot in _WHOLE:
        s.integers(slot)
    phones, most = s.rank("states", 2)
    size = most + 1 if most >= 0 else -1
    s.same_shape("transitions and [P, M + 1, M + 1]", s["transitions"], (phones, size, size))
    for slot in ("lm", "transitions"):
        s.floats(slot)
    dtype = s.floats("label", "x", "likelihoods")
    s.set("out", ((1,), dtype))
    s.set("slope", (shape, dtype))


class _Paths:
    """The lattices of a minibatch as arrays, checked, with the scores of their edges."""

    def __init__(self, k: KernelArgs, scores: np.ndarray) -> None:
        arrays = {part: to_host(k[part]) for part, *_ in PARTS}
        self.nodes = arrays["nodes"]
        self.edges = arrays["edges"]
        self.begin = arrays["firsts"][:-1]
        self.end = arrays["firsts"][1:] - 1
        self.covered = np.zeros(len(scores), bool)
        self._check(k, scores.shape, arrays)
        first, last = self.nodes[self.begin], self.nodes[self.end]
        self.covered[runs(first, last - first)] = True
        self._align(k, scores, arrays)
        self._forward = levels(self.edges, len(self.nodes))
        self._backward = _backwards(self.edges)

    def _check(self, k: KernelArgs, shape: tuple[int, int], arrays: dict[str, np.ndarray]) -> None:
        for part, most in (
            ("firsts", len(self.nodes)),
            ("edges", len(self.nodes) - 1),
            ("first_units", len(arrays["units"])),
        ):
            numbers = arrays[part]
            if numbers.size and not 0 <= numbers.min() <= numbers.max() <= most:
                raise RunError(k.describe(f"{part} of the lattices are not in 0 .. {most}"))
        if (np.diff(arrays["firsts"]) <= 0).any() or (np.diff(arrays["first_units"]) < 0).any():
            raise RunError(k.describe("firsts or first_units of the lattices do not ascend"))
        if len(arrays["first_units"]) != len(self.edges) + 1:
            raise RunError(k.describe("first_units want one number more than there are edges"))
        if len(self.nodes) and self.nodes.max() > shape[0]:
            rows = f"row {self.nodes.max()}, the minibatch has {shape[0]}"
            raise RunError(k.describe(f"a lattice ends at {rows}"))
        states = arrays["states"]
        if states.size and not -1 <= states.min() <= states.max() < shape[1]:
            raise RunError(k.describe(f"a state of the lattices is not in 0 .. {shape[1] - 1}"))

    def _align(self, k: KernelArgs, scores: np.ndarray, arrays: dict[str, np.ndarray]) -> None:
        """Best states of all phones, also of the reference's."""
        phones, frames = arrays["units"].T
        first = arrays["first_units"]
        edge = repeated(np.arange(len(self.edges)), lengths_of(first))
        if len(edge) != len(frames):
            why = f"first_units count {len(edge)} units of lattices, and there are {len(frames)}"
            raise RunError(k.describe(why))
        ends = np.cumsum(frames)
        before = ends - frames
        start = np.append(before, ends[-1:])[first[:-1]] if len(frames) else first[:-1]
        rows = self.nodes[self.edges[edge, 0]] + before - start[edge]
        said, row, length = arrays["reference"].T
        phones, first_row = np.append(phones, said), np.append(rows, row)
        counts = np.append(frames, length)
        if (first_row + counts).max(initial=0) > len(scores):
            raise RunError(k.describe(f"a phone of a lattice ends after row {len(scores)}"))
        hmms = arrays["states"], arrays["transitions"]
        aligned = align(scores, phones, first_row, counts, *hmms)
        self.acoustic = bincount(edge, aligned.scores[: len(edge)], len(self.edges))
        self.rows = runs(rows, frames)
        self.edge_of_row = repeated(edge, frames)
        self.states, reference = np.split(aligned.states, [len(self.rows)])
        there = repeated(np.isfinite(aligned.scores[len(edge) :]), length)
        self.said = runs(row, length)[there], reference[there]

    def per_edge(self, frames: np.ndarray) -> np.ndarray:
        """Sums over the frames of edges."""
        return bincount(self.edge_of_row, frames, len(self.edges))

    def _sums(self, score: np.ndarray, forward: bool) -> np.ndarray:
        """Log sums over the paths from the first node to each one, or from there to the last."""
        total = np.full(len(self.nodes), -np.inf)
        total[self.begin if forward else self.end] = 0
        source, target = self.edges.T if forward else self.edges.T[::-1]
        for part in self._forward if forward else self._backward:
            np.logaddexp.at(total, target[part], total[source[part]] + score[part])
        return total

    def posteriors(self, k: KernelArgs, score: np.ndarray) -> np.ndarray:
        """The probability of each edge; `totals` is the log sum over the paths of each lattice."""
        self._before = self._sums(score, True)
        self._after = self._sums(score, False)
        self.totals = self._before[self.end]
        if not np.isfinite(self.totals).all():
            bad = int(np.flatnonzero(~np.isfinite(self.totals))[0])
            raise RunError(k.describe(f"no path leads through the lattice of utterance {bad}"))
        begin, end = self.edges.T
        self.lattice = np.searchsorted(self.begin, begin, side="right") - 1
        return np.exp(self._before[begin] + score + self._after[end] - self.totals[self.lattice])

    def expected(self, score: np.ndarray, worth: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Expected worth of the paths of each lattice, and of those through each edge, after
        `posteriors`.

        Args:
            worth: of each edge.
        """
        sums = []
        for forward, total in ((True, self._before), (False, self._after)):
            mean = np.zeros(len(self.nodes))
            source, target = self.edges.T if forward else self.edges.T[::-1]
            with np.errstate(invalid="ignore"):  # nodes that no path leads to
                share = np.nan_to_num(np.exp(total[source] + score - total[target]))
            for part in self._forward if forward else self._backward:
                np.add.at(mean, target[part], share[part] * (mean[source[part]] + worth[part]))
            sums.append(mean)
        begin, end = self.edges.T
        return sums[0][self.end], sums[0][begin] + worth + sums[1][end]


def _backwards(edges: np.ndarray) -> list[np.ndarray]:
    """Rounds of edges that begin where all edges from their ends are done."""
    last = int(edges.max(initial=0))
    return levels(last - edges[:, ::-1], last + 1)


@lattice_criterion.kernel
def lattice_criterion_kernel(k: KernelArgs) -> Call:
    xp = k.xp
    label = k["label"]
    x = k["x"]
    out = k["out"]
    slope = k.get("slope")
    attrs = k.attrs
    acoustic, smoothing, risk = attrs["acoustic"], attrs["smoothing"], attrs["risk"]

    def run() -> None:
        scores = to_host(k["likelihoods"]).astype(np.float64)
        paths = _Paths(k, scores)
        wanted = to_host(label.argmax(1)) if len(x) else np.zeros(0, np.int64)
        rows = np.flatnonzero(paths.covered)
        reference = scores[rows, wanted[rows]].sum() / acoustic
        if attrs["realign"]:
            wanted[paths.said[0]] = paths.said[1]
        correct = paths.per_edge(paths.states == wanted[paths.rows]) * to_host(k["counts"])
        lm = to_host(k["lm"])
        edge = attrs["language"] * np.where(lm < _NO_SCORE, 0, lm) + attrs["penalty"]
        edge = (edge + paths.acoustic) / acoustic - attrs["boost"] * correct
        share = paths.posteriors(k, edge)
        out[0] = reference - paths.totals.sum()
        if risk:
            whole, through = paths.expected(edge, correct)
            out[0] = whole.sum()
            share = share * (whole[paths.lattice] - through) / acoustic
        if slope is None or not len(x):
            return
        gamma = np.zeros(x.shape)
        np.add.at(gamma, (paths.rows, paths.states), share[paths.edge_of_row])
        off = ~paths.covered
        if not risk:
            off |= gamma[np.arange(len(wanted)), wanted] < attrs["drop"]
        target = _relabeled(xp, label, *paths.said) if attrs["realign"] else label
        xp.subtract(xp.exp(log_softmax(xp, x.copy())), target, slope)
        xp.multiply(slope, 1 - smoothing, slope)
        xp.add(slope, xp.asarray(smoothing * gamma, x.dtype), slope)
        if not risk:
            xp.subtract(slope, smoothing * target, slope)
        slope[xp.asarray(off)] = 0

    return run


def _relabeled(xp: Any, label: Any, rows: np.ndarray, states: np.ndarray) -> Any:
    """A copy of one-hot labels with other states in some rows."""
    label = label.copy()
    rows = xp.asarray(rows)
    label[rows] = 0
    label[rows, xp.asarray(states)] = 1
    return label


@lattice_criterion.backward("x")
def lattice_criterion_grad_kernel(k: KernelArgs) -> Call:
    xp = k.xp

    def run() -> None:
        xp.multiply(k["slope"], k["out_grad"], k["x_grad"])

    return run
