"""Products of factors in bfloat16: rounding, gradients, where float32 stays, what is refused."""

from __future__ import annotations

from collections.abc import Callable
from ctypes import CFUNCTYPE, c_int64, c_void_p
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import opscope
from kaldi_data import need
from opscope import NetBuilder, OpContext, OpscopeError, Scope
from opscope.framework.base.cpu.threads import threads_set
from opscope.framework.fusion import team
from opscope.framework.runtime.plans import memory
from opscope.operators.backends.bfloat16 import bf16, bf16_gemm
from opscope.operators.backends.products import mkl
from opscope.operators.linear.matmul import of_one_factor
from tiles import tiles  # noqa: F401

with_bf16 = pytest.mark.skipif(
    bool(bf16.missing()), reason=f"products of bfloat16 want {bf16.missing()}"
)
FIRST = "bf16,packed,direct,native,mkl,blas"
ROUNDING = 2.0**-8
"""Of a product of two factors that are each off by at most 2^-9."""


@pytest.fixture(autouse=True)
def rounding(monkeypatch: pytest.MonkeyPatch) -> None:
    """Numbers are rounded whatever that costs here."""
    monkeypatch.setattr(bf16_gemm, "is_faster", lambda: True)


@pytest.fixture(params=["1", "0"], ids=["amx", "avx512bf16"])
def by(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Products by AMX, then as processors without it have them."""
    monkeypatch.setenv("OPSCOPE_AMX", request.param)
    if request.param == "1":
        request.getfixturevalue("tiles")
    if bf16.missing():
        pytest.skip(f"these products want {bf16.missing()}")
    return request.param


def rounded(array: np.ndarray) -> np.ndarray:
    return array.astype(ml_dtypes.bfloat16).astype(np.float32)


def made(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


@pytest.mark.usefixtures("by")
@pytest.mark.parametrize("m, k, n", [(16, 16, 16), (33, 70, 17), (300, 64, 500), (200, 1700, 600)])
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("transposed", ["", "a", "b", "ab"])
def test_the_product_of_what_ml_dtypes_rounds(
    m: int, k: int, n: int, threads: int, transposed: str
) -> None:
    a, b, bias, whole = made(m, k), made(k, n, seed=1), made(n, seed=2), made(m, n + 8, seed=3)
    want = rounded(a) @ rounded(b)
    left = np.asfortranarray(a) if "a" in transposed else a
    right = np.asfortranarray(b) if "b" in transposed else b
    with threads_set(threads):
        out = whole[:, 3 : 3 + n]
        borders = whole[:, :3].copy(), whole[:, 3 + n :].copy()
        bf16.product(np, left, right, out, bias=bias)()
        np.testing.assert_allclose(out, want + bias, rtol=1e-5, atol=1e-4)
        bf16.product(np, left, right, out, alpha=0.5, by=np.empty_like(out))()
    np.testing.assert_allclose(out, 1.5 * want + bias, rtol=1e-5, atol=1e-4)
    np.testing.assert_array_equal(whole[:, :3], borders[0])
    np.testing.assert_array_equal(whole[:, 3 + n :], borders[1])


@pytest.mark.usefixtures("by")
@pytest.mark.parametrize(
    "m, k, n", [(600, 70, 40), (513, 1100, 300), (40, 33, 600), (2100, 20, 33)]
)
@pytest.mark.parametrize("left", [np.ascontiguousarray, np.asfortranarray])
def test_any_number_of_parts_gives_the_same_bits(
    m: int, k: int, n: int, left: Callable[[np.ndarray], np.ndarray]
) -> None:
    a, b, whole = left(made(m, k)), made(k, n, seed=1), made(m + 2, n + 8, seed=3)
    found = []
    for count in (1, 2, 3, 6, 8, 16, 128):
        into = whole.copy()
        task = team.task_of(bf16.product(np, a, b, into[1:-1, 3 : 3 + n]))
        assert task is not None
        for function, argument in task.items:
            part = CFUNCTYPE(None, c_void_p, c_int64, c_int64)(function)
            for number in reversed(range(count)):  # the order must not matter
                part(argument, number, count)
        found.append(into)
    for other in found[1:]:
        np.testing.assert_array_equal(other, found[0])
    np.testing.assert_allclose(
        found[0][1:-1, 3 : 3 + n], rounded(a) @ rounded(b), rtol=1e-5, atol=2e-4
    )
    found[0][1:-1, 3 : 3 + n] = whole[1:-1, 3 : 3 + n]
    np.testing.assert_array_equal(found[0], whole)  # nothing else was written


@pytest.mark.usefixtures("by")
@pytest.mark.parametrize("left", [np.ascontiguousarray, np.asfortranarray])
@pytest.mark.parametrize("threads", [1, 2])
def test_products_of_one_factor_split_it_once(
    threads: int, left: Callable[[np.ndarray], np.ndarray]
) -> None:
    a, other = left(made(70, 2100)), left(made(33, 2100, seed=9))
    factors = [made(2100, n, seed=n) for n in (40, 1100, 33)]
    with threads_set(threads):
        product = of_one_factor(bf16.product)
        pairs = [(a, b) for b in factors] + [(other, factors[0]), (a, factors[1])]
        outs = [np.full((len(x), b.shape[1]), np.nan, np.float32) for x, b in pairs]
        calls = [product(np, x, b, out) for (x, b), out in zip(pairs, outs, strict=True)]
        for _ in range(2):
            for call in calls:
                call()
            for (x, b), out in zip(pairs, outs, strict=True):
                np.testing.assert_allclose(out, rounded(x) @ rounded(b), rtol=1e-5, atol=2e-4)
            a[...] *= 1.5  # what the next run splits
    tasks = [team.task_of(call) for call in calls]
    library = bf16_gemm.library(bf16_gemm.ONE)
    assert library is not None
    split = library.addresses["split_tiles"]
    times = [sum(address == split for address, _ in task.items) for task in tasks if task]
    assert times[1:3] == [0, 0] and min(times[0], times[3], times[4]) > 1


@pytest.mark.usefixtures("by")
@pytest.mark.parametrize("sizes", [(16, 15, 20), (0, 20, 20), (20, 20, 0)])
def test_small_products_of_one_factor(sizes: tuple[int, int, int]) -> None:
    m, k, n = sizes
    a, b, out = made(m, k), made(k, n, seed=1), np.full((m, n), np.nan, np.float32)
    of_one_factor(bf16.product)(np, a, b, out)()
    np.testing.assert_allclose(out, a @ b, rtol=1e-5, atol=1e-4)


@pytest.mark.usefixtures("by")
def test_half_way_numbers_infinity_and_nan() -> None:
    bits = np.array([0x3F808000, 0x3F818000, 0x7F7FFFFF, 0x7F800000, 0x7F800001], np.uint32)
    special = bits.view(np.float32)
    a = np.zeros((16, 16), np.float32)
    a[0, 0], a[1, 1], a[2, 2], a[3, 3], a[4, 4] = special
    out = np.empty((16, 16), np.float32)
    with np.errstate(invalid="ignore"):
        bf16.product(np, a, np.eye(16, dtype=np.float32), out)()
        want = rounded(a)
    assert out[0, 0] == want[0, 0] == 1.0 and out[1, 1] == want[1, 1] > 1.01
    assert out[2, 2] == want[2, 2] == np.inf and out[3, 3] == np.inf and np.isnan(out[4, 4])
    assert np.isnan(out[3, 4]) and (out[5:, 5:] == 0).all()


@pytest.mark.usefixtures("by")
@pytest.mark.parametrize("m, k, n", [(15, 40, 40), (40, 15, 40), (40, 40, 15), (0, 20, 20)])
def test_small_products_are_those_of_float32(m: int, k: int, n: int) -> None:
    a, b, out = made(m, k), made(k, n, seed=1), np.empty((m, n), np.float32)
    bf16.product(np, a, b, out)()
    np.testing.assert_allclose(out, a @ b, rtol=1e-5, atol=1e-5)


def _trained(steps: int) -> dict[str, Any]:
    """Costs of a net over some steps, and the gradients of the first."""
    b = NetBuilder("layers")
    x, label = b.input("x", [-1, 40]), b.input("label", [-1], "int64")
    hidden = b.fc(x, size=64, activation="tanh", name="hidden")
    cost = b.mean(b.softmax_cross_entropy(b.fc(hidden, size=20), label), name="cost")
    b.backward_from(cost)
    gradients = sorted(name for name in b.net.vars if name.endswith("@GRAD") and ".w" in name)
    assert len(gradients) >= 2
    b.add_optimization(0.5, "sgd")
    scope, feed = Scope(), {"x": made(96, 40), "label": np.arange(96) % 20}
    b.initialize(scope, OpContext(seed=4))
    found = [b.run(scope, feed=feed, fetch=["cost", *gradients]) for _ in range(steps)]
    return {"costs": np.array([float(each["cost"]) for each in found])} | {
        name: found[0][name] for name in gradients
    }


@pytest.mark.usefixtures("by")
def test_a_net_trains_as_in_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    want = _trained(60)
    monkeypatch.setenv("OPSCOPE_LIBRARIES", FIRST)
    found = _trained(60)
    for name, array in want.items():
        error = np.abs(found[name] - array).max() / np.abs(array).max()
        assert 0 < error < 4 * ROUNDING, name
    assert found["costs"][-1] < 0.5 * found["costs"][0]


@with_bf16
def test_nothing_is_rounded_where_that_is_no_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    want = _trained(3)
    monkeypatch.setenv("OPSCOPE_LIBRARIES", FIRST)
    assert any((_trained(3)[name] != array).any() for name, array in want.items())
    monkeypatch.setattr(bf16_gemm, "is_faster", lambda: False)
    found = _trained(3)
    for name, array in want.items():
        np.testing.assert_array_equal(found[name], array, err_msg=name)


@with_bf16
@pytest.mark.parametrize("intel", [False, True])
def test_vectors_are_slow_on_processors_of_intel(
    intel: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    monkeypatch.setattr(bf16_gemm, "is_intel", lambda: intel)
    assert bf16_gemm.is_faster() or intel
    monkeypatch.setenv("OPSCOPE_AMX", "0")
    assert bf16_gemm.is_faster() != intel


def _deep(layers: int) -> np.ndarray:
    """A gradient through many layers."""
    b = NetBuilder("deep")
    hidden = b.input("x", [-1, 64])
    for number in range(layers):
        hidden = b.fc(hidden, size=64 if number % 3 else 96, activation="tanh")
    b.backward_from(b.mean(b.square(hidden), name="cost"), wrt="x")
    scope = Scope()
    b.initialize(scope, OpContext(seed=7))
    return b.run(scope, feed={"x": made(512, 64)}, fetch=["x@GRAD"])["x@GRAD"]


def test_memory_does_not_grow_with_the_products(by: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rounded factors lie in memory that all products of a frame share."""
    monkeypatch.setenv("OPSCOPE_LIBRARIES", FIRST)
    monkeypatch.setenv("OPSCOPE_REUSE", "0")
    want = _deep(30)
    monkeypatch.setenv("OPSCOPE_REUSE", "1")
    taken: set[int] = set()
    take = memory.Panels.take

    def recorded(own: memory.Panels, size: int, *, in_turn: bool) -> Any:
        found = take(own, size, in_turn=in_turn)
        taken.add(found.ctypes.data)
        return found

    monkeypatch.setattr(memory.Panels, "take", recorded)
    np.testing.assert_array_equal(_deep(30), want)
    found = len(taken)
    taken.clear()
    _deep(60)
    assert 0 < len(taken) <= found < 60


@with_bf16
def test_mkl_is_not_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither for stacks and small products, in float32."""
    monkeypatch.setattr(mkl, "library", lambda: None)
    monkeypatch.setenv("OPSCOPE_LIBRARIES", FIRST)
    assert not bf16.missing()
    b = NetBuilder("plain")
    x, y = b.input("x", [3, 40, 40]), b.input("y", [3, 40, 40])
    b.matmul(x, y, name="stack")
    b.matmul(b.input("u", [40, 10]), b.input("v", [10, 40]), name="small")
    b.matmul(b.input("a", [40, 40]), b.input("b", [40, 40]), name="rounded")
    feed = {name: made(3, 40, 40, seed=i) for i, name in enumerate("xy")}
    feed |= {"u": made(40, 10), "v": made(10, 40), "a": made(40, 40), "b": made(40, 40, seed=1)}
    found = b.run(Scope(), feed=feed, fetch=["stack", "small", "rounded"], need_backward=False)
    np.testing.assert_allclose(found["stack"], feed["x"] @ feed["y"], rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(found["small"], feed["u"] @ feed["v"], rtol=1e-5, atol=1e-5)
    want = rounded(feed["a"]) @ rounded(feed["b"])
    np.testing.assert_allclose(found["rounded"], want, rtol=1e-5, atol=1e-4)


@with_bf16
def test_float64_is_not_rounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPSCOPE_LIBRARIES", FIRST)
    b, x = NetBuilder("wide"), made(32, 32).astype(np.float64)
    b.matmul(b.input("x", [-1, 32], "float64"), b.input("y", [32, 32], "float64"), name="out")
    out = b.run(Scope(), feed={"x": x, "y": x}, fetch=["out"], need_backward=False)["out"]
    np.testing.assert_allclose(out, x @ x, rtol=1e-12, atol=1e-12)


@with_bf16
def test_compare_tells_the_error_of_a_network_of_kaldis() -> None:
    found = opscope.compare(need("trained", "tdnn", "model.raw"), runtimes=("opscope", "bf16"))
    assert found.same and found.tolerance == 0.2
    assert 1e-4 < found.largest < 0.1


@pytest.mark.parametrize("what", ["the native library", "a processor with AVX512-BF16"])
def test_what_a_machine_lacks_is_said(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPSCOPE_LIBRARIES", FIRST)
    monkeypatch.setattr(bf16, "missing", lambda: what)
    b = NetBuilder("small")
    b.matmul(b.input("x", [-1, 32]), b.input("y", [32, 32]), name="out")
    with pytest.raises(OpscopeError, match=f"names bf16, and this machine lacks {what}: leave"):
        b.run(Scope(), feed={"x": made(20, 32), "y": made(32, 32)}, fetch=["out"])


@with_bf16
def test_products_of_bfloat16_are_another_library_than_mkls() -> None:
    """Rounding happens only where it was asked for."""
    a, b, out = made(32, 32), made(32, 32, seed=1), np.empty((32, 32), np.float32)
    bf16.product(np, a, b, out)()
    assert 1e-3 < np.abs(out - a @ b).max() < 0.5
    net = NetBuilder("plain")
    net.matmul(net.input("x", [-1, 32]), net.input("y", [32, 32]), name="out")
    own = net.run(Scope(), feed={"x": a, "y": b}, fetch=["out"], need_backward=False)["out"]
    np.testing.assert_allclose(own, a @ b, rtol=1e-5, atol=1e-5)
