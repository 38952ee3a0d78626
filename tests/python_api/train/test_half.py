"""Training in float16 and bfloat16: as good as in float32, and saved bit for bit."""

from __future__ import annotations

import numpy as np
import pytest

import opscope
from half_nets import NETS, mlp
from opscope import CPUPlace, Generator, LossScale, NetBuilder, OpContext, Scope
from opscope.framework.base.dtypes import HALVES
from opscope.framework.base.errors import (
    AttributeTypeError,
    DeviceError,
    GradientError,
    ShapeError,
    VariableError,
)
from opscope.framework.passes.optimizer import optimizer_types
from opscope.framework.runtime.initialize import initialize, persistent_vars
from opscope.testing.device_double import by_default, older

DTYPES = ("float16", "bfloat16")


def started(b: NetBuilder, seed: int = 0) -> Scope:
    scope = Scope(CPUPlace())
    initialize(b.op_list, scope, OpContext(seed=seed))
    return scope


def bits(scope: Scope, b: NetBuilder) -> dict[str, bytes]:
    """Parameters and states, byte for byte."""
    return {v.name: scope.numpy(v.name).tobytes() for v in persistent_vars(b.op_list)}


def trained(name: str, dtype: str, steps: int, **how):
    """First and last cost of a net that begins with the same values in every precision."""
    b, cost, batch = NETS[name](dtype)
    plain, first, _ = NETS[name]("float32")
    plain.backward_from(first)
    plain.add_optimization(0.01, "adam")
    values = started(plain)
    b.backward_from(cost)
    b.add_optimization(0.01, "adam", **how)
    scope = Scope()
    for var in persistent_vars(b.forward_net.op_list):
        scope.var(var.name).set(values.numpy(var.name).astype(var.dtype))
    costs = [float(b.run(scope, feed=batch, fetch=[cost])[cost.name]) for _ in range(steps)]
    return costs, b, scope


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", NETS)
def test_it_trains_as_well_as_in_float32(name, dtype):
    """The same net from the same values: the cost falls as far, within 10 % of its first value."""
    single, _, _ = trained(name, "float32", 60)
    half, b, scope = trained(name, dtype, 60, loss_scale="dynamic")
    assert single[-1] < 0.3 * single[0], "the task is learnt"
    assert half[0] == pytest.approx(single[0], rel=0.03)
    assert half[-1] == pytest.approx(single[-1], abs=0.1 * single[0])
    for var in b.op_list.vars:
        if var.name in b.gradients:
            assert var.dtype == dtype and scope.numpy(var.name).dtype == dtype


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", NETS)
def test_on_the_device(name, dtype):
    """In the first steps the costs are those of the CPU; then roundings move apart."""
    wanted, _, _ = trained(name, dtype, 5, loss_scale="dynamic")
    with by_default():
        found, b, scope = trained(name, dtype, 5, loss_scale="dynamic")
        for var in b.op_list.vars:
            if var.name in b.gradients:
                assert scope.get(var.name).array.dtype == dtype
    np.testing.assert_allclose(found, wanted, rtol=1e-3)


@pytest.mark.skipif("bfloat16" not in DTYPES, reason="no ml_dtypes")
def test_a_cupy_without_bfloat16():
    with by_default(), older(), pytest.raises(DeviceError, match="bfloat16 cannot be on"):
        trained("mlp", "bfloat16", 1)


# -- masters -----------------------------------------------------------------------------------


def drift(dtype: str, master: bool, steps: int = 1000) -> float:
    """A weight that begins at 1 and is to move by 1e-4 a step, away from 0."""
    b = NetBuilder("drift", dtype)
    w = b.parameter("w", [1], 1.0)
    b.backward_from(b.reduce_sum(b.scale(w, scale=-1.0), axes=[0], name="cost"))
    b.add_optimization(1e-4, "sgd", master=master)
    scope = Scope()
    for _ in range(steps):
        b.run(scope)
    return float(scope.numpy("w")[0])


