"""Collective operators on one rank; on several they are in tests/parallel."""

import math

import numpy as np

from opscope.framework.base.errors import AttributeTypeError
from opscope.testing import Case, OpTest


class TestAllReduce(OpTest):
    type = "all_reduce"
    grad = ("x",)

    def cases(self, rng):
        yield Case({"x": [rng.normal(size=(3, 4))]})
        yield Case({"x": [rng.normal(size=(3, 4)), rng.normal(size=5)]}, {"mode": "mean"})
        weight = {"weight": np.array(3.0), "total": np.array(4.0)}
        yield Case({"x": [rng.normal(size=(3, 4)), rng.normal(size=5)], **weight})
        yield Case({"x": [rng.normal(size=2)], "weight": np.array(7)})

    def reference(self, inputs, attrs):
        total = inputs.get("total", inputs.get("weight", 1))
        return {"out": [x * inputs.get("weight", 1) / total for x in inputs["x"]]}

    def test_refuses(self):
        x = [np.ones(2)]
        self.refuses("total without a weight", {"x": x, "total": np.array(1.0)})
        self.refuses("weighted one already", {"x": x, "weight": np.array(1)}, {"mode": "mean"})
        self.refuses("want one dtype", {"x": [np.ones(2), np.ones(2, np.int32)]})
        self.refuses("wants floats", {"x": [np.ones(2, np.int32)]}, {"mode": "mean"})
        self.refuses("wants 0 dimensions", {"x": x, "weight": np.ones(1)})
        self.refuses("none of 'sum', 'mean'", {"x": x}, {"mode": "max"}, AttributeTypeError)


class TestAllGather(OpTest):
    type = "all_gather"
    grad = ("x",)

    def cases(self, rng):
        yield Case({"x": rng.normal(size=(3, 4))}, {"ranks": 1})

    def reference(self, inputs, attrs):
        return {"out": inputs["x"]}


class TestShard(OpTest):
    type = "shard"

    def cases(self, rng):
        yield Case({"x": [rng.normal(size=(3, 4)), rng.normal(size=())]}, {"ranks": 1})
        yield Case({"x": [rng.normal(size=(0, 4))]}, {"ranks": 1})

    def reference(self, inputs, attrs):
        return {"out": [x.reshape(-1) for x in inputs["x"]]}

    def test_refuses(self):
        self.refuses("want one dtype", {"x": [np.ones(2), np.ones(2, np.int32)]}, {"ranks": 1})


class TestAllGatherShards(OpTest):
    type = "all_gather_shards"

    def cases(self, rng):
        one = {"ranks": 1, "shapes": (2, 3, 4)}
        yield Case({"x": [rng.normal(size=12)]}, one)
        several = {"ranks": 1, "shapes": (2, 3, 4, 0, 2, 0, 4)}
        yield Case({"x": [rng.normal(size=12), rng.normal(size=1), np.ones(0)]}, several)

    def reference(self, inputs, attrs):
        shapes = [(3, 4), (), (0, 4)]
        return {"out": [x.reshape(n) for x, n in zip(inputs["x"], shapes, strict=False)]}

    def test_refuses(self):
        x = {"x": [np.ones(6)]}
        self.refuses("numbers of x and of shapes", x, {"ranks": 1, "shapes": (1, 3, 1, 3)})
        self.refuses("x and its part of out", x, {"ranks": 2, "shapes": (1, 9)})
        self.refuses("number of dimensions", x, {"ranks": 1, "shapes": (2, 6)})


class TestAllFinite(OpTest):
    type = "all_finite"

    def cases(self, rng):
        yield Case({"x": np.array(1.0)})
        yield Case({"x": np.array(0.0)})
        yield Case({"x": np.array(0.5)})

    def reference(self, inputs, attrs):
        return {"out": (inputs["x"] != 0) * 1.0}


class TestAllGatherRows(OpTest):
    type = "all_gather_rows"

    def cases(self, rng):
        x, like = rng.normal(size=(4, 2)), np.zeros((6, 2))
        yield Case({"x": x, "rows": np.array([3, -1, 0, 3]), "like": like})
        yield Case({"x": x, "rows": np.array([3, 1, 0, 3]), "like": like}, {"most": 3})

    def reference(self, inputs, attrs):
        found = sorted(set(inputs["rows"].tolist()) - {-1})
        most = attrs["most"] or len(inputs["like"])
        out = np.zeros((most, *inputs["like"].shape[1:]))
        rows = np.full(most, -1)
        for place, row in enumerate(found):
            rows[place] = row
            out[place] = inputs["x"][inputs["rows"] == row].sum(0)
        return {"out": out, "rows_out": rows}

    def test_refuses(self):
        x, rows, like = np.ones((4, 2)), np.zeros(4, int), np.zeros((6, 2))
        self.refuses("numbers of rows", {"x": x, "rows": rows[:3], "like": like})
        self.refuses("rows of x and of like", {"x": x, "rows": rows, "like": np.zeros((6, 3))})
        self.refuses("integer dtype", {"x": x, "rows": rows * 1.0, "like": like})


class TestBroadcast(OpTest):
    type = "broadcast"
    grad = ("x",)

    def cases(self, rng):
        yield Case({"x": [rng.normal(size=(3, 4)), rng.normal(size=2)]})
        yield Case({"x": [rng.normal(size=(3, 4))]})

    def reference(self, inputs, attrs):
        return {"out": inputs["x"]}


