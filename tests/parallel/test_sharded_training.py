"""Ranks that share out optimizer states, gradients and parameters train as one process does."""

from functools import partial
from pathlib import Path

import numpy as np
import pytest

import opscope
from mpi_runs import run_ranks
from nccl_double import Noted, instead_of_nccl
from opscope import Minibatches
from opscope.framework.base.backend import GPUPlace
from opscope.framework.base.errors import (
    AttributeTypeError,
    GradientError,
    OpscopeError,
    RanksError,
)
from opscope.framework.base.sizes.shape import count
from opscope.framework.files.checkpoint import read_checkpoint
from opscope.framework.ir.desc import PARAMETER
from opscope.framework.parallel.dry import DryWorld
from opscope.framework.parallel.nccl import NcclCommunicator
from opscope.framework.passes.ranks.all_reduce import InsertAllReduce
from opscope.framework.passes.ranks.zero import ShardTraining
from opscope.framework.runtime.executor import Frame
from opscope.testing import device_array, device_double
from training_on_ranks import arrays, check_equal, half, net, on_ranks, tied, train

DATA = Minibatches(arrays(45), 12, seed=3)  # 12, 12, 12 and 9 rows
SINGLE = Minibatches(arrays(45, "float32"), 12, seed=3)
HELD_OUT = Minibatches(arrays(30, seed=9), 20, shuffle=False)
STAGES = (1, 2, 3)


ELEMENTWISE = (
    *("sgd", "momentum", "nesterov", "adagrad", "adadelta", "rmsprop"),
    *("adam", "adamw", "adamax", "nadam", "radam", "lion"),
)


@pytest.mark.parametrize("optimizer", [*ELEMENTWISE, "lamb", "lars"])
def test_every_optimizer_equals_one_process(optimizer):
    build = partial(net, optimizer)
    wanted = train(build, DATA, epochs=2)
    check_equal(on_ranks(2, build, DATA, epochs=2, zero=3), wanted, 1e-11)


def several():
    """Two optimizers with bounds on values, a frozen layer, and a weight that is used twice."""
    b = opscope.NetBuilder("several", "float64")
    x = b.fc(b.input("x", [-1, 6]), size=6, activation="tanh", name="h")
    w = b.parameter("twice", [6, 6], init="xavier")
    y = b.fc(b.tanh(b.matmul(b.tanh(b.matmul(x, w)), w)), size=3, name="y")
    b.mean(b.softmax_cross_entropy(y, b.input("label", [-1], "int64")), name="loss")
    b.backward_from("loss")
    b.add_optimization(0.1, "momentum", clip_value=0.01, parameters=["h.w", "twice"])
    b.add_optimization(
        0.02, "adam", parameters=["y.w"], schedule="step_decay", schedule_attrs={"step_size": 3}
    )
    return b


NETS = {
    "clipped by norm": partial(net, "adam", clip_norm=0.05),
    "clipped, with norms of layers": partial(net, "lamb", clip_norm=0.05),
    "sparse": tied,
    "several": several,
}


def words():
    given = arrays(45)
    given["ids"] = np.random.default_rng(4).integers(0, 20, 45)
    del given["x"]
    return Minibatches(given, 12, seed=3)


@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("kind", NETS)
def test_nets_of_all_kinds_at_all_stages(kind, stage, size):
    data = words() if kind == "sparse" else DATA
    wanted = train(NETS[kind], data, epochs=2)
    check_equal(on_ranks(size, NETS[kind], data, epochs=2, zero=stage), wanted, 1e-11)


@pytest.mark.parametrize("stage", STAGES)
def test_float32(stage):
    build = partial(net, "adam", "float32", clip_norm=1.0)
    wanted = train(build, SINGLE, epochs=4)
    check_equal(on_ranks(4, build, SINGLE, epochs=4, zero=stage), wanted, 1e-6)


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_is_that_of_data_parallelism(dtype, stage):
    """Masters and their states are shared out; a step that is skipped is skipped by all."""
    data = Minibatches(arrays(45, "float32"), 12, seed=3)
    build = partial(half, dtype, opscope.LossScale(2.0**17))  # too large at first in float16
    wanted = on_ranks(2, build, data)[0]
    found = on_ranks(2, build, data, zero=stage)
    check_equal(found, wanted, 1e-6)
    assert (wanted[0]["optimizer@LOSS_SCALE"] < 2.0**17) == (dtype == "float16")


