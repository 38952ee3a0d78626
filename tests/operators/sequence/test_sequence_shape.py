"""Cutting, joining, reversing, padding: against loops over the sequences."""

import numpy as np
import pytest

from opscope import NetBuilder, Scope
from opscope.framework.base.errors import RunError
from opscope.testing import Case, OpTest
from sequence_cases import BATCHES, EMPTY, NESTED, RAGGED, parts, rows_in, values, wide_batch

OTHER = [[0, 1, 1, 1, 5]]
"""As many sequences as RAGGED: 1, 0, 0 and 4 rows."""


class TestSequenceConcat(OpTest):
    type = "sequence_concat"
    grad = ("x",)

    def cases(self, rng):
        yield self.case(rng, RAGGED, OTHER)
        yield self.case(rng, RAGGED, OTHER, RAGGED)
        yield self.case(rng, NESTED, [NESTED[0], [0, 0, 2, 2, 3]])
        yield self.case(rng, EMPTY, EMPTY)
        yield self.case(rng, RAGGED)

    def case(self, rng, *levels):
        x = [values(rng, one, 2) for one in levels]
        return Case({"x": x}, offsets={"x": list(levels)})

    def reference(self, inputs, attrs):
        pieces = [parts(*pair) for pair in zip(inputs["x"], attrs["offsets"]["x"], strict=True)]
        joined = [part for each in zip(*pieces, strict=True) for part in each]
        return {"out": np.concatenate(joined)}

    def test_result_carries_joined_offsets(self):
        rng = np.random.default_rng(0)
        setup = self.setup(self.case(rng, RAGGED, OTHER), "float32")
        assert [level.tolist() for level in setup.offsets["out"]] == [[0, 4, 4, 8, 13]]
        setup = self.setup(self.case(rng, NESTED, NESTED), "float32")
        assert setup.offsets["out"][0].tolist() == NESTED[0]
        assert setup.offsets["out"][1].tolist() == [0, 4, 6, 6, 14]

    def test_refuses(self):
        rng = np.random.default_rng(0)
        a, b = values(rng, RAGGED, 2), values(rng, EMPTY, 2)
        two = {"x": [RAGGED, EMPTY]}
        self.refuses("'x_0' and 'x_1' differ in number", {"x": [a, b]}, offsets=two)
        two = {"x": [RAGGED, RAGGED]}
        self.refuses("one shape", {"x": [a, a[:, :1]]}, offsets=two)
        self.refuses("one dtype", {"x": [a, a.astype(int)]}, offsets=two)
        self.refuses("'x_1' carries no", {"x": [a, a]}, offsets={"x": [RAGGED, []]})


class TestSequenceReverse(OpTest):
    type = "sequence_reverse"
    grad = ("x",)

    def cases(self, rng):
        for levels in BATCHES:
            yield Case({"x": values(rng, levels, 2)}, offsets={"x": levels})
        yield Case({"x": values(rng, RAGGED)}, offsets={"x": RAGGED})

    def reference(self, inputs, attrs):
        pieces = parts(inputs["x"], attrs["offsets"]["x"])
        return {"out": np.concatenate([part[::-1] for part in pieces])}

    def test_refuses(self):
        self.refuses("x 'x' carries no sequences", {"x": np.zeros(8)})