@pytest.mark.parametrize("dtype", DTYPES)
def test_small_updates_are_lost_without_masters(dtype):
    """Near 1, float16 steps by 1e-3 and bfloat16 by 8e-3: 1e-4 is rounded away every time."""
    assert drift(dtype, master=False) == 1.0
    assert drift(dtype, master=True) == pytest.approx(1.1, abs=5e-3)


def test_a_parameter_that_is_set_is_not_overwritten_by_its_master():
    b, cost, batch = mlp("float16")
    b.backward_from(cost)
    b.add_optimization(1e-3, "sgd")
    scope = started(b)
    b.run(scope, feed=batch)
    given = np.full(scope.numpy("fc_0.w").shape, 0.25, np.float16)
    scope.var("fc_0.w").set(given)
    b.run(scope, feed=batch)
    assert np.abs(scope.numpy("fc_0.w") - given).max() < 0.05
    assert np.abs(scope.numpy("fc_0.w@MASTER") - given).max() < 0.05


# -- loss scaling ------------------------------------------------------------------------------


def tiny_gradients(dtype: str, **how) -> float:
    """How far a weight moves whose gradient is 2^-30, far below the least number of float16."""
    b = NetBuilder("tiny", dtype)
    x = b.input("x", [-1, 1])
    w = b.parameter("w", [1, 1], 0.5)
    pulled = b.squared_error(b.scale(b.matmul(x, w), scale=2.0**-10), b.fill_like(x, value=0.0))
    cost = b.scale(b.mean(pulled), scale=2.0**-10, name="cost")
    b.backward_from(cost)
    b.add_optimization(2.0**26, "sgd", **how)
    scope = Scope()
    b.run(scope, feed={"x": np.ones((1, 1))})
    return 0.5 - float(scope.numpy("w@MASTER" if dtype != "float32" else "w")[0, 0])


def test_scaling_keeps_small_gradients():
    wanted = tiny_gradients("float32")
    assert wanted > 0
    assert tiny_gradients("float16") == 0
    assert tiny_gradients("float16", loss_scale=2.0**14) == pytest.approx(wanted, rel=1e-3)
    assert tiny_gradients("float16", loss_scale="dynamic") == pytest.approx(wanted, rel=1e-3)


@pytest.mark.parametrize("type", ["sgd", "momentum", "adam", "rmsprop"])
def test_a_skipped_step_changes_nothing_but_the_scale(type):
    b, cost, batch = mlp("float16")
    b.backward_from(cost)
    how = {"momentum": 0.9} if type == "rmsprop" else {}
    b.add_optimization(
        0.01,
        type,
        loss_scale=LossScale(8.0),
        clip_norm=1.0,
        schedule="cosine",
        schedule_attrs={"total_steps": 50},
        **how,
    )
    statistics = {"batch_norm_0.mean", "batch_norm_0.variance"}  # of the forward part
    scope = started(b)
    for _ in range(2):
        b.run(scope, feed=batch)
        before = bits(scope, b)
        scope.var("optimizer@LOSS_SCALE").set(np.float32(1e30))
        b.run(scope, feed=batch)
        after = bits(scope, b)
        assert scope.numpy("optimizer@LOSS_SCALE") == np.float32(5e29)
        changed = {name for name in before if before[name] != after[name]}
        assert changed <= {"optimizer@LOSS_SCALE", "optimizer@LOSS_SCALE_STEPS", *statistics}
        scope.var("optimizer@LOSS_SCALE").set(np.float32(8))
    assert b.run(scope, feed=batch, fetch=["optimizer@STEP"])["optimizer@STEP"] == 3


def test_the_first_step_may_be_skipped():
    b, cost, batch = mlp("float16")
    b.backward_from(cost)
    b.add_optimization(0.01, "adam", loss_scale=LossScale(1e30))
    scope = started(b)
    before = bits(scope, b)
    b.run(scope, feed=batch)
    after = bits(scope, b)
    assert [n for n in before if before[n] != after[n] and "batch_norm" not in n] == [
        "optimizer@LOSS_SCALE"
    ]


