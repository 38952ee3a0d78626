"""float16 and bfloat16 in the framework: dtypes, files, kernels, fused loops, passes."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import random_nets
from opscope import CPUPlace, NetBuilder
from opscope.framework.base.context import OpContext
from opscope.framework.base.dtypes import FLOATS, is_float, to_dtype, to_pb, wide
from opscope.framework.base.errors import GradientError
from opscope.framework.base.scope import Scope
from opscope.framework.files.tensor_file import TensorFile, write_tensors
from opscope.framework.fusion import chains
from opscope.framework.fusion.conversions import convert_call
from opscope.framework.fusion.scalars.codegen import FULL, ONE, Loop, Operand
from opscope.framework.ir.desc import INPUT, PARAMETER, make_op, make_var
from opscope.framework.ir.messages import attr_value, from_message, serialize_net, to_message
from opscope.framework.ir.op_list import OpList
from opscope.framework.ir.printer import net_text
from opscope.framework.passes.optimizer import OptimizerAttrs
from opscope.framework.passes.precision.loss_scaling import LossScale, as_loss_scale
from opscope.framework.passes.verify.verifier import problems
from opscope.framework.runtime import halves
from opscope.framework.runtime.plain_net import PlainNet
from opscope.proto import net_pb2 as pb
from scalar_loops import task_of_loop

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
HALVES = (np.dtype("float16"), BFLOAT16)


def errors(net: OpList) -> list[Any]:
    return [one for one in problems(net) if one.severity == "error"]


# -- dtypes and files --------------------------------------------------------------------------


def test_bfloat16_is_a_dtype_of_nets():
    for given in ("bfloat16", ml_dtypes.bfloat16, BFLOAT16, pb.BFLOAT16):
        assert to_dtype(given) == BFLOAT16
    assert to_pb("bfloat16") == pb.BFLOAT16 == 10
    assert all(map(is_float, FLOATS)) and BFLOAT16 in FLOATS
    assert not is_float(np.dtype(bool)) and not is_float(np.dtype("V2"))
    assert [wide(dtype).name for dtype in FLOATS] == ["float32", "float32", "float32", "float64"]


def half_net(dtype) -> OpList:
    net = OpList("half")
    fill = make_op("constant", {}, {"out": "w"}, {"value": np.array([1.5, -2]).astype(dtype)})
    net.vars.append(make_var("x", (-1, 2), dtype, INPUT))
    net.vars.append(make_var("w", (2,), dtype, PARAMETER, initializer=fill))
    net.ops.append(make_op("mul", {"x": "x", "y": "w"}, {"out": "y"}))
    net.ops.append(make_op("cast", {"x": "y"}, {"out": "z"}, {"dtype": np.dtype(dtype)}))
    return net


@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_messages_and_text(dtype):
    net = half_net(dtype)
    again = from_message(pb.NetDesc.FromString(serialize_net(net)))
    assert serialize_net(again) == serialize_net(net) == to_message(again).SerializeToString()
    assert again.vars[0].dtype == dtype
    value = again.vars[1].initializer.attrs["value"]
    assert value.dtype == dtype and value.tolist() == [1.5, -2]
    assert f"{dtype}[?, 2]" in net_text(net) and f"dtype={dtype}" in net_text(net)
    assert attr_value(np.dtype(dtype)) == dtype
    assert not errors(net)


@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_tensor_files(dtype, tmp_path):
    array = np.array([[1, -2.5, np.inf], [1e-3, 0, 300]]).astype(dtype)
    with open(tmp_path / "a.safetensors", "wb") as file:
        write_tensors(file, {"a": array, "b": np.ones(3, np.float32)}, {})
    file = TensorFile(tmp_path / "a.safetensors")
    assert file.specs["a"][1] == {"float16": "F16", "bfloat16": "BF16"}[dtype.name]
    assert file.spec("a") == ((2, 3), dtype)
    assert file.read("a").tobytes() == array.tobytes()


def test_an_array_of_other_elements_holds_no_numbers():
    with pytest.raises(Exception, match="holds no numbers"):
        Scope().var("x").set(np.zeros(2, "V2"))


_WITHOUT = """
import sys
sys.modules["ml_dtypes"] = None
import numpy as np, opscope
from opscope.framework.base.dtypes import HALVES, to_dtype
from opscope.framework.files.tensor_file import TensorFile
assert [dtype.name for dtype in HALVES] == ["float16"]
b = opscope.NetBuilder("n", "float16")
assert b.run(feed={"x": [[1, 2]]}, fetch=[b.relu(b.input("x", [-1, 2]))])["relu_0"].sum() == 3
for what in (
    lambda: opscope.NetBuilder("n", "bfloat16"),
    lambda: to_dtype(10),
    lambda: opscope.NetBuilder().input("x", [2], "bfloat16"),
    lambda: TensorFile(sys.argv[1]).spec("a"),
):
    try:
        what()
    except opscope.framework.base.errors.OpscopeError as error:
        assert "bfloat16 needs the package ml_dtypes: pip install opscope[bf16]" in str(error)
    else:
        raise SystemExit("no error")
