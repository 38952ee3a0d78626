"""Operators of nnet3 components that look over time, and random masks."""

import numpy as np
import pytest

from opscope.framework.base.context import OpContext
from opscope.framework.base.scope import Scope
from opscope.framework.runtime.plain_net import PlainNet
from opscope.nnet3.components.products import tdnn
from opscope.operators.base import blocks
from opscope.testing import Case, OpTest


class TestTdnn(OpTest):
    type = "nnet3.tdnn"
    grad = ("x", "w", "b")

    def cases(self, rng):
        given = {
            "x": rng.normal(size=(11, 3)),
            "w": rng.normal(size=(2, 6)),
            "b": rng.normal(size=2),
        }
        yield Case(given, {"first": [1, 4], "stride": 2, "rows": 4})
        yield Case(given, {"first": [0, 2], "stride": 1, "rows": 9})
        yield Case(given, {"first": [4, 1], "stride": 1, "rows": 5})
        one = {"x": given["x"], "w": given["w"][:, :3]}
        yield Case(one, {"first": [2], "stride": 1, "rows": 9})

    def reference(self, inputs, attrs):
        every = np.arange(attrs["rows"]) * attrs["stride"]
        x = np.concatenate([inputs["x"][every + at] for at in attrs["first"]], axis=1)
        return {"out": x @ inputs["w"].T + inputs.get("b", 0)}

    def test_no_rows(self):
        case = Case(
            {"x": np.ones((2, 3)), "w": np.ones((2, 3))}, {"first": [0], "stride": 1, "rows": 0}
        )
        assert self.output(case)["out"].shape == (0, 2)

    def test_refuses(self):
        given = {"x": np.zeros((4, 3)), "w": np.zeros((2, 6))}
        attrs = {"first": [0, 1], "stride": 1, "rows": 3}
        self.refuses("rows 0 to 4 are read and x has 4", given, attrs | {"rows": 4})
        self.refuses("rows -1 to", given, attrs | {"first": [-1, 1]})
        self.refuses("columns of w", given, attrs | {"first": [0]})


class TestTdnnInSpans(TestTdnn):
    """Spans of two rows, the last one shorter; a product for every offset."""

    @pytest.fixture(autouse=True)
    def short_spans(self, monkeypatch):
        monkeypatch.setattr(tdnn, "_SPAN", 2)
        monkeypatch.setattr(tdnn, "_NARROW", 1)

    @pytest.mark.parametrize("libraries", ["packed,mkl,blas,xp", "blas,xp", "xp"])
    @pytest.mark.parametrize("small", [1 << 17, 0])
    def test_wide_rows(self, libraries, small, monkeypatch):
        monkeypatch.setenv("OPSCOPE_LIBRARIES", libraries)
        monkeypatch.setattr(tdnn, "_SPAN", 384)
        monkeypatch.setattr(tdnn, "_SMALL", small)  # 0: all rows at once
        rng = np.random.default_rng(0)
        given = {
            "x": rng.normal(size=(1003, 70)).astype(np.float32),
            "w": rng.normal(size=(30, 140)).astype(np.float32),
            "b": rng.normal(size=30).astype(np.float32),
        }
        attrs = {"first": [0, 3], "stride": 1, "rows": 1000}
        grad = rng.normal(size=(1000, 30)).astype(np.float32)
        net, scope = PlainNet(), Scope()
        slots = {name: [name] for name in given}
        net.add_op("nnet3.tdnn", slots, {"out": ["out"]}, attrs)
        slots["out_grad"] = ["grad"]
        outputs = {f"{name}_grad": [f"d{name}"] for name in given}
        net.add_op("nnet3.tdnn_grad", slots, outputs, attrs)
        scope.feed({**given, "grad": grad})
        names = ["out", "dx", "dw", "db"]
        net.run(scope, OpContext(live_out=names))
        double = {name: array.astype(np.float64) for name, array in given.items()}
        x = np.concatenate([double["x"][at : at + 1000] for at in (0, 3)], axis=1)
        back, dx = grad @ double["w"], np.zeros((1003, 70))
        dx[:1000] += back[:, :70]
        dx[3:] += back[:, 70:]
        want = [x @ double["w"].T + double["b"], dx, grad.T @ x, grad.sum(0, dtype=np.float64)]
        for name, array in zip(names, want, strict=True):
            error = np.abs(scope.numpy(name) - array).max() / np.abs(array).max()
            assert error < 1e-5, name


