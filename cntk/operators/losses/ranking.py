"""Criteria of rankings: documents of queries, sorted by falling gain, and scores for them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np

from ....framework.base.backend import to_host
from ....framework.base.sequence import bincount, repeated
from ....framework.base.sizes.shape import ShapeArgs
from ....framework.ir.kernel_args import Call, KernelArgs
from ....framework.ir.registry import Slot, operator

_INPUTS = [
    Slot("gain", "of each document, falling within a query, [N, 1]"),
    Slot("x", "scores, [N, 1]", not_in_gradient=True),
    Slot("query", "number of the query that each document belongs to, [N, 1]"),
]
_EQUAL = 1e-7  # gains that differ by less are the same


def _rule(s: ShapeArgs) -> None:
    shapes = [s.rank(slot, 2) for slot in ("gain", "x", "query")]
    rows, _ = s.same_shape("gain, x and query", *shapes, (-1, 1))
    dtype = s.floats("gain", "x", "query")
    s.set("out", ((1,), dtype))
    if s.has("slope"):
        s.set("slope", ((rows, 1), dtype))


@dataclass(frozen=True)
class _Ranking:
    """Documents, query by query.

    Attributes:
        gain, score: [N]. query: number of each document's query, counted from 0, [N].
        begin: first document of each query. place: of each document in its query, from 0.
        rank: its place by falling score, low gains first where scores are equal.
    """

    gain: np.ndarray
    score: np.ndarray
    query: np.ndarray
    begin: np.ndarray
    place: np.ndarray
    rank: np.ndarray

    @classmethod
    def of(cls, gain: np.ndarray, score: np.ndarray, query: np.ndarray) -> _Ranking:
        begins = np.flatnonzero(np.concatenate([[True], np.diff(query.astype(np.int64)) != 0]))
        number = repeated(np.arange(len(begins)), np.diff(np.append(begins, len(query))))
        place = np.arange(len(query)) - begins[number]
        rank = np.empty_like(place)
        rank[np.lexsort((gain, -score, number))] = place
        return cls(gain, score, number, begins, place, rank)

    def sums(self, values: np.ndarray) -> np.ndarray:
        """For each query."""
        return bincount(self.query, values, len(self.begin))

    @property
    def ideal(self) -> np.ndarray:
        """Discounted gain of each query in the order of gains."""
        return self.sums(self.gain / np.log(2 + self.place))

    def pairs(self) -> tuple[np.ndarray, np.ndarray]:
        """Documents, and later ones of the same query, where the former's gain is above the least
        one of the query."""
        ends = np.append(self.begin[1:], len(self.query))[self.query]
        counts = np.where(self.gain > self.gain[ends - 1], ends - 1 - np.arange(len(ends)), 0)
        first = repeated(np.arange(len(ends)), counts)
        shift = np.arange(len(first)) - repeated(np.cumsum(counts) - counts, counts)
        return first, first + 1 + shift

    def slopes(self) -> np.ndarray:
        """The gradient of LambdaRank by each score."""
        first, second = self.pairs()
        difference = self.gain[first] - self.gain[second]
        discount = np.log(2.0 + self.rank)
        ideal = self.ideal[self.query[first]]
        change = difference * (1 / discount[second] - 1 / discount[first])
        weight = np.abs(np.divide(change, ideal, out=np.zeros_like(change), where=ideal != 0))
        weight[np.abs(difference) < _EQUAL] = 0
        margin = self.score[first] - self.score[second]
        part = -weight * np.exp(-np.logaddexp(0, margin))
        size = len(self.score)
        return bincount(first, part, size) - bincount(second, part, size)


def _ranking(k: KernelArgs) -> _Ranking:
    columns = (to_host(k[slot])[:, 0] for slot in ("gain", "x", "query"))
    return _Ranking.of(*(array.astype(np.float64) for array in columns))


lambda_rank = operator(
    "cntk.lambda_rank",
    doc=(
        "100 N (1 - NDCG): the mean over queries of the discounted gain, sum of gain / log(2 +"
        " rank), by that in the order of gains. The gradient is LambdaRank's: for each pair of"
        " documents the gradient of log(1 + exp(-(s_i - s_j))), weighted with the change of NDCG"
        " when both change places."
    ),
    inputs=_INPUTS,
    outputs=[
        Slot("out", "[1]", not_in_gradient=True),
        Slot("slope", "LambdaRank's gradient by x, [N, 1]", intermediate=True),
    ],
    source=(
        "CNTK: LambdaRankNode, Source/ComputationNetworkLib/TrainingNodes.h; Burges 2010, From"
        " RankNet to LambdaRank to LambdaMART"
    ),
    shape=_rule,
)


@lambda_rank.kernel
def lambda_rank_kernel(k: KernelArgs) -> Call:
    xp = k.xp
    out = k["out"]
    slope = k.get("slope")
    if not len(k["x"]):
        return partial(out.fill, 0)

    def run() -> None:
        ranking = _ranking(k)
        ideal = ranking.ideal
        gain = ranking.sums(ranking.gain / np.log(2.0 + ranking.rank))
        share = np.divide(gain, ideal, out=np.zeros_like(gain), where=ideal != 0)
        out[0] = (1 - share.mean()) * 100 * len(ranking.score)
        if slope is not None:
            slope[:, 0] = xp.asarray(ranking.slopes(), slope.dtype)

    return run


@lambda_rank.backward("x")
def lambda_rank_grad_kernel(k: KernelArgs) -> Call:
    return partial(k.xp.multiply, k["slope"], k["out_grad"], k["x_grad"])


first_gain = operator(
    "cntk.first_gain",
    doc=(
        "NDCG at the first place, in percent of N: 100 N times the mean over queries of the gain of"
        " the document with the highest score, divided by the first document's gain."
    ),
    inputs=_INPUTS,
    outputs=[Slot("out", "[1]")],
    source="CNTK: NDCG1EvalNode, Source/ComputationNetworkLib/EvaluationNodes.h",
    shape=_rule,
    no_gradient="it evaluates",
)


@first_gain.kernel
def first_gain_kernel(k: KernelArgs) -> Call:
    out = k["out"]
    if not len(k["x"]):
        return partial(out.fill, 0)

    def run() -> None:
        ranking = _ranking(k)
        best = ranking.gain[ranking.begin]
        gain = ranking.gain[ranking.rank == 0]
        share = np.divide(gain, best, out=np.zeros_like(gain), where=best != 0)
        out[0] = share.mean() * 100 * len(ranking.score)

    return run