class TestSequenceSlice(OpTest):
    type = "sequence_slice"
    grad = ("x",)
    slices = ({}, {"start": 1}, {"start": -2}, {"start": 1, "length": 2}, {"length": 0})

    def cases(self, rng):
        for attrs in self.slices:
            for levels in BATCHES:
                yield Case({"x": values(rng, levels, 2)}, attrs, offsets={"x": levels})
        yield self.moving(rng, np.array([1, 0, 2, 0]), [[0, 2, 2, 4, 4]])
        yield self.moving(rng, np.array([3, 0, 0, 0], np.int32), [[0, 0, 0, 4, 5]])
        yield self.moving(rng, np.array([0, 0, 0, 0]), [[0, 0, 0, 0, 0]])
        ends = [[0, 2, 5, 9, 10]]
        inputs = {"x": values(rng, ends, 3), "offset": np.array([1, 2, 0, 0], np.uint8)}
        yield Case(inputs, {"length": 1}, offsets={"x": ends})

    def moving(self, rng, offset, like):
        inputs = {"x": values(rng, RAGGED, 2), "offset": offset, "like": np.zeros(rows_in(like))}
        return Case(inputs, offsets={"x": RAGGED, "like": like})

    def reference(self, inputs, attrs):
        pieces = parts(inputs["x"], attrs["offsets"]["x"])
        if "offset" in inputs:
            lengths = [attrs["length"]] * len(pieces)
            if "like" in inputs:
                lengths = np.diff(attrs["offsets"]["like"][0])
            triples = zip(pieces, inputs["offset"], lengths, strict=True)
            return {"out": np.concatenate([part[a : a + n] for part, a, n in triples])}
        kept = [part[attrs["start"] :] for part in pieces]
        if attrs["length"] >= 0:
            kept = [part[: attrs["length"]] for part in kept]
        return {"out": np.concatenate(kept)}

    def test_result_carries_the_offsets_of_the_parts(self):
        case = Case({"x": np.zeros((7, 1))}, {"start": 1}, offsets={"x": NESTED})
        levels = self.setup(case, "float32").offsets["out"]
        assert [level.tolist() for level in levels] == [NESTED[0], [0, 1, 1, 1, 4]]

    @pytest.mark.parametrize(("offset", "at"), [([-1, 0, 0, 0], 0), ([0, 0, 3, 0], 2)])
    def test_refuses_parts_outside(self, offset, at):
        case = self.moving(np.random.default_rng(0), np.array(offset), [[0, 2, 2, 4, 4]])
        with pytest.raises(RunError, match=f"'offset' holds .* for sequence {at}.*a part of 2"):
            self.output(case)

    def test_refuses(self):
        x, offset = np.zeros((8, 2)), np.zeros(4, int)
        self.refuses("x 'x' carries no sequences", {"x": x})
        given, offsets = {"x": x, "offset": offset}, {"x": RAGGED}
        self.refuses("offset wants the attribute length", given, offsets=offsets)
        one = {"length": 1}
        self.refuses("either start or", given, one | {"start": 1}, offsets=offsets)
        self.refuses("integer", {"x": x, "offset": np.zeros(4)}, one, offsets=offsets)
        self.refuses("and are 3, 4", {"x": x, "offset": offset[:3]}, one, offsets=offsets)
        self.refuses("like wants offset", {"x": x, "like": x}, offsets=offsets | {"like": RAGGED})
        given["like"] = np.zeros(0)
        self.refuses("and are 4, 4, 2", given, offsets=offsets | {"like": EMPTY})


class TestSequencePad(OpTest):
    type = "sequence_pad"
    grad = ("x",)

    def cases(self, rng):
        for attrs in ({}, {"steps": 5, "value": -1.0}):
            for levels in BATCHES:
                yield Case({"x": values(rng, levels, 2)}, attrs, offsets={"x": levels})
            yield Case({"x": values(rng, RAGGED)}, attrs, offsets={"x": RAGGED})

    def reference(self, inputs, attrs):
        x, pieces = inputs["x"], parts(inputs["x"], attrs["offsets"]["x"])
        steps = attrs["steps"] if attrs["steps"] >= 0 else max(map(len, pieces))
        out = np.full((len(pieces), steps, *x.shape[1:]), attrs["value"])
        for row, part in zip(out, pieces, strict=True):
            row[: len(part)] = part
        return {"out": out}

    def test_integers(self):
        case = Case({"x": np.arange(8)}, {"value": -1}, offsets={"x": RAGGED})
        wanted = [[0, 1, 2, -1], [-1] * 4, [3, 4, 5, 6], [7, -1, -1, -1]]
        assert self.output(case)["out"].tolist() == wanted

    def test_zeros_keep_their_sign(self):
        case = Case({"x": np.ones(8)}, {"value": -0.0}, offsets={"x": RAGGED})
        out = self.output(case)["out"]
        assert np.array_equal(np.signbit(out), out == 0)

    def test_refuses(self):
        x = np.zeros((8, 2))
        self.refuses("x 'x' carries no sequences", {"x": x})
        self.refuses(
            "'x' has 4 rows, more than the 3", {"x": x}, {"steps": 3}, offsets={"x": RAGGED}
        )


