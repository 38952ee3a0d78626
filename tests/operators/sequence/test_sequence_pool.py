"""sequence_pool, sequence_expand and sequence_softmax against loops over the sequences."""

import numpy as np
import pytest

from opscope.testing import Case, OpTest
from sequence_cases import BATCHES, NESTED, RAGGED, parts, rows_in, values, wide_batch

POOLS = {
    "first": lambda part: part[0],
    "last": lambda part: part[-1],
    "max": lambda part: part.max(axis=0),
    "sum": lambda part: part.sum(axis=0),
    "mean": lambda part: part.mean(axis=0),
    "sqrt": lambda part: part.sum(axis=0) / np.sqrt(len(part)),
}


class TestSequencePool(OpTest):
    type = "sequence_pool"
    grad = ("x",)

    def cases(self, rng):
        for pool_type in POOLS:
            attrs = {"pool_type": pool_type}
            for levels in BATCHES:
                yield Case({"x": values(rng, levels, 3)}, attrs, offsets={"x": levels})
            yield Case({"x": values(rng, RAGGED)}, attrs, offsets={"x": RAGGED})
            yield Case({"x": values(rng, RAGGED, 2, 2)}, attrs, offsets={"x": RAGGED})
            levels, x = wide_batch(rng)
            yield Case({"x": x}, attrs, offsets={"x": levels})

    def reference(self, inputs, attrs):
        x, pool = inputs["x"], POOLS[attrs["pool_type"]]
        nothing = np.zeros(x.shape[1:])
        found = [pool(p) if len(p) else nothing for p in parts(x, attrs["offsets"]["x"])]
        return {"out": np.stack(found)}

    def test_result_carries_the_outer_levels(self):
        rng = np.random.default_rng(0)
        setup = self.setup(Case({"x": values(rng, NESTED, 2)}, offsets={"x": NESTED}), "float32")
        (left,) = setup.offsets["out"]
        assert left.tolist() == NESTED[0]
        setup = self.setup(Case({"x": values(rng, RAGGED, 2)}, offsets={"x": RAGGED}), "float32")
        assert setup.offsets["out"] == ()

    def test_integers(self):
        x = np.array([3, 1, 2, 9, 4, 5, 7, 6])
        for pool_type, wanted in {"max": [3, 0, 9, 6], "last": [2, 0, 7, 6]}.items():
            case = Case({"x": x}, {"pool_type": pool_type}, offsets={"x": RAGGED})
            assert self.output(case)["out"].tolist() == wanted

    def test_nan_is_the_maximum(self):
        x = np.array([1.0, np.nan, 2, 4, 5, 6, 7, 8])
        case = Case({"x": x}, {"pool_type": "max"}, offsets={"x": RAGGED})
        assert np.array_equal(self.output(case)["out"], [np.nan, 0, 7, 8], equal_nan=True)
        setup = self.setup(case, "float64", want=False)
        grad = setup.gradients({"x": x, "out": np.array([np.nan, 0, 7, 8])}, ("x",))["x"]
        seed = setup.seed("out")
        assert np.array_equal(grad, [0, seed[0], 0, 0, 0, 0, seed[2], seed[3]])

    def test_first_of_equal_maxima_gets_the_gradient(self):
        x = np.array([1.0, 2, 2, 5, 5, 5, 4, 0])
        case = Case({"x": x}, {"pool_type": "max"}, offsets={"x": RAGGED})
        setup = self.setup(case, "float64")
        grad = setup.gradients({"x": x, "out": np.array([2.0, 0, 5, 0])}, ("x",))["x"]
        assert np.flatnonzero(grad).tolist() == [1, 3, 7]

    def test_refuses(self):
        x = np.zeros((8, 2))
        self.refuses("x 'x' carries no sequences; give it offsets", {"x": x})
        self.refuses("floating dtype", {"x": x.astype(int)}, offsets={"x": RAGGED})
        self.refuses("have 8 rows; it has 7", {"x": x[:7]}, offsets={"x": RAGGED})
        self.refuses("at least 1 dimension", {"x": np.float32(1)})