class TestAverageParameters(OpTest):
    type = "average_parameters"

    def cases(self, rng):
        param = [rng.normal(size=(3, 4)), rng.normal(size=2)]
        yield Case({"param": param})
        yield Case({"param": param, "step": np.array(3)}, {"period": 2})
        yield Case({"param": param, "weight": np.array(0)})
        yield Case({"param": param[:1]})

    def reference(self, inputs, attrs):
        return {"param_out": inputs["param"]}

    def test_refuses(self):
        self.refuses("period=2 wants a step", {"param": [np.ones(2)]}, {"period": 2})


class TestBlockMomentum(OpTest):
    type = "block_momentum"
    tolerance16 = 3e-3

    def cases(self, rng):
        inputs = {
            slot: [rng.normal(size=(3, 4)), rng.normal(size=2)]
            for slot in ("param", "model", "delta")
        }
        for nesterov in (True, False):
            attrs = {"momentum": 0.75, "rate": 1.5, "nesterov": nesterov}
            yield Case(inputs, attrs)
        yield Case({**inputs, "step": np.array(3)}, {"momentum": 0.5, "period": 2})
        yield Case({**inputs, "step": np.array(4)}, {"momentum": 0.5, "period": 2})
        yield Case({slot: arrays[:1] for slot, arrays in inputs.items()}, {"momentum": 0.5})

    def reference(self, inputs, attrs):
        if inputs.get("step", 0) % attrs["period"]:
            return {f"{slot}_out": inputs[slot] for slot in ("param", "model", "delta")}
        outs = {"param_out": [], "model_out": [], "delta_out": []}
        eta, nesterov = attrs["momentum"], attrs["nesterov"]
        slots = (inputs[slot] for slot in ("param", "model", "delta"))
        for param, model, delta in zip(*slots, strict=True):
            begun = model + eta * delta if nesterov else model
            change = eta * delta + attrs["rate"] * (param - begun)
            outs["delta_out"].append(change)
            outs["model_out"].append(model + change)
            outs["param_out"].append(model + change + (eta * change if nesterov else 0))
        return outs

    def test_refuses(self):
        good = {"param": [np.ones(2)], "model": [np.ones(2)], "delta": [np.ones(2)]}
        two = {**good, "model": [np.ones(2), np.ones(2)]}
        self.refuses("numbers of param and model", two, {"momentum": 0.5})
        self.refuses("one shape", {**good, "delta": [np.ones(3)]}, {"momentum": 0.5})


class TestBatchNormSums(OpTest):
    type = "batch_norm_sums"
    grad = ("x",)

    def cases(self, rng):
        for train in (True, False):
            yield Case({"x": rng.normal(1, 2, (4, 3))}, train=train)
            yield Case({"x": rng.normal(1, 2, (3, 2, 5)), "weight": np.array(3.0)}, train=train)

    def setup(self, case, dtype, want=True):
        self.training = case.train
        return super().setup(case, dtype, want)

    def reference(self, inputs, attrs):
        x = inputs["x"]
        axes, channels = (0, *range(2, x.ndim)), x.shape[1]
        if not self.training:
            return {"mean": np.zeros(channels), "variance": np.ones(channels), "count": 0.0}
        return {
            "mean": x.mean(axes),
            "variance": x.var(axes),
            "count": float(len(x) * math.prod(x.shape[2:])),
        }


class TestBatchNormApply(OpTest):
    type = "batch_norm_apply"
    grad = ("x", "scale", "bias", "batch_mean", "batch_variance")

    def cases(self, rng):
        for train in (True, False):
            for shape in ((4, 3), (3, 2, 5)):
                inputs = {name: rng.uniform(0.5, 1.5, shape[1]) for name in self.slots}
                inputs |= {"x": rng.normal(1, 2, shape), "count": np.array(12.0)}
                yield Case(inputs, {"momentum": 0.25, "epsilon": 0.1}, train=train)

    slots = ("scale", "bias", "batch_mean", "batch_variance", "mean", "variance")

    def setup(self, case, dtype, want=True):
        self.training = case.train
        return super().setup(case, dtype, want)

    def reference(self, inputs, attrs):
        x, eps = inputs["x"], attrs["epsilon"]
        shape = (1, -1, *(1,) * (x.ndim - 2))
        mean, variance = inputs["mean"], inputs["variance"]
        new = mean, variance
        if self.training:
            mean, variance = inputs["batch_mean"], inputs["batch_variance"]
            new = 0.75 * new[0] + 0.25 * mean, 0.75 * new[1] + 0.25 * variance * 12 / 11
        out = (x - mean.reshape(shape)) / np.sqrt(variance.reshape(shape) + eps)
        out = out * inputs["scale"].reshape(shape) + inputs["bias"].reshape(shape)
        used = {"saved_mean": mean, "saved_inv_std": 1 / np.sqrt(variance + eps)}
        return {"out": out, "mean_out": new[0], "variance_out": new[1], **used}


class TestElementCount(OpTest):
    type = "element_count"
    exact_dtype = ("out",)

    def cases(self, rng):
        yield Case({"x": rng.normal(size=(3, 4))})
        yield Case({"x": rng.normal(size=(3, 4, 5)), "mask": np.eye(3, 4)})

    def reference(self, inputs, attrs):
        mask = inputs.get("mask")
        x = inputs["x"]
        each = math.prod(x.shape[2:])
        return {"out": np.float64(x.size if mask is None else mask.sum() * each)}