def test_a_dynamic_scale_recovers_from_overflow_and_rises_again():
    b, cost, batch = mlp("float16")
    b.backward_from(cost)
    b.add_optimization(0.01, "adam", loss_scale=LossScale(2.0**40, growth_interval=4))
    scope, scales, costs = Scope(), [], []
    for _ in range(60):
        costs.append(float(b.run(scope, feed=batch, fetch=[cost])["cost"]))
        scales.append(float(scope.numpy("optimizer@LOSS_SCALE")))
    fell = [i for i in range(1, 60) if scales[i] < scales[i - 1]]
    rose = [i for i in range(1, 60) if scales[i] > scales[i - 1]]
    assert len(fell) > 10 and len(rose) > 1 and min(rose) > fell[10]
    assert np.isfinite(costs).all() and costs[-1] < 0.3 * costs[0]


def test_clipping_sees_gradients_without_the_scale():
    moved = {}
    for scale in (None, 1024.0):
        b, cost, batch = mlp("float32")
        b.backward_from(cost)
        b.add_optimization(1.0, "sgd", clip_norm=0.5, clip_value=0.01, loss_scale=scale)
        scope = started(b)
        before = scope.numpy("fc_0.w").copy()
        b.run(scope, feed=batch)
        moved[scale] = scope.numpy("fc_0.w") - before
    np.testing.assert_allclose(moved[1024.0], moved[None], rtol=1e-4, atol=1e-7)
    assert 0 < np.abs(moved[None]).max() <= 0.01001


def test_sparse_gradients():
    """An embedding with gradients of some rows trains as one with a dense gradient."""
    found = {}
    for sparse in (False, True):
        b = NetBuilder("rows", "float16")
        ids, label = b.input("ids", [-1], "int64"), b.input("label", [-1], "int64")
        table = b.embedding(ids, [7, 4], sparse=sparse)
        cost = b.mean(b.softmax_cross_entropy(b.fc(table, size=3), label), name="cost")
        b.backward_from(cost)
        b.add_optimization(0.1, "sgd", loss_scale="dynamic", clip_norm=1.0)
        scope = started(b)
        for _ in range(4):
            b.run(scope, feed={"ids": [1, 5, 1], "label": [0, 1, 2]})
        found[sparse] = scope.numpy("embedding_0.w@MASTER")
    np.testing.assert_allclose(found[True], found[False], atol=2e-4)


def test_two_optimizers_share_the_scale():
    b, cost, batch = mlp("float16")
    b.backward_from(cost)
    b.add_optimization(0.01, "adam", parameters=["fc_0.w", "fc_0.b"], loss_scale=LossScale(1e30))
    b.add_optimization(0.1, "momentum", parameters=["fc_1.w"])
    scope = started(b)
    before = bits(scope, b)
    b.run(scope, feed=batch)
    after = bits(scope, b)
    assert before["fc_0.w"] == after["fc_0.w"] and before["fc_1.w"] == after["fc_1.w"]
    scope.var("optimizer@LOSS_SCALE").set(np.float32(64))
    b.run(scope, feed=batch)
    after = bits(scope, b)
    assert before["fc_0.w"] != after["fc_0.w"] and before["fc_1.w"] != after["fc_1.w"]
    with pytest.raises(AttributeTypeError, match="a net has one loss scale"):
        b.add_optimization(0.1, "sgd", parameters=["fc_2.w"], loss_scale=2.0)


def test_a_parameter_has_one_optimizer():
    b, cost, _ = mlp("float16")
    b.backward_from(cost)
    b.add_optimization(0.01, "adam", parameters=["fc_0.w"], loss_scale="dynamic")
    with pytest.raises(VariableError, match="'fc_0.w' would be updated by two.* adam and sgd"):
        b.add_optimization(0.1, "sgd", parameters=["fc_0.w"])
    b.add_optimization(0.1, "sgd", parameters="rest")
    stored = [op for op in b.op_list.ops if op.type == "master_store"]
    assert len(stored) == len(b.gradients)


