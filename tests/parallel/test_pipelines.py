"""Ranks that each run one stage of a net train as one process does."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import pytest

import opscope
from mpi_runs import run_ranks
from nccl_double import Noted, instead_of_nccl
from opscope import Minibatches
from opscope.framework.base.backend import GPUPlace
from opscope.framework.base.errors import GradientError, OpscopeError, RanksError
from opscope.framework.files.checkpoint import read_checkpoint
from opscope.framework.ir.desc import BACKWARD, PARAMETER
from opscope.framework.ir.names import SEND_OP
from opscope.framework.parallel.dry import DryWorld
from opscope.framework.parallel.nccl import NcclCommunicator
from opscope.framework.passes.accumulate import AccumulateGradients
from opscope.framework.passes.ranks.all_reduce import InsertAllReduce
from opscope.framework.passes.ranks.stages import CutStages, Stages
from opscope.framework.runtime.executor import Frame
from opscope.testing import device_array, device_double
from training_on_ranks import arrays, check_equal, finish, on_ranks, train

DATA = Minibatches(arrays(45), 5, seed=3)  # 9 minibatches, of which 4 make an update, and 1 is left
SINGLE = Minibatches(arrays(45, "float32"), 5, seed=3)
HELD_OUT = Minibatches(arrays(30, seed=9), 20, shuffle=False)
FOUR = {"epochs": 2, "accumulate": 4}


def mlp(stages=2, dtype="float64", **options):
    """A layer a stage; the last one has the output layer as well."""
    b = opscope.NetBuilder("mlp", dtype)
    h = b.input("x", [-1, 6])
    for stage in range(stages):
        with b.stage(stage):
            h = b.fc(h, size=7, activation="tanh", name=f"h{stage}")
    return finish(b, b.fc(h, size=3, name="y"), **options)


def conv(stages=2, dtype="float64"):
    """Images of 1 x 2 x 3, with batch normalization, whose statistics are a stage's."""
    b = opscope.NetBuilder("conv", dtype)
    h = b.reshape(b.input("x", [-1, 6]), shape=[-1, 1, 2, 3])
    for stage in range(stages):
        with b.stage(stage):
            h = b.conv2d(h, filters=4, kernel=3, padding=1, name=f"c{stage}")
            h = b.relu(b.batch_norm(h, name=f"n{stage}"))
    return finish(b, b.fc(b.reshape(h, shape=[0, -1]), size=3, name="y"), "momentum")


def transformer(stages=2, dtype="float64"):
    """Blocks over 6 steps of 4 numbers; each stage reads what all before it have added up."""
    b = opscope.NetBuilder("transformer", dtype)
    x = b.reshape(b.input("x", [-1, 6]), shape=[-1, 6, 1])
    with b.stage(0):
        h = b.fc(x, size=4, name="in")
    for stage in range(stages):
        with b.stage(stage):
            h = b.transformer_encoder_layer(
                h, heads=2, feedforward=8, dropout=0.0, name=f"block{stage}"
            )
    # Not Adam: the gradient of the keys' bias is nothing but rounding, which it would scale up.
    return finish(b, b.fc(b.reduce_mean(h, axes=[1]), size=3, name="y"), "momentum")


def skipping(stages=3, dtype="float64"):
    """The last stage reads what the first one has computed, past those between."""
    b = opscope.NetBuilder("skipping", dtype)
    with b.stage(0):
        first = h = b.fc(b.input("x", [-1, 6]), size=5, activation="tanh", name="first")
    for stage in range(1, stages):
        with b.stage(stage):
            h = b.fc(h, size=5, activation="gelu", name=f"h{stage}")
            if stage == stages - 1:
                h = b.add(h, first)
    return finish(b, b.fc(h, size=3, name="y"), "sgd", 0.1, clip_norm=0.05)