class TestTimeHeightConvolution(OpTest):
    type = "nnet3.time_height_convolution"
    grad = ("x", "w", "b")

    def cases(self, rng):
        given = {
            "x": rng.normal(size=(9, 5 * 2)),
            "w": rng.normal(size=(3, 4 * 2)),
            "b": rng.normal(size=3),
        }
        where = {"first": [0, 0, 3, 3], "height_offsets": [-1, 1, -1, 1], "height_in": 5}
        yield Case(given, where | {"stride": 1, "rows": 6, "height_out": 5})
        yield Case(given, where | {"stride": 2, "rows": 3, "height_out": 3, "height_step": 2})

    def reference(self, inputs, attrs):
        rows, cols = inputs["x"].shape
        height, filters = attrs["height_in"], cols // attrs["height_in"]
        image = inputs["x"].reshape(rows, height, filters)
        out = np.zeros((attrs["rows"], attrs["height_out"], len(inputs["b"]))) + inputs["b"]
        for o, (first, offset) in enumerate(
            zip(attrs["first"], attrs["height_offsets"], strict=True)
        ):
            w = inputs["w"][:, filters * o : filters * (o + 1)]
            for r in range(attrs["rows"]):
                for h in range(attrs["height_out"]):
                    at = h * attrs["height_step"] + offset
                    if 0 <= at < height:
                        out[r, h] += w @ image[first + attrs["stride"] * r, at]
        return {"out": out.reshape(len(out), out.shape[1] * out.shape[2])}

    def test_refuses(self):
        given = {"x": np.zeros((4, 10)), "w": np.zeros((3, 4)), "b": np.zeros(3)}
        attrs = {"first": [0, 1], "height_offsets": [0, 0], "height_in": 5, "height_out": 5}
        attrs |= {"stride": 1, "rows": 3}
        self.refuses("one number for each offset", given, attrs | {"height_offsets": [0]})
        self.refuses("4 heights", given, attrs | {"height_in": 4})
        self.refuses("filters of x", given, attrs | {"height_in": 10})
        self.refuses("rows 0 to 5", given, attrs | {"rows": 5})


class TestTimeHeightConvolutionInChunks(TestTimeHeightConvolution):
    """The same with too little memory for the patches of all rows at once."""

    @pytest.fixture(autouse=True)
    def _little_memory(self, monkeypatch):
        monkeypatch.setattr(blocks, "CHUNK_BYTES", 500)


class TestAttention(OpTest):
    type = "nnet3.attention"
    grad = ("x",)

    def cases(self, rng):
        x = rng.normal(size=(10, 2 * (3 + 2 + 3 + 3)))
        attrs = {"heads": 2, "key_dim": 3, "value_dim": 2, "context": 3, "key_scale": 0.6}
        attrs |= {"first_query": 2, "shift": 2, "rows": 6}
        yield Case({"x": x}, attrs)
        yield Case({"x": x}, attrs | {"output_context": True})

    def reference(self, inputs, attrs):
        out, all_weights = [], []
        for head in np.split(inputs["x"], 2, axis=1):
            key, value, query, score = np.split(head, (3, 5, 8), axis=1)
            for r in range(6):
                window = r + 2 * np.arange(3)
                s = 0.6 * key[window] @ query[2 + r] + score[2 + r]
                weights = np.exp(s - s.max()) / np.exp(s - s.max()).sum()
                row = [weights @ value[window], weights][: 1 + attrs["output_context"]]
                out.append(np.concatenate(row))
                all_weights.append(weights)
        by_row = [np.concatenate((a, b)) for a, b in zip(out[:6], out[6:], strict=True)]
        weights = np.array(all_weights).reshape(2, 6, 3).swapaxes(0, 1)
        return {"out": np.array(by_row), "weights": weights}

    def test_refuses(self):
        attrs = {"heads": 2, "key_dim": 3, "value_dim": 2, "context": 3, "key_scale": 0.6}
        attrs |= {"first_query": 2, "shift": 2, "rows": 6}
        self.refuses("the columns of all heads must agree", {"x": np.zeros((10, 21))}, attrs)
        self.refuses("rows up to 9", {"x": np.zeros((9, 22))}, attrs)


