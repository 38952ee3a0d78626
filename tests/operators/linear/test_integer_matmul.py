"""integer_matmul: exact numbers of all kinds of bytes, by VNNI too, and refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from opscope import NetBuilder, Scope
from opscope.framework.base.cpu.threads import threads_set
from opscope.framework.fusion.compiled import native
from opscope.testing import Case, OpTest
from tiles import tiles  # noqa: F401

RNG = np.random.default_rng(0)
SIZES = [(1, 4, 32), (3, 1, 1), (9, 17, 33), (70, 66, 40), (8, 300, 200), (16, 259, 31)]
EDGES = (1, 2, 7, 15, 16, 17, 31, 32, 33, 47, 63, 64, 65, 66, 97, 130)
KINDS = ["uint8 int8", "uint8 uint8", "int8 int8", "int8 uint8"]
CPUS = [one.name for one in native.kinds_here()]


def drawn(shape: Any, dtype: str) -> np.ndarray:
    info = np.iinfo(dtype)
    return RNG.integers(info.min, info.max, shape, dtype, endpoint=True)


def product(libraries: str, y_is_constant: bool = False, **given: np.ndarray) -> np.ndarray:
    b, scope = NetBuilder("product"), Scope()
    names = {}
    for slot, array in given.items():
        if slot == "y" and y_is_constant:
            names[slot] = b.state("y", list(array.shape), dtype=array.dtype)
            scope.var("y").set(array)
        else:
            names[slot] = b.input(slot, list(array.shape), str(array.dtype))
    b.integer_matmul(**names, name="out")
    feed = {slot: array for slot, array in given.items() if slot != "y" or not y_is_constant}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OPSCOPE_LIBRARIES", libraries)
        return b.run(scope, feed=feed, fetch=["out"], need_backward=False)["out"]


@pytest.mark.parametrize("kinds", KINDS)
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("m, k, n", SIZES)
def test_exact_for_all_kinds_of_bytes(m: int, k: int, n: int, threads: int, kinds: str) -> None:
    left, right = kinds.split()
    given = {"x": drawn((m, k), left), "y": drawn((k, n), right)}
    extremes = {"x_zero": drawn((), left), "y_zero": drawn(n, right)}
    scale = RNG.normal(size=n).astype("f4")
    for more in ({}, {"x_zero": extremes["x_zero"]}, extremes):
        wide = {slot: array.astype(np.int64) for slot, array in (given | more).items()}
        want = (wide["x"] - wide.get("x_zero", 0)) @ (wide["y"] - wide.get("y_zero", 0))
        for libraries in ("native", "xp"):
            with threads_set(threads):
                found = product(libraries, m % 2 == 0, **given, **more)
                floats = product(libraries, **given, **more, scale=scale)
            np.testing.assert_array_equal(found, want.astype(np.int32), strict=True)
            scaled = want.astype(np.int32).astype(np.float32) * scale
            np.testing.assert_array_equal(floats, scaled, strict=True)


@pytest.mark.parametrize("kinds", KINDS)
@pytest.mark.parametrize("cpu", [*CPUS, "tiles"])
def test_every_processor_has_the_same_bits_as_numpy(
    cpu: str, kinds: str, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """Rows, columns and inner dimension at edges of vectors and tiles, at random."""
    if cpu == "tiles":
        request.getfixturevalue("tiles")
    else:
        monkeypatch.setenv("OPSCOPE_CPU", cpu)
    rng = np.random.default_rng([CPUS.index(cpu) if cpu in CPUS else 99, KINDS.index(kinds)])
    left, right = kinds.split()
    for _ in range(12):
        m, k, n = (int(size) for size in rng.choice(EDGES, 3))
        given = {"x": drawn((m, k), left), "y": drawn((k, n), right)}
        for slot, shape in {"x_zero": (), "y_zero": rng.choice([0, n])}.items():
            if rng.integers(2):
                given[slot] = drawn(() if shape == 0 else shape, given[slot[0]].dtype.name)
        if rng.integers(2):
            given["scale"] = rng.normal(size=n).astype("f4")
        with threads_set(int(rng.integers(1, 3))):
            found = product("native", bool(rng.integers(2)), **given)
        np.testing.assert_array_equal(found, product("xp", **given), strict=True)


@pytest.mark.parametrize("m, k, n", [(0, 3, 4), (3, 0, 4), (3, 4, 0)])
def test_empty_sizes(m: int, k: int, n: int) -> None:
    given = {"x": drawn((m, k), "int8"), "y": drawn((k, n), "int8")}
    found = product("native", **given)
    np.testing.assert_array_equal(found, np.zeros((m, n), np.int32), strict=True)


def test_stacks_broadcast() -> None:
    x, y = drawn((2, 1, 5, 7), "uint8"), drawn((3, 7, 4), "int8")
    want = np.matmul(x.astype(np.int64), y.astype(np.int64)).astype(np.int32)
    np.testing.assert_array_equal(product("native", x=x, y=y), want)
    rows = np.matmul(x.astype(np.int64), y[0].astype(np.int64)).astype(np.int32)
    np.testing.assert_array_equal(product("native", x=x, y=y[0]), rows)


class TestIntegerMatmul(OpTest):
    type = "integer_matmul"
    halves = False
    tolerance = 1e-7

    def cases(self, rng):
        for scale in ({}, {"scale": rng.normal(size=4).astype("f4")}):
            x, y = drawn((3, 5), "uint8"), drawn((5, 4), "int8")
            yield Case({"x": x, "y": y, "x_zero": drawn((1,), "uint8"), **scale})
            yield Case({"x": drawn((2, 3, 5), "int8"), "y": y, "y_zero": drawn(4, "int8"), **scale})
            stack = drawn((2, 5, 4), "uint8")
            yield Case({"x": x, "y": stack, "y_zero": drawn((), "uint8"), **scale})

    def reference(self, inputs, attrs):
        wide = {slot: array.astype(np.int64) for slot, array in inputs.items() if slot != "scale"}
        left, right = (wide[slot] - wide.get(f"{slot}_zero", 0) for slot in "xy")
        out = np.matmul(left, right).astype(np.int32)
        return {
            "out": out.astype(inputs["scale"].dtype) * inputs["scale"] if "scale" in inputs else out
        }

    def test_refuses(self):
        x, y = np.ones((2, 3), np.uint8), np.ones((3, 5), np.int8)
        for what, change in (
            ("x wants dtype uint8 or int8 and has float32", {"x": np.ones((2, 3), "f4")}),
            ("the inner dimensions", {"y": np.ones((4, 5), np.int8)}),
            ("x_zero wants the dtype of x, uint8, and has int8", {"x_zero": np.zeros((), np.int8)}),
            ("y_zero wants shape .* and has .2", {"y_zero": np.zeros(2, np.int8)}),
            ("wants one floating dtype", {"scale": np.ones(5, np.int32)}),
            ("at least 2 dimensions", {"x": np.ones(3, np.uint8)}),
        ):
            self.refuses(what, {"x": x, "y": y} | change)


def test_weights_that_change_are_packed_again() -> None:
    b, scope = NetBuilder("kept"), Scope()
    y = b.state("y", [200, 100], dtype="int8")
    b.integer_matmul(x=b.input("x", [-1, 200], "uint8"), y=y, name="out")
    x = drawn((5, 200), "uint8")
    for _ in range(2):
        weights = drawn((200, 100), "int8")
        scope.var("y").set(weights)
        found = b.run(scope, feed={"x": x}, fetch=["out"], need_backward=False)["out"]
        np.testing.assert_array_equal(found, x.astype(np.int64) @ weights)