def tied(stages=2, dtype="float64"):
    """One matrix in the first and in the last stage."""
    b = opscope.NetBuilder("tied", dtype)
    with b.stage(0):
        w = b.parameter("w", [6, 6], init="xavier")
        h = b.tanh(b.matmul(b.input("x", [-1, 6]), w))
    for stage in range(1, stages):
        with b.stage(stage):
            h = b.fc(h, size=6, activation="tanh", name=f"h{stage}")
    return finish(b, b.fc(b.matmul(h, w, transpose_y=True), size=3, name="y"), clip_norm=0.1)


def recomputed(stages=2, dtype="float64"):
    """Cheap values are computed again for the gradients, those on both sides of a cut as well."""
    b = opscope.NetBuilder("recomputed", dtype)
    h = b.input("x", [-1, 6])
    for stage in range(stages):
        with b.stage(stage):
            h = b.gelu(b.fc(b.layer_norm(h), size=6, name=f"h{stage}"))
    scores = b.fc(h, size=3, name="y")
    b.mean(b.softmax_cross_entropy(scores, b.input("label", [-1], "int64")), name="loss")
    b.backward_from("loss", recompute=True)
    b.add_optimization(0.01, "lamb", clip_norm=0.1)
    return b


def half(stages=2, dtype="float16"):
    """Masters in float32 and a scaled loss: a step that one stage must skip, all skip."""
    b = opscope.NetBuilder("halves", dtype)
    h = b.input("x", [-1, 6])
    for stage in range(stages):
        with b.stage(stage):
            h = b.fc(h, size=7, activation="tanh", name=f"h{stage}")
    cost = b.softmax_cross_entropy(b.fc(h, size=3, name="y"), b.input("label", [-1], "int64"))
    b.mean(cost, name="loss")
    b.backward_from("loss")
    scale = opscope.LossScale(2.0**17)  # too large at first
    b.add_optimization(0.01, "adam", loss_scale=scale, clip_norm=1.0)
    return b


def lstm(stages=2, dtype="float64"):
    """Layers over sequences of unequal lengths; the offsets go with the values."""
    b = opscope.NetBuilder("lstm", dtype)
    h = b.input("x", [-1, 6], levels=1)
    for stage in range(stages):
        with b.stage(stage):
            h, _ = b.lstm(h, size=4, name=f"l{stage}")
    return finish(b, b.fc(b.sequence_pool(h, pool_type="last"), size=3, name="y"))


