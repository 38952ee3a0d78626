"""Interpolation, against a reference place by place and against PyTorch where it is installed."""

import itertools
import math

import numpy as np
import pytest

from opscope import NetBuilder
from opscope.framework.base.errors import AttributeTypeError
from opscope.operators.conv.axis_map import AxisMap
from opscope.testing import Case, OpTest


def weights(mode, before, after, scale, aligned):
    """The matrix [after, before] of one axis, written from the definition."""
    matrix = np.zeros((after, before))
    for p in range(after):
        ratio = 1 / scale if scale else before / after
        if mode == "nearest":
            matrix[p, min(math.floor(p * ratio), before - 1)] = 1
            continue
        at = (p + 0.5) * ratio - 0.5
        if aligned:
            at = p * (before - 1) / (after - 1) if after > 1 else 0.0
        if mode == "linear":
            at = min(max(at, 0), before - 1)
        for tap in range(math.floor(at) - 1, math.floor(at) + 3):
            d = abs(at - tap)
            if mode == "linear":
                weight = max(0, 1 - d)
            elif d <= 1:
                weight = 1.25 * d**3 - 2.25 * d**2 + 1
            else:
                weight = -0.75 * (d**3 - 5 * d**2 + 8 * d - 4) if d < 2 else 0
            matrix[p, min(max(tap, 0), before - 1)] += weight
    return matrix


KINDS = {"bilinear": "linear", "trilinear": "linear", "bicubic": "cubic"}


class TestInterpolate(OpTest):
    type = "interpolate"
    grad = ("x",)
    dtypes = ("float16", "float32", "float64")

    def cases(self, rng):
        def case(shape, **attrs):
            return Case({"x": rng.normal(size=shape)}, attrs)

        yield case((2, 3, 4), scale=2)
        yield case((2, 3, 7), size=3)
        yield case((2, 3, 4, 5), size=[6, 9], mode="bilinear")
        yield case((2, 3, 4, 5), scale=[2.5, 0.5], mode="linear")
        yield case((2, 3, 4, 5), size=[7, 2], mode="bilinear", align_corners=True)
        yield case((1, 2, 5, 4), scale=[1, 3], mode="bicubic")
        yield case((1, 2, 5, 4), size=[3, 7], mode="cubic", align_corners=True)
        yield case((1, 2, 3, 2, 4), scale=1.7, mode="trilinear")
        yield case((1, 2, 3, 2, 4), size=[3, 4, 4])
        yield case((1, 2, 3), size=1, mode="linear", align_corners=True)
        yield case((1, 2, 1), size=4, mode="linear")
        yield case((2, 2, 3), size=3, mode="linear")
        for shape, like in (((2, 3, 4, 5), (1, 1, 6, 9)), ((2, 3, 7), (3, 2, 4))):
            given = {"x": rng.normal(size=shape), "like": rng.normal(size=like)}
            yield Case(given, {"mode": "linear"})
            yield Case(given, {"mode": "linear", "align_corners": True})

    def reference(self, inputs, attrs):
        out = inputs["x"]
        rank = out.ndim - 2
        sizes, scales = (list(attrs[key] or [0]) for key in ("size", "scale"))
        if "like" in inputs:
            sizes = list(inputs["like"].shape[2:])
        mode = KINDS.get(attrs["mode"], attrs["mode"])
        for n in range(rank):
            size, scale = (
                values[n] if len(values) > 1 else values[0] for values in (sizes, scales)
            )
            before = out.shape[2 + n]
            after = size or math.floor(before * scale)
            matrix = weights(mode, before, after, scale, attrs["align_corners"])
            out = np.moveaxis(np.moveaxis(out, 2 + n, -1) @ matrix.T, -1, 2 + n)
        return {"out": out}

    def test_refuses(self):
        x = np.zeros((2, 3, 4, 5))
        self.refuses("at least 3 dimensions", {"x": x[0, 0]}, {"scale": 2})
        self.refuses("give one of size, scale and like", {"x": x})
        self.refuses("give one of size, scale and like", {"x": x}, {"scale": 2, "size": 2})
        self.refuses("give one of size, scale and like", {"x": x, "like": x}, {"size": 2})
        self.refuses("the ranks of x and like must agree", {"x": x, "like": x[0]})
        self.refuses("like has a spatial axis of size 0", {"x": x, "like": x[:, :, :0]})
        self.refuses("size wants 1 or 2 values", {"x": x}, {"size": [1, 2, 3]})
        self.refuses("scale wants 1 or 2 values", {"x": x}, {"scale": [1.0] * 3})
        self.refuses(
            "wants 3 spatial axes, and x has 2", {"x": x}, {"scale": 2, "mode": "trilinear"}
        )
        self.refuses("not for nearest", {"x": x}, {"scale": 2, "align_corners": True})
        for scale in (-1.0, [2.0, 0.0], np.nan, [2.0, np.nan], np.inf, -np.inf):
            self.refuses("is not above 0 and finite", {"x": x}, {"scale": scale})
        self.refuses("is larger than any array", {"x": x}, {"scale": 1e308})
        self.refuses("leaves nothing of the spatial sizes", {"x": x}, {"scale": [0.2, 1]})
        self.refuses("axis of size 0", {"x": x[:, :, :0]}, {"size": 2})
        self.refuses("floating dtype", {"x": x.astype(int)}, {"size": 2})
        self.refuses("none of", {"x": x}, {"size": 2, "mode": "area"}, error=AttributeTypeError)

    def test_infinities_stay_where_they_are(self):
        """No place is weighed by 0."""
        x = np.zeros((1, 1, 3))
        x[..., 0] = np.inf
        for mode in ("nearest", "linear"):
            out = self.output(Case({"x": x}, {"size": 6, "mode": mode}))["out"][0, 0]
            assert np.isinf(out[:2]).all() and not np.isnan(out).any() and (out[3:] == 0).all()


