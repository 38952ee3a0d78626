"""`resume="weights"`: a changed training goes on from a checkpoint, and says what it took over."""

from __future__ import annotations

import numpy as np
import pytest

import opscope
from opscope import NetBuilder, Scope
from opscope.framework.base.errors import FormatError, OpscopeError
from opscope.framework.files.checkpoint import read_checkpoint
from small_nets import data
from training_runs import BATCHES, InterruptAfter, numbers, run, same, values

COSINE = {"schedule": "cosine", "schedule_attrs": {"total_steps": 8}}
LONGER = {"schedule": "cosine", "schedule_attrs": {"total_steps": 80}}
PARAMETERS = ("w0", "b0", "w1", "b1")


def build(*optimizers, hidden=8, classes=3, head="w1", dtype="float32"):
    """x -> affine, tanh, affine -> cross entropy; `optimizers`: arguments of add_optimization."""
    b = NetBuilder("net", dtype)
    x, label = b.input("x", [-1, 6]), b.input("label", [-1], "int64")
    w0, b0 = b.parameter("w0", [6, hidden]), b.parameter("b0", [hidden], 0.0)
    w1, b1 = b.parameter(head, [hidden, classes]), b.parameter("b1", [classes], 0.0)
    scores = b.add_op("affine", b.tanh(b.add_op("affine", x, w0, b0)), w1, b1, name="scores")
    b.mean(b.softmax_cross_entropy(scores, label), name="loss")
    b.backward_from("loss")
    for args, options in optimizers:
        b.add_optimization(*args, **options)
    return b


def adam(rate=0.01, **options):
    return (rate, "adam"), options


def momentum(rate=0.01, **options):
    return (rate, "momentum"), options


def first(tmp_path, net, epochs=2, **options):
    """Train a net, and return what its checkpoint holds."""
    given = {"metrics": (), "checkpoint": tmp_path / "run", **options}
    run(Scope(), net, epochs=epochs, **given)
    return read_checkpoint(tmp_path / "run").values


def resumed(tmp_path, net, epochs=3, scope=None, **options):
    scope = scope or Scope()
    given = {"metrics": (), "checkpoint": tmp_path / "run", "resume": "weights", **options}
    history = run(scope, net, epochs=epochs, **given)
    return history, scope


def by_hand(net, before, names, rate=None):
    """One epoch, the third, of a net that begins with some values of a checkpoint."""
    scope = Scope()
    net.initialize(scope, opscope.OpContext(seed=5))
    scope.feed({name: before[name] for name in names})
    opscope.train(
        net,
        lambda epoch: BATCHES(epoch + 2),
        epochs=1,
        scope=scope,
        seed=5,
        progress=False,
    )
    return scope


def test_another_rate(tmp_path):
    before = first(tmp_path, build(adam(0.01)))
    net = build(adam(0.05))
    history, scope = resumed(tmp_path, net)
    report = history.resumed
    assert report.parameters == PARAMETERS
    assert set(report.states) == {
        "optimizer@STEP",
        *(f"{name}@ADAM_MOMENT{number}" for name in PARAMETERS for number in (1, 2)),
    }
    assert report.afresh == {"optimizer@LEARNING_RATE": "rate 0.01 there and 0.05 here"}
    assert report.left == () and report.epochs == 2
    wanted = by_hand(build(adam(0.05)), before, (*report.parameters, *report.states))
    assert same(values(scope, net), values(wanted, net))
    assert scope.numpy("optimizer@LEARNING_RATE") == np.float32(0.05)
    assert [row["epoch"] for row in history.rows] == [1, 2, 3]


def test_another_rate_in_a_scope_that_holds_the_former(tmp_path):
    scope = Scope()
    run(scope, build(adam(0.01)), epochs=2, metrics=(), checkpoint=tmp_path / "run")
    resumed(tmp_path, build(adam(0.05)), scope=scope)
    assert scope.numpy("optimizer@LEARNING_RATE") == np.float32(0.05)


