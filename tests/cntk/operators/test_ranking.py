"""Criteria of rankings, query by query."""

from itertools import combinations

import numpy as np

import opscope.cntk.operators  # noqa: F401  registers them
from opscope.testing import Case, OpTest

QUERY = np.repeat([7, 3, 3000, 9], [3, 1, 4, 2]).astype(float)
GAIN = np.array([31, 7, 0, 3, 7, 7, 1, 0, 0, 0], float)


def rankings(rng, scores=None):
    scores = rng.normal(size=len(QUERY)) if scores is None else scores
    columns = {"gain": GAIN, "x": scores, "query": QUERY}
    return Case({slot: column[:, None] for slot, column in columns.items()})


def each_query(inputs):
    """Gains, scores, ranks and rows of each query."""
    for query in dict.fromkeys(inputs["query"][:, 0]):
        rows = np.flatnonzero(inputs["query"][:, 0] == query)
        gain, score = inputs["gain"][rows, 0], inputs["x"][rows, 0]
        order = sorted(range(len(rows)), key=lambda i: (-score[i], gain[i]))
        rank = np.empty(len(rows), int)
        rank[order] = np.arange(len(rows))
        yield gain, score, rank, rows


def discounted(gain, rank):
    return (gain / np.log(2 + rank)).sum()


class TestLambdaRank(OpTest):
    type = "cntk.lambda_rank"

    def cases(self, rng):
        yield rankings(rng)
        yield rankings(rng, np.zeros(len(QUERY)))  # low gains come first

    def reference(self, inputs, attrs):
        shares, slope = [], np.zeros_like(inputs["x"])
        for gain, score, rank, rows in each_query(inputs):
            ideal = discounted(gain, np.arange(len(gain)))
            shares.append(discounted(gain, rank) / ideal if ideal else 0)
            for i, j in combinations(range(len(gain)), 2):
                if gain[i] > gain[j]:
                    swapped = rank.copy()
                    swapped[[i, j]] = rank[[j, i]]
                    change = abs(discounted(gain, rank) - discounted(gain, swapped)) / ideal
                    part = -change / (1 + np.exp(score[i] - score[j]))
                    slope[rows[i]] += part
                    slope[rows[j]] -= part
        count = len(inputs["x"])
        return {"out": np.array([100 * count * (1 - np.mean(shares or [0]))]), "slope": slope}

    def test_grad_names_what_there_is(self):
        """The gradient is LambdaRank's, which is none of out's."""
        setup = self.setup(rankings(np.random.default_rng(0)), "float64")
        slope = self.reference(rankings(np.random.default_rng(0)).inputs, {})["slope"]
        arrays = {**setup.arrays, "slope": slope}
        found = setup.gradients(arrays, ("x",))
        assert np.allclose(found["x"], slope * setup.seed("out"))

    def test_refuses(self):
        inputs = rankings(np.random.default_rng(0)).inputs
        self.refuses("one shape", {**inputs, "x": np.ones((10, 2))})


class TestFirstGain(OpTest):
    type = "cntk.first_gain"

    def cases(self, rng):
        yield rankings(rng)
        yield rankings(rng, np.zeros(len(QUERY)))

    def reference(self, inputs, attrs):
        shares = [
            gain[rank == 0][0] / gain[0] if gain[0] else 0
            for gain, _, rank, _ in each_query(inputs)
        ]
        return {"out": np.array([100 * len(inputs["x"]) * np.mean(shares or [0])])}