RANGES = {"begin": np.array([0, 1, 3]), "end": np.array([2, 4, 6])}


class TestStatistics(OpTest):
    type = "nnet3.statistics"
    grad = ("x",)

    def cases(self, rng):
        yield Case({"x": rng.normal(size=(6, 3))}, RANGES)
        yield Case({"x": rng.normal(size=(7, 3))}, RANGES | {"variance": False})
        few = {"begin": np.array([1]), "end": np.array([6])}
        yield Case({"x": rng.normal(size=(7, 3))}, few)

    def reference(self, inputs, attrs):
        rows = []
        for a, b in zip(attrs["begin"], attrs["end"], strict=True):
            part = inputs["x"][a:b]
            sums = [[b - a], part.sum(axis=0), (part**2).sum(axis=0)]
            rows.append(np.concatenate(sums[: 2 + attrs["variance"]]))
        return {"out": np.array(rows)}

    def test_refuses(self):
        self.refuses("x has 5", {"x": np.zeros((5, 3))}, RANGES)
        self.refuses("none empty", {"x": np.zeros((6, 3))}, RANGES | {"end": RANGES["begin"]})


class TestPoolStatistics(OpTest):
    type = "nnet3.pool_statistics"
    tolerance = 1e-4

    def cases(self, rng):
        x = np.concatenate((np.full((6, 1), 2.0), rng.normal(size=(6, 4))), axis=1)
        x[:, 3:] = np.abs(x[:, 3:]) + 4
        yield Case({"x": x}, RANGES | {"log_counts": 2})
        yield Case({"x": x}, RANGES | {"stddevs": True, "variance_floor": 1e-3})

    def reference(self, inputs, attrs):
        rows = []
        for a, b in zip(attrs["begin"], attrs["end"], strict=True):
            count, sums = inputs["x"][a:b, 0].sum(), inputs["x"][a:b, 1:].sum(axis=0)
            means = sums / count
            if attrs["stddevs"]:
                variance = np.maximum(means[2:] - means[:2] ** 2, attrs["variance_floor"])
                means = np.concatenate((means[:2], np.sqrt(variance)))
            rows.append([*[np.log(count)] * attrs["log_counts"], *means])
        return {"out": np.array(rows)}

    def test_grad_names_what_there_is(self):
        assert self.entry.gradient is not None  # the counts get none, so it is no derivative

    def test_refuses(self):
        self.refuses("wants a count", {"x": np.zeros((6, 4))}, RANGES | {"stddevs": True})