def test_a_longer_schedule_goes_on_where_it_was(tmp_path):
    before = first(tmp_path, build(momentum(0.1, **COSINE)))
    net = build(momentum(0.1, **LONGER))
    history, scope = resumed(tmp_path, net)
    assert history.resumed.afresh == {}
    assert before["optimizer@STEP"] == 8 and scope.numpy("optimizer@STEP") == 12
    share = (1 + np.cos(np.pi * 11 / 80)) / 2
    assert scope.numpy("optimizer@LEARNING_RATE") == pytest.approx(0.1 * share, rel=1e-6)
    assert same(
        values(scope, net), values(by_hand(build(momentum(0.1, **LONGER)), before, before), net)
    )


def test_another_optimizer(tmp_path, capsys):
    before = first(tmp_path, build(momentum(0.01)))
    net = build(adam(0.01))
    history, scope = resumed(tmp_path, net)
    report = history.resumed
    assert report.parameters == PARAMETERS
    assert report.states == ("optimizer@LEARNING_RATE",)
    assert report.afresh["w0@ADAM_MOMENT1"] == "not in the checkpoint"
    assert report.afresh["optimizer@STEP"] == "not in the checkpoint"
    assert set(report.left) == {f"{name}@MOMENTUM_VELOCITY" for name in PARAMETERS}
    wanted = by_hand(build(adam(0.01)), before, PARAMETERS)
    assert same(values(scope, net), values(wanted, net))
    assert scope.numpy("optimizer@STEP") == 4
    assert capsys.readouterr().err == ""  # no progress was asked for


def test_the_report_is_printed(tmp_path, capsys):
    first(tmp_path, build(momentum(0.01)))
    opscope.train(
        build(adam(0.02)),
        BATCHES,
        epochs=3,
        scope=Scope(),
        checkpoint=tmp_path / "run",
        resume="weights",
    )
    told = capsys.readouterr().err
    assert told.splitlines()[:4] == [
        f"{tmp_path}/run.checkpoint: taken over after epoch 2: 4 parameters and 0 states",
        "  reset, not in the checkpoint: optimizer@STEP, w0@ADAM_MOMENT1, w0@ADAM_MOMENT2,"
        " b0@ADAM_MOMENT1, b0@ADAM_MOMENT2, w1@ADAM_MOMENT1, w1@ADAM_MOMENT2, b1@ADAM_MOMENT1,"
        " and 1 more",
        "  reset, rate 0.01 there and 0.02 here: optimizer@LEARNING_RATE",
        "  left there, not in this net: w0@MOMENTUM_VELOCITY, b0@MOMENTUM_VELOCITY,"
        " w1@MOMENTUM_VELOCITY, b1@MOMENTUM_VELOCITY",
    ]


def test_an_optimizer_that_counts_steps_begins_anew_as_a_whole(tmp_path):
    """Fresh moments with a large step count would make the first steps of Adam far too long."""
    first(tmp_path, build(adam(), classes=4))
    net = build(adam(), classes=3)
    history, scope = resumed(tmp_path, net)
    report = history.resumed
    assert report.parameters == ("w0", "b0") and report.states == ("optimizer@LEARNING_RATE",)
    assert report.afresh["w1"] == "float32[8, 4] there and float32[8, 3] here"
    assert report.afresh["w1@ADAM_MOMENT1"] == "float32[8, 4] there and float32[8, 3] here"
    assert report.afresh["w0@ADAM_MOMENT1"] == "with the states of w1"
    assert report.afresh["optimizer@STEP"] == "with the states of w1"
    assert scope.numpy("optimizer@STEP") == 4


def test_an_optimizer_without_steps_goes_on_for_each_parameter(tmp_path):
    first(tmp_path, build(momentum(), classes=4))
    report = resumed(tmp_path, build(momentum(), classes=3))[0].resumed
    kept = {"w0@MOMENTUM_VELOCITY", "b0@MOMENTUM_VELOCITY", "optimizer@LEARNING_RATE"}
    assert set(report.states) == kept


