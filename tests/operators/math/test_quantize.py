"""Reals as 8-bit integers and back, and arithmetic on such integers, in C and in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from opscope import NetBuilder, Scope
from opscope.testing import Case, OpTest

RNG = np.random.default_rng(0)
STEP = {"scale": np.array(0.05, "f4")}


def drawn(shape: Any, dtype: str) -> np.ndarray:
    info = np.iinfo(dtype)
    return RNG.integers(info.min, info.max, shape, dtype, endpoint=True)


def zero(value: int, dtype: str, *shape: int) -> np.ndarray:
    return np.full(shape, value, dtype)


def whole(values: np.ndarray, zero: np.ndarray) -> np.ndarray:
    info = np.iinfo(zero.dtype)
    return np.clip(np.rint(values) + zero, info.min, info.max).astype(zero.dtype)


class OfBytes(OpTest):
    halves = False
    tolerance = 1e-7


class TestQuantizeLinear(OfBytes):
    type = "quantize_linear"

    def cases(self, rng):
        x = rng.normal(scale=4, size=(2, 3, 5)).astype("f4")
        yield Case({"x": x, **STEP})
        for dtype in ("uint8", "int8"):
            yield Case({"x": x, **STEP, "zero": zero(20, dtype, 1)})

    def reference(self, inputs, attrs):
        return {"out": whole(inputs["x"] / inputs["scale"], inputs.get("zero", zero(0, "uint8")))}


class TestDequantizeLinear(OfBytes):
    type = "dequantize_linear"

    def cases(self, rng):
        for dtype in ("uint8", "int8"):
            yield Case({"x": drawn((3, 70), dtype), **STEP, "zero": zero(20, dtype)})
        yield Case({"x": drawn((4,), "int8"), **STEP})

    def reference(self, inputs, attrs):
        dtype = inputs["scale"].dtype
        shift = inputs.get("zero", np.zeros(())).astype(dtype)
        return {"out": (inputs["x"].astype(dtype) - shift) * inputs["scale"]}


class TestDynamicQuantizeLinear(OfBytes):
    type = "dynamic_quantize_linear"

    def cases(self, rng):
        for x in (rng.normal(size=(9, 33)), np.zeros((2, 3)), rng.uniform(1, 2, (5, 4))):
            yield Case({"x": x.astype("f4")})

    def reference(self, inputs, attrs):
        x = inputs["x"]
        low, high = min(x.min(initial=0), 0), max(x.max(initial=0), 0)
        scale = x.dtype.type((high - low) / x.dtype.type(255) or 1)
        shift = whole(-low / scale, zero(0, "uint8"))
        return {"out": whole(x / scale, shift), "scale": scale, "zero": shift}


class Combining(OfBytes):
    def cases(self, rng):
        scales = {"x_scale": 0.1, "y_scale": 0.03, "out_scale": self.out_scale}
        given = {name: np.array(one, "f4") for name, one in scales.items()}
        for dtype in ("uint8", "int8"):
            zeros = {f"{n}_zero": zero(k, dtype) for n, k in (("x", 3), ("y", 30), ("out", 9))}
            for y in ((2, 3, 40), (40,), (1,), (3, 1)):
                inputs = {"x": drawn((2, 3, 40), dtype), "y": drawn(y, dtype)}
                yield Case(inputs | given | zeros)
            for y in ((2, 3, 1, 1), (1, 3, 1, 1), (3, 4, 1), (2, 1, 1, 5)):
                inputs = {"x": drawn(y, dtype), "y": drawn((2, 3, 4, 5), dtype)}
                yield Case(inputs | given | zeros)
        yield Case({"x": drawn((40,), "uint8"), "y": drawn((3, 40), "uint8")} | given)

    def reference(self, inputs, attrs):
        wide = [
            inputs[name].astype(np.int64) - inputs.get(f"{name}_zero", np.zeros((), int))
            for name in "xy"
        ]
        scales = [inputs[f"{name}_scale"] for name in ("x", "y", "out")]
        made = self.combine(*wide, *scales)
        return {"out": whole(made, inputs.get("out_zero", zero(0, str(inputs["x"].dtype))))}


class TestQuantizedAdd(Combining):
    type = "quantized_add"
    out_scale = 0.11713

    def combine(self, x, y, of_x, of_y, of_out):
        return (x * of_x.astype("f8") + y * of_y.astype("f8")) / of_out.astype("f8")


class TestQuantizedMul(Combining):
    type = "quantized_mul"
    out_scale = 0.57131

    def combine(self, x, y, of_x, of_y, of_out):
        return (x * y).astype(of_x.dtype) * (of_x * of_y / of_out)


class TestByteTable(OfBytes):
    type = "byte_table"

    def cases(self, rng):
        for dtype in ("uint8", "int8"):
            yield Case({"x": drawn((3, 150), dtype), "table": drawn(256, "uint8")})

    def reference(self, inputs, attrs):
        return {"out": inputs["table"][inputs["x"].view(np.uint8)]}


class TestQuantizedGlobalAvgPool(OfBytes):
    type = "quantized_global_avg_pool"

    def cases(self, rng):
        scales = {"x_scale": np.array(0.1, "f4"), "out_scale": np.array(0.07, "f4")}
        for dtype in ("uint8", "int8"):
            zeros = {"x_zero": zero(3, dtype), "out_zero": zero(5, dtype)}
            yield Case({"x": drawn((2, 70, 3, 5), dtype)} | scales | zeros)

    def reference(self, inputs, attrs):
        x = inputs["x"] - inputs.get("x_zero", np.zeros(())).astype(np.float64)
        mean = x.mean((2, 3), keepdims=True) * (inputs["x_scale"] / inputs["out_scale"])
        return {"out": whole(mean, inputs.get("out_zero", zero(0, str(inputs["x"].dtype))))}


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
def test_images_stay_in_bytes(dtype: str) -> None:
    """Convolution, sum, maximum, mean and products with the means of each image, of images whose
    channels lie last between them."""
    b, scope = NetBuilder("images"), Scope()
    kinds = {"w": ((20, 20, 3, 3), "int8"), "z": ((), dtype), "s": ((), "float32")}
    given = {name: b.state(name, list(shape), dtype=kind) for name, (shape, kind) in kinds.items()}
    scope.var("w").set(drawn((20, 20, 3, 3), "int8"))
    scope.var("z").set(zero(11, dtype))
    scope.var("s").set(np.array(0.01, "f4"))
    z, s = given["z"], given["s"]
    pixels = b.quantize_linear(b.input("x", [2, 20, 9, 8]), s, z)
    made = b.integer_conv(
        *(pixels, given["w"]), x_zero=z, scale=s, out_zero=z, padding=(1,), name="made"
    )
    added = b.quantized_add(pixels, made, s, z, s, z, s, z)
    most = b.max_pool2d(added, kernel=(3,), stride=(2,), padding=(1,), name="most")
    mean = b.quantized_global_avg_pool(most, s, z, s, z, name="mean")
    b.quantized_mul(most, mean, s, z, s, z, s, z, name="gated")
    feed = {"x": RNG.normal(size=(2, 20, 9, 8)).astype("f4")}
    found, names = {}, ["most", "mean", "gated"]
    for libraries in ("native", "xp"):
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("OPSCOPE_LIBRARIES", libraries)
            found[libraries] = b.run(scope, feed=feed, fetch=names, need_backward=False)
    for name in names:
        np.testing.assert_array_equal(found["native"][name], found["xp"][name], strict=True)