class TestDistribute(OpTest):
    type = "nnet3.distribute"
    grad = ("x",)

    def cases(self, rng):
        ids = np.array([5, 0, 1, 3, 3])
        yield Case({"x": rng.normal(size=(3, 6))}, {"blocks": 2, "ids": ids})

    def reference(self, inputs, attrs):
        (rows, cols), blocks = inputs["x"].shape, attrs["blocks"]
        return {"out": inputs["x"].reshape(rows * blocks, cols // blocks)[attrs["ids"]]}

    def test_refuses(self):
        x = np.zeros((3, 6))
        self.refuses("do not fall", {"x": x}, {"blocks": 4, "ids": np.array([0])})
        self.refuses("6 blocks", {"x": x}, {"blocks": 2, "ids": np.array([6])})
        self.refuses("one integer", {"x": x}, {"blocks": 2, "ids": np.zeros(2)})


class TestMultiplyRows(OpTest):
    type = "nnet3.multiply_rows"
    grad = ("x",)

    def cases(self, rng):
        given = {"x": rng.normal(size=(4, 6)), "mask": rng.normal(size=(2, 3))}
        yield Case(given, {"rows": np.array([1, 0, 0, 1])})

    def reference(self, inputs, attrs):
        x, mask = inputs["x"], inputs["mask"][attrs["rows"]]
        return {"out": x * np.tile(mask, x.shape[1] // mask.shape[1])}

    def test_refuses(self):
        given = {"x": np.zeros((2, 6)), "mask": np.zeros((2, 3))}
        self.refuses("length of rows", given, {"rows": np.array([0])})
        self.refuses("2 masks", given, {"rows": np.array([0, 2])})
        self.refuses("no multiple", given | {"mask": np.zeros((2, 4))}, {"rows": np.array([0, 1])})


class Random(OpTest):
    """Masks: what all draws have in common, and how often."""

    attrs = {"rows": 4, "columns": 6}

    def cases(self, rng):
        yield Case({}, self.attrs)

    def reference(self, inputs, attrs):
        return {}  # shapes are checked

    def mask(self, **attrs):
        return self.output(Case({}, attrs))["out"]


class TestDropoutMask(Random):
    type = "nnet3.dropout_mask"

    def test_zeros_and_ones(self):
        mask = self.mask(rows=1000, columns=5, p=0.3)
        assert set(np.unique(mask)) == {0, 1}
        assert abs(mask.mean() - 0.7) < 0.03

    def test_scaled(self):
        mask = self.mask(rows=1000, columns=5, p=0.5, scaled=True)
        assert set(np.unique(mask)) == {0, 2}

    def test_continuous(self):
        mask = self.mask(rows=1000, columns=5, p=0.25, continuous=True)
        assert 0.5 <= mask.min() < 0.51 and 1.49 < mask.max() <= 1.5

    def test_exclusive(self):
        mask = self.mask(rows=1000, columns=3, p=0.4, exclusive=True)
        assert not ((mask[:, 0] == 0) & (mask[:, 1] == 0)).any()
        np.testing.assert_allclose((mask == 0).mean(axis=0), 0.4, atol=0.05)

    def test_rows_of_another(self):
        case = Case({"like": np.zeros((7, 2))}, {"columns": 3})
        assert self.output(case)["out"].shape == (7, 3)
        self.refuses("wants rows", {}, {"columns": 3})


class TestSpecAugmentMask(Random):
    type = "nnet3.spec_augment_mask"

    def test_one_region(self):
        mask = self.mask(rows=400, columns=20, proportion=0.5)
        zeros = (mask == 0).sum(axis=1)
        assert zeros.min() == 0 and zeros.max() == 10
        changes = (mask != np.roll(mask, 1, axis=1)).sum(axis=1)
        assert set(changes) <= {0, 2}, "one range, around the end perhaps"

    def test_regions_move_zeros_about(self):
        mask = self.mask(rows=400, columns=20, proportion=0.5, regions=3)
        assert (mask == 0).sum(axis=1).max() == 10
        assert (mask != np.roll(mask, 1, axis=1)).sum(axis=1).max() > 2


class TestTimeMask(Random):
    type = "nnet3.time_mask"
    attrs = {"order": np.array([2, 0, 1]), "lengths": [1, 2]}

    def test_stretches(self):
        order = np.random.default_rng(1).permutation(2000)
        mask = self.mask(order=order, lengths=[1200, 800], proportion=0.25, longest=4)
        assert set(np.unique(mask)) == {0, 1}
        assert abs((mask == 0).mean() - 0.25) < 0.06
        first = mask[order, 0][:1200]
        edges = np.flatnonzero(np.diff(first))
        lengths = np.diff(edges)
        zeros = lengths[first[edges[:-1] + 1] == 0]
        assert zeros.max() <= 4 and lengths.max() <= 12

    def test_refuses(self):
        order = np.arange(5)
        self.refuses("names 5 rows", {}, {"order": order, "lengths": [4]})
        wrong = {"order": order, "lengths": [5], "proportion": 1.0}
        self.refuses("none of ones", {}, wrong)
