"""Conditional random fields, their decoder and the edit distance, beside plain searches."""

from itertools import product

import numpy as np
import pytest

import opscope.cntk.operators  # noqa: F401  registers them
from opscope.framework.base.errors import RunError, ShapeError
from opscope.testing import Case, OpTest

OFFSETS = np.array([0, 3, 4, 4, 8])


def one_hot(labels, count):
    return np.eye(count)[labels]


def paths(rng, offsets=OFFSETS, labels=3, spread=1.0):
    rows = offsets[-1]
    inputs = {
        "label": one_hot(rng.integers(labels, size=rows), labels),
        "x": spread * rng.normal(size=(rows, labels)),
        "pairs": spread * rng.normal(size=(labels, labels)),
    }
    return Case(inputs, offsets={"label": (offsets,), "x": (offsets,)})


def score(path, x, pairs):
    """Of a path that comes from its first label."""
    before = [path[0], *path[:-1]]
    return x[np.arange(len(path)), path].sum() + pairs[before, path].sum()


def each_sequence(inputs, attrs):
    (offsets,) = attrs["offsets"]["label"]
    for begin, end in zip(offsets, offsets[1:], strict=False):
        if end > begin:
            yield inputs["label"][begin:end].argmax(1), inputs["x"][begin:end]


class TestCrf(OpTest):
    type = "cntk.crf"
    grad = ("x", "pairs")

    def cases(self, rng):
        yield paths(rng)
        yield paths(rng, np.array([0, 5]), 2, 3.0)

    def reference(self, inputs, attrs):
        pairs, total, start = inputs["pairs"], 0.0, 0.0
        for labels, x in each_sequence(inputs, attrs):
            ways = product(range(len(pairs)), repeat=len(labels))
            entry = labels[0]
            every = [
                score(list(way), x, pairs) - pairs[way[0], way[0]] + pairs[entry, way[0]]
                for way in ways
            ]
            total += np.logaddexp.reduce(every) - score(labels, x, pairs)
            start += pairs[entry, entry]
        return {"out": np.array([total]), "start": np.array([start])}

    def test_large_scores(self):
        case = paths(np.random.default_rng(0), spread=200.0)
        out = self.output(case)
        want = self.reference(case.inputs, {"offsets": case.offsets})
        assert np.allclose(out["out"], want["out"], rtol=1e-5)
        assert all(np.isfinite(array).all() for array in out.values())

    def test_refuses(self):
        case = paths(np.random.default_rng(0))
        bad = Case({**case.inputs, "label": np.zeros((8, 3))}, offsets=case.offsets)
        with pytest.raises(RunError, match="no label"):
            self.output(bad)
        wide = Case({**case.inputs, "pairs": np.ones((3, 4))}, offsets=case.offsets)
        with pytest.raises(ShapeError, match="labels in x and pairs"):
            self.output(wide)


class TestBestPath(OpTest):
    type = "cntk.best_path"

    def cases(self, rng):
        yield paths(rng)
        yield paths(rng, np.array([0, 4, 6]), 4)

    def reference(self, inputs, attrs):
        found = []
        for labels, x in each_sequence(inputs, attrs):
            choices = [[label] for label in labels[:1]]
            choices += [range(x.shape[1])] * (len(labels) - 2) + [labels[-1:]] * (len(labels) > 1)
            best = max(product(*choices), key=lambda way: score(way, x, inputs["pairs"]))
            found += list(best)
        return {"out": one_hot(np.array(found), inputs["x"].shape[1])}


def slow_edits(x, y, costs):
    """Edits on the cheapest way, pair by pair."""
    substitution, deletion, insertion = (np.float32(cost) for cost in costs)
    table = {(0, 0): (np.float32(0), 0)}
    for i, j in product(range(len(x) + 1), range(len(y) + 1)):
        if i == j == 0:
            continue
        if i == 0 or j == 0:
            table[i, j] = (i * deletion + j * insertion, i + j)
        elif x[i - 1] == y[j - 1]:
            table[i, j] = table[i - 1, j - 1]
        else:
            ways = [
                (table[i - 1, j - 1][0] + substitution, 0, table[i - 1, j - 1][1]),
                (table[i, j - 1][0] + insertion, 1, table[i, j - 1][1]),
                (table[i - 1, j][0] + deletion, 2, table[i - 1, j][1]),
            ]
            cost, _, edits = min(ways)
            table[i, j] = cost, edits + 1
    return table[len(x), len(y)][1]


def counted(labels, attrs):
    kept = [
        label
        for place, label in enumerate(labels)
        if not (attrs["squash"] and place and labels[place - 1] == label)
    ]
    return [label for label in kept if label not in attrs["ignore"]]


class TestEditError(OpTest):
    type = "cntk.edit_error"

    def cases(self, rng):
        costs = {"substitution": 1.0, "deletion": 1.0, "insertion": 1.0}
        for attrs in (
            {},
            costs,
            {**costs, "substitution": 3.0},
            {**costs, "insertion": 0.5, "squash": True},
            {**costs, "squash": True, "ignore": (0,)},
            {**costs, "ignore": (1, 2)},
        ):
            shape = (OFFSETS[-1], 4)
            inputs = {"x": rng.normal(size=shape), "y": rng.normal(size=shape)}
            inputs["x"][2:7, 1] += 3  # so that labels repeat
            yield Case(inputs, attrs, offsets={"x": (OFFSETS,), "y": (OFFSETS,)})

    def reference(self, inputs, attrs):
        (offsets,), edits, labels = attrs["offsets"]["x"], 0, 0
        costs = [attrs[name] for name in ("substitution", "deletion", "insertion")]
        for begin, end in zip(offsets, offsets[1:], strict=False):
            x, y = (counted(list(inputs[slot][begin:end].argmax(1)), attrs) for slot in ("x", "y"))
            edits, labels = edits + slow_edits(x, y, costs), labels + len(x)
        return {"out": np.array([edits * len(inputs["x"]) / max(labels, 1)])}

    def test_documented_example(self):
        """`a-ab-` and `-aa--abb` (filled up) are `aab` and `aab` where `-` does not count."""
        x, y = (one_hot(np.array(["-ab".index(c) for c in s]), 3) for s in ("a-ab----", "-aa--abb"))
        attrs = {"squash": True, "ignore": (0,), "substitution": 1.0, "deletion": 1.0}
        offsets = {slot: (np.array([0, 8]),) for slot in ("x", "y")}
        case = Case({"x": x, "y": y}, {**attrs, "insertion": 1.0}, offsets=offsets)
        assert self.output(case)["out"] == 0
