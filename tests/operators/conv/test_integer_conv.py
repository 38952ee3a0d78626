"""integer_conv: exact numbers of all kinds of bytes and windows, in C too, and refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from opscope import NetBuilder, Scope
from opscope.framework.base.cpu.threads import threads_set
from opscope.framework.fusion.compiled import native
from opscope.testing import Case, OpTest

RNG = np.random.default_rng(0)


def drawn(shape: Any, dtype: str) -> np.ndarray:
    info = np.iinfo(dtype)
    return RNG.integers(info.min, info.max, shape, dtype, endpoint=True)


def convolved(given: dict[str, np.ndarray], attrs: dict[str, Any]) -> np.ndarray:
    """The sums, window by window."""
    wide = {slot: given[slot].astype(np.int64) for slot in ("x", "w")}
    x = wide["x"] - given.get("x_zero", np.zeros(1)).astype(np.int64)
    w = wide["w"] - given.get("w_zero", np.zeros(1)).astype(np.int64).reshape(-1, 1, 1, 1)
    (sy, sx), (dy, dx), groups = (attrs[name] for name in ("stride", "dilation", "groups"))
    top, left, bottom, right = attrs["padding"]
    x = np.pad(x, [(0, 0), (0, 0), (top, bottom), (left, right)])
    high, wide_ = (
        (size - (k - 1) * d - 1) // s + 1
        for size, k, d, s in zip(x.shape[2:], w.shape[2:], (dy, dx), (sy, sx), strict=True)
    )
    out = np.zeros((len(x), len(w), high, wide_), np.int64)
    for group, (a, b) in enumerate(
        zip(np.split(x, groups, 1), np.split(w, groups, 0), strict=True)
    ):
        part = out[:, group * len(b) : (group + 1) * len(b)]
        for i, j in np.ndindex(*w.shape[2:]):
            seen = a[:, :, i * dy : i * dy + (high - 1) * sy + 1 : sy]
            seen = seen[..., j * dx : j * dx + (wide_ - 1) * sx + 1 : sx]
            part += np.einsum("nchw,oc->nohw", seen, b[:, :, i, j])
    if "bias" in given:
        out += given["bias"].reshape(-1, 1, 1)
    return out.astype(np.int32)


def ended(sums: np.ndarray, given: dict[str, np.ndarray]) -> np.ndarray:
    if "scale" not in given:
        return sums
    floats = sums.astype(np.float32) * given["scale"].reshape(-1, 1, 1)
    if "out_zero" not in given:
        return floats
    info = np.iinfo(given["out_zero"].dtype)
    whole = np.rint(floats.astype(np.float64)) + given["out_zero"]
    return np.clip(whole, info.min, info.max).astype(given["out_zero"].dtype)


SHAPES = {
    # channels, filters, groups, kernel, image, stride, dilation, padding
    "of one pixel": (20, 40, 1, (1, 1), (9, 8), (1, 1), (1, 1), (0, 0, 0, 0)),
    "of many channels": (70, 40, 1, (1, 3), (3, 35), (1, 1), (1, 1), (0, 1, 0, 1)),
    "of few channels": (3, 33, 1, (3, 7), (12, 11), (2, 2), (1, 1), (1, 3, 1, 2)),
    "dilated": (6, 5, 1, (3, 3), (11, 10), (1, 2), (2, 3), (2, 3, 2, 3)),
    "in groups": (12, 66, 3, (2, 3), (7, 9), (1, 1), (1, 1), (0, 1, 1, 1)),
    "of a channel each": (37, 37, 37, (3, 3), (6, 14), (1, 1), (1, 1), (1, 1, 1, 1)),
    "of a channel each, apart": (16, 16, 16, (3, 5), (9, 30), (2, 2), (1, 2), (1, 2, 1, 2)),
}


@pytest.mark.parametrize("kinds", ["uint8 int8", "int8 uint8"])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("cpu", [one.name for one in native.kinds_here()] or ["none"])
def test_exact_in_c(shape: str, kinds: str, cpu: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPSCOPE_CPU", cpu)
    channels, filters, groups, kernel, size, stride, dilation, padding = SHAPES[shape]
    left, right = kinds.split()
    given = {"x": drawn((2, channels, *size), left)}
    given["w"] = drawn((filters, channels // groups, *kernel), right)
    zeros = {"x_zero": drawn((), left), "w_zero": drawn(filters, right)}
    bias = {"bias": RNG.integers(-1000, 1000, filters, np.int32)}
    scale = {"scale": (RNG.uniform(1, 3, filters) / given["w"][0].size / 90).astype("f4")}
    attrs = {"stride": stride, "dilation": dilation, "padding": padding, "groups": groups}
    for more in ({}, zeros | scale, zeros | bias | scale | {"out_zero": drawn((1,), left)}):
        wanted = ended(convolved(given | more, attrs), given | more)
        b, scope = NetBuilder("conv"), Scope()
        feed = {name: array for name, array in (given | more).items() if name != "w"}
        names = {n: b.input(n, list(a.shape), str(a.dtype)) for n, a in feed.items()}
        w = b.state("w", list(given["w"].shape), dtype=right)
        scope.var("w").set(given["w"])
        b.integer_conv(**names, w=w, **attrs, name="out")
        for threads in (1, 2):
            with threads_set(threads):
                found = b.run(scope, feed=feed, fetch=["out"], need_backward=False)["out"]
            np.testing.assert_array_equal(found, wanted, strict=True)


class TestIntegerConv(OpTest):
    type = "integer_conv"
    halves = False
    tolerance = 1e-7

    def cases(self, rng):
        attrs = {"stride": (1, 2), "dilation": (1, 1), "padding": (1, 0, 1, 1), "groups": 1}
        given = {"x": drawn((1, 2, 4, 5), "uint8"), "w": drawn((3, 2, 2, 3), "int8")}
        end = {"scale": np.full(3, 1e-3, "f4"), "bias": np.arange(3, dtype=np.int32)}
        zero = {"x_zero": np.uint8(7).reshape(1), "out_zero": np.array(9, np.uint8)}
        for more in ({}, zero | end, {"w_zero": drawn(3, "int8")} | end):
            more = more if "scale" in more else {}
            yield Case(given | more, attrs)

    def reference(self, inputs, attrs):
        return {"out": ended(convolved(inputs, attrs), inputs)}

    def test_refuses(self):
        x, w = np.ones((1, 2, 3, 3), np.uint8), np.ones((4, 2, 2, 2), np.int8)
        for what, change in (
            ("x wants dtype uint8 or int8 and has float32", {"x": x.astype("f4")}),
            ("the channels of x and of w", {"w": np.ones((4, 3, 2, 2), np.int8)}),
            ("bias wants dtype int32", {"bias": np.ones(4, "f4")}),
            ("out_zero wants a scale as well", {"out_zero": np.zeros((), np.uint8)}),
            ("w wants 3 to 5 dimensions", {"w": np.ones((4, 2), np.int8)}),
        ):
            self.refuses(what, {"x": x, "w": w} | change)
