"""Products by AMX: as accurate as float32, for every size and layout, and for unusual values."""

from __future__ import annotations

from ctypes import CFUNCTYPE, c_int64, c_void_p
from functools import partial
from typing import Any

import numpy as np
import pytest

from opscope.framework.fusion import team
from opscope.framework.fusion.rows.prepared import Prepared
from opscope.operators.backends.bfloat16 import bf16_gemm
from opscope.operators.backends.products import packed_gemm, parts
from opscope.operators.linear import matmul
from tiles import tiles  # noqa: F401

pytestmark = pytest.mark.usefixtures("tiles")

SIZES = [(12, 16, 16), (17, 31, 33), (32, 32, 32), (33, 100, 300), (64, 64, 512), (131, 40, 257)]


def in_threads(task: team.ParallelTask, threads: int) -> None:
    """Every thread's share of the items, one after the other."""
    for function, argument in task.items:
        call = CFUNCTYPE(None, c_void_p, c_int64, c_int64)(function)
        for thread in reversed(range(threads)):  # the order must not matter
            call(argument, thread, threads)


def bound(prepared: Prepared, *given: Any, **how: Any) -> Any:
    return parts.by_task(partial(packed_gemm.task, prepared), matmul.product)(*given, **how)


def product(a: Any, b: Any, out: Any, threads: int = 1, **how: Any) -> None:
    prepared = Prepared()
    prepared.declare([b])
    call = bound(prepared, np, a, b, out, **how)
    for packing in prepared.calls():
        in_threads(team.task_of(packing), threads)
    in_threads(team.task_of(call), threads)


def factors(m: int, n: int, k: int, turned: tuple[bool, bool]) -> tuple[Any, Any]:
    rng = np.random.default_rng(m + n + k)
    a = rng.normal(size=(k, m) if turned[0] else (m, k)).astype("f4")
    b = rng.normal(size=(n, k) if turned[1] else (k, n)).astype("f4")
    return a.T if turned[0] else a, b.T if turned[1] else b


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("turned", [(False, False), (True, False), (False, True), (True, True)])
@pytest.mark.parametrize("sizes", SIZES)
def test_as_accurate_as_float32(
    sizes: tuple[int, int, int], turned: tuple[bool, bool], threads: int
) -> None:
    m, n, k = sizes
    a, b = factors(m, n, k, turned)
    rng = np.random.default_rng(1)
    whole, bias = rng.normal(size=(m + 2, n + 5)).astype("f4"), rng.normal(size=n).astype("f4")
    out = whole[1:-1, 2 : n + 2]
    exact = 0.5 * (a.astype("f8") @ b.astype("f8"))
    size = 0.5 * (np.abs(a).astype("f8") @ np.abs(b)) + 2
    for start in ("nothing", "bias", "out"):
        before = whole.copy()
        added = {"nothing": 0, "bias": bias, "out": out.copy()}[start]
        how = {"bias": bias} if start == "bias" else {"by": out} if start == "out" else {}
        product(a, b, out, threads, alpha=0.5, **how)
        assert (np.abs(out - exact - added) / size).max() < 3e-7
        before[1:-1, 2 : n + 2] = out
        np.testing.assert_array_equal(whole, before)  # nothing else was written


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan, 3e38, 1e-42])
@pytest.mark.parametrize("where", ["a", "b"])
def test_values_that_cannot_be_split(where: str, value: float) -> None:
    a, b = factors(40, 70, 50, (False, False))
    (a if where == "a" else b)[3, 2] = value
    out = np.zeros((40, 70), "f4")
    with np.errstate(all="ignore"):
        product(a, b, out)
        wanted = a @ b
    np.testing.assert_allclose(out, wanted, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("where", ["a", "b"])
@pytest.mark.parametrize("turned", [(False, False), (True, True)])
def test_tiny_numbers(where: str, turned: tuple[bool, bool]) -> None:
    """What is left of them after two parts is subnormal, and no bf16."""
    a, b = factors(40, 70, 64, turned)
    tiny = a if where == "a" else b
    tiny *= np.logspace(-44, 0, tiny.size, dtype="f8").reshape(tiny.shape).astype("f4")
    out = np.zeros((40, 70), "f4")
    product(a, b, out)
    np.testing.assert_allclose(out, a.astype("f8") @ b, rtol=0, atol=5e-6)


def test_products_of_several_blocks() -> None:
    a, b = factors(100, 256, 700, (True, False))
    out = np.full((100, 256), 7, "f4")
    call = bound(Prepared(), np, a, b, out)
    call()
    np.testing.assert_allclose(out, a.astype("f8") @ b, rtol=0, atol=1e-4)


def test_the_switch(monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = factors(64, 64, 64, (False, False))

    def uses_tiles() -> bool:
        prepared = Prepared()
        prepared.declare([b])
        bound(prepared, np, a, b, np.zeros((64, 64), "f4"))
        return (
            team.task_of(prepared.calls()[0]).items[0][0]
            == bf16_gemm.library().addresses["pack_tiles"]
        )

    assert uses_tiles()
    monkeypatch.setenv("OPSCOPE_AMX", "0")
    assert bf16_gemm.library() is None
    prepared = Prepared()
    prepared.declare([b])
    out = np.zeros((64, 64), "f4")
    product(a, b, out)
    np.testing.assert_allclose(out, a @ b, rtol=0, atol=1e-4)


def test_a_second_factor_that_lies_apart_along_both_axes_is_not_packed_in_tiles() -> None:
    a, b = factors(64, 64, 128, (False, False))
    apart = b[:, ::2]
    out = np.zeros((64, apart.shape[1]), "f4")
    product(a, apart, out)
    np.testing.assert_allclose(out, a.astype("f8") @ apart, rtol=0, atol=1e-4)