TORCH_MODES = {
    1: ["nearest", "linear"],
    2: ["nearest", "bilinear", "bicubic"],
    3: ["nearest", "trilinear"],
}
TORCH = [(rank, mode) for rank, modes in TORCH_MODES.items() for mode in modes]


@pytest.mark.parametrize(("rank", "mode"), TORCH)
def test_equals_torch(rank, mode):
    torch = pytest.importorskip("torch")

    class Test(OpTest):
        type = "interpolate"

    shape = (2, 3, 5, 7, 4)[: 2 + rank]
    options = [{"scale": 2}, {"scale": 0.6}, {"scale": 1.3}]
    options += [{"size": [9, 4, 6][:rank]}, {"size": [2, 14, 3][:rank]}, {"size": 20}, {"size": 1}]
    for given, aligned in itertools.product(options, (False, True)):
        if mode == "nearest" and aligned:
            continue
        x = np.random.default_rng(0).normal(size=shape).astype("float32")
        attrs = {**given, "mode": mode, "align_corners": aligned}
        setup = Test().setup(Case({"x": x}, attrs), "float32", want=False)
        arrays = Test().output(setup.case)
        twin = torch.tensor(x, requires_grad=True)
        named = {"scale_factor" if key == "scale" else key: value for key, value in given.items()}
        more = {} if mode == "nearest" else {"align_corners": aligned}
        wanted = torch.nn.functional.interpolate(twin, mode=mode, **named, **more)
        np.testing.assert_allclose(arrays["out"], wanted.detach().numpy(), rtol=1e-4, atol=1e-5)
        wanted.backward(torch.tensor(setup.seed("out")))
        found = setup.gradients(arrays, ("x",))["x"]
        np.testing.assert_allclose(found, twin.grad.numpy(), rtol=1e-4, atol=1e-4)


def test_random_factors_equal_torch():
    """Also where a factor leaves a size as it is, or doubles it: PyTorch then goes by sizes, in
    some modes."""
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    for _ in range(400):
        rank = int(rng.integers(1, 4))
        mode = str(rng.choice(TORCH_MODES[rank]))
        sizes = rng.integers(1, 9, rank)
        if rank == 2 and rng.random() < 0.2:
            sizes[rng.integers(2)] += rng.integers(50, 90)
        factors = [
            rng.choice([0.5, 1, 2, 1.5, 0.7, 1.1, 2.3], rank),
            rng.uniform(0.4, 3, rank),
            1 + rng.uniform(0, 0.2, rank),
            2 + rng.uniform(0, 0.2, rank),
        ][rng.integers(4)].tolist()
        if 0 in [int(size * factor) for size, factor in zip(sizes, factors, strict=True)]:
            continue
        aligned = mode != "nearest" and bool(rng.integers(2))
        x = rng.normal(size=(2, 3, *sizes)).astype("float32")
        attrs = {"scale": factors, "mode": mode, "align_corners": aligned}
        found = TestInterpolate().output(Case({"x": x}, attrs))["out"]
        more = {} if mode == "nearest" else {"align_corners": aligned}
        wanted = torch.nn.functional.interpolate(
            torch.tensor(x), scale_factor=factors, mode=mode, **more
        )
        np.testing.assert_allclose(
            found, wanted.numpy(), rtol=1e-4, atol=2e-5, err_msg=f"{sizes} {attrs}"
        )


def test_nearest_takes_the_places_that_torch_takes():
    """Also where a product falls on a whole number, but for rounding."""
    torch = pytest.importorskip("torch")
    for before, after in itertools.product(range(1, 40), (1, 3, 7, 10, 20, 49, 100)):
        x = np.arange(before, dtype="float32").reshape(1, 1, -1)
        out = TestInterpolate().output(Case({"x": x}, {"size": after}))["out"]
        wanted = torch.nn.functional.interpolate(torch.tensor(x), size=after).numpy()
        np.testing.assert_array_equal(out, wanted, err_msg=f"{before} -> {after}")


def test_sizes_are_known_while_building():
    b = NetBuilder()
    x = b.input("x", [-1, 3, 8, -1])
    assert b.interpolate(x, scale=2).shape == (-1, 3, 16, -1)
    assert b.interpolate(x, scale=[0.5, 3], mode="bilinear").shape == (-1, 3, 4, -1)
    assert b.interpolate(x, size=5).shape == (-1, 3, 5, 5)


def test_the_transpose_of_a_map_is_its_matrix_transposed():
    rng = np.random.default_rng(0)
    one = AxisMap.of(5, rng.integers(0, 5, (3, 7)), rng.normal(size=(3, 7)))
    matrices = []
    for transposed, shape in ((False, (7, 5)), (True, (5, 7))):
        table, matrix = one.table(transposed), np.zeros(shape)
        rows = np.broadcast_to(np.arange(shape[0]), table.index.shape)
        np.add.at(matrix, (rows, table.index), table.value)
        matrices.append(matrix)
    np.testing.assert_allclose(matrices[0], matrices[1].T, rtol=1e-12)