@pytest.mark.parametrize("stage", STAGES)
def test_checkpoints_are_whole_and_resume_on_any_number_of_ranks(stage, tmp_path):
    build = partial(net, "adam", clip_norm=1.0)
    more = {"evaluate": HELD_OUT, "metrics": ["right"]}
    wanted = train(build, DATA, epochs=4, **more)
    path = tmp_path / "run"
    on_ranks(2, build, DATA, epochs=2, zero=stage, checkpoint=path, **more)
    kept = read_checkpoint(path)
    assert kept.values["h.w@ADAM_MOMENT1"].shape == (6, 7)
    assert not any(name.endswith("@SHARD") for name in kept.values)
    half = path.with_suffix(".checkpoint").read_bytes()
    for size, zero in ((1, 0), (2, stage), (3, 3), (4, 0)):
        path.with_suffix(".checkpoint").write_bytes(half)
        options = {"epochs": 4, "checkpoint": path, "resume": True, **more}
        check_equal(on_ranks(size, build, DATA, zero=zero, **options), wanted, 1e-11)


def test_a_checkpoint_of_one_process_goes_on_in_shards(tmp_path):
    build = partial(net, "adam")
    wanted = train(build, DATA, epochs=4)
    train(build, DATA, epochs=2, checkpoint=tmp_path / "run")
    options = {"epochs": 4, "checkpoint": tmp_path / "run", "resume": True}
    check_equal(on_ranks(3, build, DATA, zero=3, **options), wanted, 1e-11)
    changed = partial(net, "adam", rate=0.02)
    options |= {"resume": "weights", "epochs": 6}
    found = on_ranks(2, changed, DATA, zero=2, **options)
    assert found[0][1].resumed.states and found[0][1].resumed.epochs == 4


def test_the_best_epoch_is_whole():
    build = partial(net, "momentum", rate=0.3)
    options = {"epochs": 6, "evaluate": HELD_OUT, "early_stop": (1, "eval_loss", "min")}
    wanted = train(build, DATA, **options)
    found = on_ranks(2, build, DATA, zero=3, **options)
    check_equal(found, wanted, 1e-11)
    assert found[1][1].best_epoch == wanted[1].best_epoch > 0


def test_training_twice_in_one_scope():
    """The states that the first training left are shared out by the second one."""

    def twice(communicator, zero):
        b, scope = net("adam"), opscope.Scope()
        for _ in range(2):
            opscope.train(
                *(b, DATA),
                **{"epochs": 1, "seed": 5, "scope": scope, "progress": False, "zero": zero},
                communicator=communicator,
            )
        return {name: scope.numpy(name) for name in ("h.w", "h.w@ADAM_MOMENT2", "gain")}

    wanted = twice(None, 0)
    for found in DryWorld(2).run(lambda c: twice(c, 3)):
        for name, value in wanted.items():
            assert np.abs(found[name] - value).max() < 1e-11


def wide():
    """Eight layers of 64 KB, which are most of what a step takes."""
    b = opscope.NetBuilder("wide")
    h = b.input("x", [-1, 6])
    for _ in range(8):
        h = b.fc(h, size=128, activation="tanh")
    cost = b.softmax_cross_entropy(b.fc(h, size=3), b.input("label", [-1], "int64"))
    b.mean(cost, name="loss")
    b.backward_from("loss")
    b.add_optimization(0.001, "adam")
    return b


def test_each_stage_takes_less_memory():
    data = Minibatches(arrays(8, "float32"), 8, seed=3)
    made = {}
    for stage in (0, *STAGES):
        history = on_ranks(4, wide, data, epochs=1, zero=stage)[3][1]
        assert len(history.memory) == 4 and len(set(history.memory)) == 1
        made[stage] = history.memory[0]
    size = 4 * sum(count(var.shape) for var in wide().op_list.vars if var.kind == PARAMETER)
    assert made[0].parameters == made[1].parameters == made[2].parameters == size
    assert size / 4 <= made[3].parameters < size / 3.9
    assert made[0].states == 2 * size + 12
    assert all(2 * size / 4 <= made[stage].states < 2 * size / 3.9 for stage in STAGES)
    print({stage: vars(one) for stage, one in made.items()})
    assert made[0].run > size and made[2].run < 0.75 * made[1].run
    assert made[3].total < 0.5 * made[0].total