def sentences(dtype="float64", rows=12):
    """Minibatches of 3 sequences."""
    rng = np.random.default_rng(2)
    found = []
    for _ in range(rows // 3):
        parts = [rng.normal(size=(n, 6)).astype(dtype) for n in rng.integers(1, 6, 3)]
        label = rng.integers(0, 3, 3)
        found.append({"x": opscope.Sequences.from_list(parts), "label": label})
    return found


NETS = {
    "mlp": mlp,
    "clipped": partial(mlp, clip_norm=0.05),
    "lamb": partial(mlp, optimizer="lamb", clip_norm=0.05),
    "conv": conv,
    "transformer": transformer,
    "skipping": skipping,
    "tied": tied,
    "recomputed": recomputed,
    "lstm": lstm,
}


@pytest.mark.parametrize("stages", [2, 4])
@pytest.mark.parametrize("kind", NETS)
def test_nets_of_all_kinds_equal_one_process(kind, stages):
    build = partial(NETS[kind], stages)
    data = sentences() if kind == "lstm" else DATA
    wanted = train(build, data, **FOUR)
    check_equal(on_ranks(stages, build, data, **FOUR), wanted, 1e-11)


@pytest.mark.parametrize("schedule", ["1f1b", "gpipe"])
@pytest.mark.parametrize("accumulate", [1, 3, 20])
def test_schedules_and_numbers_of_minibatches(schedule, accumulate):
    more = {"epochs": 2, "accumulate": accumulate, "evaluate": HELD_OUT, "metrics": ["right"]}
    build = partial(mlp, 3, clip_norm=1.0)
    wanted = train(build, DATA, **more)
    check_equal(on_ranks(3, build, DATA, pipeline=schedule, **more), wanted, 1e-11)


@pytest.mark.parametrize(("size", "stages"), [(4, 2), (6, 3)])
@pytest.mark.parametrize("kind", ["clipped", "tied", "lstm"])
def test_ranks_with_the_same_stage_share_minibatches(kind, size, stages):
    build = partial(NETS[kind], stages)
    data = sentences() if kind == "lstm" else DATA
    more = {**FOUR, "metrics": ["right"]}
    wanted = train(build, data, **more)
    check_equal(on_ranks(size, build, data, **more), wanted, 1e-11)


def test_synchronized_batch_normalization():
    wanted = train(conv, DATA, **FOUR)
    check_equal(on_ranks(4, conv, DATA, sync_batch_norm=True, **FOUR), wanted, 1e-11)


def test_float32():
    build = partial(mlp, 4, "float32")
    wanted = train(build, SINGLE, epochs=4, accumulate=4)
    check_equal(on_ranks(4, build, SINGLE, epochs=4, accumulate=4), wanted, 1e-6)


def test_half_precision():
    wanted = train(half, SINGLE, **FOUR)
    assert wanted[0]["optimizer@LOSS_SCALE"] < 2.0**17
    check_equal(on_ranks(2, half, SINGLE, **FOUR), wanted, 1e-6)


def test_1f1b_takes_less_memory_than_gpipe():
    build, size = partial(mlp, 2), 2
    spent = {
        schedule: on_ranks(size, build, DATA, epochs=1, accumulate=9, pipeline=schedule)[0][1]
        for schedule in ("1f1b", "gpipe")
    }
    first = {schedule: history.memory[0] for schedule, history in spent.items()}
    assert first["1f1b"].run < 0.5 * first["gpipe"].run
    whole = train(build, DATA, epochs=1, accumulate=9)[1].memory[0]
    assert first["1f1b"].parameters + spent["1f1b"].memory[1].parameters == whole.parameters


def test_the_history_says_how_long_ranks_waited():
    run = on_ranks(4, partial(mlp, 2), DATA, epochs=1, accumulate=3)[3][1].pipeline
    assert (run.stages, run.replicas, run.schedule, run.minibatches) == (2, 2, "1f1b", 3)
    assert run.bubble == 1 / 4 and len(run.waited) == 4
    assert all(0 < share < 1 for share in run.waited)
    assert str(run).startswith("pipeline of 2 stages, 2 ranks each, 1f1b, 3 minibatches an update")
    assert on_ranks(2, mlp, DATA, epochs=1, pipeline="off")[0][1].pipeline is None


def test_checkpoints_are_whole_and_resume_on_any_number_of_ranks(tmp_path):
    build = partial(mlp, 2, clip_norm=1.0)
    more = {"evaluate": HELD_OUT, "metrics": ["right"], "accumulate": 3}
    wanted = train(build, DATA, epochs=4, **more)
    path = tmp_path / "run"
    on_ranks(2, build, DATA, epochs=2, checkpoint=path, **more)
    kept = read_checkpoint(path)
    assert kept.values.keys() == wanted[0].keys()
    assert kept.values["h1.w@ADAM_MOMENT1"].shape == (7, 7)
    left = path.with_suffix(".checkpoint").read_bytes()
    options = {"epochs": 4, "checkpoint": path, "resume": True, **more}
    for size, other in ((1, {}), (2, {}), (4, {}), (3, {"pipeline": "off"})):
        path.with_suffix(".checkpoint").write_bytes(left)
        check_equal(on_ranks(size, build, DATA, **options, **other), wanted, 1e-11)
    path.with_suffix(".checkpoint").write_bytes(left)
    check_equal(on_ranks(2, lambda: moved_cut(), DATA, **options), wanted, 1e-11)


def moved_cut():
    """As `mlp(2)`, with the second layer in the first stage."""
    b = opscope.NetBuilder("mlp", "float64")
    h = b.input("x", [-1, 6])
    with b.stage(0):
        for layer in range(2):
            h = b.fc(h, size=7, activation="tanh", name=f"h{layer}")
    with b.stage(1):
        scores = b.fc(h, size=3, name="y")
    return finish(b, scores, clip_norm=1.0)


def test_the_best_epoch_comes_from_all_stages():
    build = partial(mlp, 2, optimizer="momentum", rate=0.5)
    options = {"epochs": 6, "evaluate": HELD_OUT, "early_stop": (1, "eval_loss", "min")}
    wanted = train(build, DATA, **options)
    found = on_ranks(2, build, DATA, **options)
    check_equal(found, wanted, 1e-11)
    assert found[1][1].best_epoch == wanted[1].best_epoch > 0


def test_training_twice_in_one_scope_and_dropout():
    def twice(communicator):
        b, scope = opscope.NetBuilder("drops"), opscope.Scope()
        with b.stage(0):
            h = b.dropout(b.fc(b.input("x", [-1, 6]), size=8, activation="tanh"), p=0.5)
        with b.stage(1):
            finish(b, b.fc(h, size=3))
        options = {"scope": scope, "seed": 5, "progress": False, "communicator": communicator}
        return [opscope.train(b, SINGLE, epochs=3, **options)["loss"][-1] for _ in range(2)]

    (first, second), other = DryWorld(2).run(twice)
    assert second < first and other == [first, second]


def test_processes_that_are_told_nothing_of_stages_train_whole_nets():
    wanted = train(partial(mlp, 3), DATA, epochs=2)
    check_equal(on_ranks(2, partial(mlp, 3), DATA, epochs=2, pipeline="off"), wanted, 1e-11)
    check_equal(on_ranks(1, partial(mlp, 3), DATA, epochs=2), wanted, 1e-11)


# -- the pass --------------------------------------------------------------------------------------


def cut(b, stage=0):
    return CutStages(stage).apply(AccumulateGradients().apply(InsertAllReduce().apply(b.op_list)))


def sent(net):
    return [(op.inputs["x"], op.attrs["rank"]) for op in net.ops if op.type == SEND_OP]


def test_what_stages_send_to_each_other():
    weights = ("ranks@WEIGHT", "ranks@WEIGHT_TOTAL", "ranks@WEIGHT_TOTAL@FLOAT64")
    b = skipping()
    assert sent(cut(b, 0)) == [(("first",), 1), (("first",), 2)]
    own = cut(b, 1)
    (first, to), (back, source) = sent(own)
    assert (first, to, source) == (("gelu_0",), 2, 0) or to == 2
    assert back == ("first@GRAD@RENAME@1",) and source == 0
    names = {n for given, _ in sent(cut(b, 2)) for n in given}
    assert names == {"first@GRAD@RENAME@0", f"{first[0]}@GRAD", *weights}
    held = {var.name for var in own.vars if var.kind == PARAMETER}
    assert held == {"h1.w", "h1.b"}


def test_operators_that_say_no_stage():
    """They go where what they read is computed last, or, reading nothing, where they are read."""
    b = opscope.NetBuilder("mixed", "float64")
    one = b.fill_constant(shape=[1], value=2.0, dtype="float64")
    with b.stage(0):
        h = b.fc(b.input("x", [-1, 6]), size=5, name="h")
    h = b.tanh(h)
    with b.stage(1):
        scores = b.mul(b.fc(h, size=3, name="y"), one)
    finish(b, scores)
    stages = Stages(AccumulateGradients().apply(InsertAllReduce().apply(b.op_list)))
    assert stages.count == 2
    assert [stages.of_var[str(name)] for name in (one, h, "h.w", "loss", "y.w")] == [1, 0, 0, 1, 1]
    assert stages.of_var["h.w@ADAM_MOMENT1"] == 0 and "optimizer@STEP" not in stages.of_var


# -- bad input -------------------------------------------------------------------------------------


def layers(*numbers, size=6):
    b = opscope.NetBuilder("layers", "float64")
    h = b.input("x", [-1, 6])
    for layer, stage in enumerate(numbers):
        with b.stage(stage):
            h = b.fc(h, size=size, name=f"h{layer}")
    return finish(b, b.fc(h, size=3, name="y"))


def test_stages_out_of_order_and_with_gaps():
    why = (
        r"op 1 \(affine\) at .*test_pipelines.py:\d+ of stage 0 reads 'h0', which op 0 \(affine\)"
        r" at .* of stage 1 computes: number stages in the order in which they run"
    )
    with pytest.raises(GradientError, match=why):
        on_ranks(2, lambda: layers(1, 0), DATA)
    with pytest.raises(GradientError, match="no operator belongs to stage 1, and some to stage 2"):
        on_ranks(2, lambda: layers(0, 2), DATA)


def test_ranks_that_stages_cannot_be_shared_among():
    with pytest.raises(RanksError, match=r"has 3 stages.*op 2 \(affine\).*, and 2 ranks run"):
        on_ranks(2, lambda: layers(0, 1, 2), DATA)
    with pytest.raises(RanksError, match=r"has 2 stages.* and 3 ranks run: start 2 of them"):
        on_ranks(3, lambda: layers(0, 1), DATA)


def test_a_stage_without_parameters():
    def build():
        b = opscope.NetBuilder("bare", "float64")
        with b.stage(0):
            h = b.fc(b.input("x", [-1, 6]), size=5, name="h")
        with b.stage(1):
            h = b.tanh(h)
        with b.stage(2):
            h = b.fc(h, size=3)
        return finish(b, h)

    with pytest.raises(GradientError, match=r"stage 1 has no parameter to train: op 1 \(tanh\)"):
        on_ranks(3, build, DATA)


def test_an_edge_that_crosses_a_cut_twice():
    """A gradient operator whose result an earlier operator's gradient would have to wait for."""
    net = AccumulateGradients().apply(InsertAllReduce().apply(layers(0, 1).op_list))
    index = next(n for n, op in enumerate(net.ops) if "h0.w@GRAD" in op.output_names())
    back = opscope.PlainNet()
    back.add_op("assign", {"x": "h0.w@GRAD"}, {"out": "h1@GRAD@EXTRA"})
    extra = back.op_list.ops[0].changed(role=BACKWARD, device="stage:1")
    net.ops.insert(index + 1, extra)
    with pytest.raises(GradientError, match=r"\(assign\).* of stage 1 reads 'h0.w@GRAD', which op"):
        Stages(net)


def test_what_reads_parameters_of_several_stages():
    with pytest.raises(GradientError, match=r"\(lbfgs\).* reads what stages 0 and 1 hold"):
        on_ranks(2, lambda: finish_with_lbfgs(), DATA)


def finish_with_lbfgs():
    b = opscope.NetBuilder("whole", "float64")
    h = b.input("x", [-1, 6])
    for stage in range(2):
        with b.stage(stage):
            h = b.fc(h, size=4, name=f"h{stage}")
    return finish(b, b.fc(h, size=3), "lbfgs", 1.0)


def test_refusals():
    with pytest.raises(GradientError, match="zero=2 shares out what the stages of a pipeline"):
        on_ranks(2, mlp, DATA, zero=2)
    with pytest.raises(RanksError, match="shard=False gives each rank minibatches of its own"):
        on_ranks(2, mlp, DATA, shard=False)
    with pytest.raises(OpscopeError, match="memory='1GB' is for ranks that have all stages"):
        on_ranks(2, mlp, DATA, memory="1GB")
    on_ranks(2, mlp, DATA, memory="1GB", pipeline="off")
    with pytest.raises(OpscopeError, match="pipeline is one of '1f1b', 'gpipe', 'off', not 'x'"):
        train(mlp, DATA, pipeline="x")
    with pytest.raises(RanksError, match="the setting pipeline of rank 1 is `gpipe`"):
        DryWorld(2).run(lambda c: train(mlp, DATA, c, pipeline=("1f1b", "gpipe")[c.rank]))
    summed = opscope.PlainNet(InsertAllReduce().apply(mlp().op_list))
    with pytest.raises(GradientError, match="a net with stages gets its own exchanges"):
        on_ranks(2, lambda: summed, DATA)
    b = opscope.NetBuilder("b")
    for number in (-1, 1.5, True, "1"):
        with pytest.raises(OpscopeError, match="stage wants a number from 0"), b.stage(number):
            pass
    with b.stage(0), pytest.raises(OpscopeError, match="stage 1 begins within 'stage:0'"):
        with b.stage(1):
            pass


# -- processes and GPUs ----------------------------------------------------------------------------


@pytest.mark.parametrize("size", [2, 4])
def test_processes_of_mpi_equal_one_process(size, tmp_path):
    program = """
        import numpy as np
        from functools import partial
        from opscope.framework.parallel.mpi import MpiCommunicator
        from test_pipelines import *

        with MpiCommunicator() as c:
            for name in ("clipped", "conv", "transformer", "lstm"):
                for stages in {2, c.size}:
                    data = sentences() if name == "lstm" else DATA
                    build = partial(NETS[name], stages)
                    # Ranks with the same stage normalize by their own batches.
                    if name != "conv" or stages == c.size:
                        options = {"checkpoint": f"{name}{stages}", **FOUR}
                        values, _ = train(build, data, c, **options)
                        np.savez(f"{name}{stages}of{c.rank}.npz", **values)
    """
    done = run_ranks(size, program, tmp_path, here=Path(__file__).parent)
    assert (done.returncode, done.stderr) == (0, "")
    for name in ("clipped", "conv", "transformer", "lstm"):
        for stages in {2, size} if name != "conv" else {size}:
            data = sentences() if name == "lstm" else DATA
            wanted, _ = train(partial(NETS[name], stages), data, **FOUR)
            found = [np.load(tmp_path / f"{name}{stages}of{rank}.npz") for rank in range(size)]
            for one in (*found, read_checkpoint(tmp_path / f"{name}{stages}").values):
                for key, value in wanted.items():
                    assert np.abs(one[key] - value).max(initial=0) < 1e-11, (name, stages, key)


ON_GPUS = [("mlp", 2), ("conv", 4), ("transformer", 4), ("lstm", 4), ("lstm", 2)]


@pytest.mark.parametrize(("kind", "stages"), ON_GPUS)
def test_four_ranks_with_a_gpu_each(kind, stages, monkeypatch):
    """On the stand-ins of CuPy and NCCL: equal to one process, and nothing goes to the host."""
    size, crossings, run = 4, Noted(), Frame.run
    for module in (device_array, device_double):
        monkeypatch.setattr(module, "crossings", crossings)

    def counted(frame, context):
        before = len(crossings.own)
        run(frame, context)
        steps.append(crossings.own[before:] if frame.train else [])

    build = partial(NETS[kind], stages, "float32")
    data = sentences("float32") if kind == "lstm" else SINGLE

    def work(c):
        place = GPUPlace(c.rank)
        return train(build, data, NcclCommunicator(c, place), place, **FOUR)[0]

    with instead_of_nccl(size):
        wanted = train(build, data, place=GPUPlace(0), **FOUR)[0]  # GPUs draw other numbers
        monkeypatch.setattr(Frame, "run", counted)
        steps = []
        found = DryWorld(size).run(work)
    assert len(steps) > 4 * 9 and (
        kind == "lstm" or not any(steps)
    )  # offsets of sequences go there
    for one in found:
        for name, value in wanted.items():
            assert np.abs(one[name] - value).max(initial=0) < 1e-6, name