def test_a_new_head_of_the_same_shape_under_another_name(tmp_path):
    first(tmp_path, build(momentum()))
    report = resumed(tmp_path, build(momentum(), head="head"))[0].resumed
    assert report.afresh == dict.fromkeys(
        ("head", "head@MOMENTUM_VELOCITY"), "not in the checkpoint"
    )
    assert report.left == ("w1", "w1@MOMENTUM_VELOCITY")


@pytest.mark.parametrize("scale", [None, "dynamic"])
def test_half_precision(tmp_path, scale):
    """Float32 copies go on with their parameters; a counter that begins anew takes them along."""

    def half(**options):
        return build(adam(loss_scale=scale), dtype="float16", **options)

    before = first(tmp_path, half(), evaluate=None)
    report = resumed(tmp_path, half(head="head"), evaluate=None)[0].resumed
    assert {"w0@MASTER", "b0@MASTER", "b1@MASTER"} <= set(report.states) & set(before)
    assert report.afresh["optimizer@STEP"] == "with the states of head@MASTER"
    assert report.afresh["w0@ADAM_MOMENT1"] == "with the states of head@MASTER"


@pytest.mark.parametrize(
    ("kind", "state"), [("nadam", "NADAM_CORRECTION"), ("lbfgs", "LBFGS_STEPS")]
)
def test_states_of_the_whole_optimizer(tmp_path, kind, state):
    def net(rate=0.01, **options):
        return build(((rate, kind), {}), **options)

    first(tmp_path, net())
    report = resumed(tmp_path, net(0.02))[0].resumed
    assert f"optimizer@{state}" in report.states
    assert list(report.afresh) == ["optimizer@LEARNING_RATE"]
    report = resumed(tmp_path, net(0.02, head="head"), epochs=4)[0].resumed
    assert f"optimizer@{state}" in report.afresh and report.parameters == ("w0", "b0", "b1")


def test_one_of_two_rates_changes(tmp_path):
    def two(rate):
        return build(momentum(0.1, parameters=["w0"]), momentum(rate, parameters="rest"))

    first(tmp_path, two(0.2))
    history, scope = resumed(tmp_path, two(0.3))
    assert history.resumed.afresh == {"optimizer@LEARNING_RATE@2": "rate 0.2 there and 0.3 here"}
    assert scope.numpy("optimizer@LEARNING_RATE@2") == np.float32(0.3)


def test_a_rate_that_a_schedule_made_before(tmp_path):
    first(tmp_path, build(momentum(0.1, **COSINE)))
    report = resumed(tmp_path, build(momentum(0.05)))[0].resumed
    assert report.afresh == {"optimizer@LEARNING_RATE": "not in the checkpoint"}
    assert report.left == ("optimizer@STEP",)


def test_nothing_changed_goes_on_bit_for_bit(tmp_path):
    straight = Scope()
    whole = run(straight, build(adam()), epochs=4, metrics=())
    part = InterruptAfter(2, 1)
    run(Scope(), build(adam()), batches=part, metrics=(), checkpoint=tmp_path / "run")
    history, scope = resumed(tmp_path, build(adam()), epochs=4)
    assert history.resumed is None
    assert numbers(history) == numbers(whole)
    assert same(values(scope, build(adam())), values(straight, build(adam())))


def test_an_interrupted_epoch_begins_anew(tmp_path):
    part = InterruptAfter(2, 1)
    run(Scope(), build(adam()), batches=part, metrics=(), checkpoint=tmp_path / "run")
    assert read_checkpoint(tmp_path / "run").state["batch"] == 2
    history, scope = resumed(tmp_path, build(adam(0.02)), epochs=3)
    assert [row["epoch"] for row in history.rows] == [1, 2, 3]
    assert scope.numpy("optimizer@STEP") == 2 * 4 + 2 + 4


