"""Kernels in C over rows and heads: equal to the plain ones, and for every number of threads."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import opscope
from opscope.framework.base.context import OpContext
from opscope.framework.base.cpu import threads
from opscope.framework.base.scope import Scope
from opscope.framework.fusion import team
from opscope.framework.ir.registry import lookup
from opscope.framework.runtime.plain_net import PlainNet
from opscope.operators.backends import attention, row_kernels, rows

pytestmark = pytest.mark.skipif(team.library() is None, reason="there is no native library")

RNG = np.random.default_rng(3)
X = RNG.normal(size=(300, 517)).astype(np.float32)
SCALE, BIAS = (RNG.normal(size=517).astype(np.float32) for _ in range(2))
Q, K, V = (RNG.normal(size=(3, 70, 48)).astype(np.float32) for _ in range(3))
MASK = RNG.random((70, 70)) < 0.6
KEYS = np.arange(70) < np.array([[70], [40], [1]])
CASES: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "softmax": ("softmax", {"x": X}, {}),
    "softmax of one row": ("softmax", {"x": X.reshape(-1)[:70_000]}, {}),
    "log_softmax": ("log_softmax", {"x": 30 * X}, {}),
    "layer_norm": ("layer_norm", {"x": X, "scale": SCALE, "bias": BIAS}, {}),
    "layer_norm, far": ("layer_norm", {"x": X + 100}, {"epsilon": 1e-3}),
    "layer_norm, scale": ("layer_norm", {"x": X, "scale": SCALE}, {}),
    "layer_norm, bias": ("layer_norm", {"x": X, "bias": BIAS}, {}),
    "layer_norm, many rows": ("layer_norm", {"x": X.reshape(-1)[:57_000].reshape(3000, 19),
                                            "scale": SCALE[:19], "bias": BIAS[:19]}, {}),
    "layer_norm, few rows": ("layer_norm", {"x": X.reshape(-1)[:9_000].reshape(3, 3000),
                                           "scale": X.reshape(-1)[:3000]}, {}),
    "layer_norm, one row": ("layer_norm", {"x": X[:1], "scale": SCALE, "bias": BIAS}, {}),
    "layer_norm, one column": ("layer_norm", {"x": X[:, :1].copy(), "scale": SCALE[:1]}, {}),
    "rms_norm": ("rms_norm", {"x": X, "scale": SCALE}, {}),
    "rms_norm, two axes": ("rms_norm", {"x": X[:, :512].reshape(30, 40, 128)[:, :, :12].copy()},
                           {"begin_norm_axis": 1}),
    "attention": ("scaled_dot_product_attention", {"query": Q, "key": K, "value": V},
                  {"heads": 4}),
    "attention, causal": ("scaled_dot_product_attention", {"query": Q, "key": K, "value": V},
                          {"heads": 2, "causal": True, "scale": 0.3}),
    "attention, masks": ("scaled_dot_product_attention",
                         {"query": Q, "key": K, "value": V, "mask": MASK, "key_mask": KEYS},
                         {"heads": 4}),
    "attention, floats": ("scaled_dot_product_attention",
                          {"query": Q, "key": K[:, :50].copy(), "value": V[:, :50].copy(),
                           "mask": RNG.normal(size=(3, 1, 70, 50)).astype(np.float32)},
                          {"heads": 1}),
}  # fmt: skip


def results(name: str, dtype: Any = np.float32, train: bool = True) -> dict[str, np.ndarray]:
    """Outputs, and gradients for a fixed gradient of the first."""
    op_type, inputs, attrs = CASES[name]
    net, scope = PlainNet(), Scope()
    entry = lookup(op_type)
    outputs = {slot: [f"{slot} of it"] for slot in entry.output_slots}
    net.add_op(op_type, {slot: [slot] for slot in inputs}, outputs, attrs)
    feed = {
        slot: array if array.dtype == bool else array.astype(dtype)
        for slot, array in inputs.items()
    }
    wanted = ["out of it"]
    if train:
        names = {f"out_grad of {slot}": slot for slot in inputs}
        gradient = lookup(f"{op_type}_grad")
        given = {slot: [slot] for slot in inputs if slot in gradient.input_slots}
        given |= {slot: own for slot, own in outputs.items() if slot in gradient.input_slots} | {
            "out_grad": ["out_grad"]
        }
        targets = {
            f"{slot}_grad": [f"{slot}_grad"]
            for slot in names.values()
            if f"{slot}_grad" in gradient.output_slots and feed[slot].dtype != bool
        }
        if op_type.startswith("scaled"):
            targets.pop("mask_grad", None)
        net.add_op(gradient.type, given, targets, attrs)
        shape = feed["query"].shape if "query" in feed else feed["x"].shape
        feed["out_grad"] = np.cos(np.arange(np.prod(shape))).reshape(shape).astype(dtype)
        wanted += [own[0] for own in targets.values()]
    scope.feed(feed)
    net.run(scope, OpContext(train=train, live_out=wanted))
    return {one: scope.get(one).numpy().copy() for one in wanted}


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("train", [True, False])
@pytest.mark.parametrize("name", CASES)
def test_equal_to_the_plain_kernels(name: str, train: bool, dtype: Any, monkeypatch: Any) -> None:
    served: list[str] = []
    real = team.block_task

    def noted(*given: Any, **more: Any) -> Any:
        served.append("task")
        return real(*given, **more)

    monkeypatch.setattr(rows.team, "block_task", noted)
    found = results(name, dtype, train)
    assert len(served) > train, "a kernel in C has not served"
    monkeypatch.setenv("OPSCOPE_LIBRARIES", "mkl,blas,xp")
    plain = results(name, dtype, train)
    assert found.keys() == plain.keys() and len(found) > train
    near = 1e-5 if dtype == np.float32 else 1e-12
    for one, value in found.items():
        np.testing.assert_allclose(value, plain[one], rtol=near, atol=near * np.abs(value).max())


@pytest.mark.parametrize("name", CASES)
def test_equal_for_every_number_of_threads(name: str, monkeypatch: Any) -> None:
    monkeypatch.setattr(threads, "usable_cores", lambda: 3)
    monkeypatch.setattr(rows, "EXP", 100_000)
    monkeypatch.setattr(row_kernels, "_NORM", 100_000)
    monkeypatch.setattr(attention, "_EXP", 100_000)
    with threads.threads_set(3):
        one, *others = [_with_threads(name, number) for number in (1, 2, 3, 3)]
    for other in others:
        for key, value in one.items():
            np.testing.assert_array_equal(other[key], value)


def _with_threads(name: str, number: int) -> dict[str, np.ndarray]:
    threads.POOL[0] = number
    return results(name)


@pytest.mark.parametrize("wanted", [["scale_grad"], ["bias_grad"], ["x_grad", "bias_grad"]])
def test_some_gradients_of_a_normalization(wanted: list[str], monkeypatch: Any) -> None:
    feed = {"x": X, "scale": SCALE, "bias": BIAS, "out_grad": X[::-1].copy()}
    statistics = {slot: [slot] for slot in ("mean", "inv_std")}
    given = {slot: [slot] for slot in ("x", "scale", "bias")}

    def run() -> list[np.ndarray]:
        net, scope = PlainNet(), Scope()
        net.add_op("layer_norm", given, {"out": ["out"], **statistics})
        targets = {slot: [slot] for slot in wanted}
        net.add_op("layer_norm_grad", {**given, **statistics, "out_grad": ["out_grad"]}, targets)
        scope.feed(feed)
        net.run(scope, OpContext(train=True, live_out=wanted))
        return [scope.get(slot).numpy().copy() for slot in wanted]

    found = run()
    monkeypatch.setenv("OPSCOPE_LIBRARIES", "xp")
    for one, plain in zip(found, run(), strict=True):
        np.testing.assert_allclose(one, plain, rtol=1e-4, atol=1e-4)


def test_blocks_of_queries(monkeypatch: Any) -> None:
    """Long sequences take a block of queries at a time, the last of them shorter."""
    whole = results("attention, masks")
    monkeypatch.setattr(attention, "_BLOCK", 1)
    blocks = results("attention, masks")
    for name, value in whole.items():
        np.testing.assert_allclose(blocks[name], value, rtol=1e-5, atol=1e-5)


def test_rows_with_infinities_and_nan(monkeypatch: Any) -> None:
    inf, nan = np.inf, np.nan
    x = np.array([[1, -inf, 2], [-inf, -inf, -inf], [1, nan, 2], [inf, 1, 2]], np.float32)
    monkeypatch.setitem(CASES, "odd", ("softmax", {"x": x}, {}))
    monkeypatch.setitem(CASES, "odd logarithm", ("log_softmax", {"x": x}, {}))
    for name in ("odd", "odd logarithm"):
        found = results(name, train=False)["out of it"]
        with opscope.options(libraries="xp"):
            np.testing.assert_allclose(found, results(name, train=False)["out of it"], rtol=1e-6)


@pytest.mark.parametrize("shape", [(300, 517), (1 << 19,), (3, 5, 1 << 15), (70_001, 1)])
@pytest.mark.parametrize("dtype", ["float32", "int64", "bool"])
def test_large_fills(shape: tuple[int, ...], dtype: str) -> None:
    net, scope = PlainNet(), Scope()
    net.add_op("fill_constant", {}, {"out": ["y"]}, {"shape": shape, "dtype": dtype, "value": 1.0})
    net.run(scope, OpContext(live_out=["y"]))
    found = scope.get("y").numpy()
    assert found.shape == shape and found.dtype == dtype and (found == 1).all()
