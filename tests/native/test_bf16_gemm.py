"""Products by tiles at every edge of a tile, against sums in float64 of the same bf16 terms."""

from __future__ import annotations

from ctypes import CFUNCTYPE, c_int64, c_void_p
from itertools import product
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from opscope.framework.fusion import team
from opscope.operators.backends.bfloat16 import bf16_gemm
from tiles import tiles  # noqa: F401

pytestmark = pytest.mark.usefixtures("tiles")

ROWS = (1, 15, 16, 17, 33)
INNER = (1, 2, 31, 32, 33, 65)
EDGES = list(product(ROWS, ROWS, INNER))
LARGE = [(97, 40, 257), (131, 33, 600), (40, 801, 41)]
"""More rows, columns and inner dimension than one pass over the cache takes."""
STARTS = ("nothing", "row", "out")
HALF_ULP = 2.0**-24


def terms_of(x: np.ndarray, terms: int) -> list[np.ndarray]:
    """bf16 numbers: the one nearest to each number; or three whose sum it is."""
    if terms == 1:
        return [x.astype(ml_dtypes.bfloat16).astype("f8")]
    found, rest = [], x
    for _ in range(2):
        term = ((rest.view("u4") + np.uint32(0x8000)) & np.uint32(0xFFFF0000)).view("f4")
        found.append(term.astype("f8"))
        rest = rest - term
    assert not (rest.view("u4") & 0xFFFF).any()
    return [*found, rest.astype("f8")]


def check(
    sizes: tuple[int, int, int], terms: int, turned: tuple[bool, bool], how: str, start: str
) -> None:
    """A product of factors that lie so, computed in one way, plus what it starts from."""
    (m, n, k), rng = sizes, np.random.default_rng(sizes)
    a = rng.normal(size=(k, m) if turned[0] else (m, k)).astype("f4")
    b = rng.normal(size=(n, k + 3) if turned[1] else (k, n + 3)).astype("f4")
    a, b = a.T if turned[0] else a, b[:, :k].T if turned[1] else b[:, :n]
    alpha, steps = 0.7, (1, m) if turned[0] else (k, 1)
    left, right = terms_of(a, terms), terms_of(np.float32(alpha) * b, terms)
    exact = sum(term @ sum(right[: terms - i]) for i, term in enumerate(left))
    size = sum(map(np.abs, left)) @ sum(map(np.abs, right))
    # What of a sum of terms is rounded, at most: 16 products in a tile, both sums of one, and the
    # sum of tiles as often as there are tiles.
    roundings = 17 + terms * (terms + 1) // 2 * -(-k // 32)
    panels = team.aligned(bf16_gemm.room(b, terms))
    whole = rng.normal(size=(m + 2, n + 5)).astype("f4")
    out, row = whole[1:-1, 2 : n + 2], rng.normal(size=n).astype("f4")
    begin = {"nothing": None, "row": row, "out": out}[start]
    before, added = whole.copy(), np.zeros(n) if begin is None else begin.astype("f8")
    pack = bf16_gemm.pack(b, alpha, panels, terms)
    factors, flags = (a, steps, b, alpha), {"by_rows": how == "blocks", "fresh": how == "fresh"}
    task = bf16_gemm.multiply(*factors, panels, out, begin, **flags, terms=terms)
    assert len(task.items) == 1 + (how == "shared")
    for address, argument in (*pack.items, *task.items):
        for part in (2, 0, 1):  # the order must not matter
            CFUNCTYPE(None, c_void_p, c_int64, c_int64)(address)(argument, part, 3)
    error = np.abs(out - exact - added) / (size + np.abs(added))
    assert error.max() < 1.001 * roundings * HALF_ULP, (sizes, start)
    before[1:-1, 2 : n + 2] = out
    np.testing.assert_array_equal(whole, before)  # nothing else was written


@pytest.mark.parametrize("turned", list(product((False, True), repeat=2)))
@pytest.mark.parametrize("how", ["alone", "shared", "fresh", "blocks"])
@pytest.mark.parametrize("terms", [bf16_gemm.THREE, bf16_gemm.ONE])
def test_products_at_all_edges(
    terms: int, how: str, turned: tuple[bool, bool], monkeypatch: Any
) -> None:
    found = bf16_gemm.library(terms)
    if found is None or not found.ending.endswith("_amx"):
        pytest.skip("one term wants AVX512-BF16 beside the tiles")
    monkeypatch.setattr(bf16_gemm, "_SHARED", 0 if how == "shared" else 1 << 62)
    monkeypatch.setattr(bf16_gemm, "most_threads", lambda: 3)
    edges = EDGES if how == "alone" else EDGES[sum(turned) :: 7]
    for sizes in (*edges, *LARGE):
        check(sizes, terms, turned, how, STARTS[sum(sizes) % 3])
