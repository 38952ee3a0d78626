"""Operators of nnet3 components that work on blocks and groups of columns."""

import numpy as np

import opscope.nnet3.components  # noqa: F401  (registers the operators)
from opscope.testing import Case, OpTest


def blocks(array, width):
    return array.reshape(len(array), array.shape[1] // width, width)


def parts(array, count):
    return array.reshape(len(array), count, array.shape[1] // count)


def tiled(vector, like):
    """Repeated over the columns of a matrix."""
    return np.tile(vector, like.shape[1] // len(vector))


class TestRepeatedAffine(OpTest):
    type = "nnet3.repeated_affine"
    grad = ("x", "w", "b")

    def cases(self, rng):
        for repeats in (1, 3):
            shapes = {"x": (5, 4 * repeats), "w": (2, 4), "b": (2,)}
            yield Case({slot: rng.normal(size=shape) for slot, shape in shapes.items()})

    def reference(self, inputs, attrs):
        out = blocks(inputs["x"], inputs["w"].shape[1]) @ inputs["w"].T + inputs["b"]
        return {"out": out.reshape(len(out), out.shape[1] * out.shape[2])}

    def test_refuses(self):
        x, w = np.zeros((5, 7)), np.zeros((2, 3))
        self.refuses("no multiple", {"x": x, "w": w, "b": np.zeros(2)})
        self.refuses("length of b", {"x": x[:, :6], "w": w, "b": np.zeros(3)})


class TestBlockAffine(OpTest):
    type = "nnet3.block_affine"
    grad = ("x", "w", "b")

    def cases(self, rng):
        shapes = {"x": (4, 6), "w": (6, 2), "b": (6,)}
        yield Case({s: rng.normal(size=shape) for s, shape in shapes.items()}, {"blocks": 3})

    def reference(self, inputs, attrs):
        x, w = np.split(inputs["x"], 3, axis=1), np.split(inputs["w"], 3)
        parts = [a @ b.T for a, b in zip(x, w, strict=True)]
        return {"out": np.concatenate(parts, axis=1) + inputs["b"]}

    def test_refuses(self):
        given = {"x": np.zeros((4, 6)), "w": np.zeros((5, 3)), "b": np.zeros(5)}
        self.refuses("do not fall into 2 blocks", given, {"blocks": 2})
        given = {"x": np.zeros((4, 7)), "w": np.zeros((4, 3)), "b": np.zeros(4)}
        self.refuses("columns of x", given, {"blocks": 2})


class TestBlockOffset(OpTest):
    type = "nnet3.block_offset"
    grad = ("x", "y")

    def cases(self, rng):
        yield Case({"x": rng.normal(size=(3, 8)), "y": rng.normal(size=4)})

    def reference(self, inputs, attrs):
        return {"out": inputs["x"] + tiled(inputs["y"], inputs["x"])}

    def test_refuses(self):
        self.refuses("no multiple of 3", {"x": np.zeros((2, 8)), "y": np.zeros(3)})


class TestScaleOffset(OpTest):
    type = "nnet3.scale_offset"
    grad = ("x", "scale", "offset")

    def cases(self, rng):
        scale = rng.uniform(0.5, 2, 4) * (-1, 1, 1, -1)
        given = {"x": rng.normal(size=(3, 8)), "scale": scale, "offset": rng.normal(size=4)}
        yield Case(given)
        yield Case(given, {"epsilon": 1e-4})

    def reference(self, inputs, attrs):
        scale, offset = (tiled(inputs[slot], inputs["x"]) for slot in ("scale", "offset"))
        return {"out": inputs["x"] * scale + offset}

    def test_scales_stay_away_from_zero(self):
        scale = np.array([0.0, 1e-6, -1e-6, 0.5])
        given = {"x": np.ones((1, 4)), "scale": scale, "offset": np.zeros(4)}
        out = self.output(Case(given, {"epsilon": 1e-4}))["out"]
        np.testing.assert_allclose(out, [[1e-4, 1e-4, -1e-4, 0.5]], rtol=1e-6)

    def test_refuses(self):
        given = {"x": np.zeros((2, 8)), "scale": np.zeros(4), "offset": np.zeros(2)}
        self.refuses("lengths of scale and offset", given)


class TestElementwiseProduct(OpTest):
    type = "nnet3.elementwise_product"
    grad = ("x",)

    def cases(self, rng):
        for count in (1, 2, 3):
            yield Case({"x": rng.normal(size=(4, 2 * count))}, {"blocks": count})

    def reference(self, inputs, attrs):
        return {"out": parts(inputs["x"], attrs["blocks"]).prod(axis=1)}

    def test_refuses(self):
        self.refuses("do not fall into 2 blocks", {"x": np.zeros((2, 7))}, {"blocks": 2})


class TestConstantRows(OpTest):
    type = "nnet3.constant_rows"
    grad = ("y",)

    def cases(self, rng):
        yield Case({"x": rng.normal(size=(4, 2)), "y": rng.normal(size=3)})

    def reference(self, inputs, attrs):
        return {"out": np.tile(inputs["y"], (len(inputs["x"]), 1))}


class TestPermute(OpTest):
    type = "nnet3.permute"
    grad = ("x",)

    def cases(self, rng):
        yield Case({"x": rng.normal(size=(4, 5))}, {"columns": [2, 0, 4, 3, 1]})

    def reference(self, inputs, attrs):
        return {"out": inputs["x"][:, list(attrs["columns"])]}

    def test_refuses(self):
        x = np.zeros((2, 3))
        self.refuses("no permutation", {"x": x}, {"columns": [0, 2, 2]})
        self.refuses("columns of x", {"x": x}, {"columns": [1, 0]})


class TestSumGroup(OpTest):
    type = "nnet3.sum_group"
    grad = ("x",)

    def cases(self, rng):
        yield Case({"x": rng.normal(size=(4, 6))}, {"sizes": [1, 3, 2]})
        yield Case({"x": rng.normal(size=(4, 6))}, {"sizes": [2, 2, 2]})

    def reference(self, inputs, attrs):
        edges = np.cumsum((0, *attrs["sizes"]))
        x = inputs["x"]
        sums = [x[:, a:b].sum(axis=1) for a, b in zip(edges, edges[1:], strict=False)]
        return {"out": np.stack(sums, axis=1)}

    def test_refuses(self):
        self.refuses("sum of sizes", {"x": np.zeros((2, 3))}, {"sizes": [1, 1]})


class TestSumBlock(OpTest):
    type = "nnet3.sum_block"
    grad = ("x",)

    def cases(self, rng):
        yield Case({"x": rng.normal(size=(4, 6))}, {"blocks": 3, "scale": -0.5})

    def reference(self, inputs, attrs):
        return {"out": -0.5 * parts(inputs["x"], attrs["blocks"]).sum(axis=1)}

    def test_refuses(self):
        self.refuses("do not fall into 2 blocks", {"x": np.zeros((2, 7))}, {"blocks": 2})


class TestPnorm(OpTest):
    type = "nnet3.pnorm"
    grad = ("x",)

    def cases(self, rng):
        yield Case({"x": rng.normal(size=(4, 6))}, {"group": 3})

    def reference(self, inputs, attrs):
        return {"out": np.sqrt((blocks(inputs["x"], 3) ** 2).sum(axis=2))}

    def test_refuses(self):
        self.refuses("groups of 3", {"x": np.zeros((2, 7))}, {"group": 3})


class TestNormalize(OpTest):
    type = "nnet3.normalize"
    grad = ("x",)

    def cases(self, rng):
        x = rng.normal(size=(4, 6))
        yield Case({"x": x}, {"block": 6})
        yield Case({"x": x}, {"block": 3, "target_rms": 0.3})
        yield Case({"x": x}, {"block": 3, "target_rms": 2.0, "add_log_stddev": True})

    def reference(self, inputs, attrs):
        x = blocks(inputs["x"], attrs["block"])
        rms = np.sqrt((x**2).mean(axis=2, keepdims=True))
        out = x / rms * attrs["target_rms"]
        if attrs["add_log_stddev"]:
            out = np.concatenate((out, np.log(rms)), axis=2)
        return {"out": out.reshape(len(x), out.shape[1] * out.shape[2])}

    def test_rows_of_zeros_stay_zeros(self):
        out = self.output(Case({"x": np.zeros((2, 3))}, {"block": 3, "add_log_stddev": True}))
        np.testing.assert_array_equal(out["out"][:, :3], 0)
        np.testing.assert_allclose(out["out"][:, 3], -33 * np.log(2), rtol=1e-6)

    def test_refuses(self):
        self.refuses("block=4", {"x": np.zeros((2, 6))}, {"block": 4})


class TestSoftmax(OpTest):
    type = "nnet3.softmax"
    grad = ("x",)

    def cases(self, rng):
        yield Case({"x": rng.normal(size=(4, 5))})

    def reference(self, inputs, attrs):
        e = np.exp(inputs["x"] - inputs["x"].max(axis=1, keepdims=True))
        return {"out": e / e.sum(axis=1, keepdims=True)}

    def test_floor(self):
        out = self.output(Case({"x": np.array([[0.0, -100.0]])}))["out"]
        np.testing.assert_allclose(out, [[1, 1e-20]], rtol=1e-6)

    def test_refuses(self):
        self.refuses("no columns", {"x": np.zeros((2, 0))})


class TestBatchNorm(OpTest):
    type = "nnet3.batch_norm"
    grad = ("x",)
    tolerance = 1e-4

    def cases(self, rng):
        x = rng.normal(size=(5, 6)) + 0.5
        yield Case({"x": x}, {"block": 6, "epsilon": 0.1})
        yield Case({"x": x}, {"block": 3, "epsilon": 0.1, "target_rms": 2.0})

    def reference(self, inputs, attrs):
        width = attrs["block"]
        x = inputs["x"].reshape(-1, width)
        count = max(len(x), 1)  # the statistics of no rows are 0
        mean, uvar = x.sum(axis=0) / count, (x**2).sum(axis=0) / count
        scale = attrs["target_rms"] / np.sqrt(uvar - mean**2 + attrs["epsilon"])
        out = ((x - mean) * scale).reshape(inputs["x"].shape)
        return {"out": out, "mean": mean, "uvar": uvar, "scale": scale}

    def test_refuses(self):
        self.refuses("block=4", {"x": np.zeros((2, 6))}, {"block": 4})
