"""Products of packed factors: equal to NumPy's for every size and layout, alone and in parts."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

from opscope.framework.fusion import team
from opscope.framework.fusion.rows.prepared import Prepared
from opscope.operators.backends.products import packed_gemm as _packed_gemm
from opscope.operators.backends.products import parts
from opscope.operators.linear import matmul

pytestmark = pytest.mark.skipif(
    team.library() is None or _packed_gemm.library() is None, reason="there is no native library"
)


def product(prepared: Prepared, *given: Any, **how: Any) -> Any:
    return parts.by_task(partial(_packed_gemm.task, prepared), matmul.product)(*given, **how)


SIZES = [(1, 1, 1), (3, 5, 2), (8, 48, 16), (9, 49, 7), (13, 70, 33), (64, 96, 40), (67, 50, 9)]
SIZES += [(150, 30, 1), (300, 33, 20)]


def factors(m: int, n: int, k: int, dtype: Any, turned: bool) -> tuple[Any, ...]:
    rng = np.random.default_rng(m + n)
    a = rng.normal(size=(m, k + 3)).astype(dtype)[:, 1 : k + 1]
    b = rng.normal(size=(n, k)).astype(dtype).T if turned else rng.normal(size=(k, n)).astype(dtype)
    whole = rng.normal(size=(m + 2, n + 5)).astype(dtype)
    return a, b, whole, rng.normal(size=n).astype(dtype)


def in_threads(task: team.ParallelTask, threads: int) -> None:
    """Every thread's share of the items, one after the other."""
    from ctypes import CFUNCTYPE, c_int64, c_void_p

    for function, argument in task.items:
        call = CFUNCTYPE(None, c_void_p, c_int64, c_int64)(function)
        for thread in reversed(range(threads)):  # the order must not matter
            call(argument, thread, threads)


@pytest.mark.parametrize("threads", [1, 2, 4, 5])
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("sizes", SIZES)
def test_products(sizes: tuple[int, int, int], dtype: Any, turned: bool, threads: int) -> None:
    m, n, k = sizes
    a, b, whole, bias = factors(m, n, k, dtype, turned)
    out = whole[1:-1, 2 : n + 2]
    for start in ("nothing", "bias", "out"):
        before = whole.copy()
        prepared = Prepared()
        prepared.declare([b])
        how = {"bias": bias} if start == "bias" else {"by": out} if start == "out" else {}
        call = product(prepared, np, a, b, out, alpha=0.5, **how)
        for packing in prepared.calls():
            in_threads(team.task_of(packing), threads)
        in_threads(team.task_of(call), threads)
        wanted = before.copy()
        added = {"nothing": 0, "bias": bias, "out": before[1:-1, 2 : n + 2]}[start]
        wanted[1:-1, 2 : n + 2] = 0.5 * (a @ b) + added
        np.testing.assert_allclose(whole, wanted, rtol=0, atol=200 * np.finfo(dtype).eps)


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("start", ["nothing", "bias", "out"])
def test_large_products_in_blocks(start: str, turned: bool, threads: int, monkeypatch: Any) -> None:
    monkeypatch.setattr(_packed_gemm, "_LARGE", 1)
    monkeypatch.setattr(_packed_gemm, "_BLOCK", 16)
    rng = np.random.default_rng(5)
    a, b, bias = rng.normal(size=(50, 70)).T, rng.normal(size=(50, 41)), rng.normal(size=41)
    b = np.asfortranarray(b) if turned else b
    out = rng.normal(size=(70, 41))
    before, prepared = out.copy(), Prepared()
    how = {"bias": bias} if start == "bias" else {"by": out} if start == "out" else {}
    call = product(prepared, np, a, b, out, alpha=2.0, **how)
    in_threads(team.task_of(call), threads)
    added = {"nothing": 0, "bias": bias, "out": before}[start]
    np.testing.assert_allclose(out, 2 * (a @ b) + added, rtol=1e-12, atol=1e-12)
    assert len(team.task_of(call).items) == 2 * 4 and not prepared.calls()


def test_other_products_where_the_factor_may_change() -> None:
    a, b, out = np.ones((2, 3)), np.ones((3, 4)), np.empty((2, 4))
    prepared = Prepared()
    call = product(prepared, np, a, b, out)
    assert team.task_of(call) is None and not prepared.calls()
    call()
    assert (out == 3).all()


@pytest.mark.parametrize(
    ("intel", "rows", "width", "packs"),
    [
        (False, 20, 200, True),
        (True, 20, 200, False),
        (False, 300, 200, False),
        (False, 20, 9, False),
    ],
)
def test_factors_that_a_net_shares(
    intel: bool, rows: int, width: int, packs: bool, monkeypatch: Any
) -> None:
    """Outside of loops, where another processor, more rows or small factors gain nothing."""
    monkeypatch.setattr(_packed_gemm, "is_intel", lambda: intel)
    # Doubles: none of them is AMX's.
    a, b, out = np.ones((rows, width)), np.ones((width, width)), np.empty((rows, width))
    prepared = Prepared(in_loop=False)
    prepared.declare([b])
    call = product(prepared, np, a, b, out)
    assert bool(prepared.calls()) == packs
    for one in (*prepared.calls(), call):
        one()
    assert (out == width).all()


@pytest.mark.parametrize("unsuited", ["columns", "mixed", "empty"])
def test_other_products_where_memory_does_not_suit(unsuited: str) -> None:
    a, b, out = np.ones((2, 3)), np.ones((3, 4)), np.empty((2, 4))
    if unsuited == "columns":
        out = np.empty((4, 2)).T
    elif unsuited == "mixed":
        out = out.astype(np.float32)
    else:
        a, out = a[:0], out[:0]
    prepared = Prepared()
    prepared.declare([b])
    serves = parts.by_task(partial(_packed_gemm.task, prepared), lambda *given, **how: len)
    call = serves(np, a, b, out)
    assert call is len


def test_packed_once_for_all_who_ask() -> None:
    b, prepared = np.ones((3, 4)), Prepared()
    prepared.declare([b])
    for rows in (2, 5):
        product(prepared, np, np.ones((rows, 3)), b, np.empty((rows, 4)))
    assert len(prepared.calls()) == 1


def test_nan_and_infinity() -> None:
    a, b, out = np.ones((3, 2)), np.ones((2, 5)), np.empty((3, 5))
    a[1, 0], a[2, 1] = np.nan, np.inf
    prepared = Prepared()
    prepared.declare([b])
    call = product(prepared, np, a, b, out)
    for packing in prepared.calls():
        packing()
    call()
    assert np.isnan(out[1]).all() and np.isinf(out[2]).all() and (out[0] == 2).all()