def test_refusals():
    def build():
        return net("lbfgs", rate=1.0)

    with pytest.raises(GradientError, match=r"lbfgs.* wants whole parameters.*train with zero=0"):
        on_ranks(2, build, DATA, zero=1)
    with pytest.raises(OpscopeError, match="zero is 0, 1, 2 or 3, not 4"):
        train(net, DATA, zero=4)
    with pytest.raises(RanksError, match="the setting zero of rank 1 is `1`, of rank 0 `0`"):
        DryWorld(2).run(lambda c: train(net, DATA, c, zero=c.rank))
    with pytest.raises(AttributeTypeError, match="stage is 1, 2 or 3"):
        ShardTraining(stage=0, ranks=2)
    summed = opscope.PlainNet(InsertAllReduce().apply(net().op_list))
    with pytest.raises(GradientError, match="zero=1 gets its own exchanges"):
        on_ranks(2, lambda: summed, DATA, zero=1)
    check_equal(on_ranks(1, net, DATA, zero=3), train(net, DATA), 0)


@pytest.mark.parametrize("size", [2, 4])
def test_processes_of_mpi_equal_one_process(size, tmp_path):
    program = """
        import numpy as np
        from opscope.framework.parallel.mpi import MpiCommunicator
        from test_sharded_training import SINGLE, STAGES, big, net, train

        with MpiCommunicator() as c:
            for stage in STAGES:
                for name, build in (("net", net), ("big", big)):
                    options = {"epochs": 2, "zero": stage, "checkpoint": f"{name}{stage}"}
                    values, _ = train(build, SINGLE, c, **options)
                    np.savez(f"{name}{stage}of{c.rank}.npz", **values)
    """
    done = run_ranks(size, program, tmp_path, here=Path(__file__).parent)
    assert (done.returncode, done.stderr) == (0, "")
    for name, build in (("net", net), ("big", big)):
        wanted, _ = train(build, SINGLE, epochs=2)
        for stage in STAGES:
            found = [np.load(tmp_path / f"{name}{stage}of{rank}.npz") for rank in range(size)]
            saved = read_checkpoint(tmp_path / f"{name}{stage}").values
            for one in (*found, saved):
                for key, value in wanted.items():
                    assert np.abs(one[key] - value).max(initial=0) < 1e-6, (name, stage, key)


def big():
    """Layers whose gradients are beyond what MPI's ranks send in one step."""
    b = opscope.NetBuilder("big")
    h = b.fc(b.input("x", [-1, 6]), size=150, activation="tanh", name="h")
    h = b.fc(h, size=149, activation="tanh", name="g")
    cost = b.softmax_cross_entropy(b.fc(h, size=3, name="y"), b.input("label", [-1], "int64"))
    b.mean(cost, name="loss")
    b.backward_from("loss")
    b.add_optimization(0.1, "momentum", clip_norm=1.0)
    return b


@pytest.mark.parametrize(("size", "stage"), [(2, 0), (2, 1), (2, 2), (2, 3), (4, 3)])
def test_ranks_with_a_gpu_each(size, stage, monkeypatch):
    """On the stand-ins of CuPy and NCCL: equal to one process, and nothing goes to the host."""
    build = partial(net, "adam", "float32", clip_norm=1.0)
    noted, spent, run = Noted(), [], Frame.run
    for module in (device_array, device_double):
        monkeypatch.setattr(module, "crossings", noted)

    def counted(frame, context):
        before = len(noted.own)
        run(frame, context)
        if frame.train and "h.w@GRAD" in frame.plan.declared:
            spent.append(noted.own[before:])

    monkeypatch.setattr(Frame, "run", counted)

    def work(c):
        place = GPUPlace(c.rank)
        return train(build, SINGLE, NcclCommunicator(c, place), place, epochs=2, zero=stage)[0]

    with instead_of_nccl(size):
        wanted = train(build, SINGLE, place=GPUPlace(0), epochs=2)[0]  # GPUs draw other numbers
        spent.clear()
        found = DryWorld(size).run(work)
    assert len(spent) == 8 * size and not any(spent)
    for one in found:
        for name, value in wanted.items():
            assert np.abs(one[name] - value).max(initial=0) < 1e-6, name