class TestSequenceExpand(OpTest):
    type = "sequence_expand"
    grad = ("x",)

    def cases(self, rng):
        for levels in BATCHES:
            like = np.zeros((rows_in(levels), 1))
            for level in range(-1, len(levels) - 1):
                x = rng.normal(size=(len(levels[level]) - 1, 3))
                yield Case({"x": x, "like": like}, {"level": level}, offsets={"like": levels})
        x, like = rng.normal(size=4), np.zeros((8, 2), int)
        yield Case({"x": x, "like": like}, offsets={"like": RAGGED})
        levels, like = wide_batch(rng)
        yield Case({"x": rng.normal(size=(40, 30)), "like": like}, offsets={"like": levels})

    def reference(self, inputs, attrs):
        levels, level = attrs["offsets"]["like"], attrs["level"]
        offsets = np.asarray(levels[level])
        if len(levels) == 2 and level == 0:
            offsets = np.asarray(levels[1])[offsets]
        return {"out": np.repeat(inputs["x"], np.diff(offsets), axis=0)}

    def test_result_carries_the_offsets(self):
        case = Case({"x": np.zeros((3, 1)), "like": np.zeros(7)}, {"level": 0})
        setup = self.setup(Case(case.inputs, case.attrs, offsets={"like": NESTED}), "float32")
        assert [level.tolist() for level in setup.offsets["out"]] == NESTED

    def test_refuses(self):
        x, like = np.zeros((3, 2)), np.zeros((8, 2))
        self.refuses("like 'like' carries no sequences", {"x": x, "like": like})
        offsets = {"like": RAGGED}
        self.refuses("must agree and are 3, 4", {"x": x, "like": like}, offsets=offsets)
        self.refuses("level 1 is out", {"x": x, "like": like}, {"level": 1}, offsets=offsets)
        self.refuses("1 dimension", {"x": np.zeros(()), "like": like}, offsets=offsets)


class TestSequenceSoftmax(OpTest):
    type = "sequence_softmax"
    grad = ("x",)

    def cases(self, rng):
        for levels in BATCHES:
            yield Case({"x": rng.normal(size=rows_in(levels))}, offsets={"x": levels})
            yield Case({"x": rng.normal(size=(rows_in(levels), 2))}, offsets={"x": levels})
        levels, x = wide_batch(rng)
        yield Case({"x": x / 100}, offsets={"x": levels})

    def reference(self, inputs, attrs):
        out = np.empty_like(inputs["x"])
        levels = attrs["offsets"]["x"]
        for part, target in zip(parts(inputs["x"], levels), parts(out, levels), strict=True):
            exps = np.exp(part - part.max(axis=0, initial=-np.inf))
            target[...] = exps / exps.sum(axis=0)
        return {"out": out}

    def test_large_scores(self):
        x = np.array([1e4, -1e4, 1e4, 0, 3, 3, 0, 5e4])
        out = self.output(Case({"x": x}, offsets={"x": RAGGED}))["out"]
        assert np.isfinite(out).all() and out[[0, 2, 7]].tolist() == [0.5, 0.5, 1]

    def test_refuses(self):
        self.refuses("x 'x' carries no sequences", {"x": np.zeros(8)})
        self.refuses("floating dtype", {"x": np.zeros(8, int)}, offsets={"x": RAGGED})


@pytest.mark.parametrize("pool_type", ["sum", "max"])
def test_both_ways_of_reducing_agree(pool_type):
    """Wide rows go step by step, narrow ones through reduceat; columns are independent."""
    rng = np.random.default_rng(0)
    levels, x = wide_batch(rng)
    test = TestSequencePool()

    def pooled(rows):
        case = Case({"x": rows}, {"pool_type": pool_type}, offsets={"x": levels})
        return test.output(case, "float64")["out"]

    narrow = np.concatenate([pooled(x[:, i : i + 1]) for i in range(x.shape[1])], axis=1)
    assert np.allclose(pooled(x), narrow, rtol=1e-14, atol=0)