"""


def test_without_ml_dtypes(tmp_path):
    """A name of the extra, not a riddle; float16 works."""
    target = io.BytesIO()
    write_tensors(target, {"a": np.ones(2).astype(BFLOAT16)}, {})
    (tmp_path / "a.safetensors").write_bytes(target.getvalue())
    root = Path(__file__).parents[2].parent
    done = subprocess.run(
        [sys.executable, "-P", "-c", _WITHOUT, str(tmp_path / "a.safetensors")],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(root)},
    )
    assert done.returncode == 0, done.stderr


# -- kernels and loops -------------------------------------------------------------------------


def run_loop(loop: Loop, *arrays: np.ndarray) -> None:
    task_of_loop(loop, arrays)()


def same_bits(found: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    bits = np.dtype(f"u{found.itemsize}")
    return (found.view(bits) == wanted.view(bits)) | (np.isnan(found) & np.isnan(wanted))


needs_library = pytest.mark.skipif(not chains.available(), reason="no native library")


@needs_library
@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_loops_load_and_round_every_half_as_numpy_does(dtype):
    every = np.arange(1 << 16, dtype=np.uint16)
    halves = every.view(dtype)
    operands = Operand(FULL, dtype.name), Operand(FULL, "float32")
    singles = np.empty(every.size, np.float32)
    run_loop(Loop("float32", operands, (("var", "x0"),), ((1, "v0"),)), halves, singles)
    assert same_bits(singles, halves.astype(np.float32)).all()

    rng = np.random.default_rng(0)
    with np.errstate(all="ignore"):
        given = [halves.astype(np.float32), np.nextafter(singles, np.float32(np.inf))]
        given += [(singles[:-1] + singles[1:]) / 2]  # ties
        given += [rng.integers(0, 1 << 32, 1 << 18, dtype=np.uint32).view(np.float32)]
        numbers = np.concatenate(given)
        wanted = numbers.astype(dtype)
    found = np.empty(numbers.size, dtype)
    loop = Loop("float32", operands[::-1], (("var", "x0"),), ((1, "v0"),))
    run_loop(loop, numbers, found)
    assert same_bits(found, wanted).all()


@pytest.mark.parametrize("native", [True, False])
@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_copies(dtype, native, monkeypatch):
    """Contiguous or not, with a native library or without one: the same bits."""
    if not native:
        monkeypatch.setenv("OPSCOPE_CPU", "none")
    rng = np.random.default_rng(0)
    for shape in ((3,), (40, 30)):
        wide = rng.normal(size=(*shape[:-1], 2 * shape[-1])).astype(np.float32)
        for source in (wide[..., : shape[-1]], np.ascontiguousarray(wide[..., ::2])):
            half, back = np.empty(shape, dtype), np.empty(shape, np.float32)
            convert_call(np, source, half)()
            assert same_bits(half, source.astype(dtype)).all()
            convert_call(np, half, back)()
            np.testing.assert_array_equal(back, half.astype(np.float32))


@needs_library
def test_loops_of_several_dtypes():
    """A half, a row of one number in half, and float32 make float32 and a half."""
    operands = (
        *(Operand(FULL, "bfloat16"), Operand(ONE, "float16"), Operand(FULL, "float32")),
        *(Operand(FULL, "float32"), Operand(FULL, "float16")),
    )
    product = ("binary", "+", ("binary", "*", ("var", "x0"), ("var", "x1")), ("var", "x2"))
    loop = Loop("float32", operands, (product,), ((3, "v0"), (4, "v0")))
    x, factor = np.arange(5).astype(BFLOAT16), np.array([0.1], np.float16)
    y, out, half = np.full(5, 2.0, np.float32), np.empty(5, np.float32), np.empty(5, np.float16)
    run_loop(loop, x, factor, y, out, half)
    wanted = x.astype(np.float32) * np.float32(factor[0]) + y
    np.testing.assert_allclose(out, wanted, rtol=1e-6)
    np.testing.assert_array_equal(half, out.astype(np.float16))


@needs_library
@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_neighbors_of_half_precision_are_one_loop(dtype):
    net = OpList()
    net.vars.append(make_var("x", (-1, 2), dtype, INPUT))
    net.ops.append(make_op("scale", {"x": "x"}, {"out": "a"}, {"scale": 1.0009765625}))
    net.ops.append(make_op("tanh", {"x": "a"}, {"out": "b"}))
    scope = Scope()
    scope.feed({"x": np.ones((3, 2)).astype(dtype)})
    frame = PlainNet(net).frame(scope, OpContext())
    assert [[op.type for op in step.operators] for step in frame.plan.steps] == [["scale", "tanh"]]
    assert frame.plan.blocks == []


@pytest.mark.parametrize("fuse", ["0", "1"])
@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("seed", range(6))
def test_random_nets(seed, dtype, fuse, monkeypatch):
    """Results and gradients near those of the same net in float64."""
    monkeypatch.setenv("OPSCOPE_FUSE", fuse)
    exact = random_nets.random_net(seed, smooth=True)
    half = random_nets.random_net(seed, smooth=True, dtype=dtype.name)
    rounded = {name: a for name, a in half.values.items() if a.dtype == dtype}
    exact.values.update((name, a.astype(np.float64)) for name, a in rounded.items())
    masters = {f"{name}@MASTER" for name in rounded} & {var.name for var in half.desc.vars}
    half.values.update((name, rounded[name[:-7]].astype(np.float32)) for name in masters)
    assert not errors(half.desc)
    wanted, found = (random_nets.results(net, net.desc) for net in (exact, half))
    eps = float(ml_dtypes.finfo(dtype).eps)
    for name, value in wanted.items():
        gap = np.abs(found[name].astype(np.float64) - value).max()
        assert gap <= 40 * eps * max(np.abs(value).max(), 1), name


def test_products_are_summed_in_float32():
    """4,096 times 1: float16 would stop at 2,048, and bfloat16 at 256."""
    for dtype in HALVES:
        net = OpList()
        net.vars.append(make_var("x", (1, 4096), dtype, INPUT))
        net.ops.append(make_op("matmul", {"x": "x", "y": "x"}, {"out": "y"}, {"transpose_y": True}))
        net.ops.append(make_op("reduce_sum", {"x": "x"}, {"out": "s"}, {"axes": [1]}))
        net.ops.append(make_op("mean", {"x": "x"}, {"out": "m"}))
        scope = Scope()
        scope.feed({"x": np.ones((1, 4096)).astype(dtype)})
        PlainNet(net).run(scope, OpContext())
        assert [float(scope.numpy(name).item()) for name in "ysm"] == [4096, 4096, 1]


@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_weights_of_a_loop_are_converted_once_a_run(dtype, monkeypatch):
    """Not at each of the steps: before the loop, where they are packed as well."""
    counts: Counter[tuple[int, ...]] = Counter()

    def counted(xp, source, target):
        call = convert_call(xp, source, target)

        def run():
            counts[source.shape] += 1
            call()

        return run

    monkeypatch.setattr(halves, "convert_call", counted)
    b = NetBuilder("loop", dtype)
    states, _ = b.lstm(b.input("x", [-1, 3], levels=1), 5)
    scope = Scope(CPUPlace())
    b.run(scope, feed={"x": [np.ones((12, 3))] * 2}, fetch=[states])
    counts.clear()
    b.run(scope, feed={"x": [np.ones((12, 3))] * 2}, fetch=[states])
    assert counts[5, 20] == 1


# -- passes ------------------------------------------------------------------------------------


def updates(dtype: str, scale: LossScale | None, **how) -> tuple[PlainNet, list[str]]:
    net = OpList("updates")
    net.vars.append(make_var("x", (-1, 2), dtype, INPUT))
    net.vars.append(make_var("w", (2, 1), dtype, PARAMETER))
    net.ops.append(make_op("matmul", {"x": "x", "y": "w"}, {"out": "y"}))
    net.ops.append(make_op("mean", {"x": "y"}, {"out": "cost"}))
    plain = PlainNet(net)
    plain.add_backward_ops("cost", loss_scale=scale)
    plain.add_optimizer_ops(OptimizerAttrs(**how))
    assert not errors(plain.op_list)
    lines = net_text(plain.op_list).splitlines()
    ops = [line.split(" ", 3)[3] for line in lines if line.startswith("  %")]
    return plain, [line.split("  ")[0] for line in ops if "#optimize" in line]


def test_updates_in_float32_stay_as_they_are():
    _, ops = updates("float32", None)
    assert ops == ["sgd(param=w, grad=w@GRAD, lr=optimizer@LEARNING_RATE) -> param_out=w"]


def test_updates_with_masters():
    net, ops = updates("float16", None, type="momentum")
    assert ops == [
        "master_sync(param=w, master=w@MASTER) -> out=w@MASTER",
        "loss_scale_undo(x=w@GRAD) -> out=w@GRAD@UNSCALED",
        "momentum(param=w@MASTER, grad=w@GRAD@UNSCALED, lr=optimizer@LEARNING_RATE,"
        " velocity=w@MOMENTUM_VELOCITY) -> param_out=w@MASTER, velocity_out=w@MOMENTUM_VELOCITY",
        "master_store(x=w@MASTER) -> out=w",
    ]
    dtypes = {var.name: var.dtype for var in net.op_list.vars}
    assert dtypes["w@MASTER"] == dtypes["w@MOMENTUM_VELOCITY"] == np.float32
    net, ops = updates("float16", None, type="momentum", master=False)
    assert len(ops) == 1
    assert {v.name: v.dtype for v in net.op_list.vars}["w@MOMENTUM_VELOCITY"] == np.float16


def test_updates_that_may_be_skipped():
    _, ops = updates("float16", LossScale(), clip_norm=1.0)
    assert ops == [
        "loss_scale_check(x=w@GRAD, scale=optimizer@LOSS_SCALE) -> factor=optimizer@UNSCALE,"
        " finite=optimizer@FINITE",
        "loss_scale_update(scale=optimizer@LOSS_SCALE, steps=optimizer@LOSS_SCALE_STEPS,"
        " finite=optimizer@FINITE) -> scale_out=optimizer@LOSS_SCALE,"
        " steps_out=optimizer@LOSS_SCALE_STEPS",
        "master_sync(param=w, master=w@MASTER) -> out=w@MASTER",
        "loss_scale_undo(x=w@GRAD, grad_scale=optimizer@UNSCALE) -> out=w@GRAD@UNSCALED",
        "global_norm_scale(x=w@GRAD@UNSCALED) -> scale=optimizer@GRADIENT_SCALE",
        "sgd(param=w@MASTER, grad=w@GRAD@UNSCALED, lr=optimizer@LEARNING_RATE,"
        " grad_scale=optimizer@GRADIENT_SCALE) -> param_out=w@MASTER@NEXT",
        "loss_scale_commit(new=w@MASTER@NEXT, old=w@MASTER, finite=optimizer@FINITE)"
        " -> out=w@MASTER",
        "master_store(x=w@MASTER) -> out=w",
    ]


def test_a_fixed_scale_checks_nothing():
    _, ops = updates("float32", as_loss_scale(128))
    assert ops == [
        "loss_scale_check(x=w@GRAD, scale=optimizer@LOSS_SCALE) -> factor=optimizer@UNSCALE",
        "loss_scale_undo(x=w@GRAD, grad_scale=optimizer@UNSCALE) -> out=w@GRAD@UNSCALED",
        "sgd(param=w, grad=w@GRAD@UNSCALED, lr=optimizer@LEARNING_RATE) -> param_out=w",
    ]


def test_a_given_gradient_is_not_scaled():
    net = half_net("float16")
    with pytest.raises(GradientError, match="without a gradient of their own: 'y'"):
        PlainNet(net).add_backward_ops({"y": "dy"}, loss_scale=LossScale())