@pytest.mark.parametrize("type", optimizer_types())
def test_every_optimizer(type):
    """The first steps with masters and a scaled loss are those in float32."""
    if "." in type:
        pytest.skip("an optimizer of another floor")
    ends = {}
    for dtype in ("float32", "float16"):
        b, cost, batch = mlp(dtype)
        b.backward_from(cost)
        how = {} if dtype == "float32" else {"loss_scale": "dynamic"}
        b.add_optimization(0.001, type, **how)
        scope = Scope()
        start = started(mlp("float32")[0])
        for var in persistent_vars(b.forward_net.op_list):
            scope.var(var.name).set(start.numpy(var.name).astype("float16").astype(var.dtype))
        for _ in range(3):
            b.run(scope, feed=batch)
        name = "fc_1.w" if dtype == "float32" else "fc_1.w@MASTER"
        moved = scope.numpy(name) - start.numpy("fc_1.w").astype("float16").astype(np.float32)
        ends[dtype] = moved
    size = np.linalg.norm(ends["float32"])
    assert size > 0
    bound = 0.6 if type == "lbfgs" else 0.25  # products of differences of gradients
    assert np.linalg.norm(ends["float16"] - ends["float32"]) < bound * size


@pytest.mark.parametrize("bad", ["auto", True, 0, -1.0, float("inf"), [1]])
def test_what_is_no_loss_scale(bad):
    b, cost, _ = mlp("float16")
    b.backward_from(cost)
    with pytest.raises(AttributeTypeError, match="loss.scale"):
        b.add_optimization(0.1, loss_scale=bad)


# -- files -------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
def test_saved_and_loaded_bit_for_bit(dtype, tmp_path):
    _, b, scope = trained("mlp", dtype, 3, loss_scale="dynamic")
    opscope.save(b.net, scope, tmp_path / "net")
    net, other = opscope.load(tmp_path / "net")
    held = {var.name: var.dtype for var in persistent_vars(net.op_list)}
    assert held["fc_0.w"] == dtype and held["fc_0.w@MASTER"] == np.float32
    for name, value in bits(scope, b).items():
        assert other.numpy(name).tobytes() == value, name
        assert other.numpy(name).dtype == held[name]


@pytest.mark.parametrize("dtype", DTYPES)
def test_resumed_bit_for_bit(dtype, tmp_path):
    data = {key: np.asarray(value) for key, value in mlp(dtype)[2].items()}

    def run(epochs: int, **how):
        b, cost, _ = mlp(dtype)
        b.backward_from(cost)
        b.add_optimization(0.01, "adam", loss_scale=LossScale(2.0**30, growth_interval=3))
        scope = Scope()
        opscope.train(
            b.net,
            opscope.Minibatches(data, 16),
            loss=cost,
            scope=scope,
            epochs=epochs,
            seed=3,
            **how,
        )
        return bits(scope, b)

    straight = run(3)
    run(1, checkpoint=tmp_path / "run")
    assert run(3, checkpoint=tmp_path / "run", resume=True) == straight


def test_a_changed_training_takes_states_over(tmp_path):
    data = {key: np.asarray(value) for key, value in mlp("float16")[2].items()}

    def run(epochs: int, rate: float, type: str, **how):
        b, cost, _ = mlp("float16")
        b.backward_from(cost)
        b.add_optimization(rate, type, loss_scale="dynamic")
        batches = opscope.Minibatches(data, 16)
        where = {"checkpoint": tmp_path / "run", "scope": Scope(), "seed": 3}
        return opscope.train(b.net, batches, loss=cost, epochs=epochs, **where, **how)

    run(1, 0.01, "adam")
    same = run(2, 0.02, "adam", resume="weights").resumed
    assert {"fc_0.w@MASTER", "fc_0.w@ADAM_MOMENT1", "optimizer@STEP"} <= set(same.states)
    assert list(same.afresh) == ["optimizer@LEARNING_RATE"]


# -- to_half -----------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", NETS)
def test_to_half(name, dtype):
    """Forward and backward of a float32 net, made half: near those of the net itself."""
    b, cost, batch = NETS[name]("float32")
    b.backward_from(cost)
    b.add_optimization(0.01, "adam")
    scope, other = started(b), started(b)
    half = opscope.to_half(b, dtype, scope=other)
    weights = [v.name for v in half.op_list.vars if v.name in half.gradients]
    for weight in weights:
        assert other.numpy(weight).dtype == dtype
        master = other.numpy(f"{weight}@MASTER")
        assert np.array_equal(master, scope.numpy(weight)), "masters begin as the float32 values"
    wanted, found = (
        net.run(where, feed=batch, fetch=[cost.name])[cost.name]
        for net, where in ((b, scope), (half, other))
    )
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, wanted, rtol=2e-3 if dtype == "float16" else 2e-2)