def test_other_metrics(tmp_path):
    first(tmp_path, build(adam()))
    history, _ = resumed(tmp_path, build(adam()))
    assert history.resumed is None
    b = build(adam())
    b.reduce_sum("scores", name="total")
    history, _ = resumed(tmp_path, b, epochs=4, metrics=["total"])
    assert history.resumed.afresh == {} and np.isnan(history["total"][:2]).all()


def test_an_early_stop_watches_from_here(tmp_path):
    first(tmp_path, build(adam(3.0)), epochs=30, early_stop=(2,))
    done = read_checkpoint(tmp_path / "run").state
    assert done["finished"]
    history, _ = resumed(tmp_path, build(adam(0.001)), epochs=done["epoch"] + 2, early_stop=(5,))
    assert len(history) == done["epoch"] + 2 and not history.stopped_early
    assert history.best_epoch > done["epoch"]


def test_without_a_checkpoint_it_starts_afresh(tmp_path):
    history, _ = resumed(tmp_path, build(adam()))
    assert history.resumed is None and len(history) == 3


# -- what is refused -------------------------------------------------------------------------------


def test_nothing_left_to_do(tmp_path):
    first(tmp_path, build(adam()))
    scope = Scope()
    with pytest.raises(OpscopeError, match="2 epochs are over there, and epochs=2 counts them"):
        resumed(tmp_path, build(adam(0.2)), epochs=2, scope=scope)
    assert scope.names() == []


def test_nothing_fits(tmp_path):
    first(tmp_path, build(adam()))
    b = NetBuilder("other")
    y = b.fc(b.input("x", [-1, 6]), 2)
    b.backward_from(b.mean(y, name="loss"))
    b.add_optimization()
    scope = Scope()
    with pytest.raises(FormatError, match="no parameter of this net is there with its shape"):
        resumed(tmp_path, b, batches=[{"x": data()["x"]}], evaluate=None, scope=scope)
    assert scope.names() == []


def test_the_refusal_of_a_changed_net_says_how(tmp_path):
    first(tmp_path, build(adam()))
    with pytest.raises(FormatError, match="of another net: .*resume='weights' takes over what"):
        resumed(tmp_path, build(adam(0.2)), resume=True)


@pytest.mark.parametrize("value", ["all", "run.checkpoint", 2, None])
def test_other_values_of_resume(tmp_path, value):
    with pytest.raises(OpscopeError, match="resume is True, False or 'weights', not"):
        resumed(tmp_path, build(adam()), resume=value)


@pytest.mark.parametrize("mine", [True, False])
def test_what_begins_afresh_in_a_scope_with_values(tmp_path, mine):
    """Values of a training before begin anew; those that the user has set stay."""
    scope = Scope()
    run(scope, build(adam(0.01), classes=4), epochs=2, metrics=(), checkpoint=tmp_path / "run")
    head = np.full((8, 3), 0.5, "float32")
    if mine:
        scope.feed({"w1": head, "b1": head[0]})
    net = build(adam(0.0), classes=3)
    resumed(tmp_path, net, scope=scope)
    assert np.array_equal(scope.numpy("w1"), head) == mine
    assert scope.numpy("w1").shape == (8, 3) and scope.numpy("optimizer@STEP") == 4


def test_one_optimizer_begins_anew_and_the_other_goes_on(tmp_path):
    def two(kind):
        second = (0.2, kind), {"parameters": "rest"}
        return build(adam(0.1, parameters=["w0"]), second)

    first(tmp_path, two("adam"))
    history, scope = resumed(tmp_path, two("radam"))
    report = history.resumed
    assert {"optimizer@STEP", "w0@ADAM_MOMENT1"} <= set(report.states)
    assert report.afresh["optimizer@STEP@2"] == "with the states of b0"
    assert scope.numpy("optimizer@STEP") == 12 and scope.numpy("optimizer@STEP@2") == 4
