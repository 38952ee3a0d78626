"""Products by NumPy's OpenBLAS in parts: equal to NumPy's for every layout and number of parts."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from matrix_layouts import LAYOUTS, check_adding, check_layouts, maker
from opscope.framework.base.context import Hook, OpContext
from opscope.framework.base.cpu import numpy_blas
from opscope.framework.base.cpu.numpy_blas import BlasThreads, controllers
from opscope.framework.base.scope import Scope
from opscope.framework.fusion import team
from opscope.framework.runtime.plain_net import PlainNet
from opscope.operators.backends.products import blas, packed_gemm, parts

with_blas = pytest.mark.skipif(
    blas.library() is None, reason="NumPy has no OpenBLAS, or there is no C compiler"
)


@pytest.fixture
def all_sizes(monkeypatch: Any) -> None:
    """Small products go to OpenBLAS, too, in as many parts as there may be."""
    monkeypatch.setattr(blas, "_ALONE", 0)
    monkeypatch.setattr(blas, "_ALONE_VECTOR", 0)
    monkeypatch.setattr(parts, "_CUT", 0)
    monkeypatch.setattr(parts, "_NARROWEST", 2)
    monkeypatch.setattr(parts, "_FEWEST", 1)
    monkeypatch.setattr(parts, "_LANES", 2)


@with_blas
@pytest.mark.parametrize("most", [1, 3])
@pytest.mark.parametrize("layout_b", LAYOUTS)
@pytest.mark.parametrize("layout_a", LAYOUTS)
def test_layouts(
    layout_a: str, layout_b: str, most: int, all_sizes: None, monkeypatch: Any
) -> None:
    monkeypatch.setattr(parts, "most_threads", lambda: most)
    for dtype in (np.float32, np.float64):
        check_layouts(blas.product, layout_a, layout_b, dtype)


@with_blas
@pytest.mark.parametrize("layout", ["rows", "part of rows", "columns"])
def test_adding_to_what_is_there(layout: str, all_sizes: None) -> None:
    check_adding(blas.product, layout)


@with_blas
def test_what_goes_to_openblas() -> None:
    make = maker(np.float32)
    for (m, n, k), wanted in (
        ((64, 64, 64), False),
        ((65, 64, 64), True),
        ((1, 100, 90), False),
        ((1, 100, 100), True),
    ):
        call = blas.product(np, make(m, k), make(k, n), np.empty((m, n), np.float32))
        assert (team.task_of(call) is not None) is wanted, (m, n, k)
    half = np.ones((200, 200), np.float16)
    assert team.task_of(blas.product(np, half, half, half.copy())) is None


@pytest.mark.skipif(packed_gemm.library() is None, reason="there is no native library")
@pytest.mark.parametrize("layout", LAYOUTS)
def test_without_any_blas_products_are_packed(layout: str, monkeypatch: Any) -> None:
    assert numpy_blas.is_there() or sys.platform == "emscripten"
    monkeypatch.setattr(blas, "library", lambda: None)
    monkeypatch.setattr(numpy_blas, "is_there", lambda: False)
    monkeypatch.setattr(blas, "_SMALL", 0)
    for dtype in (np.float32, np.float64):
        check_layouts(blas.product, layout, "rows", dtype)
        check_layouts(blas.product, "rows", layout, dtype)
    x = np.ones((64, 300), np.float32)
    call = blas.product(np, x, x.T, np.empty((64, 64), np.float32))
    assert team.task_of(call) is not None


@with_blas
@pytest.mark.parametrize("shape", [(), (3,), (2, 3)])
def test_stacks(shape: tuple[int, ...]) -> None:
    make = maker(np.float64)
    a, b = make(*shape, 70, 60), make(*shape[1:], 60, 80)
    out = np.empty((*shape, 70, 80))
    blas.stacked(np, a, b, out)()
    np.testing.assert_allclose(out, a @ b, rtol=1e-12, atol=1e-12)
    flipped = (
        np.empty((80, *shape, 70)).T if not shape else np.empty((*shape, 80, 70)).swapaxes(-1, -2)
    )
    blas.stacked(np, a, b, flipped)()  # its rows do not lie side by side: left to NumPy
    np.testing.assert_allclose(flipped, a @ b, rtol=1e-12, atol=1e-12)


@with_blas
def test_in_a_net(monkeypatch: Any) -> None:
    results, make = [], maker(np.float32)
    values = {"x": make(5, 80, 70), "y": make(5, 70, 90), "w": make(90, 120), "b": make(120)}
    for libraries in ("blas,xp", "xp"):
        monkeypatch.setenv("OPSCOPE_LIBRARIES", libraries)
        net, scope = PlainNet(), Scope()
        net.add_op("matmul", {"x": ["x"], "y": ["y"]}, {"out": ["h"]}, {"alpha": 0.5})
        net.add_op("affine", {"x": ["h"], "w": ["w"], "b": ["b"]}, {"out": ["z"]})
        net.add_backward_ops({"z": "z_grad"}, ["x", "y", "w", "b"])
        scope.feed(values | {"z_grad": np.ones((5, 80, 120), np.float32)})
        wanted = ["z", *(f"{name}@GRAD" for name in values)]
        net.run(scope, OpContext(live_out=wanted))
        results.append({name: scope.numpy(name).copy() for name in wanted})
    for name, value in results[0].items():
        np.testing.assert_allclose(value, results[1][name], rtol=2e-3, atol=2e-3, err_msg=name)


@with_blas
def test_openblas_has_its_threads_back_after_a_product() -> None:
    (own,) = controllers()[:1]
    before = own.get_num_threads()
    own.set_num_threads(2)
    try:
        make = maker(np.float32)
        out = np.empty((300, 300), np.float32)
        blas.product(np, make(300, 300), make(300, 300), out)()
        assert own.get_num_threads() == 2
    finally:
        own.set_num_threads(before)


class FakeBlas:
    """A BLAS whose number of threads a test reads."""

    def __init__(self, number: int) -> None:
        self.number = number

    def get_num_threads(self) -> int:
        return self.number

    def set_num_threads(self, number: int) -> None:
        self.number = number


def test_a_chosen_number_reaches_numpy() -> None:
    """One that follows the load does so only where products are left to NumPy."""
    for always, wanted in ((True, [8, 2, 3, 8]), (False, [8, 8, 3, 8])):
        fake = FakeBlas(8)
        follower = BlasThreads([fake])
        follower.always = always
        seen = []
        for number, chosen in ((8, False), (2, False), (3, True), (16, False)):
            follower(number, chosen)
            seen.append(fake.number)
        assert seen == wanted


SET = """
import opscope
from opscope.framework.base.cpu import threads
from opscope.framework.base.cpu.numpy_blas import controllers
threads.usable_cores = lambda: 4
numbers = [controllers()[0].get_num_threads()]
for number in (3, None):
    opscope.set_threads(number)
    numbers.append(controllers()[0].get_num_threads())