def test_to_half_keeps_what_it_is_told_to():
    b, _, _ = mlp("float32")
    half = opscope.to_half(b, keep=["fc_2.w"])
    dtypes = {var.name: var.dtype for var in half.op_list.vars}
    assert dtypes["fc_2.w"] == dtypes["fc_2"] == dtypes["fc_2.b@SINGLE"] == np.float32
    assert dtypes["fc_2.b"] == dtypes["fc_1.w"] == dtypes["fc_1"] == np.float16
    assert dtypes["batch_norm_0.mean"] == dtypes["batch_norm_0.variance"] == np.float32
    assert dtypes["batch_norm_0.scale"] == np.float16
    with pytest.raises(VariableError, match="'fc_2.v'.*fc_2.w"):
        opscope.to_half(b, keep=["fc_2.v"])
    with pytest.raises(ShapeError, match="float32 is no half precision"):
        opscope.to_half(b, "float32")


def test_to_half_casts_where_a_loss_meets_halves():
    b, cost, batch = mlp("float32")
    weight = b.var("fc_0.w")
    total = cost + 0.01 * b.mean(weight * weight)
    half = opscope.to_half(b)
    assert half.run(feed=batch, scope=Scope(), fetch=[total.name])[total.name].dtype == np.float32


def test_to_half_of_a_net_with_updates_is_refused():
    b, cost, _ = mlp("float32")
    assert opscope.to_half(b.net).op_list.vars[0].dtype == np.float16
    b.backward_from(cost)
    with pytest.raises(GradientError, match="convert the forward net"):
        opscope.to_half(b.net)


@pytest.mark.parametrize("dtype", DTYPES)
def test_generating_and_predicting(dtype, tmp_path):
    """A language model made half finds what the float32 one finds."""
    b = NetBuilder("lm")
    ids = b.input("ids", [-1], "int64", levels=1)
    states, _ = b.lstm(b.embedding(ids, [5, 4]), 6, name="rnn")
    b.fc(states, size=5, init=("gaussian_random", {"std": 2.0}), name="scores")
    scope, other = started(b), started(b)
    half = opscope.to_half(b, dtype, scope=other)
    prompts = [[1, 2], [4]]
    wanted = Generator(b, scope).greedy(prompts, 4)
    for one, two in zip(Generator(half, other).greedy(prompts, 4), wanted, strict=True):
        np.testing.assert_array_equal(one, two)
    opscope.save(half, other, tmp_path / "lm")
    found = opscope.load(tmp_path / "lm").predict({"ids": [np.array([1, 2])]}, fetch="scores")
    assert found["scores"].data.dtype == dtype


@pytest.mark.parametrize("dtype", DTYPES)
def test_feeding_and_reading(dtype):
    b = NetBuilder("fed", dtype)
    x = b.input("x", [-1, 2])
    y = b.scale(x, scale=2.0)
    for given in (np.ones((1, 2)), [[1, 1]], np.ones((1, 2), np.float32), np.ones((1, 2), dtype)):
        out = b.run(Scope(), feed={"x": given}, fetch=[y])[y.name]
        assert out.dtype == dtype and np.array_equal(out.astype(np.float32), [[2, 2]])
    assert x.dtype in HALVES and dtype in repr(x)


def test_going_on_from_a_saved_net(tmp_path):
    """A builder of a half net makes halves, and its states are found by name."""
    _, b, scope = trained("mlp", "float16", 2, loss_scale="dynamic")
    again = NetBuilder.from_desc(b.op_list)
    assert again.dtype == np.float16
    again.backward_from("cost")
    again.add_optimization(0.01, "adam", loss_scale="dynamic")
    assert [var.name for var in persistent_vars(again.op_list)] == [
        var.name for var in persistent_vars(b.op_list)
    ]
