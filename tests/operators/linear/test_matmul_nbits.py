"""matmul_nbits: products of all sizes, by native loops and NumPy; how far rounding may be off."""

from __future__ import annotations

import itertools
import struct
from typing import Any

import numpy as np
import pytest

from opscope import NetBuilder, Scope
from opscope.framework.base.cpu.threads import threads_set
from opscope.operators.base import nbits
from opscope.testing import Case, OpTest

RNG = np.random.default_rng(0)
SIZES = [(1, 32, 1), (1, 200, 37), (2, 600, 21), (3, 64, 16), (7, 96, 50), (15, 300, 33)]
SIZES += [(9, 512, 64)]


def weights(depth: int, columns: int, bits: int, block: int, zeros: bool) -> dict[str, np.ndarray]:
    """Slots of a random matrix, with all numbers that there are; of 16 bits with normal ones."""
    count = -(-depth // block)
    if bits == 16:
        upper = RNG.normal(size=(columns, count, block)).astype("f4").view(np.uint32) >> 16
        return {"w": upper.astype(np.uint16).view(np.uint8)}
    given = {
        "w": RNG.integers(0, 256, (columns, count, block * bits // 8), np.uint8),
        "scale": (RNG.normal(size=(columns, count)) / 2**bits).astype("f4"),
    }
    if zeros:
        given["zero"] = RNG.integers(0, 256, (columns, (count * bits + 7) // 8), np.uint8)
    return given


def matrix(depth: int, bits: int, given: dict[str, Any]) -> np.ndarray:
    """[K, N], element by element."""
    columns, count, size = given["w"].shape
    block = 8 * size // bits
    made = np.zeros((depth, columns))

    def number(row: np.ndarray, place: int) -> int:
        return row[place] if bits == 8 else int(row[place // 2]) >> 4 * (place % 2) & 15

    for n, k in itertools.product(range(columns), range(depth)):
        b = k // block
        if bits == 16:
            upper = given["w"][n, b, 2 * (k % block) :][:2].tobytes()
            (made[k, n],) = struct.unpack("<f", bytes(2) + upper)
            continue
        zero = int(number(given["zero"][n], b)) if "zero" in given else 1 << (bits - 1)
        made[k, n] = float(given["scale"][n, b]) * (int(number(given["w"][n, b], k % block)) - zero)
    return made


def product(libraries: str, bits: int, int8_x: bool, **given: np.ndarray) -> np.ndarray:
    b, scope = NetBuilder("product"), Scope()
    names = {slot: b.input(slot, list(one.shape), str(one.dtype)) for slot, one in given.items()}
    b.matmul_nbits(**names, bits=bits, int8_x=int8_x, name="out")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OPSCOPE_LIBRARIES", libraries)
        return b.run(scope, feed=given, fetch=["out"], need_backward=False)["out"]


@pytest.mark.parametrize(
    "bits, block",
    [(4, 32), (4, 64), (8, 32), (8, 96), (8, 128), (4, 16), (16, 32), (16, 96), (16, 8)],
)
@pytest.mark.parametrize("m, k, n", SIZES)
def test_native_loops_and_numpy_agree(m: int, k: int, n: int, bits: int, block: int) -> None:
    x = RNG.normal(size=(m, k)).astype("f4")
    if m > 1:
        x[-1] *= 1e-42  # too small for a scale of its own
    given = weights(k, n, bits, block, zeros=m % 2 == 0 or n == 33)
    bias = RNG.normal(size=n).astype("f4")
    m_of_floats = matrix(k, bits, given)
    for int8_x in (False, True)[: 1 if bits == 16 else 2]:
        rows = nbits.rounded(np, x, block) if int8_x else x
        want = rows.astype(np.float64) @ m_of_floats + bias
        most = (abs(rows).astype(np.float64) @ abs(m_of_floats)).max()
        for libraries, threads in (("xp", 1), ("native", 1), ("native", 2)):
            with threads_set(threads):
                found = product(libraries, bits, int8_x, x=x, bias=bias, **given)
            np.testing.assert_allclose(found, want, rtol=0, atol=2e-6 * (most + abs(bias).max()))


@pytest.mark.parametrize("libraries", ["native", "xp"])
@pytest.mark.parametrize("m, k, n", [(0, 64, 3), (2, 0, 3), (2, 64, 0), (2, 1, 1)])
@pytest.mark.parametrize("bits", [8, 16])
def test_sizes_of_none_and_of_one(m: int, k: int, n: int, bits: int, libraries: str) -> None:
    given = weights(k, n, bits, 32, zeros=False)
    x, bias = np.full((m, k), 2, "f4"), np.arange(1, n + 1).astype("f4")
    found = product(libraries, bits, False, x=x, bias=bias, **given)
    np.testing.assert_allclose(found, x @ matrix(k, bits, given) + bias, rtol=1e-6)


@pytest.mark.parametrize("libraries", ["native", "xp"])
def test_what_is_not_finite_stays_so(libraries: str) -> None:
    x = np.ones((3, 64), "f4")
    x[0, 40] = np.nan
    x[1, 3] = np.inf
    for int8_x in (False, True):
        found = product(libraries, 4, int8_x, x=x, **weights(64, 20, 4, 32, zeros=False))
        assert not np.isfinite(found[:2]).any() and np.isfinite(found[2]).all()


@pytest.mark.parametrize("libraries", ["native", "xp"])
@pytest.mark.parametrize("fill", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("k, block", [(1, 32), (31, 32), (33, 32), (40, 32), (63, 64), (33, 96)])
def test_what_fills_up_a_block_of_bfloat16_counts_for_nothing(
    k: int, block: int, fill: float, libraries: str
) -> None:
    given = weights(k, 21, 16, block, zeros=False)
    upper = given["w"].view(np.uint16).reshape(21, -1)
    upper[:, k:] = np.float32(fill).view(np.uint32) >> 16
    for m in (1, 2, 3, 7):
        x = RNG.normal(size=(m, k)).astype("f4")
        found = product(libraries, 16, False, x=x, **given)
        np.testing.assert_allclose(found, x @ matrix(k, 16, given), rtol=0, atol=1e-5)


@pytest.mark.parametrize("bits, part", [(8, 0.5), (4, 1.0)])
def test_rounding_is_off_by_at_most_a_part_of_the_scale(bits: int, part: float) -> None:
    dense = RNG.normal(size=(100, 30)).astype("f4")
    dense[:32, 0] = 0
    dense[32:64, 1] = RNG.choice([-2, 2], 32)  # as far as they go on both sides
    w, scale = nbits.to_blocks(dense, bits, 32)
    assert (w.shape, scale.shape) == ((30, 4, 4 * bits), (30, 4))
    again = nbits.from_blocks(np, w, scale, None, bits, 100).T
    steps = np.repeat(abs(scale), 32, axis=1)[:, :100].T
    gap = abs(again - dense)
    assert (gap <= part * steps * (1 + 1e-5)).all() and not again[:32, 0].any()
    assert (gap <= 0.5 * steps * (1 + 1e-5)).mean() > 0.9
    error = np.linalg.norm(again - dense) / np.linalg.norm(dense)
    assert error < {8: 0.006, 4: 0.1}[bits]


def test_bfloat16_is_the_nearest_and_keeps_what_is_not_finite() -> None:
    pytest.importorskip("ml_dtypes")
    dense = RNG.normal(size=(70, 30)).astype("f4")
    dense[:4, 0] = np.inf, -np.inf, np.nan, 1 + 1 / 256  # between two: the even one
    w, scale = nbits.to_blocks(dense, 16, 32)
    assert w.shape == (30, 3, 64) and scale is None
    again = nbits.from_blocks(np, w, None, None, 16, 70).T
    np.testing.assert_array_equal(again[:4, 0], [np.inf, -np.inf, np.nan, 1])
    gap = abs(again[4:] - dense[4:])
    assert (gap <= abs(dense[4:]) / 256).all() and gap.any()


def test_rows_are_rounded_to_127_steps_of_their_largest_size() -> None:
    x = RNG.normal(size=(4, 70)).astype("f4")
    gap = abs(nbits.rounded(np, x, 32) - x)
    sizes = [abs(x[:, a:b]).max(1, keepdims=True) for a, b in ((0, 32), (32, 64), (64, 70))]
    most = np.repeat(np.concatenate(sizes, 1), 32, axis=1)[:, :70]
    assert 0 < gap.max() and (gap <= most / 254 * (1 + 1e-5)).all()


class TestMatmulNbits(OpTest):
    type = "matmul_nbits"
    grad = ("x", "bias")
    halves = False

    def cases(self, rng):
        for bits, block, zeros in ((4, 32, False), (4, 4, True), (8, 32, True), (8, 3, False)):
            given = weights(40, 5, bits, block, zeros)
            more = {"bias": rng.normal(size=5)} if zeros else {}
            yield Case({"x": rng.normal(size=(3, 40)), **given, **more}, {"bits": bits})
        given = weights(40, 5, 16, 8, False) | {"bias": rng.normal(size=5)}
        yield Case({"x": rng.normal(size=(3, 40)), **given}, {"bits": 16})
        yield Case({"x": rng.normal(size=(2, 3, 40)), **weights(40, 5, 4, 32, False)})

    def reference(self, inputs, attrs):
        out = inputs["x"] @ matrix(inputs["x"].shape[-1], attrs.get("bits", 4), inputs)
        return {"out": out + inputs.get("bias", 0)}

    def test_refuses(self):
        given = weights(40, 5, 4, 32, True)
        given["x"] = np.ones((3, 40), "f4")
        for what, change in (
            ("those that the columns of x fill", {"x": np.ones((3, 90), "f4")}),
            ("w wants dtype uint8 and has int8", {"w": given["w"].astype(np.int8)}),
            ("the blocks of w and of scale", {"scale": np.ones((5, 3), "f4")}),
            ("the rows of w and of zero", {"zero": given["zero"][:4]}),
            ("the bytes of zero", {"zero": np.zeros((5, 2), np.uint8)}),
            ("the length of bias", {"bias": np.ones(4, "f4")}),
            ("at least 1 dimension", {"x": np.ones((), "f4")}),
        ):
            self.refuses(what, given | change)
        halves = weights(40, 5, 16, 32, False) | {"x": given["x"]}
        for what, change in (
            ("bfloat16, which has no scale", {"scale": np.ones((5, 2), "f4")}),
            ("bfloat16, which has no zero", {"zero": np.zeros((5, 4), np.uint8)}),
            ("whole elements of 16 bits", {"w": halves["w"][..., :63]}),
        ):
            self.refuses(what, halves | change, {"bits": 16})
        self.refuses("bfloat16, which has no int8_x", halves, {"bits": 16, "int8_x": True})
        self.refuses("8 bits wants a scale for each block", halves, {"bits": 8})