print(*numbers)
"""


@with_blas
def test_set_threads_reaches_numpys_blas() -> None:
    done = subprocess.run(
        [sys.executable, "-P", "-c", SET], capture_output=True, text=True, check=True
    )
    before, chosen, after = map(int, done.stdout.split())
    assert (chosen, after) == (3, before)


class _Watch(Hook):
    """Notes the number of threads while a net runs, and may set another."""

    def __init__(self, then: int = 0) -> None:
        self.seen: list[int] = []
        self._then = then

    def before_op(self, frame: Any, index: int) -> None:
        self.seen.append(controllers()[0].get_num_threads())
        if self._then:
            BlasThreads(controllers())(self._then, True)


@with_blas
def test_numpys_products_do_not_follow_other_threads() -> None:
    """In double its results differ with the number of threads, which lists of others set to 1."""
    (one,) = controllers()
    before = one.get_num_threads()
    net = PlainNet()
    net.add_op("cumsum", {"x": ["x"]}, {"out": ["y"]})  # by NumPy, outside of compiled lists
    try:
        one.set_num_threads(2)
        for rows, then, seen, left in ((100, 0, 1, 2), (2, 0, 2, 2), (100, 3, 1, 3)):
            scope, watch = Scope(), _Watch(then)
            scope.feed({"x": np.ones((rows, 90))})
            net.run(scope, OpContext(live_out=["y"], hooks=[watch]))
            assert (watch.seen, one.get_num_threads()) == ([seen], left)
        assert BlasThreads([one])._first == [3]
    finally:
        one.set_num_threads(before)


def test_without_the_native_library_products_are_numpys(monkeypatch: Any) -> None:
    blas.library.cache_clear()
    monkeypatch.setenv("OPSCOPE_CPU", "none")
    try:
        make = maker(np.float32)
        a, b, out = make(100, 90), make(90, 80), np.empty((100, 80), np.float32)
        call = blas.product(np, a, b, out)
        assert team.task_of(call) is None
        call()
        np.testing.assert_allclose(out, a @ b, rtol=1e-5, atol=1e-5)
    finally:
        monkeypatch.undo()
        blas.library.cache_clear()