class TestSequenceUnpad(OpTest):
    type = "sequence_unpad"
    grad = ("x",)

    def cases(self, rng):
        for levels in BATCHES:
            for more in (0, 2):
                shape = (len(levels[-1]) - 1, int(np.diff(levels[-1]).max()) + more)
                like = np.zeros((rows_in(levels), 1), int)
                for width in ((), (3,)):
                    x = rng.normal(size=shape + width)
                    yield Case({"x": x, "like": like}, offsets={"like": levels})

    def reference(self, inputs, attrs):
        lengths = np.diff(attrs["offsets"]["like"][-1])
        pairs = zip(inputs["x"], lengths, strict=True)
        return {"out": np.concatenate([row[:length] for row, length in pairs])}

    def test_refuses(self):
        x, like = np.zeros((4, 3)), np.zeros(8)
        offsets = {"like": RAGGED}
        self.refuses("like 'like' carries no sequences", {"x": x, "like": like})
        self.refuses("has 4 rows; x has 3 steps", {"x": x, "like": like}, offsets=offsets)
        self.refuses("are 3, 4", {"x": np.zeros((3, 4)), "like": like}, offsets=offsets)
        self.refuses("2 dimensions", {"x": x[0], "like": like}, offsets=offsets)


class TestSequenceRows(OpTest):
    type = "sequence_rows"
    grad = ("x",)

    def cases(self, rng):
        for shape in ((2, 3, 4), (1, 5), (4, 1, 2), (3, 0, 2), (0, 2, 2)):
            yield Case({"x": rng.normal(size=shape)})

    def reference(self, inputs, attrs):
        x = inputs["x"]
        return {"out": x.reshape(x.shape[0] * x.shape[1], *x.shape[2:])}

    def test_refuses(self):
        self.refuses("2 dimensions", {"x": np.zeros(3)})

    def test_its_sequences(self):
        b, scope = NetBuilder("rows"), Scope()
        b.sequence_length(b.sequence_rows(b.input("x", [-1, -1, 2])), name="lengths")
        assert b.predict({"x": np.zeros((3, 4, 2))}, scope=scope)["lengths"].tolist() == [4] * 3


class TestSequenceMask(OpTest):
    type = "sequence_mask"
    exact_dtype = ("out",)

    def cases(self, rng):
        for attrs in ({"dtype": "bool"}, {"dtype": "bool", "steps": 6}):
            for levels in BATCHES:
                yield Case({"x": np.zeros((rows_in(levels), 2))}, attrs, offsets={"x": levels})

    def reference(self, inputs, attrs):
        lengths = np.diff(attrs["offsets"]["x"][-1])
        steps = attrs["steps"] if attrs["steps"] >= 0 else lengths.max()
        return {"out": np.arange(steps) < lengths[:, None]}

    def test_floats(self):
        case = Case({"x": np.zeros(8, int)}, {"dtype": "float32"}, offsets={"x": RAGGED})
        out = self.output(case)["out"]
        assert out.dtype == np.float32 and out.sum() == 8

    def test_refuses(self):
        self.refuses("x 'x' carries no sequences", {"x": np.zeros(8)})
        self.refuses("more than the 3", {"x": np.zeros(8)}, {"steps": 3}, offsets={"x": RAGGED})


class TestSequenceLength(OpTest):
    type = "sequence_length"

    def cases(self, rng):
        for levels in (*BATCHES, wide_batch(rng)[0]):
            yield Case({"x": np.zeros((rows_in(levels), 2))}, offsets={"x": levels})

    def reference(self, inputs, attrs):
        return {"out": np.diff(attrs["offsets"]["x"][-1])}

    def test_refuses(self):
        self.refuses("x 'x' carries no sequences", {"x": np.zeros(8)})
