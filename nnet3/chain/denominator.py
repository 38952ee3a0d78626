"""The denominator of LF-MMI: forward-backward over the graph of all pdf sequences.

Source: Kaldi's `chain/chain-den-graph.cc` and `chain/chain-denominator.cc`. As there, these are
probabilities, not logarithms, each frame's divided by the sum of the frame before. The HMM is
leaky: at every frame a part of all probability flows to the initial distribution, so that no
sequence of outputs is impossible.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from ...framework.base.errors import FormatError, ShapeError
from ...framework.base.sequence import bincount
from ...kaldi.fst.fst import Fst
from .sparse_product import SparseMatrix

LIMIT = 30.0
"""Outputs are cut to [-LIMIT, LIMIT] before they are exponentiated."""

_INITIAL_STEPS = 100
TOLERANCE = 2.0  # the sum of the posteriors of a frame may differ so much from the sequences'


@dataclass(eq=False)
class DenominatorGraph:
    """A denominator graph: transitions of an HMM whose pdfs stand on the arcs.

    Attributes:
        states, num_pdfs: how many there are.
        source, nextstate, pdf: of each arc, [arcs].
        prob: probability of each arc, float64, [arcs].
        initial: probability of each state at the beginning, float64, [states].
    """

    states: int
    num_pdfs: int
    source: np.ndarray
    nextstate: np.ndarray
    pdf: np.ndarray
    prob: np.ndarray
    initial: np.ndarray

    @classmethod
    def of_fst(cls, fst: Fst, num_pdfs: int) -> DenominatorGraph:
        """The graph of a denominator FST, whose labels are pdfs counted from 1.

        Raises:
            FormatError: it has no states, or labels that are none of 1 to `num_pdfs`.
        """
        if fst.start < 0 or not len(fst.arcs):
            raise FormatError("the denominator FST is empty")
        if not 0 < fst.ilabel.min() <= fst.ilabel.max() <= num_pdfs:
            low, high = fst.ilabel.min(), fst.ilabel.max()
            raise FormatError(
                f"the denominator FST has labels {low} to {high}, the network {num_pdfs} outputs: "
                f"1 to {num_pdfs} were expected"
            )
        source = fst.source()
        prob = np.exp(-fst.weight.astype(np.float64))
        initial = _initial_probs(fst, source, prob)
        return cls(fst.states, num_pdfs, source, fst.nextstate, fst.ilabel - 1, prob, initial)

    @lru_cache(maxsize=4)  # noqa: B019  a graph lives as long as the training does
    def bound(self, dtype: np.dtype) -> _Transitions:
        """The graph's sparse matrices for arrays of `dtype`."""
        return _Transitions(self, dtype)

    def groups(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Groups of arcs that lead to one state and have one pdf.

        Returns:
            The group of each arc; the state and the pdf of each group, sorted by them.
        """
        key = self.nextstate.astype(np.int64) * self.num_pdfs + self.pdf
        keys, group = np.unique(key, return_inverse=True)
        return group, keys // self.num_pdfs, keys % self.num_pdfs


def graphs_by_output(
    graph: DenominatorGraph | Mapping[str, DenominatorGraph],
) -> Mapping[str, DenominatorGraph]:
    """The graph of each output; a single graph serves all."""
    return graph if isinstance(graph, Mapping) else defaultdict(lambda: graph)


def _initial_probs(fst: Fst, source: np.ndarray, prob: np.ndarray) -> np.ndarray:
    """The mean distribution over states in the first frames after the start state."""
    total = bincount(source, prob, fst.states) + np.exp(-fst.final.astype(np.float64))
    if np.any(total <= 0):
        raise FormatError(f"state {int(np.argmin(total))} of the denominator FST leads nowhere")
    share = prob / total[source]
    current = np.zeros(fst.states)
    current[fst.start] = 1.0
    mean = np.zeros(fst.states)
    for step in range(_INITIAL_STEPS):
        mean += current / _INITIAL_STEPS
        current = bincount(fst.nextstate, current[source] * share, fst.states)
        if not current.any():
            raise FormatError(
                f"the denominator FST has no loop: all its paths end within {step} arcs"
            )
        current /= current.sum()
    return mean.astype(np.float32).astype(np.float64)


class _Transitions:
    """A graph as products, over its groups of arcs: what flows into a group is `into @ alpha`, and
    only there the output of the network comes in."""

    def __init__(self, graph: DenominatorGraph, dtype: np.dtype) -> None:
        group, self.state, self.pdf = graph.groups()
        count = len(self.state)
        one = np.ones(count, dtype)
        numbers = np.arange(count)
        prob = graph.prob.astype(dtype)
        self.into = SparseMatrix(group, graph.source, prob, (count, graph.states))
        self.back = SparseMatrix(graph.source, group, prob, (graph.states, count))
        self.to_states = SparseMatrix(self.state, numbers, one, (graph.states, count))
        self.to_pdfs = SparseMatrix(self.pdf, numbers, one, (graph.num_pdfs, count))
        self.initial = graph.initial.astype(dtype)[:, None]
        self.ones = np.ones(graph.states, dtype)
        self.groups = count


@dataclass
class DenominatorResult:
    """Log-probability of all sequences, and the posterior of each pdf at each row, [rows, pdfs].

    Attributes:
        first_frame: sum of the posteriors of the first frame: as many as there are sequences, but
            for outputs far out of range.
    """

    log_prob: float
    posterior: np.ndarray | None
    sequences: int
    first_frame: float | None = None

    @property
    def consistent(self) -> bool:
        """Whether `first_frame` is near to the number of sequences."""
        gap = 0.0 if self.first_frame is None else self.first_frame - self.sequences
        return abs(gap) <= TOLERANCE  # false for NaN


def denominator(
    graph: DenominatorGraph,
    output: np.ndarray,
    sequences: int,
    leaky: float,
    *,
    posterior: bool = True,
) -> DenominatorResult:
    """Forward-backward for `sequences` sequences of equal length.

    Args:
        graph: the denominator graph.
        output: of the network (unnormalized log-likelihoods), [frames * sequences, pdfs]; row
            t * sequences + s is frame t of sequence s. float32 or float64.
        leaky: Kaldi's leaky-hmm-coefficient, above 0 and below 1.
        posterior: whether posteriors are wanted.

    Raises:
        ShapeError: `output` does not fit the graph or the number of sequences.
    """
    rows, pdfs = output.shape
    if pdfs != graph.num_pdfs or sequences <= 0 or rows % sequences:
        raise ShapeError(
            f"the denominator graph has {graph.num_pdfs} pdfs; an output of shape "
            f"[{rows}, {pdfs}] for {sequences} sequences does not fit"
        )
    check_leaky(leaky)
    moves = graph.bound(output.dtype)
    frames = rows // sequences
    likelihood = np.empty((frames, pdfs, sequences), output.dtype)
    likelihood[...] = output.reshape(frames, sequences, pdfs).transpose(0, 2, 1)
    np.clip(likelihood, -LIMIT, LIMIT, out=likelihood)
    np.exp(likelihood, out=likelihood)

    scales = np.empty((frames, sequences), output.dtype)
    flow = np.empty((frames, moves.groups, sequences), output.dtype)
    group_likelihood, beta_of_group = (np.empty(flow.shape[1:], output.dtype) for _ in range(2))
    leak = moves.initial * output.dtype.type(leaky)
    leaked = np.empty((graph.states, sequences), output.dtype)
    alpha = np.repeat(moves.initial, sequences, axis=1)
    for t in range(frames):
        scales[t] = moves.ones @ alpha
        alpha += np.multiply(leak, scales[t], out=leaked)
        flow[t] = moves.into @ alpha
        # Both directions read the likelihoods as parts of what the frame before had.
        likelihood[t] /= scales[t]
        np.take(likelihood[t], moves.pdf, axis=0, out=group_likelihood, mode="clip")
        group_likelihood *= flow[t]
        alpha = moves.to_states @ group_likelihood
    alpha += leak * (moves.ones @ alpha)
    total = moves.ones @ alpha
    logs = float(np.log(total, dtype=np.float64).sum() + np.log(scales, dtype=np.float64).sum())
    result = DenominatorResult(logs, None, sequences)
    if not posterior:
        return result

    # beta is divided by the total, so that alpha times beta are posteriors.
    beta = np.repeat((1 / total)[None], graph.states, axis=0)
    beta += leak[:, 0] @ beta
    posteriors = likelihood  # overwritten frame by frame, when it has been read
    for t in range(frames - 1, -1, -1):
        np.take(likelihood[t], moves.pdf, axis=0, out=group_likelihood, mode="clip")
        group_likelihood *= np.take(beta, moves.state, axis=0, out=beta_of_group, mode="clip")
        beta = moves.back @ group_likelihood
        group_likelihood *= flow[t]
        posteriors[t] = moves.to_pdfs @ group_likelihood
        beta += leak[:, 0] @ beta
    result.posterior = posteriors.transpose(0, 2, 1).reshape(rows, pdfs)
    result.first_frame = float(posteriors[0].sum())
    return result


def check_leaky(leaky: float) -> None:
    """Refuse a leaky HMM coefficient that is none.

    Raises:
        ShapeError: it is not above 0 and below 1.
    """
    if not 0.0 < leaky < 1.0:
        raise ShapeError(f"the leaky HMM coefficient is {leaky}, not between 0 and 1")
