"""Positions, sinusoidal encodings and rotary embeddings."""

import numpy as np
import pytest

from opscope.framework.base.errors import AttributeTypeError
from opscope.testing import Case, OpTest

OFFSETS = (np.array([0, 3, 3, 5, 9]),)
PAST = np.array([4, 0, 7, 2], np.int64)
COUNTED = np.array([0, 1, 2, 0, 1, 0, 1, 2, 3], np.int64)


class TestPositions(OpTest):
    type = "positions"

    def cases(self, rng):
        x = rng.normal(size=(2, 3, 4))
        for axis in (-2, 0, 2):
            yield Case({"x": x}, {"axis": axis})
        yield Case({"x": np.arange(5)}, {"axis": 0})
        yield Case({"x": rng.normal(size=(9, 2))}, offsets={"x": OFFSETS})
        yield Case({"x": x, "past": PAST[:2]}, {"axis": 1})
        yield Case({"x": rng.normal(size=(9, 2)), "past": PAST}, offsets={"x": OFFSETS})

    def reference(self, inputs, attrs):
        past = inputs.get("past")
        if "offsets" in attrs:
            lengths = np.diff(OFFSETS[0])
            return {"out": COUNTED + (0 if past is None else np.repeat(past, lengths))}
        if past is not None:
            return {"out": past[:, None] + np.arange(inputs["x"].shape[attrs["axis"]])}
        return {"out": np.arange(inputs["x"].shape[attrs["axis"]], dtype=np.int64)}

    def test_refuses(self):
        self.refuses("out of range", {"x": np.zeros(3)})
        self.refuses(
            "wants x to carry sequences", {"x": np.zeros((3, 2)), "past": np.zeros(3, np.int64)}
        )


class TestSinusoidalEncoding(OpTest):
    type = "sinusoidal_encoding"
    tolerance = 1e-6

    def cases(self, rng):
        for size in (1, 6, 7):
            yield Case({"positions": np.arange(5)}, {"size": size, "dtype": np.dtype("float64")})
        yield Case({"positions": rng.integers(0, 900, size=(2, 3))}, {"size": 4, "base": 100.0})

    def reference(self, inputs, attrs):
        positions, size = inputs["positions"], attrs["size"]
        out = np.zeros((*positions.shape, size))
        for column in range(size):
            angle = positions / attrs["base"] ** (2 * (column // 2) / size)
            out[..., column] = np.cos(angle) if column % 2 else np.sin(angle)
        return {"out": out.astype(attrs["dtype"])}

    def test_refuses(self):
        self.refuses("wants numbers", {"positions": np.zeros(3, bool)}, {"size": 4})
        whole = {"size": 4, "dtype": np.dtype("int64")}
        self.refuses("floating numbers", {"positions": np.arange(3)}, whole)
        self.refuses("below 1", {"positions": np.arange(3)}, {"size": 0}, AttributeTypeError)


def turned(x, positions, base=1e4, interleaved=True):
    """Complex numbers x_1 + i x_2 times e^(i p rate)."""
    width = x.shape[-1]
    angles = np.asarray(positions)[..., None] * base ** (-np.arange(0, width, 2) / width)
    one, two = (
        (x[..., 0::2], x[..., 1::2])
        if interleaved
        else (x[..., : width // 2], x[..., width // 2 :])
    )
    product = (one + 1j * two) * np.exp(1j * angles)
    parts = [product.real, product.imag]
    return np.stack(parts, -1).reshape(x.shape) if interleaved else np.concatenate(parts, -1)


class TestRotaryEmbedding(OpTest):
    type = "rotary_embedding"
    grad = ("x",)
    dtypes = ("float16", "float32", "float64")

    def cases(self, rng):
        x = rng.normal(size=(2, 3, 4, 6))
        yield Case({"x": x})
        yield Case({"x": x}, {"interleaved": False, "base": 50.0})
        yield Case({"x": x, "positions": np.array([4, 0, 7, 7])})
        yield Case({"x": x, "positions": rng.integers(0, 90, size=(2, 1, 4))})
        yield Case({"x": rng.normal(size=(2, 4, 12))}, {"heads": 3})
        packed = rng.normal(size=(9, 8))
        yield Case({"x": packed}, {"heads": 2, "interleaved": False}, offsets={"x": OFFSETS})
        yield Case({"x": packed.reshape(9, 2, 4)}, offsets={"x": OFFSETS})

    def reference(self, inputs, attrs):
        x, heads = inputs["x"], attrs["heads"]
        positions = inputs.get("positions", np.arange(x.shape[-2]))
        if "offsets" in attrs:
            positions = COUNTED.reshape((-1,) + (1,) * (x.ndim - 2))
        apart = x.reshape(*x.shape[:-1], heads or 1, x.shape[-1] // (heads or 1))
        positions = np.broadcast_to(positions, x.shape[:-1])[..., None]
        return {
            "out": turned(apart, positions, attrs["base"], attrs["interleaved"]).reshape(x.shape)
        }

    def test_products_depend_on_the_distance_alone(self):
        rng = np.random.default_rng(0)
        q, k = (np.tile(rng.normal(size=8), (10, 1)) for _ in range(2))
        q, k = (self.output(Case({"x": x}), "float64")["out"] for x in (q, k))
        products = q @ k.T
        np.testing.assert_allclose(products[2:, 2:], products[:-2, :-2], rtol=1e-12)

    def test_refuses(self):
        self.refuses("into pairs of 1 heads", {"x": np.zeros((2, 3))})
        self.refuses("into pairs of 3 heads", {"x": np.zeros((2, 2, 8))}, {"heads": 3})
        self.refuses("2 dimensions or more", {"x": np.zeros(4)})
        x = np.zeros((2, 3, 4))
        self.refuses("do not broadcast", {"x": x, "positions": np.zeros((5, 3), int)})
        self.refuses("must have one shape", {"x": x[:1], "positions": np.zeros((5, 3), int)})
        self.refuses("has 3 dimensions", {"x": x, "positions": np.zeros((1, 1, 3), int)})
        self.refuses("wants numbers", {"x": x, "positions": np.zeros(3, bool)})


def test_sinusoidal_encodings_of_the_paper():
    """The first row is 0, 1, 0, 1, ...; the last pair of columns hardly turns."""
    case = Case({"positions": np.arange(3)}, {"size": 512, "dtype": np.dtype("float64")})
    out = TestSinusoidalEncoding().output(case)["out"]
    np.testing.assert_array_equal(out[0], np.tile([0, 1], 256))
    assert out[1, :2] == pytest.approx([np.sin(1), np.cos(1)])
    assert out[1, -2] == pytest.approx(np.sin(1e4 ** (-510 / 512)))
